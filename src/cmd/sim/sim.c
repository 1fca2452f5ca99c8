/* SPDX-License-Identifier: MIT */
/* `stint sim run` and `compare`: the runs of a workload, one for each seed, and their metrics. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/gnuplot.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"
#include "cmd/lib/source.h"
#include "sim/judge/run.h"
#include "sim/picture/picture.h"
#include "table/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS_MAX 1000

/* Only `compare` prints CSV. */
enum sim_command { SIM_RUN, SIM_COMPARE };

struct sim_options {
    enum sim_command command;
    struct stint_quota quotas[STINT_ITEMS_MAX];
    size_t n_quotas;
    const char *workload_text;
    struct workload workload;
    enum source_format format; /* of its log */
    uint64_t seed, n_seeds;
    uint64_t length_ns, decisions_max, table_keys, oracle_bytes_max;
    bool without_oracle, json, csv;
    struct gnuplot gnuplot;
};

/* The runs of one list of quotas: all of them, or to be compared each one. */
struct sim_runs {
    const struct stint_quota *quotas;
    size_t n_quotas;
    struct tally *tallies; /* by seed */
    size_t n_done;         /* the last may be partial */
};

struct sim_work {
    struct sim_options options;
    struct event_log log; /* that the workload may come from */
    struct sim_runs runs[STINT_ITEMS_MAX];
    size_t n_runs;
    struct progress progress;
    uint64_t decisions; /* of the complete runs */
    bool interrupted;
};

/* ---- The requests of a log ------------------------------------------------------------------- */

