/* SPDX-License-Identifier: MIT */
/*
 * The law of `concurrency`: N units held at once, each until its holder gives it back or its lease
 * ends, so that a crashed holder frees its place by itself.
 *
 * A holder is named by a value: its deadline and a small count, deadline_ns << 4 | count. Every
 * value issued is larger than the one before: where 16 holds share a deadline, the next gets a
 * deadline a nanosecond later. So no value is ever issued twice, one that has ended never matches a
 * later holder, and the entries of the state, one per unit, are a sorted ring: the ended ones are
 * at its head, and new ones go to its tail.
 */
#include "core/law.h"

#include <assert.h>
#include <string.h>

#define CONCURRENCY_COUNT_BITS 4

_Static_assert((STINT_NOW_MAX + PERIOD_MAX_NS) >> (64 - CONCURRENCY_COUNT_BITS) == 0,
               "a deadline leaves room for the count");

struct concurrency_state {
    uint32_t head;   /* where in entry[] the oldest is */
    uint32_t len;    /* units held, ended ones that nobody has taken off yet included */
    uint64_t issued; /* the latest value */
    uint64_t entry[];
};

static uint64_t concurrency_deadline_ns(uint64_t holder)
{
    return holder >> CONCURRENCY_COUNT_BITS;
}

static uint64_t *concurrency_at(const struct stint_quota *quota, struct concurrency_state *state,
                                uint32_t at)
{
    uint32_t index = state->head + at; /* both at most the limit, which is small */
    return &state->entry[index >= quota->limit ? index - quota->limit : index];
}

static uint64_t concurrency_get(const struct stint_quota *quota,
                                const struct concurrency_state *state, uint32_t at)
{
    uint32_t index = state->head + at;
    return state->entry[index >= quota->limit ? index - quota->limit : index];
}

