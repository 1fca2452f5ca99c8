/* SPDX-License-Identifier: MIT */
/* Terminated text where a length is wanted, by memchr: this layer calls nothing but mem…(). */
#ifndef STINT_ALGORITHM_TEXT_H
#define STINT_ALGORITHM_TEXT_H

#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

/* memchr() reads up to the terminator only, however far it is allowed to go. */
static inline struct span text_span(const char *text)
{
    const char *end = memchr(text, '\0', PTRDIFF_MAX);
    return span_of(text, (size_t)(end - text));
}

static inline bool text_is(struct span text, const char *name)
{
    struct span named = text_span(name);
    return text.len == named.len && (text.len == 0 || memcmp(text.ptr, named.ptr, text.len) == 0);
}

#endif
