/* SPDX-License-Identifier: MIT */
/*
 * The mappings of a file of rules, and the values of their keys. Each error is reported with the
 * key and what was expected; reading goes on.
 */
#ifndef STINT_RULES_YAML_SCHEMA_H
#define STINT_RULES_YAML_SCHEMA_H

#include "rules/yaml/yaml_value.h"

#define FIELD_TEXT_MAX 4096 /* bytes in one text of a file */
#define FIELDS_MAX 32       /* keys of one shape, at most */

/* A kind of mapping. The number of a key is its index among the names. */
struct shape {
    const char *name;    /* "rate_limit" */
    const char *article; /* "a rate_limit" */
    const char *const *keys;
    size_t n_keys;
};

/* The keys of each kind: the number and the name. */
#define SHAPE_NUMBER(number, name) number,
#define SHAPE_NAME(number, name) [number] = (name),

#define FILE_KEYS(KEY)                                                                             \
    KEY(FILE_DOMAIN, "domain")                                                                     \
    KEY(FILE_STORE_TAG, "store_tag")                                                               \
    KEY(FILE_DESCRIPTORS, "descriptors")
enum { FILE_KEYS(SHAPE_NUMBER) };

#define ENTRY_KEYS(KEY)                                                                            \
    KEY(ENTRY_KEY, "key")                                                                          \
    KEY(ENTRY_VALUE, "value")                                                                      \
    KEY(ENTRY_RATE_LIMIT, "rate_limit")                                                            \
    KEY(ENTRY_SHADOW, "shadow")                                                                    \
    KEY(ENTRY_BAN, "ban")                                                                          \
    KEY(ENTRY_DESCRIPTORS, "descriptors")                                                          \
    KEY(ENTRY_METADATA, "metadata")                                                                \
    KEY(ENTRY_SHADOW_MODE, "shadow_mode")                                                          \
    KEY(ENTRY_QUOTA_MODE, "quota_mode")                                                            \
    KEY(ENTRY_DETAILED_METRIC, "detailed_metric")                                                  \
    KEY(ENTRY_VALUE_TO_METRIC, "value_to_metric")                                                  \
    KEY(ENTRY_SHARE_THRESHOLD, "share_threshold")
enum { ENTRY_KEYS(SHAPE_NUMBER) };

/* A shadow has those before LIMIT_NAME; of these, `unlimited` forbids those after
 * LIMIT_REQUESTS_PER_UNIT. */
#define LIMIT_KEYS(KEY)                                                                            \
    KEY(LIMIT_REQUESTS_PER_UNIT, "requests_per_unit")                                              \
    KEY(LIMIT_UNIT, "unit")                                                                        \
    KEY(LIMIT_PERIOD, "period")                                                                    \
    KEY(LIMIT_ALGORITHM, "algorithm")                                                              \
    KEY(LIMIT_CALENDAR, "calendar")                                                                \
    KEY(LIMIT_UTC_OFFSET, "utc_offset")                                                            \
    KEY(LIMIT_BURST, "burst")                                                                      \
    KEY(LIMIT_RESOLUTION, "resolution")                                                            \
    KEY(LIMIT_TIME_SLACK, "time_slack")                                                            \
    KEY(LIMIT_COUNT_SLACK, "count_slack")                                                          \
    KEY(LIMIT_LEASE, "lease")                                                                      \
    KEY(LIMIT_COUNT_DENIED, "count_denied")                                                        \
    KEY(LIMIT_WHEN_FULL, "when_full")                                                              \
    KEY(LIMIT_NAME, "name")                                                                        \
    KEY(LIMIT_REPLACES, "replaces")                                                                \
    KEY(LIMIT_UNLIMITED, "unlimited")                                                              \
    KEY(LIMIT_ON_STORE_ERROR, "on_store_error")                                                    \
    KEY(LIMIT_STORE, "store")                                                                      \
    KEY(LIMIT_LEASE_UNITS, "lease_units")                                                          \
    KEY(LIMIT_LEASE_TERM, "lease_term")                                                            \
    KEY(LIMIT_LOCAL_START, "local_start")                                                          \
    KEY(LIMIT_LOCAL_FOR, "local_for")                                                              \
    KEY(LIMIT_LOCAL_THEN, "local_then")                                                            \
    KEY(LIMIT_HITS, "hits")                                                                        \
    KEY(LIMIT_ON_EXPIRY, "on_expiry")
enum { LIMIT_KEYS(SHAPE_NUMBER) };

#define BAN_KEYS(KEY)                                                                              \
    KEY(BAN_AFTER, "after")                                                                        \
    KEY(BAN_FOR, "for")                                                                            \
    KEY(BAN_WITHIN, "within")                                                                      \
    KEY(BAN_FACTOR, "factor")                                                                      \
    KEY(BAN_MAX, "max")
enum { BAN_KEYS(SHAPE_NUMBER) };

#define REPLACES_KEYS(KEY) KEY(REPLACES_NAME, "name")
enum { REPLACES_KEYS(SHAPE_NUMBER) };

extern const struct shape shape_file, shape_entry, shape_limit, shape_shadow, shape_ban,
    shape_replaces;

/* A mapping after the check of its keys: for each key, its position. */
struct fields {
    const struct source *source;
    const struct shape *shape;
    const struct yaml_value *map;
    const struct yaml_part *parts[FIELDS_MAX];
};

/*
 * Finds the keys of a mapping, and reports those that are unknown, misplaced or repeated. Keys that
 * `<<` merges count where the mapping itself has no such key. False where the value is no mapping.
 */
bool schema_read(const struct source *source, const struct shape *shape,
                 const struct yaml_value *value, struct fields *fields);

/* The value of a key; NULL where it is left out or null. */
const struct yaml_value *schema_value(const struct fields *fields, int key);
/* The position of the value; of the mapping, if there is none. */
struct source_position schema_position(const struct fields *fields, int key);

/* Reports an error of a key's value: "KEY: …". */
void schema_error(const struct fields *fields, int key, const char *format, ...) ERR_PRINTF(3, 4);

/*
 * Each reads the value of a key: true where it exists and is valid; else the output is unchanged.
 */
bool schema_text(const struct fields *fields, int key, struct span *text);
bool schema_flag(const struct fields *fields, int key, bool *flag);
bool schema_number(const struct fields *fields, int key, uint32_t min, uint32_t *number);
/* The same for units; the error above UNIT_COUNT_MAX says what to do. */
bool schema_units(const struct fields *fields, int key, uint32_t min, uint32_t *number);
bool schema_duration(const struct fields *fields, int key, uint64_t *ns);
/* In any case of letters. `expected` is the text for the message. */
bool schema_choice(const struct fields *fields, int key, const char *const *names, size_t n_names,
                   size_t *choice);

/* keep, release, or a number of units: what stays charged of a reservation. */
bool schema_kept(const struct fields *fields, int key, uint32_t *kept_units);

/* "a list", or the text in quotes. */
struct quoted_text schema_found(const struct yaml_value *value);

#endif
