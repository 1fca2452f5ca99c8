/* SPDX-License-Identifier: MIT */
/*
 * Checks which quotas can be enforced: defaults, the fields that all algorithms share, and which
 * option belongs to which algorithm. Each algorithm checks the rest.
 */
#include "algorithm/algorithm.h"

#include "base/limits.h"
#include "base/siphash.h"

#include <assert.h>
#include <string.h>

#define UTC_OFFSET_MAX_S 86399

static bool is_calendar(const struct stint_quota *quota)
{
    return quota->align >= STINT_ALIGN_DAY;
}

static int options_check(const struct stint_quota *quota, struct stint_error *error)
{
    const struct {
        const char *name;
        uint64_t value;
        int algorithm; /* that has it */
    } options[] = {
        {"burst", quota->burst, STINT_GCRA},
        {"resolution", quota->resolution, STINT_WINDOW},
        {"time_slack", quota->time_slack_ns, STINT_BUCKETS},
        {"count_slack", quota->count_slack, STINT_BUCKETS},
        {"lease", quota->lease_ns, STINT_CONCURRENCY},
        {"align", quota->align, STINT_FIXED_WINDOW},
    };
    const char *algorithm = stint_algorithm_name(quota->algorithm);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (options[i].value > 0 && quota->algorithm != options[i].algorithm)
            return err_set(error, STINT_E_MISMATCH, "%s is an option of %s, not of %s",
                           options[i].name, stint_algorithm_name(options[i].algorithm), algorithm);
    if (quota->initial_set && quota->algorithm == STINT_CONCURRENCY)
        return err_set(error, STINT_E_MISMATCH,
                       "initial is not for concurrency: each of its places is held or free");
    if (quota->count_denied && !algorithm_has_debt(quota))
        return err_set(error, STINT_E_MISMATCH,
                       "count_denied is an option of gcra, fixed_window and sliding_counter, not "
                       "of %s",
                       algorithm);
    if (quota->utc_offset_s != 0 && !is_calendar(quota))
        return err_set(error, STINT_E_MISMATCH,
                       "utc_offset needs fixed_window with align=calendar");
    return STINT_OK;
}

static int ranges_check(const struct stint_quota *quota, struct stint_error *error)
{
    if (quota->algorithm > STINT_COUNTER)
        return err_set(error, STINT_E_RANGE, "algorithm %d is none", quota->algorithm);
    if (quota->align > STINT_ALIGN_YEAR)
        return err_set(error, STINT_E_RANGE, "align %d is none", quota->align);
    if (quota->when_full > STINT_FULL_ALLOW)
        return err_set(error, STINT_E_RANGE, "when_full %d is none", quota->when_full);
    if (quota->utc_offset_s < -UTC_OFFSET_MAX_S || quota->utc_offset_s > UTC_OFFSET_MAX_S)
        return err_set(error, STINT_E_RANGE, "utc_offset of %ld s is not within a day",
                       (long)quota->utc_offset_s);
    if (quota->epoch_ns < -EPOCH_MAX_NS || quota->epoch_ns > EPOCH_MAX_NS)
        return err_set(error, STINT_E_RANGE, "epoch is more than 146 years away from 1970");
    return STINT_OK;
}

/* The length of time of the quota: given, the lease, or the shortest of its calendar. */
static int period_check(struct stint_quota *quota, struct stint_error *error)
{
    static const uint64_t shortest_ns[] = {
        [STINT_ALIGN_DAY] = NS_PER_DAY,
        [STINT_ALIGN_WEEK] = NS_PER_WEEK,
        [STINT_ALIGN_MONTH] = 28 * NS_PER_DAY,
        [STINT_ALIGN_YEAR] = NS_PER_YEAR,
    };
    const char *name = "period";
    if (is_calendar(quota)) {
        uint64_t period_ns = shortest_ns[quota->align];
        if (quota->period_ns != 0 && quota->period_ns != period_ns)
            return err_set(error, STINT_E_MISMATCH,
                           "a calendar window has its calendar's length, not one of %llu ns",
                           (unsigned long long)quota->period_ns);
        quota->period_ns = period_ns;
    }
    if (quota->algorithm == STINT_CONCURRENCY) {
        name = "lease";
        if (quota->lease_ns == 0)
            return err_set(error, STINT_E_MISMATCH, "concurrency needs a lease, e.g. lease=30s");
        if (quota->period_ns != 0 && quota->period_ns != quota->lease_ns)
            return err_set(error, STINT_E_MISMATCH, "concurrency has a lease and no period");
        quota->period_ns = quota->lease_ns;
    }
    if (quota->period_ns < PERIOD_MIN_NS || quota->period_ns > PERIOD_MAX_NS)
        return err_set(error, STINT_E_RANGE,
                       "a %s of %llu ns is not within 1us and 10 years (3650d)", name,
                       (unsigned long long)quota->period_ns);
    return STINT_OK;
}

