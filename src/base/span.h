/* SPDX-License-Identifier: MIT */
/* A borrowed piece of memory: pointer and length, without a terminator. */
#ifndef STINT_BASE_SPAN_H
#define STINT_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
    const uint8_t *ptr;
    size_t len;
};

static inline struct span span_of(const void *ptr, size_t len)
{
    return (struct span){ptr, len};
}

/*
 * Word by word. A span that was just stored as two words, and is copied as one of 16 bytes, waits
 * until both are in the cache.
 */
static inline struct span span_copy(const struct span *span)
{
    return span_of(span->ptr, span->len);
}

static inline struct span span_of_text(const char *text)
{
    return (struct span){(const uint8_t *)text, strlen(text)};
}

/* An empty span may have a NULL pointer, and C does not allow NULL + 0. */
static inline const uint8_t *span_end(struct span span)
{
    return span.len > 0 ? span.ptr + span.len : span.ptr;
}

/* The bytes after the first `n`; empty if there are no more than n. */
static inline struct span span_after(struct span span, size_t n)
{
    if (n >= span.len)
        return span_of(span_end(span), 0);
    return n > 0 ? span_of(span.ptr + n, span.len - n) : span;
}

static inline int span_equals(struct span a, const char *text)
{
    /* An empty span may have a NULL pointer. */
    return a.len == strlen(text) && (a.len == 0 || memcmp(a.ptr, text, a.len) == 0);
}

static inline bool byte_is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

/* Without the blanks at both ends. */
static inline struct span span_trim(struct span text)
{
    while (text.len > 0 && byte_is_blank(text.ptr[0]))
        text = span_after(text, 1);
    while (text.len > 0 && byte_is_blank(text.ptr[text.len - 1]))
        text.len--;
    return text;
}

/* Cuts off the text before the next blank, together with that blank. */
static inline struct span span_cut_word(struct span *rest)
{
    size_t len = 0;
    while (len < rest->len && rest->ptr[len] != ' ')
        len++;
    struct span word = span_of(rest->ptr, len);
    *rest = span_after(*rest, len + 1);
    return word;
}

#endif
