/* SPDX-License-Identifier: MIT */
/* Appends; never writes past the end. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

struct buf buf_of(char *text, size_t size)
{
    if (size > 0)
        text[0] = '\0';
    return (struct buf){.text = text, .size = size};
}

void buf_add(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t left = buf->len < buf->size ? buf->size - buf->len : 0;
    int added = vsnprintf(left > 0 ? buf->text + buf->len : NULL, left, format, args);
    va_end(args);
    if (added > 0)
        buf->len += (size_t)added;
}
