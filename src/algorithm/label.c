/* SPDX-License-Identifier: MIT */
/*
 * The texts of `stint explain`. Numbers come from the checked quota, never from a second
 * calculation that could differ.
 */
#include "algorithm/label.h"

#include "algorithm/algorithm.h"
#include "algorithm/spec.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>

/* A piece of a statement. */
struct text {
    char of[48];
};

static struct text units(uint64_t n)
{
    struct text text = {{0}};
    struct buf buf = buf_of(text.of, sizeof(text.of));
    buf_add(&buf, "%llu unit%s", (unsigned long long)n, n == 1 ? "" : "s");
    return text;
}

static struct text length(uint64_t ns)
{
    struct text text = {{0}};
    struct buf buf = buf_of(text.of, sizeof(text.of));
    spec_format_duration(&buf, ns);
    return text;
}

/* "1m" for a length of time; calendars are named by their unit. */
static struct text period(const struct stint_quota *quota)
{
    static const struct text names[] = {
        [STINT_ALIGN_DAY] = {"calendar day"},
        [STINT_ALIGN_WEEK] = {"ISO week"},
        [STINT_ALIGN_MONTH] = {"calendar month"},
        [STINT_ALIGN_YEAR] = {"calendar year"},
    };
    return quota->align >= STINT_ALIGN_DAY ? names[quota->align] : length(quota->period_ns);
}

static void buckets_algorithm(struct buf *buf, const struct stint_quota *quota)
{
    buf_add(buf,
            "Strict buckets: never more than %s in %s. A use goes to the newest bucket until that",
            units(quota->limit).of, length(quota->period_ns).of);
    if (quota->count_slack > 0)
        buf_add(buf, " holds %u", (unsigned)quota->count_slack);
    if (quota->count_slack > 0 && quota->time_slack_ns > 0)
        buf_add(buf, " or");
    if (quota->time_slack_ns > 0)
        buf_add(buf, " is %s old", length(quota->time_slack_ns).of);
    buf_add(buf,
            "; a bucket is free again %s after its last use. At most %u buckets are ever alive.",
            period(quota).of, (unsigned)quota->derived.max_buckets);
}

static void gcra_algorithm(struct buf *buf, const struct stint_quota *quota)
{
    uint64_t interval_ticks = quota->derived.interval_ticks;
    buf_add(buf, "A token bucket that refills all the time: %s at once from idle, then one every ",
            units(quota->burst).of);
    if (interval_ticks % 32 == 0)
        buf_add(buf, "%s.", length(interval_ticks / 32).of);
    else
        buf_add(buf, "%llu.%05llu ns.", (unsigned long long)(interval_ticks / 32),
                (unsigned long long)(interval_ticks % 32 * 100000 / 32));
}

static void fixed_window_algorithm(struct buf *buf, const struct stint_quota *quota)
{
    buf_add(buf, "One counter per window: %s in each %s", units(quota->limit).of, period(quota).of);
    if (quota->align == STINT_ALIGN_EPOCH) {
        buf_add(buf, ", in windows that begin at multiples of the period since 1970.");
    } else if (quota->align == STINT_ALIGN_FIRST_USE) {
        buf_add(buf, ", in windows that begin with the first use of the key.");
    } else {
        buf_add(buf, " at UTC");
        spec_format_offset(buf, quota->utc_offset_s);
        buf_add(buf, ".");
    }
}

void label_algorithm(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->derived.checked);
    if (quota->limit == 0) {
        buf_add(buf, "Nothing is allowed: the limit is 0.");
        return;
    }
    struct text limit = units(quota->limit), period_length = length(quota->period_ns);
    switch (quota->algorithm) {
    case STINT_WINDOW:
        buf_add(buf,
                "A strict sliding window: never more than %s in %s. Time is counted in %u slots "
                "per period, units in bunches of %u.",
                limit.of, period_length.of, (unsigned)quota->resolution,
                (unsigned)quota->derived.bunch);
        break;
    case STINT_BUCKETS:
        buckets_algorithm(buf, quota);
        break;
    case STINT_LOG:
        buf_add(buf,
                "The exact log: the time of every unit is kept, and never more than %s in %s are "
                "admitted.",
                limit.of, period_length.of);
        break;
    case STINT_GCRA:
        gcra_algorithm(buf, quota);
        break;
    case STINT_FIXED_WINDOW:
        fixed_window_algorithm(buf, quota);
        break;
    case STINT_SLIDING_COUNTER:
        buf_add(buf,
                "Two counters: the units of this window of %s, and those of the one before by the "
                "share of it that the last %s still covers, together at most %u.",
                period_length.of, period_length.of, (unsigned)quota->limit);
        break;
    default:
        buf_add(buf,
                "At most %u held at once, each until it is given back or its lease of %s ends.",
                (unsigned)quota->limit, length(quota->lease_ns).of);
    }
}

void label_bound(struct buf *buf, const struct stint_quota *quota)
{
    uint64_t most = stint_max_in_any_window(quota);
    struct text any = length(quota->period_ns);
    if (quota->algorithm == STINT_CONCURRENCY) {
        buf_add(buf, "At most %llu are held at any instant.", (unsigned long long)most);
        return;
    }
    if (quota->align < STINT_ALIGN_DAY) {
        buf_add(buf, "At most %s in any %s%s", units(most).of, any.of,
                most > quota->limit ? ", which is more than the limit." : ".");
        return;
    }
    /* The bound of a calendar first; a window that is not aligned with it overlaps two of them. */
    buf_add(buf,
            "At most %s in each %s. Across the edge between two of them at most %llu in any %s",
            units(quota->limit).of, period(quota).of, (unsigned long long)most, any.of);
    /* A window of the shortest month never overlaps three months, but 31 days can. */
    if (quota->align == STINT_ALIGN_MONTH)
        buf_add(buf, ", the shortest month, and %llu in 31 days around a February",
                3 * (unsigned long long)quota->limit);
    buf_add(buf, quota->align == STINT_ALIGN_YEAR ? ", the shortest year." : ".");
}

