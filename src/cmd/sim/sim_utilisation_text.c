/* SPDX-License-Identifier: MIT */
/* The tables of `stint sim utilisation`, for a person to read. */
#define _GNU_SOURCE
#include "cmd/lib/format.h"
#include "cmd/sim/sim_utilisation.h"

#include "algorithm/spec.h"

#include <inttypes.h>
#include <string.h>

#define NAME_WIDTH 33
#define COLUMN_WIDTH 9
#define SPLITS_SHOWN 20 /* of one number of buckets; the others are in CSV and JSON */

/* ---- What others use too ---- */

static void name_slacks(struct buf *buf, const struct sweep_setting *setting)
{
    const struct stint_quota *quota = &setting->quota;
    if (quota->time_slack_ns > 0 && setting->group == SWEEP_SPLIT) {
        buf_add(buf, setting->timed == 1 ? "time_slack=W" : "time_slack=W/%u",
                (unsigned)setting->timed);
    } else if (quota->time_slack_ns > 0) {
        buf_add(buf, "time_slack=");
        spec_format_duration(buf, quota->time_slack_ns);
    }
    if (quota->count_slack > 0)
        buf_add(buf, "%scount_slack=%u", quota->time_slack_ns > 0 ? " " : "",
                (unsigned)quota->count_slack);
}

const char *utilisation_name(struct utilisation_name *name, const struct sweep *sweep,
                             size_t setting)
{
    struct buf buf = buf_of(name->text, sizeof(name->text));
    const struct sweep_setting *at = &sweep->settings[setting];
    switch (at->group) {
    case SWEEP_EXACT:
        buf_add(&buf, "log, exact");
        break;
    case SWEEP_WINDOW:
        buf_add(&buf, "window resolution=%u", (unsigned)at->quota.resolution);
        break;
    case SWEEP_ALSO:
        stint_quota_format(&at->quota, name->text, sizeof(name->text));
        break;
    default:
        name_slacks(&buf, at);
    }
    return name->text;
}

struct sweep_spread utilisation_spread(const struct sweep *sweep, enum utilisation_of of,
                                       size_t setting, size_t demand)
{
    return sweep_spread(sweep, setting, demand,
                        of == UTILISATION_OF_EXACT ? sweep_of_exact : sweep_share);
}

const char *utilisation_ties(struct utilisation_ties *ties, const struct sweep *sweep, size_t best,
                             size_t demand)
{
    struct buf buf = buf_of(ties->text, sizeof(ties->text));
    uint32_t buckets = sweep->settings[best].buckets;
    size_t first = best, from = 0;
    while (first > 0 && sweep->settings[first - 1].buckets == buckets)
        first--;
    bool within = false;
    ties->text[0] = '\0';
    /* One past the last ends the last run. */
    for (size_t a = 0; a <= buckets + 1; a++) {
        bool tied = a <= buckets && !sweep_is_worse(sweep, first + a, best, demand);
        if (tied && !within)
            from = a;
        if (!tied && within) {
            buf_add(&buf, "%s", buf.len > 0 ? ", " : "");
            buf_add(&buf, a - 1 > from ? "%zu-%zu" : "%zu", from, a - 1);
        }
        within = tied;
    }
    return ties->text;
}

/* ---- Tables ---- */

static int width_of(const struct sweep *sweep, size_t demand)
{
    size_t len = strlen(sweep->demands[demand].name);
    return len > COLUMN_WIDTH ? (int)len : COLUMN_WIDTH;
}

static void print_head(const struct sweep *sweep, const char *title)
{
    printf("\n%-*s %5s", NAME_WIDTH, title, "bytes");
    for (size_t d = 0; d < sweep->n_demands; d++)
        printf(" %*s", width_of(sweep, d), sweep->demands[d].name);
    putchar('\n');
}

static void print_row(const struct utilisation_options *options, const struct sweep *sweep,
                      size_t setting)
{
    struct utilisation_name name;
    printf("%-*s %5zu", NAME_WIDTH, utilisation_name(&name, sweep, setting),
           stint_state_size(&sweep->settings[setting].quota));
    for (size_t d = 0; d < sweep->n_demands; d++)
        printf(" %*.2f", width_of(sweep, d),
               100 * utilisation_spread(sweep, options->of, setting, d).median);
    putchar('\n');
}

