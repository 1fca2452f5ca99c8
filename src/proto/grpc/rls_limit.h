/* SPDX-License-Identifier: MIT */
/*
 * Conversions between statuses and overrides and the values of Envoy's rate limit service, shared
 * by protobuf (proto/grpc/rls.h) and its JSON (proto/http/http_call.h).
 */
#ifndef STINT_PROTO_GRPC_RLS_LIMIT_H
#define STINT_PROTO_GRPC_RLS_LIMIT_H

#include "decide/reply.h"
#include "decide/request.h"

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

struct rls_status rls_status_of(const struct target *status);
enum rls_code rls_overall_code(const struct reply *reply);

/* The limit of an override, and that of a status with such a quota. */
struct rls_limit rls_limit_of(const struct stint_quota *quota);

/*
 * RateLimitDescriptor.limit: so many per so many units (by default 1), as a quota without a rule. A
 * unit is one of RULE_SECOND … RULE_YEAR; months have 30 days and years 365. STINT_E_SYNTAX for
 * another, and for 0 units; STINT_E_RANGE for values that no quota can keep.
 */
int rls_override(struct stint_quota *quota, uint32_t requests_per_unit, int64_t unit,
                 uint32_t unit_multiplier, struct stint_error *error);

#endif
