/* SPDX-License-Identifier: MIT */
/*
 * `stint plan`: the log in memory, what the limits of each algorithm and period would do to it, and
 * the results as text, JSON, a file of rules and a picture.
 */
#define _GNU_SOURCE
#include "sim/plan/plan.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/utf8.h"
#include "base/wide_int.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/gnuplot.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"
#include "cmd/lib/source.h"
#include "rules/yaml/schema.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERIODS_MAX 16
#define ALGORITHMS_MAX 3
#define CURVES_MAX (PERIODS_MAX * ALGORITHMS_MAX)
#define POINTS_MAX 32 /* of one curve */
#define NAMES_MAX 1000
#define NAMES_DEFAULT 10

struct plan_options {
    struct source_options source; /* the options about the log */
    struct plan_target target;
    const char *target_text;
    uint64_t periods_ns[PERIODS_MAX]; /* shortest first */
    size_t n_periods;
    enum stint_algorithm algorithms[ALGORITHMS_MAX];
    size_t n_algorithms;
    const char *domain, *out; /* of the file of rules; NULL: do not write it */
    size_t names;             /* keys that are named for each proposal */
    struct gnuplot plot;
    bool json;
};

struct named {
    uint32_t key;
    uint64_t denied; /* requests */
};

/* One algorithm over one period: the quota that meets the target, and the curve of other limits. */
struct curve {
    enum stint_algorithm algorithm;
    uint64_t period_ns;
    struct plan_proposal proposal;
    struct named *named; /* the keys denied most, most first */
    size_t n_named, named_max;
    /* For 0 keys touched, at most 1, 2, 5 …: the least quotas, greatest first, all PLAN_FOUND. */
    struct plan_proposal points[POINTS_MAX];
    size_t n_points;
};

struct planning {
    struct plan_options options;
    struct event_log log;
    struct traffic traffic; /* of the log, whose events it takes */
    uint64_t first_ns, last_ns, late;
    uint64_t target_most, target_all; /* keys, or requests */
    struct curve curves[CURVES_MAX];
    size_t n_curves, n_points; /* points: of all curves */
    bool interrupted;          /* the log, or the list of curves, is only its first part */
};

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
    if (options->n_periods == PERIODS_MAX)
        argp_error(state, "more than %d periods", PERIODS_MAX);
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

/* What the file of rules cannot hold is refused before the log is read. */
static void read_domain(struct argp_state *state, void *domain, char *text)
{
    char shown[256];
    struct span name = span_of_text(text);
    if (name.len == 0)
        argp_error(state, "the name of the DOMAIN is empty");
    if (name.len > FIELD_TEXT_MAX)
        argp_error(state, "--domain has %zu bytes; expected at most %d", name.len, FIELD_TEXT_MAX);
    if (!utf8_is_valid(name.ptr, name.len))
        argp_error(state, "--domain must be text in UTF-8, not '%s'",
                   format_text(shown, sizeof(shown), name));
    *(const char **)domain = text;
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
    {"domain", "DOMAIN", 4, "Domain of the file of rules",
     ARGS_PART(struct plan_options, domain, read_domain)},
    {"names", "N", 5, "Name N of the keys that a proposal touches (default 10)",
     ARGS_NUMBER(struct plan_options, names, NAMES_MAX)},
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
    *options = (struct plan_options){.target_text = PLAN_TARGET_DEFAULT, .names = NAMES_DEFAULT};
    (void)plan_target_parse(&options->target, options->target_text, NULL);
    args_parse(&command, argc, argv, options);
}

/* ---- The log in memory ----------------------------------------------------------------------- */

/* An event that is earlier than one before it counts at the latest time seen. */
static void put_in_order(struct planning *planning)
{
    const struct event_list *events = &planning->log.events;
    uint64_t latest_ns = 0;
    planning->first_ns = events->entries[0].at_ns;
    for (size_t i = 0; i < events->n_entries; i++) {
        uint64_t *at_ns = &events->entries[i].at_ns;
        planning->first_ns = min_u64(*at_ns, planning->first_ns);
        planning->late += *at_ns < latest_ns;
        latest_ns = *at_ns = max_u64(*at_ns, latest_ns);
    }
    planning->last_ns = latest_ns;
}

