/* SPDX-License-Identifier: MIT */
/* The output of `stint sim run` and `compare`: text, JSON, CSV and pictures of all metrics. */
#define _GNU_SOURCE
#include "cmd/sim/sim.h"

#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "sim/picture/picture.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The metrics ----------------------------------------------------------------------------- */

enum sim_form { SIM_COUNT, SIM_SHARE, SIM_DURATION, SIM_NS };

struct sim_figure {
    const char *name;
    enum sim_form form;
    bool of_quota; /* differs between the quotas of one list */
    bool is_rare;  /* not printed if it is 0 */
    const char *label;
    /* NAN if it is not known. */
    double (*of)(const struct tally *tally, size_t quota);
};

/* Over the seeds; NAN if it is known for none. */
struct sim_spread {
    double least, median, most;
};

struct sim_number {
    char text[64];
};

#define FIGURE_OF(name, expression)                                                                \
    static double of_##name(const struct tally *tally, size_t quota)                               \
    {                                                                                              \
        (void)quota;                                                                               \
        return (double)(expression);                                                               \
    }

/* What the oracle says is unknown without it. */
#define JUDGED(expression) (tally->has_oracle ? (double)(expression) : (double)NAN)

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : (double)NAN;
}

FIGURE_OF(decisions, tally->decisions)
FIGURE_OF(keys, tally->keys)
FIGURE_OF(allowed, tally->allowed)
FIGURE_OF(denied, tally->denied)
FIGURE_OF(never, tally->never)
FIGURE_OF(units_asked, tally->units_asked)
FIGURE_OF(units_allowed, tally->units_allowed)
FIGURE_OF(share_allowed, share(tally->units_allowed, tally->units_asked))
FIGURE_OF(most_admitted, JUDGED(tally->quotas[quota].most))
FIGURE_OF(judged, JUDGED(tally->judged))
FIGURE_OF(false_denials, JUDGED(tally->false_denials))
FIGURE_OF(share_false, JUDGED(share(tally->false_denials, tally->judged)))
FIGURE_OF(false_longest, JUDGED(tally->false_longest))
FIGURE_OF(false_longest_ns, JUDGED(tally->false_longest_ns))
FIGURE_OF(unjustified, JUDGED(tally->unjustified))
FIGURE_OF(waits_tried, tally->waits_tried)
FIGURE_OF(waits_too_long, tally->waits_too_long)
FIGURE_OF(waits_too_short, tally->waits_too_short)
FIGURE_OF(fairness_keys, tally->keys > 1 ? tally_fairness(&tally->key_shares) : (double)NAN)
FIGURE_OF(fairness_clients,
          tally->client_shares.n > 1 ? tally_fairness(&tally->client_shares) : (double)NAN)
FIGURE_OF(unstored, tally->unstored)
FIGURE_OF(evicted, tally->evicted)
FIGURE_OF(state_bytes, tally->state_bytes)
FIGURE_OF(oracle_bytes, JUDGED(tally->oracle_bytes))
FIGURE_OF(ns, tally->ns_per_decision > 0 ? tally->ns_per_decision : (double)NAN)

static double of_utilisation(const struct tally *tally, size_t quota)
{
    double utilisation = tally_utilisation(&tally->quotas[quota]);
    return utilisation < 0 ? (double)NAN : utilisation;
}

static double of_share_of_limit(const struct tally *tally, size_t quota)
{
    double share_of_limit = tally_share_of_limit(tally, quota);
    return share_of_limit < 0 ? (double)NAN : share_of_limit;
}

