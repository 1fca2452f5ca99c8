/* SPDX-License-Identifier: MIT */
/* One decision under way, and the operations in which the classes of slots differ. */
#ifndef STINT_TABLE_SLOT_ASKING_H
#define STINT_TABLE_SLOT_ASKING_H

#include "table/handle.h"

#include <assert.h>

/*
 * The effect of a charge: how to take it back exactly, if the state has not changed since, and the
 * time under which it is in the state. Under `log` and `buckets` that is the state's own time if a
 * caller has come with a later one; a refund must name it.
 */
struct undo {
    struct pair *at; /* NULL: nothing to swap back */
    struct pair before, after;
    uint64_t entered_ns;
};

/* The pair that blocked this decision, and how often it was read without a change. */
struct waits {
    const struct pair *at; /* NULL: nothing yet */
    struct pair pair;
    unsigned n;
};

/* One decision under way. */
struct asking {
    struct stint_table *table;
    const struct stint_quota
        *quota; /* this table's own copy, or the caller's: intern_algorithm() */
    const struct slots *slots;
    struct hash128 hash;
    struct home home;
    struct stint_ask ask; /* now_ns is the effective time */
    uint64_t rule; /* of the caller's quota: other algorithms may have kept this key's state */
    uint32_t id;
    struct undo *undo; /* may be NULL */
    uint64_t *holder;  /* concurrency: what take wrote; may be NULL */
    uint64_t own_ns;   /* of a wide state: its own time before this decision */
    struct waits waits;
};

struct place;
struct entry_state;

/*
 * The operations of a class of slots. place8.c, place16.c and wide.c define one each; the files
 * below them reach it by slots->ops.
 */
struct class_ops {
    /* Decides on the key's slot, valid or pending. False: begin again. */
    bool (*ask)(struct asking *asking, struct seen *seen, struct stint_decision *decision);
    /* Decides on a state that was never used; true if this would write to it. */
    bool (*begin)(const struct asking *asking, struct stint_decision *decision);
    /* Takes a slot for the key, unless another thread is faster, and publishes it as pending. */
    void (*publish)(struct asking *asking, struct place *place);
    /* How much the live state in a slot is worth to keep, and until when: place.h. */
    void (*appraise)(const struct asking *asking, const struct stint_quota *quota,
                     struct place *place);
    /*
     * Copies the state of a valid slot. False if the slot has changed, or cannot be read: entry.h.
     * In class 8 a state that has changed is copied as it is now, and *seen is its pair.
     */
    bool (*copy)(struct asking *asking, struct seen *seen, struct entry_state *state);
    /* Makes the state in a slot full until an instant. For a sole user of the table. */
    void (*fill)(struct asking *asking, const struct seen *seen, const struct stint_quota *quota,
                 uint64_t until_ns);
    /*
     * For a key that moves to another class (rule.h): freezes its valid slot, and puts it back. The
     * first stores the result in *seen; false if the slot has changed.
     */
    bool (*freeze)(struct asking *asking, struct seen *seen, const struct entry_state *state,
                   uint64_t until_ns);
    void (*put_back)(struct asking *asking, const struct seen *gone, struct pair valid,
                     const struct entry_state *state);
    /* Until when the units of a frozen slot live; 0 if it is no longer frozen. */
    uint64_t (*frozen_until)(const struct seen *frozen);
    /* Advances a bound slot by one step, for a process that may have ended. NULL: none is bound. */
    void (*help)(struct asking *asking, const struct seen *seen);
    /*
     * For a slot that could not be read because its owner is stuck. False: it stays as it is. NULL:
     * slots have no owner.
     */
    bool (*displace)(struct asking *asking, const struct seen *seen);
    /* Whether a stuck owner may still write to an abandoned slot. NULL: none is abandoned. */
    bool (*is_left)(const struct seen *seen);
};

extern const struct class_ops place8_ops, place16_ops, wide_ops;

/* Whether it refers to a class of its table. Times and states may come from shared memory. */
static inline bool asking_is_valid(const struct asking *asking)
{
    return asking->table != NULL && asking->slots >= asking->table->slots &&
           asking->slots < asking->table->slots + CLASSES && slots_is_valid(asking->slots);
}

/* And whether it is a decision on a key under a quota of that class. */
static inline bool asking_decides(const struct asking *asking)
{
    return asking_is_valid(asking) && slots_is_home(asking->slots, &asking->home) &&
           asking->quota != NULL && asking->quota->derived.checked;
}

/*
 * A thread may be stopped for long after it has computed a new key's time and before it finds that
 * the key has no state; the state may have expired and its slot been reused meanwhile. So the time
 * is checked again: true if it has advanced, and the decision must be repeated.
 */
static inline bool asking_catch_up(struct asking *asking)
{
    uint64_t now_ns = table_effective_for(asking->table, asking->ask.verb, asking->ask.now_ns);
    assert(now_ns >= asking->ask.now_ns);
    uint64_t gone_on_ns = now_ns - asking->ask.now_ns;
    asking->ask.now_ns = now_ns;
    if (asking->ask.verb == STINT_BOOK)
        asking->ask.at_ns = sub_floor(asking->ask.at_ns, gone_on_ns);
    return gone_on_ns > 0;
}

/* Whether a state with this id has the quota's algorithm: equal parameters may have two ids. */
static inline bool asking_same_algorithm(const struct asking *asking, uint64_t tag_word)
{
    assert(asking_decides(asking));
    uint32_t id = (uint32_t)(tag_word & TAG_ID_MASK);
    if (id == asking->id)
        return true;
    const struct stint_quota *writer = intern_quota(&asking->table->intern, id);
    return writer != NULL && intern_same_params(writer, asking->quota);
}

#endif
