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
#include "algorithm/ring.h"

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

struct concurrency {
    const struct stint_quota *quota;
    struct ring ring;
    uint64_t issued;
};

static struct concurrency concurrency_unpack(const struct stint_quota *quota,
                                             const void *state_bytes)
{
    const struct concurrency_state *state = state_bytes;
    return (struct concurrency){
        .quota = quota,
        .ring = ring_of(state->entry, quota->limit, &state->head, &state->len),
        .issued = read_once64(&state->issued),
    };
}

static void concurrency_pack(void *state_bytes, const struct concurrency *held)
{
    assert(held->issued > 0 || held->ring.len == 0);
    struct concurrency_state *state = state_bytes;
    state->head = held->ring.head;
    state->len = held->ring.len;
    state->issued = held->issued;
}

static uint64_t concurrency_deadline_ns(uint64_t holder)
{
    return holder >> CONCURRENCY_COUNT_BITS;
}

/* Units whose lease has ended: a deadline of now has. */
static uint32_t concurrency_ended(const struct concurrency *held, uint64_t now_ns)
{
    return ring_before(&held->ring, now_ns + 1, CONCURRENCY_COUNT_BITS);
}

/* Issues a value and writes it into `units` free entries. */
static uint64_t concurrency_add(struct concurrency *held, uint64_t deadline_ns, uint32_t units)
{
    assert(units <= held->ring.size - held->ring.len);
    uint64_t holder = max_u64(deadline_ns << CONCURRENCY_COUNT_BITS, held->issued + 1);
    for (uint32_t added = 0; added < units; added++)
        *ring_at(&held->ring, held->ring.len++) = holder;
    held->issued = holder;
    return holder;
}

/*
 * An empty state differs from a new one only while it might issue a value again: until the instant
 * after the one at which the latest was issued.
 */
static uint64_t concurrency_expiry_ns(const struct concurrency *held)
{
    if (held->ring.len > 0)
        return concurrency_deadline_ns(ring_get(&held->ring, held->ring.len - 1));
    if (held->issued == 0)
        return 0;
    return sub_floor(concurrency_deadline_ns(held->issued) + 1, held->quota->lease_ns);
}

static uint64_t concurrency_expires_at(const struct stint_quota *quota, const void *state_bytes)
{
    struct concurrency held = concurrency_unpack(quota, state_bytes);
    return concurrency_expiry_ns(&held);
}

struct stint_decision concurrency_hold(const struct stint_quota *quota, void *state_bytes,
                                       const struct stint_ask *ask, uint64_t *holder)
{
    assert(holder != NULL);
    struct concurrency held = concurrency_unpack(quota, state_bytes);
    uint32_t n_ended = concurrency_ended(&held, ask->now_ns);
    uint32_t free = quota->limit - (held.ring.len - n_ended);
    bool whole = ask->verb == STINT_TAKE || ask->verb == STINT_PEEK;
    uint32_t granted = ask->cost <= free ? ask->cost : whole ? 0 : free;
    struct stint_decision decision = algorithm_allow(
        quota, granted, free - granted, sub_floor(concurrency_expiry_ns(&held), ask->now_ns));
    *holder = 0;
    if (granted == 0 && ask->cost > 0 && ask->verb != STINT_CHARGE) {
        if (whole && ask->cost > quota->limit)
            return algorithm_refuse(decision, STINT_NEVER_NS);
        uint32_t missing = whole ? ask->cost - free : 1;
        uint64_t value = ring_get(&held.ring, n_ended + missing - 1);
        return algorithm_refuse(decision, concurrency_deadline_ns(value) - ask->now_ns);
    }
    if (granted == 0)
        return decision;
    uint64_t deadline_ns = ask->now_ns + quota->lease_ns;
    if (ask->verb != STINT_PEEK) {
        ring_remove(&held.ring, 0, n_ended);
        *holder = concurrency_add(&held, deadline_ns, granted);
        concurrency_pack(state_bytes, &held);
        deadline_ns = concurrency_deadline_ns(*holder);
    } else {
        deadline_ns = max_u64(deadline_ns, concurrency_deadline_ns(held.issued + 1));
    }
    decision.reset_after_ns = deadline_ns - ask->now_ns;
    return decision;
}

