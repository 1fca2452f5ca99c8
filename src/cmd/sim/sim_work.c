/* SPDX-License-Identifier: MIT */
/* Runs, one seed after the other, and the warnings beside their metrics. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/interrupt.h"
#include "cmd/lib/print.h"
#include "cmd/sim/sim_options.h"
#include "table/clock.h"

#include <inttypes.h>
#include <stdlib.h>

#define SPEC_MAX 256

/* Called now and then by the run; updates the bar only at intervals. */
static bool goes_on(void *arg, uint64_t decisions, uint64_t now_ns)
{
    struct sim_work *work = arg;
    (void)now_ns;
    if (decisions % 65536 == 0)
        progress_step(&work->progress, work->decisions + decisions);
    work->interrupted = interrupt_seen();
    return !work->interrupted;
}

struct run_options sim_work_options(const struct sim_work *work, const struct sim_runs *runs,
                                    size_t i)
{
    const struct sim_options *options = work->options;
    return (struct run_options){
        .quotas = runs->quotas,
        .n_quotas = runs->n_quotas,
        .workload = &options->workload,
        .workload_quota = runs->workload_quota,
        .seed = options->seed + i,
        .length_ns = options->length_ns,
        .decisions_max = options->decisions_max,
        .epoch_ns = (int64_t)work->log->epoch_ns,
        .table_keys = options->table_keys,
        .without_oracle = options->without_oracle,
        .oracle_bytes_max = options->oracle_bytes_max,
        .clock_ns = clock_boot_ns,
    };
}

int sim_work_do(struct sim_work *work, struct sim_runs *runs, struct stint_error *error)
{
    const struct sim_options *options = work->options;
    runs->n_done = 0;
    runs->tallies = calloc(options->n_seeds, sizeof(*runs->tallies));
    if (runs->tallies == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    for (size_t i = 0; i < options->n_seeds && !work->interrupted; i++) {
        struct run_options run = sim_work_options(work, runs, i);
        run.goes_on = goes_on;
        run.arg = work;
        int code = run_simulate(&run, &runs->tallies[i], error);
        if (code != 0)
            return code;
        runs->n_done++;
        work->decisions += runs->tallies[i].decisions;
    }
    return 0;
}

void sim_runs_free(struct sim_runs *runs)
{
    free(runs->tallies);
    runs->tallies = NULL;
    runs->n_done = 0;
}

/* Defects of the limiter, if there are any: reported loudly. */
static void name_broken(const struct sim_runs *runs, size_t i, uint64_t seed)
{
    const struct tally *tally = &runs->tallies[i];
    char spec[SPEC_MAX];
    for (size_t q = 0; q < tally->n_quotas; q++) {
        stint_quota_format(&runs->quotas[q], spec, sizeof(spec));
        if (tally->quotas[q].bound_broken)
            print_message("BROKEN BOUND: %s admitted %" PRIu64
                          " in a window, and states at most %" PRIu64 " (seed %" PRIu64
                          ", at %" PRIu64 " ns)",
                          spec, tally->quotas[q].most, tally->quotas[q].bound, seed,
                          tally->quotas[q].most_at_ns);
    }
    stint_quota_format(runs->quotas, spec, sizeof(spec));
    if (tally->unjustified > 0)
        print_message("UNJUSTIFIED: %s denied %" PRIu64
                      " times outside of its stated slack (seed %" PRIu64 ", first at %" PRIu64
                      " ns)",
                      spec, tally->unjustified, seed, tally->unjustified_at_ns);
    if (tally->waits_too_long + tally->waits_too_short > 0)
        print_message("WRONG WAIT: %s returned %" PRIu64 " waits too long and %" PRIu64
                      " too short (seed %" PRIu64 ")",
                      spec, tally->waits_too_long, tally->waits_too_short, seed);
}

static void name_limits(const struct sim_runs *runs, size_t i, uint64_t seed)
{
    const struct tally *tally = &runs->tallies[i];
    struct formatted count, bytes;
    if (tally->oracle_full)
        print_message(
            "seed %" PRIu64
            ": the exact count had used up its memory (%s) after %s decisions; its results are "
            "for these only; see --memory",
            seed, format_bytes(&bytes, tally->oracle_bytes), format_count(&count, tally->judged));
    if (tally->evicted > 0)
        print_message("seed %" PRIu64
                      ": the table was too small, and %s live states were evicted, by the quota's "
                      "when_full; no bound holds then; see --keys",
                      seed, format_count(&count, tally->evicted));
    if (tally->dropped > 0)
        print_message("seed %" PRIu64 ": %s requests were not repeated, for want of memory", seed,
                      format_count(&count, tally->dropped));
}

int sim_work_warn(const struct sim_work *work, const struct sim_runs *runs)
{
    bool broken = false;
    if (work->interrupted && runs->n_done > 0 && runs->tallies[runs->n_done - 1].partial)
        print_message("interrupted: the last of these runs is partial");
    for (size_t i = 0; i < runs->n_done; i++) {
        name_limits(runs, i, work->options->seed + i);
        name_broken(runs, i, work->options->seed + i);
        broken = broken || tally_is_broken(&runs->tallies[i]);
    }
    return broken || work->interrupted ? CMD_BAD_INPUT : CMD_DONE;
}
