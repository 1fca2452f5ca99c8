/* SPDX-License-Identifier: MIT */
/*
 * Simulated decisions, from the draw to the judgement: how many there are in a second, and how much
 * the simulation adds to the engine where nothing is judged.
 */
#include "measure.h"

#include "sim/judge/run.h"

#include <stdlib.h>

#define DECISIONS 1000000
#define DECISIONS_QUICK 20000

struct subject {
    struct stint_quota quota;
    struct workload workload;
    uint64_t decisions;
    bool without_oracle;
    struct stint_table *table; /* the baseline's */
    uint64_t now_ns;
};

static void fail(const char *what, const struct stint_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->message);
    exit(1);
}

static void simulate(void *arg, unsigned turn)
{
    struct subject *subject = arg;
    struct stint_error error;
    struct tally tally;
    const struct run_options options = {
        .quotas = &subject->quota,
        .n_quotas = 1,
        .workload = &subject->workload,
        .seed = turn + 1,
        .length_ns = STINT_NOW_MAX,
        .decisions_max = subject->decisions,
        .without_oracle = subject->without_oracle,
        .clock_ns = measure_wall_ns,
    };
    if (run_simulate(&options, &tally, &error) != 0)
        fail("run", &error);
    if (tally.decisions != subject->decisions || tally_is_broken(&tally)) {
        fprintf(stderr, "the simulation did not do what it is measured for\n");
        exit(1);
    }
    keep(tally.units_allowed);
}

/* The same quota and the same mean time between two requests; they come evenly. */
static void take(void *arg, unsigned turn)
{
    struct subject *subject = arg;
    double rate = subject->workload.spec.load * subject->quota.limit;
    uint64_t step_ns = (uint64_t)((double)subject->quota.period_ns / rate);
    uint64_t key = 0, allowed = 0;
    (void)turn;
    for (uint64_t i = 0; i < subject->decisions; i++) {
        subject->now_ns += step_ns;
        allowed +=
            stint_take(subject->table, &subject->quota, &key, sizeof(key), 1, subject->now_ns)
                .outcome == STINT_ALLOW;
    }
    keep(allowed);
}

static void prepare(struct subject *subject, const struct bench_options *options, const char *spec,
                    const char *workload)
{
    struct stint_error error;
    const struct stint_table_options table = {
        .clock = STINT_CLOCK_VIRTUAL, .keys = 1024, .keys16 = 1024, .skew_max_ns = 1};
    *subject = (struct subject){.decisions = options->quick ? DECISIONS_QUICK : DECISIONS};
    if (stint_quota_parse(&subject->quota, spec, &error) != 0)
        fail(spec, &error);
    if (workload_parse(&subject->workload, workload, &error) != 0)
        fail(workload, &error);
    if (stint_table_open(&subject->table, &table, &error) != 0)
        fail("table", &error);
}

static const struct load {
    const char *algorithm, *spec, *what;
} loads[] = {
    {"gcra", "gcra 100/60s", "simulated, gcra"},
    {"window16", "window 100/60s", "simulated, window 16 B"},
};

/* Everything that `stint sim run` does by default, over a thousand keys by Zipf's algorithm. */
static void judged(const struct bench_options *options, const struct load *load)
{
    struct subject subject;
    char what[64];
    prepare(&subject, options, load->spec, "poisson load=1.2 keys=1000 zipf=1");
    snprintf(what, sizeof(what), "%s, judged", load->what);
    struct row row = {.what = what, .unit = "M/s", .goal = GOAL_AT_LEAST, .reach = 5};
    simulate(&subject, 0);
    for (unsigned turn = 1; turn <= options->turns; turn++) {
        uint64_t begun_ns = measure_thread_ns();
        simulate(&subject, turn);
        double seconds = (double)(measure_thread_ns() - begun_ns) / 1e9;
        row_add(&row, 0, (double)subject.decisions / seconds / 1e6);
    }
    row_report(options, &row);
    stint_table_close(subject.table);
}

/* Against nothing but the engine: what drawing and counting cost beside it. */
static void unjudged(const struct bench_options *options, const struct load *load)
{
    struct subject subject;
    char what[64];
    prepare(&subject, options, load->spec, "poisson load=1.2");
    subject.without_oracle = true;
    snprintf(what, sizeof(what), "%s, one key, oracle off", load->what);
    struct duel duel = {
        .what = what,
        .baseline_name = "stint_take in a loop",
        .baseline = take,
        .subject = simulate,
        .arg = &subject,
        .ops = subject.decisions,
        .speed_up = true,
        .goal = GOAL_AT_LEAST,
        .reach = 0.25,
    };
    struct row row;
    duel_run(options, &duel, &row);
    row_report(options, &row);
    stint_table_close(subject.table);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++)
        if (bench_wants(options.algorithm, loads[i].algorithm))
            judged(&options, &loads[i]);
    for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++)
        if (bench_wants(options.algorithm, loads[i].algorithm))
            unjudged(&options, &loads[i]);
    return 0;
}