/* How many entries are smaller than a value. */
static uint32_t concurrency_before(const struct stint_quota *quota,
                                   const struct concurrency_state *state, uint64_t value)
{
    uint32_t low = 0, high = state->len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (concurrency_get(quota, state, mid) < value)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* A deadline of now has ended. */
static uint32_t concurrency_ended(const struct stint_quota *quota,
                                  const struct concurrency_state *state, uint64_t now_ns)
{
    return concurrency_before(quota, state, (now_ns + 1) << CONCURRENCY_COUNT_BITS);
}

/* Takes `units` entries from `at` on out of the ring, by moving the shorter side. */
static void concurrency_remove(const struct stint_quota *quota, struct concurrency_state *state,
                               uint32_t at, uint32_t units)
{
    assert(at + units <= state->len);
    uint32_t after = state->len - at - units;
    if (at < after) {
        for (uint32_t moved = at; moved > 0; moved--)
            *concurrency_at(quota, state, moved - 1 + units) =
                concurrency_get(quota, state, moved - 1);
        state->head = (state->head + units) % quota->limit;
    } else {
        for (uint32_t moved = 0; moved < after; moved++)
            *concurrency_at(quota, state, at + moved) =
                concurrency_get(quota, state, at + units + moved);
    }
    state->len -= units;
}

/* Issues a value and writes it into `units` places, which are free. */
static uint64_t concurrency_add(const struct stint_quota *quota, struct concurrency_state *state,
                                uint64_t deadline_ns, uint32_t units)
{
    assert(units <= quota->limit - state->len);
    uint64_t holder = max_u64(deadline_ns << CONCURRENCY_COUNT_BITS, state->issued + 1);
    for (uint32_t added = 0; added < units; added++)
        *concurrency_at(quota, state, state->len++) = holder;
    state->issued = holder;
    return holder;
}

/*
 * An empty state differs from a new one only while it might issue a value again: until the instant
 * after the one at which the latest was issued.
 */
uint64_t concurrency_dies_at(const struct stint_quota *quota, const void *state_bytes)
{
    const struct concurrency_state *state = state_bytes;
    if (state->len > 0)
        return concurrency_deadline_ns(concurrency_get(quota, state, state->len - 1));
    if (state->issued == 0)
        return 0;
    return sub_floor(concurrency_deadline_ns(state->issued) + 1, quota->lease_ns);
}

struct stint_decision concurrency_hold(const struct stint_quota *quota, void *state_bytes,
                                       const struct stint_ask *ask, uint64_t *holder)
{
    struct concurrency_state *state = state_bytes;
    uint32_t n_ended = concurrency_ended(quota, state, ask->now_ns);
    uint32_t free = quota->limit - (state->len - n_ended);
    bool whole = ask->verb == STINT_TAKE || ask->verb == STINT_PEEK;
    uint32_t granted = ask->cost <= free ? ask->cost : whole ? 0 : free;
    uint64_t dies_at_ns = concurrency_dies_at(quota, state);
    struct stint_decision decision = {
        .outcome = STINT_ALLOW,
        .granted = granted,
        .limit = quota->limit,
        .remaining = free - granted,
        .reset_after_ns = sub_floor(dies_at_ns, ask->now_ns),
    };
    *holder = 0;
    if (granted == 0 && ask->cost > 0 && ask->verb != STINT_CHARGE) {
        decision.outcome = STINT_NEVER;
        decision.retry_after_ns = STINT_NEVER_NS;
        if (whole && ask->cost > quota->limit)
            return decision;
        uint32_t missing = whole ? ask->cost - free : 1;
        uint64_t value = concurrency_get(quota, state, n_ended + missing - 1);
        decision.outcome = STINT_DENY;
        decision.retry_after_ns = concurrency_deadline_ns(value) - ask->now_ns;
    }
    if (granted == 0)
        return decision;
    uint64_t deadline_ns = ask->now_ns + quota->lease_ns;
    if (ask->verb != STINT_PEEK) {
        concurrency_remove(quota, state, 0, n_ended);
        *holder = concurrency_add(quota, state, deadline_ns, granted);
        deadline_ns = concurrency_deadline_ns(*holder);
    } else {
        deadline_ns = max_u64(deadline_ns, concurrency_deadline_ns(state->issued + 1));
    }
    decision.reset_after_ns = deadline_ns - ask->now_ns;
    return decision;
}

struct stint_decision concurrency_ask(const struct stint_quota *quota, void *state_bytes,
                                      const struct stint_ask *ask)
{
    uint64_t holder;
    struct stint_ask nothing = {.now_ns = ask->now_ns, .verb = STINT_PEEK};
    switch (ask->verb) {
    case STINT_REFUND: /* places are given back by their holders, who are named */
        return concurrency_hold(quota, state_bytes, &nothing, &holder);
    case STINT_BOOK:
    case STINT_UNBOOK:
        return law_never(quota->limit);
    default:
        return concurrency_hold(quota, state_bytes, ask, &holder);
    }
}

/* Takes a holder's entries out of the state; 0 for one that is not there or has ended. */
static uint32_t concurrency_take_out(const struct stint_quota *quota,
                                     struct concurrency_state *state, uint64_t now_ns,
                                     uint64_t holder)
{
    if (concurrency_deadline_ns(holder) <= now_ns)
        return 0;
    uint32_t first = concurrency_before(quota, state, holder), units = 0;
    while (first + units < state->len && concurrency_get(quota, state, first + units) == holder)
        units++;
    if (units > 0)
        concurrency_remove(quota, state, first, units);
    return units;
}

bool concurrency_release(const struct stint_quota *quota, void *state_bytes, uint64_t now_ns,
                         uint64_t holder, uint32_t *units)
{
    *units = concurrency_take_out(quota, state_bytes, now_ns, holder);
    return *units > 0;
}

bool concurrency_renew(const struct stint_quota *quota, void *state_bytes, uint64_t now_ns,
                       uint64_t *holder)
{
    uint32_t units = concurrency_take_out(quota, state_bytes, now_ns, *holder);
    if (units > 0)
        *holder = concurrency_add(quota, state_bytes, now_ns + quota->lease_ns, units);
    return units > 0;
}

/* N units whose holder nobody knows. An instant no now can reach is as good as the last one. */
void concurrency_fill(const struct stint_quota *quota, void *state_bytes, uint64_t until_ns)
{
    struct concurrency_state *state = state_bytes;
    memset(state_bytes, 0, quota->derived.state_size);
    if (until_ns > 0)
        concurrency_add(quota, state, min_u64(until_ns, STINT_NOW_MAX + 1), quota->limit);
}

/*
 * Holders are sorted, and no later than the latest issued. That is at most a lease ahead of now,
 * or, where 16 and more shared an instant, a little later: by less than a lease, since it takes
 * millions of them to make up a millisecond.
 */
bool concurrency_is_valid(const struct stint_quota *quota, const void *state_bytes, uint64_t now_ns)
{
    const struct concurrency_state *state = state_bytes;
    uint64_t last_ns = min_u64(now_ns + 2 * quota->lease_ns, STINT_NOW_MAX + PERIOD_MAX_NS);
    uint64_t before = UINT64_C(1) << CONCURRENCY_COUNT_BITS; /* no lease ends when time begins */
    if (state->head >= quota->limit || state->len > quota->limit ||
        concurrency_deadline_ns(state->issued) > last_ns)
        return false;
    for (uint32_t at = 0; at < state->len; at++) {
        uint64_t holder = concurrency_get(quota, state, at);
        if (holder < before || holder > state->issued)
            return false;
        before = holder;
    }
    return true;
}

/* A unit counts from when its lease began, so that a lease of the same length ends as before. */
size_t concurrency_held(const struct stint_quota *quota, const void *state_bytes, uint64_t now_ns,
                        struct held_run *runs)
{
    const struct concurrency_state *state = state_bytes;
    uint32_t first = concurrency_ended(quota, state, now_ns), n_alive = state->len - first;
    uint32_t per_run = (n_alive + HELD_RUNS_MAX - 1) / HELD_RUNS_MAX;
    size_t n_runs = 0;
    for (uint32_t at = 0; at < n_alive; at += per_run) {
        uint32_t units = (uint32_t)min_u64(per_run, n_alive - at);
        uint64_t holder = concurrency_get(quota, state, first + at + units - 1);
        uint64_t at_ns = sub_floor(concurrency_deadline_ns(holder), quota->lease_ns);
        runs[n_runs++] = (struct held_run){at_ns, units};
    }
    return n_runs;
}

int concurrency_check(struct stint_quota *quota, struct stint_error *error)
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
