/* SPDX-License-Identifier: MIT */
/* Hashes of keys, the mark, nonces and the identity of this process. */
#include "table/handle.h"

#include "table/region/owner.h"

#include <assert.h>

#define NONCES_AT_ONCE UINT64_C(65536)

struct hash128 table_hash_under(const struct stint_table *table, uint64_t rule, const void *key,
                                size_t key_len)
{
    return key_hash(&table->key_hash, rule, key, key_len);
}

void table_raise_mark(struct stint_table *table, uint64_t now_ns)
{
    assert(region_is_valid(&table->region));
    if (!table->region.read_only && now_ns <= STINT_NOW_MAX)
        region_raise(&table->region.header->mark_ns, now_ns);
}

void table_raise_booked(struct stint_table *table, uint64_t start_ns)
{
    assert(table_is_valid(table));
    region_raise(&table->region.header->booked_until_ns, start_ns);
}

uint64_t table_latest_ns(const struct stint_table *table, uint64_t now_ns)
{
    assert(region_is_valid(&table->region));
    uint64_t mark_ns = __atomic_load_n(&table->region.header->mark_ns, __ATOMIC_RELAXED);
    return max_u64(now_ns, add_sat(mark_ns, MARK_STEP_NS));
}

uint64_t table_nonce(struct stint_table *table)
{
    assert(table_is_valid(table));
    uint64_t *next = &table->process->nonce;
    /* relaxed: a number is unique in any order. */
    uint64_t nonce = __atomic_load_n(next, __ATOMIC_RELAXED);
    for (;;) {
        uint64_t mine = nonce;
        if (nonce % NONCES_AT_ONCE == 0)
            mine = 1 + __atomic_fetch_add(&table->region.header->nonce_next, NONCES_AT_ONCE,
                                          __ATOMIC_RELAXED);
        if (__atomic_compare_exchange_n(next, &nonce, mine + 1, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return mine;
    }
}

uint64_t table_self(struct stint_table *table)
{
    assert(table_is_valid(table));
    uint64_t *known = &table->process->owner;
    /* relaxed: the value is all that is shared. */
    uint64_t owner = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (owner != 0)
        return owner;
    /* Of threads that come at once one may not be able to read its start: the first name stays. */
    uint64_t own = owner_self();
    bool is_first =
        __atomic_compare_exchange_n(known, &owner, own, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return is_first ? own : owner;
}
