/* SPDX-License-Identifier: MIT */
/* Lines from readings: two intervals in sequence must agree before there is one. */
#include "table/ticks.h"

#include <assert.h>
#include <stddef.h>

/*
 * A reading that took longer was interrupted, and says too little about the counter: at 1 GHz this
 * is 2 us, 512 millionths of a span.
 */
#define APART_TICKS 2048

/* Intervals from one span to this long give a slope; a suspend is hardly ever in one. */
#define INTERVAL_MAX_NS UINT64_C(1000000000)

/* Readings of one true rate, slewed by NTP or not, differ by less than one part in so many. */
#define SLOPES_DIFFER 512

/* How much lower than measured the slope of a line is. */
#define SLOPE_MARGIN 4096

/* A counter that contradicts the kernel's clock more often is not used any more. */
#define STRIKES_MAX 16

/* The writer's: readers see it with the next sequence that has a line. */
static void set(uint64_t *field, uint64_t value)
{
    /* release: a reader of this value then sees the sequence of the writer. */
    __atomic_store_n(field, value, __ATOMIC_RELEASE);
}

/* The next reading is compared with this one, and there is no line. */
static uint64_t start_anew(struct ticks *ticks, const struct ticks_reading *reading)
{
    ticks->measured = 0;
    ticks->read_ticks = reading->after;
    ticks->read_ns = reading->ns;
    return 0;
}

/* A line from here on: returns its span. */
static uint64_t draw(struct ticks *ticks, const struct ticks_reading *reading)
{
    assert(ticks->measured != 0);
    uint64_t slope = ticks->measured - ticks->measured / SLOPE_MARGIN;
    set(&ticks->slope, slope);
    set(&ticks->from_ticks, reading->after); /* later than the clock was read: behind it */
    set(&ticks->from_ns, reading->ns);
    return (TICKS_SPAN_NS << 32) / slope;
}

static bool agree(uint64_t a, uint64_t b)
{
    return (a > b ? a - b : b - a) <= b / SLOPES_DIFFER;
}

/* The slope of an interval between readings; false if it contradicts the one before. */
static bool measure(struct ticks *ticks, uint64_t ns_passed, uint64_t ticks_passed, bool *known)
{
    assert(ns_passed <= INTERVAL_MAX_NS);
    *known = ticks->measured != 0;
    if (ticks_passed == 0 || ticks_passed > INT64_MAX)
        return false;
    uint64_t slope = (ns_passed << 32) / ticks_passed;
    if (slope == 0 || (*known && !agree(slope, ticks->measured)))
        return false;
    ticks->measured = slope;
    return true;
}

/* What a reading says; the caller holds the sequence. Returns the span of the line from now on. */
static uint64_t weigh(struct ticks *ticks, const struct ticks_reading *reading, uint64_t span_ticks)
{
    int64_t ns_passed = (int64_t)(reading->ns - ticks->read_ns);
    uint64_t ticks_passed = reading->after - ticks->read_ticks;
    bool known = span_ticks != 0;
    /* Past its end a line is gone. Before its beginning the reading may be older than it. */
    int64_t since = (int64_t)(reading->after - ticks->from_ticks);
    uint64_t still = since < (int64_t)span_ticks ? span_ticks : 0;
    if (reading->after - reading->before > APART_TICKS)
        return still;
    if (ticks->read_ns == 0 || ns_passed <= -(int64_t)TICKS_SPAN_NS)
        return start_anew(ticks, reading); /* or of another time namespace, after a fork */
    if (ns_passed < (int64_t)TICKS_SPAN_NS)
        return still; /* too short, or older than the last: its thread waited */
    if (ns_passed > (int64_t)INTERVAL_MAX_NS) {
        if (!known)
            return start_anew(ticks, reading);
    } else if (!measure(ticks, (uint64_t)ns_passed, ticks_passed, &known)) {
        __atomic_store_n(&ticks->strikes, ticks->strikes + 1, __ATOMIC_RELAXED);
        return start_anew(ticks, reading);
    }
    ticks->read_ticks = reading->after;
    ticks->read_ns = reading->ns;
    return known ? draw(ticks, reading) : 0;
}

/* The highest time so far, which this one is not below. */
static uint64_t raise_floor(struct ticks *ticks, uint64_t ns)
{
    /* relaxed: readers load it between two loads of the sequence, or raise it themselves. */
    uint64_t floor_ns = __atomic_load_n(&ticks->floor_ns, __ATOMIC_RELAXED);
    /* No line is so far ahead: the process was forked into another time namespace. */
    while (floor_ns < ns || floor_ns - ns > 2 * TICKS_SPAN_NS)
        if (__atomic_compare_exchange_n(&ticks->floor_ns, &floor_ns, ns, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
            return ns;
    return floor_ns;
}

bool ticks_gave_up(const struct ticks *ticks)
{
    /* relaxed: a reading more or less does no harm. */
    return __atomic_load_n(&ticks->strikes, __ATOMIC_RELAXED) >= STRIKES_MAX;
}

/* Makes a line of a reading, or none. What was read from the one before is not above its end. */
static uint64_t replace_line(struct ticks *ticks, const struct ticks_reading *reading)
{
    uint64_t from_ticks = ticks->from_ticks, span_ticks = ticks->span_ticks;
    uint64_t end_ns = ticks->from_ns + (span_ticks * ticks->slope >> 32), ns = reading->ns;
    uint64_t new_span = weigh(ticks, reading, span_ticks);
    bool gone = from_ticks != ticks->from_ticks || new_span != span_ticks;
    if (gone && end_ns > ns && end_ns - ns <= TICKS_SPAN_NS)
        ns = end_ns;
    ns = raise_floor(ticks, ns);
    set(&ticks->span_ticks, new_span);
    return ns;
}

uint64_t ticks_learn(struct ticks *ticks, const struct ticks_reading *reading)
{
    assert(ticks != NULL && reading != NULL);
    uint64_t sequence = __atomic_load_n(&ticks->sequence, __ATOMIC_RELAXED);
    uint64_t count = sequence & ~(TICKS_LINE | TICKS_WRITING);
    /*
     * One thread at a time weighs, the others go by the kernel's clock. A process that is forked
     * while another thread of its parent weighs does so for good. acquire: it sees what the last
     * one wrote.
     */
    if (ticks_gave_up(ticks) || (sequence & TICKS_WRITING) != 0 ||
        !__atomic_compare_exchange_n(&ticks->sequence, &sequence, count | TICKS_WRITING, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return raise_floor(ticks, reading->ns);
    uint64_t ns = replace_line(ticks, reading);
    uint64_t line = ticks->span_ticks != 0 ? TICKS_LINE : 0;
    /* release: the next sequence is seen after the line. */
    __atomic_store_n(&ticks->sequence, (count + TICKS_SEQUENCE) | line, __ATOMIC_RELEASE);
    return ns;
}