static int read_log(struct planning *planning, struct stint_error *error)
{
    struct event_log *log = &planning->log;
    int code = event_log_read(log, &planning->options.source, error);
    if (code != 0)
        return code;
    planning->interrupted = log->interrupted;
    if (log->interrupted)
        print_message("interrupted: this is the plan of the %zu requests read until then",
                      log->events.n_entries);
    put_in_order(planning);
    const struct plan_target *target = &planning->options.target;
    planning->target_all = target->of_keys ? log->names.n_keys : log->events.n_entries;
    planning->target_most = plan_target_most(target, planning->target_all);
    return traffic_init(&planning->traffic, &log->events, log->names.n_keys, log->epoch_ns, error);
}

/* ---- The search ------------------------------------------------------------------------------ */

static bool goes_on(void *arg)
{
    (void)arg;
    return interrupts_seen() == 0;
}

/* Keeps the keys that are denied most; of equal ones the first. */
static void name_key(void *arg, uint32_t key, uint64_t requests)
{
    struct curve *curve = arg;
    size_t at = curve->n_named;
    while (at > 0 && curve->named[at - 1].denied < requests)
        at--;
    if (at == curve->named_max)
        return;
    curve->n_named += curve->n_named < curve->named_max;
    memmove(&curve->named[at + 1], &curve->named[at],
            (curve->n_named - 1 - at) * sizeof(curve->named[0]));
    curve->named[at] = (struct named){key, requests};
}

