/* SPDX-License-Identifier: MIT */
/* Cuts bytes that come in blocks of any size into lines. The caller's function reads them. */
#ifndef STINT_SIM_INPUT_READER_H
#define STINT_SIM_INPUT_READER_H

#include "base/err.h"
#include "base/span.h"

#define READER_LINE_MAX 65536u      /* bytes, without the newline */
#define READER_BLOCK (256u * 1024u) /* bytes per read; they stay in the cache */

enum reader_line {
    READER_END = 0,
    READER_LINE = 1,
    READER_TOO_LONG = 2, /* a line of more than READER_LINE_MAX bytes was skipped */
};

/* Writes up to `size` bytes; returns how many, 0 at the end, or a negative code and *error. */
typedef long reader_fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error);

struct reader {
    reader_fill *fill;
    void *arg;
    uint8_t *block;
    size_t begin, end;    /* bytes of the block that are not yet returned */
    uint64_t line_number; /* of the line last returned, from 1 */
    bool ended;
};

int reader_init(struct reader *reader, reader_fill *fill, void *arg, struct stint_error *error);
void reader_deinit(struct reader *reader);

/*
 * The next line, without its newline (and a carriage return before it); borrowed until the next
 * call. A last line without a newline counts. Returns an enum reader_line or a negative code.
 */
int reader_next(struct reader *reader, struct span *line, struct stint_error *error);

#endif
