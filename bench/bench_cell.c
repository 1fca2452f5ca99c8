/* SPDX-License-Identifier: MIT */
/*
 * One hot state of the caller's, now given: a take against a bare loop around a swap of the same
 * width. Built twice: with the static library, and with the shared one, through its call table.
 *
 * "hot" is a high limit, asked for at 80 % of its rate: nearly every take is granted within the
 * slot and bunch of the last. "busy" is 100 a minute at 80 % of that rate: at every second take a
 * new slot or bunch. "denied" asks for more than there is, and so only reads. "its own clock" reads
 * stint_now() before each take; its baseline reads clock_gettime() instead.
 */
#include "measure.h"

#include "table/slot/cas16.h"
#include <stint.h>

#include <stdlib.h>
#include <time.h>

#ifdef BENCH_SHARED
#define LINKED ", shared library"
#else
#define LINKED ""
#endif

struct hot {
    struct stint_quota quota;
    _Alignas(64) struct stint_cell16 cell;
    _Alignas(64) struct pair bare;
    uint64_t now_ns, step_ns, ops;
    uint64_t denied;
};

static void bare8(void *arg, unsigned turn)
{
    struct hot *hot = arg;
    (void)turn;
    for (uint64_t i = 0; i < hot->ops; i++) {
        uint64_t word = __atomic_load_n(&hot->bare.first, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&hot->bare.first, &word, word + 1, true,
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }
}

CAS16_TARGET static void bare16(void *arg, unsigned turn)
{
    struct hot *hot = arg;
    (void)turn;
    for (uint64_t i = 0; i < hot->ops; i++) {
        struct pair seen;
        do {
            seen = cas16_load(&hot->bare);
        } while (!cas16(&hot->bare, seen, (struct pair){seen.first + 1, seen.second}));
    }
}

static void take8(void *arg, unsigned turn)
{
    struct hot *hot = arg;
    struct stint_cell8 *cell = (struct stint_cell8 *)hot->cell.word;
    (void)turn;
    for (uint64_t i = 0; i < hot->ops; i++) {
        hot->now_ns += hot->step_ns;
        hot->denied += stint_cell8_take(&hot->quota, cell, hot->now_ns, 1).outcome;
    }
}

static void take16(void *arg, unsigned turn)
{
    struct hot *hot = arg;
    (void)turn;
    for (uint64_t i = 0; i < hot->ops; i++) {
        hot->now_ns += hot->step_ns;
        hot->denied += stint_cell16_take(&hot->quota, &hot->cell, hot->now_ns, 1).outcome;
    }
}

/* ---- With a clock of its own ----------------------------------------------------------------- */

static void take_by_kernel(void *arg, unsigned turn)
{
    struct hot *hot = arg;
    struct stint_cell8 *cell = (struct stint_cell8 *)hot->cell.word;
    (void)turn;
    for (uint64_t i = 0; i < hot->ops; i++) {
        struct timespec now;
        clock_gettime(CLOCK_BOOTTIME, &now);
        uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        hot->denied += stint_cell8_take(&hot->quota, cell, now_ns, 1).outcome;
    }
}

static void take_by_own_clock(void *arg, unsigned turn)
{
    struct hot *hot = arg;
    struct stint_cell8 *cell = (struct stint_cell8 *)hot->cell.word;
    (void)turn;
    for (uint64_t i = 0; i < hot->ops; i++)
        hot->denied += stint_cell8_take(&hot->quota, cell, stint_now(NULL), 1).outcome;
}

struct workload {
    const char *algorithm, *what, *spec;
    uint64_t step_ns; /* 0: the clock is read */
    enum goal goal;
};

static const struct workload workloads[] = {
    {"gcra", "gcra, hot" LINKED, "gcra 300000/1s", 4167, GOAL_AT_MOST},
    {"window8", "window 8 B, hot" LINKED, "window 10000/2s resolution=10", 250000, GOAL_AT_MOST},
    {"window16", "window 16 B, hot" LINKED, "window 300000/1s", 4167, GOAL_AT_MOST},
    {"gcra", "gcra, busy" LINKED, "gcra 100/60s", 750000000, GOAL_AT_MOST},
    {"window8", "window 8 B, busy" LINKED, "window 100/60s resolution=12", 750000000, GOAL_AT_MOST},
    {"window16", "window 16 B, busy" LINKED, "window 100/60s", 750000000, GOAL_AT_MOST},
    {"gcra", "gcra, denied" LINKED, "gcra 100/60s", 1, GOAL_NONE},
    {"window8", "window 8 B, denied" LINKED, "window 100/60s resolution=12", 1, GOAL_NONE},
    {"window16", "window 16 B, denied" LINKED, "window 100/60s", 1, GOAL_NONE},
    {"gcra", "one limiter with its own clock" LINKED, "gcra 1000000000/1s", 0, GOAL_AT_MOST},
    {"gcra", "the same, denied" LINKED, "gcra 100/60s", 0, GOAL_AT_MOST},
};

static void run(const struct bench_options *options, const struct workload *workload)
{
    struct hot hot = {.step_ns = workload->step_ns, .ops = options->quick ? 100000 : 5000000};
    struct stint_error error;
    char note[64];
    if (stint_quota_parse(&hot.quota, workload->spec, &error) != 0) {
        fprintf(stderr, "%s: %s\n", workload->spec, error.message);
        exit(1);
    }
    bool reads_clock = workload->step_ns == 0;
    bool small = stint_state_size(&hot.quota) == 8;
    struct duel duel = {
        .what = workload->what,
        .baseline_name = small ? "bare swap of 8 bytes" : "bare swap of 16 bytes",
        .baseline = small ? bare8 : bare16,
        .subject = small ? take8 : take16,
        .arg = &hot,
        .ops = hot.ops,
        .goal = workload->goal,
        .reach = 2.5,
    };
    if (reads_clock) {
        duel.baseline_name = "the same with clock_gettime";
        duel.baseline = take_by_kernel;
        duel.subject = take_by_own_clock;
        duel.reach = 0.5;
    }
    struct row row;
    duel_run(options, &duel, &row);
    uint64_t takes = hot.ops * (options->turns + 1) * (reads_clock ? 2 : 1);
    snprintf(note, sizeof(note), "%.1f %% denied", 100.0 * (double)hot.denied / (double)takes);
    row.note = note;
    row_report(options, &row);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    for (size_t i = 0; i < sizeof(workloads) / sizeof(*workloads); i++)
        if (bench_wants(options.algorithm, workloads[i].algorithm))
            run(&options, &workloads[i]);
    return 0;
}
