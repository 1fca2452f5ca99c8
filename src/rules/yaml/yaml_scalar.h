/* SPDX-License-Identifier: MIT */
/*
 * What a plain text means where the file leaves it open: a boolean, a whole number, a real one. As
 * envoyproxy/ratelimit's reader takes them, which keeps to YAML 1.1 in the words and octals.
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
 * Decimal, 0x1f, 0o17, 017 or 0b101, with a sign, and with any _ after the first character. Quotes
 * are not looked at.
 */
bool yaml_whole(const struct yaml_value *value, struct yaml_whole *whole);

/* Decimal, with a point or an exponent; false also for what is beyond a double. */
bool yaml_real(const struct yaml_value *value, double *real);

#endif
