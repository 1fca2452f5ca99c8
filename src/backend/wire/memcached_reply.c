/* SPDX-License-Identifier: MIT */
/* "VA 3 c17\r\nabc\r\n": a word for the kind, and flags, of which two are used. */
#include "backend/wire/memcached_reply.h"

#include "base/number.h"

static const struct {
    const char *word;
    enum memcached_code code;
} words[] = {
    {"HD", MEMCACHED_STORED},
    {"STORED", MEMCACHED_STORED},
    {"DELETED", MEMCACHED_STORED},
    {"VA", MEMCACHED_VALUE},
    {"EN", MEMCACHED_MISS},
    {"NS", MEMCACHED_NOT_STORED},
    {"EX", MEMCACHED_EXISTS},
    {"NF", MEMCACHED_NOT_FOUND},
    {"STAT", MEMCACHED_STAT},
    {"END", MEMCACHED_END},
    {"VERSION", MEMCACHED_VERSION},
    {"ERROR", MEMCACHED_ERROR},
    {"CLIENT_ERROR", MEMCACHED_ERROR},
    {"SERVER_ERROR", MEMCACHED_ERROR},
};

static int no_reply(struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX, "invalid reply from memcached");
}

/* The length of the line without its end; 0: it is not complete yet. */
static int find_line(struct span bytes, size_t *len, struct stint_error *error)
{
    size_t most = bytes.len < MEMCACHED_LINE_MAX ? bytes.len : MEMCACHED_LINE_MAX;
    const uint8_t *end = most > 0 ? memchr(bytes.ptr, '\n', most) : NULL;
    if (end == NULL)
        return most < MEMCACHED_LINE_MAX
                   ? 0
                   : err_set(error, STINT_E_RANGE,
                             "a line from memcached is too long: expected at most %d bytes",
                             MEMCACHED_LINE_MAX);
    *len = (size_t)(end - bytes.ptr);
    if (*len < 2 || end[-1] != '\r')
        return no_reply(error);
    *len -= 1;
    return 1;
}

/* Flags are a letter and, for some, a word; false: an invalid number. Other flags are ignored. */
static bool read_flags(struct memcached_reply *reply, struct span flags)
{
    while (flags.len > 0) {
        struct span flag = span_cut_word(&flags);
        if (flag.len > 0 && flag.ptr[0] == 'c' &&
            !resp_number_read(span_of(flag.ptr + 1, flag.len - 1), UINT64_MAX, &reply->number))
            return false;
        if (span_equals(flag, "h1"))
            reply->was_read = true;
    }
    return true;
}

static int read_value(struct memcached_reply *reply, struct span bytes, struct span line,
                      size_t line_len, struct stint_error *error)
{
    uint64_t len;
    if (!resp_number_read(span_cut_word(&line), UINT32_MAX, &len) || !read_flags(reply, line))
        return no_reply(error);
    if (len > MEMCACHED_VALUE_MAX)
        return err_set(error, STINT_E_RANGE,
                       "a value from memcached is too long: expected at most %d bytes",
                       MEMCACHED_VALUE_MAX);
    if (bytes.len - line_len < len + 2)
        return 0;
    reply->value = span_of(bytes.ptr + line_len, (size_t)len);
    const uint8_t *end = reply->value.ptr + len;
    return end[0] == '\r' && end[1] == '\n' ? (int)(line_len + len + 2) : no_reply(error);
}

int memcached_reply_read(struct memcached_reply *reply, struct span bytes,
                         struct stint_error *error)
{
    size_t len = 0, i = 0;
    int found = find_line(bytes, &len, error);
    if (found <= 0)
        return found;
    struct span line = span_of(bytes.ptr, len), rest = line, word = span_cut_word(&rest);
    while (i < sizeof(words) / sizeof(words[0]) && !span_equals(word, words[i].word))
        i++;
    if (i == sizeof(words) / sizeof(words[0]))
        return no_reply(error);
    len += 2;
    *reply = (struct memcached_reply){.code = words[i].code};
    switch (reply->code) {
    case MEMCACHED_VALUE:
        return read_value(reply, bytes, rest, len, error);
    case MEMCACHED_STAT:
        reply->name = span_cut_word(&rest);
        reply->value = rest;
        return (int)len;
    case MEMCACHED_VERSION:
        reply->value = rest;
        return (int)len;
    case MEMCACHED_ERROR:
        reply->value = line;
        return (int)len;
    default:
        return read_flags(reply, rest) ? (int)len : no_reply(error);
    }
}
