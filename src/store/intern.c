/* SPDX-License-Identifier: MIT */
/* Interning quotas: append-only, lock-free, bounded. */
#include "store/intern.h"

#include <stdlib.h>
#include <string.h>

int intern_open(struct intern *intern, const struct region *region, struct stint_error *error)
{
    memset(intern, 0, sizeof(*intern));
    intern->region = region;
    intern->max = region->fixed.quotas_max;
    intern->slots = region_at(region, region->fixed.quotas_offset);
    intern->copies = calloc(intern->max, sizeof(*intern->copies));
    if (intern->copies == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for %u quotas", intern->max);
    return 0;
}

void intern_close(struct intern *intern)
{
    free(intern->copies);
}

/* Whether the flags are such: reading any other byte as one is not defined. */
static bool has_flags(const struct stint_quota *quota)
{
    unsigned char count_denied, initial_set;
    memcpy(&count_denied, &quota->count_denied, 1);
    memcpy(&initial_set, &quota->initial_set, 1);
    return count_denied <= 1 && initial_set <= 1;
}

/* Whether the table has a place for states of this quota: what decides counts on it. */
static bool has_place(const struct intern *intern, const struct stint_quota *quota)
{
    const struct class_layout *wide = &intern->region->fixed.classes[CLASS_WIDE];
    return quota->derived.state_size <= 2 * sizeof(uint64_t) ||
           (wide->sets > 0 && quota->derived.state_size <= wide->state_size);
}

/*
 * A checked copy of what slot i holds, with this table's epoch; false for what is no quota, or none
 * of this table.
 */
static bool copy_quota(const struct intern *intern, uint32_t i, struct stint_quota *copy)
{
    /* acquire: the quota was written before the slot was called ready. */
    if (__atomic_load_n(&intern->slots[i].state, __ATOMIC_ACQUIRE) != QUOTA_SLOT_READY)
        return false;
    memcpy(copy, &intern->slots[i].quota, sizeof(*copy));
    if (!has_flags(copy) || stint_quota_check(copy, NULL) != 0 || !has_place(intern, copy))
        return false;
    copy->epoch_ns = intern->region->epoch_ns;
    return true;
}

const struct stint_quota *intern_quota_slow(struct intern *intern, uint32_t id)
{
    if (id - 1 >= intern->max)
        return NULL;
    struct quota_slot *copy = &intern->copies[id - 1];
    struct stint_quota quota;
    for (;;) {
        /* acquire: the copy was written before it was called ready. */
        uint64_t state = __atomic_load_n(&copy->state, __ATOMIC_ACQUIRE);
        if (state == QUOTA_SLOT_READY)
            return &copy->quota;
        if (state == QUOTA_SLOT_WRITING)
            continue; /* another thread of this process is copying 200 bytes */
        if (!copy_quota(intern, id - 1, &quota))
            return NULL;
        /* acquire and release: one thread writes, the others see it whole. */
        if (__atomic_compare_exchange_n(&copy->state, &state, QUOTA_SLOT_WRITING, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            copy->quota = quota;
            __atomic_store_n(&copy->state, QUOTA_SLOT_READY, __ATOMIC_RELEASE);
        }
    }
}

static uint32_t find_id(struct intern *intern, const struct stint_quota *quota, uint32_t used)
{
    for (uint32_t id = 1; id <= used; id++) {
        const struct stint_quota *known = intern_quota(intern, id);
        if (known != NULL && intern_same_params(known, quota))
            return id;
    }
    return 0;
}

/*
 * Two processes that intern the same quota at the same moment may give it two ids. Nothing
 * depends on there being one: equal parameters read each other's states.
 */
static uint32_t append(struct intern *intern, const struct stint_quota *quota)
{
    uint64_t *next = &intern->region->header->quotas;
    /* relaxed: the number only reserves a place; the place's own state orders what is in it. */
    uint64_t i = __atomic_load_n(next, __ATOMIC_RELAXED);
    do {
        if (i >= intern->max)
            return 0;
    } while (
        !__atomic_compare_exchange_n(next, &i, i + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    struct quota_slot *slot = &intern->slots[i];
    __atomic_store_n(&slot->state, QUOTA_SLOT_WRITING, __ATOMIC_RELAXED);
    slot->quota = *quota;
    slot->quota.epoch_ns = 0;
    slot->quota.rule = 0; /* shared by all rules with these parameters */
    /* release: whoever sees it ready sees the quota. */
    __atomic_store_n(&slot->state, QUOTA_SLOT_READY, __ATOMIC_RELEASE);
    return (uint32_t)i + 1;
}

uint32_t intern_id_slow(struct intern *intern, const struct stint_quota *quota)
{
    /* acquire: pairs with nothing that must be seen; a quota missed here is interned twice. */
    uint64_t used = __atomic_load_n(&intern->region->header->quotas, __ATOMIC_ACQUIRE);
    uint32_t id = find_id(intern, quota, used < intern->max ? (uint32_t)used : intern->max);
    if (id == 0 && !intern->region->read_only && has_place(intern, quota))
        id = append(intern, quota);
    /* The copy is what decides: another may have written to the region in between. */
    const struct stint_quota *known = id != 0 ? intern_quota(intern, id) : NULL;
    if (known == NULL || !intern_same_params(known, quota))
        return 0;
    const uint64_t *hash = quota->derived.params_hash;
    struct quota_cache *cached = &intern->cache[hash[0] % QUOTA_CACHE_SIZE];
    __atomic_store_n(&cached->hash_first, hash[0], __ATOMIC_RELAXED);
    __atomic_store_n(&cached->hash_second_and_id, (hash[1] & ~QUOTA_ID_MASK) | id,
                     __ATOMIC_RELAXED);
    return id;
}

void intern_mend(struct intern *intern)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < intern->max; i++) {
        struct quota_slot *slot = &intern->slots[i];
        if (slot->state == QUOTA_SLOT_EMPTY)
            continue;
        if (intern_quota(intern, i + 1) != NULL)
            used = i + 1;
        else
            slot->state = QUOTA_SLOT_EMPTY; /* damaged, or its writer died */
    }
    if (intern->region->header->quotas != used)
        intern->region->header->quotas = used;
}

uint64_t intern_period_max(struct intern *intern)
{
    uint64_t used = __atomic_load_n(&intern->region->header->quotas, __ATOMIC_RELAXED);
    uint64_t longest_ns = 0;
    for (uint32_t id = 1; id <= used && id <= intern->max; id++) {
        const struct stint_quota *quota = intern_quota(intern, id);
        if (quota != NULL && quota->period_ns > longest_ns)
            longest_ns = quota->period_ns;
    }
    return longest_ns;
}
