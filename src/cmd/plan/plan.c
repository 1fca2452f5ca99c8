/* SPDX-License-Identifier: MIT */
/* `stint plan`: from the log, through the search, to the reports. */
#define _GNU_SOURCE
#include "cmd/plan/plan.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The command line ------------------------------------------------------------------------ */

static const char doc[] =
    "Proposes quotas from real traffic: for each period the least limit that keeps to "
    "the target, as the engine itself decides the events of the FILEs (standard input without "
    "one, or for -), and how many keys and requests other limits would touch.\vA key is "
    "touched if it is denied at least once.\n\n"
    "Memory: some 50 bytes and the name of each different key; 48 bytes for each event "
    "while they are put in order, 12 from then on.\n\n"
    "Exit codes: 0 done, 1 bad input, or interrupted, 2 bad usage. See stint-plan(1), "
    "stint-replay(1).";

/* Sorts by length. */
static void add_period(struct argp_state *state, struct plan_options *options, const char *part)
{
    uint64_t period_ns = args_duration(state, "--periods", part);
    struct stint_error error;
    struct stint_quota quota = {.period_ns = period_ns, .limit = 1};
    size_t at = options->n_periods;
    if (stint_quota_check(&quota, &error) != 0)
        argp_error(state, "--periods %s: %s", part, error.message);
    while (at > 0 && options->periods_ns[at - 1] > period_ns)
        at--;
    if (at > 0 && options->periods_ns[at - 1] == period_ns)
        argp_error(state, "--periods has %s twice", part);
    if (options->n_periods == PLAN_PERIODS_MAX)
        argp_error(state, "more than %d periods", PLAN_PERIODS_MAX);
    memmove(&options->periods_ns[at + 1], &options->periods_ns[at],
            (options->n_periods - at) * sizeof(options->periods_ns[0]));
    options->periods_ns[at] = period_ns;
    options->n_periods++;
}

static void read_periods(struct argp_state *state, void *options, char *list)
{
    for (char *part; (part = strsep(&list, ",")) != NULL;)
        add_period(state, options, part);
}

static void add_algorithm(struct argp_state *state, struct plan_options *options, const char *part)
{
    static const char *const names[] = {"window", "gcra", "log", NULL};
    static const enum stint_algorithm numbers[] = {STINT_WINDOW, STINT_GCRA, STINT_LOG};
    enum stint_algorithm algorithm = numbers[args_choice(state, "--algorithm", part, names)];
    for (size_t i = 0; i < options->n_algorithms; i++)
        if (options->algorithms[i] == algorithm)
            argp_error(state, "--algorithm has %s twice", part);
    options->algorithms[options->n_algorithms++] = algorithm;
}

static void read_algorithms(struct argp_state *state, void *options, char *list)
{
    for (char *part; (part = strsep(&list, ",")) != NULL;)
        add_algorithm(state, options, part);
}

static void read_target(struct argp_state *state, void *input, char *text)
{
    struct plan_options *options = input;
    struct stint_error error;
    if (plan_target_parse(&options->target, text, &error) != 0)
        argp_error(state, "--target: %s", error.message);
    options->target_text = text;
}

static const struct args_option options_known[] = {
    {"target", "TEXT", 1,
     "'deny at most 0.1 % of keys' (default), 'deny at most 5 keys', 'deny at most 1 % of "
     "requests'",
     ARGS_OWN(read_target)},
    {"periods", "LIST", 1, "Lengths of time (default 1s,10s,1m,1h,1d)", ARGS_OWN(read_periods)},
    {"algorithm", "LIST", 1, "window (default), gcra (with its burst), log",
     ARGS_OWN(read_algorithms)},
    {"out", "FILE", 4, "Write a file of rules: the proposal that denies most within the target",
     ARGS_TEXT(struct plan_options, out)},
    {"domain", "DOMAIN", 4, "Domain of the file of rules", ARGS_TEXT(struct plan_options, domain)},
    {"names", "N", 5, "Name N of the keys that a proposal touches (default 10)",
     ARGS_NUMBER(struct plan_options, names, PLAN_NAMES_MAX)},
    {"plot", "FILE", 5, GNUPLOT_HELP, ARGS_PART(struct plan_options, plot, gnuplot_option)},
    {"json", NULL, 5, "Print one JSON object", ARGS_FLAG(struct plan_options, json)},
    {0},
};

static void set_defaults(struct plan_options *options)
{
    static const uint64_t periods_ns[] = {NS_PER_S, 10 * NS_PER_S, NS_PER_MIN, NS_PER_HOUR,
                                          NS_PER_DAY};
    if (options->n_periods == 0) {
        memcpy(options->periods_ns, periods_ns, sizeof(periods_ns));
        options->n_periods = sizeof(periods_ns) / sizeof(periods_ns[0]);
    }
    if (options->n_algorithms == 0)
        options->algorithms[options->n_algorithms++] = STINT_WINDOW;
}

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct plan_options *options = input;
    source_add_path(state, &options->source, word);
}

static void check_together(struct argp_state *state, void *input)
{
    struct plan_options *options = input;
    set_defaults(options);
    if ((options->out == NULL) != (options->domain == NULL))
        argp_error(state, "a file of rules is of one domain; expected --out and --domain together");
    if (options->domain != NULL && options->domain[0] == '\0')
        argp_error(state, "the name of the DOMAIN is empty");
    if (options->plot.format == GNUPLOT_TERMINAL && options->json)
        argp_error(state, "--plot - and --json would mix on standard output; name a FILE");
}

static void parse_options(struct plan_options *options, int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_word, .end = check_together},
        .children = {{&source_set, offsetof(struct plan_options, source), NULL, 0}},
        .arguments = "[FILE...]",
        .doc = doc,
    };
    *options =
        (struct plan_options){.target_text = PLAN_TARGET_DEFAULT, .names = PLAN_NAMES_DEFAULT};
    (void)plan_target_parse(&options->target, options->target_text, NULL);
    args_parse(&command, argc, argv, options);
}

/* ---- The command ----------------------------------------------------------------------------- */

static int run(const struct plan_options *options, struct plan_result *result)
{
    struct plan_log log;
    struct stint_error error;
    int exit_code = CMD_BAD_INPUT;
    if (options->source.n_paths == 0 && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        fputs("Reading events from standard input; ^D ends.\n", stderr);
    const struct plan_report report = {options, &log, result};
    if (plan_log_read(&log, options, &error) == 0 &&
        plan_search(result, &log, options, &error) == 0)
        exit_code = plan_report(&report);
    else
        print_message("%s", error.message);
    plan_result_free(result);
    plan_log_free(&log);
    return exit_code;
}

int plan_main(int argc, char **argv)
{
    struct plan_options options;
    struct plan_result *result = calloc(1, sizeof(*result));
    if (result == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    parse_options(&options, argc, argv);
    int exit_code = run(&options, result);
    free(result);
    return exit_code;
}
