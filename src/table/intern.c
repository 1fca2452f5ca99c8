/* SPDX-License-Identifier: MIT */
/*
 * Interning quotas: append-only, lock-free, bounded. An entry is never reused for another quota: a
 * thread of any process may still be about to write its id into a slot.
 */
#include "table/intern.h"

#include "algorithm/gcra.h"
#include "base/siphash.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_TWEAK UINT64_C(0x71756f746173)
/* A fallback divides a capacity into this many units; a quota of half as many has no more units. */
#define FALLBACK_UNITS_LOG2 31

static uint32_t index_size(uint32_t max)
{
    assert(max > 0);
    uint32_t size = 2;
    while (size < 2 * max)
        size *= 2;
    return size;
}

/* A burst takes 2^log2 ticks to refill. */
static struct stint_quota fallback(unsigned log2, int64_t epoch_ns)
{
    assert(log2 >= FALLBACK_LOG2_MIN && log2 <= FALLBACK_LOG2_MAX);
    unsigned units_log2 = log2 < FALLBACK_UNITS_LOG2 ? log2 : FALLBACK_UNITS_LOG2;
    struct stint_quota quota = {.algorithm = STINT_GCRA,
                                .limit = UINT32_C(1) << units_log2,
                                .period_ns = UINT64_C(1) << (log2 - GCRA_TICKS_PER_NS_LOG2),
                                .when_full = STINT_FULL_INHERIT};
    int code = stint_quota_check(&quota, NULL);
    assert(code == 0 && quota.derived.capacity_ticks == UINT64_C(1) << log2);
    (void)code;
    quota.epoch_ns = epoch_ns;
    return quota;
}

static uint32_t fallback_id(const struct intern *intern, const struct stint_quota *quota)
{
    uint64_t capacity_ticks = quota->derived.capacity_ticks;
    unsigned log2 = FALLBACK_LOG2_MIN;
    if (quota->algorithm != STINT_GCRA || quota->burst > UINT32_C(1) << (FALLBACK_UNITS_LOG2 - 1) ||
        capacity_ticks > UINT64_C(1) << FALLBACK_LOG2_MAX)
        return 0;
    while (capacity_ticks > UINT64_C(1) << log2)
        log2++;
    return intern_is_fallback(intern, TABLE_QUOTAS_MAX + log2) ? TABLE_QUOTAS_MAX + log2 : 0;
}

int intern_open(struct intern *intern, const struct region *region, struct stint_error *error)
{
    memset(intern, 0, sizeof(*intern));
    intern->region = region;
    intern->max = region->fixed.quotas_max;
    intern->slots = region_at(region, region->fixed.quotas_offset);
    intern->copies = calloc(intern->max, sizeof(*intern->copies));
    intern->index_mask = index_size(intern->max) - 1;
    intern->index = calloc(intern->index_mask + 1, sizeof(*intern->index));
    if (intern->copies == NULL || intern->index == NULL) {
        intern_close(intern);
        return err_set(error, STINT_E_SYSTEM, "no memory for %u quotas", intern->max);
    }
    assert(intern_is_valid(intern));
    for (unsigned i = 0; i < FALLBACKS; i++)
        intern->fallbacks[i] = fallback(FALLBACK_LOG2_MIN + i, region->epoch_ns);
    return 0;
}

void intern_close(struct intern *intern)
{
    free(intern->copies);
    free(intern->index);
}

/* Whether the bytes of flags are 0 or 1: reading any other byte as bool is undefined. */
static bool has_flags(const struct stint_quota *quota)
{
    unsigned char count_denied, initial_set;
    memcpy(&count_denied, &quota->count_denied, 1);
    memcpy(&initial_set, &quota->initial_set, 1);
    return count_denied <= 1 && initial_set <= 1;
}

/* Whether the table has slots for states of this quota: decisions rely on it. */
static bool has_place(const struct intern *intern, const struct stint_quota *quota)
{
    assert(quota->derived.checked);
    const struct class_layout *wide = &intern->region->fixed.classes[CLASS_WIDE];
    return quota->derived.state_size <= 2 * sizeof(uint64_t) ||
           (wide->sets > 0 && quota->derived.state_size <= wide->state_size);
}

