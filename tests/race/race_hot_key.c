/* SPDX-License-Identifier: MIT */
/*
 * Threads and processes on one key admit exactly what one caller would: in a table, in cells, over
 * anonymous shared memory and over a file; and callers whose clocks are behind mint nothing.
 * FIELD B1, B13, B24, B26.
 */
#include "race/crew.h"

#include "base/splitmix.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define LIMIT 600u
#define NOW_NS (UINT64_C(100) * 3600 * 1000000000)
#define SECOND_NS UINT64_C(1000000000)

static const char *const specs[] = {
    "gcra 600/1h",
    "window 600/1h resolution=12",
    "window 600/1h",
    "fixed_window 600/1h",
    "sliding_counter 600/1h",
    "log 600/1h",
    "buckets 600/1h time_slack=6m count_slack=20",
    "concurrency 600 lease=1h",
};
#define SPECS (sizeof(specs) / sizeof(specs[0]))

struct shared {
    struct stint_table *table;
    struct stint_quota quota;
    struct stint_cell8 cell8;
    struct stint_cell16 cell16;
    uint64_t clock_ns, random[THREADS];
    uint64_t admitted, odd; /* odd: an answer that is neither ALLOW nor DENY, or makes no sense */
};

static void count(struct shared *shared, struct stint_decision decision)
{
    if (decision.outcome == STINT_ALLOW)
        __atomic_fetch_add(&shared->admitted, decision.granted, __ATOMIC_RELAXED);
    if (decision.outcome == STINT_NEVER || decision.remaining > decision.limit ||
        (decision.outcome == STINT_DENY) != (decision.retry_after_ns > 0))
        __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
}

static void take_from_table(void *arg, unsigned number)
{
    struct shared *shared = arg;
    (void)number;
    for (unsigned i = 0; i < LIMIT; i++)
        count(shared, stint_take(shared->table, &shared->quota, "hot", 3, 1, NOW_NS));
}

static void take_from_cell(void *arg, unsigned number)
{
    struct shared *shared = arg;
    (void)number;
    for (unsigned i = 0; i < LIMIT; i++)
        count(shared, stint_state_size(&shared->quota) == 8
                          ? stint_cell8_take(&shared->quota, &shared->cell8, NOW_NS, 1)
                          : stint_cell16_take(&shared->quota, &shared->cell16, NOW_NS, 1));
}

static void check(const struct shared *shared, const char *spec, const char *where)
{
    struct stint_table_info info = {.owners_displaced = 0};
    if (shared->table != NULL)
        stint_table_info(shared->table, NOW_NS, &info);
    /* On a busy machine an owner may lose a wide state after 10 ms: the key is then full. */
    bool exact =
        shared->admitted == LIMIT || (info.owners_displaced > 0 && shared->admitted < LIMIT);
    crew_check(exact, "%s, %s: admitted %llu of %u", spec, where,
               (unsigned long long)shared->admitted, LIMIT);
    crew_check(shared->odd == 0, "%s, %s: %llu odd answers", spec, where,
               (unsigned long long)shared->odd);
}

static struct stint_table_options options_of(uint8_t memory, const char *path)
{
    return (struct stint_table_options){.keys = 64,
                                        .keys16 = 64,
                                        .keys_wide = 64,
                                        .wide_size = 8192,
                                        .blocks = 64,
                                        .memory = memory,
                                        .path = path,
                                        .clock = STINT_CLOCK_VIRTUAL};
}

static void threads_on_a_table(const char *spec)
{
    struct stint_table_options options = options_of(STINT_MEMORY_HEAP, NULL);
    struct shared shared = {.table = crew_open(&options)};
    crew_parse(&shared.quota, spec);
    crew_run(THREADS, take_from_table, &shared);
    check(&shared, spec, "threads on a table");
    stint_table_close(shared.table);
}

static void threads_on_a_cell(const char *spec)
{
    struct shared shared = {.table = NULL};
    crew_parse(&shared.quota, spec);
    if (stint_state_size(&shared.quota) > 16)
        return;
    crew_run(THREADS, take_from_cell, &shared);
    check(&shared, spec, "threads on a cell");
}

/* Children that inherit the table, or that open the file anew. */
/* ThreadSanitizer puts a lock of the process's own in place of a 16-byte swap: none between two. */
#if defined(__SANITIZE_THREAD__)
#define SWAPS_BETWEEN_PROCESSES 0
#else
#define SWAPS_BETWEEN_PROCESSES 1
#endif

static void processes(const char *spec, uint8_t memory, const char *path)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        exit(1);
    struct stint_table_options options = options_of(memory, path);
    shared->table = crew_open(&options);
    crew_parse(&shared->quota, spec);
    pid_t children[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct shared mine = {.table = shared->table, .quota = shared->quota};
            if (path != NULL)
                mine.table = crew_open(&options);
            take_from_table(&mine, i);
            __atomic_fetch_add(&shared->admitted, mine.admitted, __ATOMIC_RELAXED);
            __atomic_fetch_add(&shared->odd, mine.odd, __ATOMIC_RELAXED);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < THREADS; i++) {
        int status = 1;
        waitpid(children[i], &status, 0);
        crew_check(status == 0, "%s: a child ended with status %d", spec, status);
    }
    check(shared, spec, path != NULL ? "processes on a file" : "processes on shared memory");
    stint_table_close(shared->table);
    munmap(shared, sizeof(*shared));
}

