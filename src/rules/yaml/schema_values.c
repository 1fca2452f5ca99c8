/* SPDX-License-Identifier: MIT */
/* Reads the values of keys: texts, flags, numbers, durations, choices. */
#include "rules/yaml/schema.h"

#include "algorithm/nearest.h"
#include "algorithm/spec.h"
#include "algorithm/text.h"
#include "base/buf.h"
#include "base/limits.h"
#include "rules/yaml/yaml_scalar.h"

#include <inttypes.h>
#include <stdio.h>

struct fault_text schema_found(const struct yaml_value *value)
{
    struct fault_text found;
    if (value->kind != YAML_TEXT || yaml_is_null(value))
        return fault_text(text_span(yaml_kind_name(value)));
    struct fault_text text = fault_text(value->text);
    snprintf(found.text, sizeof(found.text), "\"%.*s\"", (int)sizeof(found.text) - 3, text.text);
    return found;
}

static bool expected(const struct source *source, const struct fields *fields, int key,
                     const char *what)
{
    schema_fault(source, fields, key, "expected %s, found %s", what,
                 schema_found(fields->parts[key]->value).text);
    return false;
}

bool schema_text(const struct source *source, const struct fields *fields, int key,
                 struct span *text)
{
    const struct yaml_value *value = schema_value(fields, key);
    if (value == NULL)
        return false;
    if (value->kind != YAML_TEXT)
        return expected(source, fields, key, "a text");
    if (value->text.len > FIELD_TEXT_MAX) {
        schema_fault(source, fields, key, "expected at most %d bytes, found %zu", FIELD_TEXT_MAX,
                     value->text.len);
        return false;
    }
    if (value->text.len > 0 && memchr(value->text.ptr, '\0', value->text.len) != NULL)
        return expected(source, fields, key, "a text without a NUL");
    *text = value->text;
    return true;
}

bool schema_flag(const struct source *source, const struct fields *fields, int key, bool *flag)
{
    const struct yaml_value *value = schema_value(fields, key);
    if (value == NULL)
        return false;
    return yaml_flag(value, flag) || expected(source, fields, key, "true or false");
}

/* 010 is eight, as in YAML 1.1; the author may have meant ten. */
static void warn_of_octal(const struct source *source, const struct fields *fields, int key,
                          struct span text, uint32_t number)
{
    size_t zero = text.ptr[0] == '+';
    if (number >= 8 && text.ptr[zero] == '0' && (text.ptr[zero + 1] & 0x40) == 0)
        warnings_add(source->diagnostics, source->path, schema_place(fields, key),
                     "%s: a leading 0 makes %s an octal number, %" PRIu32, fields->shape->keys[key],
                     fault_text(text).text, number);
}

bool schema_units(const struct source *source, const struct fields *fields, int key, uint32_t min,
                  uint32_t *number)
{
    const struct yaml_value *value = schema_value(fields, key);
    struct yaml_whole whole;
    char what[128];
    if (value == NULL || !yaml_whole(value, &whole) || value->is_string || whole.is_negative ||
        (!whole.is_too_large && whole.magnitude <= UNIT_COUNT_MAX))
        return schema_number(source, fields, key, min, number);
    snprintf(what, sizeof(what),
             "a whole number from %u to " UNIT_COUNT_MAX_TEXT " (" UNITS_ADVICE ")", (unsigned)min);
    return expected(source, fields, key, what);
}

bool schema_number(const struct source *source, const struct fields *fields, int key, uint32_t min,
                   uint32_t *number)
{
    const struct yaml_value *value = schema_value(fields, key);
    struct yaml_whole whole;
    char what[64];
    if (value == NULL)
        return false;
    snprintf(what, sizeof(what), "a whole number from %u to %u", (unsigned)min, UINT32_MAX);
    if (!yaml_whole(value, &whole))
        return expected(source, fields, key, what);
    if (value->is_string)
        return expected(source, fields, key, "a number without quotes");
    if (whole.is_too_large || whole.magnitude < min || whole.magnitude > UINT32_MAX ||
        (whole.is_negative && whole.magnitude > 0))
        return expected(source, fields, key, what);
    *number = (uint32_t)whole.magnitude;
    warn_of_octal(source, fields, key, value->text, *number);
    return true;
}

bool schema_duration(const struct source *source, const struct fields *fields, int key,
                     uint64_t *ns)
{
    const struct yaml_value *value = schema_value(fields, key);
    uint64_t read = 0;
    if (value == NULL)
        return false;
    int code = value->kind == YAML_TEXT ? spec_parse_duration(value->text, &read) : STINT_E_SYNTAX;
    if (code == STINT_E_SYNTAX)
        return expected(source, fields, key, "a duration such as 30s, 5m or 36h");
    if (code != STINT_OK || read == 0)
        return expected(source, fields, key,
                        "a duration of whole nanoseconds, above 0 and below 584 years");
    *ns = read;
    return true;
}

/* ASCII letters are enough for the names of choices. */
static bool is_name(struct span text, const char *name)
{
    struct span named = text_span(name);
    if (text.len != named.len)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c >= 'A' && c <= 'Z')
            c = (uint8_t)(c - 'A' + 'a');
        if (c != named.ptr[i])
            return false;
    }
    return true;
}

static void tell_choices(const struct source *source, const struct fields *fields, int key,
                         const char *const *names, size_t n_names)
{
    const struct yaml_value *value = fields->parts[key]->value;
    int nearest = value->kind == YAML_TEXT ? nearest_name(value->text, names, n_names) : -1;
    char text[128];
    struct buf list = buf_of(text, sizeof(text));
    for (size_t i = 0; i < n_names; i++)
        buf_add(&list, "%s%s", i == 0 ? "" : i + 1 < n_names ? ", " : " or ", names[i]);
    schema_fault(source, fields, key, "expected %s, found %s%s%s%s", text, schema_found(value).text,
                 nearest < 0 ? "" : "; did you mean \"", nearest < 0 ? "" : names[nearest],
                 nearest < 0 ? "" : "\"?");
}

bool schema_choice(const struct source *source, const struct fields *fields, int key,
                   const char *const *names, size_t n_names, size_t *choice)
{
    const struct yaml_value *value = schema_value(fields, key);
    if (value == NULL)
        return false;
    for (size_t i = 0; i < n_names && value->kind == YAML_TEXT; i++)
        if (is_name(value->text, names[i])) {
            *choice = i;
            return true;
        }
    tell_choices(source, fields, key, names, n_names);
    return false;
}

bool schema_kept(const struct source *source, const struct fields *fields, int key,
                 uint32_t *kept_units)
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
        return schema_number(source, fields, key, 0, kept_units);
    else
        return expected(source, fields, key,
                        "keep, release or a whole number of units from 0 to 4294967295");
    return true;
}
