/* SPDX-License-Identifier: MIT */
/*
 * Quotas and durations as text. stint_quota_parse() and stint_quota_format() are the two ends;
 * durations are read alike in every command.
 */
#ifndef STINT_ALGORITHM_SPEC_H
#define STINT_ALGORITHM_SPEC_H

#include "base/buf.h"
#include "base/span.h"

/*
 * Reads parts from greater to smaller units, "1h30m", "1.5s", "500ms"; a bare unit is one of it.
 * Units: ns us ms s m h d w. 0, STINT_E_SYNTAX, or STINT_E_RANGE for what is no whole number of
 * nanoseconds or too long for one word.
 */
int spec_parse_duration(struct span text, uint64_t *ns);

/* Reads Z, or a sign and HH:MM, or HH:MM:SS for places as they were before time zones. */
int spec_parse_offset(struct span text, int32_t *offset_s);

/*
 * The enum stint_algorithm of a name, also of one that other systems use; 0 if there is none.
 * *nearest is the name that was meant, NULL where that is anybody's guess.
 */
int spec_algorithm(struct span name, const char **nearest);

/* enum stint_when_full by the name that a SPEC has for it, -1 for none; NULL: it is left open. */
int spec_when_full(struct span name);
const char *spec_when_full_name(uint8_t when_full);

/* Appends the shortest text that reads back as the same: "1m30s", "250ms", "0s". */
void spec_format_duration(struct buf *buf, uint64_t ns);

/* Appends an offset from UTC as `utc_offset` has it: "+01:00"; seconds only if there are any. */
void spec_format_offset(struct buf *buf, int32_t offset_s);

#endif