/* ---- One counter ----------------------------------------------------------------------------- */

#define COUNTS 2000u

struct counting {
    struct stint_table *table;
    uint8_t seen[THREADS * COUNTS + 1]; /* how many callers got this count */
    uint64_t odd;
};

static void count_in_one(void *arg, unsigned number)
{
    struct counting *counting = arg;
    struct stint_counter counter;
    uint64_t before = 0;
    (void)number;
    for (unsigned i = 0; i < COUNTS; i++) {
        int code =
            stint_count(counting->table, "hot", 3, 1, 60 * SECOND_NS, NOW_NS, &counter, NULL);
        bool fits = code == 0 && counter.count > before && counter.count <= THREADS * COUNTS &&
                    counter.expires_after_ns == 60 * SECOND_NS;
        __atomic_fetch_add(fits ? &counting->seen[counter.count] : (uint8_t *)&counting->odd, 1,
                           __ATOMIC_RELAXED);
        before = counter.count;
    }
}

/* Each count is got by one caller, and the last is the number of calls. */
static void check_counts(const struct counting *counting, const char *where)
{
    struct stint_counter counter;
    stint_count(counting->table, "hot", 3, 0, 0, NOW_NS, &counter, NULL);
    crew_check(counter.count == THREADS * COUNTS, "%s: %llu of %u counted", where,
               (unsigned long long)counter.count, THREADS * COUNTS);
    crew_check(counting->odd == 0, "%s: odd counts", where);
    for (unsigned i = 1; i <= THREADS * COUNTS; i++)
        crew_check(counting->seen[i] == 1, "%s: %u callers got %u", where, counting->seen[i], i);
}

static void one_counter(uint8_t memory, const char *where)
{
    struct stint_table_options options = options_of(memory, NULL);
    struct counting *counting =
        mmap(NULL, sizeof(*counting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counting == MAP_FAILED)
        exit(1);
    counting->table = crew_open(&options);
    if (memory == STINT_MEMORY_HEAP)
        crew_run(THREADS, count_in_one, counting);
    for (unsigned i = 0; memory != STINT_MEMORY_HEAP && i < THREADS; i++)
        if (fork() == 0) {
            count_in_one(counting, i);
            _exit(0);
        }
    while (memory != STINT_MEMORY_HEAP && wait(NULL) > 0) {
    }
    check_counts(counting, where);
    stint_table_close(counting->table);
    munmap(counting, sizeof(*counting));
}

/* Every thread comes with times up to 5 s old while the clock goes on. */
static void take_with_stale_times(void *arg, unsigned number)
{
    struct shared *shared = arg;
    uint64_t seed = number + 1;
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t random = splitmix_next(&seed);
        uint64_t clock_ns = __atomic_add_fetch(&shared->clock_ns, 1000000, __ATOMIC_RELAXED);
        uint64_t stale_ns = (random >> 33) % 4 == 0 ? (random >> 20) % (5 * SECOND_NS) : 0;
        count(shared, stint_take(shared->table, &shared->quota, "hot", 3, 1, clock_ns - stale_ns));
    }
}

/* 80 s pass: no algorithm may admit more than its bound for as many windows, and one more at the
 * start.
 */
static void stale_times_mint_nothing(const char *spec, uint64_t bound)
{
    struct stint_table_options options = options_of(STINT_MEMORY_HEAP, NULL);
    struct shared shared = {.table = crew_open(&options), .clock_ns = NOW_NS};
    crew_parse(&shared.quota, spec);
    crew_run(THREADS, take_with_stale_times, &shared);
    crew_check(shared.admitted <= bound, "%s, stale times: admitted %llu, at most %llu", spec,
               (unsigned long long)shared.admitted, (unsigned long long)bound);
    crew_check(shared.admitted >= bound / 2, "%s, stale times: admitted only %llu of %llu", spec,
               (unsigned long long)shared.admitted, (unsigned long long)bound);
    stint_table_close(shared.table);
}

int main(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/stint-race-%ld", (long)getpid());
    for (unsigned i = 0; i < SPECS; i++) {
        threads_on_a_table(specs[i]);
        threads_on_a_cell(specs[i]);
        if (!SWAPS_BETWEEN_PROCESSES)
            continue;
        processes(specs[i], STINT_MEMORY_SHARED, NULL);
        unlink(path);
        processes(specs[i], STINT_MEMORY_FILE, path);
    }
    unlink(path);
    one_counter(STINT_MEMORY_HEAP, "threads on a counter");
    if (SWAPS_BETWEEN_PROCESSES)
        one_counter(STINT_MEMORY_SHARED, "processes on a counter");
    /* From 5 s before the first time to the last, 85 s: 8.5 periods, begun ones count. */
    stale_times_mint_nothing("gcra 100/10s burst=10", 10 + 850 + 1);
    stale_times_mint_nothing("window 100/10s", 100 * 10);
    stale_times_mint_nothing("window 100/10s resolution=12", 100 * 10);
    stale_times_mint_nothing("fixed_window 100/10s", 100 * 10);
    stale_times_mint_nothing("log 100/10s", 100 * 10);
    return crew_report();
}
