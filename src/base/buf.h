/* SPDX-License-Identifier: MIT */
/* Bounded output: appends text to caller-owned memory, and counts what the whole text needs. */
#ifndef STINT_BASE_BUF_H
#define STINT_BASE_BUF_H

#include "base/err.h"

#include <stddef.h>

struct buf {
    char *text;  /* always terminated if size > 0 */
    size_t size; /* bytes at text */
    size_t len;  /* bytes appended, including those that did not fit */
};

struct buf buf_of(char *text, size_t size);
void buf_add(struct buf *buf, const char *format, ...) ERR_PRINTF(2, 3);

#endif
