/* SPDX-License-Identifier: MIT */
/*
 * The store under schedules that no machine would show in a year. Every task runs src/table as it
 * is and gives way at every access to shared memory; a seeded scheduler (schedule.h) decides who
 * goes on, who is stopped for long and who is killed there. Small tables and few keys make tasks
 * meet. No key may ever admit more than its limit in one window, and where nobody was stopped or
 * killed, it admits exactly that.
 *
 * race_schedules [SCHEDULES [SEED [WORD]]]: SCHEDULES of every scenario, or of those with WORD in
 * their names; one that fails names its seed.
 */
#include "race/scheduled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 6
#define CLUSTERS 3
#define FRONT_PLACES 18 /* three sets */

struct scenario {
    const char *name;
    const char
        *specs[SCHEDULED_QUOTAS_MAX]; /* more than one: other parameters under the same rule */
    uint32_t keys;                    /* of them, and of places for their states */
    uint32_t tasks, asks;             /* per task */
    uint32_t lists;                   /* 1 in `lists` asks is for two keys at once; 0: none */
    unsigned happens;
};

/* States expire and are used again; tasks are stopped for long; they are killed; they also peek
 * and look at the whole table; the first set of a class is its front, and almost full. */
enum { TIME = 1, STOPS = 2, KILLS = 4, LOOKS = 8, FRONT = 16 };

static struct {
    const struct scenario *scenario;
    struct scheduled on;
    unsigned cluster;
    uint64_t certain[CLUSTERS][KEYS_MAX], total[KEYS_MAX];
} world;

static unsigned failures;

/* ---- The tasks ------------------------------------------------------------------------------- */

#define NOW_NS(cluster) ((10 * (cluster) + 10) * SCHEDULED_HOUR_NS)

static struct stint_decision take(struct scheduled_task *task, const struct stint_quota *quota,
                                  uint32_t key, uint32_t cost, uint64_t now_ns)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    return table_ask(&task->table, quota, &key, sizeof(key), &ask, NULL, NULL);
}

static void admit(unsigned began, uint32_t key, uint32_t units)
{
    world.total[key] += units;
    if (began == world.cluster)
        world.certain[began][key] += units;
}

/* Takes from two keys, one of which gives back if the other refuses: what a list does. */
static void take_two(struct scheduled_task *task, const struct stint_quota *quota, uint32_t key,
                     uint64_t now_ns)
{
    uint32_t other = (key + 1) % world.scenario->keys;
    uint32_t keys[2] = {key, other};
    struct stint_item items[2] = {{quota, &keys[0], sizeof(key), 1},
                                  {quota, &keys[1], sizeof(key), 1}};
    unsigned began = world.cluster;
    if (stint_take_all(&task->table, items, 2, now_ns).outcome == STINT_ALLOW) {
        admit(began, key, 1);
        admit(began, other, 1);
    }
}

static bool see_entry(const struct stint_entry *entry, void *arg)
{
    (void)arg;
    return entry->quota.limit > 0;
}

/* Other keys find no free slot in the front: new ones go to the main part first soon. */
static void spill_others(const struct scheduled_task *task)
{
    for (int class = 0; class < FRONTS; class ++) {
        const struct slots *slots = &task->table.slots[class];
        uint8_t *main_part = slots->base + slots->front * slots->set_size;
        slots_spill(slots, slots_pair(slots, main_part, 0));
    }
}

