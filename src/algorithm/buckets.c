/* SPDX-License-Identifier: MIT */
/*
 * The algorithm `buckets`: a cooldown with bounded memory. Units are recorded in buckets of (last
 * use, count); a bucket comes back W after its last use, all of it at once.
 *
 * A use goes to the newest bucket unless that holds count_slack units (forms B, AB) or was first
 * used time_slack ago (forms A, AB); then a new one opens. So all buckets but the newest are full
 * or timed out, and that bounds how many are live:
 *
 *   With a = ceil(W/O), take the instant at which a bucket opens and m are live. The oldest was
 *   opened after now - W - O, and each that timed out moved the next one O further, so at most a
 *   timed out. The f full ones hold k each, every other at least one unit, and all hold at most N:
 *   f <= (N - n - 1) / k with n timed out. m = f + n + 1 is largest for n = a, and then
 *   a + ceil((N - a) / k).
 *
 * Refunds keep that true: they empty whole buckets, or take from the newest while it is open. When
 * the newest is emptied, the one before it, which was full or timed out, stays closed.
 *
 * No unit is recorded earlier than its use, hence at most N in any W. Refunds keep that true too
 * (window.c explains why removing the oldest units always does); a unit of the newest bucket may be
 * removed if it was used at that bucket's last use or later, or after its first use: then it is one
 * of the units recorded in it, and those that remain are still enough for the other uses.
 *
 * A charge is recorded whether it fits or not. What does not fit displaces the oldest units. These
 * are no younger than the oldest bucket that is left, and may last as long: so they are kept as one
 * number, `displaced`, count as used, and come back with that bucket. A refund, which removes the
 * oldest units, removes these first.
 *
 * The oldest bucket may then be neither full nor timed out, and the bound above be one too low. If
 * a bucket is missing for that reason, all of the oldest one is displaced. Its units stay used,
 * some longer than they were: the bucket counts as used up.
 */
#include "algorithm/algorithm.h"
#include "base/read_once.h"

#include <assert.h>
#include <string.h>

#define BUCKETS_HEADER_SIZE 16
#define BUCKETS_MAX ((BUCKETS_STATE_MAX - BUCKETS_HEADER_SIZE) / 8)
#define BUCKETS_SLACK_PARTS 1000 /* time_slack is at least this part of the period */
#define BUCKETS_SPARE_BITS 5     /* of a word that holds a time */
#define BUCKETS_SPARE_MASK ((1u << BUCKETS_SPARE_BITS) - 1)
#define BUCKETS_N_BITS 9

_Static_assert(BUCKETS_MAX < 1u << BUCKETS_N_BITS, "the number of buckets");
_Static_assert(BUCKETS_MAX <= HELD_GROUPS_MAX, "all of them are groups");
_Static_assert(BUCKETS_N_BITS + 1 <= 2 * BUCKETS_SPARE_BITS, "that number and one flag");
_Static_assert(STINT_NOW_MAX >> (64 - BUCKETS_SPARE_BITS) == 0, "a time leaves these bits");

/*
 * The state. The two times share their words with the number of buckets and the flag `closed`. An
 * entry is, from bit 0, the count less one in derived.count_bits, and the last use after that of
 * the oldest bucket. The oldest is entry[0]: its own would be 0, so that field holds the number of
 * units displaced, saturated at 32 bits.
 *
 * That is exact and cannot overflow: expired buckets are dropped before a use is written, so all
 * that are kept were last used within W before the newest use, and buckets_check() refuses a quota
 * for which W - 1 and the largest count less one do not fit 64 bits together.
 */
struct buckets_state {
    uint64_t base_and_spare;
    uint64_t first_and_spare;
    uint64_t entry[];
};

/*
 * The header unpacked, as it was read, once: n is at most the quota's maximum, whatever the memory
 * holds. Entries are read in place. Their content is never an index, and no sum of them is assumed
 * to be right: other processes may be able to write to the state.
 */
