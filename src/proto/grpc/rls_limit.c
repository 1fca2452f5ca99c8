/* SPDX-License-Identifier: MIT */
/* Quotas and decisions in the terms of Envoy's rate limit service. */
#include "proto/grpc/rls_limit.h"

#include "base/err.h"
#include "base/ns.h"
#include "proto/http_fields.h"

const char *const rls_unit_names[RULE_WEEK + 1] = {
    [RULE_UNIT_NONE] = "UNKNOWN", [RULE_SECOND] = "SECOND", [RULE_MINUTE] = "MINUTE",
    [RULE_HOUR] = "HOUR",         [RULE_DAY] = "DAY",       [RULE_MONTH] = "MONTH",
    [RULE_YEAR] = "YEAR",         [RULE_WEEK] = "WEEK",
};

/* ---- Limits ---------------------------------------------------------------------------------- */

/* Calendar windows have a name, but no fixed length. */
static int calendar_unit(uint8_t align)
{
    switch (align) {
    case STINT_ALIGN_DAY:
        return RULE_DAY;
    case STINT_ALIGN_WEEK:
        return RULE_WEEK;
    case STINT_ALIGN_MONTH:
        return RULE_MONTH;
    case STINT_ALIGN_YEAR:
        return RULE_YEAR;
    default:
        return RULE_UNIT_NONE;
    }
}

static void tell_period(struct rls_limit *limit, uint64_t period_ns)
{
    static const int longest_first[] = {RULE_YEAR, RULE_MONTH,  RULE_WEEK,  RULE_DAY,
                                        RULE_HOUR, RULE_MINUTE, RULE_SECOND};
    for (size_t i = 0; i < sizeof(longest_first) / sizeof(longest_first[0]); i++) {
        uint64_t length_ns = rule_unit_ns(longest_first[i]);
        if (period_ns == 0 || period_ns % length_ns != 0 || period_ns / length_ns > UINT32_MAX)
            continue;
        limit->unit = longest_first[i];
        limit->unit_multiplier = (uint32_t)(period_ns / length_ns);
        return;
    }
}

struct rls_limit rls_limit_of(const struct stint_quota *quota)
{
    struct rls_limit limit = {
        .requests_per_unit = quota->limit,
        .unit_multiplier = 1,
        .unit = calendar_unit(quota->align),
        .name = "",
    };
    if (limit.unit == RULE_UNIT_NONE && quota->algorithm != STINT_CONCURRENCY)
        tell_period(&limit, quota->period_ns);
    return limit;
}

/* A rule's limit is that of its text; an override's limit is that of its quota. */
static struct rls_limit limit_of_status(const struct target *status)
{
    const struct rule *rule = status->rule;
    struct rls_limit limit;
    if (rule != NULL && status->quota == &rule->quota && rule->unit != RULE_UNIT_NONE)
        limit = (struct rls_limit){rule->requests_per_unit, 1, rule->unit, ""};
    else
        limit = rls_limit_of(status->quota);
    if (rule != NULL && !status->is_override)
        limit.name = rule->name;
    return limit;
}

int rls_override(struct stint_quota *quota, uint32_t requests_per_unit, int64_t unit,
                 uint32_t unit_multiplier, struct stint_error *error)
{
    if (unit <= RULE_UNIT_NONE || unit > RULE_YEAR)
        return err_set(error, STINT_E_SYNTAX,
                       "expected a unit: SECOND, MINUTE, HOUR, DAY, MONTH or YEAR");
    if (unit_multiplier == 0)
        return err_set(error, STINT_E_SYNTAX, "expected a unit multiplier of 1 or more");
    /* UINT32_MAX years exceed 64 bits: any period that long is equivalent. */
    uint64_t length_ns = rule_unit_ns((int)unit);
    uint64_t period_ns =
        unit_multiplier > UINT64_MAX / length_ns ? UINT64_MAX : unit_multiplier * length_ns;
    *quota = (struct stint_quota){.limit = requests_per_unit, .period_ns = period_ns};
    return stint_quota_check(quota, error);
}

/* ---- Statuses -------------------------------------------------------------------------------- */

const char *rls_code_name(enum rls_code code)
{
    return code == RLS_CODE_OK ? "OK" : code == RLS_OVER_LIMIT ? "OVER_LIMIT" : "UNKNOWN";
}

struct rls_status rls_status_of(const struct target *status)
{
    bool is_over =
        status->decision.outcome != STINT_ALLOW || (status->is_all_shadow && status->over);
    struct rls_status written = {.code = is_over ? RLS_OVER_LIMIT : RLS_CODE_OK};
    if (reply_quota(status) != NULL) {
        written.has_limit = true;
        written.limit = limit_of_status(status);
        written.remaining = status->decision.remaining;
        written.has_reset = status->decision.outcome != STINT_NEVER &&
                            http_fields_grows_after(status, &written.reset_after_ns);
    } else if (status->rule != NULL && status->rule->unlimited) {
        written.remaining = RLS_UNLIMITED;
    }
    return written;
}

enum rls_code rls_overall_code(const struct reply *reply)
{
    return reply->decision.outcome == STINT_ALLOW ? RLS_CODE_OK : RLS_OVER_LIMIT;
}
