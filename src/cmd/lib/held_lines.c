/* SPDX-License-Identifier: MIT */
/* Appends at the end, drops at the front; moves the rest to the front when space is needed. */
#include "cmd/lib/held_lines.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void held_lines_deinit(struct held_lines *held)
{
    free(held->bytes);
    *held = (struct held_lines){0};
}

char *held_lines_space(struct held_lines *held, size_t space)
{
    if (held->size - held->end >= space)
        return held->bytes + held->end;
    size_t len = held->end - held->begin;
    if (len > 0 && held->begin > 0)
        memmove(held->bytes, held->bytes + held->begin, len);
    held->begin = 0;
    held->end = len;
    if (held->size - len < space) {
        size_t size = 2 * (len + space);
        char *bytes = realloc(held->bytes, size);
        if (bytes == NULL)
            return NULL;
        held->bytes = bytes;
        held->size = size;
    }
    return held->bytes + held->end;
}

void held_lines_added(struct held_lines *held, size_t n)
{
    assert(n <= held->size - held->end);
    const char *from = held->bytes + held->end, *end = from + n;
    held->n_partial += n;
    for (const char *newline; (newline = memchr(from, '\n', (size_t)(end - from))) != NULL;) {
        held->n_lines++;
        from = newline + 1;
        held->n_partial = (size_t)(end - from);
    }
    held->end += n;
}

bool held_lines_complete(struct held_lines *held)
{
    if (held->n_partial == 0)
        return true;
    char *space = held_lines_space(held, 1);
    if (space == NULL)
        return false;
    *space = '\n';
    held_lines_added(held, 1);
    return true;
}

size_t held_lines_length(const struct held_lines *held, size_t n_lines)
{
    assert(n_lines <= held->n_lines);
    if (n_lines == 0)
        return 0;
    const char *begin = held->bytes + held->begin, *end = held->bytes + held->end, *from = begin;
    for (size_t i = 0; i < n_lines; i++)
        from = (const char *)memchr(from, '\n', (size_t)(end - from)) + 1;
    return (size_t)(from - begin);
}

void held_lines_drop(struct held_lines *held, size_t n_lines)
{
    held->begin += held_lines_length(held, n_lines);
    held->n_lines -= n_lines;
}
