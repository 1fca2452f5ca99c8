/* SPDX-License-Identifier: MIT */
/*
 * JSON to an array of nodes, in one pass and without recursion, and typed reading of these.
 *
 * A parser of our own: the library used elsewhere took three fifths of a POST's time, mostly for
 * memory that is freed at once. docs/decisions/0019; fuzz/http_json.c compares the two.
 */
#include "proto/http/http_json.h"

#include "algorithm/suggest.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/number.h"
#include "base/utf8.h"

#include <stdlib.h>

#define EXPONENT_FAR (INT64_C(1) << 40) /* beyond it a value is 0, or no integer */
#define MEMBERS_MAX 32
#define PLACE_MAX 96
#define NAME_SHOWN_MAX 60

/* ---- Parsing --------------------------------------------------------------------------------- */

struct parse {
    struct http_json *json;
    const uint8_t *begin, *at, *end;
    struct http_json_node *open[HTTP_JSON_DEPTH_MAX];
    size_t depth;
    const char *fault; /* NULL: none yet */
};

void http_json_deinit(struct http_json *json)
{
    free(json->space);
    json->space = NULL;
    json->space_size = 0;
}

static bool fail(struct parse *parse, const char *fault)
{
    if (parse->fault == NULL)
        parse->fault = fault;
    return false;
}