static const struct sim_figure sim_metrics[] = {
    {"decisions", SIM_COUNT, false, false, "decisions", of_decisions},
    {"keys", SIM_COUNT, false, false, "keys", of_keys},
    {"allowed", SIM_COUNT, false, false, "allowed", of_allowed},
    {"denied", SIM_COUNT, false, false, "denied", of_denied},
    {"never", SIM_COUNT, false, true, "cost more than ever fits", of_never},
    {"units_asked", SIM_COUNT, false, false, "units asked for", of_units_asked},
    {"units_allowed", SIM_COUNT, false, false, "units allowed", of_units_allowed},
    {"share_allowed", SIM_SHARE, false, false, "share of the units allowed", of_share_allowed},
    {"most_admitted", SIM_COUNT, true, false, "most admitted in any window", of_most_admitted},
    {"utilisation", SIM_SHARE, true, false, "utilisation", of_utilisation},
    {"share_of_limit", SIM_SHARE, true, false, "share of the limit", of_share_of_limit},
    {"judged", SIM_COUNT, false, false, "judged by the exact count", of_judged},
    {"false_denials", SIM_COUNT, false, false, "false denials", of_false_denials},
    {"share_false", SIM_SHARE, false, false, "share of false denials", of_share_false},
    {"false_longest", SIM_COUNT, false, false, "longest row of them", of_false_longest},
    {"false_longest_ns", SIM_DURATION, false, false, "longest time of a row", of_false_longest_ns},
    {"unjustified_denials", SIM_COUNT, false, false, "unjustified denials", of_unjustified},
    {"waits_tried", SIM_COUNT, false, true, "waits tried as told", of_waits_tried},
    {"waits_too_long", SIM_COUNT, false, true, "waits too long", of_waits_too_long},
    {"waits_too_short", SIM_COUNT, false, true, "waits too short", of_waits_too_short},
    {"fairness_keys", SIM_SHARE, false, false, "fairness among keys", of_fairness_keys},
    {"fairness_clients", SIM_SHARE, false, false, "fairness among clients", of_fairness_clients},
    {"unstored", SIM_COUNT, false, true, "denied by a full table", of_unstored},
    {"evicted", SIM_COUNT, false, true, "states given away", of_evicted},
    {"bytes_per_key", SIM_COUNT, false, false, "bytes per key", of_state_bytes},
    {"oracle_bytes", SIM_COUNT, false, false, "bytes of the exact count", of_oracle_bytes},
    {"ns_per_decision", SIM_NS, false, false, "ns per decision", of_ns},
    {NULL, SIM_COUNT, false, false, NULL, NULL},
};

