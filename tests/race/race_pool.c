/* SPDX-License-Identifier: MIT */
/*
 * Threads and processes on one pool, also while keys come, go and are cooling down: no key is ever
 * given out more often than its limit allows, all that may be given out is, and every grant has
 * charged its key once.
 */
#define _GNU_SOURCE
#include "race/crew.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS 4
#define KEYS 5u
#define LIMIT 40u
#define ASKS (2 * KEYS * LIMIT / WORKERS)
#define TIMES 60 /* with a new table: the limits are soon used up */
#define HOUR_NS (UINT64_C(3600) * 1000000000)
#define NOW_NS (100 * HOUR_NS)

/* ThreadSanitizer puts a lock of the process's own in place of a 16-byte swap: none between two. */
#if defined(__SANITIZE_THREAD__)
#define SWAPS_BETWEEN_PROCESSES 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SWAPS_BETWEEN_PROCESSES 0
#endif
#endif
#ifndef SWAPS_BETWEEN_PROCESSES
#define SWAPS_BETWEEN_PROCESSES 1
#endif

enum trouble {
    TROUBLE_NONE,
    TROUBLE_COST,   /* one asks for 2 at a time, now and then */
    TROUBLE_BENCH,  /* one benches a key, and lifts it */
    TROUBLE_BACK,   /* all give some back */
    TROUBLE_LIST,   /* one removes a key, and adds it */
    TROUBLE_OTHERS, /* one has another list */
};

static const char *const troubles[] = {"no trouble",       "costs",          "benches",
                                       "units given back", "changing lists", "another list"};

struct shared {
    uint64_t given[2][KEYS]; /* in two windows */
    uint64_t asked, odd;
};

static struct shared *shared;
static struct stint_table *table;
static struct stint_pool *common; /* for threads; a process has its own */
static struct stint_quota quota;
static enum trouble trouble;
static uint8_t order;

static struct stint_pool *open_pool(unsigned first, unsigned n)
{
    const struct stint_pool_options options = {.order = order};
    struct stint_error error;
    struct stint_pool *pool;
    crew_check(stint_pool_open(&pool, table, &options, &error) == 0, "%s", error.message);
    for (unsigned i = 0; i < n; i++) {
        const char name[2] = {(char)('a' + (first + i) % KEYS), '\0'};
        struct stint_pool_key key = {.name = name, .quotas = &quota, .n_quotas = 1};
        crew_check(stint_pool_add(pool, &key, NOW_NS, &error) == 0, "%s", error.message);
    }
    return pool;
}

static void count(uint64_t *counter, uint64_t by)
{
    __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

static void take_one(struct stint_pool *pool, unsigned window, unsigned turn, uint64_t now_ns)
{
    uint32_t cost = trouble == TROUBLE_COST && turn % 9 == 8 ? 2 : 1;
    const struct stint_pool_ask ask = {.now_ns = now_ns, .cost = cost};
    struct stint_pool_answer answer = stint_pool_next(pool, &ask);
    count(&shared->asked, 1);
    if (answer.name == NULL) {
        if (answer.wait_ns == 0 || answer.decision.outcome == STINT_ALLOW)
            count(&shared->odd, 1);
        return;
    }
    unsigned key = (unsigned)(answer.name[0] - 'a');
    if (key >= KEYS || answer.decision.outcome != STINT_ALLOW) {
        count(&shared->odd, 1);
        return;
    }
    count(&shared->given[window][key], cost);
    if (trouble == TROUBLE_BACK && turn % 7 == 6) {
        const char name[2] = {(char)('a' + key), '\0'};
        uint32_t back = 0;
        /* Before, so that nobody is given the unit while it still counts here. */
        count(&shared->given[window][key], (uint64_t)-1);
        stint_pool_give_back(pool, name, 1, answer.granted_at_ns, now_ns, &back);
        if (back > 1)
            count(&shared->odd, 1);
    }
}

static void make_trouble(struct stint_pool *pool, unsigned turn, uint64_t now_ns)
{
    struct stint_pool_key c = {.name = "c", .quotas = &quota, .n_quotas = 1};
    int code = 0;
    if (trouble == TROUBLE_BENCH)
        code = turn % 2 == 0
                   ? stint_pool_report(pool, "b", STINT_POOL_COOL, HOUR_NS / 2, now_ns, NULL)
                   : stint_pool_report(pool, "b", STINT_POOL_OK, 0, now_ns, NULL);
    else if (trouble == TROUBLE_LIST)
        code = turn % 2 == 0 ? stint_pool_remove(pool, "c", now_ns, NULL)
                             : stint_pool_add(pool, &c, now_ns, NULL);
    if (code != 0)
        count(&shared->odd, 1);
}

static void work(struct stint_pool *pool, unsigned number, unsigned window)
{
    uint64_t now_ns = NOW_NS + window * 10 * HOUR_NS;
    for (unsigned turn = 0; turn < ASKS; turn++) {
        take_one(pool, window, turn + number, now_ns);
        /* An even number of times: in the end all keys are there, and none is cooling down. */
        if (number == 0 && turn % 8 == 5 && turn / 8 < ASKS / 16 * 2)
            make_trouble(pool, turn / 8, now_ns);
    }
}

static void thread_work(void *arg, unsigned number)
{
    work(common, number, *(unsigned *)arg);
}

static void fork_work(unsigned window)
{
    pid_t children[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            crew_failures = 0; /* its own */
            bool differs = trouble == TROUBLE_OTHERS && i == 1;
            struct stint_pool *pool = open_pool(i, differs ? KEYS - 1 : KEYS);
            work(pool, i, window);
            stint_pool_close(pool);
            _exit(crew_failures > 0);
        }
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        int status = -1;
        waitpid(children[i], &status, 0);
        crew_check(status == 0, "a worker ended with %d", status);
    }
}

