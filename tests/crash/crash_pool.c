/* SPDX-License-Identifier: MIT */
/*
 * Processes that share pools are killed, or stopped and let go on, at random instants: while they
 * take, while they report and give back. No key is ever given
 * out more often than its limit, nobody waits for the dead, and a pool goes on as if new once its
 * units are free. A worker counts a unit only after it was given, so a death can lose a count,
 * never add one.
 *
 * Each stretch of asks is a pool of its own, so that each begins unused.
 *
 * crash_pool [KILLS]: per algorithm; default 150, and thousands for the long run.
 */
#define _GNU_SOURCE
#include "crash/workers.h"

#include <unistd.h>

#define KEYS 3u
#define LIMIT 30u
#define STRETCHES 32768u
#define ASKS_PER_STRETCH 160u
#define KILLS_MAX 300u /* in one table: its pools are soon used up */
#define HOUR_NS (UINT64_C(3600) * 1000000000)

struct shared {
    uint64_t asks;              /* by all; says which pool is asked, and when it is */
    uint64_t finished[WORKERS]; /* asks of each */
    uint32_t given[STRETCHES][KEYS];
    uint64_t odd, kills;
};

static struct shared *shared;
static struct stint_table *table;
static struct stint_quota quota;

static uint64_t now_of(uint64_t stretch)
{
    return (10 + stretch * 3) * HOUR_NS;
}

static uint64_t stretch_now(void)
{
    return __atomic_load_n(&shared->asks, __ATOMIC_RELAXED) / ASKS_PER_STRETCH;
}

static struct stint_pool *open_pool(uint64_t stretch, unsigned n_keys)
{
    char name[24];
    const struct stint_pool_options options = {.name = name, .keys_max = KEYS};
    struct stint_pool *pool = NULL;
    snprintf(name, sizeof(name), "%llu", (unsigned long long)stretch);
    if (stint_pool_open(&pool, table, &options, NULL) != 0)
        return NULL;
    for (unsigned i = 0; i < n_keys; i++) {
        const char key_name[2] = {(char)('a' + i), '\0'};
        struct stint_pool_key key = {.name = key_name, .quotas = &quota, .n_quotas = 1};
        if (stint_pool_add(pool, &key, now_of(stretch), NULL) != 0)
            __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
    }
    return pool;
}

static void give_back(struct stint_pool *pool, uint64_t stretch,
                      const struct stint_pool_answer *answer)
{
    __atomic_fetch_sub(&shared->given[stretch][answer->name[0] - 'a'], 1, __ATOMIC_RELAXED);
    stint_pool_give_back(pool, answer->name, 1, answer->granted_at_ns, now_of(stretch), NULL);
}

static void ask(struct stint_pool *pool, uint64_t stretch, uint64_t turn)
{
    /* A third of the stretch is of plain asks; then, now and then, comes what disturbs them. */
    uint64_t at = __atomic_load_n(&shared->asks, __ATOMIC_RELAXED) % ASKS_PER_STRETCH;
    bool disturbs = at > ASKS_PER_STRETCH / 3 && stretch % 8 != 0;
    uint32_t cost = disturbs && turn % 16 == 3 ? 2 : 1;
    const struct stint_pool_ask ask = {.now_ns = now_of(stretch), .cost = cost};
    struct stint_pool_answer answer = stint_pool_next(pool, &ask);
    /* Who was stopped until the time of later pools has come was rightly given new units. */
    if (answer.name != NULL && stretch_now() == stretch) {
        __atomic_fetch_add(&shared->given[stretch][answer.name[0] - 'a'], cost, __ATOMIC_RELAXED);
        if (disturbs && turn % 16 == 7)
            give_back(pool, stretch, &answer);
    } else if (answer.name == NULL && answer.decision.outcome != STINT_DENY) {
        __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
    }
    if (disturbs && turn % 16 == 11)
        stint_pool_report(pool, "b", turn % 32 == 11 ? STINT_POOL_BACK_OFF : STINT_POOL_OK, 0,
                          now_of(stretch), NULL);
}

