/* SPDX-License-Identifier: MIT */
/* Text that is assembled to be sent: grows as it is appended to, up to a maximum. */
#ifndef STINT_PROTO_PAGE_H
#define STINT_PROTO_PAGE_H

#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

#define PAGE_MAX (UINT32_C(256) << 20) /* bytes */

/* Zeroed it is empty. */
struct page {
    char *text; /* not terminated */
    size_t len, size;
    bool failed; /* no memory, or more than PAGE_MAX: the text is incomplete */
};

void page_add(struct page *page, const char *text);
void page_add_span(struct page *page, struct span bytes);
/* A text, and then a string of JSON, as http_text_json() writes it. */
void page_add_json(struct page *page, const char *before, struct span string);
void page_print(struct page *page, const char *format, ...) ERR_PRINTF(2, 3);
/*
 * The value of a label in the text formats of Prometheus: any UTF-8. Invalid bytes, and bytes that
 * would break a line, become U+FFFD.
 */
void page_add_label(struct page *page, struct span value);
void page_free(struct page *page);

#endif
