/* SPDX-License-Identifier: MIT */
/* Bytes of texts, and the length of a terminated one, by memchr(): this layer calls only mem…()
 * functions. */
#ifndef STINT_ALGORITHM_TEXT_H
#define STINT_ALGORITHM_TEXT_H

#include "base/span.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * memchr() reads only up to the terminator, whatever its limit. Not inline, or a compiler that sees
 * the array of the text, as with link-time optimisation, warns that the limit is longer.
 */
__attribute__((noinline, unused)) static struct span text_span(const char *text)
{
    assert(text != NULL);
    const char *end = memchr(text, '\0', PTRDIFF_MAX);
    return span_of(text, (size_t)(end - text));
}

static inline bool text_is(struct span text, const char *name)
{
    struct span named = text_span(name);
    return text.len == named.len && (text.len == 0 || memcmp(text.ptr, named.ptr, text.len) == 0);
}

static inline bool text_is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static inline bool text_is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

#endif
