/* SPDX-License-Identifier: MIT */
/* Which keys a mapping has; schema_values.c reads their values. */
#include "rules/yaml/schema.h"

#include "algorithm/nearest.h"
#include "algorithm/text.h"

#include <stdarg.h>
#include <stdio.h>

#define MERGES_MAX 8 /* mappings that merge others, one within the other */

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
    struct fault_text shown = fault_text(key->text);
    if (home != NULL)
        diagnostics_add(source->diagnostics, source->path, key->place,
                        "unknown key \"%s\" in %s: it is a key of %s", shown.text, shape->name,
                        home->name);
    else if (nearest >= 0)
        diagnostics_add(source->diagnostics, source->path, key->place,
                        "unknown key \"%s\" in %s; did you mean \"%s\"?", shown.text, shape->name,
                        shape->keys[nearest]);
    else
        diagnostics_add(source->diagnostics, source->path, key->place, "unknown key \"%s\" in %s",
                        shown.text, shape->name);
}

static void read_key(const struct source *source, struct fields *fields,
                     const struct yaml_part *part)
{
    if (part->key->kind != YAML_TEXT) {
        diagnostics_add(source->diagnostics, source->path, part->key->place,
                        "expected the name of a key, found %s", yaml_kind_name(part->key));
        return;
    }
    int key = key_number(fields->shape, part->key->text);
    if (key < 0)
        tell_unknown(source, fields->shape, part->key);
    else if (fields->parts[key] != NULL)
        diagnostics_add(source->diagnostics, source->path, part->key->place,
                        "the key \"%s\" is there already, in line %u", fields->shape->keys[key],
                        (unsigned)fields->parts[key]->key->place.line);
    else
        fields->parts[key] = part;
}

static bool is_merge(const struct yaml_part *part)
{
    return part->key->kind == YAML_TEXT && !part->key->is_string && text_is(part->key->text, "<<");
}

static void read_map(const struct source *source, struct fields *fields,
                     const struct yaml_value *map, unsigned depth);

/* Of several mappings that are merged, the first that has a key counts. */
static void merge(const struct source *source, struct fields *fields,
                  const struct yaml_value *merged, unsigned depth)
{
    struct fields found = {.shape = fields->shape, .map = merged};
    if (merged->kind != YAML_MAP || depth == MERGES_MAX) {
        diagnostics_add(source->diagnostics, source->path, merged->place,
                        "<<: expected a mapping or a list of mappings, %s",
                        depth == MERGES_MAX ? "not nested so deeply" : "found neither");
        return;
    }
    read_map(source, &found, merged, depth + 1);
    for (size_t i = 0; i < fields->shape->n_keys; i++)
        if (fields->parts[i] == NULL)
            fields->parts[i] = found.parts[i];
}

static void read_map(const struct source *source, struct fields *fields,
                     const struct yaml_value *map, unsigned depth)
{
    for (const struct yaml_part *part = map->parts; part != NULL; part = part->next)
        if (!is_merge(part))
            read_key(source, fields, part);
    for (const struct yaml_part *part = map->parts; part != NULL; part = part->next) {
        if (!is_merge(part))
            continue;
        if (part->value->kind != YAML_LIST)
            merge(source, fields, part->value, depth);
        else
            for (const struct yaml_part *item = part->value->parts; item; item = item->next)
                merge(source, fields, item->value, depth);
    }
}

bool schema_read(const struct source *source, const struct shape *shape,
                 const struct yaml_value *value, struct fields *fields)
{
    *fields = (struct fields){.shape = shape, .map = value};
    if (value->kind != YAML_MAP) {
        diagnostics_add(source->diagnostics, source->path, value->place, "expected %s, found %s",
                        shape->article, schema_found(value).text);
        return false;
    }
    read_map(source, fields, value, 0);
    return true;
}

const struct yaml_value *schema_value(const struct fields *fields, int key)
{
    const struct yaml_part *part = fields->parts[key];
    return part == NULL || yaml_is_null(part->value) ? NULL : part->value;
}

struct fault_place schema_place(const struct fields *fields, int key)
{
    const struct yaml_part *part = fields->parts[key];
    return part == NULL ? fields->map->place : part->value->place;
}

void schema_fault(const struct source *source, const struct fields *fields, int key,
                  const char *format, ...)
{
    char message[STINT_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    diagnostics_add(source->diagnostics, source->path, schema_place(fields, key), "%s: %s",
                    fields->shape->keys[key], message);
}
