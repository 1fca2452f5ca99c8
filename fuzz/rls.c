/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a RateLimitRequest: refused with a message, or a request that keeps what a request
 * promises, which written by hand is read as the same, and answered. protobuf-c reads the same in
 * requests and in responses. The same bytes are read as Kuadrant's reservations and commits.
 */
#include "mutate_protobuf.h"

#include "base/ns.h"
#include "proto/grpc/rls.h"
#include "unit/proto/rls_oracle.h"

static struct rls_call *call, *other;

/* ---- Writing by hand ------------------------------------------------------------------------- */

struct out {
    uint8_t *bytes;
    size_t len, size;
};

static void put(struct out *out, const void *bytes, size_t len)
{
    if (out->size - out->len < len) {
        out->size = 2 * (out->len + len);
        out->bytes = realloc(out->bytes, out->size);
        MUST(out->bytes != NULL);
    }
    if (len > 0)
        memcpy(out->bytes + out->len, bytes, len);
    out->len += len;
}

static void put_varint(struct out *out, uint64_t number)
{
    for (; number > 127; number >>= 7)
        put(out, &(uint8_t){(uint8_t)(number | 128)}, 1);
    put(out, &(uint8_t){(uint8_t)number}, 1);
}

static void put_number(struct out *out, unsigned field, uint64_t number)
{
    put_varint(out, field << 3);
    put_varint(out, number);
}

static void put_span(struct out *out, unsigned field, struct span bytes)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len);
    put(out, bytes.ptr, bytes.len);
}

static void put_message(struct out *out, unsigned field, struct out *message)
{
    put_span(out, field, span_of(message->bytes, message->len));
    free(message->bytes);
}

static void put_descriptor(struct out *out, const struct descriptor *descriptor)
{
    struct out message = {0};
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        struct out entry = {0};
        put_span(&entry, 1, descriptor->entries[i].key);
        put_span(&entry, 2, descriptor->entries[i].value);
        put_message(&message, 1, &entry);
    }
    if (descriptor->override != NULL) {
        struct out limit = {0}, multiplier = {0};
        put_number(&limit, 1, descriptor->override->limit);
        put_number(&limit, 2, RULE_SECOND);
        put_number(&multiplier, 1, descriptor->override->period_ns / NS_PER_S);
        put_message(&limit, 3, &multiplier);
        put_message(&message, 2, &limit);
    }
    if (descriptor->has_hits) {
        struct out hits = {0};
        put_number(&hits, 1, descriptor->hits);
        put_message(&message, 3, &hits);
    }
    put_number(&message, 4, descriptor->is_refund);
    put_message(out, 2, &message);
}

/* ---- What holds ------------------------------------------------------------------------------ */

