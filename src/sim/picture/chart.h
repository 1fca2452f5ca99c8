/* SPDX-License-Identifier: MIT */
/*
 * Charts of figures that were worked out elsewhere: quotas side by side, keys and what is left of
 * them. Each fills a struct plot anew; the caller frees it with
 * plot_deinit(), also where a code comes back.
 */
#ifndef STINT_SIM_PICTURE_CHART_H
#define STINT_SIM_PICTURE_CHART_H

#include "sim/picture/plot.h"

/* What one quota made of the arrivals, in units. */
struct chart_quota {
    const char *name; /* its SPEC */
    uint64_t admitted;
    uint64_t denied;         /* all of them */
    uint64_t denied_falsely; /* of these: the exact count had room */
    uint64_t most;           /* admitted in any window of its period */
    uint64_t limit;
    uint64_t bound; /* what its algorithm admits at most in any window */
};

#define CHART_QUOTAS_MAX STINT_ITEMS_MAX

/*
 * Two panels: what became of the units, and the most in a window beside limit and bound. From 1 to
 * CHART_QUOTAS_MAX quotas.
 */
int chart_compare(struct plot *plot, const char *title, const struct chart_quota *quotas,
                  size_t n_quotas, struct stint_error *error);

struct chart_bar {
    struct span name;       /* any bytes: a key's */
    uint64_t left, most;    /* units: how many are left now, of how many */
    uint64_t returns_in_ns; /* until all are back; 0 where nothing is out */
    bool cooling_down;      /* nothing may be taken, whatever is left */
};

#define CHART_BARS_MAX 100 /* further ones are left out: they could not be read */

/* A bar for each: how much is left, and beside it when all will be back. n_bars is at least 1. */
int chart_bars(struct plot *plot, const char *title, const struct chart_bar *bars, size_t n_bars,
               struct stint_error *error);

#endif
