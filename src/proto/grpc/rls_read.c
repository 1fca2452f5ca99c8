/* SPDX-License-Identifier: MIT */
/*
 * A RateLimitRequest to a request, in one pass and without a copy. Repeated fields are joined as in
 * proto3: the last number or text counts, a message is merged with the one before it, and a list is
 * extended.
 */
#include "proto/grpc/rls_parts.h"

#include "base/err.h"
#include "base/limits.h"
#include "base/wide_int.h"
#include "proto/grpc/wire_reader.h"

#include <stdlib.h>

struct rls_call *rls_call_new(void)
{
    return calloc(1, sizeof(struct rls_call));
}

void rls_call_free(struct rls_call *call)
{
    if (call == NULL)
        return;
    rls_arena_deinit(&call->told);
    free(call->packed);
    free(call);
}

static int refuse_message(struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX, "expected a RateLimitRequest in protobuf");
}

/* ---- Parts of a descriptor ------------------------------------------------------------------- */

/*
 * A field of 32 bits may come as a number of 64. protobuf would drop the upper bits, and a charge
 * of 2^32 + 1 would become 1.
 */
static int too_many_units(const char *name, struct stint_error *error)
{
    return err_set(error, STINT_E_RANGE,
                   "%s: expected a whole number of 0 to " UNIT_COUNT_MAX_TEXT "; " UNITS_ADVICE,
                   name);
}

/* google.protobuf.UInt32Value and UInt64Value. A wrapper without a value leaves it as it was. */
static int read_wrapper(uint64_t *number, struct span message, struct stint_error *error)
{
    static const struct wire_message wrapper = {1, {[1] = WIRE_VARINT}};
    struct wire_value value;
    int field;
    while ((field = wire_read(&wrapper, &message, &value)) > 0)
        *number = value.varint;
    return field < 0 ? refuse_message(error) : 0;
}

static int read_entry(struct descriptor_entry *entry, struct span message,
                      struct stint_error *error)
{
    enum { KEY = 1, VALUE };
    static const struct wire_message entry_message = {2,
                                                      {[KEY] = WIRE_BYTES, [VALUE] = WIRE_BYTES}};
    struct wire_value value;
    int field;
    *entry = (struct descriptor_entry){span_of("", 0), span_of("", 0)};
    while ((field = wire_read(&entry_message, &message, &value)) > 0)
        *(field == KEY ? &entry->key : &entry->value) = value.bytes;
    return field < 0 ? refuse_message(error) : 0;
}

struct limit_told {
    bool is_told, has_multiplier;
    uint32_t requests_per_unit, unit;
    uint64_t multiplier;
};