struct buckets {
    const struct stint_quota *quota;
    struct buckets_state *state;
    uint64_t count_mask; /* of an entry's low count_bits */
    unsigned count_bits;
    uint64_t base_ns;  /* the oldest bucket's last use */
    uint64_t first_ns; /* the newest bucket's first use; without one, or if closed, the own time */
    uint32_t n;
    uint32_t displaced; /* units that come back with the oldest bucket; 0 where there is none */
    bool closed;        /* the newest bucket takes no more units, since a newer one was emptied */
};

static struct buckets buckets_unpack(const struct stint_quota *quota, const void *state_bytes)
{
    struct buckets_state *state = (struct buckets_state *)(uintptr_t)state_bytes;
    uint64_t base = read_once64(&state->base_and_spare);
    uint64_t first = read_once64(&state->first_and_spare);
    uint64_t spare = (base & BUCKETS_SPARE_MASK) | (first & BUCKETS_SPARE_MASK)
                                                       << BUCKETS_SPARE_BITS;
    uint64_t n = min_u64(spare & ((1u << BUCKETS_N_BITS) - 1), quota->derived.max_buckets);
    uint64_t displaced = n == 0 ? 0 : read_once64(&state->entry[0]) >> quota->derived.count_bits;
    return (struct buckets){
        .quota = quota,
        .state = state,
        .count_mask = (UINT64_C(1) << quota->derived.count_bits) - 1,
        .count_bits = quota->derived.count_bits,
        .base_ns = base >> BUCKETS_SPARE_BITS,
        .first_ns = first >> BUCKETS_SPARE_BITS,
        .n = (uint32_t)n,
        .displaced = (uint32_t)min_u64(displaced, UINT32_MAX),
        .closed = spare >> BUCKETS_N_BITS & 1,
    };
}

static void buckets_pack_header(struct buckets_state *state, const struct buckets *buckets)
{
    assert(buckets->n < 1u << BUCKETS_N_BITS);
    uint32_t spare = buckets->n | (uint32_t)buckets->closed << BUCKETS_N_BITS;
    state->base_and_spare = buckets->base_ns << BUCKETS_SPARE_BITS | (spare & BUCKETS_SPARE_MASK);
    state->first_and_spare = buckets->first_ns << BUCKETS_SPARE_BITS | spare >> BUCKETS_SPARE_BITS;
}

static void buckets_pack(const struct buckets *buckets)
{
    assert(buckets->n <= buckets->quota->derived.max_buckets);
    uint64_t displaced = (uint64_t)buckets->displaced << buckets->count_bits;
    buckets_pack_header(buckets->state, buckets);
    if (buckets->n > 0)
        buckets->state->entry[0] = (buckets->state->entry[0] & buckets->count_mask) | displaced;
}

/* Units that a bucket takes at most. */
static uint32_t buckets_size(const struct stint_quota *quota)
{
    return quota->count_slack > 0 ? quota->count_slack : quota->limit;
}

static uint32_t buckets_count(const struct buckets *buckets, uint32_t at)
{
    assert(at < buckets->quota->derived.max_buckets);
    return (uint32_t)(read_once64(&buckets->state->entry[at]) & buckets->count_mask) + 1;
}

static uint64_t buckets_last_ns(const struct buckets *buckets, uint32_t at)
{
    assert(at < buckets->n || at == 0);
    if (at == 0)
        return buckets->base_ns;
    return buckets->base_ns + (read_once64(&buckets->state->entry[at]) >> buckets->count_bits);
}

static void buckets_set(const struct buckets *buckets, uint32_t at, struct held_run run)
{
    assert(run.units > 0 && at < buckets->quota->derived.max_buckets);
    uint64_t since_ns =
        min_u64(sub_floor(run.at_ns, buckets->base_ns), buckets->quota->period_ns - 1);
    buckets->state->entry[at] = since_ns << buckets->count_bits | (run.units - 1);
}

/* The state's own time: its latest use. */
static uint64_t buckets_latest_ns(const struct buckets *buckets)
{
    if (buckets->n == 0 || buckets->closed)
        return buckets->first_ns;
    return buckets_last_ns(buckets, buckets->n - 1);
}

static uint64_t buckets_expiry_ns(const struct buckets *buckets)
{
    if (buckets->n == 0)
        return buckets->first_ns;
    return buckets_last_ns(buckets, buckets->n - 1) + buckets->quota->period_ns;
}

