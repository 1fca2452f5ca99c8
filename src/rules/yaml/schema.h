/* SPDX-License-Identifier: MIT */
/*
 * The mappings that a file of rules is made of, and the values of their keys. Whatever is not as it
 * should be is told as a fault that names the key and what was expected; reading goes on.
 */
#ifndef STINT_RULES_YAML_SCHEMA_H
#define STINT_RULES_YAML_SCHEMA_H

#include "rules/yaml/yaml_value.h"

#define FIELD_TEXT_MAX 4096 /* bytes in one text of a file */
#define FIELDS_MAX 32       /* keys of one shape, at most */

/* Where faults of a file go. */
struct source {
    const char *path;
    struct rules_diagnostics *diagnostics;
};

/* A kind of mapping. The number of a key is its place among the names. */
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

/* A mapping that was looked over: for each key, where it stands. */
struct fields {
    const struct shape *shape;
    const struct yaml_value *map;
    const struct yaml_part *parts[FIELDS_MAX];
};

/*
 * Finds the keys of a mapping, and tells those that are unknown, misplaced or there twice. What
 * `<<` merges into it counts where the mapping itself has no such key. False where the value is no
 * mapping.
 */
bool schema_read(const struct source *source, const struct shape *shape,
                 const struct yaml_value *value, struct fields *fields);

/* The value of a key; NULL where it is left out or null. */
const struct yaml_value *schema_value(const struct fields *fields, int key);
/* Where the value stands; where the mapping does, if there is none. */
struct fault_place schema_place(const struct fields *fields, int key);

/* Tells a fault of a key's value: "KEY: …". */
void schema_fault(const struct source *source, const struct fields *fields, int key,
                  const char *format, ...) ERR_PRINTF(4, 5);

/*
 * Each reads the value of a key: true where it is there and right; else what it points to is left
 * as it was.
 */
bool schema_text(const struct source *source, const struct fields *fields, int key,
                 struct span *text);
bool schema_flag(const struct source *source, const struct fields *fields, int key, bool *flag);
bool schema_number(const struct source *source, const struct fields *fields, int key, uint32_t min,
                   uint32_t *number);
/* The same, of units; the error for what is above UNIT_COUNT_MAX says what to do. */
bool schema_units(const struct source *source, const struct fields *fields, int key, uint32_t min,
                  uint32_t *number);
bool schema_duration(const struct source *source, const struct fields *fields, int key,
                     uint64_t *ns);
/* In any case of letters. `expected` is what the message says. */
bool schema_choice(const struct source *source, const struct fields *fields, int key,
                   const char *const *names, size_t n_names, size_t *choice);

/* keep, release, or a number of units: what stays charged of a reservation. */
bool schema_kept(const struct source *source, const struct fields *fields, int key,
                 uint32_t *kept_units);

/* "a list", or the text in quotes. */
struct fault_text schema_found(const struct yaml_value *value);

#endif
