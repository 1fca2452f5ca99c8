/* SPDX-License-Identifier: MIT */
/*
 * One key under one rule, whose quotas have states of different sizes: in which class it stands.
 *
 * The key's hash is that of its rule, so it can be looked for in every class. It may be valid in
 * one class only, or it would have its limit twice. So whoever asks under a rule and has published
 * a pending slot (slots.h) looks in the other classes too before that becomes valid, and
 *   removes what is pending there and comes after its own, in the order of classes, and waits for
 *     what comes before; what stands still for long is a dead thread's, and is removed, too;
 *   decides with the units of what is valid there. If none is granted, all stays where it is: the
 *     other algorithm may hold more than this one can say. Else it freezes that slot: its tag word
 * becomes that of one on the move (pending, without a quota's id), which gives way to nobody; the
 * units go into the pending slot, which is made valid; then the frozen slot is withdrawn. If the
 *     pending slot was lost meanwhile, the frozen one is put back as it was.
 * While a slot is frozen, nobody but its mover makes anything of the key valid: others wait, and if
 * that takes long, deny. The slot says until when the old units live; should the mover have died,
 * the key is full until then, and the slot is gone after.
 *
 * Why two can never both be valid: say X and Y are, and X was made so first. Y's maker looked after
 * Y was published. If it saw X pending, it removed it, or waited until it was something else; if
 * valid, it froze it; if frozen, it began again. If it did not see X, then X was published later,
 * and X's maker, looking later still, saw Y pending and removed it, or waited until it was gone.
 * In no case can both swaps succeed that make them valid, since no publication is like another.
 * That a frozen slot is put back changes nothing: all others took it for valid all the time.
 *
 * A frozen slot beside a valid one is what a mover left who was stopped or killed between his last
 * two steps: nobody else could make one valid. Anyone may withdraw it, having seen it first and the
 * valid one after.
 */
#ifndef STINT_TABLE_SLOT_RULE_H
#define STINT_TABLE_SLOT_RULE_H

#include "table/slot/entry.h"

enum rule_found {
    RULE_ALONE,   /* no other class has the key */
    RULE_OTHER,   /* another has, and units are to be charged upon its own */
    RULE_AGAIN,   /* somebody is in the way: look for the key once more, after rule_pause() */
    RULE_DECIDED, /* *decision is made, and needs no slot here */
};

/* A state on its way from another class. */
struct rule_move {
    struct asking from;      /* the class it comes from; .slots is NULL if there is none */
    struct seen valid, gone; /* its slot as it was, and frozen */
    struct entry_state state;
    struct held_run runs[HELD_RUNS_MAX];
    size_t n_runs; /* 0: nothing moves, the key begins with a state never used */
};

/* For a key without a state in its own class; RULE_ALONE at once where there is no rule. */
enum rule_found rule_look(struct asking *asking, struct stint_decision *decision);

/*
 * Settles a pending slot of the asking key against its own class and all others. After ALONE and
 * OTHER it may be made valid, with move->runs; after OTHER, where those are frozen in their slot,
 * what came of it must be told.
 */
enum rule_found rule_arrive(struct asking *asking, const struct seen *mine, struct rule_move *move,
                            struct stint_decision *decision);
void rule_arrived(const struct rule_move *move);
void rule_put_back(struct rule_move *move);

/* The key's slot in its own class is frozen. True if *decision denies; else look again. */
bool rule_meet(struct asking *asking, const struct seen *frozen, struct stint_decision *decision);

/* Lets others go on, for whoever waits for them. Not to be called with an owner word held. */
void rule_pause(struct asking *asking);

/* Waits a moment for what stands in the way; false if it has stood there unchanged for long. */
bool rule_waits(struct asking *asking, const struct seen *seen);

/* Denies because the units stay elsewhere until an instant. */
void rule_refuse(const struct asking *asking, uint64_t until_ns, struct stint_decision *decision);

/* Until when the units of a frozen slot live; 0 if it is none any more. */
uint64_t rule_frozen_until(const struct slots *slots, const struct seen *frozen);

#endif
