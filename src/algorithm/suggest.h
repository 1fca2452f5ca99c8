/* SPDX-License-Identifier: MIT */
/*
 * What was meant by a misspelt name, and by a quota or a duration that is spelt as elsewhere:
 * `100/day`, `100 per minute`, `5r/s`. The grammar of SPECs stays as it is; these are for error
 * messages.
 */
#ifndef STINT_ALGORITHM_SUGGEST_H
#define STINT_ALGORITHM_SUGGEST_H

#include "base/buf.h"
#include "base/span.h"

/* The index of the name with the fewest edits; -1 if none is near enough. */
int nearest_name(struct span word, const char *const *names, size_t n_names);

/*
 * The `max` names with the fewest edits, however many these are, best first; returns how many there
 * are.
 */
size_t nearest_names(struct span word, const char *const *names, size_t n_names,
                     const char **nearest, size_t max);

/*
 * Appends the SPEC that was meant; false if there is no guess. The options are repeated as they
 * are: whether the SPEC is valid is known only once it is parsed.
 */
bool suggest_spec(struct buf *to, struct span spec);

/* The same for a duration: "5m" for `5 minutes`. */
bool suggest_duration(struct buf *to, struct span text);

#endif
