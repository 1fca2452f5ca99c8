/* SPDX-License-Identifier: MIT */
/* Lines that were read and not yet released, in one block of memory, in order. */
#ifndef STINT_CMD_LIB_HELD_LINES_H
#define STINT_CMD_LIB_HELD_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HELD_LINE_MAX (1u << 20) /* bytes */

struct held_lines {
    char *bytes;
    size_t begin, end, size; /* of the held bytes */
    size_t n_lines;          /* that are complete */
    size_t n_partial;        /* bytes behind the last newline */
};

void held_lines_deinit(struct held_lines *held);

/* Memory for at least `room` more bytes; NULL if there is none. */
char *held_lines_space(struct held_lines *held, size_t space);
/* Adds `n` bytes that were written there. */
void held_lines_added(struct held_lines *held, size_t n);
/* Ends a last line that has no newline, at the end of the input. False: no memory. */
bool held_lines_complete(struct held_lines *held);

/* Bytes of the first n_lines lines, from held->bytes + held->begin on. */
size_t held_lines_length(const struct held_lines *held, size_t n_lines);
/* Drops the first n_lines lines. */
void held_lines_drop(struct held_lines *held, size_t n_lines);

#endif
