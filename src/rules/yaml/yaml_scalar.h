/* SPDX-License-Identifier: MIT */
/*
 * The type of an unquoted text: a boolean, an integer, a real number. Compatible with
 * envoyproxy/ratelimit's reader, which follows YAML 1.1 for words and octals.
 */
#ifndef STINT_RULES_YAML_YAML_SCALAR_H
#define STINT_RULES_YAML_YAML_SCALAR_H

#include "rules/yaml/yaml_value.h"

/* true, yes, on, y and their opposites. */
bool yaml_flag(const struct yaml_value *value, bool *flag);

struct yaml_whole {
    uint64_t magnitude;
    bool is_negative, is_too_large; /* beyond 64 bits: magnitude is not set */
};

/*
 * Decimal, 0x1f, 0o17, 017 or 0b101, with a sign, and with any _ after the first character. Ignores
 * quotes.
 */
bool yaml_whole(const struct yaml_value *value, struct yaml_whole *whole);

/* Decimal, with a point or an exponent; false also for what is beyond a double. */
bool yaml_real(const struct yaml_value *value, double *real);

#endif
