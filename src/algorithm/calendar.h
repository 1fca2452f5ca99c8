/* SPDX-License-Identifier: MIT */
/*
 * Days, ISO weeks, months and years of the Gregorian calendar at a fixed offset from UTC, on wall
 * clocks in nanoseconds since 1970. Leap seconds are ignored, as in POSIX time.
 */
#ifndef STINT_ALGORITHM_CALENDAR_H
#define STINT_ALGORITHM_CALENDAR_H

#include "stint.h"

/* Half-open: begin <= the instant < end. */
struct calendar_window {
    int64_t begin_ns, end_ns;
};

/*
 * `align` is STINT_ALIGN_DAY … STINT_ALIGN_YEAR. Years are 1680 … 2260: an instant outside counts
 * as in the first or the last of them, and may lie outside the window.
 */
struct calendar_window calendar_window_of(enum stint_align align, int32_t utc_offset_s,
                                          int64_t wall_ns);

#endif