static int name_keys(struct curve *curve, const struct plan *plan, size_t names,
                     struct stint_error *error)
{
    const struct plan_sees sees = {name_key, curve};
    struct plan_touch touch;
    curve->named = calloc(names, sizeof(*curve->named));
    curve->named_max = names;
    if (curve->named == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for the names of %zu keys", names);
    return plan_try(plan, &curve->proposal.quota, &touch, &sees, error);
}

/* 1, 2, 5, 10, 20, 50 … */
static uint64_t next_step(uint64_t step)
{
    uint64_t power = 1;
    while (step >= 10 * power)
        power *= 10;
    return step == 0 ? 1 : step / power == 2 ? 5 * power : 2 * step;
}

static void add_point(struct curve *curve, const struct plan_proposal *point)
{
    const struct stint_quota *before =
        curve->n_points > 0 ? &curve->points[curve->n_points - 1].quota : NULL;
    if (before == NULL || before->limit != point->quota.limit ||
        before->burst != point->quota.burst)
        curve->points[curve->n_points++] = *point;
}

/* Up to a tenth of the keys: a limit that touches more is not of interest. */
static int find_points(struct curve *curve, const struct plan *plan, struct stint_error *error)
{
    uint64_t keys_max = max_u64(plan->traffic->n_keys / 10, 1);
    for (uint64_t keys = 0; keys <= keys_max && curve->n_points < POINTS_MAX;
         keys = next_step(keys)) {
        struct plan_proposal point;
        const struct plan_target target = {.of_keys = true, .number = keys};
        int code = plan_least(plan, curve->algorithm, &target, &point, error);
        if (code != 0)
            return code;
        if (point.found == PLAN_FOUND)
            add_point(curve, &point);
    }
    return 0;
}

static int find_curves(struct planning *planning, const struct plan *plan,
                       struct stint_error *error)
{
    const struct plan_options *options = &planning->options;
    for (size_t i = 0; i < options->n_algorithms; i++) {
        struct curve *curve = &planning->curves[planning->n_curves];
        *curve = (struct curve){.algorithm = options->algorithms[i], .period_ns = plan->period_ns};
        int code = plan_least(plan, curve->algorithm, &options->target, &curve->proposal, error);
        if (code == 0 && curve->proposal.found == PLAN_FOUND)
            code = name_keys(curve, plan, options->names, error);
        if (code == 0)
            code = find_points(curve, plan, error);
        if (code != 0) {
            free(curve->named);
            return code;
        }
        planning->n_curves++;
        planning->n_points += curve->n_points;
    }
    return 0;
}

static int search(struct planning *planning, struct stint_error *error)
{
    const struct plan_options *options = &planning->options;
    struct plan plan;
    struct progress progress;
    int code = plan_init(&plan, &planning->traffic, error);
    if (code != 0)
        return code;
    plan.goes_on = goes_on;
    progress_begin(&progress, options->n_periods);
    progress.what = "periods";
    for (size_t i = 0; code == 0 && i < options->n_periods; i++) {
        progress_step(&progress, i);
        code = plan_set_period(&plan, options->periods_ns[i], error);
        if (code == 0)
            code = find_curves(planning, &plan, error);
    }
    progress_end(&progress);
    plan_deinit(&plan);
    if (code != PLAN_STOPPED)
        return code;
    print_message("interrupted: these are %zu of %zu searches", planning->n_curves,
                  options->n_periods * options->n_algorithms);
    planning->interrupted = true;
    return 0;
}

/* The proposal for the file of rules: the one found that denies most. NULL: none. */
static const struct curve *chosen_of(const struct planning *planning)
{
    const struct curve *chosen = NULL;
    for (size_t i = 0; i < planning->n_curves; i++) {
        const struct plan_proposal *proposal = &planning->curves[i].proposal;
        if (proposal->found == PLAN_FOUND &&
            (chosen == NULL || proposal->touch.requests > chosen->proposal.touch.requests))
            chosen = &planning->curves[i];
    }
    return chosen;
}

/* ---- Text ------------------------------------------------------------------------------------ */

struct plan_spec {
    char text[96];
};

/* The quota as a SPEC without defaults. Returns spec->text. */
static const char *plan_spec(struct plan_spec *spec, const struct stint_quota *quota)
{
    struct buf buf = buf_of(spec->text, sizeof(spec->text));
    buf_add(&buf, "%s %" PRIu32 "/", stint_algorithm_name(quota->algorithm), quota->limit);
    spec_format_duration(&buf, quota->period_ns);
    if (quota->algorithm == STINT_GCRA)
        buf_add(&buf, " burst=%" PRIu32, quota->burst);
    return spec->text;
}

/* 0.02 %: hundredths matter here. */
static const char *share(struct formatted *formatted, uint64_t part, uint64_t whole)
{
    double percent = whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
    if (part > 0 && percent < 0.01)
        snprintf(formatted->text, sizeof(formatted->text), "<0.01 %%");
    else if (part < whole && percent >= 99.5)
        snprintf(formatted->text, sizeof(formatted->text), ">99 %%");
    else
        snprintf(formatted->text, sizeof(formatted->text), "%.*f %%",
                 percent < 10 && part > 0 ? 2 : 0, percent);
    return formatted->text;
}

static const char *plural(uint64_t number)
{
    return number == 1 ? "" : "s";
}

static void print_log(const struct planning *planning)
{
    const struct event_log *log = &planning->log;
    const struct traffic *traffic = &planning->traffic;
    struct formatted requests, keys, from, to, length;
    printf("%s: %s request%s of %s key%s", log->name, format_count(&requests, traffic->n_requests),
           plural(traffic->n_requests), format_count(&keys, traffic->n_keys),
           plural(traffic->n_keys));
    format_duration(&length, planning->last_ns - planning->first_ns);
    if (log->format == SOURCE_TRACE)
        printf(" in %s\n", length.text);
    else
        printf("\n%s to %s (%s)\n", format_date(&from, planning->first_ns),
               format_date(&to, planning->last_ns), length.text);
    if (log->malformed > 0)
        printf("left out: %s malformed line%s\n", format_count(&requests, log->malformed),
               plural(log->malformed));
    if (planning->late > 0)
        printf("%s line%s came late, and count%s at the latest time seen, as --no-sort asks\n",
               format_count(&requests, planning->late), plural(planning->late),
               planning->late == 1 ? "s" : "");
}

static const char *target_noun(const struct planning *planning)
{
    return planning->options.target.of_keys ? "keys" : "requests";
}

static void print_target(const struct planning *planning)
{
    struct formatted most, whole;
    printf("\ntarget: %s, which is %s of %s. The least limits that keep to it:\n",
           planning->options.target_text, format_count(&most, planning->target_most),
           format_count(&whole, planning->target_all));
}

/* ---- Proposals ------------------------------------------------------------------------------- */

static void print_named(const struct planning *planning, const struct curve *curve)
{
    struct formatted denied, more;
    for (size_t i = 0; i < curve->n_named; i++) {
        print_between("    ", key_set_name(&planning->log.names, curve->named[i].key), "");
        printf(" (%s denied)\n", format_count(&denied, curve->named[i].denied));
    }
    if (curve->proposal.touch.keys > curve->n_named)
        printf("    and %s more\n",
               format_count(&more, curve->proposal.touch.keys - curve->n_named));
}

static void print_found(const struct planning *planning, const struct curve *curve)
{
    const struct plan_touch *touch = &curve->proposal.touch;
    const struct traffic *traffic = &planning->traffic;
    struct plan_spec spec;
    struct formatted keys, all_keys, key_share, requests, all_requests, request_share;
    printf("%s touches %s of %s key%s (%s), %s of %s requests (%s)%s\n",
           plan_spec(&spec, &curve->proposal.quota), format_count(&keys, touch->keys),
           format_count(&all_keys, traffic->n_keys), plural(traffic->n_keys),
           share(&key_share, touch->keys, traffic->n_keys),
           format_count(&requests, touch->requests),
           format_count(&all_requests, traffic->n_requests),
           share(&request_share, touch->requests, traffic->n_requests), touch->keys > 0 ? ":" : "");
    print_named(planning, curve);
}

static void print_proposal(const struct planning *planning, const struct curve *curve)
{
    const char *name = stint_algorithm_name((int)curve->algorithm);
    struct formatted period;
    format_duration(&period, curve->period_ns);
    fputs("  ", stdout);
    switch (curve->proposal.found) {
    case PLAN_FOUND:
        print_found(planning, curve);
        break;
    case PLAN_REFUSED:
        printf("%s in %s: the quota is not valid: %s\n", name, period.text, curve->proposal.why);
        break;
    case PLAN_NO_LIMIT:
        printf("%s in %s: no limit keeps to the target\n", name, period.text);
        break;
    }
}

/* A limit over a period that the log does not cover means little. */
static void print_short(const struct planning *planning)
{
    uint64_t length_ns = planning->last_ns - planning->first_ns;
    const struct plan_options *options = &planning->options;
    struct formatted length, period;
    if (options->periods_ns[options->n_periods - 1] > length_ns)
        printf("\nThe log covers only %s, less than %s: the limit is that of the whole log.\n",
               format_duration(&length, length_ns),
               format_duration(&period, options->periods_ns[options->n_periods - 1]));
}

/* ---- Curves ---------------------------------------------------------------------------------- */

static void print_point(const struct planning *planning, const struct plan_proposal *point)
{
    const struct traffic *traffic = &planning->traffic;
    struct plan_spec spec;
    struct formatted keys, key_share, requests, request_share;
    printf("  %-28s %10s %8s %14s %8s\n", plan_spec(&spec, &point->quota),
           format_count(&keys, point->touch.keys),
           share(&key_share, point->touch.keys, traffic->n_keys),
           format_count(&requests, point->touch.requests),
           share(&request_share, point->touch.requests, traffic->n_requests));
}

static void print_curves(const struct planning *planning)
{
    printf("\n%-30s %19s %23s\n", "what other limits would do", "keys touched", "requests denied");
    for (size_t i = 0; i < planning->n_curves; i++) {
        const struct curve *curve = &planning->curves[i];
        for (size_t k = 0; k < curve->n_points; k++)
            print_point(planning, &curve->points[k]);
        if (curve->n_points > 0 && i + 1 < planning->n_curves)
            putchar('\n');
    }
}

static void print_text(const struct planning *planning)
{
    print_log(planning);
    print_target(planning);
    for (size_t i = 0; i < planning->n_curves; i++)
        print_proposal(planning, &planning->curves[i]);
    print_short(planning);
    print_curves(planning);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *point_json(const struct plan_proposal *point)
{
    struct plan_spec spec;
    bool has_burst = point->quota.algorithm == STINT_GCRA;
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:I, s:I}", "quota", plan_spec(&spec, &point->quota),
        "algorithm", stint_algorithm_name(point->quota.algorithm), "limit",
        (json_int_t)point->quota.limit, "period_ns", (json_int_t)point->quota.period_ns, "burst",
        has_burst ? json_integer(point->quota.burst) : json_null(), "keys_touched",
        (json_int_t)point->touch.keys, "requests_denied", (json_int_t)point->touch.requests);
}

