/* SPDX-License-Identifier: MIT */
/* A RateLimitRequest into a request. */
#include "proto/rls_parts.h"

#include "base/err.h"
#include "rls.pb-c.h"

#include <stdlib.h>

/*
 * Memory for reading a message. A request of as many descriptors and entries as there may be takes
 * 130 KiB beside its bytes; what protobuf-c would need for more of them, or for thousands of
 * unknown fields, is not given.
 */
#define READ_MAX(message_len) (((size_t)256 << 10) + 4 * (message_len))

struct rls_call *rls_call_new(void)
{
    struct rls_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return NULL;
    call->messages = rls_messages_new();
    if (call->messages != NULL)
        return call;
    rls_call_free(call);
    return NULL;
}

void rls_call_free(struct rls_call *call)
{
    if (call == NULL)
        return;
    rls_arena_deinit(&call->asked);
    rls_arena_deinit(&call->told);
    free(call->packed);
    free(call->messages);
    free(call);
}

/* What is absent has no memory, and readers of spans may copy from it. */
static struct span span_of_bytes(ProtobufCBinaryData bytes)
{
    return bytes.len == 0 ? span_of("", 0) : span_of(bytes.data, bytes.len);
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

static int read_entries(struct descriptor_entry *entries, const Pb__RateLimitDescriptor *from,
                        size_t index, struct stint_error *error)
{
    if (from->n_entries == 0)
        return err_set(error, STINT_E_SYNTAX, "descriptors[%zu]: expected entries", index);
    if (from->n_entries > ENTRIES_MAX)
        return err_set(error, STINT_E_RANGE,
                       "descriptors[%zu].entries: expected at most %d entries", index, ENTRIES_MAX);
    for (size_t i = 0; i < from->n_entries; i++) {
        entries[i].key = span_of_bytes(from->entries[i]->key);
        entries[i].value = span_of_bytes(from->entries[i]->value);
        if (entries[i].key.len == 0)
            return err_set(error, STINT_E_SYNTAX,
                           "descriptors[%zu].entries[%zu]: expected a key that is not empty", index,
                           i);
    }
    return 0;
}

static int read_limit(struct stint_quota *quota,
                      const Pb__RateLimitDescriptor__RateLimitOverride *limit, size_t index,
                      struct stint_error *error)
{
    struct stint_error fault;
    uint32_t multiplier = limit->unit_multiplier != NULL ? limit->unit_multiplier->value : 1;
    int code = rls_override(quota, limit->requests_per_unit, limit->unit, multiplier, &fault);
    return code == 0 ? 0
                     : err_set(error, code, "descriptors[%zu].limit: %s", index, fault.sentence);
}

static int read_descriptor(struct rls_call *call, size_t index, const Pb__RateLimitDescriptor *from,
                           struct stint_error *error)
{
    struct descriptor_entry *entries = &call->entries[index * ENTRIES_MAX];
    struct descriptor *descriptor = &call->descriptors[index];
    int code = read_entries(entries, from, index, error);
    if (code < 0)
        return code;
    *descriptor = (struct descriptor){
        .entries = entries, .n_entries = from->n_entries, .is_refund = from->is_negative_hits};
    if (from->hits_addend != NULL) {
        if (from->hits_addend->value > UINT32_MAX)
            return err_set(error, STINT_E_RANGE,
                           "descriptors[%zu].hits_addend: expected a whole number of 0 to "
                           "4294967295",
                           index);
        descriptor->has_hits = true;
        descriptor->hits = (uint32_t)from->hits_addend->value;
    }
    if (from->limit == NULL)
        return 0;
    descriptor->override = &call->overrides[index];
    return read_limit(&call->overrides[index], from->limit, index, error);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int read_request(struct rls_call *call, const Pb__RateLimitRequest *from,
                        struct stint_error *error)
{
    if (from->domain.len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected a domain that is not empty");
    if (from->n_descriptors == 0)
        return err_set(error, STINT_E_SYNTAX, "expected descriptors");
    if (from->n_descriptors > DESCRIPTORS_MAX)
        return err_set(error, STINT_E_RANGE, "descriptors: expected at most %d descriptors",
                       DESCRIPTORS_MAX);
    for (size_t i = 0; i < from->n_descriptors; i++) {
        int code = read_descriptor(call, i, from->descriptors[i], error);
        if (code < 0)
            return code;
    }
    call->hits_addend = from->hits_addend;
    call->request = (struct request){
        .verb = REQUEST_TAKE,
        .wants_growth = true,
        .cost = from->hits_addend == 0 ? 1 : from->hits_addend,
        .domain = span_of_bytes(from->domain),
        .descriptors = call->descriptors,
        .n_descriptors = from->n_descriptors,
    };
    return 0;
}

int rls_read(struct rls_call *call, struct span message, const struct request **request,
             struct stint_error *error)
{
    if (message.len > UINT32_MAX / 8)
        return err_set(error, STINT_E_RANGE, "expected a RateLimitRequest of less than 512 MiB");
    if (!rls_arena_begin(&call->asked, READ_MAX(message.len)))
        return err_set(error, STINT_E_SYSTEM, "there is no memory to read a request");
    ProtobufCAllocator allocator = rls_arena_allocator(&call->asked);
    const Pb__RateLimitRequest *from =
        pb__rate_limit_request__unpack(&allocator, message.len, message.ptr);
    if (from == NULL && call->asked.is_over)
        return err_set(error, STINT_E_RANGE,
                       "expected a RateLimitRequest of at most %d descriptors of %d entries, and "
                       "few fields beside those",
                       DESCRIPTORS_MAX, ENTRIES_MAX);
    if (from == NULL && call->asked.is_short)
        return err_set(error, STINT_E_SYSTEM, "there is no memory to read a request");
    if (from == NULL)
        return err_set(error, STINT_E_SYNTAX, "expected a RateLimitRequest in protobuf");
    *request = &call->request;
    return read_request(call, from, error);
}