static const struct sim_figure *sim_figure_named(const char *name)
{
    const struct sim_figure *figure = sim_metrics;
    while (figure->name != NULL && strcmp(figure->name, name) != 0)
        figure++;
    return figure->name != NULL ? figure : NULL;
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct sim_spread sim_spread_of(const struct sim_runs *runs, const struct sim_figure *figure,
                                       size_t quota)
{
    double values[SIM_SEEDS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < runs->n_done; i++) {
        double value = figure->of(&runs->tallies[i], quota);
        if (!isnan(value))
            values[n++] = value;
    }
    if (n == 0)
        return (struct sim_spread){(double)NAN, (double)NAN, (double)NAN};
    qsort(values, n, sizeof(*values), compare_numbers);
    double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    return (struct sim_spread){values[0], median, values[n - 1]};
}

static const char *sim_number(struct sim_number *number, enum sim_form form, double value)
{
    struct formatted formatted;
    size_t size = sizeof(number->text);
    if (isnan(value))
        snprintf(number->text, size, "-");
    else if (form == SIM_COUNT)
        snprintf(number->text, size, "%s", format_count(&formatted, (uint64_t)(value + 0.5)));
    else if (form == SIM_DURATION)
        snprintf(number->text, size, "%s", format_duration(&formatted, (uint64_t)value));
    else
        snprintf(number->text, size, form == SIM_SHARE ? "%.3f" : "%.1f", value);
    return number->text;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

struct sim_spec {
    char text[256];
};

static const char *sim_spec(struct sim_spec *spec, const struct stint_quota *quota)
{
    stint_quota_format(quota, spec->text, sizeof(spec->text));
    return spec->text;
}

/* {"workload", "seed", "runs", "length_ns", "partial"} */
static json_t *sim_json_head(const struct sim_work *work)
{
    const struct sim_options *options = work->options;
    const struct run_options run = {
        .quotas = options->quotas, .n_quotas = options->n_quotas, .length_ns = options->length_ns};
    return json_pack("{s:s, s:I, s:I, s:I, s:b}", "workload", options->workload_text, "seed",
                     (json_int_t)options->seed, "runs", (json_int_t)options->n_seeds, "length_ns",
                     (json_int_t)run_length_ns(&run), "partial", (int)work->interrupted);
}

/* {"quota", "limit", "period_ns", "max_in_any_window", "bound_broken"} */
static json_t *sim_json_quota(const struct sim_runs *runs, size_t quota)
{
    struct sim_spec spec;
    const struct stint_quota *terms = &runs->quotas[quota];
    bool broken = false;
    for (size_t i = 0; i < runs->n_done; i++)
        broken = broken || runs->tallies[i].quotas[quota].bound_broken;
    return json_pack("{s:s, s:I, s:o, s:o, s:b}", "quota", sim_spec(&spec, terms), "limit",
                     (json_int_t)terms->limit, "period_ns", json_text_ns(terms->period_ns),
                     "max_in_any_window", json_text_ns(stint_max_in_any_window(terms)),
                     "bound_broken", (int)broken);
}

static json_t *number_json(enum sim_form form, double value)
{
    if (isnan(value))
        return json_null();
    bool whole = (form == SIM_COUNT || form == SIM_DURATION) && value == floor(value);
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *by_seed_json(const struct sim_runs *runs, const struct sim_figure *figure,
                            size_t quota)
{
    json_t *values = json_array();
    for (size_t i = 0; i < runs->n_done; i++)
        json_array_append_new(values,
                              number_json(figure->form, figure->of(&runs->tallies[i], quota)));
    return values;
}

/* Each figure as {"median", "min", "max", "by_seed"}, null where it is not known. */
static json_t *sim_json_figures(const struct sim_runs *runs, bool of_quota, size_t quota)
{
    json_t *object = json_object();
    for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++) {
        if (figure->of_quota != of_quota)
            continue;
        struct sim_spread spread = sim_spread_of(runs, figure, quota);
        json_object_set_new(object, figure->name,
                            json_pack("{s:o, s:o, s:o, s:o}", "median",
                                      number_json(figure->form, spread.median), "min",
                                      number_json(figure->form, spread.least), "max",
                                      number_json(figure->form, spread.most), "by_seed",
                                      by_seed_json(runs, figure, quota)));
    }
    return object;
}

/* ---- Pictures -------------------------------------------------------------------------------- */

/* Draws what could be filled, and frees it; an enum cmd_exit. */
static int draw(const struct sim_work *work, struct plot *plot, int code,
                const struct stint_error *error)
{
    int result = CMD_BAD_INPUT;
    if (code == 0)
        result = gnuplot_draw(&work->options->gnuplot, plot);
    else
        print_message("%s", error->message);
    plot_deinit(plot);
    return result;
}

/* ---- One key through time ---- */

struct watch {
    uint64_t key;
    struct history_event *events;
    size_t n_events, size;
    bool lost;
};

static void keep_event(void *arg, const struct sim_event *event,
                       const struct stint_decision *decision)
{
    struct watch *watch = arg;
    if (event->key != watch->key || watch->lost)
        return;
    if (watch->n_events == watch->size) {
        size_t size = watch->size == 0 ? 1024 : watch->size * 2;
        struct history_event *events = realloc(watch->events, size * sizeof(*events));
        watch->lost = events == NULL;
        if (events == NULL)
            return;
        watch->events = events;
        watch->size = size;
    }
    watch->events[watch->n_events++] = (struct history_event){
        .at_ns = event->at_ns,
        .cost = event->cost,
        .granted = decision->outcome == STINT_ALLOW ? event->cost : 0,
    };
}

static int draw_history(const struct sim_work *work, const struct watch *watch,
                        const struct stint_quota *quota)
{
    struct history history;
    struct plot plot = {0};
    struct stint_error error;
    struct formatted date;
    char number[64];
    uint64_t epoch_ns = work->log->epoch_ns;
    struct picture picture = {.history = &history};
    int len = snprintf(number, sizeof(number), "%" PRIu64 " of seed %" PRIu64, watch->key,
                       work->options->seed);
    picture.key = span_of(number, (size_t)len);
    if (work->log->names.n_keys > 0)
        picture.key = key_set_name(&work->log->names, (uint32_t)watch->key);
    picture.origin = epoch_ns > 0 ? format_date(&date, epoch_ns) : NULL;
    int code = history_init(&history, quota, watch->events, watch->n_events, &error);
    if (code == 0)
        code = picture_draw(&plot, &picture, &error);
    int result = draw(work, &plot, code, &error);
    history_deinit(&history);
    return result;
}

/* The first run once more: the same seed does the same, and now the key is known. */
/* Draws the key that was denied most, under the first quota; an enum cmd_exit. */
static int sim_plot_run(const struct sim_work *work, const struct sim_runs *runs,
                        const struct run_options *first)
{
    const struct sim_options *options = work->options;
    struct watch watch = {.key = runs->tallies[0].denied_most_key};
    struct stint_error error;
    struct tally tally;
    int result = CMD_BAD_INPUT;
    if (options->workload.spec.kind == WORKLOAD_CLOCK_STEPS) {
        print_message(
            "--plot shows time from left to right, and clock_steps has none that goes one way");
        return CMD_BAD_INPUT;
    }
    struct run_options run = *first;
    run.decisions_max = runs->tallies[0].decisions;
    run.without_oracle = true;
    run.sees = keep_event;
    run.arg = &watch;
    if (run_simulate(&run, &tally, &error) != 0)
        print_message("%s", error.message);
    else if (watch.lost)
        print_message("out of memory for the events of the picture");
    else if (watch.n_events == 0)
        print_message("there is nothing to draw: there were no requests");
    else
        result = draw_history(work, &watch, runs->quotas);
    free(watch.events);
    return result;
}

/* ---- Quotas side by side ---- */

static int sim_plot_compare(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs)
{
    struct chart_quota quotas[CHART_QUOTAS_MAX];
    struct sim_spec specs[CHART_QUOTAS_MAX];
    struct plot plot;
    struct stint_error error;
    char title[256];
    size_t n = 0;
    for (; n < n_runs && n < CHART_QUOTAS_MAX && runs[n].n_done > 0; n++) {
        const struct tally *tally = runs[n].tallies;
        quotas[n] = (struct chart_quota){
            .name = sim_spec(&specs[n], runs[n].quotas),
            .admitted = tally->units_allowed,
            .denied = tally->units_asked - tally->units_allowed,
            .denied_falsely = tally->false_units,
            .most = tally->quotas[0].most,
            .limit = runs[n].quotas[0].limit,
            .bound = tally->quotas[0].bound,
        };
    }
    snprintf(title, sizeof(title), "%s, seed %llu", work->options->workload_text,
             (unsigned long long)work->options->seed);
    int code = chart_compare(&plot, title, quotas, n, &error);
    return draw(work, &plot, code, &error);
}

/* ---- Broken promises ------------------------------------------------------------------------- */

/* Defects of the limiter, if there are any: reported loudly. */
static void name_broken(const struct sim_runs *runs, size_t i, uint64_t seed)
{
    const struct tally *tally = &runs->tallies[i];
    struct sim_spec spec;
    for (size_t q = 0; q < tally->n_quotas; q++) {
        sim_spec(&spec, &runs->quotas[q]);
        if (tally->quotas[q].bound_broken)
            print_message("BROKEN BOUND: %s admitted %" PRIu64
                          " in a window, and states at most %" PRIu64 " (seed %" PRIu64
                          ", at %" PRIu64 " ns)",
                          spec.text, tally->quotas[q].most, tally->quotas[q].bound, seed,
                          tally->quotas[q].most_at_ns);
    }
    sim_spec(&spec, runs->quotas);
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
        name_limits(runs, i, work->options->seed + i);
        name_broken(runs, i, work->options->seed + i);
        broken = broken || tally_is_broken(&runs->tallies[i]);
    }
    return broken || work->interrupted ? CMD_BAD_INPUT : CMD_DONE;
}

/* ---- stint sim run --------------------------------------------------------------------------- */

static void print_heading(const struct sim_work *work, const struct sim_runs *runs)
{
    const struct sim_options *options = work->options;
    struct formatted length;
    const struct run_options run = {
        .quotas = runs->quotas, .n_quotas = runs->n_quotas, .length_ns = options->length_ns};
    printf("%s: %zu run%s of %s", options->workload_text, runs->n_done,
           runs->n_done == 1 ? "" : "s", format_duration(&length, run_length_ns(&run)));
    if (options->n_seeds > 1)
        printf(", seeds %" PRIu64 " to %" PRIu64, options->seed, options->seed + runs->n_done - 1);
    if (runs->tallies[0].decisions_full)
        printf(", each ended after %s decisions",
               format_count(&length, runs->tallies[0].decisions));
    puts(work->interrupted ? "; interrupted, so the last one is partial\n" : "\n");
    printf("%-30s %14s %14s %14s\n", "", "median", "least", "most");
}

static void print_figure(const struct sim_runs *runs, const struct sim_figure *figure, size_t quota)
{
    struct sim_spread spread = sim_spread_of(runs, figure, quota);
    struct sim_number median, least, most;
    if (isnan(spread.median) || (figure->is_rare && spread.most == 0))
        return;
    printf("  %-28s %14s", figure->label, sim_number(&median, figure->form, spread.median));
    if (spread.least < spread.most)
        printf(" %14s %14s", sim_number(&least, figure->form, spread.least),
               sim_number(&most, figure->form, spread.most));
    putchar('\n');
}

static void print_quota(const struct sim_runs *runs, size_t quota)
{
    struct sim_spec spec;
    const struct stint_quota *terms = &runs->quotas[quota];
    struct formatted limit, bound;
    printf("\n%s: limit %s, at most %s in any window\n", sim_spec(&spec, terms),
           format_count(&limit, terms->limit),
           format_count(&bound, stint_max_in_any_window(terms)));
    for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++)
        if (figure->of_quota)
            print_figure(runs, figure, quota);
}

