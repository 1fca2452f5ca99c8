/* SPDX-License-Identifier: MIT */
/* Measures one batch of many. */
#define _GNU_SOURCE
#include "net/timing.h"

#include <uv.h>

struct timing timing_begin(struct timing_turn *turn, const struct metrics_worker *metrics)
{
    if (turn->until_next > 0) {
        turn->until_next--;
        return (struct timing){0, 0};
    }
    turn->until_next = TIMING_EVERY - 1;
    return (struct timing){uv_hrtime(), metrics_decisions(metrics)};
}

void timing_end(const struct timing *timing, struct metrics_worker *metrics)
{
    if (timing->began_ns == 0)
        return;
    uint64_t times = metrics_decisions(metrics) - timing->decided;
    metrics_took(metrics, uv_hrtime() - timing->began_ns, (uint32_t)times);
}
