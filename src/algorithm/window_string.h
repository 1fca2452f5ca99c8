/* SPDX-License-Identifier: MIT */
/*
 * The string of bars and stars that records a window's bunches: for each of its slots, oldest
 * first, a bar (1) followed by a star (0) for every bunch charged to that slot. It contains neither
 * time nor units.
 *
 * The newest slot ends at bit 0. The highest set bit is the oldest bar, so the string contains its
 * own length, and the number of stars is the length without the bars.
 * At most 2 * WINDOW_SLOTS_MAX + 1 bits are in use.
 */
#ifndef STINT_ALGORITHM_WINDOW_STRING_H
#define STINT_ALGORITHM_WINDOW_STRING_H

#include "base/limits.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdint.h>

_Static_assert(2 * WINDOW_SLOTS_MAX + 1 < 64, "a string is one word and never all ones");

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

/* Iterates over the stars, oldest first. */
struct window_string_walk {
    uint64_t aligned; /* what is left of the string, left-aligned */
    unsigned bars;    /* seen so far: the star lies in this slot, counted from 1 */
};

static inline struct window_string_walk window_string_walk(uint64_t string)
{
    assert(string != 0);
    return (struct window_string_walk){.aligned = string << (64 - bit_length(string))};
}

static inline void window_string_next(struct window_string_walk *walk)
{
    unsigned run = (unsigned)__builtin_clzll(~walk->aligned);
    walk->bars += run;
    walk->aligned <<= run;
    walk->aligned <<= 1;
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

#endif
