/* SPDX-License-Identifier: MIT */
/*
 * The exact count: the most units that were admitted to one key in any half-open window (t-W, t],
 * computed from the times and units of admissions only, not from what the limiter reports.
 *
 * Memory: 16 bytes for each time within the longest period at which a key was admitted something,
 * up to twice that as rings double, and a few words per key and period. The total can be bounded.
 */
#ifndef STINT_SIM_JUDGE_EXACT_H
#define STINT_SIM_JUDGE_EXACT_H

#include "base/err.h"

struct exact_run {
    uint64_t at_ns, units;
};

/* The admissions of one key within the longest period, oldest first, in a ring. */
struct exact_key {
    struct exact_run *runs;
    uint64_t end;    /* number of the next run */
    uint64_t now_ns; /* no window of the key ends later */
    uint32_t n_runs;
    uint32_t size; /* a power of two, or 0 */
};

/* The window of one period, at the time of the last call. */
struct exact_window {
    uint64_t first; /* number of the oldest run within it */
    uint64_t units;
};

struct exact_most {
    uint64_t units;
    uint64_t at_ns; /* the window's end */
    uint32_t key;
};

struct exact {
    uint64_t periods_ns[STINT_ITEMS_MAX];
    struct exact_most most[STINT_ITEMS_MAX]; /* by period; the first such window */
    size_t n_periods, longest;
    struct exact_key *keys;
    struct exact_window *windows; /* n_periods for each key */
    uint32_t keys_size;
    uint64_t bytes, bytes_max; /* in use, and allowed; 0 = no maximum */
};

void exact_init(struct exact *exact, const uint64_t *periods_ns, size_t n_periods);
void exact_deinit(struct exact *exact);

/*
 * Times of one key never go back. 0 or a negative code: STINT_E_FULL if bytes_max would be passed;
 * the count of this key is then no longer reliable.
 */
int exact_add(struct exact *exact, uint32_t key, struct exact_run run, struct stint_error *error);

/* The same for units that count in windows, but whose own window is not judged. */
int exact_add_unjudged(struct exact *exact, uint32_t key, struct exact_run run,
                       struct stint_error *error);

/* Units that were added at run.at_ns were not used after all. Earlier results stay. */
void exact_take_back(struct exact *exact, uint32_t key, struct exact_run run);

/*
 * The units in the window of one of the periods that ends now: those that were admitted so far. Not
 * before the key's latest run; apart from that, times may go back here.
 */
uint64_t exact_units(struct exact *exact, uint32_t key, size_t period, uint64_t now_ns);

/* The number is reused for another key. */
void exact_forget(struct exact *exact, uint32_t key);

#endif
