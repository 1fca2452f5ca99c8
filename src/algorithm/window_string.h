/* SPDX-License-Identifier: MIT */
/*
 * The steps of `window` on its string of bars and stars, which window.h describes: of one word, and
 * of four in a state of 32 bytes. In the takes of 8 and 16 bytes a compiler knows that `longer` is
 * NULL.
 */
#ifndef STINT_ALGORITHM_WINDOW_STRING_H
#define STINT_ALGORITHM_WINDOW_STRING_H

#include "algorithm/window.h"

#include <assert.h>

/* ---- Of one word ----------------------------------------------------------------------------- */

/*
 * Moves the newest star to the newest slot. The string ends in a star and n bars, 0 1…1, and must
 * end in 1…1 0: that adds 2^n - 1, and 2^n is its lowest clear bit.
 */
static inline uint64_t window_string_touch(uint64_t string)
{
    assert(string != 0);
    return string + (~string & (string + 1)) - 1;
}

/* Drops the n_slots oldest slots with their stars, and appends as many empty ones. */
static inline uint64_t window_string_age(uint64_t string, unsigned bars, uint64_t n_slots,
                                         unsigned *stars_dropped)
{
    assert(string != 0 && bars > 0);
    *stars_dropped = 0;
    if (n_slots >= bars) {
        *stars_dropped = window_string_stars(string, bars);
        return window_string_empty(bars);
    }
    /* Left-aligned, whole runs of bars are dropped at once; only stars need a loop. */
    unsigned left = (unsigned)n_slots, len = bit_length(string);
    uint64_t aligned = string << (64 - len);
    unsigned run = (unsigned)__builtin_clzll(~aligned);
    while (left >= run) {
        aligned <<= run;
        left -= run;
        assert(aligned != 0);
        unsigned stars = (unsigned)__builtin_clzll(aligned);
        aligned <<= stars;
        *stars_dropped += stars;
        run = (unsigned)__builtin_clzll(~aligned);
    }
    aligned <<= left;
    len -= (unsigned)n_slots + *stars_dropped;
    assert(len > 0 && len < 64);
    return (aligned >> (64 - len) << n_slots) | window_string_empty((unsigned)n_slots);
}

static inline uint64_t window_string_without(uint64_t string, uint64_t star)
{
    assert((star & (star - 1)) == 0 && star != 0);
    uint64_t newer = string & (star - 1);
    return ((string >> 1) & ~(star - 1)) | newer;
}

static inline uint64_t window_string_drop_newest(uint64_t string)
{
    return window_string_without(string, ~string & (string + 1));
}

static inline uint64_t window_string_drop_oldest(uint64_t string)
{
    uint64_t stars = ~string & window_string_empty(bit_length(string));
    return window_string_without(string, UINT64_C(1) << (bit_length(stars) - 1));
}

/* ---- Of either length ------------------------------------------------------------------------ */

WINDOW_INLINE bool window_is_new(const struct window *window)
{
    return window->longer != NULL ? bits256_is_zero(window->longer) : window->string == 0;
}

WINDOW_INLINE unsigned window_string_ones(const struct window *window)
{
    return window->longer != NULL ? bits256_count(window->longer)
                                  : (unsigned)__builtin_popcountll(window->string);
}

/* Empty slots, and `stars` bunches in the newest of them. */
WINDOW_INLINE void window_string_renew(struct window *window, unsigned bars, unsigned stars)
{
    if (window->longer != NULL)
        *window->longer = bits256_shift_up(bits256_ones(bars), stars);
    else
        window->string = window_string_empty(bars) << stars;
}

WINDOW_INLINE void window_string_append(struct window *window, unsigned stars)
{
    if (window->longer != NULL)
        *window->longer = bits256_shift_up(*window->longer, stars);
    else
        window->string <<= stars;
}

WINDOW_INLINE unsigned window_newest_age(const struct window *window)
{
    return window->longer != NULL ? bits256_trailing_ones(window->longer)
                                  : window_string_newest_age(window->string);
}

/* Ages a long string. The oldest bar that is left is its highest bit. */
static unsigned window_string_age_long(struct bits256 *string, unsigned bars, uint64_t n_slots)
{
    unsigned stars = bits256_length(string) - bars;
    if (n_slots >= bars) {
        *string = bits256_ones(bars);
        return stars;
    }
    unsigned gone = (unsigned)n_slots, len = bits256_find_one(string, gone) + 1;
    struct bits256 aged = bits256_shift_up(bits256_low(*string, len), gone);
    aged.word[1] |= gone > 64 ? bits64_ones(gone - 64) : 0;
    aged.word[0] |= bits64_ones(gone < 64 ? gone : 64);
    *string = aged;
    return stars - (len - (bars - gone));
}

/* Returns how many stars were dropped. */
WINDOW_INLINE unsigned window_string_pass(struct window *window, unsigned bars, uint64_t n_slots)
{
    unsigned dropped;
    if (window->longer != NULL)
        return window_string_age_long(window->longer, bars, n_slots);
    window->string = window_string_age(window->string, bars, n_slots, &dropped);
    return dropped;
}

/* Moves the newest star to the newest slot: 0 1...1 becomes 1...1 0. */
WINDOW_INLINE void window_string_move(struct window *window)
{
    if (window->longer == NULL) {
        window->string = window_string_touch(window->string);
        return;
    }
    unsigned at = bits256_trailing_ones(window->longer);
    window->longer->word[at / 64] |= UINT64_C(1) << at % 64;
    window->longer->word[0] &= ~UINT64_C(1);
}

WINDOW_INLINE void window_string_less_newest(struct window *window)
{
    if (window->longer != NULL)
        *window->longer = bits256_without(window->longer, bits256_trailing_ones(window->longer));
    else
        window->string = window_string_drop_newest(window->string);
}

/* The oldest star is the highest zero below the bars above it. */
WINDOW_INLINE void window_string_less_oldest(struct window *window)
{
    if (window->longer == NULL) {
        window->string = window_string_drop_oldest(window->string);
        return;
    }
    unsigned len = bits256_length(window->longer);
    struct bits256 aligned = bits256_shift_up(*window->longer, 64 * BITS256_WORDS - len);
    unsigned at = len - 1 - bits256_leading_ones(&aligned);
    *window->longer = bits256_without(window->longer, at);
}

/* Iterates over the stars, oldest first. */
struct window_walk {
    uint64_t aligned;      /* what is left of the string, left-aligned */
    struct bits256 longer; /* that of a long one */
    unsigned bars;         /* seen so far: the star lies in this slot, counted from 1 */
    bool is_long;
};

WINDOW_INLINE struct window_walk window_walk(const struct window *window)
{
    assert(!window_is_new(window));
    struct window_walk walk;
    walk.bars = 0;
    walk.is_long = window->longer != NULL;
    if (walk.is_long) {
        unsigned unused = 64 * BITS256_WORDS - bits256_length(window->longer);
        walk.longer = bits256_shift_up(*window->longer, unused);
    } else {
        walk.aligned = window->string << (64 - bit_length(window->string));
    }
    return walk;
}

WINDOW_INLINE void window_walk_next(struct window_walk *walk)
{
    unsigned run = walk->is_long ? bits256_leading_ones(&walk->longer)
                                 : (unsigned)__builtin_clzll(~walk->aligned);
    walk->bars += run;
    if (walk->is_long) {
        walk->longer = bits256_shift_up(walk->longer, run + 1);
    } else {
        walk->aligned <<= run;
        walk->aligned <<= 1;
    }
}

#endif
