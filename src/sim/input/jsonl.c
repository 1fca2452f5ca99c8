/* SPDX-License-Identifier: MIT */
/* Parses with jansson. Of members with one name the last counts, as in most readers of JSON. */
#include "sim/input/jsonl.h"

#include "base/buf.h"
#include "base/limits.h"
#include "sim/input/json_repair.h"
#include "sim/input/timestamp.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define MEMBERS_SIZE 120 /* bytes of a message for the names of members */

int jsonl_init(struct jsonl *jsonl, const struct jsonl_options *options, struct stint_error *error)
{
    memset(jsonl, 0, sizeof(*jsonl));
    jsonl->time = options->time;
    jsonl->cost = options->cost;
    size_t size = strlen(options->key) + 1;
    jsonl->names = malloc(size);
    if (jsonl->names == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    memcpy(jsonl->names, options->key, size);
    for (char *from = jsonl->names; from != NULL;) {
        char *plus = strchr(from, '+');
        if (plus != NULL)
            *plus++ = '\0';
        if (*from == '\0' || jsonl->n_members == JOINED_KEY_PARTS_MAX) {
            jsonl_deinit(jsonl);
            return err_set(error, STINT_E_SYNTAX,
                           "'%s' is no key: expected 1 to %d names of members, joined by +",
                           options->key, JOINED_KEY_PARTS_MAX);
        }
        jsonl->members[jsonl->n_members++] = from;
        from = plus;
    }
    return 0;
}

void jsonl_deinit(struct jsonl *jsonl)
{
    json_decref(jsonl->object);
    free(jsonl->names);
    free(jsonl->repaired);
    jsonl->object = NULL;
    jsonl->names = NULL;
    jsonl->repaired = NULL;
    jsonl->repaired_size = 0;
}

/* The members of the line help to choose another one. */
static int no_member(const struct jsonl *jsonl, const char *name, const char *expected,
                     struct stint_error *error)
{
    char members[MEMBERS_SIZE] = "";
    struct buf buf = buf_of(members, sizeof(members));
    const char *member;
    json_t *value;
    if (json_object_get(jsonl->object, name) != NULL)
        return err_set(error, STINT_E_SYNTAX, "the member \"%s\" is not %s", name, expected);
    json_object_foreach(jsonl->object, member, value)
    {
        buf_add(&buf, "%s\"%s\"", buf.len > 0 ? ", " : "", member);
    }
    return err_set(error, STINT_E_SYNTAX, "the member \"%s\", %s, is not there; found %s%s", name,
                   expected, members[0] != '\0' ? members : "none",
                   buf.len >= sizeof(members) ? "..." : "");
}

/*
 * JSON numbers arrive as doubles. The shortest decimal that reads back as the same double is the
 * writer's number, up to 15 digits; longer times belong into strings.
 */
static int parse_real_seconds(struct timestamp *timestamp, double seconds,
                              struct stint_error *error)
{
    char text[64];
    int len = -1;
    if (seconds >= 0 && seconds < (double)TIMESTAMP_MAX_NS)
        for (int decimals = 0; decimals <= 9; decimals++) {
            len = snprintf(text, sizeof(text), "%.*f", decimals, seconds);
            if (strtod(text, NULL) == seconds)
                break;
        }
    return timestamp_parse_seconds(timestamp, span_of(text, len < 0 ? 0 : (size_t)len), error);
}

static int parse_time(const struct jsonl *jsonl, struct timestamp *timestamp,
                      struct stint_error *error)
{
    const json_t *value = json_object_get(jsonl->object, jsonl->time);
    if (json_is_integer(value)) {
        json_int_t seconds = json_integer_value(value);
        char text[32];
        int len = snprintf(text, sizeof(text), "%lld", (long long)seconds);
        return timestamp_parse_seconds(timestamp, span_of(text, (size_t)len), error);
    }
    if (json_is_real(value))
        return parse_real_seconds(timestamp, json_real_value(value), error);
    if (!json_is_string(value))
        return no_member(jsonl, jsonl->time, "a time", error);
    struct span text = span_of(json_string_value(value), json_string_length(value));
    bool dated = memchr(text.ptr, '-', text.len) != NULL;
    return dated ? timestamp_parse_rfc3339(timestamp, text, error)
                 : timestamp_parse_seconds(timestamp, text, error);
}

/* With the fewest digits that are read back as the same number: 1.1, not 1.1000000000000001. */
static struct span write_number(const json_t *value, char text[JSONL_NUMBER_SIZE])
{
    size_t len = 0;
    for (unsigned digits = 15; digits <= 17; digits++) {
        len = json_dumpb(value, text, JSONL_NUMBER_SIZE - 1,
                         JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        text[len] = '\0';
        if (json_is_integer(value) || strtod(text, NULL) == json_real_value(value))
            break;
    }
    return span_of(text, len);
}

/* Text as it is; numbers and booleans as JSON writes them. */
static int parse_part(struct jsonl *jsonl, size_t i, struct span *part, struct stint_error *error)
{
    const json_t *value = json_object_get(jsonl->object, jsonl->members[i]);
    if (json_is_string(value))
        *part = span_of(json_string_value(value), json_string_length(value));
    else if (json_is_boolean(value))
        *part = span_of_text(json_is_true(value) ? "true" : "false");
    else if (json_is_number(value))
        *part = write_number(value, jsonl->numbers[i]);
    else
        return no_member(jsonl, jsonl->members[i], "text, a number or a boolean", error);
    return 0;
}

static int parse_members(struct jsonl *jsonl, struct event *event, struct stint_error *error)
{
    struct timestamp timestamp;
    int code = parse_time(jsonl, &timestamp, error);
    if (code != 0)
        return code;
    struct span parts[JOINED_KEY_PARTS_MAX], key;
    for (size_t i = 0; i < jsonl->n_members; i++) {
        code = parse_part(jsonl, i, &parts[i], error);
        if (code != 0)
            return code;
    }
    code = joined_key_make(&jsonl->joined, &key, parts, jsonl->n_members, error);
    if (code != 0)
        return code;
    json_int_t cost = 1;
    if (jsonl->cost != NULL) {
        const json_t *value = json_object_get(jsonl->object, jsonl->cost);
        cost = json_is_integer(value) ? json_integer_value(value) : -1;
        if (cost > UNIT_COUNT_MAX)
            return no_member(jsonl, jsonl->cost,
                             "at most " UNIT_COUNT_MAX_TEXT " (" UNITS_ADVICE ")", error);
        if (cost < 0)
            return no_member(jsonl, jsonl->cost, "a whole number from 0 to 4294967295", error);
    }
    *event = (struct event){timestamp.ns, key, (uint32_t)cost, timestamp.decimals};
    return EVENT_FOUND;
}

static json_t *load(const void *bytes, size_t len, json_error_t *why)
{
    return json_loadb(bytes, len, JSON_ALLOW_NUL, why);
}

/* NULL if it is no JSON then, either, or if there is no memory. */
static json_t *load_repaired(struct jsonl *jsonl, struct span line)
{
    size_t size = JSON_REPAIR_GROWTH * line.len;
    if (jsonl->repaired_size < size) {
        free(jsonl->repaired);
        jsonl->repaired = malloc(size);
        jsonl->repaired_size = jsonl->repaired != NULL ? size : 0;
    }
    return jsonl->repaired != NULL ? load(jsonl->repaired, json_repair(line, jsonl->repaired), NULL)
                                   : NULL;
}

int jsonl_parse(struct jsonl *jsonl, struct event *event, struct span line,
                struct stint_error *error)
{
    size_t blanks = 0;
    while (blanks < line.len && (line.ptr[blanks] == ' ' || line.ptr[blanks] == '\t'))
        blanks++;
    if (blanks == line.len)
        return EVENT_NONE;
    json_error_t why;
    json_decref(jsonl->object);
    jsonl->object = load(line.ptr, line.len, &why);
    if (jsonl->object == NULL)
        jsonl->object = load_repaired(jsonl, line);
    if (jsonl->object == NULL)
        return err_set(error, STINT_E_SYNTAX, "expected a JSON object: %s at column %d", why.text,
                       why.column);
    if (!json_is_object(jsonl->object))
        return err_set(error, STINT_E_SYNTAX, "expected a JSON object, found another value");
    return parse_members(jsonl, event, error);
}
