/* SPDX-License-Identifier: MIT */
/* ReserveRequest and CommitRequest to requests, as rls.c does for Envoy's, and the answers. */
#include "proto/grpc/kuadrant.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/siphash.h"
#include "proto/ticket_text.h"

#define DIGEST_LEN TICKET_HEX_LEN /* of a reservation_id, before its ticket */
#define NANOS_MAX 999999999

/* ---- Envoy's messages ------------------------------------------------------------------------ */

int kuadrant_read_check(struct rls_call *call, struct span message, const struct request **request,
                        struct stint_error *error)
{
    int code = rls_read(call, message, request, error);
    call->request.verb = REQUEST_PEEK;
    return code;
}

int kuadrant_read_report(struct rls_call *call, struct span message, const struct request **request,
                         struct stint_error *error)
{
    int code = rls_read(call, message, request, error);
    call->request.verb = REQUEST_CHARGE;
    return code;
}

/* ---- The digest of a reservation ------------------------------------------------------------- */

static struct hash128 add_text(struct hash128 sum, struct span text)
{
    const uint64_t secret[2] = {sum.lo, sum.hi};
    return siphash13_128(secret, text.len, text.ptr, text.len);
}

/* The digest needs no secret: a ticket can be settled by all who have it. */
static uint64_t digest_of(const struct request *request)
{
    struct hash128 domain = add_text((struct hash128){0, 0}, request->domain);
    uint64_t digest = domain.lo;
    for (size_t i = 0; i < request->n_descriptors; i++) {
        const struct descriptor *descriptor = &request->descriptors[i];
        struct hash128 sum = domain;
        for (size_t k = 0; k < descriptor->n_entries; k++)
            sum = add_text(add_text(sum, descriptor->entries[k].key), descriptor->entries[k].value);
        digest += sum.lo;
    }
    return digest;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static int refuse(struct stint_error *error, const char *name)
{
    return err_set(error, STINT_E_SYNTAX, "expected a %s in protobuf", name);
}

/* The amount applies to all descriptors: their own hits are ignored. */
static int add_descriptor(struct rls_call *call, struct span message, struct stint_error *error)
{
    int code = rls_add_descriptor(call, message, error);
    if (code == 0) {
        struct descriptor *descriptor = &call->descriptors[call->request.n_descriptors - 1];
        descriptor->has_hits = false;
        descriptor->hits = 0;
        descriptor->is_refund = false;
    }
    return code;
}

/* A google.protobuf.Duration, whose fields may come in several pieces. */
struct ttl {
    int64_t seconds;
    int32_t nanos;
};

static int read_ttl(struct ttl *ttl, struct span message, struct stint_error *error)
{
    enum { SECONDS = 1, NANOS };
    static const struct wire_message duration = {2,
                                                 {[SECONDS] = WIRE_VARINT, [NANOS] = WIRE_VARINT}};
    struct wire_value value;
    int field;
    while ((field = wire_read(&duration, &message, &value)) > 0) {
        if (field == SECONDS)
            ttl->seconds = (int64_t)value.varint;
        else
            ttl->nanos = (int32_t)value.varint;
    }
    return field < 0 ? refuse(error, "ReserveRequest") : 0;
}

/* 0 means none. */
static int take_ttl(struct rls_call *call, const struct ttl *ttl, struct stint_error *error)
{
    if (ttl->nanos < 0 || ttl->nanos > NANOS_MAX || ttl->seconds < 0 ||
        ttl->seconds > KUADRANT_TTL_MAX_S - (ttl->nanos > 0))
        return err_set(error, STINT_E_RANGE,
                       "ttl: expected a duration of 0 to %d s (365 days); none and 0 are %d s",
                       KUADRANT_TTL_MAX_S, KUADRANT_TTL_DEFAULT_S);
    call->request.lifetime_ns = (uint64_t)ttl->seconds * NS_PER_S + (uint64_t)ttl->nanos;
    if (call->request.lifetime_ns == 0)
        call->request.lifetime_ns = KUADRANT_TTL_DEFAULT_S * NS_PER_S;
    return 0;
}

/* What a ReserveRequest and a CommitRequest have beside a domain and descriptors. */
struct fields {
    uint64_t amount;
    struct span id;
    struct ttl ttl;
};

static int read_fields(struct rls_call *call, struct span message, bool commits,
                       struct fields *fields, struct stint_error *error)
{
    enum { DOMAIN = 1, DESCRIPTORS, AMOUNT, TTL, ID = AMOUNT, ACTUAL_AMOUNT };
    static const struct wire_message messages[] = {
        {4,
         {[DOMAIN] = WIRE_BYTES,
          [DESCRIPTORS] = WIRE_BYTES,
          [AMOUNT] = WIRE_VARINT,
          [TTL] = WIRE_BYTES}},
        {4,
         {[DOMAIN] = WIRE_BYTES,
          [DESCRIPTORS] = WIRE_BYTES,
          [ID] = WIRE_BYTES,
          [ACTUAL_AMOUNT] = WIRE_VARINT}},
    };
    struct wire_value value;
    int field, code = 0;
    *fields = (struct fields){0};
    call->request = (struct request){.verb = commits ? REQUEST_SETTLE : REQUEST_RESERVE,
                                     .descriptors = call->descriptors};
    while (code == 0 && (field = wire_read(&messages[commits], &message, &value)) != 0) {
        if (field == DOMAIN)
            call->request.domain = value.bytes;
        else if (field == DESCRIPTORS)
            code = add_descriptor(call, value.bytes, error);
        else if (field == (commits ? ACTUAL_AMOUNT : AMOUNT))
            fields->amount = value.varint;
        else if (field == ID)
            fields->id = value.bytes;
        else if (field == TTL)
            code = read_ttl(&fields->ttl, value.bytes, error);
        else
            code = refuse(error, commits ? "CommitRequest" : "ReserveRequest");
    }
    return code;
}

int kuadrant_read_reserve(struct rls_call *call, struct span message,
                          const struct request **request, struct stint_error *error)
{
    struct fields fields;
    *request = &call->request;
    int code = read_fields(call, message, false, &fields, error);
    if (code == 0)
        code = rls_check_whole(call, error);
    if (code == 0)
        code = rls_read_units(&call->request.cost, "amount", fields.amount, error);
    if (code == 0)
        code = take_ttl(call, &fields.ttl, error);
    if (code == 0 && fields.amount == 0) {
        call->request.verb = REQUEST_PEEK;
        call->request.cost = 1;
    }
    return code;
}

/* The ticket, if the descriptors are those that it was reserved for, or there are none. */
static int take_id(struct rls_call *call, struct span id, struct stint_error *error)
{
    struct request *request = &call->request;
    uint64_t digest;
    if (id.len <= DIGEST_LEN || !ticket_hex_read(id.ptr, &digest) ||
        !ticket_text_read(span_after(id, DIGEST_LEN), request))
        return err_set(error, STINT_E_SYNTAX,
                       "reservation_id: expected one that Reserve has answered");
    if (request->domain.len > 0 || request->n_descriptors > 0) {
        int code = rls_check_whole(call, error);
        if (code < 0)
            return code;
        if (digest != digest_of(request))
            return err_set(error, STINT_E_SYNTAX,
                           "reservation_id: it was made for another domain or other descriptors; "
                           "the reservation stands");
    }
    request->n_descriptors = 0;
    request->domain = span_of(NULL, 0);
    return 0;
}

int kuadrant_read_commit(struct rls_call *call, struct span message, const struct request **request,
                         struct stint_error *error)
{
    struct fields fields;
    *request = &call->request;
    int code = read_fields(call, message, true, &fields, error);
    if (code == 0)
        code = rls_read_units(&call->request.cost, "actual_amount", fields.amount, error);
    if (code == 0 && fields.id.len > 0)
        return take_id(call, fields.id, error);
    call->request.verb = REQUEST_CHARGE;
    return code == 0 ? rls_check_whole(call, error) : code;
}

/* ---- Writing --------------------------------------------------------------------------------- */

struct span kuadrant_write_reserve(struct rls_call *call, const struct rls_form *form,
                                   const struct request *request, const struct reply *reply)
{
    enum { CODE = 1, RESERVATION_ID };
    (void)form;
    char space[TICKET_TEXT_LEN], digest[DIGEST_LEN];
    struct span ticket = {NULL, 0};
    if (reply->has_ticket)
        ticket = ticket_text_of(reply, space);
    struct wire_writer writer =
        rls_begin_response(call, 2 * WIRE_HEAD_MAX + DIGEST_LEN + ticket.len);
    if (writer.at == NULL)
        return (struct span){NULL, 0};
    if (reply->has_ticket) {
        const uint8_t *end = writer.at;
        ticket_hex_write(digest_of(request), digest);
        wire_write_raw(&writer, ticket);
        wire_write_raw(&writer, span_of(digest, DIGEST_LEN));
        wire_write_head(&writer, RESERVATION_ID, end);
    }
    wire_write_number(&writer, CODE, rls_overall_code(reply));
    return rls_end_response(call, &writer);
}

struct span kuadrant_write_commit(struct rls_call *call, const struct rls_form *form,
                                  const struct request *request, const struct reply *reply)
{
    enum { RELEASED = 1 };
    (void)form, (void)reply;
    struct wire_writer writer = rls_begin_response(call, WIRE_HEAD_MAX);
    if (writer.at != NULL)
        wire_write_number(&writer, RELEASED, request->verb == REQUEST_SETTLE);
    return rls_end_response(call, &writer);
}
