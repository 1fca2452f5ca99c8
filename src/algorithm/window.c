/* SPDX-License-Identifier: MIT */
/*
 * The algorithm `window`: a strict sliding window in 8, 16 or 32 bytes. Decides on one packed
 * state; the caller swaps it in.
 *
 * The period W is cut into M slots, the limit N into bunches of q = ceil(N/M) units, of which the
 * last is short where q does not divide N. A unit is taken from the bunch in use; when that is
 * empty, from a new one. A bunch is charged to the slot of its latest use, and comes back M+1
 * slots later. So no unit is charged to a slot older than its use, and all of the last W lie in the
 * last M+1 slots: at most N are ever admitted in W.
 *
 * A denial is justified because bunches are used one after the other: only the oldest can hold
 * units that are older than its charged slot, at most q-1 of them.
 *
 * A refund removes recorded units. It must stay true that for every slot s, the units recorded in s
 * and later are at least as many as those in use that were taken in s and later. Removing the
 * oldest recorded units keeps that true whichever live use is given back; removing units of slot r
 * does so if the use was made in r or later. A use older than M slots is no longer recorded, and
 * giving it back would free the units of another.
 *
 * A charge is recorded whether it fits or not. What does not fit displaces the oldest units: whole
 * bunches are emptied and charged again, to the newest slot. Their number is kept, and until the
 * oldest bunch that is left comes back, all their units count as used: they are no younger than
 * that bunch, and some of them may last as long. So what the newest bunch has left is not free, but
 * the next charge fills it; and a refund, which removes the oldest units, first lowers that number.
 * Used in all are the units in the bunches and those displaced: exactly as many as really were,
 * where all bunches are whole.
 */
#include "algorithm/window.h"
#include "algorithm/window_string.h"

#include <assert.h>
#include <string.h>

#define WINDOW_SLOTS_MIN 10
#define WINDOW8_SLOTS_MAX 12 /* higher resolutions take 16 bytes, above WINDOW16_SLOTS_MAX 32 */
#define WINDOW_SLOTS_COARSE 16
#define WINDOW_FINE_LIMIT_MAX 393216
#define WINDOW_FINE_PERIOD_MIN_NS (2 * NS_PER_MS)

/* ---- Time and slots -------------------------------------------------------------------------- */

/*
 * In 64 bits, now * M fits where M <= 24, because now < 2^59. The finer slots of a long string take
 * 128.
 */
WINDOW_INLINE uint64_t window_slot_of(const struct stint_quota *quota, const struct window *window,
                                      uint64_t time_ns)
{
    assert(quota->period_ns > 0);
    if (window->longer != NULL)
        return mul_div(time_ns, quota->resolution, quota->period_ns);
    uint64_t scaled = time_ns * quota->resolution;
    uint64_t slot = mul_hi(scaled, quota->derived.reciprocal); /* exact or one too low */
    return slot + (scaled - slot * quota->period_ns >= quota->period_ns);
}

/* The first instant of a slot, ceil(slot * W / M). The slot of any now, and the next, fit. */
WINDOW_INLINE uint64_t window_slot_start(const struct stint_quota *quota,
                                         const struct window *window, uint64_t slot)
{
    assert(quota->resolution >= WINDOW_SLOTS_MIN && quota->resolution <= WINDOW_SLOTS_MAX);
    if (window->longer != NULL)
        return mul_div_up(slot, quota->period_ns, quota->resolution);
    uint64_t scaled = slot * quota->period_ns;
    /* Less one, it is exact or one too low for every 64-bit number. */
    uint64_t start = mul_hi(scaled, window_inverse[quota->resolution] - 1);
    uint64_t over = scaled - start * quota->resolution;
    return start + (over > 0) + (over > quota->resolution);
}

/* When a bunch of this slot comes back: M+1 slots later, and M slots are exactly W. */
WINDOW_INLINE uint64_t window_slot_end(const struct stint_quota *quota, const struct window *window,
                                       uint64_t slot)
{
    return quota->period_ns + window_slot_start(quota, window, slot + 1);
}

/* ---- Bunches --------------------------------------------------------------------------------- */

/* Units used of the bunch that is the place-th oldest. */
static inline uint32_t window_used(const struct stint_quota *quota, const struct window *window,
                                   uint32_t place)
{
    uint32_t size = place == window->place ? window_short(quota) : quota->derived.bunch;
    return size - (place == window_stars(quota, window) ? window->rest : 0);
}