static void work(unsigned number, uint64_t seed)
{
    struct scheduled_task *task = &world.on.tasks[number];
    const struct scenario *scenario = world.scenario;
    for (uint32_t i = 0; i < scenario->asks; i++) {
        uint64_t dice = schedule_draw(&seed);
        uint32_t key = (uint32_t)(dice >> 32) % scenario->keys;
        const struct stint_quota *quota = &world.on.quotas[dice % world.on.n_quotas];
        if ((scenario->happens & TIME) && dice % 16 == 0 && world.cluster + 1 < CLUSTERS)
            world.cluster++;
        unsigned began = world.cluster;
        uint64_t now_ns = NOW_NS(began) + (scenario->happens & TIME ? (dice >> 8) % 1000 : 0);
        if ((scenario->happens & FRONT) && (dice >> 40) % 4 == 0)
            spill_others(task);
        if ((scenario->happens & LOOKS) && (dice >> 20) % 8 == 0) {
            struct stint_ask ask = {.now_ns = now_ns, .cost = 1, .verb = STINT_PEEK};
            table_ask(&task->table, quota, &key, sizeof(key), &ask, NULL, NULL);
            stint_table_each(&task->table, 0, see_entry, NULL);
        } else if (scenario->lists > 0 && (dice >> 24) % scenario->lists == 0) {
            take_two(task, quota, key, now_ns);
        } else if (take(task, quota, key, 1, now_ns).outcome == STINT_ALLOW) {
            admit(began, key, 1);
        }
    }
}

/* ---- One schedule ---------------------------------------------------------------------------- */

static void open_table(const struct scenario *scenario, uint64_t hash_key)
{
    uint32_t places = scenario->keys + (scenario->happens & FRONT ? FRONT_PLACES : 0);
    struct stint_table_options options = {.keys = places,
                                          .keys16 = places,
                                          .keys_wide = scenario->keys,
                                          .wide_size = 512,
                                          .tickets = 32,
                                          .blocks = 64,
                                          .quotas = 8,
                                          .skew_max_ns = NS_PER_S,
                                          .hash_key = {hash_key, 1},
                                          .clock = STINT_CLOCK_VIRTUAL};
    scheduled_open(&world.on, &options, scenario->specs);
}

/*
 * A front of one set in three or four. Other keys leave a few of its slots free, or none, so that
 * some tasks find a free slot there where others find none. How many may spill differs too.
 */
static void make_fronts(uint64_t random)
{
    for (int class = 0; class < FRONTS; class ++) {
        struct slots *slots = &world.on.table->slots[class];
        slots->front = 1;
        slots->spilled = &world.on.table->region.header->spilled[class];
        slots->spilled_max = 1 + schedule_draw(&random) % 3;
    }
    uint32_t others = WAYS - (uint32_t)(schedule_draw(&random) % 3);
    for (unsigned i = 0; i < world.on.n_quotas; i++) {
        struct stint_quota quota = world.on.quotas[i];
        quota.rule = 0;
        if (stint_quota_check(&quota, NULL) != 0)
            exit(1);
        if (table_class(&quota) >= FRONTS)
            continue;
        for (uint32_t key = KEYS_MAX; key < KEYS_MAX + others; key++)
            stint_take(world.on.table, &quota, &key, sizeof(key), 1, NOW_NS(0));
    }
}

static void fail(const struct scenario *scenario, uint64_t seed, const char *what, uint32_t key,
                 uint64_t units)
{
    if (failures++ < 20)
        fprintf(stderr, "%s, seed %llu: key %u %s: %llu units\n", scenario->name,
                (unsigned long long)seed, key, what, (unsigned long long)units);
}

/*
 * What a rule admits in all its classes: no unit is missing once those who were stopped have gone
 * on, and nothing that a dead one left behind outlasts the units that it had hold of.
 */
static void check_rule(const struct scenario *scenario, uint64_t seed, uint32_t limit)
{
    struct stint_table_info info;
    uint64_t now_ns = NOW_NS(world.cluster);
    stint_table_info(world.on.table, now_ns, &info);
    bool exact = !(scenario->happens & (STOPS | KILLS | TIME)) && scenario->lists == 0 &&
                 info.owners_displaced == 0;
    for (uint32_t key = 0; exact && key < scenario->keys; key++) {
        uint64_t units = world.total[key] + scheduled_drain(&world.on, key, now_ns);
        if (units != limit)
            fail(scenario, seed, "in the end", key, units);
    }
    int full = scheduled_full_quota(&world.on, 0, limit, now_ns);
    if (full >= 0)
        fail(scenario, seed, "is full for ever", 0, (uint64_t)full);
}

