/* SPDX-License-Identifier: MIT */
/* The command line of `stint plan`. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/plan/plan.h"

#include <string.h>

enum {
    OPTION_TARGET = 256,
    OPTION_PERIODS,
    OPTION_ALGORITHM,
    OPTION_OUT,
    OPTION_DOMAIN,
    OPTION_NAMES,
    OPTION_PLOT,
    OPTION_JSON,
};

static const char doc[] =
    "Proposes quotas from real traffic: for each period the least limit that keeps to "
    "the target, as the engine itself decides the events of FILE (standard input without "
    "one, or for -), and how many keys and requests other limits would touch.\vA key is "
    "touched if it is denied at least once.\n\n"
    "Memory: some 50 bytes and the name of each different key; 36 bytes for each event "
    "while they are put in order (48 with --sort), 12 from then on.\n\n"
    "Exit codes: 0 done, 1 bad input, or interrupted, 2 bad usage. See stint-plan(1), "
    "stint-replay(1).";

static const struct argp_option options_known[] = {
    {"target", OPTION_TARGET, "TEXT", 0,
     "'deny at most 0.1 % of keys' (default), 'deny at most 5 keys', 'deny at most 1 % of "
     "requests'",
     1},
    {"periods", OPTION_PERIODS, "LIST", 0, "Lengths of time (default 1s,10s,1m,1h,1d)", 1},
    {"algorithm", OPTION_ALGORITHM, "LIST", 0, "window (default), gcra (with its burst), log", 1},
    {"format", SOURCE_FORMAT, "FORMAT", 0, "combined (access logs; default), trace, or jsonl", 2},
    {"key", SOURCE_KEY, "EXPR", 0, "Key of the limit, as for stint replay (default ip, or key)", 2},
    {"time", SOURCE_TIME, "MEMBER", 0, "jsonl: seconds or RFC 3339 (default time)", 2},
    {"cost", SOURCE_COST, "MEMBER", 0, "jsonl: units of each event (default: 1 each)", 2},
    {"sort", SOURCE_SORT, NULL, 0, "Put the events into the order of time first", 3},
    {"strict", SOURCE_STRICT, NULL, 0, "Stop at the first malformed line", 3},
    {"out", OPTION_OUT, "FILE", 0,
     "Write a file of rules: the proposal that denies most within the target", 4},
    {"domain", OPTION_DOMAIN, "DOMAIN", 0, "Domain of the file of rules", 4},
    {"names", OPTION_NAMES, "N", 0, "Name N of the keys that a proposal touches (default 10)", 5},
    {"plot", OPTION_PLOT, "FILE", 0, GNUPLOT_HELP, 5},
    {"json", OPTION_JSON, NULL, 0, "Print one JSON object", 5},
    {0},
};

/* Calls `add` with each part of a list that commas separate; the list is modified. */
static void each_part(struct argp_state *state, char *list,
                      void (*add)(struct argp_state *state, char *part))
{
    for (char *part; (part = strsep(&list, ",")) != NULL;)
        add(state, part);
}

/* Sorts by length. */
static void add_period(struct argp_state *state, char *part)
{
    struct plan_options *options = state->input;
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

static void add_algorithm(struct argp_state *state, char *part)
{
    static const char *const names[] = {"window", "gcra", "log", NULL};
    static const enum stint_algorithm numbers[] = {STINT_WINDOW, STINT_GCRA, STINT_LOG};
    struct plan_options *options = state->input;
    enum stint_algorithm algorithm = numbers[args_choice(state, "--algorithm", part, names)];
    for (size_t i = 0; i < options->n_algorithms; i++)
        if (options->algorithms[i] == algorithm)
            argp_error(state, "--algorithm has %s twice", part);
    options->algorithms[options->n_algorithms++] = algorithm;
}

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

static void check_together(struct argp_state *state, const struct plan_options *options)
{
    source_check(&options->source, state);
    if ((options->out == NULL) != (options->domain == NULL))
        argp_error(state, "a file of rules is of one domain; expected --out and --domain together");
    if (options->domain != NULL && options->domain[0] == '\0')
        argp_error(state, "the name of the DOMAIN is empty");
    if (options->plot.format == GNUPLOT_TERMINAL && options->json)
        argp_error(state, "--plot - and --json would mix on standard output; name a FILE");
}

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    struct plan_options *options = state->input;
    struct stint_error error;
    switch (option) {
    case OPTION_TARGET:
        if (plan_target_parse(&options->target, value, &error) != 0)
            argp_error(state, "--target: %s", error.message);
        options->target_text = value;
        return 0;
    case OPTION_PERIODS:
        each_part(state, value, add_period);
        return 0;
    case OPTION_ALGORITHM:
        each_part(state, value, add_algorithm);
        return 0;
    case OPTION_OUT:
        options->out = value;
        return 0;
    case OPTION_DOMAIN:
        options->domain = value;
        return 0;
    case OPTION_NAMES:
        options->names = args_number(state, "--names", value, PLAN_NAMES_MAX);
        return 0;
    case OPTION_PLOT:
        gnuplot_option(state, &options->plot, value);
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_END:
        set_defaults(options);
        check_together(state, options);
        return 0;
    default:
        return source_option(&options->source, option, value, state);
    }
}

void plan_options_parse(struct plan_options *options, int argc, char **argv)
{
    static const struct argp argp = {
        .options = options_known, .parser = parse_option, .args_doc = "[FILE]", .doc = doc};
    *options = (struct plan_options){.source.format = REPLAY_COMBINED,
                                     .target_text = PLAN_TARGET_DEFAULT,
                                     .names = PLAN_NAMES_DEFAULT};
    (void)plan_target_parse(&options->target, options->target_text, NULL);
    args_parse(&argp, argc, argv, options);
}
