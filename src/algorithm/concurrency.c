/* SPDX-License-Identifier: MIT */
/*
 * The algorithm `concurrency`: N units held at once, each until its holder releases it or its lease
 * ends, so that the units of a crashed holder become free by themselves.
 *
 * A holder is named by a value: its deadline and a small count, deadline_ns << 4 | count. Every
 * value issued is larger than the one before: where 16 holds share a deadline, the next gets a
 * deadline a nanosecond later. So no value is ever issued twice, one that has ended never matches a
 * later holder, and the entries of the state, one per unit, are a sorted ring: the ended ones are
 * at its head, and new ones are added at its tail.
 */
#include "algorithm/algorithm.h"
#include "base/read_once.h"

#include <assert.h>
#include <string.h>

#define CONCURRENCY_COUNT_BITS 4

_Static_assert((STINT_NOW_MAX + PERIOD_MAX_NS) >> (64 - CONCURRENCY_COUNT_BITS) == 0,
               "a deadline leaves room for the count");

struct concurrency_state {
    uint32_t head;   /* where in entry[] the oldest is */
    uint32_t len;    /* units held, including ended ones that were not removed yet */
    uint64_t issued; /* the latest value */
    uint64_t entry[];
};

/*
 * The header as it was read, once. Other processes may be able to write to the state, so whatever
 * it holds, head is below the limit and len at most the limit (both 0 under a limit of 0).
 */
struct concurrency {
    uint32_t head, len;
    uint64_t issued;
    uint64_t *entry; /* in the state */
};

static struct concurrency concurrency_unpack(const struct stint_quota *quota,
                                             const void *state_bytes)
{
    struct concurrency_state *state = (struct concurrency_state *)(uintptr_t)state_bytes;
    uint32_t head = read_once32(&state->head), len = read_once32(&state->len);
    return (struct concurrency){
        .head = head < quota->limit ? head : 0,
        .len = len < quota->limit ? len : quota->limit,
        .issued = read_once64(&state->issued),
        .entry = state->entry,
    };
}

static void concurrency_pack(void *state_bytes, const struct concurrency *ring)
{
    assert(ring->issued > 0 || ring->len == 0);
    struct concurrency_state *state = state_bytes;
    state->head = ring->head;
    state->len = ring->len;
    state->issued = ring->issued;
}

static uint64_t concurrency_deadline_ns(uint64_t holder)
{
    return holder >> CONCURRENCY_COUNT_BITS;
}

/* at: below the limit. */
static uint64_t *concurrency_at(const struct stint_quota *quota, const struct concurrency *ring,
                                uint32_t at)
{
    assert(ring->head < quota->limit && at < quota->limit);
    uint32_t index = ring->head + at; /* both below the limit, which is small */
    return &ring->entry[index >= quota->limit ? index - quota->limit : index];
}

static uint64_t concurrency_get(const struct stint_quota *quota, const struct concurrency *ring,
                                uint32_t at)
{
    return read_once64(concurrency_at(quota, ring, at));
}

