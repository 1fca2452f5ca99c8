/* SPDX-License-Identifier: MIT */
/* The records of key pools: found by name, claimed once. */
#include "table/pool_records.h"

#include <assert.h>
#include <string.h>

#define FULL "the table knows %u pools already"

static const struct pair no_name;

static struct pair name_of(struct hash128 hash)
{
    return (struct pair){hash.lo, hash.hi | 1};
}

static struct pool_record *record_at(const struct stint_table *table, uint32_t i)
{
    assert(i < table->region.fixed.pools_max);
    const struct region_fixed *fixed = &table->region.fixed;
    return (struct pool_record *)region_at(&table->region, fixed->pools_offset) + i;
}

static uint64_t check_of(const struct stint_table *table, struct pair name)
{
    const uint64_t words[2] = {name.first, name.second};
    return siphash13_128(table->region.fixed.hash_key, 0, words, sizeof(words)).lo | 1;
}

/* The record of this name; else, if `claims`, the first free one, claimed. */
CAS16_TARGET static struct pool_record *find(struct stint_table *table, struct pair name,
                                             bool claims)
{
    assert(!pair_equals(name, no_name));
    for (uint32_t i = 0; i < table->region.fixed.pools_max; i++) {
        struct pool_record *record = record_at(table, i);
        struct pair seen = cas16_load_stable(&record->name);
        if (claims && pair_equals(seen, no_name) && cas16(&record->name, no_name, name))
            return record;
        if (pair_equals(cas16_load_stable(&record->name), name))
            return record;
    }
    return NULL;
}

/*
 * All records are searched before one is claimed. Two callers that claim the same name meet: each
 * searches from the first record on, and no claimed record becomes free.
 */
int pool_record_open(struct stint_table *table, struct hash128 name, struct pool_record **record,
                     struct stint_error *error)
{
    assert(table_is_valid(table));
    struct pair pair = name_of(name);
    *record = find(table, pair, false);
    if (*record == NULL)
        *record = find(table, pair, true);
    if (*record == NULL)
        return err_set(error, STINT_E_FULL, FULL, table->region.fixed.pools_max);
    /* relaxed: used only after all processes that have the table open have ended. */
    __atomic_store_n(&(*record)->check, check_of(table, pair), __ATOMIC_RELAXED);
    return 0;
}

int pool_record_check(struct stint_table *table, struct hash128 name, uint32_t *n_new,
                      struct stint_error *error)
{
    uint32_t pools_max = table->region.fixed.pools_max;
    *n_new += find(table, name_of(name), false) == NULL;
    return pool_records_used(table) + *n_new <= pools_max
               ? 0
               : err_set(error, STINT_E_FULL, FULL, pools_max);
}

/* A damaged record is dropped: its pool makes a new one, and begins with the first turn. */
void pool_records_repair(struct stint_table *table)
{
    assert(table->region.alone);
    for (uint32_t i = 0; i < table->region.fixed.pools_max; i++) {
        struct pool_record *record = record_at(table, i);
        bool is_free = pair_equals(record->name, no_name) && record->check == 0;
        if (!is_free && record->check == 0)
            record->check = check_of(table, record->name);
        if (is_free || record->check == check_of(table, record->name))
            continue;
        *record = (struct pool_record){.check = 0};
        table_count(&table_counters(table)->states_damaged, 1);
    }
}

void pool_records_copy(const struct stint_table *table, uint64_t i, void *to)
{
    const struct pool_record *record = record_at(table, (uint32_t)i);
    struct pool_record copy = {.name = cas16_load_stable(&record->name),
                               .turn = pool_record_turn(record),
                               .returns = pool_record_returns(record)};
    if (!pair_equals(copy.name, no_name))
        copy.check = check_of(table, copy.name);
    memcpy(to, &copy, sizeof(copy));
}

uint32_t pool_records_used(const struct stint_table *table)
{
    assert(table_is_valid(table));
    uint32_t used = 0;
    for (uint32_t i = 0; i < table->region.fixed.pools_max; i++)
        used += !pair_equals(cas16_load(&record_at(table, i)->name), no_name);
    return used;
}
