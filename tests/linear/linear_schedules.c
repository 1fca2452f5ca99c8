/* SPDX-License-Identifier: MIT */
/*
 * Histories from the schedules of race/schedule.h: the table gives way at every access to shared
 * memory, and a seed decides who goes on, who is stopped for long and who is killed there. The same
 * seed makes the same history. With a fault in the swaps of the table some are not linearizable.
 *
 * linear_schedules [SCHEDULES [SEED]]: SCHEDULES of every scene; one that fails names its seed.
 */
#include "linear/linear_draw.h"

#include "base/wide_int.h"
#include "race/scheduled.h"
#include "table/region/region.h"
#include "table/table.h"

#include <stdlib.h>
#include <string.h>

#define TASKS 4
#define CALLS 6 /* of a task */
#define START_NS (3600 * NS_PER_S)
#define STOPPED_STEPS 2048

enum kind { PLAIN, STOPS, KILLS, FAULTY, KINDS };
static const char *const kinds[] = {"plain", "with stops", "with kills", "with lost swaps"};

struct task {
    struct stint_table table;
    struct process_page page;
    struct linear_call calls[CALLS];
    size_t n_calls;
};

static struct {
    const struct linear_scene *scene;
    struct stint_quota quota;
    struct stint_table *table;
    struct task tasks[TASKS];
    uint64_t clock; /* ticks at each beginning and end */
} world;

struct sums {
    uint64_t histories, calls, overlaps, killed, displaced, refused;
};

static void work(unsigned number, uint64_t seed)
{
    struct task *task = &world.tasks[number];
    struct linear_caller caller = {.scene = world.scene,
                                   .random = seed,
                                   .now_ns = START_NS + 4 * NS_PER_S,
                                   .number = (uint8_t)number};
    while (task->n_calls < CALLS) {
        struct linear_call *call = &task->calls[task->n_calls++];
        linear_next(&caller, call);
        call->begin = ++world.clock;
        call->end = LINEAR_UNANSWERED;
        linear_ask(&task->table, &world.quota, 0, &caller, call);
        call->end = ++world.clock;
    }
}

static void open_tables(uint64_t hash_key)
{
    struct stint_error error;
    const struct stint_table_options options = {.keys = 8,
                                                .keys16 = 8,
                                                .keys_wide = 8,
                                                .wide_size = 512,
                                                .tickets = 8,
                                                .blocks = 16,
                                                .quotas = 8,
                                                .skew_max_ns = LINEAR_SKEW_NS,
                                                .hash_key = {hash_key, 1},
                                                .clock = STINT_CLOCK_VIRTUAL};
    if (stint_table_open(&world.table, &options, &error) != 0 ||
        stint_quota_parse(&world.quota, world.scene->spec, &error) != 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    for (unsigned i = 0; i < TASKS; i++) {
        struct task *task = &world.tasks[i];
        *task = (struct task){.n_calls = 0};
        scheduled_open_process(&task->table, &task->page, world.table);
    }
}

/* Every call that began, and a look at what is left. */
static size_t collect(struct linear_call *calls)
{
    size_t n = 0;
    for (unsigned i = 0; i < TASKS; i++) {
        memcpy(&calls[n], world.tasks[i].calls, world.tasks[i].n_calls * sizeof(calls[0]));
        n += world.tasks[i].n_calls;
    }
    return n + linear_look(world.table, &world.quota, 0, START_NS + 7 * NS_PER_S, &calls[n]);
}

static void run(enum kind kind, uint64_t seed, struct sums *sums, bool shows)
{
    struct linear_call calls[TASKS * CALLS + LINEAR_KEYS];
    struct stint_table_info info;
    world.clock = 0;
    schedule_boot();
    open_tables(seed * 7 + 1);
    const struct schedule schedule = {.seed = seed,
                                      .tasks = TASKS,
                                      .stops = kind == STOPS || kind == KILLS ? 128 : 0,
                                      .kills = kind == KILLS ? 256 : 0,
                                      .lost_swaps = kind == FAULTY ? 16 : 0,
                                      .stopped_steps = STOPPED_STEPS,
                                      .work = work};
    struct schedule_end end = schedule_run(&schedule);
    stint_table_info(world.table, START_NS, &info);
    /* A wide state whose owner was stopped or killed is full from then. */
    if (info.owners_displaced > 0 || end.hung) {
        sums->displaced++;
    } else {
        const struct linear_history history = {.quota = &world.quota,
                                               .calls = calls,
                                               .n_calls = collect(calls),
                                               .skew_max_ns = LINEAR_SKEW_NS};
        struct linear_verdict verdict = linear_check(&history);
        sums->histories++;
        sums->calls += history.n_calls;
        sums->overlaps += verdict.overlaps;
        sums->killed += end.killed;
        if (!verdict.is_linearizable && shows && sums->refused == 0) {
            fprintf(stderr, "%s, happens %u, %s, seed %llu: %s\n", world.scene->spec,
                    world.scene->happens, kinds[kind], (unsigned long long)seed,
                    verdict.gave_up ? "too many configurations" : "not linearizable");
            linear_print(&history);
        }
        sums->refused += !verdict.is_linearizable;
    }
    for (unsigned i = 0; i < TASKS; i++)
        intern_close(&world.tasks[i].table.intern);
    stint_table_close(world.table);
}

static bool is_wide(const struct linear_scene *scene)
{
    return strncmp(scene->spec, "log", 3) == 0 || strncmp(scene->spec, "buckets", 7) == 0;
}

int main(int argc, char **argv)
{
    uint64_t schedules = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bool failed = false;
    for (int kind = PLAIN; kind < KINDS; kind++) {
        struct sums sums = {.histories = 0};
        for (size_t i = 0; i < LINEAR_SCENES; i++) {
            world.scene = &linear_scenes[i];
            /* A wide state of a killed owner is full; of its owner word no swap may be lost. */
            if (is_wide(world.scene) && (kind == KILLS || kind == FAULTY))
                continue;
            for (uint64_t seed = first; seed < first + schedules; seed++)
                run((enum kind)kind, seed, &sums, kind != FAULTY);
        }
        printf("%s, seeds from %llu: %llu histories of %llu calls, %llu overlap an earlier one, "
               "%llu tasks killed; %llu refused, %llu set aside\n",
               kinds[kind], (unsigned long long)first, (unsigned long long)sums.histories,
               (unsigned long long)sums.calls, (unsigned long long)sums.overlaps,
               (unsigned long long)sums.killed, (unsigned long long)sums.refused,
               (unsigned long long)sums.displaced);
        failed |= (sums.refused > 0) != (kind == FAULTY) || sums.overlaps < sums.histories;
    }
    return failed;
}
