/* SPDX-License-Identifier: MIT */
/*
 * The store under schedules that no machine would show in a year. Every task runs src/store as it
 * is, on a stack of its own, and gives way at every access to shared memory; a seeded scheduler
 * decides who goes on, who is stopped for long and who is killed there. Small tables and few keys
 * make tasks meet. No key may ever admit more than its limit in one window, and where nobody was
 * stopped or killed, it admits exactly that.
 *
 * race_schedules [SCHEDULES [SEED]]: SCHEDULES of every scenario; one that fails names its seed.
 */
#include "store/place.h"

#include "store/clock.h"
#include "store/region_layout.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <ucontext.h>

#define TASKS_MAX 5
#define KEYS_MAX 6
#define CLUSTERS 3
#define SPECS_MAX 3
#define STACK_SIZE (512 << 10)
#define PID_FIRST 4000000
#define STEP_NS 30000 /* so that an owner's patience ends within a few hundred steps */
#define STEPS_MAX 2000000

void schedule_step(void);
pid_t schedule_pid(void);
int schedule_signal(pid_t pid, int signal);

enum task_state { TASK_READY, TASK_STOPPED, TASK_KILLED, TASK_DONE };

struct task {
    ucontext_t context;
    enum task_state state;
    uint64_t wakes_at; /* step at which a stopped one goes on */
    struct stint_table table;
    struct process_page page;
    uint64_t random;
};

struct scenario {
    const char *name;
    const char *specs[SPECS_MAX]; /* more than one: other parameters under the same rule */
    uint32_t keys;                /* of them, and of places for their states */
    uint32_t tasks, asks;         /* per task */
    uint32_t lists;               /* 1 in `lists` asks is for two keys at once; 0: none */
    bool time_passes;             /* states die and are reused */
    bool stops, kills;
    bool looks; /* tasks also peek and look at the whole table */
};

static struct {
    const struct scenario *scenario;
    struct task tasks[TASKS_MAX];
    char *stacks;
    ucontext_t main;
    unsigned current;
    uint64_t random, steps, boot_ns, switch_mask;
    unsigned stopped, killed;
    bool hung;
    struct stint_quota quotas[SPECS_MAX];
    unsigned n_quotas;
    struct stint_table *table;
    unsigned cluster;
    uint64_t certain[CLUSTERS][KEYS_MAX], total[KEYS_MAX];
} world;

static unsigned failures;

