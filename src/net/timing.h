/* SPDX-License-Identifier: MIT */
/*
 * The duration of decisions. A reading of the clock costs as much as a decision: one batch of
 * TIMING_EVERY is measured, from its input to its output.
 */
#ifndef STINT_NET_TIMING_H
#define STINT_NET_TIMING_H

#include "service/metrics/metrics.h"

#include <uv.h>

#define TIMING_EVERY 64

struct timing_turn {
    uint32_t until_next;
};

struct timing {
    uint64_t began_ns; /* 0: this one is not measured */
    uint64_t decided;  /* the count before it */
};

static inline struct timing timing_begin(struct timing_turn *turn,
                                         const struct metrics_worker *metrics)
{
    if (turn->until_next > 0) {
        turn->until_next--;
        return (struct timing){0, 0};
    }
    turn->until_next = TIMING_EVERY - 1;
    return (struct timing){uv_hrtime(), metrics_decisions(metrics)};
}

static inline void timing_end(const struct timing *timing, struct metrics_worker *metrics)
{
    if (timing->began_ns == 0)
        return;
    uint64_t times = metrics_decisions(metrics) - timing->decided;
    metrics_took(metrics, uv_hrtime() - timing->began_ns, (uint32_t)times);
}

#endif
