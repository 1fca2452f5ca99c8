/* SPDX-License-Identifier: MIT */
/*
 * A pool under schedules that no machine would show in a year, on the machine of
 * race_schedules.c (schedule.h). Every task is a process with a list of keys of its own; it gives
 * way at every access to shared memory, and is stopped for long or killed there. No key may ever be
 * given out more often than its limit in one window; where nothing makes trouble, all that the keys
 * have goes out; and a pool is as good as new when all units are free again, whoever died in it.
 *
 * race_pool_schedules [SCHEDULES [SEED]]: SCHEDULES of every scenario; a failure names its seed.
 */
#include "limiter/pool.h"

#include "race/scheduled.h"
#include "table/cooldown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 4
#define WINDOWS 3
#define NOW_NS(window) ((10 * (uint64_t)(window) + 10) * NS_PER_HOUR)

struct task {
    struct stint_table table;
    struct process_page page;
    struct stint_pool *pool;
};

struct scenario {
    const char *name;
    const char *spec;
    uint32_t keys, tasks, asks;              /* asks per task */
    uint32_t costs, cooldowns, backs, lists; /* 1 in so many asks makes such trouble; 0: none */
    unsigned happens;
};

/* The last task has one key less; windows pass; tasks are stopped for long; they are killed. */
enum { OTHERS = 1, TIME = 2, STOPS = 4, KILLS = 8 };

static struct {
    const struct scenario *scenario;
    struct task tasks[SCHEDULE_TASKS_MAX];
    struct stint_quota quota;
    struct stint_table *table;
    unsigned window;
    int64_t given[WINDOWS][KEYS_MAX];
} world;

static unsigned failures;

/* ---- The tasks ------------------------------------------------------------------------------- */

static bool happens(uint64_t dice, uint32_t one_in)
{
    return one_in > 0 && dice % one_in == 0;
}

static void add_key(struct stint_pool *pool, unsigned i, uint64_t now_ns)
{
    const char name[2] = {(char)('a' + i), '\0'};
    struct stint_pool_key key = {.name = name, .quotas = &world.quota, .n_quotas = 1};
    if (stint_pool_add(pool, &key, now_ns, NULL) != 0)
        failures++;
}

/* A unit that is given back may be given again before its giver knows that it was taken. */
static void give_back(struct task *task, unsigned window, const struct stint_pool_answer *answer,
                      uint64_t now_ns)
{
    world.given[window][answer->name[0] - 'a']--;
    stint_pool_give_back(task->pool, answer->name, 1, answer->granted_at_ns, now_ns, NULL);
}

static void take(struct task *task, uint64_t dice)
{
    const struct scenario *scenario = world.scenario;
    unsigned window = world.window;
    uint64_t now_ns = NOW_NS(window) + (scenario->happens & TIME ? dice % 1000 : 0);
    const struct stint_pool_ask ask = {.now_ns = now_ns,
                                       .cost = happens(dice >> 10, scenario->costs) ? 2 : 1};
    struct stint_pool_answer answer = stint_pool_next(task->pool, &ask);
    /* Who was stopped until later windows came was rightly given new units. */
    if (answer.name == NULL || window != world.window)
        return;
    world.given[window][answer.name[0] - 'a'] += ask.cost;
    if (happens(dice >> 20, scenario->backs))
        give_back(task, window, &answer, now_ns);
}

static void change_list(struct task *task, uint64_t now_ns)
{
    if (stint_pool_remove(task->pool, "b", now_ns, NULL) == 0)
        add_key(task->pool, 1, now_ns);
}

static void work(unsigned number, uint64_t seed)
{
    struct task *task = &world.tasks[number];
    const struct scenario *scenario = world.scenario;
    for (uint32_t i = 0; i < scenario->asks; i++) {
        uint64_t dice = schedule_draw(&seed);
        if ((scenario->happens & TIME) && dice >> 40 & 1 && happens(dice >> 50, 24) &&
            world.window + 1 < WINDOWS)
            world.window++;
        uint64_t now_ns = NOW_NS(world.window);
        if (happens(dice >> 24, scenario->cooldowns))
            stint_pool_report(task->pool, "a", (int)(dice >> 33 & 3) / 3 * STINT_POOL_COOL,
                              (dice >> 33 & 3) == 3 ? NS_PER_S : 0, now_ns, NULL);
        if (happens(dice >> 28, scenario->lists))
            change_list(task, now_ns);
        take(task, schedule_draw(&seed));
    }
}

/* ---- One schedule ---------------------------------------------------------------------------- */

