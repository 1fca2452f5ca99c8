/* SPDX-License-Identifier: MIT */
/* One worker's way from a request to its reply: who may ask, which rules hold, which verb it is. */
#include "service/service_parts.h"

#include "base/err.h"
#include "base/wide_int.h"
#include "service/access/access.h"

#include <stdlib.h>

struct service *service_new(struct hub *hub, unsigned worker)
{
    struct service *service = calloc(1, sizeof(*service));
    if (service == NULL)
        return NULL;
    service->hub = hub;
    service->table = hub->table;
    service->worker = worker;
    service->metrics = metrics_worker(hub->metrics, worker);
    if (question_init(&service->question, hub->table, NULL) != 0 ||
        !service_init_expiring(service)) {
        question_deinit(&service->question);
        free(service);
        return NULL;
    }
    service->question.all_shadow = hub->shadow_mode;
    service->question.all_quota_mode = hub->quota_mode;
    service->question.charges_hits = hub->charges_hits;
    service->question.checks_debt = hub->checks_debt;
    memcpy(service->specs.secret, hub->table->region.fixed.hash_key, sizeof(service->specs.secret));
    service->ruleset = hub_ruleset(hub, &service->generation);
    return service;
}

void service_free(struct service *service)
{
    if (service == NULL)
        return;
    service_stop_expiring(service);
    free(service->expiring);
    ruleset_unref(service->ruleset);
    ruleset_unref(service->lent);
    errands_deinit(&service->errands);
    question_deinit(&service->question);
    free(service);
}

struct hub *service_hub(const struct service *service)
{
    return service->hub;
}

unsigned service_worker(const struct service *service)
{
    return service->worker;
}

/* ---- Refusing -------------------------------------------------------------------------------- */

void service_refuse_as(struct reply *reply, enum reply_error why, const char *sentence)
{
    struct stint_error text;
    err_set(&text, 0, "%s", sentence);
    reply->error = (uint8_t)why;
    memcpy(reply->sentence, text.sentence, sizeof(reply->sentence));
}

void service_refuse(struct reply *reply, const struct stint_error *error)
{
    switch (error->code) {
    case STINT_E_FULL:
        service_refuse_as(reply, REPLY_FULL, error->sentence);
        break;
    case STINT_E_BUSY:
    case STINT_E_SYSTEM:
        service_refuse_as(reply, REPLY_UNAVAILABLE, error->sentence);
        break;
    default:
        service_refuse_as(reply, REPLY_BAD_REQUEST, error->sentence);
    }
}

/* ---- Asking ---------------------------------------------------------------------------------- */

void service_renew_rules(struct service *service)
{
    if (hub_generation(service->hub) == service->generation)
        return;
    ruleset_unref(service->ruleset);
    service->ruleset = hub_ruleset(service->hub, &service->generation);
}

static unsigned role_for(unsigned verb)
{
    return request_is_administrative((int)verb) ? ACCESS_ADMINISTER : ACCESS_ASK;
}

/* Field by field: a reply is large, and most of it is not looked at. */
static void begin(struct reply *reply, uint64_t now_ns)
{
    reply->error = REPLY_DECIDED;
    reply->replayed = false;
    reply->has_ticket = false;
    reply->found = false;
    reply->sentence[0] = '\0';
    reply->at_ns = now_ns;
    reply->statuses = NULL;
    reply->n_statuses = 0;
    reply->ticket_text = span_of(NULL, 0);
    reply->errand = NULL;
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
        if (request->errand == NULL)
            service_renew_rules(service);
        service_decide(service, request, now_ns, reply);
        break;
    }
}

/* It goes on under the rules that it was begun under. */
static void go_on(struct service *service, const struct request *request, uint64_t now_ns,
                  struct reply *reply)
{
    struct ruleset *in_force = service->ruleset;
    service->ruleset = request->errand->rules;
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

/* Of the others nothing can be begun before its turn: they act at once. */
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
    reply->dies_after_ns = 0;
    service->caller = caller;
    if (request->errand != NULL)
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
    begin(reply, now_ns);
    if (request->is_ahead && !may_be_ahead(service, request)) {
        reply->error = REPLY_AHEAD;
        return;
    }
    if (may_ask(request, caller, reply)) {
        /* The shortest way is for what is asked most. */
        if (request->verb == REQUEST_THROTTLE && request->id.len == 0 && request->errand == NULL)
            service_throttle(service, request, now_ns, reply);
        else
            answer_all(service, request, caller, now_ns, reply);
    } else {
        service_drop(service, request->errand);
    }
    if (reply->error == REPLY_WAITS || reply->error == REPLY_AHEAD)
        return;
    metrics_asked(service->metrics, (enum metrics_door)caller->door, request->verb, reply->error);
}

uint64_t service_retry_at(const struct request *request, const struct reply *reply,
                          uint64_t asked_ns, uint64_t now_ns)
{
    uint64_t patience_ends_ns = add_sat(asked_ns, request->wait_ns);
    if (request->wait_ns == 0 || reply->error != REPLY_DECIDED ||
        reply->decision.outcome != STINT_DENY)
        return 0;
    /* Others may be faster once it is time: then it is asked again, for as long as there is. */
    uint64_t again_ns = add_sat(now_ns, max_u64(reply->decision.retry_after_ns, 1));
    return again_ns <= patience_ends_ns ? again_ns : 0;
}
