/* SPDX-License-Identifier: MIT */
/*
 * Threads that evict each other's keys: whatever the order, every unit that was granted either
 * stands in a live state or was counted as forgotten, and a key that is denied stays denied.
 */
#include "race/crew.h"

#include "base/splitmix.h"

#define THREADS 4
#define TAKES REPEATS(30000u, 8000u)
#define KEYS 400u
#define LIMIT 20u
#define NOW_NS (UINT64_C(100) * 3600 * 1000000000)

/* Of each width of states there is one in every second place. */
static const char *const specs[] = {
    "gcra 20/1h when_full=evict",
    "fixed_window 20/1h when_full=evict",
    "window 20/1h resolution=12 when_full=evict",
    "window 20/1h when_full=evict",
    "sliding_counter 20/1h when_full=evict",
    "log 20/1h when_full=evict",
    "window 20/1h resolution=100 when_full=evict",
    "buckets 20/1h time_slack=6m when_full=evict",
};

struct shared {
    struct stint_table *table;
    struct stint_quota quota;
    uint64_t granted, odd;
};

/* Keys 0 … KEYS, most of them rarely; of the rest nobody is denied. */
static void take(void *arg, unsigned number)
{
    struct shared *shared = arg;
    uint64_t seed = number, granted = 0;
    for (unsigned i = 0; i < TAKES; i++) {
        uint64_t random = splitmix_next(&seed);
        uint32_t key = (uint32_t)(random >> 33) % ((random >> 20) % 4 == 0 ? 8 : KEYS);
        struct stint_decision decision =
            stint_take(shared->table, &shared->quota, &key, sizeof(key), 1, NOW_NS);
        granted += decision.granted;
        if (stint_take(shared->table, &shared->quota, "used up", 7, 1, NOW_NS).outcome !=
            STINT_DENY)
            __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&shared->granted, granted, __ATOMIC_RELAXED);
}

static bool add_held(const struct stint_entry *entry, void *arg)
{
    uint64_t *held = arg;
    *held += entry->decision.limit - entry->decision.remaining;
    return true;
}

static void every_unit_is_held_or_counted(const char *spec)
{
    struct stint_table_options options = {
        .keys = 32, .keys16 = 32, .keys_wide = 32, .wide_size = 512, .clock = STINT_CLOCK_VIRTUAL};
    struct shared shared = {.table = crew_open(&options)};
    struct stint_table_info info;
    uint64_t held = 0;
    crew_parse(&shared.quota, spec);
    shared.granted = stint_take(shared.table, &shared.quota, "used up", 7, LIMIT, NOW_NS).granted;
    crew_run(THREADS, take, &shared);
    stint_table_info(shared.table, NOW_NS, &info);
    stint_table_each(shared.table, NOW_NS, add_held, &held);
    crew_check(info.evictions_evict > 1000, "%s: %llu evictions", spec,
               (unsigned long long)info.evictions_evict);
    crew_check(shared.odd == 0, "%s: freed a denied key %llu times", spec,
               (unsigned long long)shared.odd);
    /* A key whose owner was displaced is full, or all that its state held is gone. */
    uint64_t known = held + info.forgotten_units;
    uint64_t off = shared.granted > known ? shared.granted - known : known - shared.granted;
    crew_check(off <= info.owners_displaced * LIMIT, "%s: granted %llu, held %llu, forgotten %llu",
               spec, (unsigned long long)shared.granted, (unsigned long long)held,
               (unsigned long long)info.forgotten_units);
    stint_table_close(shared.table);
}

int main(void)
{
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i += REPEATS(1, 2))
        every_unit_is_held_or_counted(specs[i]);
    return crew_report();
}
