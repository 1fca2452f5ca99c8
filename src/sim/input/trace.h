/* SPDX-License-Identifier: MIT */
/* Reads a line of a trace: `TIME KEY [COST]`, with `#` comments. */
#ifndef STINT_SIM_INPUT_TRACE_H
#define STINT_SIM_INPUT_TRACE_H

#include "base/err.h"
#include "sim/input/event.h"

/* Returns an enum event_line, or a negative code for a line that is malformed. */
int trace_parse(struct event *event, struct span line, struct stint_error *error);

/* Reads a cost: digits, 0 … 2^32-1. */
int trace_parse_cost(uint32_t *cost, struct span text, struct stint_error *error);

#endif
