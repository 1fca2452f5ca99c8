/* SPDX-License-Identifier: MIT */
/* Shared by the files of a workload only. */
#ifndef STINT_SIM_WORKLOAD_WORKLOAD_PARTS_H
#define STINT_SIM_WORKLOAD_WORKLOAD_PARTS_H

#include "sim/workload/workload.h"

/* Whole nanoseconds; what is too long for any run is as long as one. */
static inline uint64_t workload_ns(double ns)
{
    return ns < 0x1p62 ? (uint64_t)ns : UINT64_C(1) << 62;
}

/* ---- workload_plan.c: adversaries ---- */

void workload_plan_begin(struct workload *workload, int64_t epoch_ns);
bool workload_plan_next(struct workload *workload, struct sim_event *event);
void workload_plan_tell(struct workload *workload, const struct sim_event *event,
                        const struct stint_decision *decision);

#endif
