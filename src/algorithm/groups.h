/* SPDX-License-Identifier: MIT */
/*
 * The units of a state that return together, group by group: buckets, and bunches of window. For
 * the display of a state; no decision uses it.
 */
#ifndef STINT_ALGORITHM_GROUPS_H
#define STINT_ALGORITHM_GROUPS_H

#include "algorithm/algorithm.h"

/*
 * Fills in the groups that have not returned at now, oldest first, and returns their number: 0 for
 * algorithms without groups. now_ns is the state's own time or later, at most STINT_NOW_MAX.
 */
size_t groups_of(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                 struct held_group groups[HELD_GROUPS_MAX]);

#endif
