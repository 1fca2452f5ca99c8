/* SPDX-License-Identifier: MIT */
/*
 * Bytes cut into commands: whole and in pieces they must give the same commands or the same fault,
 * and nothing of an argument may lie outside of the bytes.
 */
#include "bytes.h"

#include "proto/resp/resp_reader.h"

#include <stdbool.h>

#define ARGUMENTS 64

static const struct resp_bounds bounds = {4096, 1024, ARGUMENTS};

static struct span whole_args[ARGUMENTS], piece_args[ARGUMENTS];
static uint8_t whole_space[RESP_LINE_MAX], piece_space[RESP_LINE_MAX];

static void check_inside(const struct resp_argv *argv, struct span bytes)
{
    for (size_t i = 0; i < argv->n; i++) {
        const struct span *arg = &argv->args[i];
        const uint8_t *end = arg->ptr + arg->len;
        bool in_bytes = arg->ptr >= bytes.ptr && end <= bytes.ptr + bytes.len;
        bool in_space = arg->ptr >= argv->space && end <= argv->space + RESP_LINE_MAX;
        MUST(in_bytes || in_space);
    }
}

static void check_same(const struct resp_argv *a, const struct resp_argv *b)
{
    MUST(a->n == b->n);
    for (size_t i = 0; i < a->n; i++) {
        MUST(a->args[i].len == b->args[i].len);
        MUST(a->args[i].len == 0 || memcmp(a->args[i].ptr, b->args[i].ptr, a->args[i].len) == 0);
    }
}

/*
 * Reads the command again from growing pieces, as far as `expected` says that it goes. A fault may
 * show sooner, with fewer bytes, and need not be the one that all of them show.
 */
static void check_pieces(struct span bytes, long expected, const struct resp_argv *whole,
                         struct span *cuts)
{
    struct resp_reader reader = {0};
    struct resp_argv argv = {piece_args, 0, piece_space};
    size_t len = 0;
    long read = 0;
    while (read == 0 && len < bytes.len) {
        len += 1 + bytes_u8(cuts) % 7;
        len = len < bytes.len ? len : bytes.len;
        uint8_t *copy = bytes_copy(span_of(bytes.ptr, len));
        read = resp_reader_next(&reader, span_of(copy, len), &bounds, &argv);
        if (read > 0) {
            check_inside(&argv, span_of(copy, len));
            check_same(&argv, whole);
        }
        free(copy);
    }
    MUST(read == expected || (read < 0 && expected < 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span rest = span_of(data, size), cuts = rest;
    struct resp_argv argv = {whole_args, 0, whole_space};
    struct resp_reader reader = {0};
    for (;;) {
        uint8_t *copy = bytes_copy(rest);
        struct span bytes = span_of(copy, rest.len);
        long read = resp_reader_next(&reader, bytes, &bounds, &argv);
        MUST(read <= (long)rest.len);
        if (read > 0)
            check_inside(&argv, span_of(copy, (size_t)read));
        else if (read < 0)
            MUST(strcmp(resp_error_message(read), "unknown fault") != 0);
        check_pieces(bytes, read, &argv, &cuts);
        free(copy);
        if (read <= 0)
            return 0;
        rest = span_of(rest.ptr + read, rest.len - (size_t)read);
    }
}
