/* SPDX-License-Identifier: MIT */
/* The command line of `stint sim utilisation`. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/sim/sim_utilisation.h"

#include "base/ns.h"

#include <stdlib.h>
#include <string.h>

#define DEMAND_MAX 1000.0

enum {
    OPTION_QUOTA = 256,
    OPTION_BURSTINESS,
    OPTION_DEMAND,
    OPTION_BUCKETS,
    OPTION_TIME_SLACK,
    OPTION_COUNT_SLACK,
    OPTION_RESOLUTION,
    OPTION_ALSO,
    OPTION_SEEDS,
    OPTION_SEED,
    OPTION_PERIODS,
    OPTION_OF,
    OPTION_CSV,
    OPTION_JSON,
    OPTION_PLOT,
    OPTION_BOUND,
};

static const char doc[] =
    "Measures how much of a limit its callers get to use: the units that strict quotas of the same "
    "limit and period admit of the same requests, as a share of the limit and of what an exact "
    "count admits, beside the bytes of their states.\v"
    "Without --buckets, --time_slack, --count_slack and --resolution it sweeps the splits of 10, "
    "20, 40 and 100 buckets between time and count, and all resolutions of window; with some of "
    "them, these alone.\n\n"
    "LIST is values separated by commas; numbers also as FIRST-LAST.\n\n"
    "Exit codes: 0 done, 1 bad input, a stated bound that did not hold, or interrupted, 2 bad "
    "usage. See stint-sim-utilisation(1), stint-spec(7).";

static const struct argp_option options_known[] = {
    {"quota", OPTION_QUOTA, "LIMIT/PERIOD", 0, "What may be used (default 500/10m)", 1},
    {"demand", OPTION_DEMAND, "MULTIPLE", 0,
     "Units asked for, as a multiple of the limit (default 1.05)", 1},
    {"burstiness", OPTION_BURSTINESS, "LIST", 0,
     "How they come: smooth, poisson, onoff:SHARE%[/CYCLE] (on for that share of the time), greedy "
     "(default smooth,poisson,onoff:50%,onoff:20%,onoff:5%,greedy)",
     1},
    {"buckets", OPTION_BUCKETS, "LIST", 0, "Every split of so many buckets between time and count",
     2},
    {"time_slack", OPTION_TIME_SLACK, "LIST", 0,
     "buckets with each of these, and none, with each --count_slack", 2},
    {"count_slack", OPTION_COUNT_SLACK, "LIST", 0,
     "buckets with each of these, and none, with each --time_slack", 2},
    {"resolution", OPTION_RESOLUTION, "LIST", 0, "window with each of these, from 10 to 24", 2},
    {"also", OPTION_ALSO, "SPEC", 0, "Any other quota of this limit and period beside them", 2},
    {"seeds", OPTION_SEEDS, "N", 0, "Runs of each demand (default 15)", 3},
    {"seed", OPTION_SEED, "N", 0, "The first of them (default 1)", 3},
    {"periods", OPTION_PERIODS, "N", 0, "Periods that a run measures (default 60)", 3},
    {"of", OPTION_OF, "WHOLE", 0,
     "Of what table and picture show the share: full (default), which is the limit, or exact, "
     "which is what `log` admits",
     4},
    {"csv", OPTION_CSV, "FILE", 0, "Every figure as a line of CSV; - is standard output", 4},
    {"json", OPTION_JSON, NULL, 0, "Every figure in one JSON object", 4},
    {"plot", OPTION_PLOT, "FILE", 0, GNUPLOT_HELP, 4},
    {"bound", OPTION_BOUND, "SPEC", 0,
     "No sweep: a trace of the uses that have the most of these buckets alive, for replay", 5},
    {0},
};

/* By enum utilisation_of. */
static const char *const wholes[] = {"full", "exact", NULL};

/* The next value of a list; false at its end. */
static bool next_value(struct argp_state *state, const char *option, char **rest, char **value)
{
    if (*rest == NULL)
        return false;
    *value = *rest;
    *rest = strchr(*rest, ',');
    if (*rest != NULL)
        *(*rest)++ = '\0';
    if (**value == '\0')
        argp_error(state, "%s has an empty value in its LIST", option);
    return true;
}

static void check_space(struct argp_state *state, const char *option, size_t n)
{
    if (n >= UTILISATION_LIST_MAX)
        argp_error(state, "%s has more than %d values", option, UTILISATION_LIST_MAX);
}

