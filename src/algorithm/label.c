/* SPDX-License-Identifier: MIT */
/*
 * The texts of `stint explain`. Numbers come from the checked quota, never from a second
 * calculation that could differ.
 */
#include "algorithm/label.h"

#include "algorithm/algorithm.h"
#include "algorithm/spec.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>

static void units(struct buf *buf, uint64_t n)
{
    buf_add(buf, "%llu unit%s", (unsigned long long)n, n == 1 ? "" : "s");
}

/* "1m" for a length of time; calendars are named by their unit. */
static void period(struct buf *buf, const struct stint_quota *quota)
{
    static const char *const names[] = {
        [STINT_ALIGN_DAY] = "calendar day",
        [STINT_ALIGN_WEEK] = "ISO week",
        [STINT_ALIGN_MONTH] = "calendar month",
        [STINT_ALIGN_YEAR] = "calendar year",
    };
    if (quota->align >= STINT_ALIGN_DAY)
        buf_add(buf, "%s", names[quota->align]);
    else
        spec_format_duration(buf, quota->period_ns);
}

static void promise(struct buf *buf, const struct stint_quota *quota)
{
    units(buf, quota->limit);
    buf_add(buf, " in ");
    spec_format_duration(buf, quota->period_ns);
}

static void window_algorithm(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->algorithm == STINT_WINDOW);
    buf_add(buf, "A strict sliding window: never more than ");
    promise(buf, quota);
    buf_add(buf, ". Time is counted in %u slots per period, units in bunches of %u.",
            (unsigned)quota->resolution, (unsigned)quota->derived.bunch);
}

static void buckets_algorithm(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->algorithm == STINT_BUCKETS);
    buf_add(buf, "Strict buckets: never more than ");
    promise(buf, quota);
    buf_add(buf, ". A use goes to the newest bucket until that");
    if (quota->count_slack > 0)
        buf_add(buf, " holds %u", (unsigned)quota->count_slack);
    if (quota->count_slack > 0 && quota->time_slack_ns > 0)
        buf_add(buf, " or");
    if (quota->time_slack_ns > 0) {
        buf_add(buf, " is ");
        spec_format_duration(buf, quota->time_slack_ns);
        buf_add(buf, " old");
    }
    buf_add(buf, "; a bucket is free again ");
    period(buf, quota);
    buf_add(buf, " after its last use. At most %u buckets are ever alive.",
            (unsigned)quota->derived.max_buckets);
}

static void gcra_algorithm(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->algorithm == STINT_GCRA);
    uint64_t interval_ticks = quota->derived.interval_ticks;
    buf_add(buf, "A token bucket that refills all the time: ");
    units(buf, quota->burst);
    buf_add(buf, " at once from idle, then one every ");
    if (interval_ticks % 32 == 0)
        spec_format_duration(buf, interval_ticks / 32);
    else
        buf_add(buf, "%llu.%05llu ns", (unsigned long long)(interval_ticks / 32),
                (unsigned long long)(interval_ticks % 32 * 100000 / 32));
    buf_add(buf, ".");
}

static void fixed_window_algorithm(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->algorithm == STINT_FIXED_WINDOW);
    buf_add(buf, "One counter per window: ");
    units(buf, quota->limit);
    buf_add(buf, " in each ");
    period(buf, quota);
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
    switch (quota->algorithm) {
    case STINT_WINDOW:
        window_algorithm(buf, quota);
        break;
    case STINT_BUCKETS:
        buckets_algorithm(buf, quota);
        break;
    case STINT_LOG:
        buf_add(buf, "The exact log: the time of every unit is kept, and never more than ");
        promise(buf, quota);
        buf_add(buf, " are admitted.");
        break;
    case STINT_GCRA:
        gcra_algorithm(buf, quota);
        break;
    case STINT_FIXED_WINDOW:
        fixed_window_algorithm(buf, quota);
        break;
    case STINT_SLIDING_COUNTER:
        buf_add(buf, "Two counters: the units of this window of ");
        period(buf, quota);
        buf_add(buf, ", and those of the one before by the share of it that the last ");
        period(buf, quota);
        buf_add(buf, " still covers, together at most %u.", (unsigned)quota->limit);
        break;
    default:
        buf_add(buf, "At most %u held at once, each until it is given back or its lease of ",
                (unsigned)quota->limit);
        spec_format_duration(buf, quota->lease_ns);
        buf_add(buf, " ends.");
    }
}