WINDOW_INLINE uint64_t window_expires_at(const struct stint_quota *quota,
                                         const struct window *window)
{
    if (window_is_new(window))
        return 0;
    /* Emptied by refunds: a new state, except that its own time does not go back. */
    if (window_stars(quota, window) == 0)
        return window_slot_start(quota, window, window->slot);
    uint64_t age = window_newest_age(window);
    return window_slot_end(quota, window, window->slot - age);
}

/*
 * Whether string, place and rest are consistent, so that all that follows is safe: one bar for each
 * slot; no more whole bunches than there are, and one short one where there is one; the bunch in
 * use is in use; and no bunch is free while others are displaced.
 */
WINDOW_INLINE bool window_fits_together(const struct stint_quota *quota,
                                        const struct window *window)
{
    uint32_t bunch = quota->derived.bunch, short_bunch = window_short(quota);
    if (window_string_ones(window) != window_bars(quota))
        return false;
    uint32_t stars = window_stars(quota, window), whole = stars - (window->place > 0);
    if (window->displaced > 0 && stars != quota->derived.bunches)
        return false;
    if (stars == 0)
        return window->rest == 0 && window->place == 0;
    uint32_t whole_max = quota->derived.bunches - (short_bunch < bunch);
    uint32_t size = window->place == stars ? short_bunch : bunch;
    return whole <= whole_max && window->place <= stars && window->rest < size;
}

/*
 * Advances the state to the slot of now; a state that is later is not changed. A state that no use
 * can have written becomes full from now on: its memory may be damaged. True if it was such.
 */
WINDOW_INLINE bool window_age(const struct stint_quota *quota, struct window *window,
                              uint64_t now_slot)
{
    if (window_is_new(window)) {
        *window = (struct window){.longer = window->longer, .slot = now_slot};
        window_string_renew(window, window_bars(quota), 0);
    } else if (!window_fits_together(quota, window)) {
        uint32_t bunches = quota->derived.bunches;
        bool has_short = window_short(quota) < quota->derived.bunch;
        *window = (struct window){
            .longer = window->longer, .slot = now_slot, .place = has_short ? bunches : 0};
        window_string_renew(window, window_bars(quota), bunches);
        return true;
    } else if (now_slot > window->slot) {
        uint32_t dropped = window_string_pass(window, window_bars(quota), now_slot - window->slot);
        window->slot = now_slot;
        window->place = window->place > dropped ? window->place - dropped : 0;
        if (dropped > 0)
            window->displaced = 0;
        if (window_stars(quota, window) == 0)
            window->rest = 0;
    }
    assert(window_fits_together(quota, window));
    return false;
}

/* Takes units that are free: what the bunch in use has left, then whole bunches, the short last. */
static inline void window_take(const struct stint_quota *quota, struct window *window,
                               uint32_t units)
{
    assert(units > 0 && units <= window_free(quota, window));
    if (window->rest > 0)
        window_string_move(window);
    if (units <= window->rest) {
        window->rest -= units;
        return;
    }
    units -= window->rest;
    uint32_t bunch = quota->derived.bunch, short_bunch = window_short(quota);
    uint32_t whole_max = quota->derived.bunches - (short_bunch < bunch);
    uint32_t whole_free = whole_max - (window_stars(quota, window) - (window->place > 0));
    uint32_t opened = units <= bunch ? 1 : (uint32_t)(((uint64_t)units + bunch - 1) / bunch);
    uint64_t space = (uint64_t)opened * bunch;
    window_string_append(window, opened);
    if (opened > whole_free) {
        assert(opened == whole_free + 1 && window->place == 0 && short_bunch < bunch);
        space -= bunch - short_bunch;
        window->place = window_stars(quota, window);
    }
    window->rest = (uint32_t)(space - units);
}

/* Empties the oldest bunch, whose units still count, and opens it again in the newest slot. */
static void window_displace(const struct stint_quota *quota, struct window *window)
{
    assert(window_stars(quota, window) == quota->derived.bunches);
    window_string_less_oldest(window);
    window_string_append(window, 1);
    if (window->place > 0)
        window->place = window->place == 1 ? quota->derived.bunches : window->place - 1;
    bool is_short = window->place == quota->derived.bunches;
    window->rest = is_short ? window_short(quota) : quota->derived.bunch;
    window->displaced++;
}

