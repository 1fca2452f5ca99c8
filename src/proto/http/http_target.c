/* SPDX-License-Identifier: MIT */
/* Paths and queries of RFC 3986. Invalid escapes stay unchanged. */
#include "proto/http/http_target.h"

#include "base/number.h"

/* The byte of "%xx" at `text`, or -1. */
static int escaped_byte(const uint8_t *text, size_t len)
{
    if (len < 3 || text[0] != '%')
        return -1;
    int high = number_hex_digit(text[1]), low = number_hex_digit(text[2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static struct span before(struct span text, char end)
{
    const uint8_t *found = text.len == 0 ? NULL : memchr(text.ptr, end, text.len);
    return found == NULL ? text : span_of(text.ptr, (size_t)(found - text.ptr));
}

/* "http://host:80/path" → "host:80", with the length of "http://". NULL ptr: no such target. */
static struct span find_authority(struct span target, size_t *scheme_len)
{
    static const char end[] = "://";
    size_t end_len = sizeof(end) - 1;
    if (target.len == 0 || target.ptr[0] == '/')
        return (struct span){0};
    struct span scheme = before(target, ':');
    struct span rest = span_after(target, scheme.len);
    if (rest.len < end_len || memcmp(rest.ptr, end, end_len) != 0)
        return (struct span){0};
    rest = span_after(rest, end_len);
    size_t len = 0;
    while (len < rest.len && memchr("/?#", rest.ptr[len], 3) == NULL)
        len++;
    *scheme_len = scheme.len + end_len;
    return span_of(rest.ptr, len);
}

static struct span without_origin(struct span target)
{
    size_t scheme_len;
    struct span authority = find_authority(target, &scheme_len);
    return authority.ptr == NULL ? target : span_after(target, scheme_len + authority.len);
}

struct span http_target_authority(struct span target)
{
    size_t scheme_len;
    return find_authority(target, &scheme_len);
}

struct http_target http_target_of(struct span target)
{
    target = before(without_origin(target), '#');
    struct span path = before(target, '?');
    struct span query = span_after(target, path.len + 1);
    return (struct http_target){path.len > 0 ? path : span_of_text("/"), query};
}

static size_t decode_path(struct span path, uint8_t *text)
{
    size_t len = 0;
    for (size_t at = 0; at < path.len; at++) {
        int byte = escaped_byte(path.ptr + at, path.len - at);
        if (byte < 0) {
            text[len++] = path.ptr[at];
            continue;
        }
        if (byte == '/' || byte == '%') {
            memcpy(text + len, byte == '/' ? "%2F" : "%25", 3);
            len += 3;
        } else {
            text[len++] = (uint8_t)byte;
        }
        at += 2;
    }
    return len;
}

/* Length without the last segment: "/a/b/" and "/a/b" → "/a". */
static size_t drop_segment(const uint8_t *text, size_t len)
{
    while (len > 0 && text[len - 1] != '/')
        len--;
    return len > 0 ? len - 1 : 0;
}

/*
 * Resolves the segments of a decoded path in place: each is "/" and the text up to the next one.
 * The write position never passes the read position.
 */
static size_t follow_segments(uint8_t *text, size_t len)
{
    size_t out = 0, at = 0;
    bool ends_open = true; /* the path ends in "/", "/." or "/..": so does the result */
    while (at < len) {
        if (text[at] == '/') {
            at++;
            ends_open = true;
            continue;
        }
        size_t end = at;
        while (end < len && text[end] != '/')
            end++;
        size_t n = end - at;
        if (n == 2 && text[at] == '.' && text[at + 1] == '.') {
            out = drop_segment(text, out);
            ends_open = true;
        } else if (n == 1 && text[at] == '.') {
            ends_open = true;
        } else {
            memmove(text + out + 1, text + at, n);
            text[out] = '/';
            out += n + 1;
            ends_open = false;
        }
        at = end;
    }
    if (ends_open)
        text[out++] = '/';
    return out;
}

size_t http_target_path(struct span path, uint8_t *text)
{
    if (span_equals(path, "*")) { /* OPTIONS for the server itself */
        text[0] = '*';
        return path.len;
    }
    /* Without a slash in front it is the same path. */
    size_t before = path.len > 0 && path.ptr[0] == '/' ? 0 : 1;
    text[0] = '/';
    return follow_segments(text, before + decode_path(path, text + before));
}

static size_t decode(struct span from, uint8_t plus, uint8_t *text)
{
    size_t len = 0;
    for (size_t at = 0; at < from.len; at++) {
        int byte = escaped_byte(from.ptr + at, from.len - at);
        text[len++] = byte >= 0 ? (uint8_t)byte : from.ptr[at] == '+' ? plus : from.ptr[at];
        at += byte >= 0 ? 2 : 0;
    }
    return len;
}

size_t http_target_decode(struct span from, uint8_t *text)
{
    return decode(from, '+', text);
}

bool http_target_next(struct span *query, uint8_t *text, struct span *name, struct span *value)
{
    while (query->len > 0) {
        struct span part = before(*query, '&');
        *query = span_after(*query, part.len + 1);
        struct span left = before(part, '=');
        if (left.len == 0)
            continue;
        struct span right = span_after(part, left.len + 1);
        *name = span_of(text, decode(left, ' ', text));
        *value = span_of(text + name->len, decode(right, ' ', text + name->len));
        return true;
    }
    return false;
}

bool http_target_find(struct span query, const char *wanted, uint8_t *text, struct span *value)
{
    struct span name;
    while (http_target_next(&query, text, &name, value))
        if (span_equals(name, wanted))
            return true;
    return false;
}