static const char *given(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static int check_fields(const struct workload_spec *spec, enum source_format format,
                        struct stint_error *error)
{
    if (format == SOURCE_TRACE && spec->key[0] != '\0')
        return err_set(error, STINT_E_MISMATCH,
                       "key is for logs (format=combined or jsonl); a trace has its keys");
    if ((format == SOURCE_TRACE || format == SOURCE_COMBINED) &&
        (spec->time[0] != '\0' || spec->cost[0] != '\0'))
        return err_set(error, STINT_E_MISMATCH, "time and cost are for format=jsonl");
    return 0;
}

/* Until a nanosecond after the last request, as scaled. */
static uint64_t length_of(const struct event_log *log, double scale)
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
static int read_log(struct sim_work *work, struct stint_error *error)
{
    struct sim_options *options = &work->options;
    struct event_log *log = &work->log;
    const struct workload_spec *spec = &options->workload.spec;
    const struct source_options source = {.format = options->format,
                                          .key = given(spec->key),
                                          .time = given(spec->time),
                                          .cost = given(spec->cost),
                                          .paths = {spec->path},
                                          .n_paths = 1};
    if (spec->kind != WORKLOAD_LOG)
        return 0;
    int code = check_fields(spec, options->format, error);
    if (code == 0)
        code = event_log_read(log, &source, error);
    if (code == 0 && log->interrupted)
        code = err_set(error, STINT_E_SYSTEM, "interrupted before all of %s was read", log->name);
    if (code != 0)
        return code;
    if (log->names.n_keys > WORKLOAD_KEYS_MAX)
        return err_set(error, STINT_E_FULL, "more than %u different keys", WORKLOAD_KEYS_MAX);
    uint64_t length_ns = length_of(log, spec->scale);
    if (length_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE, "so scaled, the log is longer than 18 years");
    if (options->length_ns == 0)
        options->length_ns = length_ns;
    workload_lend(&options->workload, &log->events, log->epoch_ns);
    return 0;
}

/* ---- The runs -------------------------------------------------------------------------------- */

/* Called now and then by the run; updates the bar only at intervals. */
static bool goes_on(void *arg, uint64_t decisions, uint64_t now_ns)
{
    struct sim_work *work = arg;
    (void)now_ns;
    if (decisions % 65536 == 0)
        progress_step(&work->progress, work->decisions + decisions);
    work->interrupted = interrupts_seen() > 0;
    return !work->interrupted;
}

/* The options of the run with the i-th seed. */
static struct run_options options_of(const struct sim_work *work, const struct sim_runs *runs,
                                     size_t i)
{
    const struct sim_options *options = &work->options;
    return (struct run_options){
        .quotas = runs->quotas,
        .n_quotas = runs->n_quotas,
        .workload = &options->workload,
        .workload_quota = options->quotas,
        .seed = options->seed + i,
        .length_ns = options->length_ns,
        .decisions_max = options->decisions_max,
        .epoch_ns = (int64_t)work->log.epoch_ns,
        .table_keys = options->table_keys,
        .without_oracle = options->without_oracle,
        .oracle_bytes_max = options->oracle_bytes_max,
        .clock_ns = clock_boot_ns,
    };
}

/* Makes a run for each seed, until all are made or a signal arrives. 0 or a negative code. */
static int run_seeds(struct sim_work *work, struct sim_runs *runs, struct stint_error *error)
{
    const struct sim_options *options = &work->options;
    runs->tallies = calloc(options->n_seeds, sizeof(*runs->tallies));
    if (runs->tallies == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    for (size_t i = 0; i < options->n_seeds && !work->interrupted; i++) {
        struct run_options run = options_of(work, runs, i);
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

/* All lists receive the same requests, for the same time. */
static int run_lists(struct sim_work *work, struct stint_error *error)
{
    struct sim_options *options = &work->options;
    const struct run_options all = {
        .quotas = options->quotas, .n_quotas = options->n_quotas, .length_ns = options->length_ns};
    bool compares = options->command == SIM_COMPARE;
    size_t n_lists = compares ? options->n_quotas : 1;
    int code = 0;
    options->length_ns = run_length_ns(&all);
    progress_begin(&work->progress, 0);
    work->progress.what = "decisions";
    while (code == 0 && work->n_runs < n_lists && !work->interrupted) {
        struct sim_runs *runs = &work->runs[work->n_runs];
        runs->quotas = &options->quotas[work->n_runs++];
        runs->n_quotas = compares ? 1 : options->n_quotas;
        code = run_seeds(work, runs, error);
    }
    progress_end(&work->progress);
    return code;
}

/* ---- The metrics ----------------------------------------------------------------------------- */

enum form { FORM_COUNT, FORM_SHARE, FORM_DURATION, FORM_NS };

enum {
    OF_QUOTA = 1, /* differs between the quotas of one list */
    RARE = 2,     /* not printed if it is 0 */
    JUDGED = 4,   /* not known without the oracle */
};

struct figure {
    const char *name, *label;
    enum form form;
    unsigned flags;
    size_t at; /* in struct tally, a uint64_t, if there is no function; */
    double (*of)(const struct tally *tally, size_t quota); /* NAN if it is not known */
};

/* Over the seeds; NAN if it is known for none. */
struct spread {
    double least, median, most;
};

#define OF(name, expression)                                                                       \
    static double of_##name(const struct tally *tally, size_t quota)                               \
    {                                                                                              \
        (void)quota;                                                                               \
        return known(expression);                                                                  \
    }

/* What the tally does not know is negative. */
static double known(double value)
{
    return value < 0 ? (double)NAN : value;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : -1;
}

OF(share_allowed, share(tally->units_allowed, tally->units_asked))
OF(most_admitted, (double)tally->quotas[quota].most)
OF(utilisation, tally_utilisation(&tally->quotas[quota]))
OF(share_of_limit, tally_share_of_limit(tally, quota))
OF(share_false, share(tally->false_denials, tally->judged))
OF(fairness_keys, tally->keys > 1 ? tally_fairness(&tally->key_shares) : -1)
OF(fairness_clients, tally->client_shares.n > 1 ? tally_fairness(&tally->client_shares) : -1)
OF(ns, tally->ns_per_decision > 0 ? tally->ns_per_decision : -1)

#define AT(field) offsetof(struct tally, field), NULL

static const struct figure figures[] = {
    {"decisions", "decisions", FORM_COUNT, 0, AT(decisions)},
    {"keys", "keys", FORM_COUNT, 0, AT(keys)},
    {"allowed", "allowed", FORM_COUNT, 0, AT(allowed)},
    {"denied", "denied", FORM_COUNT, 0, AT(denied)},
    {"never", "cost more than ever fits", FORM_COUNT, RARE, AT(never)},
    {"units_asked", "units asked for", FORM_COUNT, 0, AT(units_asked)},
    {"units_allowed", "units allowed", FORM_COUNT, 0, AT(units_allowed)},
    {"share_allowed", "share of the units allowed", FORM_SHARE, 0, 0, of_share_allowed},
    {"most_admitted", "most admitted in any window", FORM_COUNT, OF_QUOTA | JUDGED, 0,
     of_most_admitted},
    {"utilisation", "utilisation", FORM_SHARE, OF_QUOTA, 0, of_utilisation},
    {"share_of_limit", "share of the limit", FORM_SHARE, OF_QUOTA, 0, of_share_of_limit},
    {"judged", "judged by the exact count", FORM_COUNT, JUDGED, AT(judged)},
    {"false_denials", "false denials", FORM_COUNT, JUDGED, AT(false_denials)},
    {"share_false", "share of false denials", FORM_SHARE, JUDGED, 0, of_share_false},
    {"false_longest", "longest row of them", FORM_COUNT, JUDGED, AT(false_longest)},
    {"false_longest_ns", "longest time of a row", FORM_DURATION, JUDGED, AT(false_longest_ns)},
    {"unjustified_denials", "unjustified denials", FORM_COUNT, JUDGED, AT(unjustified)},
    {"waits_tried", "waits tried as told", FORM_COUNT, RARE, AT(waits_tried)},
    {"waits_too_long", "waits too long", FORM_COUNT, RARE, AT(waits_too_long)},
    {"waits_too_short", "waits too short", FORM_COUNT, RARE, AT(waits_too_short)},
    {"fairness_keys", "fairness among keys", FORM_SHARE, 0, 0, of_fairness_keys},
    {"fairness_clients", "fairness among clients", FORM_SHARE, 0, 0, of_fairness_clients},
    {"unstored", "denied by a full table", FORM_COUNT, RARE, AT(unstored)},
    {"evicted", "states given away", FORM_COUNT, RARE, AT(evicted)},
    {"bytes_per_key", "bytes per key", FORM_COUNT, 0, AT(state_bytes)},
    {"oracle_bytes", "bytes of the exact count", FORM_COUNT, JUDGED, AT(oracle_bytes)},
    {"ns_per_decision", "ns per decision", FORM_NS, 0, 0, of_ns},
};
#define FIGURES_END (figures + sizeof(figures) / sizeof(*figures))

static double value_of(const struct figure *figure, const struct tally *tally, size_t quota)
{
    if ((figure->flags & JUDGED) != 0 && !tally->has_oracle)
        return (double)NAN;
    if (figure->of != NULL)
        return figure->of(tally, quota);
    return (double)*(const uint64_t *)((const char *)tally + figure->at);
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct spread spread_of(const struct sim_runs *runs, const struct figure *figure,
                               size_t quota)
{
    double values[SEEDS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < runs->n_done; i++) {
        double value = value_of(figure, &runs->tallies[i], quota);
        if (!isnan(value))
            values[n++] = value;
    }
    if (n == 0)
        return (struct spread){(double)NAN, (double)NAN, (double)NAN};
    qsort(values, n, sizeof(*values), compare_numbers);
    double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    return (struct spread){values[0], median, values[n - 1]};
}

static const char *format_number(struct formatted *number, enum form form, double value)
{
    if (isnan(value))
        return strcpy(number->text, "-");
    if (form == FORM_COUNT)
        return format_count(number, (uint64_t)(value + 0.5));
    if (form == FORM_DURATION)
        return format_duration(number, (uint64_t)value);
    snprintf(number->text, sizeof(number->text), form == FORM_SHARE ? "%.3f" : "%.1f", value);
    return number->text;
}

struct spec {
    char text[256];
};

static const char *spec_of(struct spec *spec, const struct stint_quota *quota)
{
    stint_quota_format(quota, spec->text, sizeof(spec->text));
    return spec->text;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* {"quota", "limit", "period_ns", "max_in_any_window", "bound_broken"} */
static json_t *quota_json(const struct sim_runs *runs, size_t quota)
{
    struct spec spec;
    const struct stint_quota *terms = &runs->quotas[quota];
    bool broken = false;
    for (size_t i = 0; i < runs->n_done; i++)
        broken = broken || runs->tallies[i].quotas[quota].bound_broken;
    return json_pack("{s:s, s:I, s:o, s:o, s:b}", "quota", spec_of(&spec, terms), "limit",
                     (json_int_t)terms->limit, "period_ns", json_text_ns(terms->period_ns),
                     "max_in_any_window", json_text_ns(stint_max_in_any_window(terms)),
                     "bound_broken", (int)broken);
}

static json_t *number_json(enum form form, double value)
{
    if (isnan(value))
        return json_null();
    bool whole = (form == FORM_COUNT || form == FORM_DURATION) && value == floor(value);
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

/* Adds each figure as {"median", "min", "max", "by_seed"}, null where it is not known. */
static void add_figures(json_t *object, const struct sim_runs *runs, unsigned of_quota,
                        size_t quota)
{
    for (const struct figure *figure = figures; figure < FIGURES_END; figure++) {
        if ((figure->flags & OF_QUOTA) != of_quota)
            continue;
        struct spread spread = spread_of(runs, figure, quota);
        json_t *by_seed = json_array();
        for (size_t i = 0; i < runs->n_done; i++)
            json_array_append_new(
                by_seed, number_json(figure->form, value_of(figure, &runs->tallies[i], quota)));
        json_object_set_new(object, figure->name,
                            json_pack("{s:o, s:o, s:o, s:o}", "median",
                                      number_json(figure->form, spread.median), "min",
                                      number_json(figure->form, spread.least), "max",
                                      number_json(figure->form, spread.most), "by_seed", by_seed));
    }
}

/* Of `run` all figures but those of a quota are of the whole; of `compare` all are of a quota. */
static int print_json(const struct sim_work *work)
{
    const struct sim_options *options = &work->options;
    bool compares = options->command == SIM_COMPARE;
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I, s:b}", "workload", options->workload_text, "seed",
                  (json_int_t)options->seed, "runs", (json_int_t)options->n_seeds, "length_ns",
                  (json_int_t)options->length_ns, "partial", (int)work->interrupted);
    json_t *quotas = json_array();
    if (!compares)
        add_figures(object, work->runs, 0, 0);
    for (size_t i = 0; i < (compares ? work->n_runs : options->n_quotas); i++) {
        const struct sim_runs *runs = compares ? &work->runs[i] : work->runs;
        json_t *quota = quota_json(runs, compares ? 0 : i);
        add_figures(quota, runs, OF_QUOTA, compares ? 0 : i);
        if (compares)
            add_figures(quota, runs, 0, 0);
        json_array_append_new(quotas, quota);
    }
    json_object_set_new(object, "quotas", quotas);
    return json_text_print(object, true);
}

/* ---- Pictures -------------------------------------------------------------------------------- */

struct watch {
    uint64_t key;
    struct history_events list;
    bool lost;
};

static void keep_event(void *arg, const struct sim_event *event,
                       const struct stint_decision *decision)
{
    struct watch *watch = arg;
    const struct history_event kept = {
        .at_ns = event->at_ns,
        .cost = event->cost,
        .granted = decision->outcome == STINT_ALLOW ? event->cost : 0,
    };
    if (event->key == watch->key)
        watch->lost = watch->lost || !history_events_add(&watch->list, kept);
}

static int draw_history(const struct sim_work *work, const struct watch *watch)
{
    struct history history;
    struct plot plot;
    struct stint_error error;
    struct formatted date;
    char number[64];
    uint64_t epoch_ns = work->log.epoch_ns;
    struct picture picture = {.history = &history};
    int result = CMD_BAD_INPUT;
    int len = snprintf(number, sizeof(number), "%" PRIu64 " of seed %" PRIu64, watch->key,
                       work->options.seed);
    picture.key = span_of(number, (size_t)len);
    if (work->log.names.n_keys > 0)
        picture.key = key_set_name(&work->log.names, (uint32_t)watch->key);
    picture.origin = epoch_ns > 0 ? format_date(&date, epoch_ns) : NULL;
    int code = history_init(&history, work->options.quotas, watch->list.events,
                            watch->list.n_events, &error);
    if (code == 0) {
        picture_draw(&plot, &picture);
        result = gnuplot_draw(&work->options.gnuplot, &plot);
    } else {
        print_message("%s", error.message);
    }
    history_deinit(&history);
    return result;
}

/*
 * Draws the key that was denied most, under the first quota, by the first run once more: the same
 * seed does the same, and now the key is known. Returns an enum cmd_exit.
 */
static int draw_run(const struct sim_work *work)
{
    const struct tally *first = work->runs->tallies;
    struct watch watch = {.key = first->denied_most_key};
    struct stint_error error;
    struct tally tally;
    int result = CMD_BAD_INPUT;
    if (work->options.workload.spec.kind == WORKLOAD_CLOCK_STEPS)
        return print_failure(
            "--plot shows time from left to right, and clock_steps has none that goes one way");
    struct run_options run = options_of(work, work->runs, 0);
    run.decisions_max = first->decisions;
    run.without_oracle = true;
    run.sees = keep_event;
    run.arg = &watch;
    if (run_simulate(&run, &tally, &error) != 0)
        print_message("%s", error.message);
    else if (watch.lost)
        print_message("out of memory for the events of the picture");
    else if (watch.list.n_events == 0)
        print_message("there is nothing to draw: there were no requests");
    else
        result = draw_history(work, &watch);
    free(watch.list.events);
    return result;
}

/* Quotas side by side. */
static int draw_compare(const struct sim_work *work)
{
    struct chart_quota quotas[CHART_QUOTAS_MAX];
    struct spec specs[CHART_QUOTAS_MAX];
    struct plot plot;
    char title[256];
    size_t n = 0;
    for (; n < work->n_runs && n < CHART_QUOTAS_MAX && work->runs[n].n_done > 0; n++) {
        const struct sim_runs *runs = &work->runs[n];
        const struct tally *tally = runs->tallies;
        quotas[n] = (struct chart_quota){
            .name = spec_of(&specs[n], runs->quotas),
            .admitted = tally->units_allowed,
            .denied = tally->units_asked - tally->units_allowed,
            .denied_falsely = tally->false_units,
            .most = tally->quotas[0].most,
            .limit = runs->quotas[0].limit,
            .bound = tally->quotas[0].bound,
        };
    }
    snprintf(title, sizeof(title), "%s, seed %" PRIu64, work->options.workload_text,
             work->options.seed);
    chart_compare(&plot, title, quotas, n);
    return gnuplot_draw(&work->options.gnuplot, &plot);
}

/* ---- Broken promises ------------------------------------------------------------------------- */

/* Defects of the limiter, if there are any: reported loudly. */
static void name_broken(const struct sim_runs *runs, size_t i, uint64_t seed)
{
    const struct tally *tally = &runs->tallies[i];
    struct spec spec;
    for (size_t q = 0; q < tally->n_quotas; q++) {
        spec_of(&spec, &runs->quotas[q]);
        if (tally->quotas[q].bound_broken)
            print_message("BROKEN BOUND: %s admitted %" PRIu64
                          " in a window, and states at most %" PRIu64 " (seed %" PRIu64
                          ", at %" PRIu64 " ns)",
                          spec.text, tally->quotas[q].most, tally->quotas[q].bound, seed,
                          tally->quotas[q].most_at_ns);
    }
    spec_of(&spec, runs->quotas);
    if (tally->unjustified > 0)
        print_message("UNJUSTIFIED: %s denied %" PRIu64
                      " times outside of its stated slack (seed %" PRIu64 ", first at %" PRIu64
                      " ns)",
                      spec.text, tally->unjustified, seed, tally->unjustified_at_ns);
    if (tally->waits_too_long + tally->waits_too_short > 0)
        print_message("WRONG WAIT: %s returned %" PRIu64 " waits too long and %" PRIu64
                      " too short (seed %" PRIu64 ")",
                      spec.text, tally->waits_too_long, tally->waits_too_short, seed);
}

static void name_limits(const struct sim_runs *runs, size_t i, uint64_t seed)
{
    const struct tally *tally = &runs->tallies[i];
    struct formatted count, bytes;
    if (tally->oracle_full)
        print_message(
            "seed %" PRIu64
            ": the exact count had used up its memory (%s) after %s decisions; its results are "
            "for these only; see --memory",
            seed, format_bytes(&bytes, tally->oracle_bytes), format_count(&count, tally->judged));
    if (tally->evicted > 0)
        print_message("seed %" PRIu64
                      ": the table was too small, and %s live states were evicted, by the quota's "
                      "when_full; no bound holds then; see --keys",
                      seed, format_count(&count, tally->evicted));
    if (tally->dropped > 0)
        print_message("seed %" PRIu64 ": %s requests were not repeated, for want of memory", seed,
                      format_count(&count, tally->dropped));
}

/* Reports broken promises; returns an enum cmd_exit. */
static int warn(const struct sim_work *work, const struct sim_runs *runs)
{
    bool broken = false;
    if (work->interrupted && runs->n_done > 0 && runs->tallies[runs->n_done - 1].partial)
        print_message("interrupted: the last of these runs is partial");
    for (size_t i = 0; i < runs->n_done; i++) {
        name_limits(runs, i, work->options.seed + i);
        name_broken(runs, i, work->options.seed + i);
        broken = broken || tally_is_broken(&runs->tallies[i]);
    }
    return broken || work->interrupted ? CMD_BAD_INPUT : CMD_DONE;
}

/* ---- stint sim run --------------------------------------------------------------------------- */

static void print_figures(const struct sim_runs *runs, unsigned of_quota, size_t quota)
{
    for (const struct figure *figure = figures; figure < FIGURES_END; figure++) {
        struct spread spread = spread_of(runs, figure, quota);
        struct formatted median, least, most;
        if ((figure->flags & OF_QUOTA) != of_quota || isnan(spread.median) ||
            ((figure->flags & RARE) != 0 && spread.most == 0))
            continue;
        printf("  %-28s %14s", figure->label, format_number(&median, figure->form, spread.median));
        if (spread.least < spread.most)
            printf(" %14s %14s", format_number(&least, figure->form, spread.least),
                   format_number(&most, figure->form, spread.most));
        putchar('\n');
    }
}

static void print_run(const struct sim_work *work)
{
    const struct sim_options *options = &work->options;
    const struct sim_runs *runs = work->runs;
    struct formatted number, bound;
    struct spec spec;
    printf("%s: %zu run%s of %s", options->workload_text, runs->n_done,
           runs->n_done == 1 ? "" : "s", format_duration(&number, options->length_ns));
    if (options->n_seeds > 1)
        printf(", seeds %" PRIu64 " to %" PRIu64, options->seed, options->seed + runs->n_done - 1);
    if (runs->tallies[0].decisions_full)
        printf(", each ended after %s decisions",
               format_count(&number, runs->tallies[0].decisions));
    puts(work->interrupted ? "; interrupted, so the last one is partial\n" : "\n");
    printf("%-30s %14s %14s %14s\n", "", "median", "least", "most");
    print_figures(runs, 0, 0);
    for (size_t i = 0; i < runs->n_quotas; i++) {
        const struct stint_quota *quota = &runs->quotas[i];
        printf("\n%s: limit %s, at most %s in any window\n", spec_of(&spec, quota),
               format_count(&number, quota->limit),
               format_count(&bound, stint_max_in_any_window(quota)));
        print_figures(runs, OF_QUOTA, i);
    }
}

/* ---- stint sim compare ----------------------------------------------------------------------- */

/* The columns of the table, behind that of the quota; JSON and CSV have all metrics. */
static const struct column {
    const char *figure, *title;
} columns[] = {
    {NULL, "quota"},
    {"most_admitted", "most in a window"},
    {"share_allowed", "allowed"},
    {"utilisation", "utilisation"},
    {"share_false", "denied falsely"},
    {"false_longest", "row of these"},
    {"unjustified_denials", "unjustified"},
    {"bytes_per_key", "bytes"},
    {"fairness_keys", "fairness"},
    {"ns_per_decision", "ns"},
};
#define N_COLUMNS (sizeof(columns) / sizeof(*columns))
#define CELL_MAX 256

/* "0.912", or "0.912 (0.900-0.920)" where the seeds differ. */
static void write_cell(char *cell, const struct sim_runs *runs, const char *name)
{
    const struct figure *figure = figures;
    struct formatted median, least, most;
    while (strcmp(figure->name, name) != 0)
        figure++;
    struct spread spread = spread_of(runs, figure, 0);
    format_number(&least, figure->form, spread.least);
    format_number(&most, figure->form, spread.most);
    struct buf buf = buf_of(cell, CELL_MAX);
    buf_add(&buf, "%s", format_number(&median, figure->form, spread.median));
    if (strcmp(least.text, most.text) != 0)
        buf_add(&buf, " (%.20s-%.20s)", least.text, most.text);
    if (figure->of == of_most_admitted)
        buf_add(&buf, " of %" PRIu64, stint_max_in_any_window(runs->quotas));
}

static void print_table(const struct sim_work *work)
{
    static char cells[STINT_ITEMS_MAX + 1][N_COLUMNS][CELL_MAX]; /* the titles first */
    struct formatted decisions;
    int widths[N_COLUMNS] = {0};
    const struct sim_options *options = &work->options;
    printf("%s: %s decisions of the first, %" PRIu64 " seed%s from %" PRIu64 "%s\n\n",
           options->workload_text,
           format_count(&decisions, work->runs->n_done > 0 ? work->runs->tallies->decisions : 0),
           options->n_seeds, options->n_seeds == 1 ? "" : "s", options->seed,
           work->interrupted ? "; interrupted, so that the last is partial" : "");
    for (size_t i = 0; i <= work->n_runs; i++)
        for (size_t c = 0; c < N_COLUMNS; c++) {
            char *cell = cells[i][c];
            if (i == 0)
                snprintf(cell, CELL_MAX, "%s", columns[c].title);
            else if (c == 0)
                stint_quota_format(work->runs[i - 1].quotas, cell, CELL_MAX);
            else
                write_cell(cell, &work->runs[i - 1], columns[c].figure);
            int len = (int)strlen(cell);
            widths[c] = len > widths[c] ? len : widths[c];
        }
    for (size_t i = 0; i <= work->n_runs; i++) {
        printf("%-*s", widths[0], cells[i][0]);
        for (size_t c = 1; c < N_COLUMNS; c++)
            printf("  %*s", widths[c], cells[i][c]);
        putchar('\n');
    }
}

static void print_csv(const struct sim_work *work)
{
    struct spec spec;
    fputs("quota,limit,period_ns,max_in_any_window,runs", stdout);
    for (const struct figure *figure = figures; figure < FIGURES_END; figure++)
        printf(",%s,%s_min,%s_max", figure->name, figure->name, figure->name);
    putchar('\n');
    for (const struct sim_runs *runs = work->runs; runs < work->runs + work->n_runs; runs++) {
        const struct stint_quota *quota = runs->quotas;
        printf("\"%s\",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%zu", spec_of(&spec, quota),
               quota->limit, quota->period_ns, stint_max_in_any_window(quota), runs->n_done);
        for (const struct figure *figure = figures; figure < FIGURES_END; figure++) {
            struct spread spread = spread_of(runs, figure, 0);
            const double values[] = {spread.median, spread.least, spread.most};
            for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
                if (isnan(values[i]))
                    putchar(',');
                else
                    printf(",%.10g", values[i]);
        }
        putchar('\n');
    }
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int report(const struct sim_work *work)
{
    const struct sim_options *options = &work->options;
    bool compares = options->command == SIM_COMPARE;
    int result = CMD_DONE, warned = CMD_DONE;
    if (options->json)
        result = print_json(work) == 0 ? CMD_DONE : CMD_BAD_INPUT;
    else if (options->csv)
        print_csv(work);
    else if (compares)
        print_table(work);
    else
        print_run(work);
    for (size_t i = 0; i < work->n_runs; i++)
        if (warn(work, &work->runs[i]) != CMD_DONE)
            warned = CMD_BAD_INPUT;
    if (options->gnuplot.format != GNUPLOT_NONE && work->runs->n_done > 0) {
        int drawn = compares ? draw_compare(work) : draw_run(work);
        result = drawn != CMD_DONE ? drawn : result;
    }
    return warned != CMD_DONE ? warned : result;
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
    *(uint64_t *)bytes_max =
        args_number(state, "--memory", text, 1, MEMORY_MAX / 1000000) * 1000000;
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
     ARGS_NUMBER(struct sim_options, n_seeds, SEEDS_MAX)},
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
    struct sim_options *options = input;
    const char *format = options->workload.spec.format;
    struct stint_error error;
    if (options->n_quotas == 0)
        argp_error(state, "expected --quota, for example --quota '100/60s'");
    if (options->workload_text == NULL)
        argp_error(state, "expected --workload, for example --workload 'poisson load=1.2'");
    struct workload settled = options->workload;
    if (workload_settle(&settled, options->quotas, &error) != 0)
        argp_error(state, "--workload: %s", error.message);
    if (options->json && options->csv)
        argp_error(state, "--json and --csv are two forms of the same");
    if (options->gnuplot.format == GNUPLOT_TERMINAL && (options->json || options->csv))
        argp_error(state, "--plot - and --%s would mix on standard output; name a FILE",
                   options->json ? "json" : "csv");
    if (format[0] != '\0')
        options->format = (enum source_format)args_choice(state, "format", format, source_formats);
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
    *options = (struct sim_options){.command = command,
                                    .seed = 1,
                                    .n_seeds = SEEDS_DEFAULT,
                                    .decisions_max = DECISIONS_DEFAULT};
    args_parse(&(struct args_command){.set = set, .doc = docs[command], .verb = 1u << command},
               argc, argv, options);
    /* Without random numbers the runs of all seeds are the same. */
    if (options->workload.spec.kind == WORKLOAD_LOG)
        options->n_seeds = 1;
}

/* ---- The commands ---------------------------------------------------------------------------- */

static int simulate(struct sim_work *work)
{
    struct stint_error error;
    int code = read_log(work, &error);
    if (code == 0)
        code = run_lists(work, &error);
    int result = code == 0 ? report(work) : print_failure("%s", error.message);
    for (size_t i = 0; i < work->n_runs; i++)
        free(work->runs[i].tallies);
    event_log_free(&work->log);
    return result;
}

static int sim_main(enum sim_command command, int argc, char **argv)
{
    struct sim_work *work = calloc(1, sizeof(*work));
    if (work == NULL)
        return print_failure("out of memory");
    parse_options(&work->options, command, argc, argv);
    interrupt_catch();
    int result = simulate(work);
    free(work);
    return result;
}

static int sim_run_main(int argc, char **argv)
{
    return sim_main(SIM_RUN, argc, argv);
}

static int sim_compare_main(int argc, char **argv)
{
    return sim_main(SIM_COMPARE, argc, argv);
}

const struct cmd sim_commands[] = {
    {"run", "one workload against one quota, or a list of them", .run = sim_run_main},
    {"compare", "one workload through several quotas, side by side", .run = sim_compare_main},
    {"worst", "the requests that a quota admits the most of, and its bound", .run = sim_worst_main},
    {.name = NULL},
};