static json_t *named_json(const struct planning *planning, const struct curve *curve)
{
    json_t *list = json_array();
    for (size_t i = 0; i < curve->n_named; i++)
        json_array_append_new(
            list, json_pack("{s:o, s:I}", "key",
                            json_text_key(key_set_name(&planning->log.names, curve->named[i].key)),
                            "requests_denied", (json_int_t)curve->named[i].denied));
    return list;
}

/* Without a result there is no quota, and a message gives the reason. */
static json_t *proposal_json(const struct planning *planning, const struct curve *curve)
{
    if (curve->proposal.found != PLAN_FOUND)
        return json_pack("{s:n, s:s, s:I, s:s}", "quota", "algorithm",
                         stint_algorithm_name((int)curve->algorithm), "period_ns",
                         (json_int_t)curve->period_ns, "why",
                         curve->proposal.found == PLAN_REFUSED ? curve->proposal.why
                                                               : "no limit keeps to the target");
    json_t *object = point_json(&curve->proposal);
    json_object_set_new(object, "keys", named_json(planning, curve));
    json_object_set_new(object, "chosen", json_boolean(curve == chosen_of(planning)));
    return object;
}

static int print_json(const struct planning *planning)
{
    const struct event_log *log = &planning->log;
    json_t *proposals = json_array(), *frontier = json_array();
    for (size_t i = 0; i < planning->n_curves; i++) {
        const struct curve *curve = &planning->curves[i];
        json_array_append_new(proposals, proposal_json(planning, curve));
        for (size_t k = 0; k < curve->n_points; k++)
            json_array_append_new(frontier, point_json(&curve->points[k]));
    }
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:s, s:s, s:I}, s:o, s:o, s:b}", "requests",
        (json_int_t)planning->traffic.n_requests, "keys", (json_int_t)planning->traffic.n_keys,
        "first_ns", (json_int_t)planning->first_ns, "last_ns", (json_int_t)planning->last_ns,
        "lines", (json_int_t)log->lines, "malformed", (json_int_t)log->malformed, "late",
        (json_int_t)planning->late, "target", "text", planning->options.target_text, "of",
        target_noun(planning), "most", (json_int_t)planning->target_most, "proposals", proposals,
        "frontier", frontier, "interrupted", (int)planning->interrupted);
    return json_text_print(object, true);
}