/* Columns count bytes, from 1. */
static int tell_fault(const struct parse *parse, struct stint_error *error)
{
    size_t line = 1, column = 1;
    for (const uint8_t *c = parse->begin; c < parse->at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return err_set(error, STINT_E_SYNTAX, "JSON, line %zu, column %zu: %s", line, column,
                   parse->fault);
}

static void skip_blanks(struct parse *parse)
{
    while (parse->at < parse->end &&
           (*parse->at == ' ' || *parse->at == '\n' || *parse->at == '\r' || *parse->at == '\t'))
        parse->at++;
}

static struct http_json_node *add_node(struct parse *parse, enum http_json_kind kind)
{
    struct http_json *json = parse->json;
    if (json->n_nodes == HTTP_JSON_NODES_MAX) {
        fail(parse, "more values than a request has");
        return NULL;
    }
    struct http_json_node *node = &json->nodes[json->n_nodes++];
    node->text = NULL;
    node->count = 0;
    node->skip = 1;
    node->kind = (uint8_t)kind;
    return node;
}

/* ---- Strings --------------------------------------------------------------------------------- */

/* Advances to a quote or a backslash; false for bytes that no string may contain. */
static bool skip_plain(struct parse *parse)
{
    for (;;) {
        const uint8_t *at = parse->at;
        while (at < parse->end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
            at++;
        parse->at = at;
        if (at == parse->end)
            return fail(parse, "a string without an end");
        if (*at == '"' || *at == '\\')
            return true;
        if (*at < 0x20)
            return fail(parse, "a control character in a string");
        size_t n = utf8_length(parse->at, (size_t)(parse->end - parse->at));
        if (n == 0)
            return fail(parse, "text that is not UTF-8");
        parse->at += n;
    }
}

/* The four digits after "\u", or -1. */
static int32_t read_unit(struct parse *parse)
{
    int32_t unit = 0;
    if (parse->end - parse->at < 6 || parse->at[0] != '\\' || parse->at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int digit = number_hex_digit(parse->at[i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    parse->at += 6;
    return unit;
}

/* At most four bytes, never more than the escape has. */
static size_t write_utf8(uint8_t *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xc0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xe0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

static bool read_unicode(struct parse *parse, uint8_t *out, size_t *len)
{
    int32_t unit = read_unit(parse);
    if (unit < 0)
        return fail(parse, "expected four hexadecimal digits after \\u");
    uint32_t code = (uint32_t)unit;
    if (code >= 0xd800 && code < 0xe000) {
        int32_t low = code < 0xdc00 ? read_unit(parse) : -1;
        if (low < 0xdc00 || low >= 0xe000)
            return fail(parse, "half of a pair of \\u escapes");
        code = 0x10000 + ((code - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
    }
    *len += write_utf8(out + *len, code);
    return true;
}

static bool read_escape(struct parse *parse, uint8_t *out, size_t *len)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    if (parse->end - parse->at >= 2 && parse->at[1] == 'u')
        return read_unicode(parse, out, len);
    const char *name =
        parse->end - parse->at < 2 || parse->at[1] == '\0' ? NULL : strchr(names, parse->at[1]);
    if (name == NULL)
        return fail(parse, "an unknown escape");
    out[(*len)++] = (uint8_t)bytes[name - names];
    parse->at += 2;
    return true;
}

/* All strings of a document together are shorter than it, so their memory never moves while it is
 * read. */
static bool make_space(struct parse *parse)
{
    struct http_json *json = parse->json;
    size_t size = (size_t)(parse->end - parse->begin);
    if (json->space_len > 0 || json->space_size >= size)
        return true;
    uint8_t *space = realloc(json->space, size);
    if (space == NULL)
        return fail(parse, "no memory for so long a text");
    json->space = space;
    json->space_size = size;
    return true;
}

/* Reads the rest of a string that begins at the quote at `from`, from its first escape on. */
static bool read_escaped(struct parse *parse, const uint8_t *from, struct http_json_node *node)
{
    struct http_json *json = parse->json;
    if (!make_space(parse))
        return false;
    uint8_t *out = json->space + json->space_len;
    size_t len = (size_t)(parse->at - from);
    memcpy(out, from, len);
    while (*parse->at != '"') {
        if (!read_escape(parse, out, &len))
            return false;
        const uint8_t *plain = parse->at;
        if (!skip_plain(parse))
            return false;
        memcpy(out + len, plain, (size_t)(parse->at - plain));
        len += (size_t)(parse->at - plain);
    }
    node->text = out;
    node->count = (uint32_t)len;
    json->space_len += len;
    return true;
}

static bool read_string(struct parse *parse)
{
    struct http_json_node *node = add_node(parse, HTTP_JSON_STRING);
    const uint8_t *from = ++parse->at;
    if (node == NULL || !skip_plain(parse))
        return false;
    node->text = from;
    node->count = (uint32_t)(parse->at - from);
    if (*parse->at == '\\' && !read_escaped(parse, from, node))
        return false;
    parse->at++;
    return true;
}

/* ---- Numbers and words ----------------------------------------------------------------------- */

static size_t skip_digits(struct parse *parse)
{
    const uint8_t *from = parse->at;
    while (parse->at < parse->end && *parse->at >= '0' && *parse->at <= '9')
        parse->at++;
    return (size_t)(parse->at - from);
}

static bool is_at(const struct parse *parse, uint8_t c)
{
    return parse->at < parse->end && *parse->at == c;
}

/* The exponent, limited to a size that no document is long enough to compensate. */
static bool read_exponent(struct parse *parse, int64_t *exponent)
{
    bool is_negative = false;
    parse->at++;
    if (is_at(parse, '+') || is_at(parse, '-'))
        is_negative = *parse->at++ == '-';
    const uint8_t *from = parse->at;
    size_t n_digits = skip_digits(parse);
    if (n_digits == 0)
        return fail(parse, "expected digits in the exponent");
    int64_t read = 0;
    for (size_t i = 0; i < n_digits; i++)
        if (read < EXPONENT_FAR)
            read = read * 10 + (from[i] - '0');
    *exponent = is_negative ? -read : read;
    return true;
}

static const char too_big[] =
    "too big an integer; units go up to " UNIT_COUNT_MAX_TEXT ", " UNITS_ADVICE;

/* Summed as a negative number: their range is larger by one. */
static bool add_digits(int64_t *sum, const uint8_t *digits, size_t n_digits)
{
    for (size_t i = 0; i < n_digits; i++)
        if (__builtin_mul_overflow(*sum, 10, sum) ||
            __builtin_sub_overflow(*sum, digits[i] - '0', sum))
            return false;
    return true;
}

/*
 * 1.0, 10e-1 and 1e0 are the integer 1: only the value counts. `fraction` are the digits after the
 * point. The value is both rows of digits times 10 to the power of exponent - n_fraction.
 */
static bool whole_value(struct span digits, struct span fraction, int64_t exponent, int64_t *sum)
{
    static const uint8_t zero[] = {'0'};
    while (fraction.len > 0 && fraction.ptr[fraction.len - 1] == '0')
        fraction.len--;
    while (fraction.len == 0 && digits.len > 1 && exponent < 0 &&
           digits.ptr[digits.len - 1] == '0') {
        digits.len--;
        exponent++;
    }
    exponent -= (int64_t)fraction.len;
    if (!add_digits(sum, digits.ptr, digits.len) || !add_digits(sum, fraction.ptr, fraction.len))
        return false;
    if (*sum == 0)
        return true;
    while (exponent > 0 && add_digits(sum, zero, 1))
        exponent--;
    return exponent == 0;
}

static bool set_integer(struct http_json_node *node, int64_t sum, bool is_negative)
{
    if (!is_negative && __builtin_sub_overflow(INT64_C(0), sum, &sum))
        return false;
    node->integer = sum;
    return true;
}

static bool read_number_into(struct parse *parse, struct http_json_node *node)
{
    bool is_negative = *parse->at == '-';
    parse->at += is_negative;
    struct span digits = span_of(parse->at, 0), fraction = digits;
    int64_t exponent = 0, sum = 0;
    digits.len = skip_digits(parse);
    if (digits.len == 0 || (digits.len > 1 && digits.ptr[0] == '0'))
        return fail(parse, "expected a value");
    if (!is_at(parse, '.') && !is_at(parse, 'e') && !is_at(parse, 'E'))
        return (add_digits(&sum, digits.ptr, digits.len) && set_integer(node, sum, is_negative)) ||
               fail(parse, too_big);
    if (is_at(parse, '.')) {
        fraction = span_of(++parse->at, 0);
        fraction.len = skip_digits(parse);
        if (fraction.len == 0)
            return fail(parse, "expected digits after the point");
    }
    if ((is_at(parse, 'e') || is_at(parse, 'E')) && !read_exponent(parse, &exponent))
        return false;
    if (!whole_value(digits, fraction, exponent, &sum) || !set_integer(node, sum, is_negative))
        node->kind = HTTP_JSON_REAL;
    return true;
}

static bool read_number(struct parse *parse)
{
    struct http_json_node *node = add_node(parse, HTTP_JSON_INTEGER);
    return node != NULL && read_number_into(parse, node);
}

bool http_json_number(struct span text, int64_t *number)
{
    struct http_json_node node = {.kind = HTTP_JSON_INTEGER};
    struct parse parse = {.begin = text.ptr, .at = text.ptr, .end = span_end(text)};
    bool is_good = text.len > 0 && read_number_into(&parse, &node) && parse.at == parse.end &&
                   node.kind == HTTP_JSON_INTEGER;
    if (is_good)
        *number = node.integer;
    return is_good;
}

static bool read_word(struct parse *parse)
{
    static const struct {
        const char *word;
        size_t len;
        enum http_json_kind kind;
    } words[] = {
        {"true", 4, HTTP_JSON_TRUE},
        {"false", 5, HTTP_JSON_FALSE},
        {"null", 4, HTTP_JSON_NULL},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if ((size_t)(parse->end - parse->at) < words[i].len ||
            memcmp(parse->at, words[i].word, words[i].len) != 0)
            continue;
        parse->at += words[i].len;
        return add_node(parse, words[i].kind) != NULL;
    }
    return fail(parse, "expected a value");
}

/* ---- Objects and arrays ---------------------------------------------------------------------- */

static bool open_node(struct parse *parse, enum http_json_kind kind)
{
    if (parse->depth == HTTP_JSON_DEPTH_MAX)
        return fail(parse, "more than 16 levels");
    struct http_json_node *node = add_node(parse, kind);
    if (node == NULL)
        return false;
    parse->open[parse->depth++] = node;
    parse->at++;
    return true;
}

static void close_node(struct parse *parse)
{
    struct http_json_node *node = parse->open[--parse->depth];
    node->skip = (uint16_t)(parse->json->nodes + parse->json->n_nodes - node);
    parse->at++;
}

static bool read_value(struct parse *parse)
{
    if (parse->at == parse->end)
        return fail(parse, "expected a value");
    switch (*parse->at) {
    case '{':
        return open_node(parse, HTTP_JSON_OBJECT);
    case '[':
        return open_node(parse, HTTP_JSON_ARRAY);
    case '"':
        return read_string(parse);
    default:
        return *parse->at == '-' || (*parse->at >= '0' && *parse->at <= '9') ? read_number(parse)
                                                                             : read_word(parse);
    }
}

/* One step in the innermost open object or array: its end, or the start of one more value. */
static bool go_on(struct parse *parse)
{
    struct http_json_node *in = parse->open[parse->depth - 1];
    bool is_object = in->kind == HTTP_JSON_OBJECT;
    skip_blanks(parse);
    if (is_at(parse, is_object ? '}' : ']')) {
        close_node(parse);
        return true;
    }
    if (in->count > 0) {
        if (!is_at(parse, ','))
            return fail(parse, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
        parse->at++;
        skip_blanks(parse);
    }
    in->count++;
    if (is_object) {
        if (!is_at(parse, '"'))
            return fail(parse, "expected the name of a member in quotes");
        if (!read_string(parse))
            return false;
        skip_blanks(parse);
        if (!is_at(parse, ':'))
            return fail(parse, "expected ':'");
        parse->at++;
        skip_blanks(parse);
    }
    return read_value(parse);
}

int http_json_parse(struct http_json *json, struct span bytes, struct stint_error *error)
{
    struct parse parse = {
        .json = json, .begin = bytes.ptr, .at = bytes.ptr, .end = span_end(bytes)};
    json->n_nodes = json->space_len = 0;
    skip_blanks(&parse);
    if (!is_at(&parse, '{')) {
        parse.fault = "expected an object, {…}";
        return tell_fault(&parse, error);
    }
    bool is_good = open_node(&parse, HTTP_JSON_OBJECT);
    while (is_good && parse.depth > 0)
        is_good = go_on(&parse);
    if (!is_good)
        return tell_fault(&parse, error);
    skip_blanks(&parse);
    if (parse.at == parse.end)
        return 0;
    parse.fault = "extra text after the object";
    return tell_fault(&parse, error);
}

/* ---- Typed reading --------------------------------------------------------------------------- */

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

int http_json_text_member(void *text, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error)
{
    return http_json_text(value, place, text, error);
}

int http_json_u32_member(void *number, const struct http_json_node *value,
                         const struct http_place *place, struct stint_error *error)
{
    return http_json_u32(value, place, number, error);
}

int http_json_bool_member(void *yes, const struct http_json_node *value,
                          const struct http_place *place, struct stint_error *error)
{
    return http_json_bool(value, place, yes, error);
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
        int code = members[i].read((uint8_t *)state + members[i].at, value, &inner, error);
        if (code < 0)
            return code;
        node = http_json_after(value);
    }
    return 0;
}

int http_json_require(const struct http_member *members, uint32_t missing,
                      struct stint_error *error)
{
    if (missing == 0)
        return 0;
    return err_set(error, STINT_E_SYNTAX, "expected a member \"%s\"",
                   members[__builtin_ctz(missing)].name);
}
