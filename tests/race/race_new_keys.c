/* SPDX-License-Identifier: MIT */
/*
 * Threads that meet a key for the first time together get it once: all of them take from the same
 * new keys at the same instant, and each key admits exactly its limit, whatever the algorithm.
 */
#include "race/crew.h"
#include "table/handle.h"

#define KEYS 20000
#define LIMIT 7
#define THREADS 4

struct shared {
    struct stint_table *table;
    struct stint_quota quota;
    uint32_t keys;
    uint32_t admitted[KEYS];
};

static void take_every_key(void *arg, unsigned number)
{
    struct shared *shared = arg;
    for (uint32_t key = 0; key < shared->keys; key++) {
        for (unsigned i = 0; i < LIMIT; i++) {
            struct stint_decision decision =
                stint_take(shared->table, &shared->quota, &key, sizeof(key), 1, 1000 + number);
            if (decision.outcome == STINT_ALLOW)
                __atomic_fetch_add(&shared->admitted[key], 1, __ATOMIC_RELAXED);
        }
    }
}

static void check_quota(const char *spec, uint32_t keys)
{
    static struct shared shared;
    struct stint_table_options options = {.keys = 2 * KEYS,
                                          .keys16 = 2 * KEYS,
                                          .keys_wide = KEYS,
                                          .wide_size = 512,
                                          .clock = STINT_CLOCK_VIRTUAL};
    memset(&shared, 0, sizeof(shared));
    shared.keys = keys;
    crew_parse(&shared.quota, spec);
    shared.table = crew_open(&options);
    crew_run(THREADS, take_every_key, &shared);
    struct stint_table_info info;
    stint_table_info(shared.table, 2000, &info);
    uint64_t displaced = info.owners_displaced;
    for (uint32_t key = 0; key < keys; key++) {
        uint32_t admitted = shared.admitted[key];
        crew_check(admitted == LIMIT || (admitted < LIMIT && crew_excuses(&displaced)),
                   "%s: key %u admitted %u of %u", spec, key, admitted, LIMIT);
    }
    /* All phases of a class with a front were met: slots.h. */
    const struct slots *slots = &shared.table->slots[table_class(&shared.quota)];
    crew_check(slots->front == slots->sets || slots_spilled(slots) >= slots->spilled_max,
               "%s: %llu keys have spilled", spec, (unsigned long long)slots_spilled(slots));
    stint_table_close(shared.table);
}

int main(void)
{
    /* One for each width of states: a key is found in its own way in each. */
    check_quota("gcra 7/1h", KEYS);
    check_quota("window 7/1h", KEYS);
    check_quota("log 7/1h", KEYS / 10);
    if (REPEATS(false, true))
        return crew_report();
    check_quota("window 7/1h resolution=12", KEYS);
    check_quota("fixed_window 7/1h", KEYS);
    check_quota("sliding_counter 7/1h", KEYS);
    check_quota("buckets 7/1h time_slack=6m", KEYS / 10);
    check_quota("concurrency 7 lease=1h", KEYS / 10);
    return crew_report();
}
