/* SPDX-License-Identifier: MIT */
/* The command line of `stint sim run` and `stint sim compare`. */
#define _GNU_SOURCE
#include "cmd/sim/sim_options.h"

#include "cmd/lib/args.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS_DEFAULT 5
#define DECISIONS_DEFAULT UINT64_C(1000000)
#define KEYS_MAX (UINT64_C(1) << 32)
#define MEMORY_MAX (UINT64_C(1) << 50)

enum {
    OPTION_QUOTA = 256,
    OPTION_WORKLOAD,
    OPTION_SEED,
    OPTION_SEEDS,
    OPTION_LENGTH,
    OPTION_DECISIONS,
    OPTION_KEYS,
    OPTION_ORACLE,
    OPTION_MEMORY,
    OPTION_JSON,
    OPTION_CSV,
    OPTION_PLOT,
};

#define OPTIONS_COMMON                                                                             \
    {"workload",                                                                                   \
     OPTION_WORKLOAD,                                                                              \
     "TEXT",                                                                                       \
     0,                                                                                            \
     "Who asks: NAME [name=value ...], or log=FILE; see stint-sim(1)",                             \
     1},                                                                                           \
        {"seed", OPTION_SEED, "N", 0, "The first seed (default 1)", 2},                            \
        {"seeds", OPTION_SEEDS, "N", 0, "How many runs, each with the next seed (default 5)", 2},  \
        {"length",                                                                                 \
         OPTION_LENGTH,                                                                            \
         "TIME",                                                                                   \
         0,                                                                                        \
         "Virtual time of each run (default: 100 of the longest period, or the whole log)",        \
         2},                                                                                       \
        {"decisions",                                                                              \
         OPTION_DECISIONS,                                                                         \
         "N",                                                                                      \
         0,                                                                                        \
         "End each run after N decisions (default 1000000)",                                       \
         2},                                                                                       \
        {"keys",                                                                                   \
         OPTION_KEYS,                                                                              \
         "N",                                                                                      \
         0,                                                                                        \
         "Room for N live keys in the table (default: more than come; 64 for flood)",              \
         3},                                                                                       \
        {"oracle", OPTION_ORACLE, "on|off", 0, "Judge every decision by the exact count", 3},      \
        {"memory", OPTION_MEMORY, "MB", 0, "The most that the exact count may use (default 1024)", \
         3},                                                                                       \
        {"json", OPTION_JSON, NULL, 0, "The metrics as one JSON object", 4},                       \
    {                                                                                              \
        "plot", OPTION_PLOT, "FILE", 0, GNUPLOT_HELP, 4                                            \
    }

static const struct argp_option run_options_known[] = {
    {"quota", OPTION_QUOTA, "SPEC", 0, "What is allowed; several are taken all or nothing", 1},
    OPTIONS_COMMON,
    {0},
};
static const struct argp_option compare_options_known[] = {
    {"quota", OPTION_QUOTA, "SPEC", 0, "A quota to compare; given several times", 1},
    OPTIONS_COMMON,
    {"csv", OPTION_CSV, NULL, 0, "The metrics as comma-separated values", 4},
    {0},
};

static void read_workload(struct argp_state *state, struct sim_options *options, const char *text)
{
    struct stint_error error;
    if (options->workload_text != NULL)
        argp_error(state, "expected one --workload, found '%s' too", text);
    options->workload_text = text;
    if (workload_parse(&options->workload, text, &error) != 0)
        argp_error(state, "--workload: %s", error.message);
}

static void check_together(struct argp_state *state, const struct sim_options *options)
{
    const char *format = options->workload.spec.format;
    static const char *const formats[] = {"", "trace", "combined", "jsonl", NULL};
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

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    static const char *const switches[] = {"on", "off", NULL};
    struct sim_options *options = state->input;
    switch (option) {
    case OPTION_QUOTA:
        args_add_quota(state, options->quotas, &options->n_quotas, value);
        return 0;
    case OPTION_WORKLOAD:
        read_workload(state, options, value);
        return 0;
    case OPTION_SEED:
        options->seed = args_number(state, "--seed", value, UINT64_MAX / 2);
        return 0;
    case OPTION_SEEDS:
        options->n_seeds = args_number(state, "--seeds", value, SIM_SEEDS_MAX);
        return 0;
    case OPTION_LENGTH:
        options->length_ns = args_duration(state, "--length", value);
        if (options->length_ns == 0)
            argp_error(state, "--length must be above 0");
        return 0;
    case OPTION_DECISIONS:
        options->decisions_max = args_number(state, "--decisions", value, UINT64_MAX / 2);
        return 0;
    case OPTION_KEYS:
        options->table_keys = args_number(state, "--keys", value, KEYS_MAX);
        return 0;
    case OPTION_ORACLE:
        options->without_oracle = args_choice(state, "--oracle", value, switches) == 1;
        return 0;
    case OPTION_MEMORY:
        options->oracle_bytes_max =
            args_number(state, "--memory", value, MEMORY_MAX / 1000000) * 1000000;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_CSV:
        options->csv = true;
        return 0;
    case OPTION_PLOT:
        gnuplot_option(state, &options->gnuplot, value);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "expected options only, found '%s'", value);
        return 0;
    case ARGP_KEY_END:
        check_together(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void sim_options_parse(struct sim_options *options, enum sim_command command, int argc, char **argv)
{
    static const struct argp run_argp = {
        .options = run_options_known,
        .parser = parse_option,
        .doc = "Runs the requests of a workload against a quota, on virtual time, and prints the "
               "results, judged by an exact count.\vFor example: stint sim run --quota 100/60s "
               "--workload 'poisson load=1.2'\n\n"
               "Exit codes: 0 done, 1 bad input, a stated bound that did not hold, or interrupted, "
               "2 bad usage. See stint-sim(1), stint-spec(7).",
    };
    static const struct argp compare_argp = {
        .options = compare_options_known,
        .parser = parse_option,
        .doc =
            "Runs the same workload against several quotas, each on its own, and shows the "
            "metrics side by side.\vFor example: stint sim compare --quota 100/60s --quota 'gcra "
            "100/60s' --workload onoff\n\n"
            "Exit codes: 0 done, 1 bad input, a stated bound that did not hold, or interrupted, "
            "2 bad usage. See stint-sim(1), stint-spec(7).",
    };
    *options = (struct sim_options){
        .seed = 1, .n_seeds = SEEDS_DEFAULT, .decisions_max = DECISIONS_DEFAULT};
    args_parse(command == SIM_RUN ? &run_argp : &compare_argp, argc, argv, options);
    /* Without random numbers the runs of all seeds are the same. */
    if (options->workload.spec.kind == WORKLOAD_LOG)
        options->n_seeds = 1;
}
