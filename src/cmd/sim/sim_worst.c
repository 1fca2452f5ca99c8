/* SPDX-License-Identifier: MIT */
/* `stint sim worst`: searches for requests that exceed a quota's bound, for a limited time. */
#define _GNU_SOURCE
#include "cmd/sim/sim_worst.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/interrupt.h"
#include "cmd/lib/print.h"
#include "cmd/lib/progress.h"
#include "table/clock.h"

#include <errno.h>
#include <string.h>

#define TIME_DEFAULT_NS (10 * NS_PER_S)

enum {
    OPTION_QUOTA = 256,
    OPTION_SEED,
    OPTION_TIME,
    OPTION_TRIES,
    OPTION_VERBS,
    OPTION_TRACE,
    OPTION_JSON,
};

static const char doc[] =
    "Searches for the requests of one key (takes, charges, refunds, releases) after "
    "which a take is admitted that makes the most units in any window of the quota's "
    "period, prints them as a trace, and compares the result with the bound that `stint "
    "explain` prints.\vFor example: stint sim worst --quota 'sliding_counter 100/60s' "
    "--time 2s\n\n"
    "The same --seed and --tries give the same trace everywhere.\n\n"
    "Exit codes: 0 done, 1 the stated bound is broken, or the trace cannot be written, 2 "
    "bad usage. ^C ends the search, and the best so far is printed. See "
    "stint-sim-worst(1).";

static const struct argp_option options_known[] = {
    {"quota", OPTION_QUOTA, "SPEC", 0, "The quota to test", 1},
    {"time", OPTION_TIME, "TIME", 0, "Search for this long (default 10s)", 2},
    {"tries", OPTION_TRIES, "N", 0, "Try at most N sequences", 2},
    {"verbs", OPTION_VERBS, "take|all", 0,
     "Takes alone, or charges, refunds and releases, too (default all)", 2},
    {"seed", OPTION_SEED, "N", 0, "Seed of the random numbers (default 1)", 2},
    {"trace", OPTION_TRACE, "FILE", 0, "Write the trace to FILE, not to standard output", 3},
    {"json", OPTION_JSON, NULL, 0, "Print one JSON object, which holds the trace", 3},
    {0},
};

static const char *const verbs_known[] = {"take", "all", NULL};

struct parsed {
    struct sim_worst_options options;
    size_t n_quotas;
};

static void add_quota(struct argp_state *state, struct parsed *parsed, const char *spec)
{
    if (parsed->n_quotas > 0)
        argp_error(state, "expected one --quota, found '%s' too", spec);
    args_add_quota(state, &parsed->options.quota, &parsed->n_quotas, spec);
    if (parsed->options.quota.initial_set)
        argp_error(state, "--quota: initial is for states that a program owns; a trace begins with "
                          "a key that was never used");
}

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    struct parsed *parsed = state->input;
    struct sim_worst_options *options = &parsed->options;
    switch (option) {
    case OPTION_QUOTA:
        add_quota(state, parsed, value);
        return 0;
    case OPTION_TIME:
        options->time_ns = args_duration(state, "--time", value);
        return 0;
    case OPTION_TRIES:
        options->tries_max = args_number(state, "--tries", value, INT64_MAX);
        return 0;
    case OPTION_SEED:
        options->seed = args_number(state, "--seed", value, INT64_MAX);
        return 0;
    case OPTION_TRACE:
        args_file(state, &options->path, value);
        return 0;
    case OPTION_VERBS:
        options->takes_only = args_choice(state, "--verbs", value, verbs_known) == 0;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is no option; a quota is given as --quota '%s'", value, value);
        return 0;
    case ARGP_KEY_END:
        if (parsed->n_quotas == 0)
            argp_error(state, "expected --quota, for example --quota 'fixed_window 100/60s'");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Until the time is over, the bound is broken, or ^C. */
static int search_on(struct search *search, const struct sim_worst_options *options,
                     const struct search_subject *subject, struct sim_worst_result *result,
                     struct stint_error *error)
{
    struct progress progress;
    uint64_t begun_ns = clock_boot_ns();
    int code = 0;
    progress_begin(&progress, 0);
    progress.what = "sequences";
    do {
        code = search_try(search, error);
        progress_step(&progress, search_tries(search));
        result->interrupted = interrupt_seen();
        result->time_ns = clock_boot_ns() - begun_ns;
    } while (code == 0 && search_best(search).units <= subject->bound && !result->interrupted &&
             result->time_ns < options->time_ns && search_tries(search) < options->tries_max);
    progress_end(&progress);
    result->tries = search_tries(search);
    result->decisions = search_decisions(search);
    return code;
}

int sim_worst_run(const struct sim_worst_options *options, const struct search_subject *subject)
{
    struct search_options how = {
        .seed = options->seed, .clock_steps = true, .takes_only = options->takes_only};
    struct sim_worst_result result = {0};
    struct search *search = NULL;
    struct stint_error error;
    int code = search_new(&search, subject, &how, &error);
    if (code == 0)
        code = search_on(search, options, subject, &result, &error);
    if (code == 0)
        code = search_tidy(search, &error);
    bool told = false;
    if (code == 0) {
        result.best = search_best(search);
        told = sim_worst_report(options, subject, &result);
    } else {
        print_message("%s", error.message);
    }
    search_free(search);
    if (options->trace != NULL)
        fclose(options->trace);
    return told && result.best.units <= subject->bound ? CMD_DONE : CMD_BAD_INPUT;
}

int sim_worst_main(int argc, char **argv)
{
    static const struct argp argp = {.options = options_known, .parser = parse_option, .doc = doc};
    struct parsed parsed = {
        .options = {.seed = 1, .time_ns = TIME_DEFAULT_NS, .tries_max = UINT64_MAX}};
    struct search_subject subject;
    args_parse(&argp, argc, argv, &parsed);
    search_subject_of(&subject, &parsed.options.quota);
    /* Before the search: an error in opening the file is reported at once. */
    if (parsed.options.path != NULL) {
        parsed.options.trace = fopen(parsed.options.path, "we");
        if (parsed.options.trace == NULL) {
            print_message("cannot write %s: %s", parsed.options.path, strerror(errno));
            return CMD_BAD_INPUT;
        }
    }
    interrupt_catch();
    return sim_worst_run(&parsed.options, &subject);
}
