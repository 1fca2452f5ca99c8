/* SPDX-License-Identifier: MIT */
/* The runs of a workload, one for each seed, and the log that it may come from. */
#define _GNU_SOURCE
#include "cmd/sim/sim.h"

#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"
#include "cmd/lib/source.h"
#include "table/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- The requests of a log ------------------------------------------------------------------- */

static enum log_format format_of(const struct workload_spec *spec)
{
    for (int i = 1; source_formats[i] != NULL; i++)
        if (strcmp(spec->format, source_formats[i]) == 0)
            return (enum log_format)i;
    return LOG_ANY;
}

static const char *given(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static int check_fields(const struct workload_spec *spec, struct stint_error *error)
{
    enum log_format format = format_of(spec);
    if (format == LOG_TRACE && spec->key[0] != '\0')
        return err_set(error, STINT_E_MISMATCH,
                       "key is for logs (format=combined or jsonl); a trace has its keys");
    if ((format == LOG_TRACE || format == LOG_COMBINED) &&
        (spec->time[0] != '\0' || spec->cost[0] != '\0'))
        return err_set(error, STINT_E_MISMATCH, "time and cost are for format=jsonl");
    return 0;
}

static int read_all(struct sim_log *log, struct event_source *source, struct stint_error *error)
{
    struct event event;
    int code;
    while ((code = event_source_next(source, &event, error)) > 0) {
        struct event_entry entry = {.at_ns = event.at_ns, .cost = event.cost};
        code = key_set_add(&log->names, event.key, &entry.key, error);
        if (code == 0 && entry.key >= WORKLOAD_KEYS_MAX)
            code = err_set(error, STINT_E_FULL, "more than %u different keys", WORKLOAD_KEYS_MAX);
        if (code == 0)
            code = event_list_add(&log->events, entry, error);
        if (code != 0)
            return code;
    }
    return code;
}

static int read_source(struct sim_log *log, const struct workload_spec *spec,
                       struct stint_error *error)
{
    uint64_t secret[2];
    struct event_source source;
    const struct source_options options = {.format = format_of(spec),
                                           .key = given(spec->key),
                                           .time = given(spec->time),
                                           .cost = given(spec->cost),
                                           .paths = {spec->path},
                                           .n_paths = 1};
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    int code = event_source_open(&source, &options, error);
    if (code != 0)
        return code;
    key_set_init(&log->names, secret);
    code = read_all(log, &source, error);
    log->malformed = source.malformed;
    log->format = source.format;
    event_source_close(&source);
    return code;
}

/* Until a nanosecond after the last request, as scaled. */
static uint64_t length_of(const struct sim_log *log, double scale)
{
    const struct event_list *events = &log->events;
    uint64_t first_ns = events->entries[0].at_ns;
    uint64_t since_ns = events->entries[events->n_entries - 1].at_ns - first_ns;
    double scaled_ns = (double)since_ns / scale;
    uint64_t end_ns = scale == 1           ? since_ns
                      : scaled_ns < 0x1p60 ? (uint64_t)scaled_ns
                                           : STINT_NOW_MAX;
    return first_ns - log->epoch_ns + end_ns + 1;
}

int sim_log_read(struct sim_log *log, struct sim_options *options, struct stint_error *error)
{
    const struct workload_spec *spec = &options->workload.spec;
    *log = (struct sim_log){0};
    if (spec->kind != WORKLOAD_LOG)
        return 0;
    int code = check_fields(spec, error);
    if (code == 0)
        code = read_source(log, spec, error);
    if (code == 0)
        code = event_list_sort(&log->events, error);
    if (code != 0)
        return code;
    if (log->events.n_entries == 0)
        return err_set(error, STINT_E_SYNTAX, "%s holds no request%s", spec->path,
                       log->malformed > 0 ? " that can be read" : "");
    /* As in `stint replay`: a trace has its own time, logs begin at a midnight. */
    uint64_t first_ns = log->events.entries[0].at_ns;
    log->epoch_ns = log->format == LOG_TRACE ? 0 : first_ns - first_ns % NS_PER_DAY;
    uint64_t length_ns = length_of(log, spec->scale);
    if (length_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE, "so scaled, the log is longer than 18 years");
    if (options->length_ns == 0)
        options->length_ns = length_ns;
    workload_lend(&options->workload, &log->events, log->epoch_ns);
    return 0;
}

void sim_log_free(struct sim_log *log)
{
    event_list_deinit(&log->events);
    key_set_deinit(&log->names);
}

/* ---- The runs -------------------------------------------------------------------------------- */

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
