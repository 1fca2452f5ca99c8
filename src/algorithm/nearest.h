/* SPDX-License-Identifier: MIT */
/* Finds the known name that a misspelt one most likely means. */
#ifndef STINT_ALGORITHM_NEAREST_H
#define STINT_ALGORITHM_NEAREST_H

#include "base/span.h"

/* The index of the name with the fewest edits; -1 if none is near enough. */
int nearest_name(struct span word, const char *const *names, size_t n_names);

/*
 * The `max` names with the fewest edits, however many these are, best first; returns how many there
 * are.
 */
size_t nearest_names(struct span word, const char *const *names, size_t n_names,
                     const char **nearest, size_t max);

#endif