static void print_text(const struct sim_work *work, const struct sim_runs *runs)
{
    print_heading(work, runs);
    for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++)
        if (!figure->of_quota)
            print_figure(runs, figure, 0);
    for (size_t quota = 0; quota < runs->n_quotas; quota++)
        print_quota(runs, quota);
}

static int print_run_json(const struct sim_work *work, const struct sim_runs *runs)
{
    json_t *object = sim_json_head(work);
    json_t *quotas = json_array();
    json_object_update_new(object, sim_json_figures(runs, false, 0));
    for (size_t i = 0; i < runs->n_quotas; i++) {
        json_t *quota = sim_json_quota(runs, i);
        json_object_update_new(quota, sim_json_figures(runs, true, i));
        json_array_append_new(quotas, quota);
    }
    json_object_set_new(object, "quotas", quotas);
    return json_text_print(object, true);
}

int sim_report_run(const struct sim_work *work, const struct sim_runs *runs,
                   const struct run_options *first)
{
    int result = CMD_DONE;
    if (!work->options->json)
        print_text(work, runs);
    else if (print_run_json(work, runs) != 0)
        result = CMD_BAD_INPUT;
    int warned = warn(work, runs);
    if (work->options->gnuplot.format != GNUPLOT_NONE && runs->n_done > 0) {
        int drawn = sim_plot_run(work, runs, first);
        result = drawn != CMD_DONE ? drawn : result;
    }
    return warned != CMD_DONE ? warned : result;
}

