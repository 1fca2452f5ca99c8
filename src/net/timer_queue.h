/* SPDX-License-Identifier: MIT */
/*
 * Instants at which something is to be looked at: a heap, the earliest on top. What is due holds
 * its own place in it, so that moving or removing one costs a few steps and no memory. One thread.
 */
#ifndef STINT_NET_TIMER_QUEUE_H
#define STINT_NET_TIMER_QUEUE_H

#include "stint.h"

/* Member of what is due; zeroed: it stands in no heap. */
struct timer {
    uint64_t at_ns;
    size_t place; /* in the heap, from 1; 0: in none */
};

struct timer_queue {
    struct timer **heap; /* [1] is the earliest */
    size_t n_timers, capacity;
};

void timer_queue_deinit(struct timer_queue *timer_queue);
/* Room for one more, so that timer_queue_set() cannot fail. False: no memory. */
bool timer_queue_reserve(struct timer_queue *timer_queue, size_t n_timers);
/* Puts it at an instant; STINT_NEVER_NS takes it out. */
void timer_queue_set(struct timer_queue *timer_queue, struct timer *timer, uint64_t at_ns);
/* The earliest; NULL if there is none. */
struct timer *timer_queue_first(const struct timer_queue *timer_queue);

#endif