/* How many entries are smaller than a value. */
static uint32_t concurrency_before(const struct stint_quota *quota, const struct concurrency *ring,
                                   uint64_t value)
{
    uint32_t low = 0, high = ring->len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (concurrency_get(quota, ring, mid) < value)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* A deadline of now has ended. */
static uint32_t concurrency_ended(const struct stint_quota *quota, const struct concurrency *ring,
                                  uint64_t now_ns)
{
    return concurrency_before(quota, ring, (now_ns + 1) << CONCURRENCY_COUNT_BITS);
}

/* Removes `units` entries from `at` on from the ring, by moving the shorter side. */
static void concurrency_remove(const struct stint_quota *quota, struct concurrency *ring,
                               uint32_t at, uint32_t units)
{
    assert(at + units <= ring->len);
    uint32_t after = ring->len - at - units;
    if (at < after) {
        for (uint32_t moved = at; moved > 0; moved--)
            *concurrency_at(quota, ring, moved - 1 + units) =
                concurrency_get(quota, ring, moved - 1);
        ring->head = (ring->head + units) % quota->limit;
    } else {
        for (uint32_t moved = 0; moved < after; moved++)
            *concurrency_at(quota, ring, at + moved) =
                concurrency_get(quota, ring, at + units + moved);
    }
    ring->len -= units;
    assert(ring->head < quota->limit);
}

/* Issues a value and writes it into `units` free entries. */
static uint64_t concurrency_add(const struct stint_quota *quota, struct concurrency *ring,
                                uint64_t deadline_ns, uint32_t units)
{
    assert(units <= quota->limit - ring->len);
    uint64_t holder = max_u64(deadline_ns << CONCURRENCY_COUNT_BITS, ring->issued + 1);
    for (uint32_t added = 0; added < units; added++)
        *concurrency_at(quota, ring, ring->len++) = holder;
    assert(ring->len <= quota->limit);
    ring->issued = holder;
    return holder;
}

/*
 * An empty state differs from a new one only while it might issue a value again: until the instant
 * after the one at which the latest was issued.
 */
static uint64_t concurrency_expiry_ns(const struct stint_quota *quota,
                                      const struct concurrency *ring)
{
    if (ring->len > 0)
        return concurrency_deadline_ns(concurrency_get(quota, ring, ring->len - 1));
    if (ring->issued == 0)
        return 0;
    return sub_floor(concurrency_deadline_ns(ring->issued) + 1, quota->lease_ns);
}

static uint64_t concurrency_expires_at(const struct stint_quota *quota, const void *state_bytes)
{
    assert(quota->algorithm == STINT_CONCURRENCY);
    struct concurrency ring = concurrency_unpack(quota, state_bytes);
    return concurrency_expiry_ns(quota, &ring);
}

struct stint_decision concurrency_hold(const struct stint_quota *quota, void *state_bytes,
                                       const struct stint_ask *ask, uint64_t *holder)
{
    assert(holder != NULL);
    struct concurrency ring = concurrency_unpack(quota, state_bytes);
    uint32_t n_ended = concurrency_ended(quota, &ring, ask->now_ns);
    uint32_t free = quota->limit - (ring.len - n_ended);
    bool whole = ask->verb == STINT_TAKE || ask->verb == STINT_PEEK;
    uint32_t granted = ask->cost <= free ? ask->cost : whole ? 0 : free;
    struct stint_decision decision = {
        .outcome = STINT_ALLOW,
        .granted = granted,
        .limit = quota->limit,
        .remaining = free - granted,
        .reset_after_ns = sub_floor(concurrency_expiry_ns(quota, &ring), ask->now_ns),
    };
    *holder = 0;
    if (granted == 0 && ask->cost > 0 && ask->verb != STINT_CHARGE) {
        decision.outcome = STINT_NEVER;
        decision.retry_after_ns = STINT_NEVER_NS;
        if (whole && ask->cost > quota->limit)
            return decision;
        uint32_t missing = whole ? ask->cost - free : 1;
        uint64_t value = concurrency_get(quota, &ring, n_ended + missing - 1);
        decision.outcome = STINT_DENY;
        decision.retry_after_ns = concurrency_deadline_ns(value) - ask->now_ns;
    }
    if (granted == 0)
        return decision;
    uint64_t deadline_ns = ask->now_ns + quota->lease_ns;
    if (ask->verb != STINT_PEEK) {
        concurrency_remove(quota, &ring, 0, n_ended);
        *holder = concurrency_add(quota, &ring, deadline_ns, granted);
        concurrency_pack(state_bytes, &ring);
        deadline_ns = concurrency_deadline_ns(*holder);
    } else {
        deadline_ns = max_u64(deadline_ns, concurrency_deadline_ns(ring.issued + 1));
    }
    decision.reset_after_ns = deadline_ns - ask->now_ns;
    return decision;
}

static struct stint_decision concurrency_ask(const struct stint_quota *quota, void *state_bytes,
                                             const struct stint_ask *ask)
{
    assert(quota->algorithm == STINT_CONCURRENCY);
    uint64_t holder;
    struct stint_ask nothing = {.now_ns = ask->now_ns, .verb = STINT_PEEK};
    switch (ask->verb) {
    case STINT_REFUND: /* units are given back by release, which names their holder */
        return concurrency_hold(quota, state_bytes, &nothing, &holder);
    case STINT_BOOK:
    case STINT_UNBOOK:
        return algorithm_never(quota->limit);
    default:
        return concurrency_hold(quota, state_bytes, ask, &holder);
    }
}

/* Removes a holder's entries from the state; 0 for one that is not there or has ended. */
static uint32_t concurrency_take_out(const struct stint_quota *quota, struct concurrency *ring,
                                     uint64_t now_ns, uint64_t holder)
{
    if (concurrency_deadline_ns(holder) <= now_ns)
        return 0;
    uint32_t first = concurrency_before(quota, ring, holder), units = 0;
    while (first + units < ring->len && concurrency_get(quota, ring, first + units) == holder)
        units++;
    if (units > 0)
        concurrency_remove(quota, ring, first, units);
    return units;
}

bool concurrency_release(const struct stint_quota *quota, void *state_bytes, uint64_t now_ns,
                         uint64_t holder, uint32_t *units)
{
    assert(quota->algorithm == STINT_CONCURRENCY);
    struct concurrency ring = concurrency_unpack(quota, state_bytes);
    *units = concurrency_take_out(quota, &ring, now_ns, holder);
    if (*units > 0)
        concurrency_pack(state_bytes, &ring);
    return *units > 0;
}

bool concurrency_renew(const struct stint_quota *quota, void *state_bytes, uint64_t now_ns,
                       uint64_t *holder)
{
    assert(quota->algorithm == STINT_CONCURRENCY);
    struct concurrency ring = concurrency_unpack(quota, state_bytes);
    uint32_t units = concurrency_take_out(quota, &ring, now_ns, *holder);
    if (units == 0)
        return false;
    *holder = concurrency_add(quota, &ring, now_ns + quota->lease_ns, units);
    concurrency_pack(state_bytes, &ring);
    return true;
}

/* N units of an unknown holder. An instant above STINT_NOW_MAX is the same as that. */
static void concurrency_fill(const struct stint_quota *quota, void *state_bytes, uint64_t until_ns)
{
    assert(quota->algorithm == STINT_CONCURRENCY);
    memset(state_bytes, 0, quota->derived.state_size);
    if (until_ns == 0)
        return;
    struct concurrency ring = {.entry = ((struct concurrency_state *)state_bytes)->entry};
    concurrency_add(quota, &ring, min_u64(until_ns, STINT_NOW_MAX + 1), quota->limit);
    concurrency_pack(state_bytes, &ring);
}

/*
 * Holders are sorted, and no later than the latest issued. That is at most a lease after now, or,
 * where 16 and more shared an instant, a little later: by less than a lease, since millions of them
 * add up to a millisecond.
 */
static bool concurrency_is_valid(const struct stint_quota *quota, const void *state_bytes,
                                 uint64_t now_ns)
{
    assert(now_ns <= STINT_NOW_MAX);
    const struct concurrency_state *state = state_bytes;
    struct concurrency ring = concurrency_unpack(quota, state_bytes);
    uint64_t last_ns = min_u64(now_ns + 2 * quota->lease_ns, STINT_NOW_MAX + PERIOD_MAX_NS);
    uint64_t before = UINT64_C(1) << CONCURRENCY_COUNT_BITS; /* no lease ends at time 0 */
    if (state->head != ring.head || state->len != ring.len ||
        concurrency_deadline_ns(ring.issued) > last_ns)
        return false;
    for (uint32_t at = 0; at < ring.len; at++) {
        uint64_t holder = concurrency_get(quota, &ring, at);
        if (holder < before || holder > ring.issued)
            return false;
        before = holder;
    }
    return true;
}

/* A unit counts from when its lease began, so that a lease of the same length ends as before. */
static size_t concurrency_held(const struct stint_quota *quota, const void *state_bytes,
                               uint64_t now_ns, struct held_run *runs)
{
    assert(quota->algorithm == STINT_CONCURRENCY);
    struct concurrency ring = concurrency_unpack(quota, state_bytes);
    uint32_t first = concurrency_ended(quota, &ring, now_ns), n_alive = ring.len - first;
    uint32_t per_run = (n_alive + HELD_RUNS_MAX - 1) / HELD_RUNS_MAX;
    size_t n_runs = 0;
    for (uint32_t at = 0; at < n_alive; at += per_run) {
        uint32_t units = (uint32_t)min_u64(per_run, n_alive - at);
        uint64_t holder = concurrency_get(quota, &ring, first + at + units - 1);
        uint64_t at_ns = sub_floor(concurrency_deadline_ns(holder), quota->lease_ns);
        runs[n_runs++] = (struct held_run){at_ns, units};
    }
    return n_runs;
}

static int concurrency_check(struct stint_quota *quota, struct stint_error *error)
{
    assert(quota->algorithm == STINT_CONCURRENCY);
    uint64_t size = sizeof(struct concurrency_state) + UINT64_C(8) * max_u64(quota->limit, 1);
    if (size > HOLDERS_STATE_MAX)
        return err_set(error, STINT_E_RANGE,
                       "concurrency: %u holders take %llu bytes, expected at most %d: a limit "
                       "of %u",
                       (unsigned)quota->limit, (unsigned long long)size, HOLDERS_STATE_MAX,
                       (unsigned)((HOLDERS_STATE_MAX - sizeof(struct concurrency_state)) / 8));
    assert(quota->lease_ns > 0 && quota->lease_ns <= PERIOD_MAX_NS);
    quota->derived.state_size = (uint32_t)size;
    return STINT_OK;
}

const struct algorithm algorithm_concurrency = {
    .name = "concurrency",
    .check = concurrency_check,
    .ask = concurrency_ask,
    .expires_at = concurrency_expires_at,
    .fill = concurrency_fill,
    .is_valid = concurrency_is_valid,
    .held = concurrency_held,
};
