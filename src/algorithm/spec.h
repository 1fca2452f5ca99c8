/* SPDX-License-Identifier: MIT */
/*
 * Quotas and durations as text, for stint_quota_parse() and stint_quota_format(); every command
 * reads durations with these functions.
 */
#ifndef STINT_ALGORITHM_SPEC_H
#define STINT_ALGORITHM_SPEC_H

#include "base/buf.h"
#include "base/span.h"

/*
 * Reads parts from greater to smaller units, "1h30m", "1.5s", "500ms"; a unit without a number
 * counts once. Units: ns us ms s m h d w. 0, STINT_E_SYNTAX, or STINT_E_RANGE for what is not a
 * whole number of nanoseconds or does not fit 64 bits.
 */
int spec_parse_duration(struct span text, uint64_t *ns);

/* Reads Z, or a sign and HH:MM, or HH:MM:SS for offsets from before time zones. */
int spec_parse_offset(struct span text, int32_t *offset_s);

/*
 * The enum stint_algorithm of a name, including names of other systems; 0 if there is none.
 * *nearest is the closest known name, NULL if none is close.
 */
int spec_algorithm(struct span name, const char **nearest);

#define SPEC_SIZE 256 /* space for a SPEC as stint_quota_format() writes it */

extern const char *const outcome_names[STINT_NEVER + 1]; /* "allow", "deny", "never" */

/* The name in a SPEC of an enum stint_when_full; NULL: not set. */
const char *spec_when_full_name(uint8_t when_full);

/* Appends the shortest text that parses to the same: "1m30s", "250ms", "0s". */
void spec_format_duration(struct buf *buf, uint64_t ns);

/* Appends an offset from UTC in the form of `utc_offset`: "+01:00"; seconds only if not 0. */
void spec_format_offset(struct buf *buf, int32_t offset_s);

#endif