static uint32_t buckets_expired(const struct buckets *buckets, uint64_t at_ns)
{
    uint32_t n = 0;
    while (n < buckets->n && buckets_last_ns(buckets, n) + buckets->quota->period_ns <= at_ns)
        n++;
    return n;
}

/* Units in the live buckets. */
static uint64_t buckets_kept(const struct buckets *buckets, uint32_t n_expired)
{
    assert(n_expired <= buckets->n);
    uint64_t units = 0;
    for (uint32_t at = n_expired; at < buckets->n; at++)
        units += buckets_count(buckets, at);
    return units;
}

static uint32_t buckets_free(const struct buckets *buckets, uint32_t n_expired)
{
    assert(n_expired <= buckets->n);
    uint64_t used = buckets_kept(buckets, n_expired);
    return (uint32_t)sub_floor(buckets->quota->limit,
                               used + (n_expired == 0 ? buckets->displaced : 0));
}

/* Forgets the n oldest buckets; the next one's last use becomes the base. */
static void buckets_drop(struct buckets *buckets, uint32_t n)
{
    assert(n <= buckets->n);
    if (n == 0)
        return;
    buckets->displaced = 0;
    if (n == buckets->n) {
        buckets->first_ns = buckets_latest_ns(buckets);
        buckets->closed = false;
        buckets->n = 0;
        return;
    }
    uint64_t base_ns = buckets_last_ns(buckets, n);
    uint64_t moved = (base_ns - buckets->base_ns) << buckets->count_bits;
    buckets->state->entry[0] = read_once64(&buckets->state->entry[n]) & buckets->count_mask;
    for (uint32_t at = n + 1; at < buckets->n; at++)
        buckets->state->entry[at - n] = read_once64(&buckets->state->entry[at]) - moved;
    buckets->base_ns = base_ns;
    buckets->n -= n;
}

/* Units the newest bucket can still take at this time. */
static uint32_t buckets_space(const struct buckets *buckets, uint64_t at_ns)
{
    if (buckets->n == 0 || buckets->closed)
        return 0;
    if (buckets->quota->time_slack_ns > 0 &&
        at_ns - buckets->first_ns >= buckets->quota->time_slack_ns)
        return 0;
    return (uint32_t)sub_floor(buckets_size(buckets->quota),
                               buckets_count(buckets, buckets->n - 1));
}

/* Records units, at most N with those recorded already, at a time not before the state's own. */
static void buckets_record(struct buckets *buckets, struct held_run run)
{
    uint64_t space = buckets_space(buckets, run.at_ns);
    if (space > 0) {
        uint32_t newest = buckets->n - 1;
        uint64_t added = min_u64(space, run.units);
        if (newest == 0)
            buckets->base_ns = run.at_ns;
        uint64_t count = buckets_count(buckets, newest) + added;
        buckets_set(buckets, newest, (struct held_run){run.at_ns, count});
        run.units -= added;
    }
    while (run.units > 0) {
        uint64_t added = min_u64(buckets_size(buckets->quota), run.units);
        if (buckets->n == buckets->quota->derived.max_buckets) {
            uint64_t displaced = (uint64_t)buckets->displaced + buckets_count(buckets, 0);
            buckets_drop(buckets, 1);
            buckets->displaced = (uint32_t)min_u64(displaced, UINT32_MAX);
        }
        if (buckets->n == 0)
            buckets->base_ns = run.at_ns;
        buckets->first_ns = run.at_ns;
        buckets->closed = false;
        assert(buckets->n < buckets->quota->derived.max_buckets);
        buckets_set(buckets, buckets->n++, (struct held_run){run.at_ns, added});
        run.units -= added;
    }
}

/* Records units whether they fit or not; keeps the newest N of all. */
static void buckets_charge(struct buckets *buckets, struct held_run run)
{
    assert(run.units > 0);
    uint64_t kept = buckets_kept(buckets, 0);
    uint64_t units = min_u64(run.units, buckets->quota->limit);
    uint64_t over = sub_floor(kept + units, buckets->quota->limit);
    uint64_t displaced = buckets->displaced + (run.units - units) + over;
    uint32_t n = 0;
    while (n < buckets->n && buckets_count(buckets, n) <= over)
        over -= buckets_count(buckets, n++);
    if (n < buckets->n)
        buckets->state->entry[n] -= over;
    buckets_drop(buckets, n);
    buckets->displaced = (uint32_t)min_u64(displaced, UINT32_MAX);
    buckets_record(buckets, (struct held_run){run.at_ns, units});
}

