/* SPDX-License-Identifier: MIT */
/*
 * The picture of one key under one quota. Above: units as they are used and as they come back,
 * numbered in the order of use, with the buckets of `buckets` and the bunches of `window` as
 * rectangles from first use to return. Below: what is free, exactly and by the limiter's belief.
 * What the limiter holds back for longer than it must is shaded in both.
 */
#ifndef STINT_SIM_PICTURE_PICTURE_H
#define STINT_SIM_PICTURE_PICTURE_H

#include "sim/judge/history.h"
#include "sim/picture/plot.h"

struct picture {
    const struct history *history; /* of at least one event */
    struct span key;               /* named in the title */
    uint64_t zero_ns;              /* the time that the axis calls 0 */
    const char *origin; /* what that is: "2015-05-17 10:05:03 UTC"; NULL: no more than 0 */
};

/* Fills the plot anew; it is to be freed by plot_deinit(). */
void picture_draw(struct plot *plot, const struct picture *picture);

/* ---- Charts ---------------------------------------------------------------------------------- */

/*
 * Charts of figures that were worked out elsewhere: quotas side by side, keys and what is left of
 * them. Each fills a struct plot anew; the caller frees it with plot_deinit().
 */

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
void chart_compare(struct plot *plot, const char *title, const struct chart_quota *quotas,
                   size_t n_quotas);

struct chart_bar {
    struct span name;       /* any bytes: a key's */
    uint64_t left, most;    /* units: how many are left now, of how many */
    uint64_t returns_in_ns; /* until all are back; 0 where nothing is out */
    bool cooling_down;      /* nothing may be taken, whatever is left */
};

#define CHART_BARS_MAX 100 /* further ones are left out: they could not be read */

/* A bar for each: how much is left, and beside it when all will be back. n_bars is at least 1. */
void chart_bars(struct plot *plot, const char *title, const struct chart_bar *bars, size_t n_bars);

#endif
