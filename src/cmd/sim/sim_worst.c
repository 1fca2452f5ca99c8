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

struct parsed {
    struct sim_worst_options options;
    size_t n_quotas;
};

static void add_quota(struct argp_state *state, void *input, char *spec)
{
    struct parsed *parsed = input;
    if (parsed->n_quotas > 0)
        argp_error(state, "expected one --quota, found '%s' too", spec);
    args_add_quota(state, &parsed->options.quota, &parsed->n_quotas, spec);
    if (parsed->options.quota.initial_set)
        argp_error(state, "--quota: initial is for states that a program owns; a trace begins with "
                          "a key that was never used");
}

static void read_verbs(struct argp_state *state, void *takes_only, char *word)
{
    static const char *const verbs_known[] = {"take", "all", NULL};
    *(bool *)takes_only = args_choice(state, "--verbs", word, verbs_known) == 0;
}

static const struct args_option options_known[] = {
    {"quota", "SPEC", 1, "The quota to test", ARGS_OWN(add_quota)},
    {"time", "TIME", 2, "Search for this long (default 10s)",
     ARGS_DURATION(struct parsed, options.time_ns)},
    {"tries", "N", 2, "Try at most N sequences",
     ARGS_NUMBER(struct parsed, options.tries_max, INT64_MAX)},
    {"verbs", "take|all", 2, "Takes alone, or charges, refunds and releases, too (default all)",
     ARGS_PART(struct parsed, options.takes_only, read_verbs)},
    {"seed", "N", 2, "Seed of the random numbers (default 1)",
     ARGS_NUMBER(struct parsed, options.seed, INT64_MAX)},
    {"trace", "FILE", 3, "Write the trace to FILE, not to standard output",
     ARGS_FILE(struct parsed, options.path)},
    {"json", NULL, 3, "Print one JSON object, which holds the trace",
     ARGS_FLAG(struct parsed, options.json)},
    {0},
};

static void refuse_word(struct argp_state *state, void *input, char *word)
{
    (void)input;
    argp_error(state, "'%s' is no option; a quota is given as --quota '%s'", word, word);
}

static void check(struct argp_state *state, void *input)
{
    if (((const struct parsed *)input)->n_quotas == 0)
        argp_error(state, "expected --quota, for example --quota 'fixed_window 100/60s'");
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
    static const struct args_command command = {
        .set = {options_known, .word = refuse_word, .end = check}, .doc = doc};
    struct parsed parsed = {
        .options = {.seed = 1, .time_ns = TIME_DEFAULT_NS, .tries_max = UINT64_MAX}};
    struct search_subject subject;
    args_parse(&command, argc, argv, &parsed);
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
