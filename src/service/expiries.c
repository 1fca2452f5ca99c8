/* SPDX-License-Identifier: MIT */
/*
 * Soon after the deadline, the worker that issued the ticket sends the store a request to close it;
 * so does any server that is asked to settle it late. The store closes a ticket once, for any
 * caller. docs/decisions/0057.
 */
#define _GNU_SOURCE
#include "service/service_parts.h"

#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS NS_PER_S /* after a failed store request */
#define ASKED_MAX 64      /* store requests at once */

static void free_entry(void *entry)
{
    pending_free(((struct expiry *)entry)->pending);
    free(entry);
}

void expiries_deinit(struct expiries *expiries)
{
    tdestroy(expiries->tree, free_entry);
    timer_queue_deinit(&expiries->due);
    *expiries = (struct expiries){.tree = NULL};
}

static int compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, BACKEND_ID_LEN);
}

bool expiries_add(struct expiries *expiries, struct span ticket, uint64_t due_ns,
                  uint64_t give_up_ns)
{
    assert(expiries->n_open <= EXPIRIES_MAX && expiries->n_asked <= ASKED_MAX);
    bool has_space = expiries->n_open < EXPIRIES_MAX &&
                     timer_queue_reserve(&expiries->due, expiries->n_open + 1);
    struct expiry *entry = has_space ? malloc(sizeof(*entry) + ticket.len) : NULL;
    if (entry == NULL)
        return false;
    *entry = (struct expiry){.len = ticket.len, .give_up_ns = give_up_ns};
    memcpy(entry->id, evaluation_ticket_id(ticket), sizeof(entry->id));
    memcpy(entry->ticket, ticket.ptr, ticket.len);
    if (tsearch(entry, &expiries->tree, compare_ids) == NULL) {
        free(entry);
        return false;
    }
    timer_queue_set(&expiries->due, &entry->due, due_ns);
    expiries->n_open++;
    return true;
}

struct expiry *expiries_find(const struct expiries *expiries, const uint8_t *id)
{
    struct expiry *const *found = tfind(id, &expiries->tree, compare_ids);
    return found != NULL ? *found : NULL;
}

void expiries_remove(struct expiries *expiries, struct expiry *entry)
{
    assert(expiries->n_open > 0 && entry->pending == NULL);
    timer_queue_set(&expiries->due, &entry->due, STINT_NEVER_NS);
    tdelete(entry, &expiries->tree, compare_ids);
    free(entry);
    expiries->n_open--;
}

/* ---- Tickets that are never settled ---------------------------------------------------------- */

void expiries_count(struct service *service, const struct evaluation_expired *expired)
{
    assert(!expired->is_closed || expired->action <= STINT_EXPIRY_RELEASE);
    static const uint8_t events[] = {[STINT_EXPIRY_FLOOR] = METRICS_EXPIRED_FLOOR,
                                     [STINT_EXPIRY_RELEASE] = METRICS_EXPIRED_RELEASE};
    if (!expired->is_closed)
        return;
    if (expired->action != STINT_EXPIRY_KEEP)
        metrics_event(service->metrics, (enum metrics_event)events[expired->action], 1);
    metrics_event(service->metrics, METRICS_EXPIRY_KEPT_UNITS, expired->kept_units);
}

void expiries_forget(struct service *service, struct span ticket)
{
    struct expiry *entry = expiries_find(&service->expiries, evaluation_ticket_id(ticket));
    if (entry != NULL && entry->pending == NULL)
        expiries_remove(&service->expiries, entry);
}

void expiries_expect(struct service *service, const struct request *request, uint64_t now_ns)
{
    assert(service->stores.n_stores > 0);
    struct evaluation *evaluation = &service->evaluation;
    uint8_t bytes[TICKET_BYTES_MAX];
    if (request->verb != REQUEST_RESERVE || !evaluation_ticket_expires(evaluation))
        return;
    size_t len = evaluation_ticket_write(evaluation, bytes);
    if (expiries_find(&service->expiries, evaluation_ticket_id(span_of(bytes, len))) != NULL)
        return; /* a retry returned the same ticket */
    uint64_t due_ns = add_sat(now_ns, evaluation->ticket_ns);
    if (!expiries_add(&service->expiries, span_of(bytes, len), due_ns,
                      add_sat(due_ns, evaluation->longer_ns)))
        metrics_event(service->metrics, METRICS_EXPIRIES_LOST, 1);
}

static void on_answers(void *arg, uint64_t now_ns);

/* Handles the store's reply, or schedules another attempt. */
static void end(struct expiry *entry, const struct stint_decision *decision,
                const struct evaluation_expired *expired, uint64_t now_ns)
{
    assert(service_is_valid(entry->service) && entry->pending == NULL);
    struct service *service = entry->service;
    uint8_t fault = service->evaluation.fault;
    bool is_early = fault == 0 && !expired->is_closed;
    uint64_t due_ns = now_ns;
    expiries_count(service, expired);
    if (is_early || (fault != 0 && fault != BACKEND_GONE && fault != BACKEND_REFUSED)) {
        due_ns = add_sat(now_ns, is_early ? decision->retry_after_ns : AGAIN_NS);
        if (is_early) /* it was renewed by another server */
            entry->give_up_ns = max_u64(entry->give_up_ns, add_sat(due_ns, AGAIN_NS));
        if (due_ns < entry->give_up_ns) {
            timer_queue_set(&service->expiries.due, &entry->due, due_ns);
            return;
        }
    }
    if (!expired->is_closed && due_ns >= entry->give_up_ns) /* the store has forgotten it */
        metrics_event(service->metrics, METRICS_EXPIRIES_LOST, 1);
    expiries_remove(&service->expiries, entry);
}

static void run(struct expiry *entry, struct pending *pending, uint64_t now_ns)
{
    assert(entry->pending == NULL);
    struct evaluation *evaluation = &entry->service->evaluation;
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
    if (evaluation->is_waiting && pending->loss == NULL) {
        pending->done = on_answers;
        pending->arg = entry;
        entry->pending = pending;
        timer_queue_set(&entry->service->expiries.due, &entry->due, STINT_NEVER_NS);
        entry->service->expiries.n_asked++;
        return;
    }
    pending_free(pending);
    end(entry, &decision, &expired, now_ns);
}

static void on_answers(void *arg, uint64_t now_ns)
{
    struct expiry *entry = arg;
    struct service *service = entry->service;
    struct pending *pending = entry->pending;
    assert(pending != NULL);
    entry->pending = NULL;
    service->expiries.n_asked--;
    run(entry, pending, now_ns);
    service_expire(service, now_ns);
}

/* Begins those that are due, as many as may be asked for at once: each answer begins more. */
void service_expire(struct service *service, uint64_t now_ns)
{
    assert(service_is_valid(service));
    struct expiries *expiries = &service->expiries;
    for (unsigned n = 0; n < ASKED_MAX && expiries->n_asked < ASKED_MAX; n++) {
        struct timer *first = timer_queue_first(&expiries->due);
        if (first == NULL || first->at_ns > now_ns)
            return;
        struct expiry *entry =
            (struct expiry *)(void *)((char *)first - offsetof(struct expiry, due));
        struct pending *pending =
            pending_new(&service->pending_requests, now_ns, service->stores.timeout_ns);
        if (pending == NULL)
            return;
        entry->service = service;
        run(entry, pending, now_ns);
    }
}

void service_stop_expiring(struct service *service)
{
    expiries_deinit(&service->expiries);
}