static int read_limit(struct limit_told *limit, struct span message, struct stint_error *error)
{
    enum { REQUESTS = 1, UNIT, MULTIPLIER };
    static const struct wire_message limit_message = {
        3, {[REQUESTS] = WIRE_VARINT, [UNIT] = WIRE_VARINT, [MULTIPLIER] = WIRE_BYTES}};
    struct wire_value value;
    int field, code = 0;
    limit->is_told = true;
    while (code == 0 && (field = wire_read(&limit_message, &message, &value)) != 0) {
        if (field == REQUESTS) {
            if (value.varint > UNIT_COUNT_MAX)
                return too_many_units("limit.requests_per_unit", error);
            limit->requests_per_unit = (uint32_t)value.varint;
        } else if (field == UNIT) {
            limit->unit = (uint32_t)min_u64(value.varint, UINT32_MAX);
        } else if (field == MULTIPLIER) {
            limit->has_multiplier = true;
            code = read_wrapper(&limit->multiplier, value.bytes, error);
        } else {
            code = refuse_message(error);
        }
    }
    return code;
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

/* A descriptor being read, and its destination. */
struct reading {
    struct rls_call *call;
    size_t index;
    struct descriptor *descriptor;
    struct descriptor_entry *entries;
    uint64_t hits;
    struct limit_told limit;
    struct stint_error *error;
};

static int add_entry(struct reading *reading, struct span message)
{
    struct descriptor *descriptor = reading->descriptor;
    size_t i = descriptor->n_entries;
    if (i == ENTRIES_MAX)
        return err_set(reading->error, STINT_E_RANGE,
                       "descriptors[%zu].entries: expected at most %d entries", reading->index,
                       ENTRIES_MAX);
    int code = read_entry(&reading->entries[i], message, reading->error);
    if (code == 0 && reading->entries[i].key.len == 0)
        return err_set(reading->error, STINT_E_SYNTAX,
                       "descriptors[%zu].entries[%zu]: expected a key that is not empty",
                       reading->index, i);
    descriptor->n_entries++;
    return code;
}

static int take_override(struct reading *reading)
{
    const struct limit_told *limit = &reading->limit;
    struct stint_quota *quota = &reading->call->overrides[reading->index];
    struct stint_error fault;
    uint32_t multiplier =
        limit->has_multiplier ? (uint32_t)min_u64(limit->multiplier, UINT32_MAX) : 1;
    int code = rls_override(quota, limit->requests_per_unit, limit->unit, multiplier, &fault);
    reading->descriptor->override = quota;
    return code == 0 ? 0
                     : err_set(reading->error, code, "descriptors[%zu].limit: %s", reading->index,
                               fault.message);
}

/* Checks that need the whole descriptor. */
static int finish_descriptor(struct reading *reading)
{
    struct descriptor *descriptor = reading->descriptor;
    if (descriptor->n_entries == 0)
        return err_set(reading->error, STINT_E_SYNTAX, "descriptors[%zu]: expected entries",
                       reading->index);
    if (reading->hits > UNIT_COUNT_MAX)
        return err_set(
            reading->error, STINT_E_RANGE,
            "descriptors[%zu].hits_addend: expected a whole number of 0 to " UNIT_COUNT_MAX_TEXT
            "; " UNITS_ADVICE,
            reading->index);
    descriptor->hits = (uint32_t)reading->hits;
    return reading->limit.is_told ? take_override(reading) : 0;
}

static int read_descriptor(struct rls_call *call, size_t index, struct span message,
                           struct stint_error *error)
{
    enum { ENTRIES = 1, LIMIT, HITS, IS_NEGATIVE };
    static const struct wire_message descriptor_message = {4,
                                                           {[ENTRIES] = WIRE_BYTES,
                                                            [LIMIT] = WIRE_BYTES,
                                                            [HITS] = WIRE_BYTES,
                                                            [IS_NEGATIVE] = WIRE_VARINT}};
    struct reading reading = {.call = call,
                              .index = index,
                              .descriptor = &call->descriptors[index],
                              .entries = &call->entries[index * ENTRIES_MAX],
                              .error = error};
    struct wire_value value;
    int field, code = 0;
    *reading.descriptor = (struct descriptor){.entries = reading.entries};
    while (code == 0 && (field = wire_read(&descriptor_message, &message, &value)) != 0) {
        if (field == ENTRIES) {
            code = add_entry(&reading, value.bytes);
        } else if (field == LIMIT) {
            code = read_limit(&reading.limit, value.bytes, error);
        } else if (field == HITS) {
            reading.descriptor->has_hits = true;
            code = read_wrapper(&reading.hits, value.bytes, error);
        } else if (field == IS_NEGATIVE) {
            reading.descriptor->is_refund = value.varint != 0;
        } else {
            code = refuse_message(error);
        }
    }
    return code == 0 ? finish_descriptor(&reading) : code;
}

/* ---- The whole message ----------------------------------------------------------------------- */

int rls_add_descriptor(struct rls_call *call, struct span message, struct stint_error *error)
{
    struct request *request = &call->request;
    if (request->n_descriptors == DESCRIPTORS_MAX)
        return err_set(error, STINT_E_RANGE, "descriptors: expected at most %d descriptors",
                       DESCRIPTORS_MAX);
    return read_descriptor(call, request->n_descriptors++, message, error);
}

int rls_check_whole(const struct rls_call *call, struct stint_error *error)
{
    if (call->request.domain.len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected a domain that is not empty");
    if (call->request.n_descriptors == 0)
        return err_set(error, STINT_E_SYNTAX, "expected descriptors");
    return 0;
}

static int read_fields(struct rls_call *call, struct span message, struct stint_error *error)
{
    enum { DOMAIN = 1, DESCRIPTORS, HITS };
    static const struct wire_message request_message = {
        3, {[DOMAIN] = WIRE_BYTES, [DESCRIPTORS] = WIRE_BYTES, [HITS] = WIRE_VARINT}};
    struct wire_value value;
    int field, code = 0;
    while (code == 0 && (field = wire_read(&request_message, &message, &value)) != 0) {
        if (field == DOMAIN)
            call->request.domain = value.bytes;
        else if (field == HITS && value.varint > UNIT_COUNT_MAX)
            code = too_many_units("hits_addend", error);
        else if (field == HITS)
            call->hits_addend = (uint32_t)value.varint;
        else if (field < 0)
            code = refuse_message(error);
        else
            code = rls_add_descriptor(call, value.bytes, error);
    }
    return code;
}

int rls_read(struct rls_call *call, struct span message, const struct request **request,
             struct stint_error *error)
{
    call->request = (struct request){
        .verb = REQUEST_TAKE,
        .has_envoy_hits = true,
        .wants_growth = true,
        .descriptors = call->descriptors,
    };
    call->hits_addend = 0;
    *request = &call->request;
    int code = read_fields(call, message, error);
    if (code == 0)
        code = rls_check_whole(call, error);
    if (code < 0)
        return code;
    call->request.cost = call->hits_addend == 0 ? 1 : call->hits_addend;
    return 0;
}
