/* SPDX-License-Identifier: MIT */
/* `ban`: what happens to a key that is denied again and again. */
#include "rules/yaml/read_limit.h"

#include "rules/ban.h"

#include "base/limits.h"

static const struct rule_ban defaults = {.factor = 1, .max_ns = NS_PER_YEAR};

static void need(const struct source *source, const struct fields *fields, int key,
                 const char *example)
{
    if (schema_value(fields, key) == NULL)
        diagnostics_add(source->diagnostics, source->path, fields->map->place,
                        "ban has no %s; expected such as %s", fields->shape->keys[key], example);
}

/* Errors that only the keys together show, reported where the ban begins. */
static void check_whole(const struct source *source, const struct fields *fields,
                        const struct rule_ban *ban)
{
    struct stint_error error;
    bool is_complete = ban->after > 0 && ban->for_ns > 0;
    if (is_complete && ban->for_ns > ban->max_ns)
        schema_fault(source, fields, BAN_FOR,
                     "it is longer than the longest ban: max, 365 days by default");
    else if (is_complete && ban_check(ban, &error) != 0)
        diagnostics_add(source->diagnostics, source->path, fields->map->place, "ban: %s",
                        error.message);
}

void read_ban(const struct source *source, const struct yaml_value *value, struct rule_ban *ban)
{
    struct fields fields;
    *ban = defaults;
    if (!schema_read(source, &shape_ban, value, &fields))
        return;
    need(source, &fields, BAN_AFTER, "after: 5");
    need(source, &fields, BAN_FOR, "for: 15m");
    schema_number(source, &fields, BAN_AFTER, 1, &ban->after);
    schema_number(source, &fields, BAN_FACTOR, 1, &ban->factor);
    schema_duration(source, &fields, BAN_FOR, &ban->for_ns);
    ban->within_ns = ban->for_ns;
    schema_duration(source, &fields, BAN_WITHIN, &ban->within_ns);
    schema_duration(source, &fields, BAN_MAX, &ban->max_ns);
    check_whole(source, &fields, ban);
}
