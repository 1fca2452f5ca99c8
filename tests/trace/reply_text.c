/* SPDX-License-Identifier: MIT */
/* From bytes to a line. */
#include "trace/reply_text.h"

#include <stdbool.h>
#include <stdlib.h>

struct replies {
    const char *at, *end;
    FILE *out;
    int fault; /* 0, or what reply_text() returns */
};

static void write_reply(struct replies *replies);

/* The rest of a line, without CR LF. */
static struct span line(struct replies *replies)
{
    const char *start = replies->at;
    for (const char *c = start; c + 1 < replies->end; c++) {
        if (c[0] == '\r' && c[1] == '\n') {
            replies->at = c + 2;
            return span_of(start, (size_t)(c - start));
        }
    }
    replies->fault = 1;
    return span_of(start, 0);
}

static long number(struct replies *replies)
{
    char text[32] = "", *end;
    struct span digits = line(replies);
    if (replies->fault != 0)
        return 0;
    if (digits.len == 0 || digits.len >= sizeof(text)) {
        replies->fault = -1;
        return 0;
    }
    memcpy(text, digits.ptr, digits.len);
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value < -1 || value > 1 << 24)
        replies->fault = -1;
    return value;
}

static void write_bulk(struct replies *replies, const char *before, const char *after)
{
    long len = number(replies);
    if (replies->fault != 0)
        return;
    if (len == -1) {
        fputs("null", replies->out);
        return;
    }
    if (replies->end - replies->at < len + 2) {
        replies->fault = 1;
        return;
    }
    fputs(before, replies->out);
    for (long i = 0; i < len; i++) {
        unsigned char c = (unsigned char)replies->at[i];
        if (c < ' ' || c > '~' || c == '"' || c == '\\')
            fprintf(replies->out, "\\x%02x", c);
        else
            fputc(c, replies->out);
    }
    fputs(after, replies->out);
    if (replies->at[len] != '\r' || replies->at[len + 1] != '\n')
        replies->fault = -1;
    replies->at += len + 2;
}

static void write_list(struct replies *replies, bool is_map)
{
    long n = number(replies);
    fputc(is_map ? '{' : '[', replies->out);
    for (long i = 0; i < n && replies->fault == 0; i++) {
        fputs(i > 0 ? ", " : "", replies->out);
        write_reply(replies);
        if (is_map && replies->fault == 0) {
            fputs(": ", replies->out);
            write_reply(replies);
        }
    }
    fputc(is_map ? '}' : ']', replies->out);
}

static void write_line(struct replies *replies, const char *before)
{
    struct span text = line(replies);
    fprintf(replies->out, "%s%.*s", before, (int)text.len, (const char *)text.ptr);
}

static void write_reply(struct replies *replies)
{
    if (replies->at == replies->end) {
        replies->fault = 1;
        return;
    }
    switch (*replies->at++) {
    case '+':
    case ':':
        write_line(replies, "");
        break;
    case '-':
        write_line(replies, "-");
        break;
    case ',':
        write_line(replies, ",");
        break;
    case '_':
        write_line(replies, "null");
        break;
    case '$':
        write_bulk(replies, "\"", "\"");
        break;
    case '=':
        write_bulk(replies, "=", "");
        break;
    case '*':
        write_list(replies, false);
        break;
    case '%':
        write_list(replies, true);
        break;
    default:
        replies->fault = -1;
    }
}

long reply_text(FILE *out, struct span bytes)
{
    const char *start = (const char *)bytes.ptr;
    struct replies replies = {start, start + bytes.len, out, 0};
    if (bytes.len == 0)
        return 0;
    write_reply(&replies);
    if (replies.fault != 0)
        return replies.fault > 0 ? 0 : -1;
    return replies.at - start;
}