/* Records units whether they fit or not; loops at most once per bunch. */
static void window_charge(const struct stint_quota *quota, struct window *window, uint32_t units)
{
    assert(units > 0);
    uint64_t displaced = window->displaced;
    window->displaced = 0;
    uint32_t fitting = (uint32_t)min_u64(units, window_free(quota, window));
    if (fitting > 0)
        window_take(quota, window, fitting);
    units -= fitting;
    while (units > 0 && window->displaced < quota->derived.bunches) {
        window_displace(quota, window);
        uint32_t used = (uint32_t)min_u64(units, window->rest);
        window->rest -= used;
        units -= used;
    }
    uint32_t bunch = quota->derived.bunch;
    displaced += window->displaced + ((uint64_t)units + bunch - 1) / bunch;
    window->displaced = (uint32_t)min_u64(displaced, window_displaced_max(quota));
    assert(window_fits_together(quota, window));
}

/* When enough of the oldest bunches have come back for a cost that is not free now. */
static uint64_t window_free_at(const struct stint_quota *quota, const struct window *window,
                               uint32_t cost)
{
    assert(cost <= quota->limit);
    /* Displaced units come back with the oldest bunch at the latest. */
    uint32_t stars = window_stars(quota, window);
    uint32_t missing = (uint32_t)sub_floor(cost, window_empty(quota, window));
    struct window_walk walk = window_walk(window);
    for (uint32_t place = 1; place <= stars; place++) {
        window_walk_next(&walk);
        uint32_t back = window_used(quota, window, place);
        if (back >= missing)
            break;
        missing -= back;
    }
    return window_slot_end(quota, window, window->slot - window_bars(quota) + walk.bars);
}

/* Returns how many units came back; the top of this file explains what is safe. */
static uint32_t window_refund(const struct stint_quota *quota, struct window *window,
                              const struct stint_ask *ask)
{
    assert(ask->verb == STINT_REFUND);
    uint64_t at_slot = ask->at_ns == STINT_NEVER_NS
                           ? window->slot
                           : window_slot_of(quota, window, min_u64(ask->at_ns, ask->now_ns));
    if (at_slot + quota->resolution < window->slot)
        return 0;

    uint32_t left = ask->cost, stars = window_stars(quota, window);
    if (window->displaced > 0) {
        if (window->displaced == window_displaced_max(quota))
            return 0; /* the number is saturated */
        uint32_t back = (uint32_t)min_u64(window->displaced, left / quota->derived.bunch);
        window->displaced -= back;
        left -= back * quota->derived.bunch;
        if (window->displaced > 0)
            return ask->cost - left;
    }
    for (; stars > 0 && window_used(quota, window, 1) <= left; stars--) {
        left -= window_used(quota, window, 1);
        window_string_less_oldest(window);
        window->place -= window->place > 0;
        if (stars == 1)
            window->rest = 0;
    }
    if (left == 0 || stars == 0)
        return ask->cost - left;

    uint64_t open_slot = window->slot - window_newest_age(window);
    if (stars > 1 && open_slot > at_slot)
        return ask->cost - left;
    uint32_t used = window_used(quota, window, stars);
    if (left < used) {
        window->rest += left;
        return ask->cost;
    }
    window_string_less_newest(window);
    window->rest = 0;
    if (window->place == stars)
        window->place = 0;
    return ask->cost - (left - used);
}

/* ---- Decisions ------------------------------------------------------------------------------- */

static inline struct stint_decision window_answer(const struct stint_quota *quota,
                                                  const struct window *window, uint64_t now_ns,
                                                  uint32_t granted)
{
    return algorithm_allow(quota, granted, window_free(quota, window),
                           sub_floor(window_expires_at(quota, window), now_ns));
}

/* The refusal of a cost that is not free now. */
static struct stint_decision window_refuse(const struct stint_quota *quota,
                                           const struct window *window, uint64_t now_ns,
                                           uint32_t cost)
{
    return algorithm_refuse(window_answer(quota, window, now_ns, 0),
                            cost > quota->limit ? STINT_NEVER_NS
                                                : window_free_at(quota, window, cost) - now_ns);
}

