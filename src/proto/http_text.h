/* SPDX-License-Identifier: MIT */
/*
 * Text of bounded size, written without printf: answers are made for every request, and printf
 * would cost more than the decision. Text that does not fit is dropped whole, and is_full is set.
 */
#ifndef STINT_PROTO_HTTP_TEXT_H
#define STINT_PROTO_HTTP_TEXT_H

#include "base/span.h"

#include <stdbool.h>

struct http_text {
    char *text;
    size_t size, len; /* len < size: there is always space for a terminator */
    bool is_full;     /* a text did not fit; nothing was written from then on */
};

struct http_text http_text_at(char *text, size_t size); /* size at least 1 */

static inline void http_text_bytes(struct http_text *out, const void *bytes, size_t len)
{
    if (out->is_full || len >= out->size - out->len) {
        out->is_full = true;
        return;
    }
    if (len > 0)
        memcpy(out->text + out->len, bytes, len);
    out->len += len;
}

void http_text_u64(struct http_text *out, uint64_t number);
/* Terminates the text written since `start` and returns it; continues after the terminator. */
const char *http_text_end(struct http_text *out, size_t start);

/* In quotes, escaped; bytes that are not UTF-8 become U+FFFD, which JSON requires. */
void http_text_json(struct http_text *out, struct span string);
/* A String of RFC 9651 (structured fields): bytes that it cannot contain become '?'. */
void http_text_sf_string(struct http_text *out, struct span string);
/* Number of ms, rounded up; `null` for STINT_NEVER_NS. */
void http_text_json_ms(struct http_text *out, uint64_t ns);

/* For string literals: their length is a constant. */
#define http_text_add(out, literal) http_text_bytes(out, "" literal, sizeof(literal) - 1)

/* A member after another: `,"NAME":` and its value. The name is a literal. */
#define http_text_member(out, name) http_text_add(out, ",\"" name "\":")
#define http_text_member_u64(out, name, number)                                                    \
    (http_text_member(out, name), http_text_u64(out, number))
#define http_text_member_ms(out, name, ns) (http_text_member(out, name), http_text_json_ms(out, ns))
#define http_text_member_json(out, name, string)                                                   \
    (http_text_member(out, name), http_text_json(out, string))

static inline void http_text_span(struct http_text *out, struct span span)
{
    http_text_bytes(out, span.ptr, span.len);
}

static inline void http_text_add_text(struct http_text *out, const char *text)
{
    http_text_bytes(out, text, strlen(text));
}

#endif
