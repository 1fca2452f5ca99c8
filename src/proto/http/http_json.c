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
#define SHOWN_MAX 60

/* ---- Parsing --------------------------------------------------------------------------------- */

struct parse {
    struct http_json *json;
    const uint8_t *begin, *at, *end;
    struct http_json_node *open[HTTP_JSON_DEPTH_MAX];
    size_t depth;
    const char *fault; /* NULL: none yet */
};

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
    const uint8_t *from = parse->at;
    bool is_negative = *from == '-';
    parse->at += is_negative;
    struct span digits = span_of(parse->at, 0), fraction = digits;
    int64_t exponent = 0, sum = 0;
    digits.len = skip_digits(parse);
    if (digits.len == 0 || (digits.len > 1 && digits.ptr[0] == '0'))
        return fail(parse, "expected a value");
    if (is_at(parse, '.')) {
        fraction = span_of(++parse->at, 0);
        fraction.len = skip_digits(parse);
        if (fraction.len == 0)
            return fail(parse, "expected digits after the point");
    }
    if ((is_at(parse, 'e') || is_at(parse, 'E')) && !read_exponent(parse, &exponent))
        return false;
    if (!whole_value(digits, fraction, exponent, &sum) || !set_integer(node, sum, is_negative)) {
        node->kind = HTTP_JSON_REAL;
        node->text = from;
        node->count = (uint32_t)(parse->at - from);
    }
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

static void write_place(struct buf *buf, const struct http_value *value)
{
    if (value->in == NULL)
        return;
    write_place(buf, value->in);
    if (value->member != NULL)
        buf_add(buf, "%s%s", buf->len > 0 ? "." : "", value->member->name);
    else
        buf_add(buf, "[%zu]", value->index);
}

int http_json_fault(const struct http_value *value, const char *message)
{
    char text[PLACE_MAX];
    struct buf buf = buf_of(text, sizeof(text));
    write_place(&buf, value);
    return err_set(value->error, STINT_E_SYNTAX, "%s%s%s", text, buf.len > 0 ? ": " : "", message);
}

int http_json_expected(const struct http_value *value, const char *what)
{
    static const char *const kinds[] = {
        [HTTP_JSON_OBJECT] = "an object", [HTTP_JSON_ARRAY] = "an array", [HTTP_JSON_TRUE] = "true",
        [HTTP_JSON_FALSE] = "false",      [HTTP_JSON_NULL] = "null",
    };
    const struct http_json_node *node = value->node;
    char message[STINT_ERROR_MAX];
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "expected %s, not ", what);
    const char *quote = node->kind == HTTP_JSON_STRING ? "\"" : "";
    if (node->kind == HTTP_JSON_INTEGER)
        buf_add(&buf, "%lld", (long long)node->integer);
    else if (node->kind == HTTP_JSON_REAL || node->kind == HTTP_JSON_STRING)
        buf_add(&buf, "%s%.*s%s", quote, node->count < SHOWN_MAX ? (int)node->count : SHOWN_MAX,
                (const char *)node->text, quote);
    else
        buf_add(&buf, "%s", kinds[node->kind]);
    return http_json_fault(value, message);
}

int http_json_text(void *to, const struct http_value *value)
{
    const struct http_member *member = value->member;
    struct span *text = to;
    if (value->node->kind != HTTP_JSON_STRING)
        return http_json_expected(value, "a string");
    *text = span_of(value->node->text, value->node->count);
    if (member == NULL || member->expected == NULL || (text->len > 0 && text->len <= member->most))
        return 0;
    return http_json_fault(value, member->expected);
}

/* Digits alone: too large an integer. */
static bool is_beyond_64_bits(const struct http_json_node *node)
{
    if (node->kind != HTTP_JSON_REAL)
        return false;
    for (size_t i = 0; i < node->count; i++)
        if (node->text[i] < '0' || node->text[i] > '9')
            return false;
    return true;
}

int http_json_u32(void *to, const struct http_value *value)
{
    const struct http_json_node *node = value->node;
    int64_t number = 0;
    bool is_integer = node->kind == HTTP_JSON_INTEGER;
    if (is_integer)
        number = node->integer;
    else if (value->is_proto3 && node->kind == HTTP_JSON_STRING)
        is_integer = http_json_number(span_of(node->text, node->count), &number);
    if (is_integer ? number > UNIT_COUNT_MAX : is_beyond_64_bits(node))
        return http_json_expected(value, "a whole number of 0 to " UNIT_COUNT_MAX_TEXT
                                         " (" UNITS_ADVICE ")");
    if (!is_integer || number < 0)
        return http_json_expected(value, "a whole number of 0 to " UNIT_COUNT_MAX_TEXT);
    *(uint32_t *)to = (uint32_t)number;
    return 0;
}

static int read_ms(void *to, const struct http_value *value, int64_t least_ms)
{
    const struct http_json_node *node = value->node;
    uint64_t most_ms = value->member->most;
    if (node->kind != HTTP_JSON_INTEGER || node->integer < least_ms ||
        (uint64_t)node->integer > most_ms) {
        char what[80];
        struct buf buf = buf_of(what, sizeof(what));
        buf_add(&buf, "a whole number of milliseconds, %lld to %llu", (long long)least_ms,
                (unsigned long long)most_ms);
        return http_json_expected(value, what);
    }
    *(uint64_t *)to = (uint64_t)node->integer * NS_PER_MS;
    return 0;
}

