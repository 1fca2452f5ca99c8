/* SPDX-License-Identifier: MIT */
/*
 * Reads the formats of times in traces and logs: decimal seconds, RFC 3339, and the date of access
 * logs. No time zone database: every form carries its own offset.
 */
#ifndef STINT_SIM_INPUT_TIMESTAMP_H
#define STINT_SIM_INPUT_TIMESTAMP_H

#include "base/err.h"
#include "base/span.h"

#define TIMESTAMP_MAX_NS INT64_MAX /* in the year 2262 */
#define TIMESTAMP_CLF_LEN 26       /* "17/May/2015:10:05:03 +0000" */

struct timestamp {
    uint64_t ns;
    uint8_t decimals; /* digits after the point, 0 … 9 */
};

/* "12", "0.25": digits with at most nine decimals. */
int timestamp_parse_seconds(struct timestamp *timestamp, struct span text,
                            struct stint_error *error);

/* "2026-01-31T23:59:59.25+01:00", "…Z". Digits after the ninth decimal are dropped. */
int timestamp_parse_rfc3339(struct timestamp *timestamp, struct span text,
                            struct stint_error *error);

/*
 * Logs hold many lines of one second and one day: the result for the last line is reused for the
 * next one if the text is the same. All zero is "nothing yet".
 */
struct timestamp_clf_cache {
    bool is_set;
    uint8_t text[TIMESTAMP_CLF_LEN];
    uint64_t ns;         /* of the whole text */
    int64_t day_start_s; /* of its day and offset, since 1970 */
};

/* Reads TIMESTAMP_CLF_LEN bytes at `text`; false if they are no date, or one before 1970. */
bool timestamp_parse_clf(uint64_t *ns, const uint8_t *text, struct timestamp_clf_cache *cache);

#endif