static void open_table(const struct scenario *scenario, uint64_t hash_key)
{
    struct stint_error error;
    const struct stint_table_options options = {.keys = 16,
                                                .keys16 = 16,
                                                .tickets = 1,
                                                .blocks = 16,
                                                .quotas = 8,
                                                .pools = 1,
                                                .skew_max_ns = NS_PER_S,
                                                .hash_key = {hash_key, 1},
                                                .clock = STINT_CLOCK_VIRTUAL};
    if (stint_quota_parse(&world.quota, scenario->spec, &error) != 0 ||
        stint_table_open(&world.table, &options, &error) != 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
}

static void open_pool(struct task *task, uint32_t keys)
{
    if (stint_pool_open(&task->pool, &task->table, NULL, NULL) != 0)
        exit(1);
    for (uint32_t i = 0; i < keys; i++)
        add_key(task->pool, i, NOW_NS(0));
}

static void make_task(const struct scenario *scenario, unsigned i)
{
    struct task *task = &world.tasks[i];
    bool is_other = (scenario->happens & OTHERS) && i + 1 == scenario->tasks;
    scheduled_open_process(&task->table, &task->page, world.table);
    open_pool(task, scenario->keys - is_other);
}

static void fail(const struct scenario *scenario, uint64_t seed, const char *what, unsigned key,
                 int64_t units)
{
    if (failures++ < 20)
        fprintf(stderr, "%s, seed %llu: key %c %s: %lld units\n", scenario->name,
                (unsigned long long)seed, 'a' + (int)key, what, (long long)units);
}

/* By one who comes when all are gone: what is left now, and that all is there in the end. */
static void check(const struct scenario *scenario, uint64_t seed)
{
    struct stint_pool_ask ask = {.now_ns = NOW_NS(world.window), .cost = 1};
    struct task last = {.table = *world.table};
    uint32_t all = scenario->keys * world.quota.limit, given = 0;
    int64_t *units = world.given[world.window];
    open_pool(&last, scenario->keys);
    struct stint_pool_answer answer;
    while ((answer = stint_pool_next(last.pool, &ask)).name != NULL && given++ < 10 * all)
        units[answer.name[0] - 'a']++;
    for (unsigned window = 0; window < WINDOWS; window++)
        for (unsigned key = 0; key < scenario->keys; key++)
            if (world.given[window][key] > (int64_t)world.quota.limit)
                fail(scenario, seed, "in one window", key, world.given[window][key]);
    bool exact = scenario->happens == 0 && !scenario->costs && !scenario->cooldowns &&
                 !scenario->backs && !scenario->lists;
    for (unsigned key = 0; exact && key < scenario->keys; key++)
        if (units[key] != (int64_t)world.quota.limit)
            fail(scenario, seed, "in the end", key, units[key]);
    ask.now_ns += 5 * NS_PER_HOUR;
    for (given = 0; given <= all && stint_pool_next(last.pool, &ask).name != NULL;)
        given++;
    if (given != all)
        fail(scenario, seed, "and all others, long after", 0, given);
    stint_pool_close(last.pool);
}

static void run(const struct scenario *scenario, uint64_t seed)
{
    uint64_t random = seed;
    world.scenario = scenario;
    world.window = 0;
    memset(world.given, 0, sizeof(world.given));
    schedule_boot();
    open_table(scenario, schedule_draw(&random));
    for (unsigned i = 0; i < scenario->tasks; i++)
        make_task(scenario, i);
    const struct schedule schedule = {.seed = random,
                                      .tasks = scenario->tasks,
                                      .stops = scenario->happens & STOPS ? 128 : 0,
                                      .kills = scenario->happens & KILLS ? 256 : 0,
                                      .stopped_steps = 1024,
                                      .work = work};
    if (schedule_run(&schedule).hung)
        fail(scenario, seed, "is waited for in vain", 0, 0);
    else
        check(scenario, seed);
    for (unsigned i = 0; i < scenario->tasks; i++) {
        stint_pool_close(world.tasks[i].pool);
        intern_close(&world.tasks[i].table.intern);
    }
    stint_table_close(world.table);
}

/* Name, spec; keys, tasks, asks; costs, cooldowns, backs, lists; and what happens. */
static const struct scenario scenarios[] = {
    {"keys by turns", "window 3/1h", 3, 4, 3, 0, 0, 0, 0, 0},
    {"keys of gcra", "gcra 3/1h", 3, 4, 3, 0, 0, 0, 0, 0},
    {"keys by turns, and time", "window 3/1h", 3, 4, 8, 0, 0, 0, 0, TIME | STOPS},
    {"costs", "window 4/1h", 2, 4, 6, 6, 0, 0, 0, 0},
    {"benches", "window 3/1h", 3, 4, 6, 0, 6, 0, 0, 0},
    {"units given back, and stops", "window 3/1h resolution=12", 2, 4, 6, 0, 0, 6, 0, STOPS},
    {"lists that change, and stops", "window 3/1h", 3, 4, 6, 0, 0, 0, 8, STOPS},
    {"another list", "window 3/1h", 3, 4, 6, 8, 0, 0, 0, OTHERS | STOPS},
    {"costs and kills", "window 3/1h", 3, 5, 8, 6, 0, 0, 0, STOPS | KILLS},
    {"benches and kills", "window 3/1h resolution=12", 3, 5, 8, 0, 4, 0, 0, STOPS | KILLS},
    {"all of it", "window 3/1h", 4, 5, 10, 12, 12, 12, 24, OTHERS | TIME | STOPS | KILLS},
};

int main(int argc, char **argv)
{
    uint64_t schedules = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
        for (uint64_t seed = first; seed < first + schedules; seed++)
            run(&scenarios[i], seed);
    if (failures > 0)
        fprintf(stderr, "%u schedules broke a promise\n", failures);
    return failures > 0;
}
