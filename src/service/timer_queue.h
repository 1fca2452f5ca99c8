/* SPDX-License-Identifier: MIT */
/*
 * Times at which something is to be done: a heap, the earliest on top. An entry stores its index in
 * the heap, so that moving or removing one takes a few steps and no memory. One thread.
 */
#ifndef STINT_SERVICE_TIMER_QUEUE_H
#define STINT_SERVICE_TIMER_QUEUE_H

#include "stint.h"

/* Member of an entry; zeroed: it is in no heap. */
struct timer {
    uint64_t at_ns;
    size_t place; /* index in the heap, from 1; 0: in none */
};

struct timer_queue {
    struct timer **heap; /* [1] is the earliest */
    size_t n_timers, capacity;
};

void timer_queue_deinit(struct timer_queue *timer_queue);
/* Capacity for one more, so that timer_queue_set() cannot fail. False: no memory. */
bool timer_queue_reserve(struct timer_queue *timer_queue, size_t n_timers);
/* Sets its time; STINT_NEVER_NS removes it. */
void timer_queue_set(struct timer_queue *timer_queue, struct timer *timer, uint64_t at_ns);
/* The earliest; NULL if there is none. */
struct timer *timer_queue_first(const struct timer_queue *timer_queue);

#endif
