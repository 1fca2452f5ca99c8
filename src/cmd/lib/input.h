/* SPDX-License-Identifier: MIT */
/* Opens a file or standard input and returns its bytes, inflated if they are gzip. */
#ifndef STINT_CMD_LIB_INPUT_H
#define STINT_CMD_LIB_INPUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct z_stream_s;

struct input {
    const char *name; /* for messages */
    int fd;
    uint64_t size;       /* bytes of the file; 0 if unknown */
    uint64_t bytes_read; /* of the file, before inflating */
    uint64_t bytes_given;
    uint8_t *packed; /* bytes read and not yet returned or inflated */
    size_t packed_at, packed_end;
    struct z_stream_s *inflate; /* NULL: the bytes are plain */
    bool in_member;             /* gzip: a member has begun and not ended */
};

/* `path` of NULL or "-" is standard input. */
int input_open(struct input *input, const char *path, struct stint_error *error);
void input_close(struct input *input);

/* A reader_fill of sim/input/reader.h; `arg` is the struct input. */
long input_fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error);

#endif
