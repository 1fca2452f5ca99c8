/* SPDX-License-Identifier: MIT */
/*
 * Time from a counter of the processor, between readings of the kernel's clock. It reads neither:
 * the caller passes what both showed.
 *
 * Time is a line through the last reading, with the slope that the last two readings gave, and is
 * good for TICKS_SPAN_NS; after that the kernel's clock is read again. So nothing that the counter
 * does (it stops, jumps, starts anew, runs at another rate after a migration) makes the time wrong
 * by more than the span, or for longer. Ordinarily the line is less than two microseconds behind
 * the kernel's clock, and never ahead: its slope is a little too low, by more than readings vary.
 *
 * Time never goes back. A line is used only for counts that were read while it was published
 * (`sequence` is read before and after), and no time is below `floor_ns`, which is raised to
 * whatever was read from the kernel's clock, and to the end of each line that is replaced.
 */
#ifndef STINT_TABLE_TICKS_H
#define STINT_TABLE_TICKS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define TICKS_SPAN_NS UINT64_C(4000000)

/* There is a line; a thread writes the rest, and there may be none. Never both. */
#define TICKS_LINE UINT64_C(1)
#define TICKS_WRITING UINT64_C(2)
#define TICKS_SEQUENCE UINT64_C(4)

/* Read-mostly: written once per span. Zeroed, no line is known. */
struct ticks {
    _Alignas(64) uint64_t sequence; /* of TICKS_LINE and TICKS_WRITING, and a count above them */
    uint64_t span_ticks;            /* the line is good for so many ticks */
    uint64_t from_ticks, from_ns;   /* its first point */
    uint64_t slope;                 /* in 2^-32 ns per tick */
    uint64_t floor_ns;
    /* For the writer alone: the last reading, the slope between the last two, and how often the
     * counter contradicted the kernel's clock. */
    _Alignas(64) uint64_t read_ticks;
    uint64_t read_ns, measured;
    uint32_t strikes;
};

/* The kernel's clock, and the counter before and after. */
struct ticks_reading {
    uint64_t before, ns, after;
};

/* False if the kernel's clock has to be read: then ticks_learn(). `sequence` is for ticks_at(). */
static inline bool ticks_has_line(const struct ticks *ticks, uint64_t *sequence)
{
    /* acquire: the line that is read next is not older than its sequence. */
    *sequence = __atomic_load_n(&ticks->sequence, __ATOMIC_ACQUIRE);
    return (*sequence & TICKS_LINE) != 0;
}

/* The time at a count that was read after ticks_has_line(). False as above. */
static inline bool ticks_at(const struct ticks *ticks, uint64_t sequence, uint64_t count,
                            uint64_t *now_ns)
{
    assert((sequence & TICKS_LINE) != 0);
    /* acquire: the sequence is read again after each of them. */
    uint64_t span_ticks = __atomic_load_n(&ticks->span_ticks, __ATOMIC_ACQUIRE);
    uint64_t since = count - __atomic_load_n(&ticks->from_ticks, __ATOMIC_ACQUIRE);
    uint64_t from_ns = __atomic_load_n(&ticks->from_ns, __ATOMIC_ACQUIRE);
    uint64_t slope = __atomic_load_n(&ticks->slope, __ATOMIC_ACQUIRE);
    uint64_t floor_ns = __atomic_load_n(&ticks->floor_ns, __ATOMIC_ACQUIRE);
    /* Within the span the product is below TICKS_SPAN_NS * 2^32. */
    uint64_t at_ns = from_ns + (since * slope >> 32);
    *now_ns = at_ns > floor_ns ? at_ns : floor_ns;
    /* relaxed: the loads above are before it. */
    return since < span_ticks && __atomic_load_n(&ticks->sequence, __ATOMIC_RELAXED) == sequence;
}

/* The time of a reading; makes a new line of it, unless another thread does. */
uint64_t ticks_learn(struct ticks *ticks, const struct ticks_reading *reading);

/* Whether the counter contradicted the clock so often that it is not used any more. */
bool ticks_gave_up(const struct ticks *ticks);

#endif