/*
 * Empties live buckets. Expired ones stay until the next use: a refund does not advance the state's
 * own time, and for a caller whose clock is behind they have not expired yet.
 */
static void buckets_empty(struct buckets *buckets, uint32_t from, uint32_t to)
{
    assert(from <= to && to <= buckets->n);
    if (from == 0) {
        buckets_drop(buckets, to);
    } else if (to < buckets->n) {
        memmove(&buckets->state->entry[from], &buckets->state->entry[to], 8 * (buckets->n - to));
        buckets->n -= to - from;
    } else if (from < to) {
        buckets->first_ns = buckets_latest_ns(buckets);
        buckets->closed = true;
        buckets->n = from;
    }
}

static uint32_t buckets_refund(struct buckets *buckets, const struct stint_ask *ask, uint64_t at_ns)
{
    uint64_t granted_ns = ask->at_ns == STINT_NEVER_NS ? at_ns : min_u64(ask->at_ns, ask->now_ns);
    if (granted_ns + buckets->quota->period_ns <= at_ns)
        return 0;
    uint32_t oldest = buckets_expired(buckets, at_ns), end = oldest, left = ask->cost;
    if (oldest == 0 && buckets->displaced > 0) {
        if (buckets->displaced == UINT32_MAX)
            return 0; /* the number is saturated */
        uint32_t back = (uint32_t)min_u64(left, buckets->displaced);
        buckets->displaced -= back;
        left -= back;
        if (left == 0)
            return ask->cost;
    }
    while (end < buckets->n && buckets_count(buckets, end) <= left)
        left -= buckets_count(buckets, end++);

    uint64_t own_ns = buckets_latest_ns(buckets);
    uint32_t kept = buckets->n - end;
    bool in_newest = kept == 1 || granted_ns > buckets->first_ns || granted_ns >= own_ns;
    bool partly = left > 0 && kept > 0 && !buckets->closed && in_newest;
    buckets_empty(buckets, oldest, end);
    if (!partly)
        return ask->cost - left;
    uint32_t newest = buckets->n - 1, count = buckets_count(buckets, newest);
    if (left < count) {
        buckets->state->entry[newest] -= left;
        return ask->cost;
    }
    buckets_empty(buckets, newest, buckets->n);
    return ask->cost - (left - count);
}

/* When enough of the oldest buckets have come back for a cost that is not free now. */
static uint64_t buckets_free_at(const struct buckets *buckets, uint32_t n_expired, uint32_t cost)
{
    assert(n_expired < buckets->n || cost > 0);
    /* What was displaced comes back with the oldest. */
    uint64_t kept = buckets_kept(buckets, n_expired);
    uint64_t missing = sub_floor(kept + cost, buckets->quota->limit);
    uint32_t at = n_expired;
    while (at + 1 < buckets->n && buckets_count(buckets, at) < missing)
        missing -= buckets_count(buckets, at++);
    return buckets_last_ns(buckets, at) + buckets->quota->period_ns;
}

static struct stint_decision buckets_give_back(struct buckets *buckets, const struct stint_ask *ask,
                                               uint64_t at_ns)
{
    assert(ask->verb == STINT_REFUND);
    uint32_t granted = buckets_refund(buckets, ask, at_ns);
    if (granted > 0)
        buckets_pack(buckets);
    uint32_t free = buckets_free(buckets, buckets_expired(buckets, at_ns));
    return algorithm_allow(buckets->quota, granted, free,
                           sub_floor(buckets_expiry_ns(buckets), ask->now_ns));
}

