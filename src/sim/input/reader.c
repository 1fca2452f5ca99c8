/* SPDX-License-Identifier: MIT */
/* One block of memory: full lines are borrowed out of it, the rest moves to its front. */
#include "sim/input/reader.h"

#include <assert.h>
#include <stdlib.h>

int reader_init(struct reader *reader, reader_fill *fill, void *arg, struct stint_error *error)
{
    *reader = (struct reader){.fill = fill, .arg = arg, .block = malloc(READER_BLOCK)};
    if (reader->block == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    return 0;
}

void reader_deinit(struct reader *reader)
{
    free(reader->block);
    *reader = (struct reader){0};
}

/* Frees space after the remaining bytes and fills it; 0 or a negative code. */
static int refill(struct reader *reader, struct stint_error *error)
{
    size_t left = reader->end - reader->begin;
    assert(left < READER_BLOCK);
    if (reader->begin > 0)
        memmove(reader->block, reader->block + reader->begin, left);
    reader->begin = 0;
    reader->end = left;
    long n = reader->fill(reader->arg, reader->block + left, READER_BLOCK - left, error);
    if (n < 0)
        return (int)n;
    assert((size_t)n <= READER_BLOCK - left);
    reader->ended = n == 0;
    reader->end += (size_t)n;
    return 0;
}

static int give(struct reader *reader, struct span *line, size_t len)
{
    *line = span_of(reader->block + reader->begin, len);
    if (line->len > 0 && line->ptr[line->len - 1] == '\r')
        line->len--;
    return len > READER_LINE_MAX ? READER_TOO_LONG : READER_LINE;
}

/* Reads more bytes to find the end of the line. */
static int next_slow(struct reader *reader, struct span *line, struct stint_error *error)
{
    bool too_long = false;
    for (;;) {
        size_t seen = reader->end - reader->begin;
        if (seen > READER_LINE_MAX) {
            /* The bytes of a line that is too long are dropped, so memory stays bounded. */
            too_long = true;
            reader->begin = reader->end;
            seen = 0;
        }
        int code = reader->ended ? 0 : refill(reader, error);
        if (code != 0)
            return code;
        uint8_t *from = reader->block + reader->begin;
        uint8_t *newline = memchr(from + seen, '\n', reader->end - reader->begin - seen);
        if (newline == NULL && !reader->ended)
            continue;
        size_t len = newline != NULL ? (size_t)(newline - from) : reader->end - reader->begin;
        if (newline == NULL && len == 0 && !too_long)
            return READER_END;
        reader->line_number++;
        int kind = give(reader, line, len);
        reader->begin += len + (newline != NULL);
        return too_long ? READER_TOO_LONG : kind;
    }
}

int reader_next(struct reader *reader, struct span *line, struct stint_error *error)
{
    uint8_t *from = reader->block + reader->begin;
    uint8_t *newline = memchr(from, '\n', reader->end - reader->begin);
    if (newline == NULL)
        return next_slow(reader, line, error);
    reader->line_number++;
    size_t len = (size_t)(newline - from);
    int kind = give(reader, line, len);
    reader->begin += len + 1;
    return kind;
}
