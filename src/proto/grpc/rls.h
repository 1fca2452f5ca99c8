/* SPDX-License-Identifier: MIT */
/*
 * Envoy's rate limit service, v3, as protobuf: a RateLimitRequest to a request, a reply to a
 * RateLimitResponse. The messages are described in src/proto/grpc/messages/ (field numbers as
 * published). The values of statuses and overrides are also those of its JSON
 * (proto/http/http_call.h).
 */
#ifndef STINT_PROTO_GRPC_RLS_H
#define STINT_PROTO_GRPC_RLS_H

#include "decide/reply.h"
#include "decide/request.h"
#include "proto/grpc/wire.h"
#include "proto/http_fields.h"

/* ---- Values ---------------------------------------------------------------------------------- */

#define RLS_UNLIMITED UINT32_MAX /* limit_remaining where there is no limit */

enum rls_code { RLS_UNKNOWN = 0, RLS_CODE_OK = 1, RLS_OVER_LIMIT = 2 };

/*
 * RateLimitResponse.RateLimit. A period that is no unit is given as a multiple of the largest unit
 * that divides it (a month has 30 days, a year 365): 5 min are MINUTE with a multiplier of 5, 90 s
 * SECOND with 90. Where no unit divides it (500 ms, held slots) the unit is UNKNOWN.
 */
struct rls_limit {
    uint32_t requests_per_unit;
    uint32_t unit_multiplier; /* 1: not given */
    int unit;                 /* enum rule_unit */
    const char *name;         /* of the rule; "" */
};

struct rls_status {
    enum rls_code code;
    bool has_limit;
    bool has_reset; /* not where nothing is used, nor where the request can never be allowed */
    uint32_t remaining;
    struct rls_limit limit;
    uint64_t reset_after_ns; /* until `remaining` next grows */
};

/* "UNKNOWN", "SECOND", …, "WEEK" by enum rule_unit. */
extern const char *const rls_unit_names[RULE_WEEK + 1];

const char *rls_code_name(enum rls_code code); /* "UNKNOWN", "OK", "OVER_LIMIT" */

void rls_status_of(const struct target *status, struct rls_status *written);
enum rls_code rls_overall_code(const struct reply *reply);

/*
 * RateLimitDescriptor.limit: so many per so many units (by default 1), as a quota without a rule. A
 * unit is one of RULE_SECOND … RULE_YEAR; months have 30 days and years 365. STINT_E_SYNTAX for
 * another; STINT_E_RANGE for values that no quota can keep.
 */
int rls_override(struct stint_quota *quota, uint32_t requests_per_unit, int64_t unit,
                 uint64_t unit_multiplier, struct stint_error *error);

/* STINT_E_RANGE for more than a request may have; `name` is the field's in the message. */
int rls_read_units(uint32_t *units, const char *name, uint64_t number, struct stint_error *error);

/* ---- Requests and responses ------------------------------------------------------------------ */

#define RLS_HEADERS_SIZE 4096 /* bytes of values in response_headers_to_add */

/* A request parsed from a message, and the memory for all that it points to. Reused. */
struct rls_call {
    struct request request;
    uint32_t hits_addend; /* as in the message; 0: not given */
    uint8_t *packed;
    size_t packed_size;
    char headers[RLS_HEADERS_SIZE];
    struct stint_quota overrides[DESCRIPTORS_MAX];
    struct descriptor descriptors[DESCRIPTORS_MAX];
    struct descriptor_entry entries[DESCRIPTORS_MAX * ENTRIES_MAX];
};

struct rls_call *rls_call_new(void);       /* NULL: no memory */
void rls_call_free(struct rls_call *call); /* NULL is allowed */

/*
 * The request is valid until the next read, and as long as the message, which contains its strings.
 * Unknown fields are skipped. STINT_E_SYNTAX for an invalid message, an empty domain, no
 * descriptors or an unknown unit; STINT_E_RANGE where a limit of requests is exceeded.
 */
int rls_read(struct rls_call *call, struct span message, const struct request **request,
             struct stint_error *error);

/* The format of a response. Borrowed: it outlives its users. */
struct rls_form {
    unsigned styles; /* bits of enum http_style: response_headers_to_add. 0: none */
    /* Replace the names of draft-03: RateLimit-Limit, -Remaining, -Reset. NULL: those names */
    const char *limit_field, *remaining_field, *reset_field;
    bool has_metadata;       /* dynamic_metadata, in the format of envoyproxy/ratelimit */
    struct span denied_body; /* raw_body of a response over limit. Empty: none */
};

/*
 * A RateLimitResponse for a decided reply, in memory of the call until its next write; an empty
 * span with a NULL ptr where there is no memory for it.
 */
struct span rls_write(struct rls_call *call, const struct rls_form *form,
                      const struct request *request, const struct reply *reply);

/* ---- For other messages ---------------------------------------------------------------------- */

/* Reads one more RateLimitDescriptor of the request. */
int rls_add_descriptor(struct rls_call *call, struct span message, struct stint_error *error);
/* Checks that a request has a domain and descriptors. */
int rls_check_whole(const struct rls_call *call, struct stint_error *error);

/* Begins a response of up to so many bytes; `at` is NULL where there is no memory for it. */
struct wire_writer rls_begin_response(struct rls_call *call, size_t len);
/* An empty span with a NULL ptr where there was none. */
struct span rls_end_response(const struct rls_call *call, const struct wire_writer *writer);

/* response_headers_to_add, as the fields of `answer`; their values are in `text`. */
void rls_fields(const struct rls_form *form, const struct request *request,
                const struct reply *reply, struct http_text *text, struct http_answer *answer);

struct json_t;

/*
 * dynamic_metadata: domain, descriptors, hitsAddend, and the metadata of the rules whose
 * descriptors are within their limits. NULL: no memory. hits_addend is as in the message; 0: not
 * given.
 */
struct json_t *rls_metadata(uint32_t hits_addend, const struct request *request,
                            const struct reply *reply);

#endif
