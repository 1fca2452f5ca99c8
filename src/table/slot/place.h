/* SPDX-License-Identifier: MIT */
/*
 * Deciding within one class of slots. place8, place16 and wide each find the key's slot, let the
 * algorithm work on its state and swap; they share how a new key's place is chosen, and what is
 * said when there is none.
 */
#ifndef STINT_TABLE_SLOT_PLACE_H
#define STINT_TABLE_SLOT_PLACE_H

#include "table/table.h"

/*
 * For a key that moves to another class (rule.h): its valid slot freezes, and is put back.
 * The first says so in *seen; false if the slot has changed.
 */
bool place16_freeze(struct asking *asking, struct seen *seen, struct pair held, uint64_t until_ns);
void place16_put_back(struct asking *asking, const struct seen *gone, uint64_t tag_word,
                      struct pair held);
/* Brings a bound slot one step on its way, for somebody who may be dead. */
void place16_help(struct asking *asking, const struct seen *seen);
bool wide_freeze(struct asking *asking, struct seen *seen, const void *bytes, uint64_t until_ns);
void wide_put_back(struct asking *asking, const struct seen *gone, struct pair valid,
                   const void *bytes);

struct stint_decision place8_ask(struct asking *asking);
struct stint_decision place16_ask(struct asking *asking);
struct stint_decision wide_ask(struct asking *asking);

/* Of the key's valid state, if it has one. */
bool wide_release(struct asking *asking, uint64_t holder, uint32_t *units);
bool wide_renew(struct asking *asking, uint64_t *holder);
void wide_forget(struct asking *asking);

/* Forgets the state in a slot if it is still the same as `bytes`. */
bool wide_forget_same(struct asking *asking, const struct seen *seen, const void *bytes);

/*
 * For a slot that wide_copy() could not read: if its owner is stuck, its key is displaced as by any
 * other asker. asking->quota is that of the slot.
 */
void wide_displace(struct asking *asking, const struct seen *seen);

/* A copy of what stands in a wide slot; false if its owner is stuck or it has changed. */
bool wide_copy(struct asking *asking, const struct seen *seen, void *bytes);

/* For a table that nobody else has open: what stands in a wide slot. */
const void *wide_bytes(const struct seen *seen);
bool wide_is_valid(const struct seen *seen, const struct stint_quota *quota, uint64_t now_ns);
bool wide_is_at_work(const struct seen *seen);
/* Its owner word is free, and when it expires is known to those who look for a place. */
void wide_free(const struct seen *seen, uint64_t expires_at_ns);

/* Makes a wide state full, and its owner word free. For a table that nobody else has open. */
void wide_fill(struct asking *asking, const struct seen *seen, const struct stint_quota *quota,
               uint64_t until_ns);

/* What stands in a slot, as far as a new key cares; in the order in which it takes them. */
enum worth {
    WORTH_EMPTY,   /* or dead: nothing is lost */
    WORTH_PENDING, /* somebody else's new key, who then has to begin again */
    WORTH_EVICT,   /* alive, not denying, under a quota that lets it go */
    WORTH_KEEP,
};

struct place {
    struct seen seen;  /* the slot to take; .at is NULL if there is none */
    struct pair state; /* class 16: the state that goes */
    enum worth worth;
    bool is_damaged;        /* its quota is none: its key cannot be asked for */
    uint32_t held_units;    /* WORTH_EVICT: units in use, which are forgotten with the state */
    uint32_t share;         /* WORTH_EVICT: of capacity in use, in 1/2^32 */
    uint64_t died_at_ns;    /* WORTH_EMPTY: the state in it; 0 where there is none */
    uint64_t expires_at_ns; /* WORTH_KEEP: when the first of all that are kept expires */
};

/* Looks at both sets of the key. A dead state counts as free table_grace_ns() after its death. */
struct place place_choose(const struct asking *asking);

/* What a live state stands at, nothing taken: whether and at what cost `place` may be evicted. */
void place_weigh(const struct stint_decision *stands, struct place *place);

/* Counts what was the fallback a place that a new key has taken. */
void place_count(const struct asking *asking, const struct place *place);

/* Whether a verb may need a place for a key that has none: nothing comes back to such a key. */
static inline bool place_moves_in(uint8_t verb)
{
    return verb != STINT_REFUND && verb != STINT_UNBOOK;
}

enum new_key {
    NEW_KEY_DECIDED,
    NEW_KEY_PUBLISHES, /* in *place */
    NEW_KEY_AGAIN,     /* the key is to be looked for once more */
};

/*
 * What comes of a key without a slot. *decision is what the algorithm says of a state never used,
 * and `charges` whether it would write to that; it stands if the new key gets by without a place.
 */
enum new_key admit_new_key(struct asking *asking, bool charges, struct place *place,
                           struct stint_decision *decision);

/*
 * What the state in a wide slot stands at; false if the slot has changed or its owner is at work.
 * Does not wait: such a state is in use, and no good one to evict.
 */
bool wide_stands(const struct asking *asking, const struct seen *seen,
                 const struct stint_quota *quota, struct stint_decision *stands);

/* When the state in a wide slot expires, and whether a stuck owner may still write to it. */
uint64_t wide_expires_at(const struct seen *seen);
bool wide_is_left(const struct seen *seen);

#endif
