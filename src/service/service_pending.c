/* SPDX-License-Identifier: MIT */
/*
 * Requests whose states are in shared stores. Their store requests belong to a pending request,
 * with which the same request is evaluated again once the answers are there. And the verbs on
 * tickets, in which a ticket replaces the key.
 */
#include "service/service_parts.h"

#include "base/err.h"
#include "base/wide_int.h"
#include "service/pools/pools.h"

#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#define NO_LEASE "the ticket has no lease: only tickets of concurrency quotas can be renewed"
#define GONE "the ticket was used, has ended, or never was"

/* ---- Errors ---------------------------------------------------------------------------------- */

void service_refuse_as(struct reply *reply, enum reply_error why, const char *message)
{
    assert(why != REPLY_DECIDED && why < REPLY_WAITS && message != NULL);
    struct stint_error text;
    err_set(&text, 0, "%s", message);
    reply->error = (uint8_t)why;
    memcpy(reply->message, text.message, sizeof(reply->message));
}

void service_refuse(struct reply *reply, const struct stint_error *error)
{
    assert(error->code != 0);
    bool is_passing = error->code == STINT_E_BUSY || error->code == STINT_E_SYSTEM;
    service_refuse_as(reply,
                      error->code == STINT_E_FULL ? REPLY_FULL
                      : is_passing                ? REPLY_UNAVAILABLE
                                                  : REPLY_BAD_REQUEST,
                      error->message);
}

/* ---- Pending requests ------------------------------------------------------------------------ */

void service_set_stores(struct service *service, const struct evaluation_stores *stores)
{
    assert(service_is_valid(service));
    assert(stores->items <= stores->n_stores && stores->throttle <= stores->n_stores &&
           stores->counters <= stores->n_stores);
    service->stores = *stores;
    service->evaluation.stores = &service->stores;
}

void service_on_answers(struct pending *pending, void (*done)(void *arg, uint64_t now_ns),
                        void *arg)
{
    assert(pending != NULL);
    pending->done = done;
    pending->arg = arg;
}

void service_drop(struct service *service, struct pending *pending)
{
    (void)service;
    if (pending == NULL)
        return;
    trace_abandon(pending->span);
    ruleset_unref(pending->rules);
    pending_free(pending);
}

struct trace_span *service_begin_span(struct service *service, struct pending *pending,
                                      const struct trace_operation *operation,
                                      const struct trace_context *context, uint64_t begin_ns)
{
    assert(service_is_valid(service));
    if (pending == NULL)
        return tracer_begin(service->tracer, operation, context, begin_ns);
    struct trace_span *span = pending->span;
    pending->span = NULL;
    return span;
}

void service_pools_caller(struct service *service, struct pending *pending,
                          struct pools_caller *caller)
{
    assert(service_is_valid(service));
    *caller = (struct pools_caller){.stores = service->stores.pools,
                                    .pending_requests = &service->pending_requests,
                                    .timeout_ns = service->stores.timeout_ns,
                                    .pending = pending};
}

static void trace_reply(void *arg, const struct pending_seen *seen)
{
    const struct service *service = arg;
    const struct evaluation_stores *stores = &service->stores;
    size_t i = 0;
    while (i < stores->n_stores && stores->stores[i] != seen->store)
        i++;
    bool is_known = i < stores->n_stores;
    trace_store(service->caller->span,
                &(struct trace_store_request){
                    .store = is_known && stores->labels != NULL ? stores->labels[i] : "",
                    .system = is_known && stores->systems != NULL ? stores->systems[i] : NULL,
                    .verb = seen->verb,
                    .begin_ns = seen->asked_ns,
                    .end_ns = seen->answered_ns,
                    .answer = seen->answer,
                });
}

/* The reply of a pending request that waited points into its rules: they stay until the next
 * one. */
static void end_pending(struct service *service, struct pending *pending)
{
    assert(pending->span == NULL);
    bool has_waited = pending->rules != NULL;
    if (has_waited && service->caller->span != NULL)
        pending_each(pending, trace_reply, service);
    ruleset_unref(service->borrowed);
    service->borrowed = pending->rules;
    pending->rules = NULL;
    pending_free(pending);
}

static bool deferred(struct service *service, const struct request *request, struct reply *reply)
{
    service_drop(service, request->pending);
    reply->error = REPLY_AHEAD;
    return false;
}

static bool add_id(struct service *service, const struct request *request, struct pending *pending)
{
    struct evaluation *evaluation = &service->evaluation;
    if (request->id.len > 0 && request_verbs[request->verb].is_charging) {
        evaluation->id = service->id;
        evaluation->id_lifetime_ns = service->server_state->options.id_lifetime_ns;
        return request_digest_shared(request, service->caller->name, service->id,
                                     &evaluation->body);
    }
    if (request->verb != REQUEST_RESERVE && request->verb != REQUEST_BOOK)
        return true;
    evaluation->id = service->id;
    evaluation->id_lifetime_ns = 0;
    evaluation->body = 0;
    /* A ticket has no other secret: its owner may settle the reservation. */
    if (!pending->has_id)
        pending->has_id = gnutls_rnd(GNUTLS_RND_NONCE, pending->id, sizeof(pending->id)) == 0;
    memcpy(service->id, pending->id, sizeof(service->id)); /* the ticket outlives the request */
    return pending->has_id;
}