/* ---- A file of rules ------------------------------------------------------------------------- */

static const char *unit_of(uint64_t period_ns)
{
    switch (period_ns) {
    case NS_PER_S:
        return "second";
    case NS_PER_MIN:
        return "minute";
    case NS_PER_HOUR:
        return "hour";
    case NS_PER_DAY:
        return "day";
    default:
        return NULL;
    }
}

static void print_limit(FILE *out, const struct stint_quota *quota, int indent)
{
    char duration[64];
    struct buf buf = buf_of(duration, sizeof(duration));
    spec_format_duration(&buf, quota->period_ns);
    fprintf(out, "%*srate_limit:\n", indent, "");
    fprintf(out, "%*salgorithm: %s\n", indent + 2, "", stint_algorithm_name(quota->algorithm));
    if (unit_of(quota->period_ns) != NULL)
        fprintf(out, "%*sunit: %s\n", indent + 2, "", unit_of(quota->period_ns));
    else
        fprintf(out, "%*speriod: %s\n", indent + 2, "", duration);
    fprintf(out, "%*srequests_per_unit: %" PRIu32 "\n", indent + 2, "", quota->limit);
    if (quota->algorithm == STINT_GCRA)
        fprintf(out, "%*sburst: %" PRIu32 "\n", indent + 2, "", quota->burst);
}

