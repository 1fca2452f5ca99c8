/* SPDX-License-Identifier: MIT */
/*
 * The inline part of `window` that nearly every decision takes: unpacking a state, and a take from
 * the bunch in use. window.c has the whole algorithm, and the reasons why it is right.
 */
#ifndef STINT_ALGORITHM_WINDOW_H
#define STINT_ALGORITHM_WINDOW_H

#include "algorithm/algorithm.h"
#include "base/bits256.h"

#include <assert.h>

/* A state is unpacked for one decision: through memory it would be written and read again. */
#define WINDOW_INLINE __attribute__((always_inline)) static inline

/* ---- The string ------------------------------------------------------------------------------ */

/*
 * The string of bars and stars that records a window's bunches: for each of its slots, oldest
 * first, a bar (1) followed by a star (0) for every bunch charged to that slot. It contains neither
 * time nor units.
 *
 * The newest slot ends at bit 0. The highest set bit is the oldest bar, so the string contains its
 * own length, and the number of stars is the length without the bars.
 * At most 2 * M + 1 bits are in use: one word in states of 8 and 16 bytes. The functions here are
 * for these; window_string.h has those for the long strings of 32 bytes.
 */
_Static_assert(2 * WINDOW16_SLOTS_MAX + 1 < 64, "a string of one word is never all ones");
_Static_assert(2 * WINDOW_SLOTS_MAX + 1 < 64 * BITS256_WORDS, "nor is a long one");

static inline uint64_t window_string_empty(unsigned bars)
{
    assert(bars < 64);
    return (UINT64_C(1) << bars) - 1;
}

static inline unsigned window_string_stars(uint64_t string, unsigned bars)
{
    return bit_length(string) - bars;
}

/* How many slots before the newest one the newest star lies; undefined without stars. */
static inline unsigned window_string_newest_age(uint64_t string)
{
    return (unsigned)__builtin_ctzll(~string);
}

/* ---- The state ------------------------------------------------------------------------------- */

#define WINDOW16_HI_BITS (64 - WORD16_STORE_BITS)
#define WINDOW_DISPLACED_BITS_MAX 5

/* A state unpacked. All zero is "never used". */
struct window {
    uint64_t string; /* of bars and stars, see above */
    uint64_t slot;   /* the newest slot's number: floor(time * M / W) */
    uint32_t rest;   /* units left of the bunch in use, which is the newest star */
    uint32_t place;  /* position of the short bunch among the stars, oldest = 1; 0: not there */
    /* Bunches that charges have displaced and that have not returned; 0 while one is free. */
    uint32_t displaced;
    struct bits256 *longer; /* the string of a state of 32 bytes, instead of `string`; or NULL */
};

#define WINDOW_INVERSE(m) [m] = UINT64_MAX / (m) + 1

/* ceil(2^64 / M): mul_hi with it is floor(n / M) for every n up to 2^64 / M. */
static const uint64_t window_inverse[WINDOW16_SLOTS_MAX + 1] = {
    WINDOW_INVERSE(10), WINDOW_INVERSE(11), WINDOW_INVERSE(12), WINDOW_INVERSE(13),
    WINDOW_INVERSE(14), WINDOW_INVERSE(15), WINDOW_INVERSE(16), WINDOW_INVERSE(17),
    WINDOW_INVERSE(18), WINDOW_INVERSE(19), WINDOW_INVERSE(20), WINDOW_INVERSE(21),
    WINDOW_INVERSE(22), WINDOW_INVERSE(23), WINDOW_INVERSE(24),
};

static inline uint32_t window_bars(const struct stint_quota *quota)
{
    assert(quota->resolution > 0 && quota->resolution <= WINDOW_SLOTS_MAX);
    return quota->resolution + 1;
}

/* Units of the short bunch; q where all are alike, and then its position is not kept. */
static inline uint32_t window_short(const struct stint_quota *quota)
{
    assert(quota->derived.bunch > 0);
    return quota->limit - quota->derived.bunch * (quota->derived.bunches - 1);
}

WINDOW_INLINE uint32_t window_stars(const struct stint_quota *quota, const struct window *window)
{
    if (window->longer != NULL)
        return bits256_length(window->longer) - window_bars(quota);
    return window_string_stars(window->string, window_bars(quota));
}

/* Units that no bunch holds. */
WINDOW_INLINE uint32_t window_empty(const struct stint_quota *quota, const struct window *window)
{
    uint64_t used = (uint64_t)window_stars(quota, window) * quota->derived.bunch - window->rest;
    if (window->place > 0)
        used -= quota->derived.bunch - window_short(quota);
    return (uint32_t)(quota->limit - used);
}

/* Units that a caller could take now: displaced bunches leave less than one bunch empty. */
WINDOW_INLINE uint32_t window_free(const struct stint_quota *quota, const struct window *window)
{
    return window->displaced > 0 ? 0 : window_empty(quota, window);
}

/* ---- The short forms --------------------------------------------------------------------------
 */

static inline uint32_t window_string_bits(const struct stint_quota *quota)
{
    assert(quota->resolution <= WINDOW_SLOTS_MAX);
    return 2 * quota->resolution + 1;
}

