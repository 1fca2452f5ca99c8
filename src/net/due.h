/* SPDX-License-Identifier: MIT */
/*
 * Instants at which something is to be looked at: a heap, the earliest on top. What is due holds
 * its own place in it, so that moving or removing one costs a few steps and no memory. One thread.
 */
#ifndef STINT_NET_DUE_H
#define STINT_NET_DUE_H

#include "stint.h"

/* Member of what is due; zeroed: it stands in no heap. */
struct due {
    uint64_t at_ns;
    size_t place; /* in the heap, from 1; 0: in none */
};

struct dues {
    struct due **heap; /* [1] is the earliest */
    size_t n_dues, capacity;
};

void dues_deinit(struct dues *dues);
/* Room for one more, so that due_set() cannot fail. False: no memory. */
bool dues_reserve(struct dues *dues, size_t n_dues);
/* Puts it at an instant; STINT_NEVER_NS takes it out. */
void due_set(struct dues *dues, struct due *due, uint64_t at_ns);
/* The earliest; NULL if there is none. */
struct due *dues_first(const struct dues *dues);

#endif
