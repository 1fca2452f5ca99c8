/* SPDX-License-Identifier: MIT */
/*
 * Splits a stream of bytes into commands: arrays of bulk strings, as all clients send them, in
 * RESP2 and RESP3 alike, and inline commands. Arguments are not copied.
 *
 * A reader remembers its position in an incomplete command, so that one which arrives in many
 * pieces is scanned once, and read once more when it is complete.
 */
#ifndef STINT_PROTO_RESP_RESP_READER_H
#define STINT_PROTO_RESP_RESP_READER_H

#include "base/span.h"

#define RESP_LINE_MAX 65536 /* bytes of an inline command */

/* Zeroed at the beginning of a stream. */
struct resp_reader {
    size_t at;   /* bytes of the command that are known to be valid */
    size_t left; /* arguments from there on */
};

struct resp_bounds {
    size_t request_bytes;
    size_t argument_bytes;
    size_t arguments;
};

/* Memory for arguments; one is enough for any number of readers. */
struct resp_argv {
    struct span *args; /* bounds->arguments of them */
    size_t n;
    uint8_t *space; /* RESP_LINE_MAX bytes, for unquoted inline arguments */
};

/* Errors in the format of a command. */
enum resp_error {
    RESP_ERROR_COUNT = -1,     /* no allowed number after '*' */
    RESP_ERROR_NO_BULK = -2,   /* an argument does not begin with '$' */
    RESP_ERROR_LENGTH = -3,    /* no allowed number after '$' */
    RESP_ERROR_NO_END = -4,    /* CR LF is missing after an argument */
    RESP_ERROR_TOO_LONG = -5,  /* the command, or the line */
    RESP_ERROR_QUOTES = -6,    /* in a line: not closed, or followed by another character */
    RESP_ERROR_HTTP = -7,      /* a line of HTTP, which a web page may have sent */
    RESP_ERROR_ARGUMENTS = -8, /* too many in a line */
};

/*
 * `bytes` begin at a command. > 0: that many are one command, with its arguments in argv (none: an
 * empty line or array, to be skipped); they point into bytes, or into argv->space. 0: more is
 * needed; the next call must have all these bytes and more. < 0: enum resp_error; nothing more can
 * be read from the stream.
 */
long resp_reader_next(struct resp_reader *reader, struct span bytes,
                      const struct resp_bounds *bounds, struct resp_argv *argv);

/*
 * Splits a line without its LF, as Redis does: "…" with \n \r \t \b \a \\ \" \xHH, '…' with \'. The
 * bytes of the arguments are in argv->space. 0, or a negative enum resp_error.
 */
long resp_line_split(struct span line, size_t arguments_max, struct resp_argv *argv);

/* A message for the client, without a period. */
const char *resp_error_message(long fault);

#endif
