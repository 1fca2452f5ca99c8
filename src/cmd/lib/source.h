/* SPDX-License-Identifier: MIT */
/* The log or trace that a command reads: as its command line gives it, and as events. */
#ifndef STINT_CMD_LIB_SOURCE_H
#define STINT_CMD_LIB_SOURCE_H

#include "base/err.h"
#include "sim/input/event.h"
#include "sim/input/jsonl.h"
#include "sim/input/logline.h"
#include "sim/input/reader.h"

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- The file, or standard input; inflated if it is gzip ---- */

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

/* ---- The log, as a command line gives it and as events ---- */

enum source_format { SOURCE_TRACE, SOURCE_COMBINED, SOURCE_JSONL };
extern const char *const source_formats[]; /* their names, up to NULL */

struct source_options {
    enum source_format format;
    const char *key, *time, *cost; /* NULL: the format's default */
    const char *path;              /* NULL = standard input */
    bool sort, strict;
};

/* Options that the format would silently ignore, or cannot read, are an argp_error. */
void source_check(const struct source_options *options, struct argp_state *state);

struct event_source {
    enum source_format format;
    bool strict;
    struct input input;
    struct reader reader;
    union {
        struct logline logline;
        struct jsonl jsonl;
    } parser;
    uint64_t malformed; /* lines */
    uint64_t first_ns;  /* time of the first event */
    bool begun;
};

int event_source_open(struct event_source *source, const struct source_options *options,
                      struct stint_error *error);
void event_source_close(struct event_source *source);
/*
 * EVENT_FOUND, EVENT_NONE at the end, or a negative code if the input cannot be read further.
 * Malformed lines are counted, the first few reported, and skipped unless `strict`.
 */
int event_source_next(struct event_source *source, struct event *event, struct stint_error *error);

#endif