/* All verbs but take: changes *window; *store is whether to keep the change. */
static __attribute__((noinline)) struct stint_decision
window_ask_slow(const struct stint_quota *quota, struct window *window, const struct stint_ask *ask,
                bool *store)
{
    assert(ask->verb != STINT_TAKE);
    bool was_damaged = window_age(quota, window, window_slot_of(quota, window, ask->now_ns));
    uint32_t free = window_free(quota, window), granted = ask->cost;
    *store = was_damaged && ask->verb != STINT_PEEK;
    switch (ask->verb) {
    case STINT_PEEK:
        if (granted > free)
            return window_refuse(quota, window, ask->now_ns, granted);
        break;
    case STINT_TAKE_UPTO:
        if (granted > 0 && free == 0)
            return window_refuse(quota, window, ask->now_ns, 1);
        granted = granted < free ? granted : free;
        break;
    case STINT_CHARGE:
        if (granted > 0)
            window_charge(quota, window, granted);
        *store |= granted > 0;
        return window_answer(quota, window, ask->now_ns, (uint32_t)min_u64(granted, quota->limit));
    case STINT_REFUND:
        granted = window_refund(quota, window, ask);
        *store |= granted > 0;
        return window_answer(quota, window, ask->now_ns, granted);
    default: /* book and unbook: a window cannot be charged in the future */
        return algorithm_never(quota->limit);
    }
    if (granted > 0)
        window_take(quota, window, granted);
    *store |= granted > 0 && ask->verb != STINT_PEEK;
    return window_answer(quota, window, ask->now_ns, granted);
}

/* ---- The three forms ------------------------------------------------------------------------- */

static inline uint64_t window_slot_field(const struct stint_quota *quota,
                                         const struct window *window)
{
    return window->slot | (uint64_t)window->displaced << window_displaced_at(quota);
}

static inline uint64_t window8_pack(const struct stint_quota *quota, const struct window *window)
{
    unsigned rest_at = window_string_bits(quota);
    unsigned place_at = rest_at + quota->derived.remainder_bits;
    unsigned slot_at = place_at + quota->derived.place_bits;
    return window->string | (uint64_t)window->rest << rest_at |
           (uint64_t)window->place << place_at | window_slot_field(quota, window) << slot_at;
}

static inline struct word16 window16_pack(const struct stint_quota *quota,
                                          const struct window *window)
{
    unsigned rest_at = window_string_bits(quota);
    unsigned high_at = rest_at + quota->derived.remainder_bits;
    unsigned place_at = WINDOW16_HI_BITS - quota->derived.place_bits;
    uint64_t slot = window_slot_field(quota, window);
    return (struct word16){
        .lo = window->string | (uint64_t)window->rest << rest_at | slot >> place_at << high_at,
        .hi = (slot & window_mask(place_at)) | (uint64_t)window->place << place_at,
    };
}

/* As of 8 bytes, from bit 0: string, rest, place, slot, displaced; any may lie across two words. */
static struct window window32_unpack(const struct stint_quota *quota, const struct bits256 *state,
                                     struct bits256 *string)
{
    unsigned rest_at = window_string_bits(quota);
    unsigned place_at = rest_at + quota->derived.remainder_bits;
    unsigned slot_at = place_at + quota->derived.place_bits;
    uint64_t slot = bits256_get(state, slot_at, quota->derived.slot_bits);
    *string = bits256_low(*state, rest_at);
    return (struct window){
        .longer = string,
        .rest = (uint32_t)bits256_get(state, rest_at, quota->derived.remainder_bits),
        .place = (uint32_t)bits256_get(state, place_at, quota->derived.place_bits),
        .slot = slot & window_mask(window_displaced_at(quota)),
        .displaced = (uint32_t)(slot >> window_displaced_at(quota)),
    };
}

static struct bits256 window32_pack(const struct stint_quota *quota, const struct window *window)
{
    unsigned rest_at = window_string_bits(quota);
    unsigned place_at = rest_at + quota->derived.remainder_bits;
    unsigned slot_at = place_at + quota->derived.place_bits;
    struct bits256 state = *window->longer;
    bits256_put(&state, rest_at, quota->derived.remainder_bits, window->rest);
    bits256_put(&state, place_at, quota->derived.place_bits, window->place);
    bits256_put(&state, slot_at, quota->derived.slot_bits, window_slot_field(quota, window));
    return state;
}

/* ---- Takes ----------------------------------------------------------------------------------- */

