/* SPDX-License-Identifier: MIT */
/* Arrays of bulk strings. Lines are read in resp_line.c. */
#include "proto/resp/resp_reader.h"

#include "proto/resp/resp_line.h"

#define COUNT_DIGITS_MAX 10
#define FAULTS 9

static const char *const messages[FAULTS] = {
    [-RESP_ERROR_COUNT] = "expected a number of arguments within the limit after '*'",
    [-RESP_ERROR_NO_BULK] = "expected an argument that begins with '$'",
    [-RESP_ERROR_LENGTH] = "expected a length within the limit after '$'",
    [-RESP_ERROR_NO_END] = "expected CR LF after an argument",
    [-RESP_ERROR_TOO_LONG] = "too big request",
    [-RESP_ERROR_QUOTES] = "unbalanced quotes in request",
    [-RESP_ERROR_HTTP] = "this port does not speak HTTP",
    [-RESP_ERROR_ARGUMENTS] = "too many arguments in one line",
};

const char *resp_error_message(long fault)
{
    return fault < 0 && fault > -FAULTS ? messages[-fault] : "unknown fault";
}

/* Reads digits, CR, LF at *at and advances past them: 1; 0: more is needed; -1: invalid. */
static inline int read_count(struct span bytes, size_t *at, size_t *count)
{
    const uint8_t *start = bytes.ptr + *at, *end = bytes.ptr + bytes.len, *here = start;
    const uint8_t *stop = end - start > COUNT_DIGITS_MAX ? start + COUNT_DIGITS_MAX : end;
    size_t number = 0;
    while (here < stop && (unsigned)(*here - '0') <= 9)
        number = number * 10 + (size_t)(*here++ - '0');
    if (here == end)
        return 0;
    if (here == start || *here != '\r')
        return -1;
    if (here + 1 == end)
        return 0;
    if (here[1] != '\n')
        return -1;
    *at = (size_t)(here + 2 - bytes.ptr);
    *count = number;
    return 1;
}

static inline long walk_count(struct resp_reader *reader, struct span bytes,
                              const struct resp_bounds *bounds)
{
    size_t at = 1;
    int read = read_count(bytes, &at, &reader->left);
    if (read <= 0)
        return read < 0 ? RESP_ERROR_COUNT : 0;
    if (reader->left > bounds->arguments)
        return RESP_ERROR_COUNT;
    reader->at = at;
    return 1;
}

/* The same for the length of an argument, first for those of one or two digits: nearly all. */
static inline int read_length(struct span bytes, size_t *at, size_t *len)
{
    const uint8_t *here = bytes.ptr + *at;
    if (bytes.len - *at >= 4) {
        unsigned tens = here[0] - (unsigned)'0', ones = here[1] - (unsigned)'0';
        if (tens <= 9 && here[1] == '\r' && here[2] == '\n') {
            *len = tens;
            *at += 3;
            return 1;
        }
        if (tens <= 9 && ones <= 9 && here[2] == '\r' && here[3] == '\n') {
            *len = tens * 10 + ones;
            *at += 4;
            return 1;
        }
    }
    return read_count(bytes, at, len);
}

/* One argument at *at, which is advanced past it: 1, 0 or an error. */
static inline long walk_argument(struct span bytes, size_t *at, const struct resp_bounds *bounds,
                                 struct span *arg)
{
    size_t here = *at, len;
    if (here == bytes.len)
        return 0;
    if (bytes.ptr[here++] != '$')
        return RESP_ERROR_NO_BULK;
    int read = read_length(bytes, &here, &len);
    if (read <= 0)
        return read < 0 ? RESP_ERROR_LENGTH : 0;
    if (len > bounds->argument_bytes)
        return RESP_ERROR_LENGTH;
    if (here + len + 2 > bounds->request_bytes)
        return RESP_ERROR_TOO_LONG;
    if (bytes.len - here < len + 2)
        return 0;
    if (bytes.ptr[here + len] != '\r' || bytes.ptr[here + len + 1] != '\n')
        return RESP_ERROR_NO_END;
    *arg = span_of(bytes.ptr + here, len);
    *at = here + len + 2;
    return 1;
}

/* From the position of `reader` to the last argument: 1, 0 or an error. */
static inline long walk_arguments(struct resp_reader *reader, struct span bytes,
                                  const struct resp_bounds *bounds, struct span *args)
{
    size_t at = reader->at, left = reader->left;
    long code = 1;
    for (; left > 0 && (code = walk_argument(bytes, &at, bounds, args)) > 0; left--)
        args++;
    reader->at = at;
    reader->left = left;
    return code;
}

/* The whole command at once: the usual case. */
static inline long read_whole(struct resp_reader *reader, struct span bytes,
                              const struct resp_bounds *bounds, struct resp_argv *argv)
{
    long code = walk_count(reader, bytes, bounds);
    if (code <= 0)
        return code;
    argv->n = reader->left;
    code = walk_arguments(reader, bytes, bounds, argv->args);
    if (code <= 0)
        return code;
    long consumed = (long)reader->at;
    reader->at = 0;
    return consumed;
}

static long read_array(struct resp_reader *reader, struct span bytes,
                       const struct resp_bounds *bounds, struct resp_argv *argv)
{
    if (reader->at > 0) {
        /* The arguments are not stored: the bytes may have moved at the next call. */
        long code = walk_arguments(reader, bytes, bounds, argv->args);
        if (code <= 0)
            return code;
    }
    return read_whole(reader, bytes, bounds, argv);
}

static long read_line(struct resp_reader *reader, struct span bytes,
                      const struct resp_bounds *bounds, struct resp_argv *argv)
{
    size_t max = bounds->request_bytes < RESP_LINE_MAX ? bounds->request_bytes : RESP_LINE_MAX;
    const uint8_t *from = bytes.ptr + reader->at;
    const uint8_t *newline = memchr(from, '\n', bytes.len - reader->at);
    size_t len = newline != NULL ? (size_t)(newline - bytes.ptr) : bytes.len;
    if (len >= max)
        return RESP_ERROR_TOO_LONG;
    if (newline == NULL) {
        reader->at = bytes.len;
        return 0;
    }
    reader->at = 0;
    long fault = resp_line_split(span_of(bytes.ptr, len), bounds->arguments, argv);
    return fault < 0 ? fault : (long)len + 1;
}

long resp_reader_next(struct resp_reader *reader, struct span bytes,
                      const struct resp_bounds *bounds, struct resp_argv *argv)
{
    argv->n = 0;
    if (bytes.len == 0)
        return 0;
    if (bytes.ptr[0] != '*')
        return read_line(reader, bytes, bounds, argv);
    return read_array(reader, bytes, bounds, argv);
}
