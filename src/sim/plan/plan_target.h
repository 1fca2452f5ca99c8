/* SPDX-License-Identifier: MIT */
/* The target, how many may be denied: `deny at most 0.1 % of keys`. */
#ifndef STINT_SIM_PLAN_PLAN_TARGET_H
#define STINT_SIM_PLAN_PLAN_TARGET_H

#include "base/err.h"
#include "base/span.h"

#define PLAN_TARGET_DEFAULT "deny at most 0.1 % of keys"

struct plan_target {
    bool of_keys;    /* else of requests */
    bool is_percent; /* then `number` is in billionths of a percent */
    uint64_t number;
};

/* Reads `[deny at most] NUMBER [%] [of] keys|requests`. 0, STINT_E_SYNTAX, or STINT_E_RANGE. */
int plan_target_parse(struct plan_target *target, const char *text, struct stint_error *error);

/* The greatest number that meets it, rounded down, for this many keys or requests. */
uint64_t plan_target_most(const struct plan_target *target, uint64_t n_all);

#endif