static void check(const struct scenario *scenario, uint64_t seed, unsigned killed)
{
    uint32_t limit = 0;
    bool is_one_limit = true;
    for (unsigned i = 0; i < world.on.n_quotas; i++) {
        limit = world.on.quotas[i].limit > limit ? world.on.quotas[i].limit : limit;
        is_one_limit = is_one_limit && world.on.quotas[i].limit == world.on.quotas[0].limit;
    }
    for (uint32_t key = 0; key < scenario->keys; key++) {
        for (unsigned cluster = 0; cluster < CLUSTERS; cluster++)
            if (world.certain[cluster][key] > limit)
                fail(scenario, seed, "within one window", key, world.certain[cluster][key]);
        if (world.total[key] > (uint64_t)limit * (world.cluster + 1))
            fail(scenario, seed, "over all windows", key, world.total[key]);
    }
    struct stint_table_info info;
    stint_table_info(world.on.table, NOW_NS(world.cluster), &info);
    bool exact = !(scenario->happens & (STOPS | KILLS | TIME)) && scenario->specs[1] == NULL &&
                 scenario->lists == 0 && scenario->keys == 1 && info.owners_displaced == 0;
    if (exact && world.total[0] != limit)
        fail(scenario, seed, "admits too little", 0, world.total[0]);
    int frozen = scheduled_frozen_class(&world.on);
    if (killed == 0 && info.owners_displaced == 0 && frozen >= 0)
        fail(scenario, seed, "is left frozen in class", 0, (uint64_t)frozen);
    if (scenario->specs[1] != NULL && is_one_limit)
        check_rule(scenario, seed, limit);
}

static void run(const struct scenario *scenario, uint64_t seed)
{
    uint64_t random = seed;
    world.scenario = scenario;
    world.cluster = 0;
    memset(world.certain, 0, sizeof(world.certain));
    memset(world.total, 0, sizeof(world.total));
    schedule_boot();
    open_table(scenario, schedule_draw(&random));
    if (scenario->happens & FRONT)
        make_fronts(schedule_draw(&random));
    scheduled_make_tasks(&world.on, scenario->tasks);
    const struct schedule schedule = {.seed = random,
                                      .tasks = scenario->tasks,
                                      .stops = scenario->happens & STOPS ? 256 : 0,
                                      .kills = scenario->happens & KILLS ? 512 : 0,
                                      .stopped_steps = 4096,
                                      .work = work};
    struct schedule_end end = schedule_run(&schedule);
    if (end.hung)
        fail(scenario, seed, "is waited for in vain", 0, 0);
    check(scenario, seed, end.killed);
    scheduled_close(&world.on, scenario->tasks);
}

#define WINDOW8 "window 3/1h resolution=12"
#define WINDOW16 "window 3/1h"
#define LOG "log 3/1h"

