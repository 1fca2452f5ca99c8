/* SPDX-License-Identifier: MIT */
#include "sim/input/json_repair.h"

#include "base/number.h"
#include "base/utf8.h"

#include <jansson.h>

#define ESCAPE_LEN 6 /* of \u and four digits */

static size_t put(char *text, size_t len, const void *bytes, size_t n)
{
    memcpy(text + len, bytes, n);
    return len + n;
}

/* The code unit that \u and four digits stand for, or 0. */
static unsigned escaped(struct span rest)
{
    unsigned code = 0;
    if (rest.len < ESCAPE_LEN || rest.ptr[0] != '\\' || rest.ptr[1] != 'u')
        return 0;
    for (size_t i = 2; i < ESCAPE_LEN; i++) {
        int digit = number_hex_digit(rest.ptr[i]);
        if (digit < 0)
            return 0;
        code = code << 4 | (unsigned)digit;
    }
    return code;
}

/* Bytes of the escape that begins here, a whole pair of surrogates included; 0 for half a pair. */
static size_t escape_length(struct span rest)
{
    unsigned high = escaped(rest);
    if (high >> 11 != 0xd800 >> 11) /* no surrogate */
        return rest.len < 2 ? rest.len : 2;
    unsigned low = high < 0xdc00 ? escaped(span_after(rest, ESCAPE_LEN)) : 0;
    return low >> 10 == 0xdc00 >> 10 ? 2 * ESCAPE_LEN : 0;
}

static size_t number_length(struct span rest)
{
    static const char bytes[] = "0123456789+-.eE";
    size_t len = 0;
    while (len < rest.len && memchr(bytes, rest.ptr[len], sizeof(bytes) - 1) != NULL)
        len++;
    return len;
}

static bool is_too_large(struct span number)
{
    json_error_t why;
    json_t *value = json_loadb((const char *)number.ptr, number.len, JSON_DECODE_ANY, &why);
    bool is_whole = value != NULL;
    json_decref(value);
    return !is_whole && json_error_code(&why) == json_error_numeric_overflow;
}

size_t json_repair(struct span line, char *text)
{
    bool in_string = false;
    size_t len = 0;
    for (size_t at = 0, n; at < line.len; at += n) {
        struct span rest = span_after(line, at);
        size_t number_len = in_string ? 0 : number_length(rest);
        n = 1;
        if (number_len > 0) {
            n = number_len;
            bool is_quoted = is_too_large(span_of(rest.ptr, n));
            if (is_quoted)
                text[len++] = '"';
            len = put(text, len, rest.ptr, n);
            if (is_quoted)
                text[len++] = '"';
        } else if (in_string && rest.ptr[0] == '\\') {
            n = escape_length(rest);
            len = n > 0 ? put(text, len, rest.ptr, n) : put(text, len, "\\ufffd", ESCAPE_LEN);
            n = n > 0 ? n : ESCAPE_LEN;
        } else if (in_string && rest.ptr[0] >= 0x80) {
            n = utf8_length(rest.ptr, rest.len);
            len = n > 0 ? put(text, len, rest.ptr, n) : put(text, len, UTF8_REPLACEMENT, 3);
            n = n > 0 ? n : 1;
        } else {
            in_string ^= rest.ptr[0] == '"';
            len = put(text, len, rest.ptr, 1);
        }
    }
    return len;
}