int http_json_ms(void *to, const struct http_value *value)
{
    return read_ms(to, value, 0);
}

int http_json_ms_above_0(void *to, const struct http_value *value)
{
    return read_ms(to, value, 1);
}

int http_json_bool(void *to, const struct http_value *value)
{
    if (value->node->kind != HTTP_JSON_TRUE && value->node->kind != HTTP_JSON_FALSE)
        return http_json_expected(value, "true or false");
    *(bool *)to = value->node->kind == HTTP_JSON_TRUE;
    return 0;
}

int http_json_stamp(void *to, const struct http_value *value)
{
    const struct http_json_node *node = value->node;
    const struct http_member *member = value->member;
    if (node->kind == HTTP_JSON_STRING &&
        resp_number_read(span_of(node->text, node->count), member->most, to))
        return 0;
    return http_json_fault(value, member->expected != NULL
                                      ? member->expected
                                      : "expected the \"at\" of a reply, a string of digits");
}

int http_json_array(const struct http_value *value, size_t most, const char *what,
                    http_json_reader *read, void *to, size_t size)
{
    const struct http_json_node *node = value->node;
    if (node->kind != HTTP_JSON_ARRAY || node->count < 1 || node->count > most) {
        char message[80];
        struct buf buf = buf_of(message, sizeof(message));
        buf_add(&buf, "expected an array of 1 to %zu %s", most, what);
        return http_json_fault(value, message);
    }
    struct http_value element = *value;
    element.in = value;
    element.member = NULL;
    element.node = http_json_first(node);
    int code = 0;
    for (element.index = 0; element.index < node->count && code == 0; element.index++) {
        code = read((uint8_t *)to + element.index * size, &element);
        element.node = http_json_after(element.node);
    }
    return code;
}

static int unknown_member(const struct http_value *value, struct span name,
                          const struct http_object *object)
{
    const char *names[MEMBERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < object->n_members && n < MEMBERS_MAX; i++)
        if (object->allowed & (UINT32_C(1) << i))
            names[n++] = object->members[i].name;
    int nearest = nearest_name(name, names, n);
    char message[STINT_ERROR_MAX];
    struct buf buf = buf_of(message, sizeof(message));
    int shown = name.len < SHOWN_MAX ? (int)name.len : SHOWN_MAX;
    buf_add(&buf, "no member \"%.*s\" is known here", shown, (const char *)name.ptr);
    if (nearest >= 0)
        buf_add(&buf, "; did you mean \"%s\"?", names[nearest]);
    return http_json_fault(value, message);
}

static int lacks_member(const struct http_value *value, const struct http_member *member)
{
    char message[STINT_ERROR_MAX];
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "expected a member \"%s\"", member->name);
    return http_json_fault(value, message);
}

/* Most names differ in their first letter, so it is compared before the length. */
static bool is_named(struct span name, const char *text)
{
    return name.len > 0 && name.ptr[0] == (uint8_t)text[0] && span_equals(name, text);
}

static size_t find_member(struct span name, const struct http_object *object)
{
    const struct http_member *members = object->members;
    size_t i = 0;
    while (i < object->n_members && !is_named(name, members[i].name) &&
           (members[i].other_name == NULL || !is_named(name, members[i].other_name)))
        i++;
    return i;
}

int http_json_object(const struct http_value *value, const struct http_object *object,
                     uint32_t *seen, void *to)
{
    *seen = 0;
    if (value->node->kind != HTTP_JSON_OBJECT)
        return http_json_expected(value, "an object");
    const struct http_json_node *node = http_json_first(value->node);
    struct http_value inner = *value;
    inner.in = value;
    for (uint32_t left = value->node->count; left > 0; left--) {
        struct span name = span_of(node->text, node->count);
        size_t i = find_member(name, object);
        if (i == object->n_members || (object->allowed & (UINT32_C(1) << i)) == 0)
            return unknown_member(value, name, object);
        inner.node = http_json_after(node);
        inner.member = &object->members[i];
        if (*seen & (UINT32_C(1) << i))
            return http_json_fault(&inner, "came twice");
        node = http_json_after(inner.node);
        if (value->is_proto3 && inner.node->kind == HTTP_JSON_NULL)
            continue;
        *seen |= UINT32_C(1) << i;
        int code = inner.member->read((uint8_t *)to + inner.member->at, &inner);
        if (code < 0)
            return code;
    }
    uint32_t missing = object->required & ~*seen;
    return missing == 0 ? 0 : lacks_member(value, &object->members[__builtin_ctz(missing)]);
}

int http_json_read(struct http_json *json, struct span bytes, const struct http_object *object,
                   uint32_t *seen, void *to, struct stint_error *error)
{
    const struct http_value document = {
        .node = json->nodes, .state = to, .is_proto3 = object->is_proto3, .error = error};
    int code = http_json_parse(json, bytes, error);
    return code == 0 ? http_json_object(&document, object, seen, to) : code;
}
