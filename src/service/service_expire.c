/* SPDX-License-Identifier: MIT */
/*
 * Reservations in stores that were never settled. Soon after the deadline, the worker that issued
 * the ticket sends the store a request to close it; so does any server that is asked to settle it
 * late. The store closes a ticket once, for any caller. docs/decisions/0057.
 */
#include "service/service_parts.h"

#include "base/ns.h"
#include "base/wide_int.h"

#include <stdlib.h>

#define AGAIN_NS NS_PER_S /* after a failed store request */

/* A store request that closes a ticket. */
struct expiring {
    struct service *service;
    struct pending *pending; /* NULL: the entry is free */
    uint32_t at;             /* of the worker's expiries */
};

void service_count_expired(struct service *service, const struct evaluation_expired *expired)
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
    struct evaluation *evaluation = &service->evaluation;
    uint8_t bytes[TICKET_BYTES_MAX];
    if (request->verb != REQUEST_RESERVE || !evaluation_ticket_expires(evaluation))
        return;
    size_t len = evaluation_ticket_write(evaluation, bytes);
    if (expiries_find(&service->expiries, evaluation_ticket_id(span_of(bytes, len))) !=
        EXPIRIES_NONE)
        return; /* a retry returned the same ticket */
    uint64_t due_ns = add_sat(now_ns, evaluation->ticket_ns);
    if (!expiries_add(&service->expiries, span_of(bytes, len), due_ns,
                      add_sat(due_ns, evaluation->longer_ns)))
        metrics_event(service->metrics, METRICS_EXPIRIES_LOST, 1);
}

void service_expect_no_expiry(struct service *service, struct span ticket)
{
    uint32_t at = expiries_find(&service->expiries, evaluation_ticket_id(ticket));
    if (at != EXPIRIES_NONE && !service->expiries.entries[at].is_asked)
        expiries_remove(&service->expiries, at);
}

static void on_answers(void *arg, uint64_t now_ns);

/* Handles the store's reply, or schedules another attempt. */
static void end(struct expiring *expiring, const struct stint_decision *decision,
                const struct evaluation_expired *expired, uint64_t now_ns)
{
    struct service *service = expiring->service;
    struct expiry *entry = &service->expiries.entries[expiring->at];
    uint8_t fault = service->evaluation.fault;
    bool is_early = fault == 0 && !expired->is_closed;
    entry->is_asked = false;
    service_count_expired(service, expired);
    if (is_early || (fault != 0 && fault != BACKEND_GONE && fault != BACKEND_REFUSED)) {
        entry->due_ns = add_sat(now_ns, is_early ? decision->retry_after_ns : AGAIN_NS);
        if (is_early) /* it was renewed by another server */
            entry->give_up_ns = max_u64(entry->give_up_ns, add_sat(entry->due_ns, AGAIN_NS));
        if (entry->due_ns < entry->give_up_ns)
            return;
    }
    expiries_remove(&service->expiries, expiring->at);
}

static void run(struct expiring *expiring, struct pending *pending, uint64_t now_ns)
{
    struct service *service = expiring->service;
    struct evaluation *evaluation = &service->evaluation;
    struct expiry *entry = &service->expiries.entries[expiring->at];
    struct evaluation_expired expired = {.is_closed = false};
    struct stint_decision decision = {.outcome = STINT_DENY};
    evaluation_begin(evaluation, now_ns);
    if (evaluation_add_ticket(evaluation, span_of(entry->ticket, entry->len), NULL) != 0) {
        evaluation->fault = BACKEND_GONE; /* the store is no longer configured */
    } else {
        pending_rewind(pending);
        pending->done = NULL;
        evaluation->pending = pending;
        evaluation->now_ns = pending->now_ns;
        decision = evaluation_expire(evaluation, &expired);
        evaluation->pending = NULL;
    }
    if (evaluation->is_waiting && evaluation->fault == 0) {
        expiring->pending = pending;
        service_on_answers(pending, on_answers, expiring);
        return;
    }
    pending_free(pending);
    end(expiring, &decision, &expired, now_ns);
}

static void on_answers(void *arg, uint64_t now_ns)
{
    struct expiring *expiring = arg;
    struct pending *pending = expiring->pending;
    expiring->pending = NULL;
    run(expiring, pending, now_ns);
}

static struct expiring *free_one(struct service *service)
{
    for (size_t i = 0; i < SERVICE_EXPIRING_MAX; i++)
        if (service->expiring[i].pending == NULL)
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
        struct pending *pending = expiring != NULL ? pending_new(&service->pending_requests, now_ns,
                                                                 service->stores.timeout_ns)
                                                   : NULL;
        if (pending == NULL)
            return; /* the rest follows next time */
        entry->is_asked = true;
        expiring->service = service;
        expiring->at = at;
        run(expiring, pending, now_ns);
    }
}

void service_stop_expiring(struct service *service)
{
    for (size_t i = 0; service->expiring != NULL && i < SERVICE_EXPIRING_MAX; i++) {
        pending_free(service->expiring[i].pending);
        service->expiring[i].pending = NULL;
    }
    expiries_deinit(&service->expiries);
}

bool service_init_expiring(struct service *service)
{
    service->expiring = calloc(SERVICE_EXPIRING_MAX, sizeof(*service->expiring));
    return service->expiring != NULL;
}