/* Name, specs, keys, tasks, asks, lists, and what happens. */
static const struct scenario scenarios[] = {
    {"one rule in classes 8 and 16", {WINDOW8, WINDOW16}, 1, 4, 6, 0, 0},
    {"one rule in class 8 and wide", {WINDOW8, LOG}, 1, 4, 6, 0, 0},
    {"one rule in class 16 and wide", {WINDOW16, LOG}, 1, 4, 6, 0, 0},
    {"one rule in three classes", {WINDOW8, WINDOW16, LOG}, 1, 3, 6, 0, 0},
    {"one rule in three classes, stops", {WINDOW8, WINDOW16, "log 2/1h"}, 1, 5, 8, 0, STOPS},
    {"one rule in three classes, kills", {WINDOW8, WINDOW16, LOG}, 1, 5, 8, 0, KILLS},
    {"one rule in three classes, stops, kills and many keys",
     {WINDOW8, "window 2/1h", "buckets 3/1h time_slack=10m"},
     3,
     5,
     10,
     4,
     TIME | STOPS | KILLS | LOOKS},
    {"log, one key under stops", {"log 2/1h"}, 1, 4, 4, 0, STOPS},
    {"gcra, one key", {"gcra 5/1h burst=5"}, 1, 4, 4, 0, 0},
    {"window of 8 bytes, one key", {"window 5/1h resolution=12"}, 1, 4, 4, 0, 0},
    {"window of 16 bytes, one key", {"window 5/1h"}, 1, 4, 4, 0, 0},
    {"log, one key", {"log 5/1h"}, 1, 4, 4, 0, 0},
    {"window in 32 bytes, one key", {"window 5/1h resolution=100"}, 1, 4, 4, 0, 0},
    {"concurrency, one key", {"concurrency 5 lease=1h"}, 1, 4, 4, 0, 0},
    {"window8 under stops", {WINDOW8}, 3, 4, 10, 4, TIME | STOPS},
    {"window8 under kills", {WINDOW8}, 3, 5, 10, 0, TIME | STOPS | KILLS},
    {"window8, parameters change",
     {WINDOW8, "window 2/1h resolution=12"},
     2,
     4,
     10,
     0,
     TIME | STOPS},
    {"window16 under stops", {WINDOW16}, 3, 4, 10, 4, TIME | STOPS},
    {"window16 under kills", {WINDOW16}, 3, 5, 10, 0, TIME | STOPS | KILLS},
    {"window16, parameters change", {WINDOW16, "window 2/1h"}, 2, 4, 10, 0, TIME | STOPS},
    {"window16, parameters change, kills", {WINDOW16, "window 2/1h"}, 1, 5, 10, 0, STOPS | KILLS},
    {"log under stops", {LOG}, 3, 4, 10, 4, TIME | STOPS},
    {"log under kills", {LOG}, 3, 5, 10, 0, TIME | STOPS | KILLS},
    {"log, parameters change", {LOG, "log 2/1h"}, 2, 4, 10, 0, TIME | STOPS | KILLS},
    {"log, seen by others at a time long past", {LOG}, 2, 4, 10, 0, STOPS | KILLS | LOOKS},
    {"window16, lists and looks", {WINDOW16}, 2, 5, 10, 2, TIME | STOPS | KILLS | LOOKS},
    {"front, window8, one key", {WINDOW8}, 1, 4, 6, 0, FRONT},
    {"front, window8 under kills", {WINDOW8}, 3, 5, 10, 4, TIME | STOPS | KILLS | LOOKS | FRONT},
    {"front, window16, one key", {WINDOW16}, 1, 4, 6, 0, FRONT},
    {"front, window16 under kills", {WINDOW16}, 3, 5, 10, 4, TIME | STOPS | KILLS | LOOKS | FRONT},
    {"front, window16, parameters change",
     {WINDOW16, "window 2/1h"},
     2,
     4,
     10,
     0,
     TIME | STOPS | FRONT},
    {"front, one rule in three classes", {WINDOW8, WINDOW16, LOG}, 1, 3, 6, 0, FRONT},
    {"front, one rule in three classes, kills",
     {WINDOW8, WINDOW16, LOG},
     2,
     5,
     8,
     0,
     TIME | STOPS | KILLS | FRONT},
    {"buckets under stops", {"buckets 3/1h time_slack=10m"}, 3, 4, 10, 0, TIME | STOPS | KILLS},
};

int main(int argc, char **argv)
{
    uint64_t schedules = argc > 1 ? strtoull(argv[1], NULL, 10) : 1500;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    size_t n_run = 0;
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (argc > 3 && strstr(scenarios[i].name, argv[3]) == NULL)
            continue;
        n_run++;
        for (uint64_t seed = first; seed < first + schedules; seed++)
            run(&scenarios[i], seed);
    }
    printf("%zu scenarios, %llu schedules of each\n", n_run, (unsigned long long)schedules);
    if (failures > 0)
        fprintf(stderr, "%u schedules broke a promise\n", failures);
    return failures > 0;
}
