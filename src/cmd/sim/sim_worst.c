/* SPDX-License-Identifier: MIT */
/* `stint sim worst`: searches for requests that exceed a quota's bound, for a limited time. */
#define _GNU_SOURCE
#include "cmd/sim/sim_worst.h"

#include "algorithm/spec.h"
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"
#include "table/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The output: the summary is in comments of the trace, for `stint replay` ----------------- */

struct sim_worst_result {
    struct search_best best;
    uint64_t time_ns;
    bool interrupted;
};

/* Seconds, with as many decimals as they need. */
static void print_time(FILE *out, uint64_t ns)
{
    char decimals[16];
    int len = snprintf(decimals, sizeof(decimals), ".%09" PRIu64, ns % NS_PER_S);
    while (decimals[len - 1] == '0')
        len--;
    fprintf(out, "%" PRIu64 "%.*s", ns / NS_PER_S, len > 1 ? len : 0, decimals);
}

static bool steps_back(const struct search_best *best)
{
    for (size_t i = 1; i < best->n_asks; i++)
        if (best->asks[i].now_ns < best->asks[i - 1].now_ns)
            return true;
    return false;
}

static bool has_verbs(const struct search_best *best)
{
    for (size_t i = 0; i < best->n_asks; i++)
        if (best->asks[i].verb != SEARCH_VERB_TAKE)
            return true;
    return false;
}

static void print_verdict(FILE *out, const char *mark, const struct search_subject *subject,
                          const struct search_best *best)
{
    if (best->units > subject->bound)
        fprintf(out, "%sTHE STATED BOUND IS BROKEN.\n", mark);
    else if (best->units == subject->bound)
        fprintf(out, "%sThe bound is reached, and was not passed.\n", mark);
    else
        fprintf(out, "%sThe bound was not reached.\n", mark);
}

static void print_summary(FILE *out, const char *mark, const struct sim_worst_options *options,
                          const struct search_subject *subject,
                          const struct sim_worst_result *result)
{
    const struct search_best *best = &result->best;
    struct formatted units, bound, period, tries, decisions, requests;
    char spec[SPEC_SIZE];
    stint_quota_format(&options->quota, spec, sizeof(spec));
    fprintf(out, "%s%s\n%s", mark, spec, mark);
    if (options->quota.algorithm == STINT_CONCURRENCY)
        fputs("most held at once: ", out);
    else
        fprintf(out, "most admitted in any %s: ", format_duration(&period, subject->period_ns));
    fprintf(out, "%s, of at most %s by its algorithm", format_count(&units, best->units),
            format_count(&bound, subject->bound));
    if (best->units > 0) {
        fputs(", until ", out);
        print_time(out, best->at_ns);
        fputs(" s", out);
    }
    fputc('\n', out);
    print_verdict(out, mark, subject, best);
    fprintf(out, "%s%s request%s; seed %" PRIu64 ", %s sequences tried, %s decisions, %.1f s%s\n",
            mark, format_count(&requests, best->n_asks), best->n_asks == 1 ? "" : "s",
            options->seed, format_count(&tries, best->tries),
            format_count(&decisions, best->decisions), (double)result->time_ns / 1e9,
            result->interrupted ? "; interrupted: this is the best so far" : "");
    if (best->cut_at > 0)
        fprintf(out,
                "%sThe sequence was cut off at %s requests; a longer one may be admitted more%s.\n",
                mark, format_count(&requests, best->cut_at),
                best->cut_at < SEARCH_ASKS_MAX ? ", and more time would try it" : "");
    if (has_verbs(best))
        fprintf(out,
                "%sCharges and refunds are among the lines, each refund with the line whose use it "
                "gives back: replay reads traces of takes alone (--verbs take).\n",
                mark);
    if (steps_back(best))
        fprintf(out, "%sClocks step back; replay decides such lines at the latest time seen.\n",
                mark);
}

/* The line of the grant that this request gives back; 0 if there is none. */
static size_t line_of(const struct search_best *best, size_t at)
{
    for (size_t i = at; i > 0; i--)
        if (best->asks[i - 1].number == best->asks[at].of)
            return i;
    return 0;
}

/* The verb is in the column of the cost, so that replay does not take such a line for a take. */
static void print_trace(FILE *out, const struct search_best *best)
{
    static const char *const verbs[] = {[SEARCH_VERB_TAKE] = "",
                                        [SEARCH_VERB_CHARGE] = "charge ",
                                        [SEARCH_VERB_REFUND] = "refund ",
                                        [SEARCH_VERB_RELEASE] = "release "};
    for (size_t i = 0; i < best->n_asks; i++) {
        const struct search_ask *ask = &best->asks[i];
        print_time(out, ask->now_ns);
        fprintf(out, " k %s%" PRIu32, verbs[ask->verb], ask->cost);
        size_t line = ask->of != SEARCH_NONE ? line_of(best, i) : 0;
        if (line > 0)
            fprintf(out, " of line %zu", line);
        fputc('\n', out);
    }
}