struct left {
    uint64_t units[KEYS], all;
};

static bool see_left(const struct stint_pool_status *status, void *arg)
{
    struct left *left = arg;
    left->units[status->name[0] - 'a'] = status->decision.remaining;
    left->all += status->decision.remaining;
    return true;
}

/* What the callers were given, and what the pool says is left. */
static void check_units(const char *spec, unsigned window, bool processes)
{
    struct left left = {.all = 0};
    const char *who = processes ? "processes" : "threads", *what = troubles[trouble];
    struct stint_pool *pool = processes ? open_pool(0, KEYS) : common;
    stint_pool_each(pool, NOW_NS + window * 10 * HOUR_NS, see_left, &left);
    for (unsigned key = 0; key < KEYS; key++) {
        uint64_t given = shared->given[window][key];
        crew_check(given <= LIMIT, "%s, %s, %s: key %c was given %llu times", spec, who, what,
                   'a' + (int)key, (unsigned long long)given);
        crew_check(given + left.units[key] <= LIMIT, "%s, %s, %s: key %c has %llu left after %llu",
                   spec, who, what, 'a' + (int)key, (unsigned long long)left.units[key],
                   (unsigned long long)given);
        /* Where nobody is in the way, each grant has charged its key once. */
        if (trouble == TROUBLE_NONE)
            crew_check(given == LIMIT, "%s, %s: key %c was given only %llu times", spec, who,
                       'a' + (int)key, (unsigned long long)given);
    }
    crew_check(shared->odd == 0, "%s, %s, %s: %llu odd answers", spec, who, what,
               (unsigned long long)shared->odd);
    if (processes)
        stint_pool_close(pool);
}

static void race(const char *spec, bool processes)
{
    const struct stint_table_options options = {.keys = 64,
                                                .keys16 = 64,
                                                .keys_wide = 64,
                                                .wide_size = 512,
                                                .memory = STINT_MEMORY_SHARED,
                                                .clock = STINT_CLOCK_VIRTUAL};
    memset(shared, 0, sizeof(*shared));
    crew_parse(&quota, spec);
    table = crew_open(&options);
    common = processes ? NULL : open_pool(0, KEYS);
    for (unsigned window = 0; window < 2; window++) {
        if (processes)
            fork_work(window);
        else
            crew_run(WORKERS, thread_work, &window);
        check_units(spec, window, processes);
    }
    stint_pool_close(common);
    stint_table_close(table);
}

int main(void)
{
    static const char *const specs[] = {"window 40/1h", "window 40/1h resolution=12", "log 40/1h",
                                        "gcra 40/1h"};
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (unsigned time = 0; time < TIMES; time++) {
        for (unsigned i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
            trouble = (enum trouble)(time % 6);
            order = (uint8_t)(time / 6 % 4 == 3 ? STINT_LEAST_USED : STINT_ROUND_ROBIN);
            if (trouble != TROUBLE_OTHERS)
                race(specs[i], false);
            if (SWAPS_BETWEEN_PROCESSES && time % 3 == i % 3)
                race(specs[i], true);
        }
    }
    return crew_report();
}