/*
 * A checked copy of slot i, with this table's epoch; false for what is no quota, or none of this
 * table.
 */
static bool copy_quota(const struct intern *intern, uint32_t i, struct stint_quota *copy)
{
    assert(i < intern->max);
    /* acquire: the quota was written before the slot was marked ready. */
    if (__atomic_load_n(&intern->slots[i].state, __ATOMIC_ACQUIRE) != QUOTA_SLOT_READY)
        return false;
    memcpy(copy, &intern->slots[i].quota, sizeof(*copy));
    if (!has_flags(copy) || algorithm_check_any(copy, NULL) != 0 || !has_place(intern, copy))
        return false;
    copy->epoch_ns = intern->region->epoch_ns;
    return true;
}

const struct stint_quota *intern_quota_slow(struct intern *intern, uint32_t id)
{
    assert(intern_is_valid(intern));
    if (id - 1 >= intern->max) {
        uint32_t i = id - TABLE_QUOTAS_MAX - FALLBACK_LOG2_MIN;
        return i < FALLBACKS ? &intern->fallbacks[i] : NULL;
    }
    struct quota_slot *copy = &intern->copies[id - 1];
    struct stint_quota quota;
    for (;;) {
        /* acquire: the copy was written before it was marked ready. */
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

/* ---- The index ------------------------------------------------------------------------------- */

/* Keyed, so that clients that choose parameters cannot choose their position here. */
static uint32_t index_start(const struct intern *intern, const struct stint_quota *quota)
{
    const uint64_t *params_hash = quota->derived.params_hash;
    return (uint32_t)siphash13_128(intern->region->fixed.hash_key, INDEX_TWEAK, params_hash,
                                   sizeof(quota->derived.params_hash))
        .lo;
}

static void enter(struct intern *intern, uint32_t id)
{
    assert(id > 0 && id <= intern->max);
    const struct stint_quota *quota = intern_quota(intern, id);
    if (quota == NULL)
        return; /* another process is writing it: a quota missed here is interned twice */
    for (uint32_t at = index_start(intern, quota);; at++) {
        uint16_t seen = 0;
        /* release: the entry was read before. */
        if (__atomic_compare_exchange_n(&intern->index[at & intern->index_mask], &seen,
                                        (uint16_t)id, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED) ||
            seen == id)
            return;
    }
}

/* Indexes the quotas that other processes have interned since. */
static void catch_up(struct intern *intern)
{
    assert(intern_is_valid(intern));
    /* relaxed: it is only counted to; a quota missed here is interned twice. */
    uint64_t used = __atomic_load_n(&intern->region->header->quotas, __ATOMIC_RELAXED);
    uint32_t to = used < intern->max ? (uint32_t)used : intern->max;
    uint32_t from = __atomic_load_n(&intern->indexed, __ATOMIC_RELAXED);
    for (uint32_t i = from; i < to; i++)
        enter(intern, i + 1);
    /* relaxed: if two threads index at once, the second finds each entry there already. */
    if (from < to)
        __atomic_store_n(&intern->indexed, to, __ATOMIC_RELAXED);
}

static uint32_t find_id(struct intern *intern, const struct stint_quota *quota)
{
    assert(quota->derived.checked);
    for (uint32_t at = index_start(intern, quota);; at++) {
        /* acquire: pairs with enter(). */
        uint32_t id = __atomic_load_n(&intern->index[at & intern->index_mask], __ATOMIC_ACQUIRE);
        if (id == 0)
            return 0;
        const struct stint_quota *known = intern_quota(intern, id);
        if (known != NULL && intern_same_params(known, quota))
            return id;
    }
}

/* ---- Ids ------------------------------------------------------------------------------------- */

/*
 * Two processes that intern the same quota at the same time may give it two ids. That is harmless:
 * equal parameters read each other's states.
 */
static uint32_t append(struct intern *intern, const struct stint_quota *quota, uint32_t max)
{
    assert(max <= intern->max);
    uint64_t *next = &intern->region->header->quotas;
    /* relaxed: the number only reserves an entry; the entry's own state orders its content. */
    uint64_t i = __atomic_load_n(next, __ATOMIC_RELAXED);
    do {
        if (i >= max)
            return 0;
    } while (
        !__atomic_compare_exchange_n(next, &i, i + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    struct quota_slot *slot = &intern->slots[i];
    __atomic_store_n(&slot->state, QUOTA_SLOT_WRITING, __ATOMIC_RELAXED);
    slot->quota = *quota;
    slot->quota.epoch_ns = 0;
    slot->quota.rule = 0; /* shared by all rules with these parameters */
    /* release: a reader that sees it ready sees the quota. */
    __atomic_store_n(&slot->state, QUOTA_SLOT_READY, __ATOMIC_RELEASE);
    return (uint32_t)i + 1;
}

static void remember(struct intern *intern, const struct stint_quota *quota, uint32_t id)
{
    assert(id > 0 && id <= QUOTA_ID_MASK);
    const uint64_t *hash = quota->derived.params_hash;
    struct quota_cache *cached = &intern->cache[hash[0] % QUOTA_CACHE_SIZE];
    __atomic_store_n(&cached->hash_first, hash[0], __ATOMIC_RELAXED);
    __atomic_store_n(&cached->hash_second_and_id, (hash[1] & ~QUOTA_ID_MASK) | id,
                     __ATOMIC_RELAXED);
}

/* The id of the quota's entry; a new one is among the first `max`. */
static uint32_t entry_id(struct intern *intern, const struct stint_quota *quota, uint32_t max)
{
    assert(quota->derived.checked && max <= intern->max);
    uint32_t id = find_id(intern, quota);
    if (id == 0) {
        catch_up(intern);
        id = find_id(intern, quota);
    }
    if (id == 0 && !intern->region->read_only && has_place(intern, quota)) {
        id = append(intern, quota, max);
        if (id != 0)
            enter(intern, id);
    }
    /* The copy decides: another process may have written to the region in between. */
    const struct stint_quota *known = id != 0 ? intern_quota(intern, id) : NULL;
    if (known == NULL || !intern_same_params(known, quota))
        return 0;
    remember(intern, quota, id);
    return id;
}

uint32_t intern_entry_id_slow(struct intern *intern, const struct stint_quota *quota)
{
    return entry_id(intern, quota, intern->max - intern->reserved);
}

uint32_t intern_keep(struct intern *intern, const struct stint_quota *quota)
{
    return entry_id(intern, quota, intern->max);
}

uint32_t intern_id_slow(struct intern *intern, const struct stint_quota *quota)
{
    assert(intern_is_valid(intern));
    uint32_t id = intern_entry_id_slow(intern, quota);
    if (id != 0)
        return id;
    id = fallback_id(intern, quota);
    if (id != 0)
        remember(intern, quota, id);
    return id;
}

void intern_repair(struct intern *intern)
{
    assert(intern_is_valid(intern));
    uint64_t used = 0;
    for (uint32_t i = 0; i < intern->max; i++) {
        struct quota_slot *slot = &intern->slots[i];
        if (slot->state == QUOTA_SLOT_EMPTY)
            continue;
        if (intern_quota(intern, i + 1) != NULL)
            used = i + 1;
        else
            slot->state = QUOTA_SLOT_EMPTY; /* damaged, or its writer ended */
    }
    if (intern->region->header->quotas != used)
        intern->region->header->quotas = used;
}

uint64_t intern_period_max(struct intern *intern)
{
    assert(intern_is_valid(intern));
    uint64_t used = __atomic_load_n(&intern->region->header->quotas, __ATOMIC_RELAXED);
    uint64_t longest_ns = 0;
    for (uint32_t id = 1; id <= used && id <= intern->max; id++) {
        const struct stint_quota *quota = intern_quota(intern, id);
        if (quota != NULL && quota->period_ns > longest_ns)
            longest_ns = quota->period_ns;
    }
    return longest_ns;
}