/* The widest middle half among the rows of a table: what lies within it may be chance. */
static void print_widest(const struct utilisation_options *options, const struct sweep *sweep,
                         size_t from, size_t to)
{
    printf("%-*s %5s", NAME_WIDTH, "  widest middle half of the seeds", "");
    for (size_t d = 0; d < sweep->n_demands; d++) {
        double widest = 0;
        for (size_t i = from; i < to; i++) {
            struct sweep_spread spread = utilisation_spread(sweep, options->of, i, d);
            if (spread.high - spread.low > widest)
                widest = spread.high - spread.low;
        }
        printf(" %*.2f", width_of(sweep, d), 100 * widest);
    }
    putchar('\n');
}

/* Of many splits every n-th is shown, the first two and the last two always. */
static bool is_shown(const struct sweep *sweep, size_t setting, size_t first)
{
    const struct sweep_setting *at = &sweep->settings[setting];
    if (at->group != SWEEP_SPLIT)
        return true;
    uint32_t place = (uint32_t)(setting - first), step = at->buckets / SPLITS_SHOWN;
    return step <= 1 || place <= 1 || place + 1 >= at->buckets || place % step == 0;
}

static void print_group(const struct utilisation_options *options, const struct sweep *sweep,
                        size_t from, size_t to)
{
    static const char *const titles[] = {"the yardstick", "window", "", "buckets, by slack",
                                         "others"};
    const struct sweep_setting *first = &sweep->settings[from];
    char title[64];
    snprintf(title, sizeof(title), "%s", titles[first->group]);
    if (first->group == SWEEP_SPLIT)
        snprintf(title, sizeof(title), "%u buckets, split", (unsigned)first->buckets);
    print_head(sweep, title);
    for (size_t i = from; i < to; i++)
        if (is_shown(sweep, i, from))
            print_row(options, sweep, i);
    print_widest(options, sweep, from, to);
}

/* Settings of one group, and of one number of buckets, follow each other. */
static size_t group_end(const struct sweep *sweep, size_t from)
{
    size_t to = from;
    while (to < sweep->n_settings && sweep->settings[to].group == sweep->settings[from].group &&
           sweep->settings[to].buckets == sweep->settings[from].buckets)
        to++;
    return to;
}

static void print_best(const struct sweep *sweep, const uint32_t *buckets, size_t n_buckets)
{
    uint32_t seeds = sweep_seeds_done(sweep, 0), agreeing = sweep_agreeing(seeds);
    puts("\nBest splits, by what they admit of the exact count. a is the number of buckets for "
         "time: 0 is form B,\nall of them form A.");
    if (agreeing > seeds)
        puts("So few seeds tell no two splits apart: 6 are needed.");
    else
        printf("As good are those that the best does not pass in %u seeds of %u: that may be "
               "chance.\n",
               (unsigned)agreeing, (unsigned)seeds);
    printf("\n%7s  %-14s  %-33s %8s  %-13s  %s\n", "buckets", "burstiness", "best", "of exact",
           "middle half", "as good: a");
    for (size_t b = 0; b < n_buckets; b++)
        for (size_t d = 0; d < sweep->n_demands; d++) {
            struct utilisation_name name;
            struct utilisation_ties ties;
            size_t best = sweep_best_split(sweep, buckets[b], d);
            if (best == 0)
                continue;
            struct sweep_spread spread = sweep_spread(sweep, best, d, sweep_of_exact);
            char half[32];
            snprintf(half, sizeof(half), "%.2f-%.2f", 100 * spread.low, 100 * spread.high);
            printf("%7u  %-14s  %-33s %8.2f  %-13s  %s\n", (unsigned)buckets[b],
                   sweep->demands[d].name, utilisation_name(&name, sweep, best),
                   100 * spread.median, half, utilisation_ties(&ties, sweep, best, d));
        }
}

void utilisation_print_text(const struct utilisation_options *options, const struct sweep *sweep)
{
    const struct sweep_terms *terms = &sweep->terms;
    struct formatted limit, period;
    printf("%s units in %s, asked for %.10g times over; %u periods, %u seeds from %" PRIu64 " on.\n"
           "Units admitted, in %% of %s: the median of the seeds.\n",
           format_count(&limit, terms->limit), format_duration(&period, terms->period_ns),
           terms->demand, (unsigned)terms->periods, (unsigned)sweep_seeds_done(sweep, 0),
           terms->seed,
           options->of == UTILISATION_OF_EXACT ? "what the exact count admits" : "the limit");
    for (size_t from = 0, to; from < sweep->n_settings; from = to) {
        to = group_end(sweep, from);
        print_group(options, sweep, from, to);
    }
    if (options->n_buckets > 0)
        print_best(sweep, options->buckets, options->n_buckets);
}