static bool print_json(const struct sim_worst_options *options,
                       const struct search_subject *subject, const struct sim_worst_result *result)
{
    const struct search_best *best = &result->best;
    char spec[SPEC_SIZE], *text = NULL;
    size_t text_size = 0;
    FILE *memory = open_memstream(&text, &text_size);
    if (memory != NULL) {
        print_trace(memory, best);
        if (fclose(memory) != 0) {
            free(text);
            text = NULL;
        }
    }
    stint_quota_format(&options->quota, spec, sizeof(spec));
    /* Without a text json_pack() fails, and json_text_print() reports why. */
    json_t *object = json_pack(
        "{s:s, s:o, s:o, s:b, s:b, s:o, s:o, s:I, s:b, s:b, s:b, s:b, s:I, s:o, s:o, s:o, s:s}",
        "quota", spec, "max_in_any_window", json_text_ns(best->units), "bound",
        json_text_ns(subject->bound), "reached", best->units == subject->bound, "broken",
        best->units > subject->bound, "period_ns", json_text_ns(subject->period_ns), "until_ns",
        best->units > 0 ? json_text_ns(best->at_ns) : json_null(), "requests",
        (json_int_t)best->n_asks, "cut", best->cut_at > 0, "steps_back", steps_back(best),
        "other_verbs", has_verbs(best), "interrupted", result->interrupted, "seed",
        (json_int_t)options->seed, "tries", json_text_ns(best->tries), "decisions",
        json_text_ns(best->decisions), "time_ns", json_text_ns(result->time_ns), "trace", text);
    free(text);
    return json_text_print(object, true) == 0;
}

static bool write_file(const struct sim_worst_options *options,
                       const struct search_subject *subject, const struct sim_worst_result *result)
{
    bool is_empty = ftruncate(fileno(options->trace), 0) == 0 || errno == EINVAL; /* a pipe */
    print_summary(options->trace, "# ", options, subject, result);
    print_trace(options->trace, &result->best);
    if (is_empty && fflush(options->trace) == 0 && ferror(options->trace) == 0)
        return true;
    print_message("cannot write %s%s%s", options->path, errno != 0 ? ": " : "",
                  errno != 0 ? strerror(errno) : "");
    return false;
}

/* False if it cannot be written, which is reported. */
static bool print_result(const struct sim_worst_options *options,
                         const struct search_subject *subject,
                         const struct sim_worst_result *result)
{
    bool is_written = true;
    if (options->json) {
        is_written = print_json(options, subject, result);
    } else {
        print_summary(stdout, options->trace == NULL ? "# " : "", options, subject, result);
        if (options->trace == NULL)
            print_trace(stdout, &result->best);
    }
    if (options->trace != NULL)
        is_written = write_file(options, subject, result) && is_written;
    struct formatted units, bound;
    if (result->best.units > subject->bound)
        print_message(
            "THE STATED BOUND IS BROKEN: a take was admitted that makes %s in a window, and the "
            "algorithm allows at most %s",
            format_count(&units, result->best.units), format_count(&bound, subject->bound));
    return is_written;
}

/* ---- The command ----------------------------------------------------------------------------- */

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
        result->best = search_best(search);
        progress_step(&progress, result->best.tries);
        result->interrupted = interrupts_seen() > 0;
        result->time_ns = clock_boot_ns() - begun_ns;
    } while (code == 0 && result->best.units <= subject->bound && !result->interrupted &&
             result->time_ns < options->time_ns && result->best.tries < options->tries_max);
    progress_end(&progress);
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
    bool is_written = false;
    if (code == 0) {
        uint64_t decisions = result.best.decisions; /* of the search, before it was shortened */
        result.best = search_best(search);
        result.best.decisions = decisions;
        is_written = print_result(options, subject, &result);
    } else {
        print_message("%s", error.message);
    }
    search_free(search);
    if (options->trace != NULL)
        fclose(options->trace);
    return is_written && result.best.units <= subject->bound ? CMD_DONE : CMD_BAD_INPUT;
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
    /* Before the search: an error in opening the file is reported at once, and what it holds stays.
     */
    if (parsed.options.path != NULL) {
        parsed.options.trace = fopen(parsed.options.path, "ae");
        if (parsed.options.trace == NULL)
            return print_failure("cannot write %s: %s%s", parsed.options.path, strerror(errno),
                                 err_advice(errno));
    }
    interrupt_catch();
    return sim_worst_run(&parsed.options, &subject);
}
