/* SPDX-License-Identifier: MIT */
#include "service/quota_caches.h"

#include "algorithm/gcra.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/siphash.h"
#include "table/table.h"

#include <assert.h>

#define EXCESS_MAX_NS (NS_PER_MS - 1) /* below this redis-cell does not round up, either */

/* ---- SPECs ----------------------------------------------------------------------------------- */

static bool is_of(const struct spec_entry *entry, struct span text)
{
    return entry->text_len == text.len && memcmp(entry->text, text.ptr, text.len) == 0;
}

static int check_text(struct span text, struct stint_error *error)
{
    if (text.len == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "a quota is missing, such as \"window 100/1m\" or \"gcra 10/1s burst=20\"");
    if (text.len > SPEC_TEXT_MAX)
        return err_set(error, STINT_E_RANGE, "a quota has at most %d bytes; this has %zu",
                       SPEC_TEXT_MAX, text.len);
    if (memchr(text.ptr, '\0', text.len) != NULL)
        return err_set(error, STINT_E_SYNTAX, "a quota is text; this has a byte 0x00 in it");
    return 0;
}

/* The name is set last: an entry that failed to parse stays without one. */
static const struct stint_quota *fill_spec(struct spec_entry *entry, struct stint_table *table,
                                           struct span text, struct stint_error *error)
{
    assert(text.len > 0 && text.len <= SPEC_TEXT_MAX);
    entry->text_len = 0;
    memcpy(entry->text, text.ptr, text.len);
    entry->text[text.len] = '\0';
    if (stint_quota_parse(&entry->quota, entry->text, error) != 0 ||
        table_stores(table, &entry->quota, error) != 0)
        return NULL;
    entry->text_len = text.len;
    return &entry->quota;
}

const struct stint_quota *spec_cache_find(struct spec_cache *cache, struct stint_table *table,
                                          struct span text, struct stint_error *error)
{
    assert(cache->last < SPEC_CACHE_SIZE && table != NULL);
    if (check_text(text, error) != 0)
        return NULL;
    /* Most requests use the same SPEC as the one before, which is found without hashing it. */
    struct spec_entry *entry = &cache->entries[cache->last];
    if (is_of(entry, text))
        return &entry->quota;
    cache->last = siphash13_128(cache->secret, 0, text.ptr, text.len).lo % SPEC_CACHE_SIZE;
    entry = &cache->entries[cache->last];
    return is_of(entry, text) ? &entry->quota : fill_spec(entry, table, text, error);
}

/* ---- CL.THROTTLE ----------------------------------------------------------------------------- */

static size_t throttle_place(const struct request_throttle *throttle)
{
    /* No secret is needed: sets of numbers in one slot are only converted again. */
    uint64_t mixed = (uint64_t)throttle->max_burst * UINT64_C(0x9e3779b97f4a7c15) +
                     throttle->count_per_period * UINT64_C(0xbf58476d1ce4e5b9) +
                     throttle->period_s * UINT64_C(0x94d049bb133111eb);
    return (mixed >> 32) % THROTTLE_CACHE_SIZE;
}

static bool is_same(const struct request_throttle *a, const struct request_throttle *b)
{
    return a->max_burst == b->max_burst && a->count_per_period == b->count_per_period &&
           a->period_s == b->period_s;
}

/*
 * A rate is a ratio: where a quota cannot hold its numbers, both are divided by the same factor,
 * and the period is rounded up.
 */
static void reduce(uint64_t *count, uint64_t *period_ns)
{
    assert(*count > 0 && *period_ns > 0);
    uint64_t by = max_u64(*period_ns / PERIOD_MAX_NS, *count / UINT32_MAX) + 1;
    uint64_t reduced = max_u64(*count / by, 1);
    *period_ns = mul_div_up(*period_ns, reduced, *count);
    *count = reduced;
}

static int make_quota(struct throttle_entry *entry, struct stint_error *error)
{
    const struct request_throttle *throttle = &entry->throttle;
    uint64_t count = throttle->count_per_period;
    if (throttle->max_burst < -1 || throttle->max_burst >= UINT32_MAX)
        return err_set(error, STINT_E_RANGE, "max_burst is from -1 to %u", UINT32_MAX - 1);
    if (count < 1 || throttle->period_s < 1 || throttle->period_s > THROTTLE_PERIOD_MAX_S)
        return err_set(error, STINT_E_RANGE,
                       "count_per_period and period are at least 1, and period at most %llu",
                       (unsigned long long)THROTTLE_PERIOD_MAX_S);
    uint64_t period_ns = throttle->period_s * NS_PER_S;
    if (count > UINT32_MAX || period_ns > PERIOD_MAX_NS)
        reduce(&count, &period_ns);
    if (period_ns > PERIOD_MAX_NS)
        return err_set(error, STINT_E_RANGE,
                       "%llu per %llu seconds is less than one unit in ten years",
                       (unsigned long long)count, (unsigned long long)throttle->period_s);
    entry->quota = (struct stint_quota){
        .algorithm = STINT_GCRA,
        .limit = (uint32_t)count,
        .period_ns = period_ns,
        .burst = throttle->max_burst < 0 ? 1 : (uint32_t)throttle->max_burst + 1,
        .rule = THROTTLE_RULE,
    };
    return stint_quota_check(&entry->quota, error);
}

/*
 * A client of redis-cell counts in seconds, so the sum of the units' times must be rounded, not the
 * time of each unit: 3 of 3 per 10 s return after 10 s, and not one tick later, which would round
 * up to 11. The sum for the largest cost that fits is too long by this.
 */
static uint64_t excess_of(const struct throttle_entry *entry)
{
    assert(entry->throttle.count_per_period > 0);
    const struct request_throttle *throttle = &entry->throttle;
    uint64_t exact_ns =
        mul_div(entry->quota.burst, throttle->period_s * NS_PER_S, throttle->count_per_period);
    uint64_t kept_ns = gcra_ns_up(entry->quota.derived.capacity_ticks);
    return min_u64(sub_floor(kept_ns, exact_ns), EXCESS_MAX_NS);
}

static const struct throttle_entry *fill_throttle(struct throttle_entry *entry,
                                                  struct stint_table *table,
                                                  const struct request_throttle *throttle,
                                                  struct stint_error *error)
{
    struct throttle_entry made = {.throttle = *throttle};
    if (make_quota(&made, error) != 0 || table_stores(table, &made.quota, error) != 0)
        return NULL;
    made.excess_ns = excess_of(&made);
    assert(made.excess_ns <= EXCESS_MAX_NS);
    *entry = made;
    return entry;
}

const struct throttle_entry *throttle_cache_find(struct throttle_cache *cache,
                                                 struct stint_table *table,
                                                 const struct request_throttle *throttle,
                                                 struct stint_error *error)
{
    assert(table != NULL);
    struct throttle_entry *entry = &cache->entries[throttle_place(throttle)];
    if (is_same(&entry->throttle, throttle) && throttle->period_s != 0)
        return entry;
    return fill_throttle(entry, table, throttle, error);
}

const struct stint_quota *throttle_any_quota(void)
{
    static const struct stint_quota any = {
        .algorithm = STINT_GCRA, .rule = THROTTLE_RULE, .derived = {.state_size = 8}};
    return &any;
}