static uint64_t draw(uint64_t *random)
{
    uint64_t mixed = (*random += UINT64_C(0x9E3779B97F4A7C15));
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

/* ---- The machine ----------------------------------------------------------------------------- */

uint64_t clock_boot_ns(void)
{
    return world.boot_ns;
}

int64_t clock_wall_ns(void)
{
    return (int64_t)world.boot_ns;
}

uint64_t clock_boot_id(void)
{
    return 1;
}

pid_t schedule_pid(void)
{
    return (pid_t)(PID_FIRST + world.current);
}

int schedule_signal(pid_t pid, int signal)
{
    unsigned task = (unsigned)(pid - PID_FIRST);
    assert(signal == 0);
    if (task < TASKS_MAX && world.tasks[task].state != TASK_KILLED)
        return 0;
    errno = ESRCH;
    return -1;
}

static bool is_running(unsigned task)
{
    struct task *it = &world.tasks[task];
    if (it->state == TASK_STOPPED && world.steps >= it->wakes_at)
        it->state = TASK_READY;
    return it->state == TASK_READY;
}

/* Somebody who can go on; with nobody left but stopped ones, they go on. */
static int pick(void)
{
    unsigned n = world.scenario->tasks, from = (unsigned)(draw(&world.random) % n);
    for (unsigned i = 0; i < n; i++)
        if (is_running((from + i) % n))
            return (int)((from + i) % n);
    for (unsigned i = 0; i < n; i++) {
        struct task *task = &world.tasks[(from + i) % n];
        if (task->state == TASK_STOPPED) {
            task->state = TASK_READY;
            return (int)((from + i) % n);
        }
    }
    return -1;
}

static void go_on_with(int next)
{
    unsigned before = world.current;
    if (next == (int)before)
        return;
    if (next < 0) {
        swapcontext(&world.tasks[before].context, &world.main);
        return;
    }
    world.current = (unsigned)next;
    swapcontext(&world.tasks[before].context, &world.tasks[next].context);
}

void schedule_step(void)
{
    world.boot_ns += STEP_NS;
    if (world.scenario == NULL)
        return; /* the table is being made, or looked at in the end */
    struct task *task = &world.tasks[world.current];
    if (++world.steps > STEPS_MAX) {
        world.hung = true;
        swapcontext(&task->context, &world.main);
    }
    uint64_t dice = draw(&world.random);
    if (world.scenario->stops && dice % 256 == 1) {
        task->state = TASK_STOPPED;
        task->wakes_at = world.steps + (dice >> 32) % 4096;
        world.stopped++;
    } else if (world.scenario->kills && dice % 512 == 2 &&
               world.killed + 1 < world.scenario->tasks) {
        task->state = TASK_KILLED;
        world.killed++;
    } else if ((dice >> 16 & world.switch_mask) != 0) {
        return;
    }
    go_on_with(pick());
}

/* ---- The tasks ------------------------------------------------------------------------------- */

#define NOW_NS(cluster) ((10 * (cluster) + 10) * 3600 * NS_PER_S)

static struct stint_decision take(struct task *task, const struct stint_quota *quota, uint32_t key,
                                  uint32_t cost, uint64_t now_ns)
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
static void take_two(struct task *task, const struct stint_quota *quota, uint32_t key,
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

static void task_main(unsigned number)
{
    struct task *task = &world.tasks[number];
    const struct scenario *scenario = world.scenario;
    for (uint32_t i = 0; i < scenario->asks; i++) {
        uint64_t dice = draw(&task->random);
        uint32_t key = (uint32_t)(dice >> 32) % scenario->keys;
        const struct stint_quota *quota = &world.quotas[dice % world.n_quotas];
        if (scenario->time_passes && dice % 16 == 0 && world.cluster + 1 < CLUSTERS)
            world.cluster++;
        unsigned began = world.cluster;
        uint64_t now_ns = NOW_NS(began) + (scenario->time_passes ? (dice >> 8) % 1000 : 0);
        if (scenario->looks && (dice >> 20) % 8 == 0) {
            struct stint_ask ask = {.now_ns = now_ns, .cost = 1, .verb = STINT_PEEK};
            table_ask(&task->table, quota, &key, sizeof(key), &ask, NULL, NULL);
            stint_table_each(&task->table, 0, see_entry, NULL);
        } else if (scenario->lists > 0 && (dice >> 24) % scenario->lists == 0) {
            take_two(task, quota, key, now_ns);
        } else if (take(task, quota, key, 1, now_ns).outcome == STINT_ALLOW) {
            admit(began, key, 1);
        }
    }
    task->state = TASK_DONE;
    go_on_with(pick());
}

/* ---- One schedule ---------------------------------------------------------------------------- */

static void open_table(const struct scenario *scenario)
{
    struct stint_error error;
    struct stint_table_options options = {.keys = scenario->keys,
                                          .keys16 = scenario->keys,
                                          .keys_wide = scenario->keys,
                                          .wide_size = 512,
                                          .tickets = 32,
                                          .blocks = 64,
                                          .quotas = 8,
                                          .skew_max_ns = NS_PER_S,
                                          .hash_key = {draw(&world.random), 1},
                                          .clock = STINT_CLOCK_VIRTUAL};
    if (stint_table_open(&world.table, &options, &error) != 0) {
        fprintf(stderr, "%s\n", error.sentence);
        exit(1);
    }
    world.n_quotas = 0;
    while (world.n_quotas < SPECS_MAX && scenario->specs[world.n_quotas] != NULL) {
        struct stint_quota *quota = &world.quotas[world.n_quotas];
        if (stint_quota_parse(quota, scenario->specs[world.n_quotas++], &error) != 0) {
            fprintf(stderr, "%s\n", error.sentence);
            exit(1);
        }
        quota->rule = scenario->specs[1] != NULL ? 77 : 0;
    }
}

static void start_tasks(const struct scenario *scenario)
{
    for (unsigned i = 0; i < scenario->tasks; i++) {
        struct task *task = &world.tasks[i];
        task->state = TASK_READY;
        task->table = *world.table;
        task->page = (struct process_page){0, 0};
        task->table.process = &task->page; /* each as a process of its own */
        if (intern_open(&task->table.intern, &world.table->region, NULL) != 0)
            exit(1);
        task->random = draw(&world.random);
        getcontext(&task->context);
        task->context.uc_stack.ss_sp = world.stacks + (size_t)i * STACK_SIZE;
        task->context.uc_stack.ss_size = STACK_SIZE;
        task->context.uc_link = &world.main;
        makecontext(&task->context, (void (*)(void))task_main, 1, i);
    }
}

static void fail(const struct scenario *scenario, uint64_t seed, const char *what, uint32_t key,
                 uint64_t units)
{
    if (failures++ < 20)
        fprintf(stderr, "%s, seed %llu: key %u %s: %llu units\n", scenario->name,
                (unsigned long long)seed, key, what, (unsigned long long)units);
}

static struct stint_decision take_last(uint32_t key, unsigned quota, uint32_t cost, uint64_t now_ns)
{
    return stint_take(world.table, &world.quotas[quota], &key, sizeof(key), cost, now_ns);
}

/* One by one, by the last who is left: until each quota has nothing more to give. */
static uint64_t drain(uint32_t key, uint64_t now_ns)
{
    uint64_t units = 0;
    for (unsigned i = 0; i < world.n_quotas; i++)
        while (take_last(key, i, 1, now_ns).outcome == STINT_ALLOW)
            units++;
    return units;
}

/*
 * What a rule admits in all its classes: no unit is missing once those who were stopped have gone
 * on, and nothing that a dead one left behind outlasts the units that it had hold of.
 */
static void check_rule(const struct scenario *scenario, uint64_t seed, uint32_t limit)
{
    struct stint_table_info info;
    uint64_t now_ns = NOW_NS(world.cluster);
    stint_table_info(world.table, now_ns, &info);
    bool exact = !scenario->stops && !scenario->kills && !scenario->time_passes &&
                 scenario->lists == 0 && info.owners_displaced == 0;
    for (uint32_t key = 0; exact && key < scenario->keys; key++) {
        uint64_t units = world.total[key] + drain(key, now_ns);
        if (units != limit)
            fail(scenario, seed, "in the end", key, units);
    }
    now_ns += 3 * 3600 * NS_PER_S;
    drain(0, now_ns); /* finds a wide state whose owner died: full for one period from here on */
    for (unsigned i = 0; i < world.n_quotas; i++) {
        now_ns += 3 * 3600 * NS_PER_S;
        if (take_last(0, i, limit, now_ns).outcome != STINT_ALLOW)
            fail(scenario, seed, "is full for ever", 0, i);
    }
}

/* Whoever froze a slot and was not killed has withdrawn it or put it back. */
static void check_frozen(const struct scenario *scenario, uint64_t seed)
{
    for (int class = CLASS_8; class <= CLASS_WIDE; class ++) {
        const struct slots *slots = &world.table->slots[class];
        for (uint64_t slot = 0; slot < slots->sets * WAYS; slot++) {
            uint8_t *set = slots->base + slot / WAYS * slots->set_size;
            struct seen seen = slots_see(slots, set, (unsigned)(slot % WAYS));
            if (slots_is_frozen(seen.pair.first))
                fail(scenario, seed, "is left frozen in class", 0, (uint64_t) class);
        }
    }
}

static void check(const struct scenario *scenario, uint64_t seed)
{
    uint32_t limit = 0;
    bool is_one_limit = true;
    for (unsigned i = 0; i < world.n_quotas; i++) {
        limit = world.quotas[i].limit > limit ? world.quotas[i].limit : limit;
        is_one_limit = is_one_limit && world.quotas[i].limit == world.quotas[0].limit;
    }
    for (uint32_t key = 0; key < scenario->keys; key++) {
        for (unsigned cluster = 0; cluster < CLUSTERS; cluster++)
            if (world.certain[cluster][key] > limit)
                fail(scenario, seed, "within one window", key, world.certain[cluster][key]);
        if (world.total[key] > (uint64_t)limit * (world.cluster + 1))
            fail(scenario, seed, "over all windows", key, world.total[key]);
    }
    struct stint_table_info info;
    stint_table_info(world.table, NOW_NS(world.cluster), &info);
    bool exact = !scenario->stops && !scenario->kills && !scenario->time_passes &&
                 scenario->specs[1] == NULL && scenario->lists == 0 && scenario->keys == 1 &&
                 info.owners_displaced == 0;
    if (exact && world.total[0] != limit)
        fail(scenario, seed, "admits too little", 0, world.total[0]);
    if (world.killed == 0 && info.owners_displaced == 0)
        check_frozen(scenario, seed);
    if (scenario->specs[1] != NULL && is_one_limit)
        check_rule(scenario, seed, limit);
}

static void run(const struct scenario *scenario, uint64_t seed)
{
    static const uint64_t masks[] = {0, 1, 3, 15, 63};
    world.scenario = NULL;
    world.random = seed;
    world.steps = 0;
    world.boot_ns = 1000;
    world.stopped = world.killed = 0;
    world.hung = false;
    world.cluster = 0;
    memset(world.certain, 0, sizeof(world.certain));
    memset(world.total, 0, sizeof(world.total));
    open_table(scenario);
    world.switch_mask = masks[draw(&world.random) % 5];
    start_tasks(scenario);
    world.scenario = scenario;
    world.current = 0;
    swapcontext(&world.main, &world.tasks[0].context);
    world.scenario = NULL;
    if (world.hung)
        fail(scenario, seed, "is waited for in vain", 0, 0);
    check(scenario, seed);
    for (unsigned i = 0; i < scenario->tasks; i++)
        intern_close(&world.tasks[i].table.intern);
    stint_table_close(world.table);
}

static const struct scenario scenarios[] = {
    {.name = "one rule in classes 8 and 16",
     .specs = {"window 3/1h resolution=12", "window 3/1h"},
     .keys = 1,
     .tasks = 4,
     .asks = 6},
    {.name = "one rule in class 8 and wide",
     .specs = {"window 3/1h resolution=12", "log 3/1h"},
     .keys = 1,
     .tasks = 4,
     .asks = 6},
    {.name = "one rule in class 16 and wide",
     .specs = {"window 3/1h", "log 3/1h"},
     .keys = 1,
     .tasks = 4,
     .asks = 6},
    {.name = "one rule in three classes",
     .specs = {"window 3/1h resolution=12", "window 3/1h", "log 3/1h"},
     .keys = 1,
     .tasks = 3,
     .asks = 6},
    {.name = "one rule in three classes, stops",
     .specs = {"window 3/1h resolution=12", "window 3/1h", "log 2/1h"},
     .keys = 1,
     .tasks = 5,
     .asks = 8,
     .stops = true},
    {.name = "one rule in three classes, kills",
     .specs = {"window 3/1h resolution=12", "window 3/1h", "log 3/1h"},
     .keys = 1,
     .tasks = 5,
     .asks = 8,
     .kills = true},
    {.name = "one rule in three classes, stops, kills and many keys",
     .specs = {"window 3/1h resolution=12", "window 2/1h", "buckets 3/1h time_slack=10m"},
     .keys = 3,
     .tasks = 5,
     .asks = 10,
     .lists = 4,
     .looks = true,
     .time_passes = true,
     .stops = true,
     .kills = true},

    {.name = "gcra, one key", .specs = {"gcra 5/1h burst=5"}, .keys = 1, .tasks = 4, .asks = 4},
    {.name = "window of 8 bytes, one key",
     .specs = {"window 5/1h resolution=12"},
     .keys = 1,
     .tasks = 4,
     .asks = 4},
    {.name = "window of 16 bytes, one key",
     .specs = {"window 5/1h"},
     .keys = 1,
     .tasks = 4,
     .asks = 4},
    {.name = "log, one key", .specs = {"log 5/1h"}, .keys = 1, .tasks = 4, .asks = 4},
    {.name = "concurrency, one key",
     .specs = {"concurrency 5 lease=1h"},
     .keys = 1,
     .tasks = 4,
     .asks = 4},

    {.name = "window8 under stops",
     .specs = {"window 3/1h resolution=12"},
     .keys = 3,
     .tasks = 4,
     .asks = 10,
     .lists = 4,
     .time_passes = true,
     .stops = true},
    {.name = "window8 under kills",
     .specs = {"window 3/1h resolution=12"},
     .keys = 3,
     .tasks = 5,
     .asks = 10,
     .time_passes = true,
     .stops = true,
     .kills = true},
    {.name = "window8, parameters change",
     .specs = {"window 3/1h resolution=12", "window 2/1h resolution=12"},
     .keys = 2,
     .tasks = 4,
     .asks = 10,
     .time_passes = true,
     .stops = true},

    {.name = "window16 under stops",
     .specs = {"window 3/1h"},
     .keys = 3,
     .tasks = 4,
     .asks = 10,
     .lists = 4,
     .time_passes = true,
     .stops = true},
    {.name = "window16 under kills",
     .specs = {"window 3/1h"},
     .keys = 3,
     .tasks = 5,
     .asks = 10,
     .time_passes = true,
     .stops = true,
     .kills = true},
    {.name = "window16, parameters change",
     .specs = {"window 3/1h", "window 2/1h"},
     .keys = 2,
     .tasks = 4,
     .asks = 10,
     .time_passes = true,
     .stops = true},
    {.name = "window16, parameters change, kills",
     .specs = {"window 3/1h", "window 2/1h"},
     .keys = 1,
     .tasks = 5,
     .asks = 10,
     .stops = true,
     .kills = true},

    {.name = "log under stops",
     .specs = {"log 3/1h"},
     .keys = 3,
     .tasks = 4,
     .asks = 10,
     .lists = 4,
     .time_passes = true,
     .stops = true},
    {.name = "log under kills",
     .specs = {"log 3/1h"},
     .keys = 3,
     .tasks = 5,
     .asks = 10,
     .time_passes = true,
     .stops = true,
     .kills = true},
    {.name = "log, parameters change",
     .specs = {"log 3/1h", "log 2/1h"},
     .keys = 2,
     .tasks = 4,
     .asks = 10,
     .time_passes = true,
     .stops = true,
     .kills = true},
    {.name = "log, seen by others at a time long past",
     .specs = {"log 3/1h"},
     .keys = 2,
     .tasks = 4,
     .asks = 10,
     .looks = true,
     .stops = true,
     .kills = true},
    {.name = "window16, lists and looks",
     .specs = {"window 3/1h"},
     .keys = 2,
     .tasks = 5,
     .asks = 10,
     .lists = 2,
     .looks = true,
     .time_passes = true,
     .stops = true,
     .kills = true},
    {.name = "buckets under stops",
     .specs = {"buckets 3/1h time_slack=10m"},
     .keys = 3,
     .tasks = 4,
     .asks = 10,
     .time_passes = true,
     .stops = true,
     .kills = true},
};

int main(int argc, char **argv)
{
    uint64_t schedules = argc > 1 ? strtoull(argv[1], NULL, 10) : 1500;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    world.stacks = malloc((size_t)TASKS_MAX * STACK_SIZE);
    if (world.stacks == NULL)
        return 1;
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
        for (uint64_t seed = first; seed < first + schedules; seed++)
            run(&scenarios[i], seed);
    free(world.stacks);
    if (failures > 0)
        fprintf(stderr, "%u schedules broke a promise\n", failures);
    return failures > 0;
}
