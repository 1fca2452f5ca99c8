/* SPDX-License-Identifier: MIT */
/* One decision on one key, in its class of slots. */
#ifndef STINT_TABLE_SLOT_ASK_H
#define STINT_TABLE_SLOT_ASK_H

#include "table/slot/asking.h"

struct stint_decision ask_slots(struct asking *asking);

/* Whether a verb may need a slot for a key without one: a refund does not. */
static inline bool ask_moves_in(uint8_t verb)
{
    return verb != STINT_REFUND && verb != STINT_UNBOOK;
}

/*
 * The decision on a copy of a state of at most 16 bytes, which the caller then swaps in. Under gcra
 * a refund must not move a place that is booked: a booking raises the end of all bookings before
 * its state is swapped in, and a refund reads that end after it has read the state.
 */
struct stint_decision ask_state(const struct asking *asking, void *state);

/*
 * Decides on a pending slot of the key, under a rule: other classes may have the key. `land` makes
 * the slot valid with the state `after`, which was charged upon `before`; false if it was lost.
 * For states of up to 16 bytes. False: begin again.
 */
bool ask_arriving(struct asking *asking, const struct seen *seen,
                  bool (*land)(const struct asking *asking, const struct seen *seen,
                               struct word16 before, struct word16 after),
                  struct stint_decision *decision);

#endif
