/* SPDX-License-Identifier: MIT */
/*
 * Processes that share a table are killed, or stopped and let go on, at random instants. The table
 * stays valid, nobody waits for the dead, and no key ever admits more than its limit: a worker
 * counts a unit only after it was allowed, so a death can lose a count, never add one. FIELD B26.
 *
 * crash_kill [KILLS]: per algorithm and kind of memory; default 40, and thousands for the long run.
 */
#define _GNU_SOURCE
#include "crash/workers.h"
#include "table/handle.h"

#include <unistd.h>

#define KEYS_MAX 65536u
#define ASKS_PER_KEY 250u
#define KEYS_PER_PERIOD 64u
#define LIMIT 100u
#define KEYS_SMALL (4 * KEYS_PER_PERIOD)
#define KEYS_WITH_FRONT 6144u /* the least */
#define HOUR_NS (UINT64_C(3600) * 1000000000)

struct shared {
    uint64_t asks;               /* by all; says which key is asked for, and when it is */
    uint64_t finished[WORKERS];  /* asks of each */
    uint32_t admitted[KEYS_MAX]; /* each key is used in one stretch, all at one time */
    uint64_t odd;
    uint64_t counts_begun, counts_done; /* of one counter, by all */
};

static struct shared *shared;
static struct stint_table *table;
static struct stint_quota quotas[2];

static uint64_t now_of(uint64_t key)
{
    return (10 + key / KEYS_PER_PERIOD * 3) * HOUR_NS;
}

/* A death between two of these lines leaves the counter between the two numbers. */
static void count(uint64_t now_ns)
{
    struct stint_counter counter;
    __atomic_fetch_add(&shared->counts_begun, 1, __ATOMIC_SEQ_CST);
    if (stint_count(table, "all", 3, 1, STINT_COUNT_EXPIRY_MAX_NS, now_ns, &counter, NULL) != 0)
        __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&shared->counts_done, 1, __ATOMIC_SEQ_CST);
}

static void work(unsigned worker)
{
    for (uint64_t turn = 0;; turn++) {
        uint64_t key = __atomic_fetch_add(&shared->asks, 1, __ATOMIC_RELAXED) / ASKS_PER_KEY;
        if (key >= KEYS_MAX)
            _exit(0);
        /* Some ask for two keys at once, and some only look. */
        uint64_t other = key > 0 && key % KEYS_PER_PERIOD > 0 ? key - 1 : key;
        struct stint_item items[2] = {{&quotas[0], &key, sizeof(key), 1},
                                      {&quotas[0], &other, sizeof(other), 1}};
        size_t n = turn % 8 == 0 && other != key ? 2 : 1;
        struct stint_decision decision = stint_take_all(table, items, n, now_of(key));
        count(now_of(key));
        uint64_t latest = __atomic_load_n(&shared->asks, __ATOMIC_RELAXED) / ASKS_PER_KEY;
        /* Who was stopped until the time of later keys has come was rightly given new units. */
        if (decision.outcome == STINT_ALLOW && now_of(latest) == now_of(key)) {
            __atomic_fetch_add(&shared->admitted[key], 1, __ATOMIC_RELAXED);
            if (n == 2)
                __atomic_fetch_add(&shared->admitted[other], 1, __ATOMIC_RELAXED);
        } else if (decision.outcome == STINT_NEVER) {
            __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
        }
        __atomic_fetch_add(&shared->finished[worker], 1, __ATOMIC_RELAXED);
    }
}

static bool is_over(void)
{
    return __atomic_load_n(&shared->asks, __ATOMIC_RELAXED) / ASKS_PER_KEY >= KEYS_MAX;
}

static void harass(const char *spec, unsigned kills)
{
    struct workers workers = {
        .name = spec, .work = work, .is_over = is_over, .finished = shared->finished};
    workers_start(&workers);
    for (unsigned i = 0; i < kills; i++) {
        unsigned worker = workers_pick(&workers, 1500);
        if (i % 4 == 3)
            workers_stop_for(&workers, worker, 12000);
        else /* some are reaped late: a zombie is as dead as any */
            workers_replace(&workers, worker, i % 8 == 0 ? 1000 : 0);
        if (i % 32 == 31 && !workers_get_on(&workers))
            break;
    }
    workers_end(&workers);
}