static struct stint_decision buckets_ask(const struct stint_quota *quota, void *state_bytes,
                                         const struct stint_ask *ask)
{
    assert(ask->now_ns <= STINT_NOW_MAX && quota->derived.max_buckets > 0);
    struct buckets buckets = buckets_unpack(quota, state_bytes);
    uint64_t at_ns = max_u64(ask->now_ns, buckets_latest_ns(&buckets));
    if (ask->verb == STINT_REFUND)
        return buckets_give_back(&buckets, ask, at_ns);
    if (ask->verb == STINT_BOOK || ask->verb == STINT_UNBOOK)
        return algorithm_never(quota->limit);

    bool whole = ask->verb == STINT_TAKE || ask->verb == STINT_PEEK;
    uint32_t n_expired = buckets_expired(&buckets, at_ns);
    if (ask->verb == STINT_CHARGE && ask->cost > 0) {
        buckets_drop(&buckets, n_expired);
        buckets_charge(&buckets, (struct held_run){at_ns, ask->cost});
        buckets_pack(&buckets);
        return algorithm_allow(quota, (uint32_t)min_u64(ask->cost, quota->limit),
                               buckets_free(&buckets, 0), at_ns + quota->period_ns - ask->now_ns);
    }
    uint32_t free = buckets_free(&buckets, n_expired);
    uint32_t granted = ask->cost <= free ? ask->cost : whole ? 0 : free;
    if (granted == 0) {
        struct stint_decision stands =
            algorithm_allow(quota, 0, free, sub_floor(buckets_expiry_ns(&buckets), ask->now_ns));
        if (ask->cost == 0)
            return stands;
        if (whole && ask->cost > quota->limit)
            return algorithm_refuse(stands, STINT_NEVER_NS);
        uint64_t free_ns = buckets_free_at(&buckets, n_expired, whole ? ask->cost : 1);
        return algorithm_refuse(stands, free_ns - ask->now_ns);
    }
    if (ask->verb != STINT_PEEK) {
        buckets_drop(&buckets, n_expired);
        buckets_record(&buckets, (struct held_run){at_ns, granted});
        buckets_pack(&buckets);
    }
    return algorithm_allow(quota, granted, free - granted, at_ns + quota->period_ns - ask->now_ns);
}

static uint64_t buckets_expires_at(const struct stint_quota *quota, const void *state_bytes)
{
    struct buckets buckets = buckets_unpack(quota, state_bytes);
    return buckets_expiry_ns(&buckets);
}

/* All N, last used W before; an instant above STINT_NOW_MAX is the same as that. */
static void buckets_fill(const struct stint_quota *quota, void *state_bytes, uint64_t until_ns)
{
    memset(state_bytes, 0, quota->derived.state_size);
    if (until_ns == 0)
        return;
    struct buckets buckets = buckets_unpack(quota, state_bytes);
    uint64_t at_ns = min_u64(sub_floor(until_ns, quota->period_ns), STINT_NOW_MAX);
    buckets_record(&buckets, (struct held_run){at_ns, quota->limit});
    buckets_pack(&buckets);
}

/*
 * Whether uses can have filled the buckets like this. All but the newest must be full or timed out,
 * or more buckets might come to be live than the state can hold. The first use is stored for the
 * newest bucket only; for the others the earliest possible one is tested: after the last use of the
 * one before, less than time_slack before its own last, and time_slack after the first of one that
 * timed out.
 */
static bool buckets_can_be(const struct buckets *buckets)
{
    assert(buckets->n > 0);
    uint64_t slack_ns = buckets->quota->time_slack_ns, units = 0, earliest_ns = 0;
    for (uint32_t at = 0; at < buckets->n; at++) {
        bool newest = at + 1 == buckets->n;
        uint64_t last_ns = buckets_last_ns(buckets, at);
        uint64_t count = buckets_count(buckets, at);
        if (slack_ns > 0)
            earliest_ns = max_u64(earliest_ns, sub_floor(last_ns + 1, slack_ns));
        units += count;
        if (last_ns < earliest_ns || count - 1 >= buckets_size(buckets->quota) ||
            units > buckets->quota->limit)
            return false; /* a count of 0 stands for 2^32 */
        if (newest && !buckets->closed)
            return buckets->first_ns >= earliest_ns && buckets->first_ns <= last_ns;
        /* A charge may have displaced some units of the oldest. */
        bool timed_out = at > 0 && count < buckets_size(buckets->quota);
        if (timed_out && slack_ns == 0)
            return false;
        /* The next bucket was first used then or later. */
        earliest_ns = max_u64(last_ns, timed_out ? earliest_ns + slack_ns : 0);
    }
    return buckets->first_ns >= earliest_ns;
}

