/* SPDX-License-Identifier: MIT */
/* Reads rate_limit, shadow and ban from their keys, and names the states of a limit in a store. */
#ifndef STINT_RULES_YAML_READ_LIMIT_H
#define STINT_RULES_YAML_READ_LIMIT_H

#include "base/siphash.h"
#include "rules/yaml/rules_load.h"
#include "rules/yaml/schema.h"

struct limit {
    struct stint_quota quota; /* checked; quota.rule is not set */
    uint32_t requests_per_unit;
    uint8_t unit; /* enum rule_unit */
};

/* The fields of shape_limit or shape_shadow, for a limit that is none of `unlimited`. */
bool read_limit(const struct fields *fields, uint8_t default_algorithm, struct limit *limit);

/* `hits`, of a limit that was read; as enum rule_hits. */
uint8_t read_hits(const struct fields *fields, const struct limit *limit);

/* Reports every key of an amount, where `unlimited` means that there is no limit. */
void refuse_limit(const struct fields *fields);

void read_ban(const struct source *source, const struct yaml_value *value, struct rule_ban *ban);

/* What the keys of one rate_limit are read with. */
struct store_reading {
    const struct rules_load_options *options;
    const char *const *kept_stores; /* options->stores, kept with the rules */
};

/* Fills rule->store but for its tag and names, once the quota is read. */
void read_store(const struct store_reading *reading, const struct fields *fields,
                struct arena *texts, struct rule *rule);

/* ---- Metadata -------------------------------------------------------------------------------- */

/* `metadata`: a mapping by the author of the file, returned with each decision. */

#define METADATA_MAX 4096     /* bytes as JSON */
#define METADATA_DEPTH_MAX 16 /* depth of nested mappings and lists */
#define METADATA_KEYS_MAX 256 /* of one mapping */

/*
 * The mapping as compact JSON, kept in `texts`: keys in the order of the file, texts as UTF-8. An
 * empty span where there is none, or an empty one. Adds errors to the diagnostics.
 */
struct span read_metadata(const struct source *source, const struct fields *entry,
                          struct arena *texts);

#endif
