/* SPDX-License-Identifier: MIT */
/*
 * Threads of one process, and processes on one table, call it at the same time; what they were
 * answered is checked against the sequential engine (linear.h). Rounds have keys and an hour of
 * their own, and the first calls of a round overlap. Which others do differs from run to run; what
 * is asked depends on the seed alone.
 *
 * linear_crew [ROUNDS [SEED]]: ROUNDS of every scene, by threads and by processes.
 */
#include "linear/linear_draw.h"

#include "race/crew.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CREW 3
#define CALLS 12 /* of a caller in a round */
#define BATCH 250
#define ROUND_NS (60 * NS_PER_S) /* states of the last round have expired */

struct batch {
    struct stint_table *table;
    struct stint_quota quota;
    const struct linear_scene *scene;
    uint64_t seed;
    uint32_t arrived, left[BATCH];
    struct linear_call calls[BATCH][CREW * CALLS + LINEAR_KEYS];
};

struct sums {
    uint64_t histories, calls, overlaps, displaced, configurations;
};

static uint64_t read_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t round_ns(unsigned round)
{
    return 3600 * NS_PER_S + round * ROUND_NS;
}

/* Everyone is here for the n-th time before anyone goes on. */
static void meet(struct batch *batch, unsigned n)
{
    __atomic_add_fetch(&batch->arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&batch->arrived, __ATOMIC_ACQUIRE) < n * CREW)
        sched_yield();
}

static void work(void *arg, unsigned number)
{
    struct batch *batch = arg;
    for (unsigned round = 0; round < BATCH; round++) {
        struct linear_caller caller = {.scene = batch->scene,
                                       .random = batch->seed + round * CREW + number,
                                       .now_ns = round_ns(round) + 4 * NS_PER_S,
                                       .number = (uint8_t)number};
        meet(batch, 2 * round + 1);
        for (unsigned i = 0; i < CALLS; i++) {
            struct linear_call *call = &batch->calls[round][number * CALLS + i];
            linear_next(&caller, call);
            call->begin = read_clock();
            if (i == 0) /* all have begun before one has ended, also where they run in turns */
                meet(batch, 2 * round + 2);
            linear_ask(batch->table, &batch->quota, round, &caller, call);
            call->end = read_clock();
        }
        if (__atomic_add_fetch(&batch->left[round], 1, __ATOMIC_ACQ_REL) == CREW)
            linear_look(batch->table, &batch->quota, round, round_ns(round) + 8 * NS_PER_S,
                        &batch->calls[round][(size_t)CREW * CALLS]);
    }
}

static void work_as_processes(struct batch *batch)
{
    pid_t children[CREW];
    for (unsigned i = 0; i < CREW; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            work(batch, i);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < CREW; i++) {
        int status = 1;
        waitpid(children[i], &status, 0);
        crew_check(status == 0, "%s: a child ended with status %d", batch->scene->spec, status);
    }
}

static void check(struct batch *batch, const char *who, struct sums *sums)
{
    struct stint_table_info info;
    stint_table_info(batch->table, round_ns(BATCH), &info);
    uint64_t displaced = info.owners_displaced;
    for (unsigned round = 0; round < BATCH; round++) {
        const struct linear_history history = {.quota = &batch->quota,
                                               .calls = batch->calls[round],
                                               .n_calls = CREW * CALLS + LINEAR_KEYS,
                                               .skew_max_ns = LINEAR_SKEW_NS};
        struct linear_verdict verdict = linear_check(&history);
        if (!verdict.is_linearizable && crew_excuses(&displaced)) {
            sums->displaced++;
            continue;
        }
        sums->histories++;
        sums->calls += history.n_calls;
        sums->overlaps += verdict.overlaps;
        sums->configurations += verdict.configurations;
        crew_check(verdict.is_linearizable, "%s, happens %u, %s, seed %llu, round %u: %s",
                   batch->scene->spec, batch->scene->happens, who, (unsigned long long)batch->seed,
                   round, verdict.gave_up ? "too many configurations" : "not linearizable");
        if (!verdict.is_linearizable && crew_failures == 1)
            linear_print(&history);
    }
}

static void play(struct batch *batch, const struct linear_scene *scene, bool by_processes,
                 struct sums *sums)
{
    const struct stint_table_options options = {.keys = 4096,
                                                .keys16 = 4096,
                                                .keys_wide = 4096,
                                                .wide_size = 512,
                                                .skew_max_ns = LINEAR_SKEW_NS,
                                                .memory = by_processes ? STINT_MEMORY_SHARED
                                                                       : STINT_MEMORY_HEAP,
                                                .clock = STINT_CLOCK_VIRTUAL};
    batch->scene = scene;
    batch->arrived = 0;
    memset(batch->left, 0, sizeof(batch->left));
    batch->table = crew_open(&options);
    crew_parse(&batch->quota, scene->spec);
    if (by_processes)
        work_as_processes(batch);
    else
        crew_run(CREW, work, batch);
    check(batch, by_processes ? "processes" : "threads", sums);
    stint_table_close(batch->table);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : BATCH;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct batch *batch =
        mmap(NULL, sizeof(*batch), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (batch == MAP_FAILED)
        return 1;
    for (int by_processes = 0; by_processes < 2; by_processes++) {
        struct sums sums = {.histories = 0};
        for (unsigned round = 0; round < rounds; round += BATCH)
            for (size_t i = 0; i < LINEAR_SCENES; i++) {
                batch->seed =
                    seed * 1000003 + (round / BATCH * LINEAR_SCENES + i) * 2 * BATCH * CREW;
                play(batch, &linear_scenes[i], by_processes, &sums);
            }
        printf("%s, seed %llu: %llu histories of %llu calls are linearizable; %llu calls overlap "
               "an earlier one; %llu histories set aside\n",
               by_processes ? "processes" : "threads", (unsigned long long)seed,
               (unsigned long long)sums.histories, (unsigned long long)sums.calls,
               (unsigned long long)sums.overlaps, (unsigned long long)sums.displaced);
        crew_check(sums.histories > 0 && sums.overlaps >= sums.histories,
                   "histories without calls that overlap");
    }
    munmap(batch, sizeof(*batch));
    return crew_report();
}
