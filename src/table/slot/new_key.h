/* SPDX-License-Identifier: MIT */
/* A key that has no slot in its class: it gets one, or the decision is made without. */
#ifndef STINT_TABLE_SLOT_NEW_KEY_H
#define STINT_TABLE_SLOT_NEW_KEY_H

#include "table/slot/place.h"

/* Whether a verb may need a slot for a key without one: a refund does not. */
static inline bool place_moves_in(uint8_t verb)
{
    return verb != STINT_REFUND && verb != STINT_UNBOOK;
}

enum new_key {
    NEW_KEY_DECIDED,
    NEW_KEY_PUBLISHES, /* in *place */
    NEW_KEY_AGAIN,     /* search for the key once more */
};

/*
 * Handles a key without a slot. *decision is that of a state never used, and `charges` is whether
 * it would write to that; the decision holds if the new key needs no slot.
 */
enum new_key admit_new_key(struct asking *asking, bool charges, struct place *place,
                           struct stint_decision *decision);

#endif
