/* SPDX-License-Identifier: MIT */
/*
 * Cuts an input into lines twice, from whole blocks and from one byte at a time, and hands each
 * line to a parser in memory of its own. Both ways must give the same lines.
 */
#ifndef STINT_FUZZ_FEED_H
#define STINT_FUZZ_FEED_H

#include "bytes.h"

#include "base/ns.h"
#include "sim/input/reader.h"

struct feed {
    struct span left;
    size_t at_once; /* bytes given per call */
};

static inline long feed_fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error)
{
    struct feed *feed = arg;
    (void)error;
    size_t n = feed->left.len;
    n = n < size ? n : size;
    n = n < feed->at_once ? n : feed->at_once;
    if (n > 0)
        memcpy(bytes, feed->left.ptr, n);
    feed->left = span_of(feed->left.ptr + n, feed->left.len - n);
    return (long)n;
}

static inline void feed_lines(struct span input, void (*see)(void *arg, struct span line),
                              void *arg)
{
    struct feed whole = {input, input.len}, drip = {input, 1};
    struct reader readers[2];
    struct span lines[2];
    MUST(reader_init(&readers[0], feed_fill, &whole, NULL) == 0);
    MUST(reader_init(&readers[1], feed_fill, &drip, NULL) == 0);
    for (;;) {
        int kind = reader_next(&readers[0], &lines[0], NULL);
        MUST(reader_next(&readers[1], &lines[1], NULL) == kind && kind >= READER_END);
        if (kind == READER_END)
            break;
        MUST(readers[0].line_number == readers[1].line_number);
        if (kind == READER_TOO_LONG)
            continue;
        MUST(lines[0].len == lines[1].len);
        MUST(memcmp(lines[0].ptr, lines[1].ptr, lines[0].len) == 0);
        MUST(lines[0].len <= READER_LINE_MAX && memchr(lines[0].ptr, '\n', lines[0].len) == NULL);
        uint8_t *copy = bytes_copy(lines[0]);
        see(arg, span_of(copy, lines[0].len));
        free(copy);
    }
    reader_deinit(&readers[0]);
    reader_deinit(&readers[1]);
}

#endif
