/* SPDX-License-Identifier: MIT */
/*
 * Requests whose states are in shared stores: what they have to ask is an errand, with which the
 * same request is asked again once the answers are there.
 */
#include "service/service_parts.h"

#include "service/pools.h"

#include <gnutls/crypto.h>

void service_set_stores(struct service *service, const struct question_stores *stores)
{
    service->stores = *stores;
    service->question.stores = &service->stores;
}

void service_on_answers(struct errand *errand, void (*done)(void *arg, uint64_t now_ns), void *arg)
{
    errand->done = done;
    errand->arg = arg;
}

void service_drop(struct service *service, struct errand *errand)
{
    (void)service;
    if (errand == NULL)
        return;
    ruleset_unref(errand->rules);
    errand_free(errand);
}

void service_pools_caller(struct service *service, struct errand *errand,
                          struct pools_caller *caller)
{
    *caller = (struct pools_caller){.stores = service->stores.pools,
                                    .errands = &service->errands,
                                    .timeout_ns = service->stores.timeout_ns,
                                    .errand = errand};
}

/* Of an errand that waited the reply points into its rules: they stay until the next one. */
static void end_errand(struct service *service, struct errand *errand)
{
    ruleset_unref(service->lent);
    service->lent = errand->rules;
    errand->rules = NULL;
    errand_free(errand);
}

static bool put_off(struct service *service, const struct request *request, struct reply *reply)
{
    service_drop(service, request->errand);
    reply->error = REPLY_AHEAD;
    return false;
}

/* What nobody else says: who has it may settle what it is of. */
static bool make_ticket_id(struct errand *errand)
{
    if (!errand->has_id)
        errand->has_id = gnutls_rnd(GNUTLS_RND_NONCE, errand->id, sizeof(errand->id)) == 0;
    return errand->has_id;
}

static bool add_id(struct service *service, const struct request *request, struct errand *errand)
{
    struct question *question = &service->question;
    if (request->id.len > 0 && request_is_charging(request->verb)) {
        question->id = service->id;
        question->id_lifetime_ns = service->hub->id_lifetime_ns;
        return service_shared_id(request, service->caller, service->id, &question->body);
    }
    if (request->verb != REQUEST_RESERVE && request->verb != REQUEST_BOOK)
        return true;
    question->id = errand->id;
    question->id_lifetime_ns = 0;
    question->body = 0;
    return make_ticket_id(errand);
}

static struct errand *errand_of(struct service *service, const struct request *request)
{
    return request->errand != NULL ? request->errand
                                   : errand_new(&service->errands, service->question.now_ns,
                                                service->stores.timeout_ns);
}

/* The references of rules are counted for all workers: only who waits takes one. */
static void begin_wait(struct service *service, struct errand *errand, struct reply *reply)
{
    if (errand->rules == NULL)
        errand->rules = ruleset_ref(service->ruleset);
    reply->error = REPLY_WAITS;
    reply->errand = errand;
}

bool service_begin_errand(struct service *service, const struct request *request,
                          struct reply *reply)
{
    struct question *question = &service->question;
    if (!question_asks_stores(question)) {
        if (request->is_ahead)
            return put_off(service, request, reply);
        service_drop(service, request->errand); /* the key has been given a quota elsewhere */
        return true;
    }
    if (request->is_ahead && question_asks_table(question))
        return put_off(service, request, reply);
    struct errand *errand = errand_of(service, request);
    if (errand == NULL || !add_id(service, request, errand)) {
        service_drop(service, errand);
        service_refuse_as(reply, REPLY_UNAVAILABLE, "no memory to ask the store");
        return false;
    }
    errand_rewind(errand);
    errand->done = NULL;
    question->errand = errand;
    question->now_ns = question->at_ns = errand->now_ns;
    question->is_ahead = request->is_ahead;
    return true;
}

static void refuse_fault(const struct question *question, struct reply *reply)
{
    static const uint8_t errors[] = {[SHARED_FAILED] = REPLY_UNAVAILABLE,
                                     [SHARED_REFUSED] = REPLY_BAD_REQUEST,
                                     [SHARED_CONFLICT] = REPLY_CONFLICT,
                                     [SHARED_GONE] = REPLY_GONE};
    const char *sentence = question->fault_sentence;
    if (question->fault == SHARED_GONE)
        sentence = SERVICE_GONE;
    service_refuse_as(reply, (enum reply_error)errors[question->fault],
                      sentence != NULL ? sentence : "the store cannot be asked");
}

bool service_end_errand(struct service *service, struct reply *reply)
{
    struct question *question = &service->question;
    struct errand *errand = question->errand;
    question->errand = NULL;
    if (errand == NULL)
        return true;
    if (question->is_ahead && !question->is_waiting)
        question->is_waiting = question->is_too_early = true; /* it asked nobody */
    if (errand->is_lost && question->fault == 0) {
        question->fault = SHARED_FAILED;
        question->fault_sentence = "the quotas of the request have changed while it was asked";
    }
    if (question->fault == 0 && question->is_waiting && !question->is_too_early) {
        begin_wait(service, errand, reply);
        return false;
    }
    end_errand(service, errand);
    if (question->fault != 0)
        refuse_fault(question, reply);
    else if (question->is_too_early)
        reply->error = REPLY_AHEAD;
    else if (question->is_replayed) {
        reply->replayed = true;
        metrics_event(service->metrics, METRICS_REPLAYED, 1);
    }
    return reply->error == REPLY_DECIDED;
}
