/* SPDX-License-Identifier: MIT */
/* Verbs on tickets: a ticket replaces the key. */
#include "service/service_parts.h"

#include "base/err.h"
#include "base/wide_int.h"

#include <gnutls/gnutls.h>

#define HOLDS_NO_PLACE "the ticket has no lease: only tickets of concurrency quotas can be renewed"

/* ---- In the table ---------------------------------------------------------------------------- */

static void ask_table(struct service *service, const struct request *request, uint64_t now_ns,
                      struct reply *reply)
{
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
        service_refuse_as(reply, REPLY_BAD_REQUEST, HOLDS_NO_PLACE);
}

/* ---- In a store ------------------------------------------------------------------------------ */

void service_tell_ticket(struct service *service, struct reply *reply)
{
    uint8_t bytes[TICKET_BYTES_MAX];
    gnutls_datum_t ticket = {.data = bytes}, text;
    ticket.size = (unsigned)evaluation_ticket_write(&service->evaluation, bytes);
    if (gnutls_base64_encode2(&ticket, &text) != 0) {
        service_refuse_as(reply, REPLY_UNAVAILABLE, "no memory for the ticket of what was charged");
        return;
    }
    memcpy(service->ticket_text, text.data, text.size);
    reply->ticket_text = span_of(service->ticket_text, text.size);
    gnutls_free(text.data);
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
    if (request->verb == REQUEST_SETTLE)
        reply->decision = evaluation_settle(evaluation, request->cost, expired);
    else if (request->verb == REQUEST_CANCEL)
        reply->decision = evaluation_cancel(evaluation, expired);
    else if (!evaluation_renew(evaluation))
        service_refuse_as(reply, REPLY_BAD_REQUEST, HOLDS_NO_PLACE);
}

static void ask_store(struct service *service, const struct request *request, uint64_t now_ns,
                      struct reply *reply)
{
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
        service_count_expired(service, &expired);
    if (reply->error == REPLY_GONE || (is_decided && request->verb != REQUEST_RENEW))
        service_expect_no_expiry(service, span_of(service->ticket, sizeof(service->ticket)));
}

void service_ticket(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply)
{
    if (request->ticket_text.len > 0)
        ask_store(service, request, now_ns, reply);
    else
        ask_table(service, request, now_ns, reply);
}
