/* SPDX-License-Identifier: MIT */
/* The logs or traces that a command reads: as its command line gives them, and as events. */
#ifndef STINT_CMD_LIB_SOURCE_H
#define STINT_CMD_LIB_SOURCE_H

#include "base/err.h"
#include "cmd/lib/args.h"
#include "cmd/lib/input.h"
#include "sim/input/event.h"
#include "sim/input/jsonl.h"
#include "sim/input/logline.h"
#include "sim/input/reader.h"
#include "sim/judge/key_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOURCE_FILES_MAX 1024

enum source_format {
    SOURCE_ANY, /* not known yet, or none of these */
    SOURCE_TRACE,
    SOURCE_COMBINED, /* and common */
    SOURCE_JSONL,
};

/* SOURCE_ANY: the line is in no known format, is blank, or a comment. */
enum source_format source_format_of(struct span line);

/* Names of the formats, by enum source_format, up to NULL; the first is "auto". */
extern const char *const source_formats[];

struct source_options {
    enum source_format format;     /* SOURCE_ANY: the first line that can be read decides */
    const char *key, *time, *cost; /* NULL: the format's default */
    const char *paths[SOURCE_FILES_MAX];
    size_t n_paths; /* 0: standard input */
    bool sort, no_sort, strict;
};

/* The options of a command that reads logs; its input is a struct source_options. */
extern const struct args_set source_set;
/* Adds a FILE; an argp_error if there are too many. */
void source_add_path(struct argp_state *state, struct source_options *options, const char *path);

struct event_source {
    const struct source_options *options;
    enum source_format format; /* SOURCE_ANY until a line was recognised */
    bool has_parser;
    const char *name; /* of all files, for messages and reports */
    char name_text[256];
    uint64_t size;   /* bytes of all files; 0 if unknown */
    bool is_regular; /* all inputs are files that have an end */
    struct input input;
    struct reader reader;
    bool is_open, is_recognised; /* the file that is being read */
    size_t n_opened;             /* files, this one included */
    uint64_t lines, bytes_read;  /* of the files before this one */
    union {
        struct logline logline;
        struct jsonl jsonl;
    } parser;
    uint64_t malformed; /* lines */
    uint64_t unknown;   /* of these: lines before the first that was recognised */
    uint64_t unknown_line;
    const char *unknown_name; /* of the file of the first of them */
    char unknown_text[64];    /* of the first of them */
    uint64_t first_ns;        /* time of the first event */
    bool begun;
    bool interrupted; /* by a signal, which ended the events */
};

/* `options` outlives the source. */
int event_source_open(struct event_source *source, const struct source_options *options,
                      struct stint_error *error);
void event_source_close(struct event_source *source);
/*
 * EVENT_FOUND, EVENT_NONE at the end or after an interrupt, or a negative code if the input cannot
 * be read further, or is in another format than was given. Malformed lines are counted, the first
 * few reported, and skipped unless `strict`.
 */
int event_source_next(struct event_source *source, struct event *event, struct stint_error *error);

/* Whether the events are to be put into the order of time: files are, unless --no-sort. */
bool event_source_sorts(const struct event_source *source);
uint64_t event_source_lines(const struct event_source *source);
uint64_t event_source_bytes_read(const struct event_source *source);

/* ---- A whole log in memory ---- */

struct event_log {
    struct key_set names; /* of the keys of the entries */
    struct event_list events;
    enum source_format format;
    uint64_t epoch_ns; /* a trace has its own time; of a log, the midnight before the first event */
    uint64_t lines, malformed;
    bool interrupted; /* by a signal: this is what was read until then */
    char name[256];   /* for messages */
};

/*
 * In the order of time, unless --no-sort. 0 or a negative code; to be freed in both cases. An
 * interrupt ends reading, and is forgotten: interrupt_take().
 */
int event_log_read(struct event_log *log, const struct source_options *options,
                   struct stint_error *error);
void event_log_free(struct event_log *log);

#endif
