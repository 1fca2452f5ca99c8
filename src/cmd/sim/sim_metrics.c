/* SPDX-License-Identifier: MIT */
/* One list of figures for text, JSON and CSV: their names, and how each is read out of a tally. */
#define _GNU_SOURCE
#include "cmd/lib/format.h"
#include "cmd/sim/sim_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

const struct sim_figure sim_metrics[] = {
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

const struct sim_figure *sim_figure_named(const char *name)
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

struct sim_spread sim_spread_of(const struct sim_runs *runs, const struct sim_figure *figure,
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

const char *sim_number(struct sim_number *number, enum sim_form form, double value)
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
