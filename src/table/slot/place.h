/* SPDX-License-Identifier: MIT */
/* The choice of a new key's slot. */
#ifndef STINT_TABLE_SLOT_PLACE_H
#define STINT_TABLE_SLOT_PLACE_H

#include "table/slot/asking.h"

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

/* Examines the sets of the key. An expired state counts as free table_grace_ns() later. */
struct place place_choose(const struct asking *asking);

/* For the appraisal of a class: sets when the state of `place` expires. */
void place_appraise_life(const struct asking *asking, uint64_t expires_at_ns, struct place *place);
bool place_may_be_evicted(const struct asking *asking, const struct stint_quota *quota,
                          const struct place *place);
/* Whether, and at what cost, the live state of `place` may be evicted; *stands: nothing taken. */
void place_weigh(const struct stint_decision *stands, struct place *place);
/* All three, for a copy of a state. */
void place_appraise_state(const struct asking *asking, const struct stint_quota *quota, void *state,
                          struct place *place);

/* Counts the kind of slot that a new key has taken. */
void place_count(const struct asking *asking, const struct place *place);

#endif
