/* SPDX-License-Identifier: MIT */
/*
 * Bytes as replies of Redis: whole and in pieces they must give the same replies or a fault, and
 * what is read of their errors must lie inside them.
 */
#include "bytes.h"

#include "backend/wire/redis_conn.h"

#define REPLY_MAX 4096

static void check_redirect(struct span text)
{
    struct redis_redirect redirect;
    (void)redis_error_of(text);
    if (!redis_redirect_parse(text, &redirect))
        return;
    MUST(redirect.slot < 16384 && redirect.port > 0);
    MUST(redirect.host.len < text.len && redirect.host.ptr >= text.ptr &&
         redirect.host.ptr + redirect.host.len <= text.ptr + text.len);
}

/* Reads every byte of a reply, and compares it with another. */
static void check_same(const struct redis_reply *a, const struct redis_reply *b)
{
    MUST(a->type == b->type && a->n_items == b->n_items && a->text.len == b->text.len);
    if (a->type == REDIS_INTEGER)
        MUST(a->number == b->number);
    if (a->text.len > 0)
        MUST(memcmp(a->text.ptr, b->text.ptr, a->text.len) == 0);
    if (a->type == REDIS_ERROR)
        check_redirect(a->text);
    (void)redis_reply_named(a, "role");
    for (size_t i = 0; i < a->n_items; i++)
        check_same(&a->items[i], &b->items[i]);
}

/* Reads one reply from pieces of one to eight bytes; the code of redis_reader_next(). */
static int next_in_pieces(struct redis_reader *reader, struct span *rest, struct span *cuts,
                          const struct redis_reply **reply)
{
    int code;
    while ((code = redis_reader_next(reader, reply, NULL)) == 0 && rest->len > 0) {
        size_t len = 1 + bytes_u8(cuts) % 8;
        len = len < rest->len ? len : rest->len;
        uint8_t *copy = bytes_copy(span_of(rest->ptr, len));
        code = redis_reader_feed(reader, span_of(copy, len), NULL);
        free(copy);
        *rest = span_of(rest->ptr + len, rest->len - len);
        if (code < 0)
            return code;
    }
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span rest = span_of(data, size), cuts = rest;
    struct redis_reader *whole = redis_reader_new(REPLY_MAX), *pieces = redis_reader_new(REPLY_MAX);
    MUST(whole != NULL && pieces != NULL);
    const struct redis_reply *a, *b;
    int code = redis_reader_feed(whole, rest, NULL);
    MUST((code < 0) == (size > REPLY_MAX));
    while (code == 0 && (code = redis_reader_next(whole, &a, NULL)) > 0) {
        MUST(next_in_pieces(pieces, &rest, &cuts, &b) > 0);
        check_same(a, b);
        code = 0;
    }
    if (size <=
        REPLY_MAX) /* a fault of the one is a fault of the other, and half a reply is none */
        MUST((next_in_pieces(pieces, &rest, &cuts, &b) < 0) == (code < 0));
    check_redirect(span_of(data, size));
    redis_reader_free(whole);
    redis_reader_free(pieces);
    return 0;
}
