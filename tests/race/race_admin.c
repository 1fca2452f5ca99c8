/* SPDX-License-Identifier: MIT */
/*
 * Blocks, resets, changes of parameters, iteration, inspection and snapshots while others decide:
 * no bound is broken by them, a blocked key is not let through, and what is read is whole.
 * FIELD B15, B17, B23.
 */
#include "race/crew.h"

#include "base/splitmix.h"

#include <unistd.h>

#define THREADS 4
#define KEYS 64u
#define ROUNDS 1500u
#define HOUR_NS (UINT64_C(3600) * 1000000000)
#define NOW_NS (100 * HOUR_NS)

struct shared {
    struct stint_table *table;
    struct stint_quota quotas[2];
    uint64_t admitted[KEYS];
    uint64_t resets[KEYS];
    uint64_t odd;
    char path[64];
};

static struct stint_table_options options_of(void)
{
    return (struct stint_table_options){.keys = 4 * KEYS,
                                        .keys16 = 4 * KEYS,
                                        .keys_wide = 4 * KEYS,
                                        .wide_size = 2048,
                                        .clock = STINT_CLOCK_VIRTUAL};
}

static void note_odd(struct shared *shared, bool odd)
{
    if (odd)
        __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
}

/* ---- Parameters change ----------------------------------------------------------------------- */

/* The threads do not agree which of two quotas of one rule is in force. */
static void take_under_either(void *arg, unsigned number)
{
    struct shared *shared = arg;
    uint64_t seed = number + 3;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t random = splitmix_next(&seed);
        uint32_t key = (uint32_t)(random >> 40) % 4;
        const struct stint_quota *quota = &shared->quotas[(random >> 33) % 2];
        if (stint_take(shared->table, quota, &key, sizeof(key), 1, NOW_NS).outcome == STINT_ALLOW)
            __atomic_fetch_add(&shared->admitted[key], 1, __ATOMIC_RELAXED);
    }
}

static void larger_bound_holds(const char *one, const char *other, uint64_t bound)
{
    static struct shared shared;
    struct stint_table_options options = options_of();
    memset(&shared, 0, sizeof(shared));
    crew_parse(&shared.quotas[0], one);
    crew_parse(&shared.quotas[1], other);
    shared.quotas[0].rule = shared.quotas[1].rule = 9;
    shared.table = crew_open(&options);
    crew_run(THREADS, take_under_either, &shared);
    for (uint32_t key = 0; key < 4; key++)
        crew_check(shared.admitted[key] <= bound, "%s or %s: key %u admitted %llu", one, other, key,
                   (unsigned long long)shared.admitted[key]);
    stint_table_close(shared.table);
}

/* ---- Blocks and resets ----------------------------------------------------------------------- */

static void block_and_reset(void *arg, unsigned number)
{
    struct shared *shared = arg;
    uint64_t seed = number + 11;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t random = splitmix_next(&seed);
        uint32_t key = (uint32_t)(random >> 40) % KEYS;
        const struct stint_quota *quota = &shared->quotas[0];
        if (number == 0 && key % 2 == 0) {
            /* Even keys belong to this thread: a block it has made holds until it lifts it. */
            note_odd(shared,
                     stint_block(shared->table, &key, sizeof(key), NOW_NS + HOUR_NS, NOW_NS) != 0);
            struct stint_decision decision =
                stint_take(shared->table, quota, &key, sizeof(key), 1, NOW_NS);
            note_odd(shared, decision.outcome != STINT_DENY || decision.retry_after_ns != HOUR_NS);
            stint_reset(shared->table, quota, &key, sizeof(key), NOW_NS);
            struct stint_item item = {quota, &key, sizeof(key), 1};
            note_odd(shared, stint_peek(shared->table, &item, 1, NOW_NS).outcome != STINT_ALLOW);
        } else if (key % 2 == 1 && i % 64 == 0) {
            __atomic_fetch_add(&shared->resets[key], 1, __ATOMIC_RELAXED);
            stint_reset(shared->table, quota, &key, sizeof(key), NOW_NS);
        } else if (key % 2 == 1) {
            if (stint_take(shared->table, quota, &key, sizeof(key), 1, NOW_NS).outcome ==
                STINT_ALLOW)
                __atomic_fetch_add(&shared->admitted[key], 1, __ATOMIC_RELAXED);
        }
    }
}

static void blocks_hold_and_resets_reset(const char *spec)
{
    static struct shared shared;
    struct stint_table_options options = options_of();
    memset(&shared, 0, sizeof(shared));
    crew_parse(&shared.quotas[0], spec);
    shared.table = crew_open(&options);
    crew_run(THREADS, block_and_reset, &shared);
    crew_check(shared.odd == 0, "%s: %llu odd answers about blocks", spec,
               (unsigned long long)shared.odd);
    for (uint32_t key = 1; key < KEYS; key += 2)
        crew_check(shared.admitted[key] <= shared.quotas[0].limit * (shared.resets[key] + 1),
                   "%s: key %u admitted %llu after %llu resets", spec, key,
                   (unsigned long long)shared.admitted[key],
                   (unsigned long long)shared.resets[key]);
    stint_table_close(shared.table);
}

