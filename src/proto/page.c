/* SPDX-License-Identifier: MIT */
/* Growing text: doubles its capacity; after a failure it stays unchanged. */
#include "proto/page.h"

#include "base/utf8.h"
#include "proto/http_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE_FIRST 4096

/* Whether `more` bytes can be appended. */
static bool make_space(struct page *page, size_t more)
{
    if (page->failed || more > PAGE_MAX - page->len) {
        page->failed = true;
        return false;
    }
    size_t needed = page->len + more;
    if (needed <= page->size)
        return true;
    size_t size = page->size > 0 ? page->size : PAGE_FIRST;
    while (size < needed)
        size *= 2;
    char *text = realloc(page->text, size);
    if (text == NULL) {
        page->failed = true;
        return false;
    }
    page->text = text;
    page->size = size;
    return true;
}

void page_add_span(struct page *page, struct span bytes)
{
    if (bytes.len == 0 || !make_space(page, bytes.len))
        return;
    memcpy(page->text + page->len, bytes.ptr, bytes.len);
    page->len += bytes.len;
}

void page_add(struct page *page, const char *text)
{
    page_add_span(page, span_of_text(text));
}

void page_add_json(struct page *page, const char *before, struct span string)
{
    page_add(page, before);
    /* Six bytes for each at most, two quotes, and the terminator for which http_text has space. */
    size_t most = 6 * string.len + 3;
    if (!make_space(page, most))
        return;
    struct http_text out = http_text_at(page->text + page->len, most);
    http_text_json(&out, string);
    page->len += out.len;
}

void page_add_label(struct page *page, struct span value)
{
    size_t at = 0;
    while (at < value.len) {
        uint8_t c = value.ptr[at];
        size_t len = c < 0x20 || c == 0x7f ? 0 : utf8_length(value.ptr + at, value.len - at);
        if (c == '\n')
            page_add(page, "\\n");
        else if (c == '"' || c == '\\')
            page_print(page, "\\%c", c);
        else if (len == 0)
            page_add(page, UTF8_REPLACEMENT);
        else
            page_add_span(page, span_of(value.ptr + at, len));
        at += len > 0 ? len : 1;
    }
}

void page_print(struct page *page, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t left = page->size - page->len;
    int len = vsnprintf(left > 0 ? page->text + page->len : NULL, left, format, args);
    va_end(args);
    /* vsnprintf also needs space for a terminator. */
    if (len >= 0 && (size_t)len >= left && make_space(page, (size_t)len + 1))
        vsnprintf(page->text + page->len, page->size - page->len, format, again);
    va_end(again);
    if (len >= 0 && !page->failed)
        page->len += (size_t)len;
}

void page_free(struct page *page)
{
    free(page->text);
    *page = (struct page){0};
}