static bool buckets_is_valid(const struct stint_quota *quota, const void *state_bytes,
                             uint64_t now_ns)
{
    assert(now_ns <= STINT_NOW_MAX);
    struct buckets buckets = buckets_unpack(quota, state_bytes);
    struct buckets_state packed; /* differs where there are too many buckets */
    buckets_pack_header(&packed, &buckets);
    if (packed.base_and_spare != buckets.state->base_and_spare ||
        packed.first_and_spare != buckets.state->first_and_spare || buckets.base_ns > now_ns ||
        buckets.first_ns > now_ns)
        return false;
    if (buckets.n == 0)
        return !buckets.closed;
    uint64_t space_ns = min_u64(quota->period_ns - 1, now_ns - buckets.base_ns);
    for (uint32_t at = 0; at < buckets.n; at++)
        if (buckets.state->entry[at] >> buckets.count_bits > (at == 0 ? UINT32_MAX : space_ns))
            return false;
    return buckets_can_be(&buckets);
}

static size_t buckets_held(const struct stint_quota *quota, const void *state_bytes,
                           uint64_t now_ns, struct held_run *runs)
{
    struct buckets buckets = buckets_unpack(quota, state_bytes);
    uint64_t at_ns = max_u64(now_ns, buckets_latest_ns(&buckets));
    uint32_t n_expired = buckets_expired(&buckets, at_ns), n_alive = buckets.n - n_expired;
    uint32_t per_run = (n_alive + HELD_RUNS_MAX - 1) / HELD_RUNS_MAX;
    size_t n_runs = 0;
    uint64_t units = n_expired == 0 ? buckets.displaced : 0;
    for (uint32_t at = 0; at < n_alive; at++) {
        units += buckets_count(&buckets, n_expired + at);
        if ((at + 1) % per_run != 0 && at + 1 < n_alive)
            continue;
        uint64_t last_ns = buckets_last_ns(&buckets, n_expired + at);
        runs[n_runs++] = (struct held_run){last_ns, units};
        units = 0;
    }
    return n_runs;
}

static size_t buckets_groups(const struct stint_quota *quota, const void *state_bytes,
                             uint64_t now_ns, struct held_group *groups)
{
    struct buckets buckets = buckets_unpack(quota, state_bytes);
    size_t n_groups = 0;
    uint32_t n_expired = buckets_expired(&buckets, now_ns);
    for (uint32_t at = n_expired; at < buckets.n; at++)
        groups[n_groups++] = (struct held_group){
            buckets_last_ns(&buckets, at) + quota->period_ns,
            buckets_count(&buckets, at),
        };
    /* Displaced units, as many as would be free without them. */
    uint64_t kept = buckets_kept(&buckets, n_expired);
    if (n_groups > 0 && n_expired == 0)
        groups[0].units += min_u64(buckets.displaced, sub_floor(quota->limit, kept));
    return n_groups;
}

static uint64_t buckets_own_ns(const struct stint_quota *quota, const void *state_bytes)
{
    struct buckets buckets = buckets_unpack(quota, state_bytes);
    return buckets_latest_ns(&buckets);
}

/*
 * A newest bucket that takes no more units is closed, and a closed one holds the own time. One that
 * is still open counts as used then: its units come back later, and the bound on the number of live
 * buckets does not change.
 */
static void buckets_pass(const struct stint_quota *quota, void *state_bytes, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX);
    struct buckets buckets = buckets_unpack(quota, state_bytes);
    if (at_ns <= buckets_latest_ns(&buckets))
        return;
    buckets_drop(&buckets, buckets_expired(&buckets, at_ns));
    if (buckets.n == 0 || buckets_space(&buckets, at_ns) == 0) {
        buckets.closed = buckets.n > 0;
        buckets.first_ns = at_ns;
    } else {
        uint32_t newest = buckets.n - 1;
        struct held_run run = {at_ns, buckets_count(&buckets, newest)};
        if (newest == 0)
            buckets.base_ns = at_ns;
        buckets_set(&buckets, newest, run);
    }
    buckets_pack(&buckets);
}