static void add_number(struct argp_state *state, const char *option, uint32_t *numbers, size_t *n,
                       uint32_t number)
{
    check_space(state, option, *n);
    for (size_t i = 0; i < *n; i++)
        if (numbers[i] == number)
            argp_error(state, "%s has %u twice", option, (unsigned)number);
    numbers[(*n)++] = number;
}

/* Numbers, and FIRST-LAST. */
static void read_numbers(struct argp_state *state, const char *option, char *text,
                         uint32_t *numbers, size_t *n, uint32_t max)
{
    for (char *value; next_value(state, option, &text, &value);) {
        char *last = strchr(value, '-');
        if (last != NULL && last > value)
            *last++ = '\0';
        uint64_t from = args_number(state, option, value, max);
        uint64_t to = last != NULL ? args_number(state, option, last, max) : from;
        if (from > to)
            argp_error(state, "%s has a range that runs backwards", option);
        for (uint64_t number = from; number <= to; number++)
            add_number(state, option, numbers, n, (uint32_t)number);
    }
}

static void read_time_slacks(struct argp_state *state, struct utilisation_options *options,
                             char *text)
{
    for (char *value; next_value(state, "--time_slack", &text, &value);) {
        uint64_t slack_ns =
            strcmp(value, "none") == 0 ? 0 : args_duration(state, "--time_slack", value);
        if (slack_ns == 0 && strcmp(value, "none") != 0)
            argp_error(state, "--time_slack cannot be 0; none is no limit on a bucket's time");
        check_space(state, "--time_slack", options->n_time_slacks);
        options->time_slacks_ns[options->n_time_slacks++] = slack_ns;
    }
}

static void read_count_slacks(struct argp_state *state, struct utilisation_options *options,
                              char *text)
{
    for (char *value; next_value(state, "--count_slack", &text, &value);) {
        uint32_t slack = strcmp(value, "none") == 0
                             ? 0
                             : (uint32_t)args_number(state, "--count_slack", value, UINT32_MAX);
        add_number(state, "--count_slack", options->count_slacks, &options->n_count_slacks, slack);
    }
}

static void read_demands(struct argp_state *state, struct utilisation_options *options, char *text)
{
    struct stint_error error;
    for (char *value; next_value(state, "--burstiness", &text, &value);) {
        if (options->n_demands == SWEEP_DEMANDS_MAX)
            argp_error(state, "--burstiness has more than %d values", SWEEP_DEMANDS_MAX);
        struct sweep_demand *demand = &options->demands[options->n_demands++];
        if (sweep_demand_parse(demand, span_of_text(value), &error) != 0)
            argp_error(state, "--burstiness cannot have '%s'; %s", value, error.message);
    }
}

/* Digits, and a point among them. */
static double read_multiple(struct argp_state *state, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    size_t plain = strspn(text, "0123456789.");
    if (text[0] == '\0' || text[plain] != '\0' || *end != '\0' || !(number >= 0.01) ||
        number > DEMAND_MAX)
        argp_error(state, "--demand must be a number from 0.01 to %g, not '%s'", DEMAND_MAX, text);
    return number;
}

/* A quota that is no more than limit and period. */
static void read_quota(struct argp_state *state, struct sweep_terms *terms, const char *text)
{
    struct stint_quota quota;
    struct stint_error error;
    if (strchr(text, ' ') != NULL)
        argp_error(state, "--quota is LIMIT/PERIOD alone, not '%s'; --also takes any SPEC", text);
    if (stint_quota_parse(&quota, text, &error) != 0)
        argp_error(state, "'%s' is no quota: %s", text, error.message);
    terms->limit = quota.limit;
    terms->period_ns = quota.period_ns;
}

static void read_bound(struct argp_state *state, struct stint_quota *bound, const char *text)
{
    struct stint_error error;
    if (stint_quota_parse(bound, text, &error) != 0)
        argp_error(state, "'%s' is no quota: %s", text, error.message);
    if (bound->algorithm != STINT_BUCKETS)
        argp_error(state, "--bound is for buckets, not for %s",
                   stint_algorithm_name(bound->algorithm));
}