/*
 * Parts that the reader of the log joins by + are nested entries, with the keys that replay gives
 * them: `ip/64` is ip. Returns the indent.
 */
static int print_entries(FILE *out, const struct planning *planning)
{
    const char *given = planning->options.source.key;
    const char *key = given != NULL                             ? given
                      : planning->log.format == SOURCE_COMBINED ? "ip"
                                                                : "key";
    int indent = 0;
    for (;;) {
        size_t len = strcspn(key, "+"), name_len = strcspn(key, "+/");
        fprintf(out, "%*sdescriptors:\n%*s- key: ", indent, "", indent + 2, "");
        print_yaml_text(out, span_of(key, name_len > 0 ? name_len : len));
        putc('\n', out);
        indent += 4;
        if (key[len] == '\0')
            return indent;
        key += len + 1;
    }
}

static void print_comment(FILE *out, const struct planning *planning, const struct curve *curve)
{
    const struct plan_touch *touch = &curve->proposal.touch;
    struct formatted keys, all_keys, requests, all_requests;
    fprintf(out,
            "# Of the log that it was planned by, this limit touches %s of %s keys\n"
            "# and denies %s of %s requests.\n",
            format_count(&keys, touch->keys), format_count(&all_keys, planning->traffic.n_keys),
            format_count(&requests, touch->requests),
            format_count(&all_requests, planning->traffic.n_requests));
}

static int write_rules(const struct planning *planning)
{
    const struct plan_options *options = &planning->options;
    const struct curve *curve = chosen_of(planning);
    struct plan_spec spec;
    if (curve == NULL)
        return print_failure("no limit keeps to the target, so that %s is not written",
                             options->out);
    errno = 0;
    FILE *out = fopen(options->out, "we");
    if (out != NULL) {
        print_comment(out, planning, curve);
        fputs("domain: ", out);
        print_yaml_text(out, span_of_text(options->domain));
        putc('\n', out);
        print_limit(out, &curve->proposal.quota, print_entries(out, planning));
    }
    bool failed = out == NULL || ferror(out) != 0;
    if (out != NULL && fclose(out) != 0)
        failed = true;
    if (failed)
        return print_failure("cannot write %s: %s%s", options->out, strerror(errno),
                             err_advice(errno));
    if (!options->json)
        printf("\n%s is in %s: of these it denies most.\n",
               plan_spec(&spec, &curve->proposal.quota), options->out);
    return CMD_DONE;
}

/* ---- A picture ------------------------------------------------------------------------------- */

#define TITLE_COLUMNS 80
#define NAME_MAX_LEN 64

/* "limit per 1 min (window)" */
static struct span name_curve(const struct curve *curve, char name[NAME_MAX_LEN])
{
    struct buf buf = buf_of(name, NAME_MAX_LEN);
    struct formatted period;
    buf_add(&buf, "limit per %s (%s)", format_duration(&period, curve->period_ns),
            stint_algorithm_name((int)curve->algorithm));
    return span_of_text(name);
}

