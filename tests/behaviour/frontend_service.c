/* SPDX-License-Identifier: MIT */
/* The library's own way: a service is asked, and its decision is rounded as frontends have to. */
#include "behaviour/frontend.h"
#include "behaviour/store.h"

#include <stdio.h>

static const char *const outcomes[] = {
    [STINT_ALLOW] = "allow", [STINT_DENY] = "deny", [STINT_NEVER] = "never"};

static void *open_service(const char *yaml, int64_t epoch_ns)
{
    struct serving *serving = malloc(sizeof(*serving));
    assert_non_null(serving);
    serve_since(serving, yaml, epoch_ns);
    store_give(serving->service);
    return serving;
}

static void close_service(void *frontend)
{
    serve_no_more(frontend);
    free(frontend);
}

static struct metrics metrics_of(const struct stint_decision *decision, bool is_limited)
{
    struct metrics metrics = {
        .granted = decision->granted,
        .limit = is_limited ? (int64_t)decision->limit : TOLD_NONE,
        .remaining = is_limited ? (int64_t)decision->remaining : TOLD_NONE,
        .retry_after_ms = decision->retry_after_ns != STINT_NEVER_NS
                              ? (int64_t)((decision->retry_after_ns + MS - 1) / MS)
                              : TOLD_NONE,
    };
    strcpy(metrics.outcome, outcomes[decision->outcome]);
    return metrics;
}

static bool ask_service(void *frontend, const struct request *request, uint64_t now_ns,
                        struct told *told)
{
    struct serving *serving = frontend;
    serving->now_ns = now_ns;
    const struct reply *reply = ask(serving, request);
    snprintf(told->answer, sizeof(told->answer), "%s", reply->message);
    if (reply->error != REPLY_DECIDED)
        return false;
    told->binding = reply->decision.binding;
    told->n_statuses = reply->n_statuses;
    for (size_t i = 0; i < reply->n_statuses; i++)
        told->statuses[i] =
            metrics_of(&reply->statuses[i].decision, reply_quota(&reply->statuses[i]) != NULL);
    told->all = metrics_of(&reply->decision, reply_quota(&reply->statuses[told->binding]) != NULL);
    return true;
}

const struct frontend frontend_service = {"service", open_service, ask_service, close_service};
