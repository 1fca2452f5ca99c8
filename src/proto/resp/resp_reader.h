/* SPDX-License-Identifier: MIT */
/*
 * Cuts a stream of bytes into commands: arrays of bulk strings, as all clients send them, in RESP2
 * and RESP3 alike, and lines as people type them. Arguments stay where they were read.
 *
 * A reader remembers how far it has looked over a command that is not whole, so that one which
 * arrives in many pieces is looked over once, and read once more when it is whole.
 */
#ifndef STINT_PROTO_RESP_RESP_READER_H
#define STINT_PROTO_RESP_RESP_READER_H

#include "base/span.h"

#define RESP_LINE_MAX 65536 /* bytes of an inline command */

/* Zeroed at the beginning of a stream. */
struct resp_reader {
    size_t at;   /* bytes of the command that are known to be as they should */
    size_t left; /* arguments from there on */
};

struct resp_bounds {
    size_t request_bytes;
    size_t argument_bytes;
    size_t arguments;
};

/* Where arguments are put; one is enough for any number of readers. */
struct resp_argv {
    struct span *args; /* room for bounds->arguments */
    size_t n;
    uint8_t *space; /* RESP_LINE_MAX bytes, for inline arguments whose quotes were taken off */
};

/* What no command can begin with, or go on with. */
enum resp_error {
    RESP_ERROR_COUNT = -1,     /* behind '*' stands no number that is allowed */
    RESP_ERROR_NO_BULK = -2,   /* an argument does not begin with '$' */
    RESP_ERROR_LENGTH = -3,    /* behind '$' stands no number that is allowed */
    RESP_ERROR_NO_END = -4,    /* CR LF is missing behind an argument */
    RESP_ERROR_TOO_LONG = -5,  /* the command, or the line */
    RESP_ERROR_QUOTES = -6,    /* of a line, not closed, or with something right behind them */
    RESP_ERROR_HTTP = -7,      /* a browser that was led here must not be obeyed */
    RESP_ERROR_ARGUMENTS = -8, /* too many in a line */
};

/*
 * `bytes` begin at a command. > 0: that many are one command, its arguments are in argv (none at
 * all: an empty line or array, to be skipped); they point into bytes, or into argv->space. 0: more
 * is needed, and the next call is to have all these bytes and more. < 0: enum resp_error; the
 * stream is of no use any more.
 */
long resp_reader_next(struct resp_reader *reader, struct span bytes,
                      const struct resp_bounds *bounds, struct resp_argv *argv);

/* A message for the client, without a period. */
const char *resp_error_message(long fault);

#endif
