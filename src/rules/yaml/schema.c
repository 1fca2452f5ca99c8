/* SPDX-License-Identifier: MIT */
/* Which keys a mapping has, and their values. */
#include "rules/yaml/schema.h"

#include "algorithm/spec.h"
#include "algorithm/suggest.h"
#include "algorithm/text.h"
#include "base/buf.h"
#include "base/limits.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- Keys ------------------------------------------------------------------------------------ */

#define KEYS(names) .keys = (names), .n_keys = sizeof(names) / sizeof((names)[0])

static const char *const file_keys[] = {FILE_KEYS(SHAPE_NAME)};
static const char *const entry_keys[] = {ENTRY_KEYS(SHAPE_NAME)};
static const char *const limit_keys[] = {LIMIT_KEYS(SHAPE_NAME)};
static const char *const ban_keys[] = {BAN_KEYS(SHAPE_NAME)};
static const char *const replaces_keys[] = {REPLACES_KEYS(SHAPE_NAME)};

const struct shape shape_file = {"the file", "a file", KEYS(file_keys)};
const struct shape shape_entry = {"an entry", "an entry with a key", KEYS(entry_keys)};
const struct shape shape_limit = {"rate_limit", "a rate_limit with its keys", KEYS(limit_keys)};
const struct shape shape_shadow = {
    .name = "shadow",
    .article = "a shadow with the keys of a limit",
    .keys = limit_keys,
    .n_keys = LIMIT_NAME,
};
const struct shape shape_ban = {"ban", "a ban with its keys", KEYS(ban_keys)};
const struct shape shape_replaces = {"replaces", "{name: NAME}", KEYS(replaces_keys)};

_Static_assert(sizeof(limit_keys) / sizeof(limit_keys[0]) <= FIELDS_MAX, "fields hold every key");

static int key_number(const struct shape *shape, struct span name)
{
    for (size_t i = 0; i < shape->n_keys; i++)
        if (text_is(name, shape->keys[i]))
            return (int)i;
    return -1;
}

/* A key of another kind of mapping is there by wrong indentation or by mistake. */
static const struct shape *home_of(struct span name)
{
    static const struct shape *const shapes[] = {&shape_entry, &shape_limit, &shape_ban,
                                                 &shape_file};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (key_number(shapes[i], name) >= 0)
            return shapes[i];
    return NULL;
}

static void tell_unknown(const struct source *source, const struct shape *shape,
                         const struct yaml_value *key)
{
    const struct shape *home = home_of(key->text);
    int nearest = nearest_name(key->text, shape->keys, shape->n_keys);
    struct quoted_text shown = quoted_text(key->text);
    if (home != NULL)
        diagnostics_add(source, key->position, "unknown key \"%s\" in %s: it is a key of %s",
                        shown.text, shape->name, home->name);
    else if (nearest >= 0)
        diagnostics_add(source, key->position, "unknown key \"%s\" in %s; did you mean \"%s\"?",
                        shown.text, shape->name, shape->keys[nearest]);
    else
        diagnostics_add(source, key->position, "unknown key \"%s\" in %s", shown.text, shape->name);
}

static void read_key(struct fields *fields, const struct yaml_part *part)
{
    if (part->key->kind != YAML_TEXT) {
        diagnostics_add(fields->source, part->key->position, "expected the name of a key, found %s",
                        yaml_kind_name(part->key));
        return;
    }
    int key = key_number(fields->shape, part->key->text);
    if (key < 0)
        tell_unknown(fields->source, fields->shape, part->key);
    else if (fields->parts[key] == NULL)
        fields->parts[key] = part;
    else if (!part->is_merged)
        diagnostics_add(fields->source, part->key->position,
                        "the key \"%s\" is there already, in line %u", fields->shape->keys[key],
                        (unsigned)fields->parts[key]->key->position.line);
}

