/* SPDX-License-Identifier: MIT */
/* Typed reading of JSON, with the place in each fault. */
#include "proto/http_json.h"

#include "base/buf.h"
#include "base/ns.h"
#include "core/nearest.h"

#define MEMBERS_MAX 32
#define PLACE_MAX 96

/* jansson's parser calls itself for each level, so levels are counted before it sees them. */
static bool is_too_deep(struct span bytes)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t at = 0; at < bytes.len; at++) {
        uint8_t c = bytes.ptr[at];
        if (in_string && c == '\\')
            at++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '[') && ++depth > HTTP_JSON_DEPTH_MAX)
            return true;
        else if (!in_string && (c == '}' || c == ']') && depth > 0)
            depth--;
    }
    return false;
}

json_t *http_json_object(struct span bytes, struct stint_error *error)
{
    json_error_t fault;
    if (is_too_deep(bytes)) {
        err_set(error, STINT_E_SYNTAX, "JSON: more than %d levels", HTTP_JSON_DEPTH_MAX);
        return NULL;
    }
    json_t *root = json_loadb((const char *)bytes.ptr, bytes.len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    if (root == NULL) {
        err_set(error, STINT_E_SYNTAX, "JSON, line %d, column %d: %.150s", fault.line, fault.column,
                fault.text);
        return NULL;
    }
    if (!json_is_object(root)) {
        err_set(error, STINT_E_SYNTAX, "JSON: expected an object, {…}");
        json_decref(root);
        return NULL;
    }
    return root;
}

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

int http_json_fault(const struct http_place *place, const char *sentence, struct stint_error *error)
{
    char text[PLACE_MAX];
    struct buf buf = buf_of(text, sizeof(text));
    write_place(&buf, place);
    return err_set(error, STINT_E_SYNTAX, "%s%s%s", text, buf.len > 0 ? ": " : "", sentence);
}

static const char *kind_of(const json_t *value)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object",
        [JSON_ARRAY] = "an array",
        [JSON_STRING] = "a string",
        [JSON_INTEGER] = "this number",
        [JSON_REAL] = "a number with a fraction or an exponent",
        [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",
        [JSON_NULL] = "null",
    };
    return kinds[json_typeof(value)];
}

int http_json_expected(const struct http_place *place, const char *what, const json_t *found,
                       struct stint_error *error)
{
    char sentence[STINT_ERROR_MAX];
    struct buf buf = buf_of(sentence, sizeof(sentence));
    buf_add(&buf, "expected %s, not %s", what, kind_of(found));
    return http_json_fault(place, sentence, error);
}

int http_json_text(const json_t *value, const struct http_place *place, struct span *text,
                   struct stint_error *error)
{
    if (!json_is_string(value))
        return http_json_expected(place, "a string", value, error);
    *text = span_of(json_string_value(value), json_string_length(value));
    return 0;
}

int http_json_u32(const json_t *value, const struct http_place *place, uint32_t *number,
                  struct stint_error *error)
{
    json_int_t integer = json_integer_value(value);
    if (!json_is_integer(value) || integer < 0 || integer > UINT32_MAX)
        return http_json_expected(place, "a whole number of 0 to 4294967295", value, error);
    *number = (uint32_t)integer;
    return 0;
}

int http_json_ms(const json_t *value, const struct http_place *place, uint64_t most_ms,
                 uint64_t *ns, struct stint_error *error)
{
    json_int_t integer = json_integer_value(value);
    if (!json_is_integer(value) || integer < 0 || (uint64_t)integer > most_ms) {
        char what[80];
        struct buf buf = buf_of(what, sizeof(what));
        buf_add(&buf, "a whole number of milliseconds, 0 to %llu", (unsigned long long)most_ms);
        return http_json_expected(place, what, value, error);
    }
    *ns = (uint64_t)integer * NS_PER_MS;
    return 0;
}

int http_json_bool(const json_t *value, const struct http_place *place, bool *yes,
                   struct stint_error *error)
{
    if (!json_is_boolean(value))
        return http_json_expected(place, "true or false", value, error);
    *yes = json_is_true(value);
    return 0;
}

int http_json_stamp(const json_t *value, const struct http_place *place, uint64_t *at_ns,
                    struct stint_error *error)
{
    struct span text = {0};
    int code = http_json_text(value, place, &text, error);
    if (code < 0)
        return code;
    *at_ns = 0;
    bool is_good = text.len > 0;
    for (size_t i = 0; i < text.len && is_good; i++) {
        is_good = text.ptr[i] >= '0' && text.ptr[i] <= '9';
        *at_ns = *at_ns * 10 + (uint64_t)(text.ptr[i] - '0');
        is_good = is_good && *at_ns <= STINT_NOW_MAX;
    }
    if (!is_good)
        return http_json_fault(place, "expected the \"at\" of a reply, a string of digits", error);
    return 0;
}

static int unknown_member(const char *name, const struct http_place *place,
                          const struct http_member *members, size_t n_members, uint32_t allowed,
                          struct stint_error *error)
{
    const char *names[MEMBERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < n_members && n < MEMBERS_MAX; i++)
        if (allowed & (UINT32_C(1) << i))
            names[n++] = members[i].name;
    int nearest = nearest_name(span_of_text(name), names, n);
    char sentence[STINT_ERROR_MAX];
    struct buf buf = buf_of(sentence, sizeof(sentence));
    buf_add(&buf, "no member \"%.60s\" is known here", name);
    if (nearest >= 0)
        buf_add(&buf, "; did you mean \"%s\"?", names[nearest]);
    return http_json_fault(place, sentence, error);
}

static size_t find_member(const char *name, const struct http_member *members, size_t n_members)
{
    size_t i = 0;
    while (i < n_members && strcmp(name, members[i].name) != 0 &&
           (members[i].other_name == NULL || strcmp(name, members[i].other_name) != 0))
        i++;
    return i;
}

int http_json_members(const json_t *object, const struct http_place *place,
                      const struct http_member *members, size_t n_members, uint32_t allowed,
                      uint32_t *seen, void *state, struct stint_error *error)
{
    *seen = 0;
    if (!json_is_object(object))
        return http_json_expected(place, "an object", object, error);
    /* jansson iterates over what it does not change; its functions are not const. */
    json_t *iterated = (json_t *)(uintptr_t)object;
    for (void *at = json_object_iter(iterated); at != NULL;
         at = json_object_iter_next(iterated, at)) {
        const char *name = json_object_iter_key(at);
        size_t i = find_member(name, members, n_members);
        if (i == n_members || (allowed & (UINT32_C(1) << i)) == 0)
            return unknown_member(name, place, members, n_members, allowed, error);
        if (*seen & (UINT32_C(1) << i))
            return http_json_fault(place, "a member came under both of its names", error);
        *seen |= UINT32_C(1) << i;
        struct http_place inner = {place, members[i].name, 0};
        int code = members[i].read(state, json_object_iter_value(at), &inner, error);
        if (code < 0)
            return code;
    }
    return 0;
}
