/* SPDX-License-Identifier: MIT */
/* Commands as arrays of bulk strings, and as lines of words. */
#include "proto/resp/resp_reader.h"

#include "base/number.h"

#include <stdbool.h>

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

/* ---- Arrays ---------------------------------------------------------------------------------- */

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

/* ---- Inline commands ------------------------------------------------------------------------- */

/* Removing quotes only shortens a line. */
struct line {
    const uint8_t *at, *end;
    uint8_t *out;
};

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static uint8_t escaped(uint8_t c)
{
    static const char names[] = "nrtba", bytes[] = "\n\r\t\b\a";
    const char *name = memchr(names, c, sizeof(names) - 1);
    return name != NULL ? (uint8_t)bytes[name - names] : c;
}

/* After a backslash in double quotes. */
static void copy_escaped(struct line *line)
{
    bool is_hex = line->end - line->at >= 3 && line->at[0] == 'x' &&
                  number_hex_digit(line->at[1]) >= 0 && number_hex_digit(line->at[2]) >= 0;
    if (is_hex) {
        *line->out++ =
            (uint8_t)(number_hex_digit(line->at[1]) * 16 + number_hex_digit(line->at[2]));
        line->at += 3;
    } else {
        *line->out++ = escaped(*line->at++);
    }
}

/* From after the opening quote to after the closing one; false if that is missing. */
static bool copy_quoted(struct line *line, uint8_t quote)
{
    while (line->at < line->end) {
        uint8_t c = *line->at++;
        if (c == quote)
            return line->at == line->end || is_blank(*line->at);
        bool escapes = c == '\\' && line->at < line->end;
        if (escapes && quote == '"')
            copy_escaped(line);
        else if (escapes && *line->at == '\'')
            *line->out++ = *line->at++;
        else
            *line->out++ = c;
    }
    return false;
}

static bool copy_word(struct line *line)
{
    while (line->at < line->end && !is_blank(*line->at)) {
        uint8_t c = *line->at++;
        if ((c == '"' || c == '\'') && !copy_quoted(line, c))
            return false;
        if (c != '"' && c != '\'')
            *line->out++ = c;
    }
    return true;
}

/*
 * "POST / HTTP/1.1": a page in a browser can send such a line, and then a body of commands, to a
 * port of its own machine.
 */
static bool is_http(const struct resp_argv *argv)
{
    static const char version[] = "HTTP/1.";
    const struct span *last = &argv->args[argv->n - 1];
    return argv->n >= 3 && last->len >= sizeof(version) - 1 &&
           memcmp(last->ptr, version, sizeof(version) - 1) == 0;
}

long resp_line_split(struct span bytes, size_t arguments_max, struct resp_argv *argv)
{
    struct line line = {bytes.ptr, bytes.ptr + bytes.len, argv->space};
    argv->n = 0;
    for (;;) {
        while (line.at < line.end && is_blank(*line.at))
            line.at++;
        if (line.at == line.end)
            break;
        if (argv->n == arguments_max)
            return RESP_ERROR_ARGUMENTS;
        uint8_t *word = line.out;
        if (!copy_word(&line))
            return RESP_ERROR_QUOTES;
        argv->args[argv->n++] = span_of(word, (size_t)(line.out - word));
    }
    return argv->n > 0 && is_http(argv) ? RESP_ERROR_HTTP : 0;
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

/* ---- Either ---------------------------------------------------------------------------------- */

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