/* Nobody is left: the table decides as ever, on new keys and on those that were in use. */
static void check_what_is_left(const char *spec, uint64_t fresh)
{
    uint64_t last = shared->asks / ASKS_PER_KEY, admitted = 0;
    uint64_t now_ns = now_of(last < KEYS_MAX ? last : KEYS_MAX) + 3 * HOUR_NS;
    struct stint_table_info info;
    stint_table_info(table, now_ns, &info);
    for (uint64_t key = 0; key < KEYS_MAX; key++)
        crew_check(shared->admitted[key] <= LIMIT, "%s: key %llu admitted %u of %u", spec,
                   (unsigned long long)key, shared->admitted[key], LIMIT);
    for (unsigned i = 0; i < 2 * LIMIT; i++)
        admitted +=
            stint_take(table, &quotas[0], &fresh, sizeof(fresh), 1, now_ns).outcome == STINT_ALLOW;
    crew_check(admitted == LIMIT, "%s: a new key admitted %llu afterwards", spec,
               (unsigned long long)admitted);
    struct stint_counter counter;
    stint_count(table, "all", 3, 0, 0, now_ns, &counter, NULL);
    crew_check(counter.count >= shared->counts_done && counter.count <= shared->counts_begun,
               "%s: %llu counted, of %llu done and %llu begun", spec,
               (unsigned long long)counter.count, (unsigned long long)shared->counts_done,
               (unsigned long long)shared->counts_begun);
    crew_check(shared->odd == 0, "%s: %llu odd answers", spec, (unsigned long long)shared->odd);
    crew_check(shared->asks > 1000, "%s: only %llu asks", spec, (unsigned long long)shared->asks);
    if (getenv("STINT_TEST_VERBOSE") != NULL)
        fprintf(stderr, "%s: %llu asks, %llu keys, %llu displaced\n", spec,
                (unsigned long long)shared->asks, (unsigned long long)last,
                (unsigned long long)info.owners_displaced);
}

/* States that outlive the test use the front up, so that the first of the other keys spill. */
static void fill_front(void)
{
    const struct slots *slots = &table->slots[table_class(&quotas[0])];
    struct stint_quota lasting;
    crew_parse(&lasting, slots->class == CLASS_8 ? "gcra 1/8760h" : "window 1/8760h");
    for (uint64_t key = 0; slots->front < slots->sets && slots_spilled(slots) == 0; key++)
        stint_take(table, &lasting, &key, sizeof(key), 1, now_of(0));
}

static void survive(const char *spec, const char *path, uint32_t keys, unsigned kills)
{
    struct stint_table_options options = {.keys = keys,
                                          .keys16 = keys,
                                          .keys_wide = 4 * KEYS_PER_PERIOD,
                                          .wide_size = 4096,
                                          .memory = STINT_MEMORY_SHARED,
                                          .path = path,
                                          .clock = STINT_CLOCK_VIRTUAL};
    memset(shared, 0, sizeof(*shared));
    crew_parse(&quotas[0], spec);
    table = crew_open(&options);
    fill_front();
    harass(spec, kills);
    check_what_is_left(spec, KEYS_MAX);
    stint_table_close(table);
    if (path == NULL)
        return;
    /* And it can be opened again. */
    options.must_exist = true;
    table = crew_open(&options);
    check_what_is_left(spec, KEYS_MAX + 1);
    stint_table_close(table);
    unlink(path);
}

int main(int argc, char **argv)
{
    static const char *const specs[] = {
        "gcra 100/1h",
        "window 100/1h resolution=12",
        "window 100/1h",
        "window 100/1h resolution=100",
        "log 100/1h",
        "buckets 100/1h time_slack=6m",
        "concurrency 100 lease=1h",
        "sliding_counter 100/1h",
    };
    unsigned kills = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 40;
    char path[64];
    snprintf(path, sizeof(path), "/dev/shm/stint-crash-%ld", (long)getpid());
    shared = workers_share(sizeof(*shared));
    for (unsigned i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        survive(specs[i], NULL, KEYS_SMALL, kills);
        survive(specs[i], path, KEYS_SMALL, kills);
    }
    survive(specs[0], path, KEYS_WITH_FRONT, kills);
    survive(specs[2], path, KEYS_WITH_FRONT, kills);
    return crew_report();
}
