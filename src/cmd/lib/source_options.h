/* SPDX-License-Identifier: MIT */
/* The log or trace that a command reads, as its command line gives it. */
#ifndef STINT_CMD_LIB_SOURCE_OPTIONS_H
#define STINT_CMD_LIB_SOURCE_OPTIONS_H

#include <argp.h>
#include <stdbool.h>

enum replay_format { REPLAY_TRACE, REPLAY_COMBINED, REPLAY_JSONL };

struct source_options {
    enum replay_format format;
    const char *key, *time, *cost; /* NULL: the format's default */
    const char *path;              /* NULL = standard input */
    bool sort, strict;
};

/* Codes of these options in every command; defaults and help are the command's own. */
enum {
    SOURCE_FORMAT = 1024,
    SOURCE_KEY,
    SOURCE_TIME,
    SOURCE_COST,
    SOURCE_SORT,
    SOURCE_STRICT,
};

/* Handles one of them, or the FILE of the arguments; ARGP_ERR_UNKNOWN for all else. */
error_t source_option(struct source_options *options, int option, char *value,
                      struct argp_state *state);

/* Options that the format would silently ignore, or cannot read, are an argp_error. */
void source_check(const struct source_options *options, struct argp_state *state);

#endif
