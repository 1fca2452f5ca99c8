/* SPDX-License-Identifier: MIT */
/*
 * The units of a state that come back together, one group after the other: buckets, and bunches of
 * window. For whoever shows a state; no decision is made from it.
 */
#ifndef STINT_ALGORITHM_GROUPS_H
#define STINT_ALGORITHM_GROUPS_H

#include "algorithm/algorithm.h"

/*
 * Fills in the groups that are not back at now, oldest first, and returns how many there are: 0 for
 * algorithms that have none. now_ns is the state's own time or later, at most STINT_NOW_MAX.
 */
size_t groups_of(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                 struct held_group groups[HELD_GROUPS_MAX]);

#endif