static void work(unsigned worker)
{
    struct stint_pool *pool = NULL;
    uint64_t opened = UINT64_MAX;
    for (uint64_t turn = worker * 5;; turn++) {
        uint64_t stretch =
            __atomic_fetch_add(&shared->asks, 1, __ATOMIC_RELAXED) / ASKS_PER_STRETCH;
        if (stretch >= STRETCHES)
            _exit(0);
        if (stretch != opened) {
            /* Some have another list of keys. */
            stint_pool_close(pool);
            pool = open_pool(stretch, stretch % 16 == 9 && worker == 1 ? KEYS - 1 : KEYS);
            opened = stretch;
        }
        if (pool == NULL)
            __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
        else
            ask(pool, stretch, turn);
        __atomic_fetch_add(&shared->finished[worker], 1, __ATOMIC_RELAXED);
    }
}

static bool is_over(void)
{
    return stretch_now() >= STRETCHES;
}

static void harass(const char *spec, unsigned kills)
{
    struct workers workers = {
        .name = spec, .work = work, .is_over = is_over, .finished = shared->finished};
    workers_start(&workers);
    for (unsigned i = 0; i < kills && !is_over(); i++) {
        unsigned worker = workers_pick(&workers, 600);
        if (i % 8 == 7) {
            workers_stop_for(&workers, worker, 2000);
        } else {
            workers_replace(&workers, worker, 0);
            shared->kills++;
        }
        if (i % 64 == 63 && !workers_get_on(&workers))
            break;
    }
    workers_end(&workers);
}

/* All units of a pool, once those of its stretch are free again. */
static unsigned drain(struct stint_pool *pool, uint64_t now_ns)
{
    const struct stint_pool_ask ask = {.now_ns = now_ns, .cost = 1};
    unsigned given = 0;
    while (given < 10 * KEYS * LIMIT && stint_pool_next(pool, &ask).name != NULL)
        given++;
    return given;
}

static void check_what_is_left(const char *spec, unsigned kills)
{
    uint64_t last = stretch_now() < STRETCHES ? stretch_now() : STRETCHES - 1;
    uint64_t now_ns = now_of(last) + 6 * HOUR_NS;
    for (uint64_t stretch = 0; stretch < STRETCHES; stretch++)
        for (unsigned key = 0; key < KEYS; key++)
            crew_check(shared->given[stretch][key] <= LIMIT ||
                           shared->given[stretch][key] > UINT32_MAX / 2,
                       "%s: key %c of pool %llu was given %u times", spec, 'a' + (int)key,
                       (unsigned long long)stretch, shared->given[stretch][key]);
    for (uint64_t stretch = last > 40 ? last - 40 : 0; stretch <= last; stretch++) {
        struct stint_pool *pool = open_pool(stretch, KEYS);
        unsigned given = drain(pool, now_ns);
        crew_check(given == KEYS * LIMIT, "%s: pool %llu gave %u afterwards", spec,
                   (unsigned long long)stretch, given);
        stint_pool_close(pool);
    }
    crew_check(shared->odd == 0, "%s: %llu odd answers", spec, (unsigned long long)shared->odd);
    crew_check(last >= 8, "%s: only %llu pools", spec, (unsigned long long)last);
    crew_check(shared->kills >= kills / 2, "%s: only %llu were killed", spec,
               (unsigned long long)shared->kills);
    if (getenv("STINT_TEST_VERBOSE") != NULL)
        fprintf(stderr, "%s: %llu asks, %llu pools, %llu killed\n", spec,
                (unsigned long long)shared->asks, (unsigned long long)last,
                (unsigned long long)shared->kills);
}

static void survive(const char *spec, unsigned kills)
{
    const struct stint_table_options options = {.keys = 1024,
                                                .keys16 = 1024,
                                                .keys_wide = 1024,
                                                .wide_size = 512,
                                                .pools = STRETCHES,
                                                .memory = STINT_MEMORY_SHARED,
                                                .clock = STINT_CLOCK_VIRTUAL};
    memset(shared, 0, sizeof(*shared));
    crew_parse(&quota, spec);
    table = crew_open(&options);
    harass(spec, kills);
    check_what_is_left(spec, kills);
    stint_table_close(table);
}

int main(int argc, char **argv)
{
    static const char *const specs[] = {"window 30/1h", "window 30/1h resolution=12",
                                        "window 30/1h resolution=100", "log 30/1h"};
    unsigned kills = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 150;
    shared = workers_share(sizeof(*shared));
    for (unsigned i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
        for (unsigned left = kills; left > 0; left -= left < KILLS_MAX ? left : KILLS_MAX)
            survive(specs[i], left < KILLS_MAX ? left : KILLS_MAX);
    return crew_report();
}
