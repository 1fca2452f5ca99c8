/* SPDX-License-Identifier: MIT */
/* A private copy of one slot's state with its quota: for inspection, carrying over, repair. */
#ifndef STINT_TABLE_SLOT_ENTRY_H
#define STINT_TABLE_SLOT_ENTRY_H

#include "table/slot/asking.h"

struct entry_state {
    const struct stint_quota *quota;
    struct pair held; /* class 16: as it is beside the tag */
    union {
        uint64_t word8;
        struct word16 word16;
        _Alignas(16) unsigned char bytes[WIDE_STATE_MAX];
    } as;
};

/* The quota of a slot's tag; NULL if it is none of this class, or has states too wide for it. */
const struct stint_quota *entry_quota(const struct asking *asking, uint64_t tag_word);

/*
 * The latest time that a state can hold, if no decision was later than now. Units carried over from
 * another quota were charged at their latest possible time, which under a window is the end of its
 * slot, and of a booking its start: at most a period of that quota after now.
 */
uint64_t entry_asked_max_ns(const struct stint_table *table, uint64_t now_ns);

/* For reading the slots of a class at a time, in a table that others use meanwhile. */
struct asking entry_looking(const struct stint_table *table, enum slot_class class,
                            uint64_t now_ns);

/* False if the slot holds no valid state, or changed while it was read. *seen is what was read. */
bool entry_read(struct asking *asking, struct seen *seen, struct entry_state *state);

/*
 * The same for a slot that others may use meanwhile: it is read until that succeeds, or the key has
 * no state there. False, too, if another thread is stuck in a change of it.
 */
bool entry_await(struct asking *asking, struct seen *seen, struct entry_state *state);

/* Writes to *carried what a state under `from` (NULL: nothing) holds, under the asking quota. */
void entry_carry(const struct asking *asking, const struct stint_quota *from, const void *state,
                 void *carried);

/*
 * For a state that could not be read: it has changed, its owner is stuck, or it is damaged. False:
 * its owner is stuck, and there is no block for its key, so it stays.
 */
bool entry_get_past(struct asking *asking, const struct seen *seen);

#endif
