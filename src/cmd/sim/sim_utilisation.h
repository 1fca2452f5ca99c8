/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint sim utilisation` and what they hand each other: the options, and the forms in
 * which the results of a sweep are told.
 */
#ifndef STINT_CMD_SIM_SIM_UTILISATION_H
#define STINT_CMD_SIM_SIM_UTILISATION_H

#include "cmd/lib/gnuplot.h"
#include "sim/input/bucket_trace.h"
#include "sim/plan/sweep.h"

#include <jansson.h>
#include <stdio.h>

#define UTILISATION_LIST_MAX 128 /* values of one option */

/* What tables and pictures show; CSV and JSON have both. */
enum utilisation_of { UTILISATION_OF_FULL, UTILISATION_OF_EXACT };

struct utilisation_options {
    struct sweep_terms terms;
    struct stint_quota bound; /* of --bound; else not checked */
    struct stint_quota also[STINT_ITEMS_MAX];
    size_t n_also;
    struct sweep_demand demands[SWEEP_DEMANDS_MAX];
    size_t n_demands;
    uint32_t buckets[UTILISATION_LIST_MAX];
    size_t n_buckets;
    uint32_t resolutions[UTILISATION_LIST_MAX];
    size_t n_resolutions;
    /* The grid; 0 is `none`. Empty only if both are. */
    uint64_t time_slacks_ns[UTILISATION_LIST_MAX];
    size_t n_time_slacks;
    uint32_t count_slacks[UTILISATION_LIST_MAX];
    size_t n_count_slacks;
    bool chosen; /* some of these were given; else what a default cannot be is left out */
    enum utilisation_of of;
    const char *csv; /* a file, or - */
    bool json;
    struct gnuplot gnuplot;
};

/* Exits where the command line is wrong. */
void utilisation_options_parse(struct utilisation_options *options, int argc, char **argv);

/* ---- What is told of a sweep ---- */

struct utilisation_name {
    char text[80];
};

/* By the names of the options: "log", "window resolution=10", "time_slack=W/3 count_slack=71". */
const char *utilisation_name(struct utilisation_name *name, const struct sweep *sweep,
                             size_t setting);
struct sweep_spread utilisation_spread(const struct sweep *sweep, enum utilisation_of of,
                                       size_t setting, size_t demand);
/* Splits of so many buckets that are no worse than the best, by a: "0, 3-7". */
struct utilisation_ties {
    char text[240];
};
const char *utilisation_ties(struct utilisation_ties *ties, const struct sweep *sweep, size_t best,
                             size_t demand);

void utilisation_print_text(const struct utilisation_options *options, const struct sweep *sweep);
void utilisation_print_csv(const struct sweep *sweep, FILE *out);
/* 0, or a negative code where memory did not suffice, which has been said. */
int utilisation_print_json(const struct utilisation_options *options, const struct sweep *sweep);
/* Returns an enum cmd_exit. */
int utilisation_draw(const struct utilisation_options *options, const struct sweep *sweep);

/* The uses that have the most buckets of options->bound alive. Returns an enum cmd_exit. */
int utilisation_bound(const struct utilisation_options *options);

#endif
