/* SPDX-License-Identifier: MIT */
/* Inline commands. Removing quotes only shortens a line. */
#include "proto/resp/resp_line.h"

#include <stdbool.h>

struct line {
    const uint8_t *at, *end;
    uint8_t *out;
};

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int hex_value(uint8_t c)
{
    uint8_t lower = c | 0x20;
    if (c >= '0' && c <= '9')
        return c - '0';
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static uint8_t escaped(uint8_t c)
{
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return c;
    }
}

/* After a backslash in double quotes. */
static void copy_escaped(struct line *line)
{
    bool is_hex = line->end - line->at >= 3 && line->at[0] == 'x' && hex_value(line->at[1]) >= 0 &&
                  hex_value(line->at[2]) >= 0;
    if (is_hex) {
        *line->out++ = (uint8_t)(hex_value(line->at[1]) * 16 + hex_value(line->at[2]));
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
