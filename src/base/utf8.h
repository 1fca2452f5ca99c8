/* SPDX-License-Identifier: MIT */
/* UTF-8 in arbitrary bytes. */
#ifndef STINT_BASE_UTF8_H
#define STINT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Replaces a byte that begins no character: U+FFFD. */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Bytes of the character that begins at `text`, by RFC 3629; 0 if there is none. len is at least
   1. */
static inline size_t utf8_length(const uint8_t *text, size_t len)
{
    uint8_t lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t need = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (need == 0 || need > len)
        return 0;
    for (size_t i = 1; i < need; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (lead == 0xe0 && text[1] < 0xa0) || (lead == 0xf0 && text[1] < 0x90);
    bool surrogate = lead == 0xed && text[1] >= 0xa0;
    bool beyond = lead == 0xf4 && text[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : need;
}

static inline bool utf8_is_valid(const uint8_t *text, size_t len)
{
    for (size_t at = 0, n; at < len; at += n)
        if ((n = utf8_length(text + at, len - at)) == 0)
            return false;
    return true;
}

/* Length of the mark of UTF-8 that some editors write at the beginning of a text: 3, or 0. */
static inline size_t utf8_mark_length(const uint8_t *text, size_t len)
{
    return len >= 3 && text[0] == 0xef && text[1] == 0xbb && text[2] == 0xbf ? 3 : 0;
}

/* The character of `n` bytes that begins at `text`; n is from utf8_length(). */
static inline uint32_t utf8_code_point(const uint8_t *text, size_t n)
{
    uint32_t code = n == 1 ? text[0] : text[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (text[i] & 0x3fu);
    return code;
}

/*
 * Whether a character controls a terminal or is invisible on it: control characters, marks that
 * change the direction of text, line separators, characters without width. With them untrusted
 * text could look like another text.
 */
static inline bool utf8_is_hidden(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xad || code == 0x61c ||
           code == 0x180e || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
           code == 0xfeff || (code >= 0xfff9 && code <= 0xfffb) ||
           (code >= 0xe0000 && code <= 0xe007f);
}

#endif
