/* SPDX-License-Identifier: MIT */
/*
 * What traces cost: one request in a hundred, as by default. Both sides use the same memory; the
 * frontend of the baseline knows no tracer. That the spans are taken is part of the cost.
 */
#ifndef STINT_BENCH_TRACED_H
#define STINT_BENCH_TRACED_H

#include "measure.h"

#include "service/server_state.h"
#include "service/traces.h"

#define TRACED_PARTS 20 /* of a turn, between which spans are taken */

static const struct traces_options traced_one_percent = {.ratio = TRACES_RATIO_ALL / 100};

/* A turn of `asked` in parts, of which each does *ops requests. False: too few spans were taken. */
static inline bool traced_turn(struct server_state *server_state, uint64_t *ops,
                               void (*asked)(void *arg, unsigned turn), void *arg, unsigned turn)
{
    static uint8_t taken[TRACES_RING_SIZE];
    uint64_t n = 0, all = *ops;
    *ops = all / TRACED_PARTS;
    for (unsigned part = 0; part < TRACED_PARTS; part++) {
        asked(arg, turn * TRACED_PARTS + part);
        keep(traces_take(server_state_traces(server_state), 0, taken, &n));
    }
    *ops = all;
    return n >= all / 200;
}

#endif