/* ---- stint sim compare ----------------------------------------------------------------------- */

/* The columns of the table; JSON and CSV have all metrics. */
static const struct column {
    const char *figure, *title;
} columns[] = {
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
#define CELL_MAX 96

/* "0.912", or "0.912 (0.900-0.920)" where the seeds differ. */
static void write_cell(char *cell, const struct sim_runs *runs, const struct sim_figure *figure)
{
    struct sim_spread spread = sim_spread_of(runs, figure, 0);
    struct sim_number median, least, most;
    sim_number(&median, figure->form, spread.median);
    sim_number(&least, figure->form, spread.least);
    sim_number(&most, figure->form, spread.most);
    int len = snprintf(cell, CELL_MAX, "%.40s", median.text);
    if (strcmp(least.text, most.text) != 0)
        len +=
            snprintf(cell + len, CELL_MAX - (size_t)len, " (%.20s-%.20s)", least.text, most.text);
    if (strcmp(figure->name, "most_admitted") == 0)
        snprintf(cell + len, CELL_MAX - (size_t)len, " of %" PRIu64,
                 stint_max_in_any_window(runs->quotas));
}

static void print_table(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs)
{
    struct formatted decisions;
    struct sim_spec spec;
    char cell[CELL_MAX];
    size_t widths[N_COLUMNS], name_width = strlen("quota");
    const struct tally *first = runs[0].tallies;
    printf("%s: %s decisions of the first, %" PRIu64 " seed%s from %" PRIu64 "%s\n\n",
           work->options->workload_text,
           format_count(&decisions, runs[0].n_done > 0 ? first->decisions : 0),
           work->options->n_seeds, work->options->n_seeds == 1 ? "" : "s", work->options->seed,
           work->interrupted ? "; interrupted, so that the last is partial" : "");
    for (size_t i = 0; i < n_runs; i++) {
        size_t len = strlen(sim_spec(&spec, runs[i].quotas));
        name_width = len > name_width ? len : name_width;
    }
    for (size_t c = 0; c < N_COLUMNS; c++) {
        widths[c] = strlen(columns[c].title);
        for (size_t i = 0; i < n_runs; i++) {
            write_cell(cell, &runs[i], sim_figure_named(columns[c].figure));
            widths[c] = strlen(cell) > widths[c] ? strlen(cell) : widths[c];
        }
    }
    printf("%-*s", (int)name_width, "quota");
    for (size_t c = 0; c < N_COLUMNS; c++)
        printf("  %*s", (int)widths[c], columns[c].title);
    putchar('\n');
    for (size_t i = 0; i < n_runs; i++) {
        printf("%-*s", (int)name_width, sim_spec(&spec, runs[i].quotas));
        for (size_t c = 0; c < N_COLUMNS; c++) {
            write_cell(cell, &runs[i], sim_figure_named(columns[c].figure));
            printf("  %*s", (int)widths[c], cell);
        }
        putchar('\n');
    }
}

static void print_csv_number(double value)
{
    if (isnan(value))
        putchar(',');
    else
        printf(",%.10g", value);
}

static void print_csv(const struct sim_runs *runs, size_t n_runs)
{
    struct sim_spec spec;
    fputs("quota,limit,period_ns,max_in_any_window,runs", stdout);
    for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++)
        printf(",%s,%s_min,%s_max", figure->name, figure->name, figure->name);
    putchar('\n');
    for (size_t i = 0; i < n_runs; i++) {
        const struct stint_quota *quota = runs[i].quotas;
        printf("\"%s\",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%zu", sim_spec(&spec, quota),
               quota->limit, quota->period_ns, stint_max_in_any_window(quota), runs[i].n_done);
        for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++) {
            struct sim_spread spread = sim_spread_of(&runs[i], figure, 0);
            print_csv_number(spread.median);
            print_csv_number(spread.least);
            print_csv_number(spread.most);
        }
        putchar('\n');
    }
}

