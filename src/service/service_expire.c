/* SPDX-License-Identifier: MIT */
/*
 * Reservations in stores that were never settled. The worker that gave the ticket asks the store to
 * close it soon after its deadline; so does any server that is asked to settle it late. The store
 * closes a ticket once, for any caller. docs/decisions/0057.
 */
#include "service/service_parts.h"

#include "base/ns.h"
#include "base/wide_int.h"

#include <stdlib.h>

#define AGAIN_NS NS_PER_S /* after a store that could not be asked */

/* What is on its way to a store. */
struct expiring {
    struct service *service;
    struct errand *errand; /* NULL: nothing is */
    uint32_t at;           /* of the worker's expiries */
};

void service_count_expired(struct service *service, const struct question_expired *expired)
{
    static const uint8_t events[] = {[STINT_EXPIRY_FLOOR] = METRICS_EXPIRED_FLOOR,
                                     [STINT_EXPIRY_RELEASE] = METRICS_EXPIRED_RELEASE};
    if (!expired->is_closed)
        return;
    if (expired->action != STINT_EXPIRY_KEEP)
        metrics_event(service->metrics, (enum metrics_event)events[expired->action], 1);
    metrics_event(service->metrics, METRICS_EXPIRY_KEPT_UNITS, expired->kept_units);
}

void service_expect_expiry(struct service *service, const struct request *request, uint64_t now_ns)
{
    struct question *question = &service->question;
    uint8_t bytes[TICKET_BYTES_MAX];
    if (request->verb != REQUEST_RESERVE || !question_ticket_expires(question))
        return;
    size_t len = question_ticket_write(question, bytes);
    if (expiries_find(&service->expiries, question_ticket_id(span_of(bytes, len))) != EXPIRIES_NONE)
        return; /* a retry was given the same ticket */
    uint64_t due_ns = add_sat(now_ns, question->ticket_ns);
    if (!expiries_add(&service->expiries, span_of(bytes, len), due_ns,
                      add_sat(due_ns, question->longer_ns)))
        metrics_event(service->metrics, METRICS_EXPIRIES_LOST, 1);
}

void service_expect_no_expiry(struct service *service, struct span ticket)
{
    uint32_t at = expiries_find(&service->expiries, question_ticket_id(ticket));
    if (at != EXPIRIES_NONE && !service->expiries.entries[at].is_asked)
        expiries_remove(&service->expiries, at);
}

static void on_answers(void *arg, uint64_t now_ns);

/* What the store said, or that it is to be asked again. */
static void end(struct expiring *expiring, const struct stint_decision *decision,
                const struct question_expired *expired, uint64_t now_ns)
{
    struct service *service = expiring->service;
    struct expiry *entry = &service->expiries.entries[expiring->at];
    uint8_t fault = service->question.fault;
    bool is_early = fault == 0 && !expired->is_closed;
    entry->is_asked = false;
    service_count_expired(service, expired);
    if (is_early || (fault != 0 && fault != SHARED_GONE && fault != SHARED_REFUSED)) {
        entry->due_ns = add_sat(now_ns, is_early ? decision->retry_after_ns : AGAIN_NS);
        if (is_early) /* it was renewed elsewhere */
            entry->give_up_ns = max_u64(entry->give_up_ns, add_sat(entry->due_ns, AGAIN_NS));
        if (entry->due_ns < entry->give_up_ns)
            return;
    }
    expiries_remove(&service->expiries, expiring->at);
}

static void run(struct expiring *expiring, struct errand *errand, uint64_t now_ns)
{
    struct service *service = expiring->service;
    struct question *question = &service->question;
    struct expiry *entry = &service->expiries.entries[expiring->at];
    struct question_expired expired = {.is_closed = false};
    struct stint_decision decision = {.outcome = STINT_DENY};
    question_begin(question, now_ns);
    if (question_add_ticket(question, span_of(entry->ticket, entry->len), NULL) != 0) {
        question->fault = SHARED_GONE; /* the store is none of this server's any more */
    } else {
        errand_rewind(errand);
        errand->done = NULL;
        question->errand = errand;
        question->now_ns = errand->now_ns;
        decision = question_expire(question, &expired);
        question->errand = NULL;
    }
    if (question->is_waiting && question->fault == 0) {
        expiring->errand = errand;
        service_on_answers(errand, on_answers, expiring);
        return;
    }
    errand_free(errand);
    end(expiring, &decision, &expired, now_ns);
}

static void on_answers(void *arg, uint64_t now_ns)
{
    struct expiring *expiring = arg;
    struct errand *errand = expiring->errand;
    expiring->errand = NULL;
    run(expiring, errand, now_ns);
}

static struct expiring *free_one(struct service *service)
{
    for (size_t i = 0; i < SERVICE_EXPIRING_MAX; i++)
        if (service->expiring[i].errand == NULL)
            return &service->expiring[i];
    return NULL;
}

void service_expire(struct service *service, uint64_t now_ns)
{
    struct expiries *expiries = &service->expiries;
    for (uint32_t at = 0; expiries->n_open > 0 && at < expiries->capacity; at++) {
        struct expiry *entry = &expiries->entries[at];
        if (entry->ticket == NULL || entry->is_asked || entry->due_ns > now_ns)
            continue;
        struct expiring *expiring = free_one(service);
        struct errand *errand =
            expiring != NULL ? errand_new(&service->errands, now_ns, service->stores.timeout_ns)
                             : NULL;
        if (errand == NULL)
            return; /* the rest comes next time */
        entry->is_asked = true;
        expiring->service = service;
        expiring->at = at;
        run(expiring, errand, now_ns);
    }
}

void service_stop_expiring(struct service *service)
{
    for (size_t i = 0; service->expiring != NULL && i < SERVICE_EXPIRING_MAX; i++) {
        errand_free(service->expiring[i].errand);
        service->expiring[i].errand = NULL;
    }
    expiries_deinit(&service->expiries);
}

bool service_init_expiring(struct service *service)
{
    service->expiring = calloc(SERVICE_EXPIRING_MAX, sizeof(*service->expiring));
    return service->expiring != NULL;
}