/*
 * The most frequent denial: no bunch has come back since the state was written, and the next one to
 * come back is enough. Then the state can be read without advancing it to the slot of now. False,
 * and nothing written, in all other cases.
 */
WINDOW_INLINE bool window_deny_quick(const struct stint_quota *quota, const struct window *window,
                                     uint64_t now_ns, uint32_t cost,
                                     struct stint_decision *decision)
{
    uint32_t free = window_free(quota, window);
    if (window_is_new(window) || cost <= free || cost > quota->limit)
        return false;
    struct window_walk oldest = window_walk(window);
    window_walk_next(&oldest);
    /* A now before the newest slot wraps around. */
    uint64_t slots_gone = window_slot_of(quota, window, now_ns) - window->slot;
    if (slots_gone >= oldest.bars || window_used(quota, window, 1) < cost - free)
        return false;
    uint64_t oldest_slot = window->slot - window_bars(quota) + oldest.bars;
    uint64_t newest_slot = window->slot - window_newest_age(window);
    algorithm_answer(decision, STINT_DENY, 0, quota->limit, free);
    decision->retry_after_ns = window_slot_end(quota, window, oldest_slot) - now_ns;
    decision->reset_after_ns = window_slot_end(quota, window, newest_slot) - now_ns;
    return true;
}

/* True if the change is to be kept. */
WINDOW_INLINE bool window_take_whole(const struct stint_quota *quota, struct window *window,
                                     uint64_t now_ns, uint32_t cost,
                                     struct stint_decision *decision)
{
    if (window_deny_quick(quota, window, now_ns, cost, decision))
        return false;
    bool was_damaged = window_age(quota, window, window_slot_of(quota, window, now_ns));
    if (cost > window_free(quota, window)) {
        *decision = window_refuse(quota, window, now_ns, cost);
        decision->stored = 1;
        return was_damaged;
    }
    uint64_t expires_ns = window_expires_at(quota, window);
    if (cost > 0) {
        window_take(quota, window, cost);
        expires_ns = window_slot_end(quota, window, window->slot);
    }
    assert(window_fits_together(quota, window));
    algorithm_answer(decision, STINT_ALLOW, cost, quota->limit, window_free(quota, window));
    decision->retry_after_ns = 0;
    decision->reset_after_ns = sub_floor(expires_ns, now_ns);
    return cost > 0 || was_damaged;
}

void window8_take(const struct stint_quota *quota, uint64_t *state, uint64_t now_ns, uint32_t cost,
                  struct stint_decision *decision)
{
    struct window window = window8_unpack(quota, *state);
    assert(quota->derived.state_size == 8);
    if (window_take_whole(quota, &window, now_ns, cost, decision))
        *state = window8_pack(quota, &window);
}

void window16_take(const struct stint_quota *quota, struct word16 *state, uint64_t now_ns,
                   uint32_t cost, struct stint_decision *decision)
{
    struct window window = window16_unpack(quota, *state);
    assert(quota->derived.state_size == 16 && state->hi >> WINDOW16_HI_BITS == 0);
    if (window_take_whole(quota, &window, now_ns, cost, decision))
        *state = window16_pack(quota, &window);
}

/* `longer` is space for a long string. */
WINDOW_INLINE struct window window_load(const struct stint_quota *quota, const void *state,
                                        struct bits256 *longer)
{
    const uint64_t *word = state;
    const struct word16 *words = state;
    if (quota->derived.state_size == 8)
        return window8_unpack(quota, *word);
    if (quota->derived.state_size == 16)
        return window16_unpack(quota, *words);
    assert(quota->derived.state_size == sizeof(struct bits256));
    return window32_unpack(quota, state, longer);
}

static void window_store(const struct stint_quota *quota, void *state, const struct window *window)
{
    uint64_t *word = state;
    struct word16 *words = state;
    struct bits256 *longer = state;
    if (quota->derived.state_size == 8)
        *word = window8_pack(quota, window);
    else if (quota->derived.state_size == 16)
        *words = window16_pack(quota, window);
    else
        *longer = window32_pack(quota, window);
}

static void window32_take(const struct stint_quota *quota, struct bits256 *state, uint64_t now_ns,
                          uint32_t cost, struct stint_decision *decision)
{
    struct bits256 longer;
    struct window window = window32_unpack(quota, state, &longer);
    if (window_take_whole(quota, &window, now_ns, cost, decision))
        *state = window32_pack(quota, &window);
}

