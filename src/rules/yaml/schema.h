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

enum { FILE_DOMAIN, FILE_STORE_TAG, FILE_DESCRIPTORS };
enum {
    ENTRY_KEY,
    ENTRY_VALUE,
    ENTRY_RATE_LIMIT,
    ENTRY_SHADOW,
    ENTRY_BAN,
    ENTRY_DESCRIPTORS,
    ENTRY_METADATA,
    ENTRY_SHADOW_MODE,
    ENTRY_QUOTA_MODE,
    ENTRY_DETAILED_METRIC,
    ENTRY_VALUE_TO_METRIC,
    ENTRY_SHARE_THRESHOLD,
};
/* A shadow has those before LIMIT_NAME. */
enum {
    LIMIT_REQUESTS_PER_UNIT,
    LIMIT_UNIT,
    LIMIT_PERIOD,
    LIMIT_ALGORITHM,
    LIMIT_CALENDAR,
    LIMIT_UTC_OFFSET,
    LIMIT_BURST,
    LIMIT_RESOLUTION,
    LIMIT_TIME_SLACK,
    LIMIT_COUNT_SLACK,
    LIMIT_LEASE,
    LIMIT_COUNT_DENIED,
    LIMIT_WHEN_FULL,
    LIMIT_NAME,
    LIMIT_REPLACES,
    LIMIT_UNLIMITED,
    LIMIT_ON_STORE_ERROR,
    LIMIT_STORE,
    LIMIT_LEASE_UNITS,
    LIMIT_LEASE_TERM,
    LIMIT_LOCAL_START,
    LIMIT_LOCAL_FOR,
    LIMIT_LOCAL_THEN,
    LIMIT_HITS,
    LIMIT_ON_EXPIRY,
};
enum { BAN_AFTER, BAN_FOR, BAN_WITHIN, BAN_FACTOR, BAN_MAX };
enum { REPLACES_NAME };

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
