/* SPDX-License-Identifier: MIT */
/* A private copy of one slot's state with its quota: for looking inside, carrying over, repairing. */
#ifndef STINT_STORE_ENTRY_H
#define STINT_STORE_ENTRY_H

#include "store/place.h"

struct entry_state {
    const struct stint_quota *quota;
    uint8_t class;
    union {
        uint64_t word8;
        struct word16 word16;
        _Alignas(16) unsigned char bytes[WIDE_STATE_MAX];
    } as;
};

/* False if the slot holds no valid state, or changed while it was read. */
bool entry_read(struct asking *asking, const struct seen *seen, struct entry_state *state);

struct stint_decision entry_peek(struct entry_state *state, uint64_t now_ns);
uint64_t entry_dies_at(const struct entry_state *state);

/* What the state in a slot holds at now; false if it changed while it was read. */
bool entry_runs(struct asking *asking, const struct seen *seen, uint64_t now_ns,
                struct held_run *runs, size_t *n_runs);

/* Makes the state in a slot full until an instant. For a table that nobody else has open. */
void entry_fill(struct asking *asking, const struct seen *seen, struct entry_state *state,
                uint64_t until_ns);

/* Writes a copied wide state into a slot's memory that nobody shares. */
void wide_paste(const struct asking *asking, void *slot_state, const struct entry_state *state);

#endif