static int print_compare_json(const struct sim_work *work, const struct sim_runs *runs,
                              size_t n_runs)
{
    json_t *object = sim_json_head(work);
    json_t *quotas = json_array();
    for (size_t i = 0; i < n_runs; i++) {
        json_t *quota = sim_json_quota(&runs[i], 0);
        json_object_update_new(quota, sim_json_figures(&runs[i], true, 0));
        json_object_update_new(quota, sim_json_figures(&runs[i], false, 0));
        json_array_append_new(quotas, quota);
    }
    json_object_set_new(object, "quotas", quotas);
    return json_text_print(object, true);
}

int sim_report_compare(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs)
{
    int result = CMD_DONE, warned = CMD_DONE;
    if (work->options->csv)
        print_csv(runs, n_runs);
    else if (!work->options->json)
        print_table(work, runs, n_runs);
    else if (print_compare_json(work, runs, n_runs) != 0)
        result = CMD_BAD_INPUT;
    for (size_t i = 0; i < n_runs; i++)
        if (warn(work, &runs[i]) != CMD_DONE)
            warned = CMD_BAD_INPUT;
    if (work->options->gnuplot.format != GNUPLOT_NONE && runs[0].n_done > 0) {
        int drawn = sim_plot_compare(work, runs, n_runs);
        result = drawn != CMD_DONE ? drawn : result;
    }
    return warned != CMD_DONE ? warned : result;
}
