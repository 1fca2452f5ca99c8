/* SPDX-License-Identifier: MIT */
/* One worker's path from a request to its reply: the caller's rights, the rules, the verb. */
#include "service/service_parts.h"

#include "base/err.h"
#include "base/wide_int.h"
#include "service/access/access.h"

#include <assert.h>
#include <stdlib.h>

struct service *service_new(struct server_state *server_state, unsigned worker)
{
    struct service *service = calloc(1, sizeof(*service));
    if (service == NULL)
        return NULL;
    service->server_state = server_state;
    service->table = server_state->table;
    service->worker = worker;
    service->metrics = metrics_worker(server_state->metrics, worker);
    if (evaluation_init(&service->evaluation, server_state->table, NULL) != 0 ||
        !service_init_expiring(service)) {
        evaluation_deinit(&service->evaluation);
        free(service);
        return NULL;
    }
    service->evaluation.all_shadow = server_state->shadow_mode;
    service->evaluation.all_quota_mode = server_state->quota_mode;
    service->evaluation.charges_hits = server_state->charges_hits;
    service->evaluation.checks_debt = server_state->checks_debt;
    memcpy(service->specs.secret, server_state->table->region.fixed.hash_key,
           sizeof(service->specs.secret));
    service->ruleset = server_state_ruleset(server_state, &service->generation);
    return service;
}

void service_free(struct service *service)
{
    if (service == NULL)
        return;
    service_stop_expiring(service);
    free(service->expiring);
    ruleset_unref(service->ruleset);
    ruleset_unref(service->borrowed);
    pending_requests_deinit(&service->pending_requests);
    evaluation_deinit(&service->evaluation);
    free(service);
}

struct server_state *service_server_state(const struct service *service)
{
    return service->server_state;
}

