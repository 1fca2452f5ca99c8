/* SPDX-License-Identifier: MIT */
/*
 * What every fuzzer needs: numbers out of the input, and a check that stays in every build. An
 * input that has ended goes on with zeros, so that cutting one never makes it meaningless.
 */
#ifndef STINT_FUZZ_BYTES_H
#define STINT_FUZZ_BYTES_H

#include "base/span.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert(): a fuzzer of a release build looks for the same things. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #condition);             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static inline uint64_t bytes_number(struct span *bytes, size_t n)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n && bytes->len > 0; i++) {
        number |= (uint64_t)*bytes->ptr++ << 8 * i;
        bytes->len--;
    }
    return number;
}

static inline uint8_t bytes_u8(struct span *bytes)
{
    return (uint8_t)bytes_number(bytes, 1);
}

static inline uint16_t bytes_u16(struct span *bytes)
{
    return (uint16_t)bytes_number(bytes, 2);
}

static inline uint32_t bytes_u32(struct span *bytes)
{
    return (uint32_t)bytes_number(bytes, 4);
}

/* A copy that ends where its memory ends, so that reading one byte too many is seen. */
static inline uint8_t *bytes_copy(struct span bytes)
{
    uint8_t *copy = malloc(bytes.len > 0 ? bytes.len : 1);
    MUST(copy != NULL);
    if (bytes.len > 0)
        memcpy(copy, bytes.ptr, bytes.len);
    return copy;
}

/* For a fuzzer of several things: the first byte chooses one, which gets a copy of the others. */
static inline void bytes_choose(void (*const ways[])(struct span input), size_t n,
                                struct span input)
{
    size_t way = bytes_u8(&input) % n;
    uint8_t *copy = bytes_copy(input);
    ways[way](span_of(copy, input.len));
    free(copy);
}

#endif