static struct stint_decision window_ask_take(const struct stint_quota *quota, void *state,
                                             const struct stint_ask *ask)
{
    assert(ask->verb == STINT_TAKE);
    struct stint_decision decision;
    if (quota->derived.state_size == 8) {
        if (!window8_take_quick(quota, state, ask->now_ns, ask->cost, &decision))
            window8_take(quota, state, ask->now_ns, ask->cost, &decision);
    } else if (quota->derived.state_size > 16) {
        window32_take(quota, state, ask->now_ns, ask->cost, &decision);
    } else if (!window16_take_quick(quota, state, ask->now_ns, ask->cost, &decision)) {
        window16_take(quota, state, ask->now_ns, ask->cost, &decision);
    }
    return decision;
}

static struct stint_decision window_ask(const struct stint_quota *quota, void *state,
                                        const struct stint_ask *ask)
{
    bool store;
    struct bits256 longer;
    if (ask->verb == STINT_TAKE)
        return window_ask_take(quota, state, ask);
    struct window window = window_load(quota, state, &longer);
    struct stint_decision decision = window_ask_slow(quota, &window, ask, &store);
    assert(!store || window_fits_together(quota, &window));
    if (store)
        window_store(quota, state, &window);
    return decision;
}

static uint64_t window_state_expires_at(const struct stint_quota *quota, const void *state)
{
    struct bits256 longer;
    struct window window = window_load(quota, state, &longer);
    return window_expires_at(quota, &window);
}

/*
 * All N units, charged to the first slot that comes back at until_ns or later. An instant above
 * STINT_NOW_MAX is the same as that.
 */
static void window_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    struct bits256 longer;
    memset(state, 0, quota->derived.state_size);
    struct window window = window_load(quota, state, &longer);
    uint64_t at_ns = min_u64(sub_floor(until_ns, quota->period_ns + 1), STINT_NOW_MAX);
    if (until_ns > 0)
        window_age(quota, &window, window_slot_of(quota, &window, at_ns));
    if (until_ns > 0 && quota->limit > 0)
        window_take(quota, &window, quota->limit);
    window_store(quota, state, &window);
}

/*
 * A unit may be as late as the last instant of its slot, even where that is later than now: a
 * caller whose clock is fast may have taken it.
 */
static size_t window_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                          struct held_run *runs)
{
    struct bits256 longer;
    struct window loaded = window_load(quota, state, &longer), *window = &loaded;
    if (window_is_new(window))
        return 0;
    window_age(quota, window, window_slot_of(quota, window, now_ns));
    struct window_walk walk = window_walk(window);
    uint32_t stars = window_stars(quota, window), last_bars = 0;
    size_t n_runs = 0;
    for (uint32_t place = 1; place <= stars; place++) {
        window_walk_next(&walk);
        if (walk.bars != last_bars || n_runs == 0) {
            uint64_t next_slot = window->slot - quota->resolution + walk.bars;
            uint64_t last_ns = window_slot_start(quota, window, next_slot) - 1;
            assert(n_runs < HELD_RUNS_MAX);
            runs[n_runs++] = (struct held_run){.at_ns = min_u64(last_ns, STINT_NOW_MAX)};
            last_bars = walk.bars;
        }
        runs[n_runs - 1].units += window_used(quota, window, place);
    }
    if (n_runs > 0)
        runs[0].units += (uint64_t)window->displaced * quota->derived.bunch;
    return n_runs;
}

static uint64_t window_own_ns(const struct stint_quota *quota, const void *state)
{
    struct bits256 longer;
    struct window window = window_load(quota, state, &longer);
    return window_is_new(&window) ? 0 : window_slot_start(quota, &window, window.slot);
}

static void window_pass(const struct stint_quota *quota, void *state, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX);
    struct bits256 longer;
    struct window window = window_load(quota, state, &longer);
    window_age(quota, &window, window_slot_of(quota, &window, at_ns));
    window_store(quota, state, &window);
}

/*
 * Bunches. The runs hold when each slot comes back, and the string how many bunches lie in it.
 */
