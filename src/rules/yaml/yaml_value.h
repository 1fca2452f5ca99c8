/* SPDX-License-Identifier: MIT */
/*
 * One file of YAML as a tree in memory, each value with its line and column. The reader of a value
 * decides what its text means (a number, a boolean): nothing is guessed from its looks.
 */
#ifndef STINT_RULES_YAML_YAML_VALUE_H
#define STINT_RULES_YAML_YAML_VALUE_H

#include "rules/arena.h"
#include "rules/yaml/diagnostics.h"

enum yaml_kind { YAML_TEXT, YAML_LIST, YAML_MAP };

struct yaml_value {
    uint8_t kind;    /* enum yaml_kind */
    bool is_string;  /* quoted, a block, or tagged !!str: neither null nor a number */
    bool is_open;    /* while it is being read */
    uint16_t height; /* levels below it */
    uint32_t weight; /* values in it, itself included; an alias counts as its target */
    struct source_position position;
    struct span text;
    struct yaml_part *parts; /* of a list or mapping, in the order of the file; merged ones last */
};

struct yaml_part {
    struct yaml_part *next;
    const struct yaml_value *key; /* NULL in a list */
    const struct yaml_value *value;
    bool is_merged; /* by `<<`: an equal key before it counts */
};

/*
 * Reads the one document of a file; NULL with an error for anything else. An empty file is a null.
 * An alias is the very value that its anchor names; what `<<` merges is in the mapping. Weight and
 * height of the result have limits, so that aliases cannot make a small file large, and no file is
 * nested deeply.
 */
const struct yaml_value *yaml_read(struct arena *arena, const struct rules_file *file,
                                   struct rules_diagnostics *diagnostics);

/* Nothing, ~ or null. */
bool yaml_is_null(const struct yaml_value *value);

/* "a list", for messages. */
const char *yaml_kind_name(const struct yaml_value *value);

/*
 * The type of an unquoted text: a boolean, an integer, a real number. Compatible with
 * envoyproxy/ratelimit's reader, which follows YAML 1.1 for words and octals.
 */

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
