/* SPDX-License-Identifier: MIT */
/*
 * Deciding within one class of slots. place8, place16 and wide each find the key's slot, let the
 * algorithm work on its state and swap; they share the choice of a new key's slot, and the decision
 * when there is none.
 */
#ifndef STINT_TABLE_SLOT_PLACE_H
#define STINT_TABLE_SLOT_PLACE_H

#include "table/table.h"

/*
 * For a key that moves to another class (rule.h): freezes its valid slot, and puts it back. The
 * first stores the result in *seen; false if the slot has changed.
 */
bool place16_freeze(struct asking *asking, struct seen *seen, struct pair held, uint64_t until_ns);
void place16_put_back(struct asking *asking, const struct seen *gone, uint64_t tag_word,
                      struct pair held);
/* Advances a bound slot by one step, for a process that may have ended. */
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
 * For a slot that wide_copy() could not read: if its owner is stuck, its key is displaced, as in
 * any other decision. asking->quota is that of the slot.
 */
void wide_displace(struct asking *asking, const struct seen *seen);

/* A copy of the state in a wide slot; false if its owner is stuck or it has changed. */
bool wide_copy(struct asking *asking, const struct seen *seen, void *bytes);

/* The state in a wide slot, for a sole user of the table. */
const void *wide_bytes(const struct seen *seen);
bool wide_is_valid(const struct seen *seen, const struct stint_quota *quota, uint64_t now_ns);
bool wide_is_at_work(const struct seen *seen);
/* Frees its owner word, and stores its expiry for those that search for a slot. */
void wide_free(const struct seen *seen, uint64_t expires_at_ns);

/* Makes a wide state full, and frees its owner word. For a sole user of the table. */
void wide_fill(struct asking *asking, const struct seen *seen, const struct stint_quota *quota,
               uint64_t until_ns);

/* The content of a slot, as it matters to a new key; in the order in which slots are taken. */
enum worth {
    WORTH_EMPTY,   /* or expired: nothing is lost */
    WORTH_PENDING, /* another new key, which then has to begin again */
    WORTH_EVICT,   /* live, not denying, under a quota that allows eviction */
    WORTH_KEEP,
};

struct place {
    struct seen seen;  /* the slot to take; .at is NULL if there is none */
    struct pair state; /* class 16: the state that is evicted */
    enum worth worth;
    bool is_damaged;        /* its quota is none: no request can refer to its key */
    uint32_t held_units;    /* WORTH_EVICT: units in use, which are forgotten with the state */
    uint32_t share;         /* WORTH_EVICT: of capacity in use, in 1/2^32 */
    uint64_t died_at_ns;    /* WORTH_EMPTY: when the state in it expired; 0: there is none */
    uint64_t expires_at_ns; /* WORTH_KEEP: when the first of all that are kept expires */
};

/* Examines both sets of the key. An expired state counts as free table_grace_ns() later. */
struct place place_choose(const struct asking *asking);

/* Whether, and at what cost, the live state of `place` may be evicted; *stands: nothing taken. */
void place_weigh(const struct stint_decision *stands, struct place *place);

/* Counts the kind of slot that a new key has taken. */
void place_count(const struct asking *asking, const struct place *place);

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

/*
 * The state in a wide slot with nothing taken; false if the slot has changed or its owner is at
 * work. Does not wait: such a state is in use, and not one to evict.
 */
bool wide_stands(const struct asking *asking, const struct seen *seen,
                 const struct stint_quota *quota, struct stint_decision *stands);

/* When the state in a wide slot expires, and whether a stuck owner may still write to it. */
uint64_t wide_expires_at(const struct seen *seen);
bool wide_is_left(const struct seen *seen);

#endif