/* All workers share the reference counts of rules: only a request that waits takes a reference. */
static void begin_wait(struct service *service, struct pending *pending, struct reply *reply)
{
    if (pending->rules == NULL)
        pending->rules = ruleset_ref(service->ruleset);
    reply->error = REPLY_WAITS;
    reply->pending = pending;
}

bool service_begin_pending(struct service *service, const struct request *request,
                           struct reply *reply)
{
    assert(service_is_valid(service));
    assert(service->evaluation.pending == NULL);
    struct evaluation *evaluation = &service->evaluation;
    if (!evaluation_asks(evaluation, true)) {
        if (request->is_ahead)
            return deferred(service, request, reply);
        assert(request->pending == NULL);
        return true;
    }
    if (request->is_ahead && evaluation_asks(evaluation, false))
        return deferred(service, request, reply);
    struct pending *pending = request->pending;
    if (pending == NULL)
        pending =
            pending_new(&service->pending_requests, evaluation->now_ns, service->stores.timeout_ns);
    if (pending == NULL || !add_id(service, request, pending)) {
        service_drop(service, pending);
        service_refuse_as(reply, REPLY_UNAVAILABLE, PENDING_NO_MEMORY);
        return false;
    }
    pending_rewind(pending);
    pending->done = NULL;
    evaluation->pending = pending;
    evaluation->now_ns = evaluation->at_ns = pending->now_ns;
    evaluation->is_ahead = request->is_ahead;
    if (pending->retry_until_ns == 0 && !request->is_ahead)
        pending->retry_until_ns = request->retry_until_ns;
    evaluation->retry_until_ns = pending->retry_until_ns;
    return true;
}

static void refuse_fault(const struct evaluation *evaluation, struct reply *reply)
{
    assert(evaluation->fault != 0 && evaluation->fault <= BACKEND_GONE);
    static const uint8_t errors[] = {[BACKEND_FAILED] = REPLY_UNAVAILABLE,
                                     [BACKEND_REFUSED] = REPLY_BAD_REQUEST,
                                     [BACKEND_CONFLICT] = REPLY_CONFLICT,
                                     [BACKEND_GONE] = REPLY_GONE};
    const char *message = evaluation->fault_message;
    if (evaluation->fault == BACKEND_GONE)
        message = GONE;
    if (evaluation->fault == BACKEND_CONFLICT)
        message = SERVICE_ID_OTHER;
    service_refuse_as(reply, (enum reply_error)errors[evaluation->fault],
                      message != NULL ? message : "the store is unavailable");
}

bool service_end_pending(struct service *service, struct reply *reply)
{
    assert(service_is_valid(service));
    struct evaluation *evaluation = &service->evaluation;
    struct pending *pending = evaluation->pending;
    evaluation->pending = NULL;
    if (pending == NULL)
        return true;
    if (evaluation->is_ahead && !evaluation->is_waiting)
        evaluation->is_waiting = evaluation->is_too_early = true; /* no store request was sent */
    if (pending->loss != NULL && evaluation->fault == 0) {
        evaluation->fault = BACKEND_FAILED;
        evaluation->fault_message = pending->loss;
    }
    /* A fault is the reply once all has come back that others had granted. */
    if (evaluation->is_waiting && !evaluation->is_too_early && pending->loss == NULL) {
        begin_wait(service, pending, reply);
        return false;
    }
    if (evaluation->fault != 0)
        refuse_fault(evaluation, reply); /* whose text may be the pending request's */
    end_pending(service, pending);
    if (evaluation->fault != 0)
        return false;
    if (evaluation->is_too_early)
        reply->error = REPLY_AHEAD;
    else if (evaluation->is_replayed) {
        reply->replayed = true;
        metrics_event(service->metrics, METRICS_REPLAYED, 1);
    }
    return reply->error == REPLY_DECIDED;
}

/* ---- Tickets in the table
 * ---------------------------------------------------------------------------- */

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
        service_refuse_as(reply, REPLY_GONE, GONE);
    else if (code != 0)
        service_refuse_as(reply, REPLY_BAD_REQUEST, NO_LEASE);
}

/* ---- Tickets in a store -----------------------------------------------------------------------
 */

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
        expiries_count(service, &expired);
    if (reply->error == REPLY_GONE || (is_decided && request->verb != REQUEST_RENEW))
        expiries_forget(service, span_of(service->ticket, sizeof(service->ticket)));
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