static inline uint64_t window_mask(unsigned bits)
{
    assert(bits < 64);
    return (UINT64_C(1) << bits) - 1;
}

/*
 * The highest bits of a slot's number are never needed for it, and hold `displaced`. If all of them
 * are set, that many bunches were displaced or more.
 */
static inline unsigned window_displaced_at(const struct stint_quota *quota)
{
    assert(quota->derived.slot_bits >= quota->derived.displaced_bits);
    return (unsigned)quota->derived.slot_bits - quota->derived.displaced_bits;
}

static inline uint32_t window_displaced_max(const struct stint_quota *quota)
{
    return (UINT32_C(1) << quota->derived.displaced_bits) - 1;
}

/* From bit 0: string, rest, place, slot, displaced. */
WINDOW_INLINE struct window window8_unpack(const struct stint_quota *quota, uint64_t state)
{
    unsigned rest_at = window_string_bits(quota);
    unsigned place_at = rest_at + quota->derived.remainder_bits;
    unsigned slot_at = place_at + quota->derived.place_bits;
    uint64_t slot = state >> slot_at;
    return (struct window){
        .string = state & window_mask(rest_at),
        .rest = (uint32_t)((state >> rest_at) & window_mask(quota->derived.remainder_bits)),
        .place = (uint32_t)((state >> place_at) & window_mask(quota->derived.place_bits)),
        .slot = slot & window_mask(window_displaced_at(quota)),
        .displaced = (uint32_t)(slot >> window_displaced_at(quota)),
    };
}

/* lo, from bit 0: string, rest, high part of slot. hi: low part of slot, place, the table's 16. */
WINDOW_INLINE struct window window16_unpack(const struct stint_quota *quota, struct word16 state)
{
    unsigned rest_at = window_string_bits(quota);
    unsigned high_at = rest_at + quota->derived.remainder_bits;
    unsigned place_at = WINDOW16_HI_BITS - quota->derived.place_bits;
    uint64_t slot = state.lo >> high_at << place_at | (state.hi & window_mask(place_at));
    return (struct window){
        .string = state.lo & window_mask(rest_at),
        .rest = (uint32_t)((state.lo >> rest_at) & window_mask(quota->derived.remainder_bits)),
        .place = (uint32_t)(state.hi >> place_at),
        .slot = slot & window_mask(window_displaced_at(quota)),
        .displaced = (uint32_t)(slot >> window_displaced_at(quota)),
    };
}

/* ---- The quick take -------------------------------------------------------------------------- */

/*
 * A take of 1 unit or more where now is in the newest slot, the bunch in use is charged to that
 * slot already, and it has enough left. Then only `rest` changes: `cost` is subtracted from its
 * bits. False, and nothing changed, in all other cases.
 *
 * `past` is how far now is past the start of the newest slot, in M-ths of a nanosecond; a now
 * before it wraps around to more than W. The slot ends (W - past) / M after now, and what was
 * charged to it comes back W after that.
 */
WINDOW_INLINE bool window_take_quick(const struct stint_quota *quota, struct window *window,
                                     uint64_t now_ns, uint32_t cost,
                                     struct stint_decision *decision)
{
    assert(now_ns <= STINT_NOW_MAX && quota->resolution <= WINDOW16_SLOTS_MAX);
    uint64_t past = now_ns * quota->resolution - window->slot * quota->period_ns;
    if (cost - 1 >= window->rest || (window->string & 1) != 0 || past >= quota->period_ns ||
        window->displaced > 0)
        return false;
    window->rest -= cost;
    uint64_t left = quota->period_ns - past + quota->resolution - 1;
    algorithm_answer(decision, STINT_ALLOW, cost, quota->limit, window_free(quota, window));
    decision->retry_after_ns = 0;
    decision->reset_after_ns = quota->period_ns + mul_hi(left, window_inverse[quota->resolution]);
    return true;
}

WINDOW_INLINE bool window8_take_quick(const struct stint_quota *quota, uint64_t *state,
                                      uint64_t now_ns, uint32_t cost,
                                      struct stint_decision *decision)
{
    assert(quota->derived.state_size == 8);
    struct window window = window8_unpack(quota, *state);
    if (!window_take_quick(quota, &window, now_ns, cost, decision))
        return false;
    *state -= (uint64_t)cost << window_string_bits(quota);
    return true;
}

WINDOW_INLINE bool window16_take_quick(const struct stint_quota *quota, struct word16 *state,
                                       uint64_t now_ns, uint32_t cost,
                                       struct stint_decision *decision)
{
    assert(quota->derived.state_size == 16 && state->hi >> WINDOW16_HI_BITS == 0);
    struct window window = window16_unpack(quota, *state);
    if (!window_take_quick(quota, &window, now_ns, cost, decision))
        return false;
    state->lo -= (uint64_t)cost << window_string_bits(quota);
    return true;
}

/* A whole take in one function. */
void window8_take(const struct stint_quota *quota, uint64_t *state, uint64_t now_ns, uint32_t cost,
                  struct stint_decision *decision);
void window16_take(const struct stint_quota *quota, struct word16 *state, uint64_t now_ns,
                   uint32_t cost, struct stint_decision *decision);

#endif
