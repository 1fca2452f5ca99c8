/* SPDX-License-Identifier: MIT */
/*
 * The pair of a pool under schedules that no machine would show in a year: as race_schedules.c, of
 * which the machine here is the smaller sister. Every task is a process with a list of keys of its
 * own; it gives way at every access to shared memory, and is stopped for long or killed there. What
 * is asked for makes pools change over in all ways there are. No key may ever be given out more
 * often than its limit in one window; where nothing makes trouble, all that the keys have goes out;
 * and a pool is as good as new when all units are free again, whoever died in it.
 *
 * race_pool_schedules [SCHEDULES [SEED]]: SCHEDULES of every scenario; a failure names its seed.
 */
#include "limiter/pool.h"

#include "store/bench.h"
#include "store/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <ucontext.h>

#define TASKS_MAX 5
#define KEYS_MAX 4
#define WINDOWS 3
#define STACK_SIZE (512 << 10)
#define STEP_NS 30000
#define STEPS_MAX 2000000
#define NOW_NS(window) ((10 * (uint64_t)(window) + 10) * NS_PER_HOUR)

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
    struct stint_pool *pool;
    uint64_t random;
};

struct scenario {
    const char *name;
    const char *spec;
    uint32_t keys, tasks, asks;            /* asks per task */
    uint32_t costs, benches, backs, lists; /* 1 in so many asks makes such trouble; 0: none */
    bool others;                           /* the last task has one key less */
    bool time_passes, stops, kills;
};

static struct {
    const struct scenario *scenario;
    struct task tasks[TASKS_MAX];
    char *stacks;
    ucontext_t main;
    unsigned current;
    uint64_t random, steps, boot_ns, switch_mask;
    unsigned stopped, killed, phases[TURNS_OTHER + 1];
    bool hung;
    struct stint_quota quota;
    struct stint_table *table;
    unsigned window;
    int64_t given[WINDOWS][KEYS_MAX];
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
    return (pid_t)(4000000 + world.current);
}

int schedule_signal(pid_t pid, int signal)
{
    unsigned task = (unsigned)(pid - 4000000);
    if (signal == 0 && task < TASKS_MAX && world.tasks[task].state != TASK_KILLED)
        return 0;
    errno = ESRCH;
    return -1;
}

static bool is_running(struct task *task)
{
    if (task->state == TASK_STOPPED && world.steps >= task->wakes_at)
        task->state = TASK_READY;
    return task->state == TASK_READY;
}

/* Somebody who can go on; with nobody left but stopped ones, they go on. -1: all is done. */
static int pick(void)
{
    unsigned n = world.scenario->tasks, from = (unsigned)(draw(&world.random) % n);
    for (unsigned i = 0; i < n; i++)
        if (is_running(&world.tasks[(from + i) % n]))
            return (int)((from + i) % n);
    for (unsigned i = 0; i < n; i++) {
        struct task *task = &world.tasks[(from + i) % n];
        if (task->state != TASK_STOPPED)
            continue;
        task->state = TASK_READY;
        return (int)((from + i) % n);
    }
    return -1;
}

static void go_on_with(int next)
{
    unsigned before = world.current;
    if (next == (int)before)
        return;
    if (next >= 0)
        world.current = (unsigned)next;
    swapcontext(&world.tasks[before].context, next < 0 ? &world.main : &world.tasks[next].context);
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
    if (world.scenario->stops && dice % 128 == 1) {
        task->state = TASK_STOPPED;
        task->wakes_at = world.steps + (dice >> 32) % 1024;
        world.stopped++;
    } else if (world.scenario->kills && dice % 256 == 2 &&
               world.killed + 1 < world.scenario->tasks) {
        task->state = TASK_KILLED;
        world.killed++;
    } else if ((dice >> 16 & world.switch_mask) != 0) {
        return;
    }
    go_on_with(pick());
}

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
    uint64_t now_ns = NOW_NS(window) + (scenario->time_passes ? dice % 1000 : 0);
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