static size_t window_groups(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                            struct held_group *groups)
{
    struct held_run found[HELD_RUNS_MAX], *runs = found;
    struct bits256 longer;
    struct window window = window_load(quota, state, &longer);
    window_age(quota, &window, window_slot_of(quota, &window, now_ns));
    window_held(quota, state, now_ns, found);
    uint32_t stars = window_stars(quota, &window), bars = 0;
    struct window_walk walk = window_walk(&window);
    for (uint32_t place = 1; place <= stars; place++) {
        window_walk_next(&walk);
        if (place > 1 && walk.bars != bars)
            runs++;
        bars = walk.bars;
        uint32_t size = place == window.place ? window_short(quota) : quota->derived.bunch;
        groups[place - 1] = (struct held_group){
            /* A run's time is the last instant of its slot. */
            .returns_ns = runs->at_ns + 1 + quota->period_ns,
            .units = size - (place == stars ? window.rest : 0),
        };
    }
    /* What the newest bunch has left represents displaced units, which come back first. */
    if (window.displaced > 0)
        groups[0].units += window.rest;
    return stars;
}

/* ---- Valid states ---------------------------------------------------------------------------- */

/* None of the slots with stars lies before time 0, and none after now. */
static bool window_can_be(const struct stint_quota *quota, const struct window *window,
                          uint64_t now_ns)
{
    if (!window_fits_together(quota, window) ||
        window->slot > window_slot_of(quota, window, now_ns))
        return false;
    if (window_stars(quota, window) == 0)
        return true;
    struct window_walk oldest = window_walk(window);
    window_walk_next(&oldest);
    return window->slot + oldest.bars >= window_bars(quota);
}

static bool window_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns)
{
    assert(now_ns <= STINT_NOW_MAX);
    struct bits256 longer;
    struct window window = window_load(quota, state, &longer);
    _Alignas(16) unsigned char packed[sizeof(struct bits256)];
    window_store(quota, packed, &window); /* differs if the slot does not fit */
    return memcmp(packed, state, quota->derived.state_size) == 0 &&
           window_can_be(quota, &window, now_ns);
}

/* ---- Layout ---------------------------------------------------------------------------------- */

static uint32_t window_state_size(uint32_t resolution)
{
    return resolution <= WINDOW8_SLOTS_MAX ? 8 : resolution <= WINDOW16_SLOTS_MAX ? 16 : 32;
}

/* How the bits of a state are shared out for a limit, a resolution and a period. */
struct window_layout {
    uint32_t bunch, bunches;
    unsigned remainder_bits, place_bits;
    unsigned slot_bits;      /* 0: no bits are left for it */
    unsigned displaced_bits; /* of them, those that no slot number needs */
};

/*
 * Bits that hold every slot number: 51 + bit_length(M) - bit_length(W in us), because a now is
 * below 2^59 and a microsecond is more than 2^9 ns. The formula is simple because the Lua scripts
 * compute it too. Where more are needed than there are, all but one are enough: half the range is
 * left over.
 */
static unsigned window_displaced_bits(const struct window_layout *layout, uint64_t period_ns,
                                      uint32_t resolution)
{
    unsigned number_bits = 51 + bit_length(resolution) - bit_length(period_ns / 1000);
    if (layout->slot_bits <= number_bits)
        return 1;
    return (unsigned)min_u64(layout->slot_bits - number_bits, WINDOW_DISPLACED_BITS_MAX);
}

static struct window_layout window_layout(uint32_t limit, uint32_t resolution, uint64_t period_ns)
{
    assert(resolution > 0 && period_ns > 0);
    struct window_layout layout = {.bunch = 1};
    if (limit > 0) {
        layout.bunch = (uint32_t)(((uint64_t)limit + resolution - 1) / resolution);
        layout.bunches = (uint32_t)(((uint64_t)limit + layout.bunch - 1) / layout.bunch);
    }
    layout.remainder_bits = bit_length(layout.bunch - 1);
    if (limit % layout.bunch != 0)
        layout.place_bits = bit_length(layout.bunches);

    unsigned low_bits = 2 * resolution + 1 + layout.remainder_bits;
    unsigned all_bits = 8 * window_state_size(resolution);
    bool is_short = resolution <= WINDOW16_SLOTS_MAX;
    if (is_short)
        all_bits = (unsigned)min_u64(all_bits, 64 + WINDOW16_HI_BITS);
    if ((low_bits < 64 || !is_short) && low_bits + layout.place_bits < all_bits)
        layout.slot_bits = all_bits - low_bits - layout.place_bits;
    layout.displaced_bits = window_displaced_bits(&layout, period_ns, resolution);
    if (layout.slot_bits > 64) /* a slot number has no more */
        layout.slot_bits = 64;
    return layout;
}