/* The most buckets that are ever live; see the top of this file. At least 1, for limit 0. */
static uint64_t buckets_alive_max(const struct stint_quota *quota)
{
    assert(quota->time_slack_ns > 0 || quota->count_slack > 0 || quota->limit == 0);
    uint64_t limit = quota->limit, size = quota->count_slack, slack_ns = quota->time_slack_ns;
    if (limit == 0)
        return 1;
    if (slack_ns == 0)
        return (limit + size - 1) / size;
    uint64_t timed_out_max = (quota->period_ns + slack_ns - 1) / slack_ns;
    if (size == 0)
        return min_u64(limit, timed_out_max + 1);
    if (size == 1 || limit <= timed_out_max)
        return limit;
    return timed_out_max + (limit - timed_out_max + size - 1) / size;
}

static int buckets_check_slack(const struct stint_quota *quota, struct stint_error *error)
{
    assert(quota->period_ns > 0);
    uint64_t slack_ns = quota->time_slack_ns;
    if (slack_ns == 0 && quota->count_slack == 0)
        return err_set(error, STINT_E_MISMATCH,
                       "buckets: neither time_slack nor count_slack is given, expected one or "
                       "both");
    if (slack_ns > quota->period_ns ||
        (slack_ns > 0 &&
         slack_ns < (quota->period_ns + BUCKETS_SLACK_PARTS - 1) / BUCKETS_SLACK_PARTS))
        return err_set(error, STINT_E_RANGE,
                       "buckets: time_slack is %llu ns, expected 1/%d of the period to all of it: "
                       "%llu to %llu ns",
                       (unsigned long long)slack_ns, BUCKETS_SLACK_PARTS,
                       (unsigned long long)((quota->period_ns + BUCKETS_SLACK_PARTS - 1) /
                                            BUCKETS_SLACK_PARTS),
                       (unsigned long long)quota->period_ns);
    if (quota->count_slack > quota->limit && quota->limit > 0)
        return err_set(error, STINT_E_RANGE,
                       "buckets: count_slack is %u, expected at most the limit of %u",
                       (unsigned)quota->count_slack, (unsigned)quota->limit);
    return STINT_OK;
}

static int buckets_check(struct stint_quota *quota, struct stint_error *error)
{
    int code = buckets_check_slack(quota, error);
    if (code != STINT_OK)
        return code;
    uint64_t n = buckets_alive_max(quota);
    if (n > BUCKETS_MAX)
        return err_set(error, STINT_E_RANGE,
                       "buckets: up to %llu buckets take %llu bytes, expected at most %d; a larger "
                       "time_slack or count_slack needs fewer",
                       (unsigned long long)n, (unsigned long long)(BUCKETS_HEADER_SIZE + 8 * n),
                       BUCKETS_STATE_MAX);
    uint32_t size = buckets_size(quota);
    unsigned count_bits = size == 0 ? 0 : bit_length(size - 1);
    unsigned time_bits = bit_length(quota->period_ns - 1);
    if (count_bits + time_bits > 64)
        return err_set(error, STINT_E_RANGE,
                       "buckets: a count up to %u and a time within %llu ns take %u bits, expected "
                       "at most 64; a count_slack of at most %llu fits",
                       (unsigned)size, (unsigned long long)quota->period_ns, count_bits + time_bits,
                       1ull << (64 - time_bits));
    quota->derived.count_bits = (uint8_t)count_bits;
    quota->derived.max_buckets = (uint32_t)n;
    quota->derived.state_size = (uint32_t)(BUCKETS_HEADER_SIZE + 8 * n);
    return STINT_OK;
}

const struct algorithm algorithm_buckets = {
    .name = "buckets",
    .check = buckets_check,
    .ask = buckets_ask,
    .expires_at = buckets_expires_at,
    .fill = buckets_fill,
    .is_valid = buckets_is_valid,
    .held = buckets_held,
    .own_ns = buckets_own_ns,
    .pass = buckets_pass,
    .groups = buckets_groups,
};
