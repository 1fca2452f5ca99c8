/* SPDX-License-Identifier: MIT */
/* Typed reading of JSON, with the position in each error. */
#include "proto/http/http_json.h"

#include "algorithm/nearest.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/ns.h"

#define MEMBERS_MAX 32
#define PLACE_MAX 96
#define NAME_SHOWN_MAX 60

static void write_place(struct buf *buf, const struct http_place *place)
{
    if (place == NULL)
        return;
    write_place(buf, place->in);
    if (place->name != NULL)
        buf_add(buf, "%s%s", buf->len > 0 ? "." : "", place->name);
    else
        buf_add(buf, "[%zu]", place->index);
}

int http_json_fault(const struct http_place *place, const char *message, struct stint_error *error)
{
    char text[PLACE_MAX];
    struct buf buf = buf_of(text, sizeof(text));
    write_place(&buf, place);
    return err_set(error, STINT_E_SYNTAX, "%s%s%s", text, buf.len > 0 ? ": " : "", message);
}

static const char *kind_of(const struct http_json_node *value)
{
    static const char *const kinds[] = {
        [HTTP_JSON_OBJECT] = "an object",
        [HTTP_JSON_ARRAY] = "an array",
        [HTTP_JSON_STRING] = "a string",
        [HTTP_JSON_INTEGER] = "this number",
        [HTTP_JSON_REAL] = "a number that is not whole, or too large",
        [HTTP_JSON_TRUE] = "true",
        [HTTP_JSON_FALSE] = "false",
        [HTTP_JSON_NULL] = "null",
    };
    return kinds[value->kind];
}

int http_json_expected(const struct http_place *place, const char *what,
                       const struct http_json_node *found, struct stint_error *error)
{
    char message[STINT_ERROR_MAX];
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "expected %s, not %s", what, kind_of(found));
    return http_json_fault(place, message, error);
}

int http_json_text(const struct http_json_node *value, const struct http_place *place,
                   struct span *text, struct stint_error *error)
{
    if (value->kind != HTTP_JSON_STRING)
        return http_json_expected(place, "a string", value, error);
    *text = span_of(value->text, value->count);
    return 0;
}

int http_json_u32(const struct http_json_node *value, const struct http_place *place,
                  uint32_t *number, struct stint_error *error)
{
    bool is_integer = value->kind == HTTP_JSON_INTEGER;
    if (is_integer && value->integer > UNIT_COUNT_MAX)
        return http_json_fault(
            place, "expected a whole number of 0 to " UNIT_COUNT_MAX_TEXT "; " UNITS_ADVICE, error);
    if (!is_integer || value->integer < 0)
        return http_json_expected(place, "a whole number of 0 to " UNIT_COUNT_MAX_TEXT, value,
                                  error);
    *number = (uint32_t)value->integer;
    return 0;
}

int http_json_ms(const struct http_json_node *value, const struct http_place *place,
                 uint64_t most_ms, uint64_t *ns, struct stint_error *error)
{
    bool is_integer = value->kind == HTTP_JSON_INTEGER;
    if (!is_integer || value->integer < 0 || (uint64_t)value->integer > most_ms) {
        char what[80];
        struct buf buf = buf_of(what, sizeof(what));
        buf_add(&buf, "a whole number of milliseconds, 0 to %llu", (unsigned long long)most_ms);
        return http_json_expected(place, what, value, error);
    }
    *ns = (uint64_t)value->integer * NS_PER_MS;
    return 0;
}

int http_json_bool(const struct http_json_node *value, const struct http_place *place, bool *yes,
                   struct stint_error *error)
{
    if (value->kind != HTTP_JSON_TRUE && value->kind != HTTP_JSON_FALSE)
        return http_json_expected(place, "true or false", value, error);
    *yes = value->kind == HTTP_JSON_TRUE;
    return 0;
}

int http_json_stamp(const struct http_json_node *value, const struct http_place *place,
                    uint64_t most_ns, uint64_t *at_ns, struct stint_error *error)
{
    struct span text = {0};
    int code = http_json_text(value, place, &text, error);
    if (code < 0)
        return code;
    *at_ns = 0;
    bool is_good = text.len > 0;
    for (size_t i = 0; i < text.len && is_good; i++) {
        unsigned digit = text.ptr[i] - (unsigned)'0';
        is_good = digit <= 9 && *at_ns <= (most_ns - digit) / 10;
        *at_ns = *at_ns * 10 + digit;
    }
    if (!is_good)
        return http_json_fault(place, "expected the \"at\" of a reply, a string of digits", error);
    return 0;
}

int http_json_array(const struct http_json_node *value, const struct http_place *place, size_t most,
                    const char *what, struct stint_error *error)
{
    if (value->kind == HTTP_JSON_ARRAY && value->count >= 1 && value->count <= most)
        return 0;
    char message[80];
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "expected an array of 1 to %zu %s", most, what);
    return http_json_fault(place, message, error);
}

static int unknown_member(struct span name, const struct http_place *place,
                          const struct http_member *members, size_t n_members, uint32_t allowed,
                          struct stint_error *error)
{
    const char *names[MEMBERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < n_members && n < MEMBERS_MAX; i++)
        if (allowed & (UINT32_C(1) << i))
            names[n++] = members[i].name;
    int nearest = nearest_name(name, names, n);
    char message[STINT_ERROR_MAX];
    struct buf buf = buf_of(message, sizeof(message));
    int shown = name.len < NAME_SHOWN_MAX ? (int)name.len : NAME_SHOWN_MAX;
    buf_add(&buf, "no member \"%.*s\" is known here", shown, (const char *)name.ptr);
    if (nearest >= 0)
        buf_add(&buf, "; did you mean \"%s\"?", names[nearest]);
    return http_json_fault(place, message, error);
}

/* Most names differ in their first letter, so it is compared before the length. */
static bool is_named(struct span name, const char *text)
{
    return name.len > 0 && name.ptr[0] == (uint8_t)text[0] && span_equals(name, text);
}

static size_t find_member(struct span name, const struct http_member *members, size_t n_members)
{
    size_t i = 0;
    while (i < n_members && !is_named(name, members[i].name) &&
           (members[i].other_name == NULL || !is_named(name, members[i].other_name)))
        i++;
    return i;
}

int http_json_members(const struct http_json_node *object, const struct http_place *place,
                      const struct http_member *members, size_t n_members, uint32_t allowed,
                      uint32_t *seen, void *state, struct stint_error *error)
{
    *seen = 0;
    if (object->kind != HTTP_JSON_OBJECT)
        return http_json_expected(place, "an object", object, error);
    const struct http_json_node *node = http_json_first(object);
    for (uint32_t left = object->count; left > 0; left--) {
        struct span name = span_of(node->text, node->count);
        const struct http_json_node *value = http_json_after(node);
        size_t i = find_member(name, members, n_members);
        if (i == n_members || (allowed & (UINT32_C(1) << i)) == 0)
            return unknown_member(name, place, members, n_members, allowed, error);
        struct http_place inner = {place, members[i].name, 0};
        if (*seen & (UINT32_C(1) << i))
            return http_json_fault(&inner, "came twice", error);
        *seen |= UINT32_C(1) << i;
        int code = members[i].read(state, value, &inner, error);
        if (code < 0)
            return code;
        node = http_json_after(value);
    }
    return 0;
}
