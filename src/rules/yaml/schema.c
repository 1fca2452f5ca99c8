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

#define MERGES_MAX 8 /* mappings that merge others, one within the other */

/* ---- Keys ------------------------------------------------------------------------------------ */

#define KEYS(names) .keys = (names), .n_keys = sizeof(names) / sizeof((names)[0])

static const char *const file_keys[] = {
    [FILE_DOMAIN] = "domain",
    [FILE_STORE_TAG] = "store_tag",
    [FILE_DESCRIPTORS] = "descriptors",
};

static const char *const entry_keys[] = {
    [ENTRY_KEY] = "key",
    [ENTRY_VALUE] = "value",
    [ENTRY_RATE_LIMIT] = "rate_limit",
    [ENTRY_SHADOW] = "shadow",
    [ENTRY_BAN] = "ban",
    [ENTRY_DESCRIPTORS] = "descriptors",
    [ENTRY_METADATA] = "metadata",
    [ENTRY_SHADOW_MODE] = "shadow_mode",
    [ENTRY_QUOTA_MODE] = "quota_mode",
    [ENTRY_DETAILED_METRIC] = "detailed_metric",
    [ENTRY_VALUE_TO_METRIC] = "value_to_metric",
    [ENTRY_SHARE_THRESHOLD] = "share_threshold",
};

static const char *const limit_keys[] = {
    [LIMIT_REQUESTS_PER_UNIT] = "requests_per_unit",
    [LIMIT_UNIT] = "unit",
    [LIMIT_PERIOD] = "period",
    [LIMIT_ALGORITHM] = "algorithm",
    [LIMIT_CALENDAR] = "calendar",
    [LIMIT_UTC_OFFSET] = "utc_offset",
    [LIMIT_BURST] = "burst",
    [LIMIT_RESOLUTION] = "resolution",
    [LIMIT_TIME_SLACK] = "time_slack",
    [LIMIT_COUNT_SLACK] = "count_slack",
    [LIMIT_LEASE] = "lease",
    [LIMIT_COUNT_DENIED] = "count_denied",
    [LIMIT_WHEN_FULL] = "when_full",
    [LIMIT_NAME] = "name",
    [LIMIT_REPLACES] = "replaces",
    [LIMIT_UNLIMITED] = "unlimited",
    [LIMIT_ON_STORE_ERROR] = "on_store_error",
    [LIMIT_STORE] = "store",
    [LIMIT_LEASE_UNITS] = "lease_units",
    [LIMIT_LEASE_TERM] = "lease_term",
    [LIMIT_LOCAL_START] = "local_start",
    [LIMIT_LOCAL_FOR] = "local_for",
    [LIMIT_LOCAL_THEN] = "local_then",
    [LIMIT_HITS] = "hits",
    [LIMIT_ON_EXPIRY] = "on_expiry",
};

static const char *const ban_keys[] = {
    [BAN_AFTER] = "after",   [BAN_FOR] = "for", [BAN_WITHIN] = "within",
    [BAN_FACTOR] = "factor", [BAN_MAX] = "max",
};

static const char *const replaces_keys[] = {[REPLACES_NAME] = "name"};

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
    else if (fields->parts[key] != NULL)
        diagnostics_add(fields->source, part->key->position,
                        "the key \"%s\" is there already, in line %u", fields->shape->keys[key],
                        (unsigned)fields->parts[key]->key->position.line);
    else
        fields->parts[key] = part;
}

static bool is_merge(const struct yaml_part *part)
{
    return part->key->kind == YAML_TEXT && !part->key->is_string && text_is(part->key->text, "<<");
}

static void read_map(struct fields *fields, const struct yaml_value *map, unsigned depth);

/* Of several mappings that are merged, the first that has a key counts. */
static void merge(struct fields *fields, const struct yaml_value *merged, unsigned depth)
{
    struct fields found = {.source = fields->source, .shape = fields->shape, .map = merged};
    if (merged->kind != YAML_MAP || depth == MERGES_MAX) {
        diagnostics_add(fields->source, merged->position,
                        "<<: expected a mapping or a list of mappings, %s",
                        depth == MERGES_MAX ? "not nested so deeply" : "found neither");
        return;
    }
    read_map(&found, merged, depth + 1);
    for (size_t i = 0; i < fields->shape->n_keys; i++)
        if (fields->parts[i] == NULL)
            fields->parts[i] = found.parts[i];
}

static void read_map(struct fields *fields, const struct yaml_value *map, unsigned depth)
{
    for (const struct yaml_part *part = map->parts; part != NULL; part = part->next)
        if (!is_merge(part))
            read_key(fields, part);
    for (const struct yaml_part *part = map->parts; part != NULL; part = part->next) {
        if (!is_merge(part))
            continue;
        if (part->value->kind != YAML_LIST)
            merge(fields, part->value, depth);
        else
            for (const struct yaml_part *item = part->value->parts; item; item = item->next)
                merge(fields, item->value, depth);
    }
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
    read_map(fields, value, 0);
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

/* Reads the values of keys: texts, flags, numbers, durations, choices. */

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
