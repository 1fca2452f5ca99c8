/* SPDX-License-Identifier: MIT */
/* From max_burst, count and period to a gcra quota, once for each set of numbers. */
#include "conn/throttle_cache.h"

#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"

#define PERIOD_MAX_S (UINT64_C(10) * 365 * 24 * 3600)

static size_t place_of(const struct request_throttle *throttle)
{
    /* Nothing hostile: what lands in one place is worked out again, which is all. */
    uint64_t mixed = throttle->max_burst * UINT64_C(0x9e3779b97f4a7c15) +
                     throttle->count_per_period * UINT64_C(0xbf58476d1ce4e5b9) +
                     throttle->period_s * UINT64_C(0x94d049bb133111eb);
    return (mixed >> 32) % THROTTLE_CACHE_SIZE;
}

static bool is_same(const struct request_throttle *a, const struct request_throttle *b)
{
    return a->max_burst == b->max_burst && a->count_per_period == b->count_per_period &&
           a->period_s == b->period_s;
}

static int make_quota(struct stint_quota *quota, const struct request_throttle *throttle,
                      struct stint_error *error)
{
    if (throttle->max_burst >= UINT32_MAX)
        return err_set(error, STINT_E_RANGE, "max_burst is from 0 to %u", UINT32_MAX - 1);
    if (throttle->count_per_period < 1 || throttle->count_per_period > UINT32_MAX)
        return err_set(error, STINT_E_RANGE, "count_per_period is from 1 to %u; " UNITS_ADVICE,
                       UNIT_COUNT_MAX);
    if (throttle->period_s < 1 || throttle->period_s > PERIOD_MAX_S)
        return err_set(error, STINT_E_RANGE, "period is from 1 to %llu seconds: ten years",
                       (unsigned long long)PERIOD_MAX_S);
    *quota = (struct stint_quota){
        .algorithm = STINT_GCRA,
        .limit = (uint32_t)throttle->count_per_period,
        .period_ns = throttle->period_s * NS_PER_S,
        .burst = (uint32_t)throttle->max_burst + 1,
        .rule = THROTTLE_RULE,
    };
    return stint_quota_check(quota, error);
}

static const struct stint_quota *fill(struct throttle_entry *entry, struct stint_table *table,
                                      const struct request_throttle *throttle,
                                      struct stint_error *error)
{
    struct stint_quota quota;
    int code = make_quota(&quota, throttle, error);
    if (code == 0)
        code = stint_table_accepts(table, &quota, error);
    if (code != 0)
        return NULL;
    *entry = (struct throttle_entry){*throttle, quota};
    return &entry->quota;
}

const struct stint_quota *throttle_cache_find(struct throttle_cache *cache,
                                              struct stint_table *table,
                                              const struct request_throttle *throttle,
                                              struct stint_error *error)
{
    struct throttle_entry *entry = &cache->entries[place_of(throttle)];
    if (is_same(&entry->throttle, throttle) && throttle->period_s != 0)
        return &entry->quota;
    return fill(entry, table, throttle, error);
}

const struct stint_quota *throttle_any_quota(void)
{
    static const struct stint_quota any = {
        .algorithm = STINT_GCRA, .rule = THROTTLE_RULE, .derived = {.state_size = 8}};
    return &any;
}