unsigned service_worker(const struct service *service)
{
    return service->worker;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

void service_refuse_as(struct reply *reply, enum reply_error why, const char *message)
{
    struct stint_error text;
    err_set(&text, 0, "%s", message);
    reply->error = (uint8_t)why;
    memcpy(reply->message, text.message, sizeof(reply->message));
}

void service_refuse(struct reply *reply, const struct stint_error *error)
{
    switch (error->code) {
    case STINT_E_FULL:
        service_refuse_as(reply, REPLY_FULL, error->message);
        break;
    case STINT_E_BUSY:
    case STINT_E_SYSTEM:
        service_refuse_as(reply, REPLY_UNAVAILABLE, error->message);
        break;
    default:
        service_refuse_as(reply, REPLY_BAD_REQUEST, error->message);
    }
}

/* ---- Requests -------------------------------------------------------------------------------- */

void service_renew_rules(struct service *service)
{
    if (server_state_generation(service->server_state) == service->generation)
        return;
    ruleset_unref(service->ruleset);
    service->ruleset = server_state_ruleset(service->server_state, &service->generation);
}

static unsigned role_for(unsigned verb)
{
    return request_is_administrative((int)verb) ? ACCESS_ADMINISTER : ACCESS_ASK;
}

/* Sets single members: a reply is large, and most of it is not read. */
static void begin(struct reply *reply, uint64_t now_ns)
{
    reply->error = REPLY_DECIDED;
    reply->replayed = false;
    reply->has_ticket = false;
    reply->found = false;
    reply->message[0] = '\0';
    reply->at_ns = now_ns;
    reply->statuses = NULL;
    reply->n_statuses = 0;
    reply->ticket_text = span_of(NULL, 0);
    reply->pending = NULL;
}

void service_answer(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply)
{
    switch (request->verb) {
    case REQUEST_THROTTLE:
        service_throttle(service, request, now_ns, reply);
        break;
    case REQUEST_FORGET:
        service_forget(service, request, now_ns, reply);
        break;
    case REQUEST_FIND:
        service_find(service, request, now_ns, reply);
        break;
    case REQUEST_SETTLE:
    case REQUEST_CANCEL:
    case REQUEST_RENEW:
        service_ticket(service, request, now_ns, reply);
        break;
    default:
        if (request->pending == NULL)
            service_renew_rules(service);
        service_decide(service, request, now_ns, reply);
        break;
    }
}

/* The evaluation continues under the rules with which it began. */
static void go_on(struct service *service, const struct request *request, uint64_t now_ns,
                  struct reply *reply)
{
    struct ruleset *in_force = service->ruleset;
    service->ruleset = request->pending->rules;
    service_answer(service, request, now_ns, reply);
    service->ruleset = in_force;
}

static bool may_ask(const struct request *request, const struct caller *caller, struct reply *reply)
{
    if ((caller->roles & role_for(request->verb)) != 0)
        return true;
    reply->decision = (struct stint_decision){.outcome = STINT_NEVER};
    service_refuse_as(reply, REPLY_FORBIDDEN, "the token's roles do not allow this");
    return false;
}

static void answer_once(struct service *service, const struct request *request,
                        const struct caller *caller, uint64_t now_ns, struct reply *reply)
{
    if (request->is_ahead)
        reply->error = REPLY_AHEAD;
    else
        service_once(service, request, caller, now_ns, reply);
}

/* The other verbs act at once, so they cannot begin before their turn. */
static bool may_be_ahead(const struct service *service, const struct request *request)
{
    static const uint32_t verbs = 1u << REQUEST_TAKE | 1u << REQUEST_TAKE_UPTO |
                                  1u << REQUEST_PEEK | 1u << REQUEST_CHARGE | 1u << REQUEST_REFUND |
                                  1u << REQUEST_EXPLAIN | 1u << REQUEST_THROTTLE;
    return service->stores.n_stores > 0 && (verbs & 1u << request->verb) != 0;
}

static void answer_all(struct service *service, const struct request *request,
                       const struct caller *caller, uint64_t now_ns, struct reply *reply)
{
    reply->decision = (struct stint_decision){.outcome = STINT_ALLOW};
    reply->ticket = (struct stint_ticket){0, 0};
    reply->expires_after_ns = 0;
    service->caller = caller;
    if (request->pending != NULL)
        go_on(service, request, now_ns, reply);
    else if (request->id.len > 0 && request_is_charging(request->verb) &&
             !service_is_shared(service, request, now_ns))
        answer_once(service, request, caller, now_ns, reply);
    else
        service_answer(service, request, now_ns, reply);
}

void service_ask(struct service *service, const struct request *request,
                 const struct caller *caller, uint64_t now_ns, struct reply *reply)
{
    assert(request_is_valid(request));
    begin(reply, now_ns);
    if (request->is_ahead && !may_be_ahead(service, request)) {
        reply->error = REPLY_AHEAD;
        return;
    }
    if (may_ask(request, caller, reply)) {
        /* The most frequent case takes the shortest path. */
        if (request->verb == REQUEST_THROTTLE && request->id.len == 0 && request->pending == NULL)
            service_throttle(service, request, now_ns, reply);
        else
            answer_all(service, request, caller, now_ns, reply);
    } else {
        service_drop(service, request->pending);
    }
    if (reply->error == REPLY_WAITS || reply->error == REPLY_AHEAD)
        return;
    metrics_asked(service->metrics, (enum metrics_frontend)caller->frontend, request->verb,
                  reply->error);
}

uint64_t service_retry_at(const struct request *request, const struct reply *reply,
                          uint64_t asked_ns, uint64_t now_ns)
{
    uint64_t patience_ends_ns = add_sat(asked_ns, request->wait_ns);
    if (request->wait_ns == 0 || reply->error != REPLY_DECIDED ||
        reply->decision.outcome != STINT_DENY)
        return 0;
    /* Others may be faster at that time: then the request is decided again, within its limit. */
    uint64_t again_ns = add_sat(now_ns, max_u64(reply->decision.retry_after_ns, 1));
    return again_ns <= patience_ends_ns ? again_ns : 0;
}