static void task_main(unsigned number)
{
    struct task *task = &world.tasks[number];
    const struct scenario *scenario = world.scenario;
    for (uint32_t i = 0; i < scenario->asks; i++) {
        uint64_t dice = draw(&task->random);
        if (scenario->time_passes && dice >> 40 & 1 && happens(dice >> 50, 24) &&
            world.window + 1 < WINDOWS)
            world.window++;
        uint64_t now_ns = NOW_NS(world.window);
        if (happens(dice >> 24, scenario->benches))
            stint_pool_report(task->pool, "a", (int)(dice >> 33 & 3) / 3 * STINT_POOL_COOL,
                              (dice >> 33 & 3) == 3 ? NS_PER_S : 0, now_ns, NULL);
        if (happens(dice >> 28, scenario->lists))
            change_list(task, now_ns);
        take(task, draw(&task->random));
    }
    task->state = TASK_DONE;
    go_on_with(pick());
}

/* ---- One schedule ---------------------------------------------------------------------------- */

static void open_table(const struct scenario *scenario)
{
    struct stint_error error;
    const struct stint_table_options options = {.keys = 16,
                                                .keys16 = 16,
                                                .tickets = 1,
                                                .blocks = 16,
                                                .quotas = 8,
                                                .pools = 1,
                                                .skew_max_ns = NS_PER_S,
                                                .hash_key = {draw(&world.random), 1},
                                                .clock = STINT_CLOCK_VIRTUAL};
    if (stint_quota_parse(&world.quota, scenario->spec, &error) != 0 ||
        stint_table_open(&world.table, &options, &error) != 0) {
        fprintf(stderr, "%s\n", error.sentence);
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

static void start_task(const struct scenario *scenario, unsigned i)
{
    struct task *task = &world.tasks[i];
    bool is_other = scenario->others && i + 1 == scenario->tasks;
    task->state = TASK_READY;
    task->table = *world.table;
    task->page = (struct process_page){0, 0};
    task->table.process = &task->page; /* each as a process of its own */
    if (intern_open(&task->table.intern, &world.table->region, NULL) != 0)
        exit(1);
    open_pool(task, scenario->keys - is_other);
    task->random = draw(&world.random);
    getcontext(&task->context);
    task->context.uc_stack.ss_sp = world.stacks + (size_t)i * STACK_SIZE;
    task->context.uc_stack.ss_size = STACK_SIZE;
    task->context.uc_link = &world.main;
    makecontext(&task->context, (void (*)(void))task_main, 1, i);
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
    world.phases[turns_look(&last.pool->turns).phase]++;
    struct stint_pool_answer answer;
    while ((answer = stint_pool_next(last.pool, &ask)).name != NULL && given++ < 10 * all)
        units[answer.name[0] - 'a']++;
    for (unsigned window = 0; window < WINDOWS; window++)
        for (unsigned key = 0; key < scenario->keys; key++)
            if (world.given[window][key] > (int64_t)world.quota.limit)
                fail(scenario, seed, "in one window", key, world.given[window][key]);
    bool exact = !scenario->stops && !scenario->kills && !scenario->others && !scenario->costs &&
                 !scenario->benches && !scenario->backs && !scenario->lists &&
                 !scenario->time_passes;
    for (unsigned key = 0; exact && key < scenario->keys; key++)
        if (units[key] != (int64_t)world.quota.limit)
            fail(scenario, seed, "in the end", key, units[key]);
    /* Twice, as the first may find a pool that somebody left closing, and shuts it. */
    for (int i = 0; i < 2; i++) {
        ask.now_ns += 5 * NS_PER_HOUR;
        for (given = 0; given <= all && stint_pool_next(last.pool, &ask).name != NULL;)
            given++;
    }
    if (given != all)
        fail(scenario, seed, "and all others, long after", 0, given);
    stint_pool_close(last.pool);
}

static void run(const struct scenario *scenario, uint64_t seed)
{
    static const uint64_t masks[] = {0, 1, 3, 15, 63};
    world.scenario = NULL;
    world.random = seed;
    world.steps = 0;
    world.boot_ns = 1000;
    world.stopped = world.killed = world.window = 0;
    world.hung = false;
    memset(world.given, 0, sizeof(world.given));
    open_table(scenario);
    world.switch_mask = masks[draw(&world.random) % 5];
    for (unsigned i = 0; i < scenario->tasks; i++)
        start_task(scenario, i);
    world.scenario = scenario;
    world.current = 0;
    swapcontext(&world.main, &world.tasks[0].context);
    world.scenario = NULL;
    if (world.hung)
        fail(scenario, seed, "is waited for in vain", 0, 0);
    else
        check(scenario, seed);
    for (unsigned i = 0; i < scenario->tasks; i++) {
        stint_pool_close(world.tasks[i].pool);
        intern_close(&world.tasks[i].table.intern);
    }
    stint_table_close(world.table);
}

static const struct scenario scenarios[] = {
    {.name = "a pair by turns", .spec = "window 3/1h", .keys = 3, .tasks = 4, .asks = 3},
    {.name = "each key on its own", .spec = "gcra 3/1h", .keys = 3, .tasks = 4, .asks = 3},
    {.name = "a pair by turns, and time",
     .spec = "window 3/1h",
     .keys = 3,
     .tasks = 4,
     .asks = 8,
     .time_passes = true,
     .stops = true},
    {.name = "costs", .spec = "window 4/1h", .keys = 2, .tasks = 4, .asks = 6, .costs = 6},
    {.name = "benches", .spec = "window 3/1h", .keys = 3, .tasks = 4, .asks = 6, .benches = 6},
    {.name = "units given back, and stops",
     .spec = "window 3/1h resolution=12",
     .keys = 2,
     .tasks = 4,
     .asks = 6,
     .backs = 6,
     .stops = true},
    {.name = "lists that change, and stops",
     .spec = "window 3/1h",
     .keys = 3,
     .tasks = 4,
     .asks = 6,
     .lists = 8,
     .stops = true},
    {.name = "another list",
     .spec = "window 3/1h",
     .keys = 3,
     .tasks = 4,
     .asks = 6,
     .others = true,
     .costs = 8,
     .stops = true},
    {.name = "costs and kills",
     .spec = "window 3/1h",
     .keys = 3,
     .tasks = 5,
     .asks = 8,
     .costs = 6,
     .stops = true,
     .kills = true},
    {.name = "benches and kills",
     .spec = "window 3/1h resolution=12",
     .keys = 3,
     .tasks = 5,
     .asks = 8,
     .benches = 4,
     .stops = true,
     .kills = true},
    {.name = "all of it",
     .spec = "window 3/1h",
     .keys = 4,
     .tasks = 5,
     .asks = 10,
     .costs = 12,
     .benches = 12,
     .backs = 12,
     .lists = 24,
     .others = true,
     .time_passes = true,
     .stops = true,
     .kills = true},
};

int main(int argc, char **argv)
{
    uint64_t schedules = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    world.stacks = malloc((size_t)TASKS_MAX * STACK_SIZE);
    if (world.stacks == NULL)
        return 1;
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
        for (uint64_t seed = first; seed < first + schedules; seed++)
            run(&scenarios[i], seed);
    free(world.stacks);
    if (getenv("STINT_TEST_VERBOSE") != NULL)
        for (int phase = 0; phase <= TURNS_OTHER; phase++)
            fprintf(stderr, "%u schedules ended in phase %d\n", world.phases[phase], phase);
    if (failures > 0)
        fprintf(stderr, "%u schedules broke a promise\n", failures);
    return failures > 0;
}
