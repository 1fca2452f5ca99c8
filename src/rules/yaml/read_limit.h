/* SPDX-License-Identifier: MIT */
/* Reads rate_limit, shadow and ban from their keys. */
#ifndef STINT_RULES_YAML_READ_LIMIT_H
#define STINT_RULES_YAML_READ_LIMIT_H

#include "rules/yaml/schema.h"

struct limit {
    struct stint_quota quota; /* checked; quota.rule is not set */
    uint32_t requests_per_unit;
    uint8_t unit; /* enum rule_unit */
};

/* The fields of shape_limit or shape_shadow, for a limit that is none of `unlimited`. */
bool read_limit(const struct source *source, const struct fields *fields, uint8_t default_algorithm,
                struct limit *limit);

/* `hits`, of a limit that was read; as enum rule_hits. */
uint8_t read_hits(const struct source *source, const struct fields *fields,
                  const struct limit *limit);

/* Reports every key of an amount, where `unlimited` means that there is no limit. */
void refuse_limit(const struct source *source, const struct fields *fields);

void read_ban(const struct source *source, const struct yaml_value *value, struct rule_ban *ban);

#endif