static struct stint_decision concurrency_ask(const struct stint_quota *quota, void *state_bytes,
                                             const struct stint_ask *ask)
{
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
static uint32_t concurrency_take_out(struct concurrency *held, uint64_t now_ns, uint64_t holder)
{
    if (concurrency_deadline_ns(holder) <= now_ns)
        return 0;
    uint32_t first = ring_before(&held->ring, holder, 0), units = 0;
    while (first + units < held->ring.len && ring_get(&held->ring, first + units) == holder)
        units++;
    if (units > 0)
        ring_remove(&held->ring, first, units);
    return units;
}

bool concurrency_holder(const struct stint_quota *quota, void *state_bytes, uint64_t now_ns,
                        uint64_t *holder, uint32_t *units)
{
    assert(quota->algorithm == STINT_CONCURRENCY);
    struct concurrency held = concurrency_unpack(quota, state_bytes);
    uint32_t found = concurrency_take_out(&held, now_ns, *holder);
    if (units != NULL)
        *units = found;
    if (found == 0)
        return false;
    if (units == NULL)
        *holder = concurrency_add(&held, now_ns + quota->lease_ns, found);
    concurrency_pack(state_bytes, &held);
    return true;
}

/*
 * The holders keep their values, so that their tickets stay good. Under a lower limit the newest
 * are kept: with those, a wait is as long as with all of them.
 */
void concurrency_carry(const struct stint_quota *from, const void *from_bytes, uint64_t now_ns,
                       const struct stint_quota *to, void *to_bytes)
{
    assert(from->lease_ns == to->lease_ns && to->limit > 0);
    struct concurrency held = concurrency_unpack(from, from_bytes);
    uint32_t n_alive = held.ring.len - concurrency_ended(&held, now_ns);
    uint32_t kept = (uint32_t)min_u64(n_alive, to->limit);
    memset(to_bytes, 0, to->derived.state_size);
    struct concurrency carried = concurrency_unpack(to, to_bytes);
    carried.issued = held.issued;
    for (uint32_t at = held.ring.len - kept; at < held.ring.len; at++)
        *ring_at(&carried.ring, carried.ring.len++) = ring_get(&held.ring, at);
    concurrency_pack(to_bytes, &carried);
}

/* N units of an unknown holder. An instant above STINT_NOW_MAX is the same as that. */
static void concurrency_fill(const struct stint_quota *quota, void *state_bytes, uint64_t until_ns)
{
    memset(state_bytes, 0, quota->derived.state_size);
    if (until_ns == 0)
        return;
    struct concurrency held = concurrency_unpack(quota, state_bytes);
    concurrency_add(&held, min_u64(until_ns, STINT_NOW_MAX + 1), quota->limit);
    concurrency_pack(state_bytes, &held);
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
    struct concurrency held = concurrency_unpack(quota, state_bytes);
    uint64_t last_ns = min_u64(now_ns + 2 * quota->lease_ns, STINT_NOW_MAX + PERIOD_MAX_NS);
    uint64_t before = UINT64_C(1) << CONCURRENCY_COUNT_BITS; /* no lease ends at time 0 */
    if (state->head != held.ring.head || state->len != held.ring.len ||
        concurrency_deadline_ns(held.issued) > last_ns)
        return false;
    for (uint32_t at = 0; at < held.ring.len; at++) {
        uint64_t holder = ring_get(&held.ring, at);
        if (holder < before || holder > held.issued)
            return false;
        before = holder;
    }
    return true;
}

/* A unit counts from when its lease began, so that a lease of the same length ends as before. */
static size_t concurrency_held(const struct stint_quota *quota, const void *state_bytes,
                               uint64_t now_ns, struct held_run *runs)
{
    struct concurrency held = concurrency_unpack(quota, state_bytes);
    uint32_t first = concurrency_ended(&held, now_ns), n_alive = held.ring.len - first;
    uint32_t per_run = (n_alive + HELD_RUNS_MAX - 1) / HELD_RUNS_MAX;
    size_t n_runs = 0;
    for (uint32_t at = 0; at < n_alive; at += per_run) {
        uint32_t units = (uint32_t)min_u64(per_run, n_alive - at);
        uint64_t holder = ring_get(&held.ring, first + at + units - 1);
        uint64_t at_ns = sub_floor(concurrency_deadline_ns(holder), quota->lease_ns);
        runs[n_runs++] = (struct held_run){at_ns, units};
    }
    return n_runs;
}

static int concurrency_check(struct stint_quota *quota, struct stint_error *error)
{
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
