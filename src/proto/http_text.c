/* SPDX-License-Identifier: MIT */
/* Text of bounded size: numbers, JSON strings, and strings of structured fields. */
#include "proto/http_text.h"

#include "base/ns.h"
#include "base/number.h"
#include "base/utf8.h"
#include "stint.h"

#include <assert.h>

struct http_text http_text_at(char *text, size_t size)
{
    assert(size > 0);
    text[0] = '\0';
    return (struct http_text){text, size, 0, false};
}

void http_text_u64(struct http_text *out, uint64_t number)
{
    if (out->is_full || resp_number_len(number) >= out->size - out->len) {
        out->is_full = true;
        return;
    }
    uint8_t *at = (uint8_t *)out->text + out->len;
    out->len += (size_t)(resp_number_write(at, number) - at);
}

const char *http_text_end(struct http_text *out, size_t start)
{
    if (out->len + 1 >= out->size) {
        out->is_full = true;
        out->text[out->len] = '\0';
    } else {
        out->text[out->len++] = '\0';
    }
    return out->text + start;
}

static bool is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* One character that is not plain; returns how many bytes it took. */
static size_t write_special(struct http_text *out, const uint8_t *text, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t c = text[0];
    if (c >= 0x80) {
        size_t n = utf8_length(text, len);
        if (n == 0)
            http_text_add(out, UTF8_REPLACEMENT);
        else
            http_text_bytes(out, text, n);
        return n == 0 ? 1 : n;
    }
    if (c == '"' || c == '\\') {
        char escaped[2] = {'\\', (char)c};
        http_text_bytes(out, escaped, 2);
        return 1;
    }
    char escaped[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    http_text_bytes(out, escaped, sizeof(escaped));
    return 1;
}

/* In quotes; write() writes a character that is not plain, and returns how many bytes it took. */
static inline void write_quoted(struct http_text *out, struct span string,
                                size_t (*write)(struct http_text *out, const uint8_t *text,
                                                size_t len))
{
    http_text_add(out, "\"");
    for (size_t at = 0; at < string.len;) {
        size_t from = at;
        while (at < string.len && is_plain(string.ptr[at]))
            at++;
        http_text_bytes(out, string.ptr + from, at - from);
        if (at < string.len)
            at += write(out, string.ptr + at, string.len - at);
    }
    http_text_add(out, "\"");
}

void http_text_json(struct http_text *out, struct span string)
{
    write_quoted(out, string, write_special);
}

static size_t write_special_sf(struct http_text *out, const uint8_t *text, size_t len)
{
    bool is_escaped = *text == '"' || *text == '\\';
    (void)len;
    http_text_bytes(out, is_escaped ? (const char[2]){'\\', (char)*text} : "?", is_escaped ? 2 : 1);
    return 1;
}

void http_text_sf_string(struct http_text *out, struct span string)
{
    write_quoted(out, string, write_special_sf);
}

void http_text_json_ms(struct http_text *out, uint64_t ns)
{
    if (ns == STINT_NEVER_NS)
        http_text_add(out, "null");
    else
        http_text_u64(out, ns / NS_PER_MS + (ns % NS_PER_MS != 0));
}
