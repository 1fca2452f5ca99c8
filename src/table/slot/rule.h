/* SPDX-License-Identifier: MIT */
/*
 * One key under one rule, whose quotas have states of different sizes: in which class it is.
 *
 * The key's hash is that of its rule, so every class can be searched for it. It may be valid in one
 * class only, or it would have its limit twice. So a thread that has published a pending slot
 * (slots.h) under a rule searches the other classes too before that becomes valid, and
 *   removes pending slots in classes after its own, and waits for those in classes before it; a
 *     slot that does not change for long belongs to an ended thread, and is removed, too;
 *   decides with the units of a valid slot there. If none is granted, that slot stays: the other
 *     algorithm may hold more than this one can represent. Else the thread freezes that slot: its
 *     tag word becomes that of a slot on the move (pending, without a quota's id), which is never
 *     removed; the units go into the pending slot, which is made valid; then the frozen slot is
 *     withdrawn. If the pending slot was lost meanwhile, the frozen one is put back as it was.
 * While a slot is frozen, only its mover makes anything of the key valid: others wait, and if that
 * takes long, deny. The slot holds the time until which the old units live; if the mover has ended,
 * the key is full until then, and the slot is withdrawn after.
 *
 * Proof that two can never both be valid: assume X and Y are, and X became so first. Y's maker
 * searched after Y was published. If it saw X pending, it removed it, or waited until it changed;
 * if valid, it froze it; if frozen, it began again. If it did not see X, then X was published
 * later, and X's maker, searching later still, saw Y pending and removed it, or waited until it was
 * gone. In no case can both swaps that make them valid succeed, since every publication is unique.
 * A frozen slot that is put back changes nothing: all others treated it as valid all the time.
 *
 * A frozen slot beside a valid one was left by a mover that stopped or ended between its last two
 * steps: no other thread could make one valid. Any thread may withdraw it if it saw the frozen slot
 * first and the valid one after.
 */
#ifndef STINT_TABLE_SLOT_RULE_H
#define STINT_TABLE_SLOT_RULE_H

#include "table/slot/entry.h"

enum rule_found {
    RULE_ALONE,   /* no other class has the key */
    RULE_OTHER,   /* another has, and units are to be charged upon its own */
    RULE_AGAIN,   /* another thread is at work: search once more, after rule_pause() */
    RULE_DECIDED, /* *decision is made, and needs no slot here */
};

/* A state on its way from another class. */
struct rule_move {
    struct asking from;      /* the class it comes from; .slots is NULL if there is none */
    struct seen valid, gone; /* its slot as it was, and frozen */
    struct entry_state state;
    struct held_run runs[HELD_RUNS_MAX];
    size_t n_runs; /* 0: no unit moves, the key begins with a state never used */
};

/* For a key without a state in its own class; returns RULE_ALONE at once if there is no rule. */
enum rule_found rule_look(struct asking *asking, struct stint_decision *decision);

/*
 * Settles a pending slot of the key against its own class and all others. After ALONE and OTHER it
 * may be made valid, with move->runs; after OTHER, which froze those in their slot, the caller must
 * report the outcome.
 */
enum rule_found rule_arrive(struct asking *asking, const struct seen *mine, struct rule_move *move,
                            struct stint_decision *decision);
void rule_arrived(const struct rule_move *move);
void rule_put_back(struct rule_move *move);

/*
 * Freezes the valid slot of a move whose state was read; false if it has changed since. Report the
 * outcome, as after OTHER.
 */
bool rule_freeze(struct rule_move *move);

/* The key's slot in its own class is frozen. True if *decision denies; else search again. */
bool rule_meet(struct asking *asking, const struct seen *frozen, struct stint_decision *decision);

/* Denies a key that is blocked because its state was left to a stuck owner. */
bool rule_is_blocked(const struct asking *asking, struct stint_decision *decision);

/* Lets other threads run, while waiting for them. Do not call with an owner word held. */
void rule_pause(struct asking *asking);

/* Waits briefly for the slot that blocks this one; false if it has not changed for long. */
bool rule_waits(struct asking *asking, const struct seen *seen);

/* Denies because the units stay elsewhere until an instant. */
void rule_refuse(const struct asking *asking, uint64_t until_ns, struct stint_decision *decision);

#endif