/* ---- Looking --------------------------------------------------------------------------------- */

static bool look_at_entry(const struct stint_entry *entry, void *arg)
{
    struct shared *shared = arg;
    note_odd(shared, entry->decision.remaining > entry->decision.limit ||
                         entry->expires_at_ns <= NOW_NS || entry->quota.limit != 20);
    return true;
}

static void look_or_take(void *arg, unsigned number)
{
    struct shared *shared = arg;
    uint64_t seed = number + 17;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t random = splitmix_next(&seed);
        uint32_t key = (uint32_t)(random >> 40) % KEYS;
        const struct stint_quota *quota = &shared->quotas[0];
        struct stint_table_info info;
        struct stint_entry entry;
        if (number > 0) {
            if (stint_take(shared->table, quota, &key, sizeof(key), 1, NOW_NS).outcome ==
                STINT_ALLOW)
                __atomic_fetch_add(&shared->admitted[key], 1, __ATOMIC_RELAXED);
        } else if (i % 100 == 0) {
            note_odd(shared, stint_table_snapshot(shared->table, shared->path, NULL) != 0);
        } else if (i % 50 == 0) {
            stint_table_each(shared->table, NOW_NS, look_at_entry, shared);
        } else if (i % 10 == 0) {
            stint_table_info(shared->table, NOW_NS, &info);
            note_odd(shared, info.live[0] + info.live[1] + info.live[2] > KEYS);
        } else if (stint_find(shared->table, quota, &key, sizeof(key), NOW_NS, &entry) == 0) {
            look_at_entry(&entry, shared);
        }
    }
}

/* The last snapshot, made when all was quiet, decides as the original. */
static void snapshot_decides_alike(struct shared *shared, const char *spec)
{
    struct stint_table_options options = {
        .path = shared->path, .clock = STINT_CLOCK_VIRTUAL, .must_exist = true};
    struct stint_error error;
    int code = stint_table_snapshot(shared->table, shared->path, &error);
    crew_check(code == 0, "%s: snapshot: %s", spec, error.message);
    struct stint_table *copy = crew_open(&options);
    for (uint32_t key = 0; key < KEYS; key++) {
        struct stint_item item = {&shared->quotas[0], &key, sizeof(key), 1};
        struct stint_decision one = stint_peek(shared->table, &item, 1, NOW_NS);
        struct stint_decision two = stint_peek(copy, &item, 1, NOW_NS);
        crew_check(memcmp(&one, &two, sizeof(one)) == 0, "%s: key %u differs in the snapshot", spec,
                   key);
    }
    stint_table_close(copy);
}

static void looking_changes_nothing(const char *spec)
{
    static struct shared shared;
    struct stint_table_options options = options_of();
    memset(&shared, 0, sizeof(shared));
    snprintf(shared.path, sizeof(shared.path), "/tmp/stint-race-%ld", (long)getpid());
    crew_parse(&shared.quotas[0], spec);
    shared.table = crew_open(&options);
    crew_run(THREADS, look_or_take, &shared);
    struct stint_table_info info;
    stint_table_info(shared.table, NOW_NS, &info);
    crew_check(shared.odd == 0, "%s: %llu odd things seen", spec, (unsigned long long)shared.odd);
    uint64_t displaced = info.owners_displaced;
    for (uint32_t key = 0; key < KEYS; key++)
        crew_check(shared.admitted[key] == 20 ||
                       (shared.admitted[key] < 20 && crew_excuses(&displaced)),
                   "%s: key %u admitted %llu", spec, key, (unsigned long long)shared.admitted[key]);
    snapshot_decides_alike(&shared, spec);
    stint_table_close(shared.table);
    unlink(shared.path);
}

int main(void)
{
    larger_bound_holds("window 100/1h resolution=12", "window 60/1h resolution=12", 100);
    larger_bound_holds("window 100/1h", "window 60/1h", 100);
    larger_bound_holds("log 100/1h", "log 60/1h", 100);
    larger_bound_holds("buckets 100/1h time_slack=6m", "buckets 60/1h time_slack=10m", 100);
    larger_bound_holds("gcra 100/1h", "gcra 60/1h", 100);
    static const char *const specs[] = {"gcra 20/1h", "window 20/1h", "log 20/1h",
                                        "concurrency 20 lease=1h"};
    for (unsigned i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        blocks_hold_and_resets_reset(specs[i]);
        looking_changes_nothing(specs[i]);
    }
    return crew_report();
}
