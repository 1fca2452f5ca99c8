/* SPDX-License-Identifier: MIT */
/* Names of keys: bytes as they are, or escaped; counted whether they fit or not. */
#ifndef STINT_BACKEND_SCRIPT_KEY_TEXT_H
#define STINT_BACKEND_SCRIPT_KEY_TEXT_H

#include "base/span.h"

#include <stdbool.h>

struct key_text {
    char *out;
    size_t size, len;
};

static inline void key_text_add(struct key_text *text, const void *bytes, size_t len)
{
    size_t left = text->len < text->size ? text->size - text->len : 0;
    if (len > 0 && left > 0)
        memcpy(text->out + text->len, bytes, len < left ? len : left);
    text->len += len;
}

/* Each byte that is no letter, no digit, and not in `plain`, as %XX. */
static inline void key_text_escape(struct key_text *text, struct span span, const char *plain)
{
    static const char hexadecimal[] = "0123456789ABCDEF";
    size_t begin = 0;
    for (size_t i = 0; i < span.len; i++) {
        uint8_t c = span.ptr[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            (c != 0 && strchr(plain, c) != NULL))
            continue;
        const char code[] = {'%', hexadecimal[c >> 4], hexadecimal[c & 15]};
        key_text_add(text, span.ptr + begin, i - begin);
        key_text_add(text, code, sizeof(code));
        begin = i + 1;
    }
    if (begin < span.len)
        key_text_add(text, span.ptr + begin, span.len - begin);
}

#endif
