/* SPDX-License-Identifier: MIT */
/*
 * Quotas under small numbers. The region holds equal parameters once; a slot refers to them by an
 * id of 15 bits. Every process keeps its own checked copies, so that no decision trusts data read
 * from shared memory.
 */
#ifndef STINT_TABLE_INTERN_H
#define STINT_TABLE_INTERN_H

#include "base/limits.h"
#include "table/region/region.h"

#define QUOTA_ID_BITS 15
#define QUOTA_ID_MASK ((UINT64_C(1) << QUOTA_ID_BITS) - 1)
/*
 * Ids above the table's own: a gcra quota without an entry has the id TABLE_QUOTAS_MAX + k, where
 * 2^k is the least power of two that its capacity in ticks does not exceed.
 */
#define FALLBACK_LOG2_MIN 15
#define FALLBACK_LOG2_MAX 63
#define FALLBACKS (FALLBACK_LOG2_MAX - FALLBACK_LOG2_MIN + 1)
#define QUOTA_CACHE_SIZE 1024

enum quota_slot_state {
    QUOTA_SLOT_EMPTY = 0,
    QUOTA_SLOT_WRITING = 1, /* stays so if its writer ends: one entry is lost, nothing else */
    QUOTA_SLOT_READY = 2,
};

struct quota_slot {
    uint64_t state;
    struct stint_quota quota;
};

struct quota_cache {
    uint64_t hash_first;
    uint64_t hash_second_and_id;
};

struct intern {
    const struct region *region;
    struct quota_slot *slots;  /* in the region; id 1 is slots[0] */
    struct quota_slot *copies; /* this process's own, by the same index */
    uint32_t max;
    uint32_t reserved; /* entries for intern_keep() alone */
    /* This process's own index of them, by a keyed hash; an id, or 0 for a free entry. */
    uint16_t *index;
    uint32_t index_mask;
    uint32_t indexed; /* entries that were entered in it */
    struct stint_quota fallbacks[FALLBACKS];
    struct quota_cache cache[QUOTA_CACHE_SIZE];
};

int intern_open(struct intern *intern, const struct region *region, struct stint_error *error);
void intern_close(struct intern *intern);

/* The id of a checked quota's entry, created if new; may be a reserved one. 0: none is free. */
uint32_t intern_keep(struct intern *intern, const struct stint_quota *quota);

uint32_t intern_id_slow(struct intern *intern, const struct stint_quota *quota);
uint32_t intern_entry_id_slow(struct intern *intern, const struct stint_quota *quota);

/* The quota of an id; NULL for an id without a quota (a damaged slot). */
const struct stint_quota *intern_quota_slow(struct intern *intern, uint32_t id);

/* Drops entries that are no quotas, and recounts those in use. No other process has the region. */
void intern_repair(struct intern *intern);

/* The longest period of all quotas; 0 without any. */
uint64_t intern_period_max(struct intern *intern);

/* Whether this process's copies are as intern_open() made them. */
static inline bool intern_is_valid(const struct intern *intern)
{
    return intern->region != NULL && intern->copies != NULL && intern->index != NULL &&
           intern->max == intern->region->fixed.quotas_max && intern->reserved <= intern->max &&
           (intern->index_mask & (intern->index_mask + 1)) == 0;
}

static inline bool intern_same_params(const struct stint_quota *a, const struct stint_quota *b)
{
    return a->derived.params_hash[0] == b->derived.params_hash[0] &&
           a->derived.params_hash[1] == b->derived.params_hash[1];
}

/*
 * An id under which states of a checked quota can be stored: that of its entry, created if new, or
 * its fallback id. 0: there is neither.
 */
static inline uint32_t intern_id(struct intern *intern, const struct stint_quota *quota)
{
    const uint64_t *hash = quota->derived.params_hash;
    struct quota_cache *cached = &intern->cache[hash[0] % QUOTA_CACHE_SIZE];
    /* relaxed: an entry mixed from two writers fails the comparison. */
    uint64_t first = __atomic_load_n(&cached->hash_first, __ATOMIC_RELAXED);
    uint64_t second = __atomic_load_n(&cached->hash_second_and_id, __ATOMIC_RELAXED);
    if (first == hash[0] && ((second ^ hash[1]) & ~QUOTA_ID_MASK) == 0)
        return (uint32_t)(second & QUOTA_ID_MASK);
    return intern_id_slow(intern, quota);
}

static inline const struct stint_quota *intern_quota(struct intern *intern, uint32_t id)
{
    if (id - 1 < intern->max) {
        struct quota_slot *copy = &intern->copies[id - 1];
        /* acquire: the copy was written before it was marked ready. */
        if (__atomic_load_n(&copy->state, __ATOMIC_ACQUIRE) == QUOTA_SLOT_READY)
            return &copy->quota;
    }
    return intern_quota_slow(intern, id);
}

/*
 * A fallback id: that of a gcra quota without an entry. Many quotas share it: a TAT means the same
 * under every rate. The fallback quota serves readers that find a state and do not know its quota.
 * Its parameters are conservative: they give the state no fewer units, and no smaller capacity,
 * than its own quota does, and the state is never evicted.
 */
static inline bool intern_is_fallback(const struct intern *intern, uint32_t id)
{
    return id > TABLE_QUOTAS_MAX && id > intern->max;
}

/* The id of a checked quota's entry, created if new; 0 if none is free. */
static inline uint32_t intern_entry_id(struct intern *intern, const struct stint_quota *quota)
{
    uint32_t id = intern_id(intern, quota);
    return intern_is_fallback(intern, id) ? intern_entry_id_slow(intern, quota) : id;
}

/* The quota that decides, for a checked quota with this id. */
static inline const struct stint_quota *intern_algorithm(struct intern *intern, uint32_t id,
                                                         const struct stint_quota *quota)
{
    return intern_is_fallback(intern, id) ? quota : intern_quota(intern, id);
}

#endif
