/* SPDX-License-Identifier: MIT */
/* The library's own way: a service decides. */
#include "behaviour/frontend.h"
#include "behaviour/store.h"
#include "proto/ticket_text.h"

#include <stdio.h>

static const char *const outcomes[] = {
    [STINT_ALLOW] = "allow", [STINT_DENY] = "deny", [STINT_NEVER] = "never"};

static void *open_service(const char *yaml, int64_t epoch_ns)
{
    struct test_server *server = malloc(sizeof(*server));
    assert_non_null(server);
    serve_since(server, yaml, epoch_ns);
    store_give(server->service);
    return server;
}

static void close_service(void *frontend)
{
    server_close(frontend);
    free(frontend);
}

static int64_t ms_up(uint64_t ns)
{
    return ns != STINT_NEVER_NS ? (int64_t)((ns + MS - 1) / MS) : METRIC_NONE;
}

static struct metrics metrics_of(const struct stint_decision *decision, bool is_limited)
{
    struct metrics metrics = {
        .granted = decision->granted,
        .limit = is_limited ? (int64_t)decision->limit : METRIC_NONE,
        .remaining = is_limited ? (int64_t)decision->remaining : METRIC_NONE,
        .retry_after_ms = ms_up(decision->retry_after_ns),
    };
    strcpy(metrics.outcome, outcomes[decision->outcome]);
    return metrics;
}

static struct metrics status_metrics(const struct target *status)
{
    struct metrics metrics = metrics_of(&status->decision, reply_quota(status) != NULL);
    metrics.over = status->over;
    metrics.banned = status->banned;
    metrics.replaced = status->is_replaced;
    metrics.matched = status->rule != NULL && !status->is_replaced;
    metrics.shadow_over = status->shadow_over;
    metrics.shadow_retry_after_ms = ms_up(status->shadow_retry_after_ns);
    return metrics;
}

static void read_reply(const struct reply *reply, struct result *result)
{
    bool is_limited = reply->n_statuses == 0;
    result->binding = reply->decision.binding;
    result->n_statuses = reply->n_statuses;
    result->replayed = reply->replayed;
    for (size_t i = 0; i < reply->n_statuses; i++)
        result->statuses[i] = status_metrics(&reply->statuses[i]);
    if (reply->n_statuses > 0)
        is_limited = reply_quota(&reply->statuses[result->binding]) != NULL;
    result->all = metrics_of(&reply->decision, is_limited);
    if (reply->has_ticket) {
        char space[TICKET_TEXT_LEN];
        struct span ticket = ticket_text_of(reply, space);
        assert_true(ticket.len < sizeof(result->ticket));
        memcpy(result->ticket, ticket.ptr, ticket.len);
        result->ticket[ticket.len] = '\0';
    }
}

static void read_done(const struct reply *reply, uint8_t verb, struct result *result)
{
    strcpy(result->all.outcome, "ok");
    if (verb != REQUEST_COUNT)
        return;
    result->all.count = (int64_t)reply->counter.count;
    result->all.expires_after_ms = ms_up(reply->counter.expires_after_ns);
}

bool service_decide(struct test_server *server, const struct request *request, uint64_t now_ns,
                    struct result *result)
{
    struct request own = *request;
    server->now_ns = now_ns;
    own.ticket_text = (struct span){NULL, 0};
    if (request->ticket_text.len > 0)
        assert_true(ticket_text_read(request->ticket_text, &own));
    const struct reply *reply = ask(server, &own);
    memset(result, 0, sizeof(*result));
    snprintf(result->reply, sizeof(result->reply), "%s", reply->message);
    if (reply->error > REPLY_UNAVAILABLE)
        return false;
    if (reply->error != REPLY_DECIDED)
        strcpy(result->all.outcome, error_names[reply->error]);
    else if (is_without_decision(request->verb))
        read_done(reply, request->verb, result);
    else
        read_reply(reply, result);
    return true;
}

static bool decide_service(void *frontend, void *beside, const struct request *request,
                           uint64_t now_ns, const struct result *exact, struct result *result)
{
    (void)beside, (void)exact;
    return service_decide(frontend, request, now_ns, result);
}

const struct frontend frontend_service = {"service", open_service, decide_service, close_service};
