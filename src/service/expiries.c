/* SPDX-License-Identifier: MIT */
/*
 * A hash table of tickets by their ids, which are random. Soon after the deadline, the worker that
 * issued the ticket sends the store a request to close it; so does any server that is asked to
 * settle it late. The store closes a ticket once, for any caller. docs/decisions/0057.
 */
#include "service/service_parts.h"

#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS NS_PER_S /* after a failed store request */

#define CAPACITY_MIN 64u

static uint32_t *home_of(const struct expiries *expiries, const uint8_t *id)
{
    assert(expiries->capacity > 0);
    uint32_t number;
    memcpy(&number, id, sizeof(number));
    return &expiries->homes[number & (expiries->capacity - 1)];
}

static const uint8_t *id_at(const struct expiries *expiries, uint32_t at)
{
    assert(at < expiries->capacity && expiries->entries[at].ticket != NULL);
    const struct expiry *entry = &expiries->entries[at];
    return evaluation_ticket_id(span_of(entry->ticket, entry->len));
}

static void link_in(struct expiries *expiries, uint32_t at)
{
    uint32_t *home = home_of(expiries, id_at(expiries, at));
    expiries->entries[at].next = *home;
    *home = at;
}

static bool grow(struct expiries *expiries)
{
    assert(expiries_is_valid(expiries) && expiries->n_open == expiries->capacity);
    uint32_t old = expiries->capacity, capacity = old == 0 ? CAPACITY_MIN : 2 * old;
    if (old == EXPIRIES_MAX)
        return false;
    struct expiry *entries = realloc(expiries->entries, capacity * sizeof(*entries));
    if (entries == NULL)
        return false;
    expiries->entries = entries;
    uint32_t *homes = realloc(expiries->homes, capacity * sizeof(*homes));
    if (homes == NULL)
        return false;
    expiries->homes = homes;
    expiries->capacity = capacity;
    expiries->free = EXPIRIES_NONE;
    for (uint32_t at = 0; at < capacity; at++)
        homes[at] = EXPIRIES_NONE;
    for (uint32_t at = 0; at < old; at++)
        link_in(expiries, at);
    for (uint32_t at = capacity; at-- > old;) {
        entries[at] = (struct expiry){.next = expiries->free};
        expiries->free = at;
    }
    return true;
}

void expiries_deinit(struct expiries *expiries)
{
    assert(expiries_is_valid(expiries));
    for (uint32_t at = 0; at < expiries->capacity; at++)
        free(expiries->entries[at].ticket);
    free(expiries->entries);
    free(expiries->homes);
    *expiries = (struct expiries){.entries = NULL};
}

bool expiries_add(struct expiries *expiries, struct span ticket, uint64_t due_ns,
                  uint64_t give_up_ns)
{
    assert(expiries_is_valid(expiries));
    assert(ticket.ptr != NULL && ticket.len >= BACKEND_ID_LEN);
    if (expiries->n_open == expiries->capacity && !grow(expiries))
        return false;
    uint8_t *copy = malloc(ticket.len);
    if (copy == NULL)
        return false;
    memcpy(copy, ticket.ptr, ticket.len);
    uint32_t at = expiries->free;
    assert(at < expiries->capacity && expiries->entries[at].ticket == NULL);
    expiries->free = expiries->entries[at].next;
    expiries->entries[at] = (struct expiry){
        .ticket = copy, .len = (uint32_t)ticket.len, .due_ns = due_ns, .give_up_ns = give_up_ns};
    expiries->n_open++;
    link_in(expiries, at);
    return true;
}

uint32_t expiries_find(const struct expiries *expiries, const uint8_t *id)
{
    assert(expiries_is_valid(expiries));
    if (expiries->n_open == 0)
        return EXPIRIES_NONE;
    uint32_t at = *home_of(expiries, id);
    while (at != EXPIRIES_NONE && memcmp(id_at(expiries, at), id, BACKEND_ID_LEN) != 0)
        at = expiries->entries[at].next;
    return at;
}

void expiries_remove(struct expiries *expiries, uint32_t at)
{
    assert(expiries_is_valid(expiries) && at < expiries->capacity);
    struct expiry *entry = &expiries->entries[at];
    assert(entry->ticket != NULL);
    uint32_t *from = home_of(expiries, id_at(expiries, at));
    while (*from != at)
        from = &expiries->entries[*from].next;
    *from = entry->next;
    free(entry->ticket);
    *entry = (struct expiry){.next = expiries->free};
    expiries->free = at;
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
    uint32_t at = expiries_find(&service->expiries, evaluation_ticket_id(ticket));
    if (at != EXPIRIES_NONE && !service->expiries.entries[at].is_asked)
        expiries_remove(&service->expiries, at);
}

void expiries_expect(struct service *service, const struct request *request, uint64_t now_ns)
{
    assert(service->stores.n_stores > 0);
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

static void on_answers(void *arg, uint64_t now_ns);

/* Handles the store's reply, or schedules another attempt. */
static void end(struct expiring *expiring, const struct stint_decision *decision,
                const struct evaluation_expired *expired, uint64_t now_ns)
{
    assert(service_is_valid(expiring->service) && expiring->pending == NULL);
    struct service *service = expiring->service;
    struct expiry *entry = &service->expiries.entries[expiring->at];
    uint8_t fault = service->evaluation.fault;
    bool is_early = fault == 0 && !expired->is_closed;
    entry->is_asked = false;
    expiries_count(service, expired);
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
    assert(expiring->at < expiring->service->expiries.capacity && expiring->pending == NULL);
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
        pending->done = on_answers;
        pending->arg = expiring;
        return;
    }
    pending_free(pending);
    end(expiring, &decision, &expired, now_ns);
}

static void on_answers(void *arg, uint64_t now_ns)
{
    struct expiring *expiring = arg;
    struct pending *pending = expiring->pending;
    assert(pending != NULL);
    expiring->pending = NULL;
    run(expiring, pending, now_ns);
}

static struct expiring *free_one(struct service *service)
{
    for (size_t i = 0; i < EXPIRING_MAX; i++)
        if (service->expiring[i].pending == NULL)
            return &service->expiring[i];
    return NULL;
}

void service_expire(struct service *service, uint64_t now_ns)
{
    assert(service_is_valid(service));
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
    for (size_t i = 0; i < EXPIRING_MAX; i++) {
        pending_free(service->expiring[i].pending);
        service->expiring[i].pending = NULL;
    }
    expiries_deinit(&service->expiries);
}