static void add_defaults(struct utilisation_options *options)
{
    static const uint32_t buckets[] = {10, 20, 40, 100};
    static const char *const demands[] = {"smooth",    "poisson",  "onoff:50%",
                                          "onoff:20%", "onoff:5%", "greedy"};
    if (options->n_demands == 0)
        for (size_t i = 0; i < sizeof(demands) / sizeof(*demands); i++)
            (void)sweep_demand_parse(&options->demands[options->n_demands++],
                                     span_of_text(demands[i]), NULL);
    if (options->n_time_slacks > 0 && options->n_count_slacks == 0)
        options->count_slacks[options->n_count_slacks++] = 0;
    if (options->n_count_slacks > 0 && options->n_time_slacks == 0)
        options->time_slacks_ns[options->n_time_slacks++] = 0;
    options->chosen = options->n_buckets + options->n_resolutions + options->n_time_slacks > 0;
    if (options->chosen)
        return;
    for (size_t i = 0; i < sizeof(buckets) / sizeof(*buckets); i++)
        if (buckets[i] <= options->terms.limit)
            options->buckets[options->n_buckets++] = buckets[i];
    for (uint32_t resolution = 10; resolution <= 24; resolution++)
        options->resolutions[options->n_resolutions++] = resolution;
}

static void check_together(struct argp_state *state, const struct utilisation_options *options)
{
    bool csv_out = options->csv != NULL && strcmp(options->csv, "-") == 0;
    bool drawn_out = options->gnuplot.format == GNUPLOT_TERMINAL;
    if (csv_out + drawn_out + options->json > 1)
        argp_error(state, "only one of --json, --csv - and --plot - can have standard output");
    if (options->bound.derived.checked && (options->csv != NULL || options->gnuplot.path != NULL))
        argp_error(state, "--bound makes a trace, and neither --csv nor --plot");
}

static error_t parse_lists(int option, char *value, struct argp_state *state)
{
    struct utilisation_options *options = state->input;
    switch (option) {
    case OPTION_BURSTINESS:
        read_demands(state, options, value);
        return 0;
    case OPTION_BUCKETS:
        read_numbers(state, "--buckets", value, options->buckets, &options->n_buckets, UINT32_MAX);
        return 0;
    case OPTION_TIME_SLACK:
        read_time_slacks(state, options, value);
        return 0;
    case OPTION_COUNT_SLACK:
        read_count_slacks(state, options, value);
        return 0;
    case OPTION_RESOLUTION:
        read_numbers(state, "--resolution", value, options->resolutions, &options->n_resolutions,
                     1000);
        return 0;
    case OPTION_ALSO:
        args_add_quota(state, options->also, &options->n_also, value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    struct utilisation_options *options = state->input;
    struct sweep_terms *terms = &options->terms;
    switch (option) {
    case OPTION_QUOTA:
        read_quota(state, terms, value);
        return 0;
    case OPTION_DEMAND:
        terms->demand = read_multiple(state, value);
        return 0;
    case OPTION_SEEDS:
        terms->seeds = (uint32_t)args_number(state, "--seeds", value, SWEEP_SEEDS_MAX);
        return 0;
    case OPTION_SEED:
        terms->seed = args_number(state, "--seed", value, UINT64_MAX / 2);
        return 0;
    case OPTION_PERIODS:
        terms->periods = (uint32_t)args_number(state, "--periods", value, SWEEP_PERIODS_MAX);
        return 0;
    case OPTION_OF:
        options->of = (enum utilisation_of)args_choice(state, "--of", value, wholes);
        return 0;
    case OPTION_CSV:
        args_file(state, &options->csv, value);
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_PLOT:
        gnuplot_option(state, &options->gnuplot, value);
        return 0;
    case OPTION_BOUND:
        read_bound(state, &options->bound, value);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "expected options alone, found '%s'", value);
        return 0;
    case ARGP_KEY_END:
        add_defaults(options);
        check_together(state, options);
        return 0;
    default:
        return parse_lists(option, value, state);
    }
}

void utilisation_options_parse(struct utilisation_options *options, int argc, char **argv)
{
    static const struct argp argp = {.options = options_known, .parser = parse_option, .doc = doc};
    *options = (struct utilisation_options){.terms = {.limit = 500,
                                                      .period_ns = 10 * NS_PER_MIN,
                                                      .demand = 1.05,
                                                      .seed = 1,
                                                      .seeds = 15,
                                                      .periods = 60}};
    args_parse(&argp, argc, argv, options);
}
