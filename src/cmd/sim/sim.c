/* SPDX-License-Identifier: MIT */
/* `stint sim`: its subcommands, and the command line that `run` and `compare` share. */
#define _GNU_SOURCE
#include "cmd/sim/sim.h"

#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
    if (code == 0)
        result = sim_report_run(&work, &runs);
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