static bool same(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static void check_request(const struct request *request)
{
    MUST(request->verb == REQUEST_TAKE && request->cost > 0);
    MUST(request->domain.len > 0 && request->n_items == 0);
    MUST(request->n_descriptors > 0 && request->n_descriptors <= DESCRIPTORS_MAX);
    for (size_t i = 0; i < request->n_descriptors; i++) {
        const struct descriptor *descriptor = &request->descriptors[i];
        MUST(descriptor->n_entries > 0 && descriptor->n_entries <= ENTRIES_MAX);
        for (size_t k = 0; k < descriptor->n_entries; k++)
            MUST(descriptor->entries[k].key.len > 0 && descriptor->entries[k].value.ptr != NULL);
        if (descriptor->override != NULL)
            MUST(descriptor->override->period_ns >= NS_PER_S);
    }
}

static void check_same(const struct request *a, const struct request *b)
{
    MUST(a->cost == b->cost && same(a->domain, b->domain) && a->n_descriptors == b->n_descriptors);
    for (size_t i = 0; i < a->n_descriptors; i++) {
        const struct descriptor *x = &a->descriptors[i], *y = &b->descriptors[i];
        MUST(x->n_entries == y->n_entries && x->is_refund == y->is_refund);
        MUST(x->has_hits == y->has_hits && x->hits == y->hits);
        MUST((x->override == NULL) == (y->override == NULL));
        if (x->override != NULL)
            MUST(x->override->limit == y->override->limit &&
                 x->override->period_ns == y->override->period_ns);
        for (size_t k = 0; k < x->n_entries; k++)
            MUST(same(x->entries[k].key, y->entries[k].key) &&
                 same(x->entries[k].value, y->entries[k].value));
    }
}

static void check_written_and_read(const struct request *request)
{
    struct out out = {0};
    struct stint_error error;
    const struct request *again;
    put_span(&out, 1, request->domain);
    for (size_t i = 0; i < request->n_descriptors; i++)
        put_descriptor(&out, &request->descriptors[i]);
    put_number(&out, 3, request->cost);
    MUST(rls_read(other, span_of(out.bytes, out.len), &again, &error) == 0);
    check_same(request, again);
    free(out.bytes);
}

/* Statuses of every kind, by turns. */
static void check_answer(const struct request *request, size_t turn)
{
    static const char name[] = "a name of some length, \"quoted\" \xc3\xa9";
    static const char metadata[] = "{\"a\":{\"b\":[1,2.5,true,null,\"x\"]},\"c\":\"d\"}";
    static const struct rule rule = {
        .name = name,
        .path = name,
        .metadata = {(const uint8_t *)metadata, sizeof(metadata) - 1},
        .quota = {.limit = UINT32_MAX, .period_ns = 30 * NS_PER_S},
        .requests_per_unit = UINT32_MAX,
    };
    static const struct rule unlimited = {.name = name, .path = name, .unlimited = true};
    struct target statuses[DESCRIPTORS_MAX] = {0};
    for (size_t i = 0; i < request->n_descriptors; i++, turn++) {
        struct target *status = &statuses[i];
        const struct stint_quota *override = request->descriptors[i].override;
        status->decision.outcome = (uint8_t)(STINT_ALLOW + turn % 3);
        status->decision.remaining = turn % 2 == 0 ? UINT32_MAX : 0;
        status->grows_after_ns = turn % 5 == 0 ? STINT_NEVER_NS - 1 : turn * NS_PER_MS;
        status->rule = turn % 4 == 0 ? NULL : turn % 4 == 1 ? &unlimited : &rule;
        if (status->rule == &rule)
            status->quota = override != NULL ? override : &rule.quota;
    }
    struct reply reply = {.decision = statuses[0].decision,
                          .statuses = statuses,
                          .n_statuses = request->n_descriptors};
    const struct rls_form form = {.styles = (unsigned)turn & 7,
                                  .has_metadata = turn % 3 == 0,
                                  .denied_body = span_of_text("denied")};
    struct span answer = rls_write(call, &form, request, &reply);
    MUST(answer.ptr != NULL);
    MUST(rls_oracle_written(answer, &form, &reply) == NULL);
}

/* The same bytes as a ReserveRequest and as a CommitRequest. What is reserved can be committed. */
static void check_kuadrant(struct span bytes)
{
    struct stint_error error;
    const struct request *request;
    int code = kuadrant_read_commit(call, bytes, &request, &error);
    MUST(rls_oracle_commit(bytes, code, request) == NULL);
    code = kuadrant_read_reserve(call, bytes, &request, &error);
    MUST(rls_oracle_reserve(bytes, code, request) == NULL);
    if (code != 0)
        return;
    const struct reply reply = {
        .decision.outcome = STINT_ALLOW, .has_ticket = true, .ticket = {3, 4}};
    struct span answer = kuadrant_write_reserve(call, NULL, request, &reply);
    MUST(answer.ptr != NULL && answer.len == 2 + 2 + 48); /* a code, and 48 digits */
    struct out out = {0};
    put_span(&out, 1, request->domain);
    for (size_t i = request->n_descriptors; i-- > 0;)
        put_descriptor(&out, &request->descriptors[i]);
    put_span(&out, 3, span_of(answer.ptr + 4, 48));
    const struct request *again;
    MUST(kuadrant_read_commit(other, span_of(out.bytes, out.len), &again, &error) == 0);
    MUST(again->verb == REQUEST_SETTLE && again->ticket.slot == 3 && again->ticket.nonce == 4);
    free(out.bytes);
}

MUTATES_PROTOBUF(0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stint_error error = {0};
    const struct request *request;
    if (call == NULL) {
        call = rls_call_new();
        other = rls_call_new();
        MUST(call != NULL && other != NULL);
    }
    uint8_t *copy = bytes_copy(span_of(data, size));
    int code = rls_read(call, span_of(copy, size), &request, &error);
    MUST(rls_oracle_read(span_of(copy, size), code, request) == NULL);
    MUST(code == 0 ||
         ((code == STINT_E_SYNTAX || code == STINT_E_RANGE) && error.message[0] != '\0'));
    if (code == 0) {
        check_request(request);
        check_written_and_read(request);
        for (size_t turn = 0; turn < 4; turn++)
            check_answer(request, size + turn);
    }
    check_kuadrant(span_of(copy, size));
    free(copy);
    return 0;
}
