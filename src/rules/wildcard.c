/* SPDX-License-Identifier: MIT */
/*
 * The text before the first `*` must begin the value, the text after the last must end it. Each
 * piece between them matches at its first occurrence: a later one would leave less for the next
 * pieces. So there is no backtracking, and the time grows linearly with text and pattern.
 */
#define _GNU_SOURCE
#include "rules/wildcard.h"

#include <string.h>

static const uint8_t *star_in(struct span pattern)
{
    return pattern.len == 0 ? NULL : memchr(pattern.ptr, '*', pattern.len);
}

bool wildcard_is(struct span pattern)
{
    return star_in(pattern) != NULL;
}

static bool is_at(const uint8_t *text, struct span piece)
{
    return piece.len == 0 || memcmp(text, piece.ptr, piece.len) == 0;
}

static struct span without(struct span text, size_t len)
{
    return span_of(text.ptr + len, text.len - len);
}

/* Finds the piece and returns what follows it; false if it is missing. */
static bool skip_to_piece(struct span *text, struct span piece)
{
    if (piece.len == 0)
        return true;
    if (piece.len > text->len)
        return false;
    const uint8_t *at = memmem(text->ptr, text->len, piece.ptr, piece.len);
    if (at == NULL)
        return false;
    *text = without(*text, (size_t)(at - text->ptr) + piece.len);
    return true;
}

bool wildcard_matches(struct span pattern, struct span text)
{
    const uint8_t *star = star_in(pattern);
    if (star == NULL)
        return text.len == pattern.len && is_at(text.ptr, pattern);
    struct span begin = span_of(pattern.ptr, (size_t)(star - pattern.ptr));
    if (begin.len > text.len || !is_at(text.ptr, begin))
        return false;
    text = without(text, begin.len);
    for (pattern = without(pattern, begin.len + 1); (star = star_in(pattern)) != NULL;) {
        struct span piece = span_of(pattern.ptr, (size_t)(star - pattern.ptr));
        if (!skip_to_piece(&text, piece))
            return false;
        pattern = without(pattern, piece.len + 1);
    }
    return pattern.len <= text.len && is_at(text.ptr + (text.len - pattern.len), pattern);
}