/* Half the range of these bits must last SLOT_LIFE_NS. */
static unsigned window_slot_bits_needed(uint64_t period_ns, uint32_t resolution)
{
    assert(resolution >= WINDOW_SLOTS_MIN && period_ns > 0);
    return bit_length(mul_div(SLOT_LIFE_NS, resolution, period_ns)) + 1;
}

static bool window_fits(const struct stint_quota *quota, uint32_t resolution)
{
    return window_layout(quota->limit, resolution, quota->period_ns).slot_bits >=
           window_slot_bits_needed(quota->period_ns, resolution);
}

/*
 * The finest resolution that fits, in a state that is no larger than that of `resolution`; else in
 * 32 bytes, where one always does: 32 bits of rest, 7 of place and 57 of a slot's number leave more
 * than 2 * 25 + 1 for the string.
 */
static uint32_t window_fitting(const struct stint_quota *quota, uint32_t resolution)
{
    uint32_t finest = resolution > WINDOW16_SLOTS_MAX ? WINDOW_SLOTS_MAX : WINDOW16_SLOTS_MAX;
    for (uint32_t other = finest; other >= WINDOW_SLOTS_MIN; other--)
        if (window_fits(quota, other))
            return other;
    uint32_t other = WINDOW_SLOTS_MAX;
    while (!window_fits(quota, other))
        other--;
    assert(other > WINDOW16_SLOTS_MAX);
    return other;
}

static int window_refuse_quota(const struct stint_quota *quota, struct stint_error *error)
{
    struct window_layout layout = window_layout(quota->limit, quota->resolution, quota->period_ns);
    uint32_t fitting = window_fitting(quota, quota->resolution);
    return err_set(error, STINT_E_RANGE,
                   "window: %u in %llu ns at resolution=%u leaves %u bits of %u bytes for the slot "
                   "number and needs %u; resolution=%u fits, in %u bytes",
                   quota->limit, (unsigned long long)quota->period_ns, quota->resolution,
                   layout.slot_bits, window_state_size(quota->resolution),
                   window_slot_bits_needed(quota->period_ns, quota->resolution), fitting,
                   window_state_size(fitting));
}

static int window_check(struct stint_quota *quota, struct stint_error *error)
{
    if (quota->resolution == 0) {
        bool fine = quota->limit <= WINDOW_FINE_LIMIT_MAX &&
                    quota->period_ns >= WINDOW_FINE_PERIOD_MIN_NS &&
                    window_fits(quota, WINDOW16_SLOTS_MAX);
        quota->resolution = fine ? WINDOW16_SLOTS_MAX : WINDOW_SLOTS_COARSE;
    }
    if (quota->resolution < WINDOW_SLOTS_MIN || quota->resolution > WINDOW_SLOTS_MAX)
        return err_set(error, STINT_E_RANGE, "window: resolution is %u, expected %d to %d",
                       quota->resolution, WINDOW_SLOTS_MIN, WINDOW_SLOTS_MAX);
    if (!window_fits(quota, quota->resolution))
        return window_refuse_quota(quota, error);

    struct window_layout layout = window_layout(quota->limit, quota->resolution, quota->period_ns);
    quota->derived.bunch = layout.bunch;
    quota->derived.bunches = layout.bunches;
    quota->derived.remainder_bits = (uint8_t)layout.remainder_bits;
    quota->derived.place_bits = (uint8_t)layout.place_bits;
    quota->derived.slot_bits = (uint8_t)layout.slot_bits;
    quota->derived.displaced_bits = (uint8_t)layout.displaced_bits;
    quota->derived.reciprocal = UINT64_MAX / quota->period_ns;
    quota->derived.state_size = window_state_size(quota->resolution);
    return STINT_OK;
}

const struct algorithm algorithm_window = {
    .name = "window",
    .check = window_check,
    .ask = window_ask,
    .expires_at = window_state_expires_at,
    .fill = window_fill,
    .is_valid = window_is_valid,
    .held = window_held,
    .own_ns = window_own_ns,
    .pass = window_pass,
    .groups = window_groups,
};