static void add_point_row(struct plot *plot, const struct plan_proposal *point)
{
    plot_data(plot, "%" PRIu32 " %" PRIu64 " %" PRIu64 "\n", point->quota.limit, point->touch.keys,
              point->touch.requests);
}

static void add_proposals(struct plot *plot, const struct planning *planning)
{
    unsigned n = 0;
    plot_set(plot, "proposed limit keys requests");
    for (size_t i = 0; i < planning->n_curves; i++)
        if (planning->curves[i].proposal.found == PLAN_FOUND) {
            add_point_row(plot, &planning->curves[i].proposal);
            n++;
        }
    plot_variables(plot, "n_proposals = %u\n", n);
}

static void add_target(struct plot *plot, const struct planning *planning)
{
    char text[2 * NAME_MAX_LEN];
    struct formatted most, whole;
    snprintf(text, sizeof(text), "target: at most %s of %s %s",
             format_count(&most, planning->target_most), format_count(&whole, planning->target_all),
             target_noun(planning));
    plot_variables(plot, "target = %" PRIu64 "\ntarget_panel = %d\n", planning->target_most,
                   planning->options.target.of_keys ? 0 : 1);
    plot_text(plot, "target_text", span_of_text(text), TITLE_COLUMNS);
}

static int draw(const struct planning *planning)
{
    struct plot plot;
    char texts[CURVES_MAX][NAME_MAX_LEN];
    struct span names[CURVES_MAX];
    size_t n = 0;
    if (planning->n_points == 0)
        return print_failure("there is nothing to draw: no limit was found");
    plot_init(&plot, plot_plan);
    for (size_t i = 0; i < planning->n_curves; i++) {
        const struct curve *curve = &planning->curves[i];
        if (curve->n_points == 0)
            continue;
        names[n] = name_curve(curve, texts[n]);
        n++;
        plot_set(&plot, "limit keys requests");
        for (size_t k = 0; k < curve->n_points; k++)
            add_point_row(&plot, &curve->points[k]);
    }
    add_proposals(&plot, planning);
    add_target(&plot, planning);
    plot_text(&plot, "title", span_of_text(planning->log.name), TITLE_COLUMNS);
    plot_names(&plot, "name", names, n);
    return gnuplot_draw(&planning->options.plot, &plot);
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* All reports that are possible are printed: the worst result counts. */
static int report(const struct planning *planning)
{
    const struct plan_options *options = &planning->options;
    int result = planning->interrupted ? CMD_BAD_INPUT : CMD_DONE, drawn = CMD_DONE;
    if (!options->json)
        print_text(planning);
    else if (print_json(planning) != 0)
        return CMD_BAD_INPUT;
    if (options->out != NULL && write_rules(planning) != CMD_DONE)
        result = CMD_BAD_INPUT;
    if (options->plot.format != GNUPLOT_NONE)
        drawn = draw(planning);
    return drawn > result ? drawn : result;
}

static int run(struct planning *planning)
{
    struct stint_error error;
    int exit_code = CMD_BAD_INPUT;
    if (planning->options.source.n_paths == 0 && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        fputs("Reading events from standard input; ^D ends.\n", stderr);
    interrupt_catch();
    if (read_log(planning, &error) == 0 && search(planning, &error) == 0)
        exit_code = report(planning);
    else
        print_message("%s", error.message);
    for (size_t i = 0; i < planning->n_curves; i++)
        free(planning->curves[i].named);
    traffic_deinit(&planning->traffic);
    event_log_free(&planning->log);
    return exit_code;
}

int plan_main(int argc, char **argv)
{
    struct planning *planning = calloc(1, sizeof(*planning));
    if (planning == NULL)
        return print_failure("out of memory");
    parse_options(&planning->options, argc, argv);
    int exit_code = run(planning);
    free(planning);
    return exit_code;
}