/* "the cost and what was used in the last 10m are together more than 451" */
static void slack_condition(struct buf *buf, uint64_t past_ns, uint64_t most)
{
    buf_add(buf, "the cost and what was used in the last %s are together more than %llu",
            length(past_ns).of, (unsigned long long)most);
}

/* How long after the period units may come back. */
static uint64_t late_ns(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_WINDOW    ? mul_div_up(quota->period_ns, 1, quota->resolution)
           : quota->algorithm == STINT_BUCKETS ? quota->time_slack_ns
                                               : 0;
}

void label_wait(struct buf *buf, const struct stint_quota *quota)
{
    uint64_t longest_ns = quota->period_ns + late_ns(quota);
    if (quota->limit == 0 || late_ns(quota) == 0)
        return;
    buf_add(buf,
            "Used units return after at most %s, so Retry-After can be %llu for a period of %s.",
            length(longest_ns).of, (unsigned long long)ns_units_up(longest_ns, NS_PER_S),
            length(quota->period_ns).of);
    if (quota->algorithm != STINT_WINDOW)
        return;
    unsigned permille = 1000 * quota->resolution / (quota->resolution + 1);
    buf_add(buf, " A caller that always asks gets about %u.%u %% of its limit in each period.",
            permille / 10, permille % 10);
}

void label_slack(struct buf *buf, const struct stint_quota *quota)
{
    uint64_t limit = quota->limit;
    assert(quota->derived.checked);
    if (limit == 0) {
        buf_add(buf, "never: nothing fits");
        return;
    }
    switch (quota->algorithm) {
    case STINT_WINDOW:
        buf_add(buf, "only if ");
        slack_condition(buf, quota->period_ns + late_ns(quota), limit - quota->derived.bunch + 1);
        break;
    case STINT_BUCKETS:
        buf_add(buf, "only if ");
        if (quota->time_slack_ns > 0)
            slack_condition(buf, quota->period_ns + quota->time_slack_ns, limit);
        if (quota->time_slack_ns > 0 && quota->count_slack > 0)
            buf_add(buf, ", and ");
        if (quota->count_slack > 0)
            slack_condition(buf, quota->period_ns, limit - quota->count_slack + 1);
        break;
    case STINT_LOG:
        buf_add(buf, "never: it is exact");
        break;
    case STINT_SLIDING_COUNTER:
        buf_add(buf, "whenever the last window's units came early in it: the estimate is wrong "
                     "both ways");
        break;
    case STINT_CONCURRENCY:
        buf_add(buf,
                "never; a crashed holder's place is free when its lease ends, at most %s later",
                length(quota->lease_ns).of);
        break;
    default:
        buf_add(buf, "never, for its own algorithm");
    }
}

void label_bytes(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->derived.state_size > 0);
    size_t size = stint_state_size(quota);
    buf_add(buf, "%zu bytes of state per key", size);
    if (size <= NARROW_STATE_MAX) {
        buf_add(buf, ".");
        return;
    }
    buf_add(buf,
            ", in a wide slot. A server has keys_wide of these, each of wide_size bytes, by "
            "default %d: ",
            WIDE_SIZE_DEFAULT);
    if (size > WIDE_SIZE_DEFAULT)
        buf_add(buf, "set wide_size: %zu, or as much as its widest quota needs.", size);
    else
        buf_add(buf,
                "where there are many such keys, set a larger keys_wide and wide_size: %zu, or as "
                "much as its widest quota needs.",
                size);
}

static void policy(struct buf *buf, const struct stint_quota *quota, uint8_t when_full)
{
    const char *strict = stint_is_strict(quota) ? "; the limit holds" : "";
    switch (when_full) {
    case STINT_FULL_INHERIT:
        buf_add(buf,
                "inherit: in a full table a new key is denied until the first of the keys in its "
                "slots expires, and is new then%s.",
                strict);
        break;
    case STINT_FULL_DENY:
        buf_add(buf, "deny: in a full table a new key is denied%s.", strict);
        break;
    case STINT_FULL_EVICT:
        buf_add(buf,
                "evict: in a full table the key that has used the smallest share of its quota is "
                "forgotten, and may start anew; keys that are being denied stay. The most in any "
                "window is then %s and what was forgotten of the key, which is counted.",
                units(stint_max_in_any_window(quota)).of);
        break;
    default:
        buf_add(buf, "allow: in a full table a new key is allowed and not remembered, so the "
                     "limit does not hold for it.");
    }
}

void label_policy(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->derived.checked);
    uint8_t library = algorithm_when_full(quota, STINT_FULL_DEFAULT);
    uint8_t server = algorithm_when_full(quota, STINT_FULL_EVICT);
    if (library != server)
        buf_add(buf, "A server: as its setting table_full says; by default ");
    policy(buf, quota, server);
    if (library == server)
        return;
    buf_add(buf, " The library: ");
    policy(buf, quota, library);
}