bool schema_read(const struct source *source, const struct shape *shape,
                 const struct yaml_value *value, struct fields *fields)
{
    *fields = (struct fields){.source = source, .shape = shape, .map = value};
    if (value->kind != YAML_MAP) {
        diagnostics_add(source, value->position, "expected %s, found %s", shape->article,
                        schema_found(value).text);
        return false;
    }
    for (const struct yaml_part *part = value->parts; part != NULL; part = part->next)
        read_key(fields, part);
    return true;
}

const struct yaml_value *schema_value(const struct fields *fields, int key)
{
    const struct yaml_part *part = fields->parts[key];
    return part == NULL || yaml_is_null(part->value) ? NULL : part->value;
}

struct source_position schema_position(const struct fields *fields, int key)
{
    const struct yaml_part *part = fields->parts[key];
    return part == NULL ? fields->map->position : part->value->position;
}

void schema_error(const struct fields *fields, int key, const char *format, ...)
{
    char message[STINT_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    diagnostics_add(fields->source, schema_position(fields, key), "%s: %s",
                    fields->shape->keys[key], message);
}

/* ---- Values: texts, flags, numbers, durations, choices --------------------------------------- */

struct quoted_text schema_found(const struct yaml_value *value)
{
    struct quoted_text found;
    if (value->kind != YAML_TEXT || yaml_is_null(value))
        return quoted_text(text_span(yaml_kind_name(value)));
    struct quoted_text text = quoted_text(value->text);
    snprintf(found.text, sizeof(found.text), "\"%.*s\"", (int)sizeof(found.text) - 3, text.text);
    return found;
}

static bool expected(const struct fields *fields, int key, const char *what)
{
    schema_error(fields, key, "expected %s, found %s", what,
                 schema_found(fields->parts[key]->value).text);
    return false;
}

bool schema_text(const struct fields *fields, int key, struct span *text)
{
    const struct yaml_value *value = schema_value(fields, key);
    if (value == NULL)
        return false;
    if (value->kind != YAML_TEXT)
        return expected(fields, key, "a text");
    if (value->text.len > FIELD_TEXT_MAX) {
        schema_error(fields, key, "expected at most %d bytes, found %zu", FIELD_TEXT_MAX,
                     value->text.len);
        return false;
    }
    if (value->text.len > 0 && memchr(value->text.ptr, '\0', value->text.len) != NULL)
        return expected(fields, key, "a text without a NUL");
    *text = value->text;
    return true;
}

bool schema_flag(const struct fields *fields, int key, bool *flag)
{
    const struct yaml_value *value = schema_value(fields, key);
    if (value == NULL)
        return false;
    return yaml_flag(value, flag) || expected(fields, key, "true or false");
}

/* 010 is eight, as in YAML 1.1; the author may have meant ten. */
static void warn_of_octal(const struct fields *fields, int key, struct span text, uint32_t number)
{
    size_t zero = text.ptr[0] == '+';
    if (number >= 8 && text.ptr[zero] == '0' && (text.ptr[zero + 1] & 0x40) == 0)
        warnings_add(fields->source, schema_position(fields, key),
                     "%s: a leading 0 makes %s an octal number, %" PRIu32, fields->shape->keys[key],
                     quoted_text(text).text, number);
}

bool schema_units(const struct fields *fields, int key, uint32_t min, uint32_t *number)
{
    const struct yaml_value *value = schema_value(fields, key);
    struct yaml_whole whole;
    char what[128];
    if (value == NULL || !yaml_whole(value, &whole) || value->is_string || whole.is_negative ||
        (!whole.is_too_large && whole.magnitude <= UNIT_COUNT_MAX))
        return schema_number(fields, key, min, number);
    snprintf(what, sizeof(what),
             "a whole number from %u to " UNIT_COUNT_MAX_TEXT " (" UNITS_ADVICE ")", (unsigned)min);
    return expected(fields, key, what);
}

bool schema_number(const struct fields *fields, int key, uint32_t min, uint32_t *number)
{
    const struct yaml_value *value = schema_value(fields, key);
    struct yaml_whole whole;
    char what[64];
    if (value == NULL)
        return false;
    snprintf(what, sizeof(what), "a whole number from %u to %u", (unsigned)min, UINT32_MAX);
    if (!yaml_whole(value, &whole))
        return expected(fields, key, what);
    if (value->is_string)
        return expected(fields, key, "a number without quotes");
    if (whole.is_too_large || whole.magnitude < min || whole.magnitude > UINT32_MAX ||
        (whole.is_negative && whole.magnitude > 0))
        return expected(fields, key, what);
    *number = (uint32_t)whole.magnitude;
    warn_of_octal(fields, key, value->text, *number);
    return true;
}

static bool expected_duration(const struct fields *fields, int key, const struct yaml_value *value)
{
    char meant[32] = "";
    struct buf buf = buf_of(meant, sizeof(meant));
    bool has_guess =
        value->kind == YAML_TEXT && suggest_duration(&buf, value->text) && buf.len < sizeof(meant);
    schema_error(fields, key, "expected a duration such as 30s, 5m or 36h, found %s%s%s%s",
                 schema_found(value).text, has_guess ? "; did you mean " : "",
                 has_guess ? meant : "", has_guess ? "?" : "");
    return false;
}

bool schema_duration(const struct fields *fields, int key, uint64_t *ns)
{
    const struct yaml_value *value = schema_value(fields, key);
    uint64_t read = 0;
    if (value == NULL)
        return false;
    int code = value->kind == YAML_TEXT ? spec_parse_duration(value->text, &read) : STINT_E_SYNTAX;
    if (code == STINT_E_SYNTAX)
        return expected_duration(fields, key, value);
    if (code != STINT_OK || read == 0)
        return expected(fields, key,
                        "a duration of whole nanoseconds, above 0 and below 584 years");
    *ns = read;
    return true;
}

static bool is_name(struct span text, const char *name)
{
    return text.len == strlen(name) && strncasecmp((const char *)text.ptr, name, text.len) == 0;
}

static void tell_choices(const struct fields *fields, int key, const char *const *names,
                         size_t n_names)
{
    const struct yaml_value *value = fields->parts[key]->value;
    int nearest = value->kind == YAML_TEXT ? nearest_name(value->text, names, n_names) : -1;
    char text[128];
    struct buf list = buf_of(text, sizeof(text));
    for (size_t i = 0; i < n_names; i++)
        buf_add(&list, "%s%s", i == 0 ? "" : i + 1 < n_names ? ", " : " or ", names[i]);
    schema_error(fields, key, "expected %s, found %s%s%s%s", text, schema_found(value).text,
                 nearest < 0 ? "" : "; did you mean \"", nearest < 0 ? "" : names[nearest],
                 nearest < 0 ? "" : "\"?");
}

bool schema_choice(const struct fields *fields, int key, const char *const *names, size_t n_names,
                   size_t *choice)
{
    const struct yaml_value *value = schema_value(fields, key);
    if (value == NULL)
        return false;
    for (size_t i = 0; i < n_names && value->kind == YAML_TEXT; i++)
        if (is_name(value->text, names[i])) {
            *choice = i;
            return true;
        }
    tell_choices(fields, key, names, n_names);
    return false;
}

bool schema_kept(const struct fields *fields, int key, uint32_t *kept_units)
{
    const struct yaml_value *value = schema_value(fields, key);
    struct yaml_whole whole;
    if (value == NULL)
        return false;
    if (value->kind == YAML_TEXT && is_name(value->text, "keep"))
        *kept_units = STINT_KEEP_ALL;
    else if (value->kind == YAML_TEXT && is_name(value->text, "release"))
        *kept_units = 0;
    else if (value->kind == YAML_TEXT && yaml_whole(value, &whole) && !whole.is_too_large &&
             !(whole.is_negative && whole.magnitude > 0) && whole.magnitude <= UINT32_MAX)
        return schema_number(fields, key, 0, kept_units);
    else
        return expected(fields, key,
                        "keep, release or a whole number of units from 0 to 4294967295");
    return true;
}