/* The bound of a calendar first; a window that is not aligned with it overlaps two of them. */
static void calendar_bound(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->algorithm == STINT_FIXED_WINDOW);
    buf_add(buf, "At most ");
    units(buf, quota->limit);
    buf_add(buf, " in each ");
    period(buf, quota);
    buf_add(buf, ". Across the edge between two of them at most %llu in any ",
            (unsigned long long)stint_max_in_any_window(quota));
    spec_format_duration(buf, quota->period_ns);
    /* A window of the shortest month never overlaps three months, but 31 days can. */
    if (quota->align == STINT_ALIGN_MONTH)
        buf_add(buf, ", the shortest month, and %llu in 31 days around a February",
                3 * (unsigned long long)quota->limit);
    if (quota->align == STINT_ALIGN_YEAR)
        buf_add(buf, ", the shortest year");
    buf_add(buf, ".");
}

void label_bound(struct buf *buf, const struct stint_quota *quota)
{
    uint64_t most = stint_max_in_any_window(quota);
    if (quota->algorithm == STINT_CONCURRENCY) {
        buf_add(buf, "At most %llu are held at any instant.", (unsigned long long)most);
        return;
    }
    if (quota->algorithm == STINT_FIXED_WINDOW && quota->align >= STINT_ALIGN_DAY) {
        calendar_bound(buf, quota);
        return;
    }
    buf_add(buf, "At most ");
    units(buf, most);
    buf_add(buf, " in any ");
    spec_format_duration(buf, quota->period_ns);
    buf_add(buf, "%s", most > quota->limit ? ", which is more than the limit." : ".");
}

/* "with what the last 10m used, the cost makes more than 451" */
static void slack_condition(struct buf *buf, uint64_t past_ns, uint64_t most)
{
    buf_add(buf, "the cost and what was used in the last ");
    spec_format_duration(buf, past_ns);
    buf_add(buf, " are together more than %llu", (unsigned long long)most);
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
    buf_add(buf, "Used units return after at most ");
    spec_format_duration(buf, longest_ns);
    buf_add(buf, ", so Retry-After can be %llu for a period of ",
            (unsigned long long)(longest_ns / NS_PER_S + (longest_ns % NS_PER_S != 0)));
    spec_format_duration(buf, quota->period_ns);
    buf_add(buf, ".");
}

void label_slack(struct buf *buf, const struct stint_quota *quota)
{
    uint64_t limit = quota->limit;
    assert(quota->derived.checked);
    if (limit == 0) {
        buf_add(buf, "never: nothing has room");
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
        buf_add(buf, "never; a crashed holder's place is free when its lease ends, at most ");
        spec_format_duration(buf, quota->lease_ns);
        buf_add(buf, " later");
        break;
    default:
        buf_add(buf, "never, for its own algorithm");
    }
}

void label_bytes(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->derived.state_size > 0);
    buf_add(buf, "%zu bytes of state per key.", stint_state_size(quota));
}

static void policy(struct buf *buf, const struct stint_quota *quota, uint8_t when_full)
{
    bool is_strict = stint_is_strict(quota);
    switch (when_full) {
    case STINT_FULL_INHERIT:
        buf_add(buf,
                "inherit: in a full table a new key is denied until the first of the keys in its "
                "slots expires, and is new then%s.",
                is_strict ? "; the limit holds" : "");
        break;
    case STINT_FULL_DENY:
        buf_add(buf, "deny: in a full table a new key is denied%s.",
                is_strict ? "; the limit holds" : "");
        break;
    case STINT_FULL_EVICT:
        buf_add(buf, "evict: in a full table the key that has used the smallest share of its "
                     "quota is forgotten, and may start anew; keys that are being denied stay. "
                     "The most in any window is then ");
        units(buf, stint_max_in_any_window(quota));
        buf_add(buf, " and what was forgotten of the key, which is counted.");
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
