/* SPDX-License-Identifier: MIT */
/*
 * Tickets: the verbs on them, in which a ticket replaces the key, and reservations in stores that
 * were never settled. Soon after the deadline, the worker that issued the ticket sends the store a
 * request to close it; so does any server that is asked to settle it late. The store closes a
 * ticket once, for any caller. docs/decisions/0057.
 */
#include "service/service_parts.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>

#define NO_LEASE "the ticket has no lease: only tickets of concurrency quotas can be renewed"
#define EXPIRING_MAX 64   /* store requests at once */
#define AGAIN_NS NS_PER_S /* after a failed store request */

/* ---- In the table ---------------------------------------------------------------------------- */

static void ask_table(struct service *service, const struct request *request, uint64_t now_ns,
                      struct reply *reply)
{
    assert(request->ticket_text.len == 0);
    struct stint_table *table = service->table;
    int code;
    if (request->verb == REQUEST_SETTLE)
        code = stint_settle(table, request->ticket, request->cost, now_ns, &reply->decision);
    else if (request->verb == REQUEST_CANCEL)
        code = stint_cancel(table, request->ticket, now_ns, &reply->decision);
    else
        code = stint_renew(table, request->ticket, now_ns);
    if (code == STINT_E_GONE)
        service_refuse_as(reply, REPLY_GONE, SERVICE_GONE);
    else if (code != 0)
        service_refuse_as(reply, REPLY_BAD_REQUEST, NO_LEASE);
}

/* ---- In a store ------------------------------------------------------------------------------ */

void service_write_ticket(struct service *service, struct reply *reply)
{
    assert(service->evaluation.pending != NULL);
    uint8_t bytes[TICKET_BYTES_MAX];
    gnutls_datum_t ticket = {.data = bytes}, text;
    ticket.size = (unsigned)evaluation_ticket_write(&service->evaluation, bytes);
    if (gnutls_base64_encode2(&ticket, &text) != 0) {
        service_refuse_as(reply, REPLY_UNAVAILABLE, "no memory for the ticket of what was charged");
        return;
    }
    assert(text.size <= sizeof(service->ticket_text));
    memcpy(service->ticket_text, text.data, text.size);
    reply->ticket_text = span_of(service->ticket_text, text.size);
    gnutls_free(text.data);
}

static void count_expired(struct service *service, const struct evaluation_expired *expired)
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

/* The ticket was settled or cancelled, or is gone. */
static void expect_no_expiry(struct service *service, struct span ticket)
{
    uint32_t at = expiries_find(&service->expiries, evaluation_ticket_id(ticket));
    if (at != EXPIRIES_NONE && !service->expiries.entries[at].is_asked)
        expiries_remove(&service->expiries, at);
}

/* Fills the inputs from the ticket; the keys point into it. */
static int add_ticket(struct service *service, const struct request *request,
                      struct stint_error *error)
{
    struct evaluation *evaluation = &service->evaluation;
    gnutls_datum_t bytes, text = {.data = (unsigned char *)(uintptr_t)request->ticket_text.ptr,
                                  .size = (unsigned)request->ticket_text.len};
    if (request->ticket_text.len > SERVICE_TICKET_TEXT || gnutls_base64_decode2(&text, &bytes) != 0)
        return err_set(error, STINT_E_SYNTAX, "expected a ticket as a reply gave it");
    size_t len = min_u64(bytes.size, sizeof(service->ticket)); /* longer text is no valid ticket */
    memcpy(service->ticket, bytes.data, len);
    gnutls_free(bytes.data);
    return evaluation_add_ticket(evaluation, span_of(service->ticket, len), error);
}

static void ask(struct evaluation *evaluation, const struct request *request, struct reply *reply,
                struct evaluation_expired *expired)
{
    if (request->verb != REQUEST_RENEW)
        reply->decision =
            evaluation_close(evaluation, request->verb,
                             request->verb == REQUEST_SETTLE ? request->cost : 0, expired);
    else if (!evaluation_renew(evaluation))
        service_refuse_as(reply, REPLY_BAD_REQUEST, NO_LEASE);
}

static void ask_store(struct service *service, const struct request *request, uint64_t now_ns,
                      struct reply *reply)
{
    assert(request->ticket_text.len > 0);
    struct stint_error error;
    struct evaluation_expired expired = {.is_closed = false};
    evaluation_begin(&service->evaluation, now_ns);
    if (request->id.len > 0) {
        service_refuse_as(reply, REPLY_BAD_REQUEST,
                          "a ticket of a store can be used only once: expected no id");
        return;
    }
    if (add_ticket(service, request, &error) != 0) {
        service_drop(service, request->pending);
        service_refuse(reply, &error);
        return;
    }
    if (!service_begin_pending(service, request, reply))
        return;
    ask(&service->evaluation, request, reply, &expired);
    bool is_decided = service_end_pending(service, reply);
    if (is_decided)
        reply->at_ns = service->evaluation.at_ns;
    if (reply->error == REPLY_GONE)
        count_expired(service, &expired);
    if (reply->error == REPLY_GONE || (is_decided && request->verb != REQUEST_RENEW))
        expect_no_expiry(service, span_of(service->ticket, sizeof(service->ticket)));
}

void service_ticket(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply)
{
    assert(service_is_valid(service));
    assert(request->verb == REQUEST_SETTLE || request->verb == REQUEST_CANCEL ||
           request->verb == REQUEST_RENEW);
    if (request->ticket_text.len > 0)
        ask_store(service, request, now_ns, reply);
    else
        ask_table(service, request, now_ns, reply);
}

/* ---- Tickets of stores that are never settled ----------------------------------------------- */

/* A store request that closes a ticket. */
struct expiring {
    struct service *service;
    struct pending *pending; /* NULL: the entry is free */
    uint32_t at;             /* of the worker's expiries */
};

void service_expect_expiry(struct service *service, const struct request *request, uint64_t now_ns)
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
    count_expired(service, expired);
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
    assert(pending != NULL);
    expiring->pending = NULL;
    run(expiring, pending, now_ns);
}

static struct expiring *free_one(struct service *service)
{
    assert(service->expiring != NULL);
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
    for (size_t i = 0; service->expiring != NULL && i < EXPIRING_MAX; i++) {
        pending_free(service->expiring[i].pending);
        service->expiring[i].pending = NULL;
    }
    expiries_deinit(&service->expiries);
}

bool service_init_expiring(struct service *service)
{
    assert(service->expiring == NULL);
    service->expiring = calloc(EXPIRING_MAX, sizeof(*service->expiring));
    return service->expiring != NULL;
}
