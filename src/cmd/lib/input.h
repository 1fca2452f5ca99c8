/* SPDX-License-Identifier: MIT */
/* The bytes of a file or of standard input, unpacked if they are gzip or zstd. */
#ifndef STINT_CMD_LIB_INPUT_H
#define STINT_CMD_LIB_INPUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct codec;

struct input {
    const char *name; /* for messages */
    int fd;
    uint64_t bytes_read; /* of the file, before unpacking */
    uint64_t bytes_given;
    uint8_t *packed; /* bytes read and not yet returned or unpacked */
    size_t packed_at, packed_end;
    const struct codec *codec; /* NULL: the bytes are plain */
    void *stream;              /* of the codec */
    bool in_member;            /* a member (gzip) or frame (zstd) has begun and not ended */
    bool interrupted;          /* reading was ended by a signal, which is an error: signals.h */
};

/* What is known about a path before it is read. NULL or "-" is standard input. */
struct input_stat {
    uint64_t size;   /* bytes; 0 if unknown */
    bool is_regular; /* it has an end, and can be read as a whole */
};
int input_stat(const char *path, struct input_stat *stat, struct stint_error *error);

/* `path` as above. Packed data of other kinds is refused, with the command that unpacks it. */
int input_open(struct input *input, const char *path, struct stint_error *error);
void input_close(struct input *input);

/* A reader_fill of sim/input/reader.h; `arg` is the struct input. */
long input_fill(void *arg, uint8_t *bytes, size_t size, struct stint_error *error);

#endif