/* After the algorithm's own check, which settles the burst. */
static int initial_check(struct stint_quota *quota, struct stint_error *error)
{
    assert(quota->derived.state_size > 0);
    uint32_t capacity = most_units(quota);
    if (quota->initial_set && quota->initial != STINT_INITIAL_FULL && quota->initial > capacity)
        return err_set(error, STINT_E_RANGE, "initial %u is more than the %u units there are",
                       (unsigned)quota->initial, (unsigned)capacity);
    if (!quota->initial_set || quota->initial >= capacity) {
        quota->initial_set = false;
        quota->initial = 0;
    }
    return STINT_OK;
}

/* Two quotas that decide alike have the same hash, whatever their rule and time origin. */
static void name_params(struct stint_quota *quota)
{
    assert(quota->derived.params_hash[0] == 0 && quota->derived.checked == 0);
    static const uint64_t no_secret[2] = {0, 0};
    struct stint_quota params = *quota;
    params.rule = 0;
    params.epoch_ns = 0;
    memset(&params.derived, 0, sizeof(params.derived));
    struct hash128 hash = siphash13_128(no_secret, 0, &params, sizeof(params));
    quota->derived.params_hash[0] = hash.lo;
    quota->derived.params_hash[1] = hash.hi;
}

int stint_quota_check(struct stint_quota *quota, struct stint_error *error)
{
    if (quota->algorithm != STINT_COUNTER)
        return algorithm_check_any(quota, error);
    memset(&quota->derived, 0, sizeof(quota->derived));
    return err_set(error, STINT_E_MISMATCH,
                   "counter is not an algorithm of quotas, since it has no limit; stint_count() "
                   "counts");
}

int algorithm_check_any(struct stint_quota *quota, struct stint_error *error)
{
    memset(&quota->derived, 0, sizeof(quota->derived)); /* including the padding */
    memset(quota->pad, 0, sizeof(quota->pad));
    if (quota->algorithm == 0)
        quota->algorithm = STINT_WINDOW;
    int code = ranges_check(quota, error);
    if (code == STINT_OK)
        code = options_check(quota, error);
    if (code == STINT_OK)
        code = period_check(quota, error);
    if (code != STINT_OK)
        return code;
    quota->derived.reciprocal = UINT64_MAX / quota->period_ns;
    code = algorithm_check(quota, error);
    if (code == STINT_OK)
        code = initial_check(quota, error);
    if (code != STINT_OK)
        return code;
    assert(quota->derived.state_size > 0 && quota->derived.state_size <= WIDE_STATE_MAX);
    name_params(quota);
    quota->derived.checked = 1;
    return STINT_OK;
}

struct stint_quota counter_quota(void)
{
    struct stint_quota quota = {
        .algorithm = STINT_COUNTER, .limit = COUNTER_LIMIT, .period_ns = COUNTER_PERIOD_NS};
    int code = algorithm_check_any(&quota, NULL);
    assert(code == STINT_OK);
    (void)code;
    return quota;
}

bool stint_is_strict(const struct stint_quota *quota)
{
    assert(quota->algorithm <= STINT_COUNTER);
    return quota->algorithm == STINT_WINDOW || quota->algorithm == STINT_BUCKETS ||
           quota->algorithm == STINT_LOG;
}

uint8_t algorithm_when_full(const struct stint_quota *quota, uint8_t otherwise)
{
    assert(quota->when_full <= STINT_FULL_ALLOW && otherwise <= STINT_FULL_ALLOW);
    uint8_t policy = quota->when_full != STINT_FULL_DEFAULT ? quota->when_full : otherwise;
    if (policy == STINT_FULL_DEFAULT)
        policy = stint_is_strict(quota) ? STINT_FULL_INHERIT : STINT_FULL_EVICT;
    if (policy == STINT_FULL_EVICT && quota->algorithm == STINT_CONCURRENCY)
        policy = STINT_FULL_INHERIT;
    assert(policy != STINT_FULL_DEFAULT);
    return policy;
}

uint64_t stint_max_in_any_window(const struct stint_quota *quota)
{
    assert(quota->derived.checked);
    uint64_t limit = quota->limit;
    if (limit == 0)
        return 0;
    switch (quota->algorithm) {
    case STINT_GCRA: {
        uint64_t interval = quota->derived.interval_ticks;
        return quota->burst + mul_div_up(quota->period_ns, 32, interval) - 1;
    }
    case STINT_FIXED_WINDOW:
        return 2 * limit;
    case STINT_SLIDING_COUNTER:
        return 2 * limit - 1;
    default:
        return limit;
    }
}
