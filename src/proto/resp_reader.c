/* SPDX-License-Identifier: MIT */
/* Arrays of bulk strings. Lines are read in resp_line.c. */
#include "proto/resp_reader.h"

#include "proto/resp_line.h"

#define COUNT_DIGITS_MAX 10
#define FAULTS 9

static const char *const sentences[FAULTS] = {
    [-RESP_FAULT_COUNT] = "behind '*' a number of arguments within the limit was expected",
    [-RESP_FAULT_NO_BULK] = "an argument was expected to begin with '$'",
    [-RESP_FAULT_LENGTH] = "behind '$' a length within the limit was expected",
    [-RESP_FAULT_NO_END] = "CR LF was expected behind an argument",
    [-RESP_FAULT_TOO_LONG] = "too big request",
    [-RESP_FAULT_QUOTES] = "unbalanced quotes in request",
    [-RESP_FAULT_HTTP] = "this port does not speak HTTP",
    [-RESP_FAULT_ARGUMENTS] = "too many arguments in one line",
};

const char *resp_fault_sentence(long fault)
{
    return fault < 0 && fault > -FAULTS ? sentences[-fault] : "unknown fault";
}

/* Reads digits, CR, LF at *at and moves it behind them: 1; 0: more is needed; -1: no such thing. */
static inline int read_count(struct span bytes, size_t *at, size_t *count)
{
    const uint8_t *start = bytes.ptr + *at, *end = bytes.ptr + bytes.len, *here = start;
    size_t number = 0;
    while (here < end && (unsigned)(*here - '0') <= 9) {
        if (here - start == COUNT_DIGITS_MAX)
            return -1;
        number = number * 10 + (size_t)(*here++ - '0');
    }
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
        return read < 0 ? RESP_FAULT_COUNT : 0;
    if (reader->left > bounds->arguments)
        return RESP_FAULT_COUNT;
    reader->at = at;
    return 1;
}

/* From where `reader` stands to the last argument: 1, 0 or a fault. args may be NULL. */
static inline long walk_arguments(struct resp_reader *reader, struct span bytes,
                                  const struct resp_bounds *bounds, struct span *args)
{
    size_t at = reader->at, len;
    for (; reader->left > 0; reader->left--) {
        if (at == bytes.len)
            return 0;
        if (bytes.ptr[at++] != '$')
            return RESP_FAULT_NO_BULK;
        int read = read_count(bytes, &at, &len);
        if (read <= 0)
            return read < 0 ? RESP_FAULT_LENGTH : 0;
        if (len > bounds->argument_bytes)
            return RESP_FAULT_LENGTH;
        if (at + len + 2 > bounds->request_bytes)
            return RESP_FAULT_TOO_LONG;
        if (bytes.len - at < len + 2)
            return 0;
        if (bytes.ptr[at + len] != '\r' || bytes.ptr[at + len + 1] != '\n')
            return RESP_FAULT_NO_END;
        if (args != NULL)
            *args++ = span_of(bytes.ptr + at, len);
        at += len + 2;
        reader->at = at;
    }
    return 1;
}

/* All of it at once: what usually happens. */
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
        long code = walk_arguments(reader, bytes, bounds, NULL);
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
        return RESP_FAULT_TOO_LONG;
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
