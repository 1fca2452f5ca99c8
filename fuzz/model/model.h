/* SPDX-License-Identifier: MIT */
/*
 * Plain slow models of the algorithms, written from their description alone: lists where the
 * library packs bits, 128-bit numbers where it scales, loops where it divides.
 *
 * A model answers a few questions (struct model_algorithm); what the verbs make of them is the same
 * for all and stands in model.c.
 */
#ifndef STINT_FUZZ_MODEL_MODEL_H
#define STINT_FUZZ_MODEL_MODEL_H

#include "stint.h"

#define MODEL_GROUPS_MAX 1024

/* Units that come back together: a bunch, a bucket, units of one instant, a counter's. */
struct model_group {
    uint64_t first_ns, last_ns;
    uint64_t units; /* charged to it */
    uint64_t slot;  /* window only */
};

struct model {
    const struct stint_quota *quota;
    const struct model_algorithm *algorithm;
    uint64_t capacity;
    size_t n_groups;
    struct model_group groups[MODEL_GROUPS_MAX]; /* oldest first */
    uint64_t unused;                             /* window: units left of the last bunch */
    uint64_t displaced;                /* units, by charges, that come back with the oldest group */
    uint64_t begin_ns, end_ns, number; /* of the counter's window; log: latest use */
    uint64_t previous, current;
    unsigned __int128 tat;
};

struct model_algorithm {
    /* Units free at an instant; 0 in debt. */
    uint64_t (*space)(const struct model *model, uint64_t now_ns);
    /* The least wait after which a cost fits that does not fit now. */
    uint64_t (*wait)(const struct model *model, uint64_t now_ns, uint64_t cost);
    /* Records units as used. */
    void (*spend)(struct model *model, uint64_t now_ns, uint64_t units);
    /* Whether more is charged than the capacity; NULL: never. */
    bool (*in_debt)(const struct model *model, uint64_t now_ns);
    /* Records units whether they fit or not; NULL: as many as are chargeable. */
    void (*charge)(struct model *model, uint64_t now_ns, uint64_t units);
    /* How many units the state can be charged with; NULL: the capacity. */
    uint64_t (*chargeable)(const struct model *model, uint64_t now_ns);
    /* The instant from which the state is the same as never used. */
    uint64_t (*expires_at)(const struct model *model, uint64_t now_ns);
    /* Gives units back; returns how many came back. NULL: not modelled. */
    uint64_t (*refund)(struct model *model, const struct stint_ask *ask);
    /* When a group comes back, for algorithms that have groups. */
    uint64_t (*group_end)(const struct model *model, const struct model_group *group);
};

extern const struct model_algorithm model_window, model_buckets, model_log, model_gcra,
    model_fixed_window, model_sliding_counter;

void model_init(struct model *model, const struct stint_quota *quota);

/*
 * The decision that the library owes. `first_use` windows begin up to two grains after the use; so
 * *real (its decision) tells the model when, and is held to that.
 */
struct stint_decision model_ask(struct model *model, const struct stint_ask *ask,
                                const struct stint_decision *real);

/* The bound of docs/semantics.md, 4.1, worked out anew. */
uint64_t model_bound(const struct stint_quota *quota);

/* Forgets the oldest groups. */
void model_forget(struct model *model, size_t n_groups);

#endif
