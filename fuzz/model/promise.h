/* SPDX-License-Identifier: MIT */
/*
 * How many units any window may hold, by what the header says: the bound of the quota; over changes
 * of it, the bound at the window's beginning and all that was raised since; and what refunds gain
 * that come late, or over a change.
 */
#ifndef STINT_FUZZ_MODEL_PROMISE_H
#define STINT_FUZZ_MODEL_PROMISE_H

#include "model/uses.h"

#define PROMISE_EVENTS_MAX 512

struct promise_change {
    uint64_t at_ns;
    uint64_t raise; /* of what a window that holds the change may hold */
    uint64_t bound; /* of windows that begin later */
};

struct promise_gain {
    uint64_t from_ns, until_ns; /* no window that begins later feels it */
    uint64_t units;
};

struct promise {
    uint64_t first_bound, bound; /* of the first quota, of the last */
    size_t n_changes, n_gains;
    struct promise_change change[PROMISE_EVENTS_MAX]; /* by time */
    struct promise_gain gain[PROMISE_EVENTS_MAX];
};

void promise_init(struct promise *promise, uint64_t bound);
/* Another quota of the same period. Bounds add up where a state forgets what flows back. */
void promise_change(struct promise *promise, uint64_t at_ns, uint64_t bound, bool adds_up);
void promise_gain(struct promise *promise, struct promise_gain gain);

/* Whether no window that ends at a use not before from_ns holds more. */
bool promise_is_kept(const struct promise *promise, const struct uses *uses, uint64_t from_ns,
                     uint64_t period_ns);

#endif
