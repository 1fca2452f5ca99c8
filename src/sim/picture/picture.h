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
    const char *origin;         /* what that is: "2015-05-17 10:05:03 UTC"; NULL: no more than 0 */
    uint64_t from_ns, until_ns; /* the part that is shown; both 0: the part that tells most */
};

/* Fills the plot anew; it is to be freed by plot_deinit(), also where a code comes back. */
int picture_draw(struct plot *plot, const struct picture *picture, struct stint_error *error);

#endif
