/* SPDX-License-Identifier: MIT */
/* `stint sim`: its subcommands, and the command line that `run` and `compare` share. */
#define _GNU_SOURCE
#include "cmd/sim/sim.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"
#include "cmd/lib/source.h"
#include "table/clock.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The runs of a workload, one for each seed, and the log that it may come from. */

/* ---- The requests of a log ------------------------------------------------------------------- */

static enum source_format format_of(const struct workload_spec *spec)
{
    for (int i = 1; source_formats[i] != NULL; i++)
        if (strcmp(spec->format, source_formats[i]) == 0)
            return (enum source_format)i;
    return SOURCE_ANY;
}

static const char *given(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static int check_fields(const struct workload_spec *spec, struct stint_error *error)
{
    enum source_format format = format_of(spec);
    if (format == SOURCE_TRACE && spec->key[0] != '\0')
        return err_set(error, STINT_E_MISMATCH,
                       "key is for logs (format=combined or jsonl); a trace has its keys");
    if ((format == SOURCE_TRACE || format == SOURCE_COMBINED) &&
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

/* Reads and sorts them, and lends them to the workload. Nothing if it has no log. */
static int sim_log_read(struct sim_log *log, struct sim_options *options, struct stint_error *error)
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
    log->epoch_ns = log->format == SOURCE_TRACE ? 0 : first_ns - first_ns % NS_PER_DAY;
    uint64_t length_ns = length_of(log, spec->scale);
    if (length_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE, "so scaled, the log is longer than 18 years");
    if (options->length_ns == 0)
        options->length_ns = length_ns;
    workload_lend(&options->workload, &log->events, log->epoch_ns);
    return 0;
}

static void sim_log_free(struct sim_log *log)
{
    event_list_deinit(&log->events);
    key_set_deinit(&log->names);
}

/* ---- The runs -------------------------------------------------------------------------------- */

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

/* The options of the run with the i-th seed. */
static struct run_options sim_work_options(const struct sim_work *work, const struct sim_runs *runs,
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

/* Makes a run for each seed, until all are made or a signal arrives. 0 or a negative code. */
static int sim_work_do(struct sim_work *work, struct sim_runs *runs, struct stint_error *error)
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

static void sim_runs_free(struct sim_runs *runs)
{
    free(runs->tallies);
    runs->tallies = NULL;
    runs->n_done = 0;
}

/* ---- The command line ------------------------------------------------------------------------ */

#define SEEDS_DEFAULT 5
#define DECISIONS_DEFAULT UINT64_C(1000000)
#define KEYS_MAX (UINT64_C(1) << 32)
#define MEMORY_MAX (UINT64_C(1) << 50)

static void read_workload(struct argp_state *state, void *input, char *text)
{
    struct sim_options *options = input;
    struct stint_error error;
    if (options->workload_text != NULL)
        argp_error(state, "expected one --workload, found '%s' too", text);
    options->workload_text = text;
    if (workload_parse(&options->workload, text, &error) != 0)
        argp_error(state, "--workload: %s", error.message);
}

static void read_length(struct argp_state *state, void *length_ns, char *text)
{
    uint64_t *ns = length_ns;
    *ns = args_duration(state, "--length", text);
    if (*ns == 0)
        argp_error(state, "--length must be above 0");
}

static void read_memory(struct argp_state *state, void *bytes_max, char *text)
{
    *(uint64_t *)bytes_max = args_number(state, "--memory", text, MEMORY_MAX / 1000000) * 1000000;
}

/* By `without_oracle`. */
static const char *const switches[] = {"on", "off", NULL};

static const struct args_option options_known[] = {
    {"quota", "SPEC", 1, "What is allowed; several are taken all or nothing",
     ARGS_QUOTAS(struct sim_options, quotas, n_quotas), .verbs = 1u << SIM_RUN},
    {"quota", "SPEC", 1, "A quota to compare; given several times",
     ARGS_QUOTAS(struct sim_options, quotas, n_quotas), .verbs = 1u << SIM_COMPARE},
    {"workload", "TEXT", 1, "Who asks: NAME [name=value ...], or log=FILE; see stint-sim(1)",
     ARGS_OWN(read_workload)},
    {"seed", "N", 2, "The first seed (default 1)",
     ARGS_NUMBER(struct sim_options, seed, UINT64_MAX / 2)},
    {"seeds", "N", 2, "How many runs, each with the next seed (default 5)",
     ARGS_NUMBER(struct sim_options, n_seeds, SIM_SEEDS_MAX)},
    {"length", "TIME", 2,
     "Virtual time of each run (default: 100 of the longest period, or the whole log)",
     ARGS_PART(struct sim_options, length_ns, read_length)},
    {"decisions", "N", 2, "End each run after N decisions (default 1000000)",
     ARGS_NUMBER(struct sim_options, decisions_max, UINT64_MAX / 2)},
    {"keys", "N", 3, "Room for N live keys in the table (default: more than come; 64 for flood)",
     ARGS_NUMBER(struct sim_options, table_keys, KEYS_MAX)},
    {"oracle", "on|off", 3, "Judge every decision by the exact count",
     ARGS_CHOICE(struct sim_options, without_oracle, switches)},
    {"memory", "MB", 3, "The most that the exact count may use (default 1024)",
     ARGS_PART(struct sim_options, oracle_bytes_max, read_memory)},
    {"json", NULL, 4, "The metrics as one JSON object", ARGS_FLAG(struct sim_options, json)},
    {"plot", "FILE", 4, GNUPLOT_HELP, ARGS_PART(struct sim_options, gnuplot, gnuplot_option)},
    {"csv", NULL, 4, "The metrics as comma-separated values", ARGS_FLAG(struct sim_options, csv),
     .verbs = 1u << SIM_COMPARE},
    {0},
};

static void refuse_word(struct argp_state *state, void *input, char *word)
{
    (void)input;
    argp_error(state, "expected options only, found '%s'", word);
}

static void check_together(struct argp_state *state, void *input)
{
    const struct sim_options *options = input;
    const char *format = options->workload.spec.format;
    static const char *const formats[] = {"", "auto", "trace", "combined", "jsonl", NULL};
    if (options->n_quotas == 0)
        argp_error(state, "expected --quota, for example --quota '100/60s'");
    if (options->workload_text == NULL)
        argp_error(state, "expected --workload, for example --workload 'poisson load=1.2'");
    if (options->json && options->csv)
        argp_error(state, "--json and --csv are two forms of the same");
    if (options->gnuplot.format == GNUPLOT_TERMINAL && (options->json || options->csv))
        argp_error(state, "--plot - and --%s would mix on standard output; name a FILE",
                   options->json ? "json" : "csv");
    args_choice(state, "format", format, formats);
    for (size_t i = 0; i < options->n_quotas; i++)
        if (options->quotas[i].initial_set)
            argp_error(state, "--quota: initial is not for a simulation, which begins with keys "
                              "that were never used");
}

static void parse_options(struct sim_options *options, enum sim_command command, int argc,
                          char **argv)
{
    static const struct args_set set = {options_known, .word = refuse_word, .end = check_together};
    static const char *const docs[] = {
        [SIM_RUN] =
            "Runs the requests of a workload against a quota, on virtual time, and prints the "
            "results, judged by an exact count.\vFor example: stint sim run --quota 100/60s "
            "--workload 'poisson load=1.2'\n\n"
            "Exit codes: 0 done, 1 bad input, a stated bound that did not hold, or interrupted, "
            "2 bad usage. See stint-sim(1), stint-spec(7).",
        [SIM_COMPARE] =
            "Runs the same workload against several quotas, each on its own, and shows the "
            "metrics side by side.\vFor example: stint sim compare --quota 100/60s --quota 'gcra "
            "100/60s' --workload onoff\n\n"
            "Exit codes: 0 done, 1 bad input, a stated bound that did not hold, or interrupted, "
            "2 bad usage. See stint-sim(1), stint-spec(7).",
    };
    *options = (struct sim_options){
        .seed = 1, .n_seeds = SEEDS_DEFAULT, .decisions_max = DECISIONS_DEFAULT};
    args_parse(&(struct args_command){.set = set, .doc = docs[command], .verb = 1u << command},
               argc, argv, options);
    /* Without random numbers the runs of all seeds are the same. */
    if (options->workload.spec.kind == WORKLOAD_LOG)
        options->n_seeds = 1;
}

/* ---- The commands ---------------------------------------------------------------------------- */

static int run_one(struct sim_options *options)
{
    struct stint_error error;
    struct sim_log log;
    struct sim_work work = {.options = options, .log = &log};
    struct sim_runs runs = {.quotas = options->quotas,
                            .workload_quota = options->quotas,
                            .n_quotas = options->n_quotas};
    int result = CMD_BAD_INPUT;
    int code = sim_log_read(&log, options, &error);
    if (code == 0) {
        progress_begin(&work.progress, 0);
        work.progress.what = "decisions";
        code = sim_work_do(&work, &runs, &error);
        progress_end(&work.progress);
    }
    const struct run_options first = sim_work_options(&work, &runs, 0);
    if (code == 0)
        result = sim_report_run(&work, &runs, &first);
    else
        print_message("%s", error.message);
    sim_runs_free(&runs);
    sim_log_free(&log);
    return result;
}

static int sim_run_main(int argc, char **argv)
{
    struct sim_options *options = calloc(1, sizeof(*options));
    if (options == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    parse_options(options, SIM_RUN, argc, argv);
    interrupt_catch();
    int result = run_one(options);
    free(options);
    return result;
}

static int compare(struct sim_options *options, struct sim_runs *runs)
{
    struct stint_error error;
    struct sim_log log;
    struct sim_work work = {.options = options, .log = &log};
    int result = CMD_BAD_INPUT;
    size_t n_runs = 0;
    int code = sim_log_read(&log, options, &error);
    /* All receive the same requests, for the same time. */
    const struct run_options all = {
        .quotas = options->quotas, .n_quotas = options->n_quotas, .length_ns = options->length_ns};
    options->length_ns = run_length_ns(&all);
    progress_begin(&work.progress, 0);
    work.progress.what = "decisions";
    while (code == 0 && n_runs < options->n_quotas && !work.interrupted) {
        runs[n_runs] = (struct sim_runs){
            .quotas = &options->quotas[n_runs], .workload_quota = options->quotas, .n_quotas = 1};
        code = sim_work_do(&work, &runs[n_runs++], &error);
    }
    progress_end(&work.progress);
    if (code == 0)
        result = sim_report_compare(&work, runs, n_runs);
    else
        print_message("%s", error.message);
    for (size_t i = 0; i < n_runs; i++)
        sim_runs_free(&runs[i]);
    sim_log_free(&log);
    return result;
}

static int sim_compare_main(int argc, char **argv)
{
    struct sim_options *options = calloc(1, sizeof(*options));
    struct sim_runs *runs = calloc(STINT_ITEMS_MAX, sizeof(*runs));
    int result = CMD_BAD_INPUT;
    if (options != NULL && runs != NULL) {
        parse_options(options, SIM_COMPARE, argc, argv);
        interrupt_catch();
        result = compare(options, runs);
    } else {
        print_message("out of memory");
    }
    free(runs);
    free(options);
    return result;
}

const struct cmd sim_commands[] = {
    {"run", "one workload against one quota, or a list of them", .run = sim_run_main},
    {"compare", "one workload through several quotas, side by side", .run = sim_compare_main},
    {"worst", "the requests that a quota admits the most of, and its bound", .run = sim_worst_main},
    {.name = NULL},
};
