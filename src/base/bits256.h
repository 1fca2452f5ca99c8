/* SPDX-License-Identifier: MIT */
/* 256 bits as one number: word[0] has the lowest 64. */
#ifndef STINT_BASE_BITS256_H
#define STINT_BASE_BITS256_H

#include "base/wide_int.h"

#include <assert.h>
#include <stdbool.h>

#define BITS256_WORDS 4

struct bits256 {
    uint64_t word[BITS256_WORDS];
};

/* The lowest n bits of a word, n up to 64. */
static inline uint64_t bits64_ones(unsigned n)
{
    return n == 0 ? 0 : UINT64_MAX >> (64 - n);
}

static inline bool bits256_is_zero(const struct bits256 *bits)
{
    return (bits->word[0] | bits->word[1] | bits->word[2] | bits->word[3]) == 0;
}

static inline unsigned bits256_length(const struct bits256 *bits)
{
    unsigned w = BITS256_WORDS - 1;
    while (w > 0 && bits->word[w] == 0)
        w--;
    return 64 * w + bit_length(bits->word[w]);
}

static inline unsigned bits256_count(const struct bits256 *bits)
{
    unsigned n = 0;
    for (unsigned w = 0; w < BITS256_WORDS; w++)
        n += (unsigned)__builtin_popcountll(bits->word[w]);
    return n;
}

/* How many ones are below the lowest zero, and above the highest. */
static inline unsigned bits256_trailing_ones(const struct bits256 *bits)
{
    unsigned w = 0;
    while (w < BITS256_WORDS && bits->word[w] == UINT64_MAX)
        w++;
    return 64 * w + (w < BITS256_WORDS ? (unsigned)__builtin_ctzll(~bits->word[w]) : 0);
}

static inline unsigned bits256_leading_ones(const struct bits256 *bits)
{
    unsigned w = BITS256_WORDS;
    while (w > 0 && bits->word[w - 1] == UINT64_MAX)
        w--;
    unsigned whole = 64 * (BITS256_WORDS - w);
    return whole + (w > 0 ? (unsigned)__builtin_clzll(~bits->word[w - 1]) : 0);
}

/* The lowest n bits. */
static inline struct bits256 bits256_low(struct bits256 bits, unsigned n)
{
    for (unsigned w = 0; w < BITS256_WORDS; w++)
        if (n < 64 * (w + 1))
            bits.word[w] &= n > 64 * w ? bits64_ones(n - 64 * w) : 0;
    return bits;
}

static inline struct bits256 bits256_ones(unsigned n)
{
    return bits256_low((struct bits256){{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}}, n);
}

static inline struct bits256 bits256_shift_up(struct bits256 bits, unsigned n)
{
    assert(n < 64 * BITS256_WORDS);
    unsigned words = n / 64, rest = n % 64;
    struct bits256 up = {{0}};
    for (unsigned w = BITS256_WORDS; w-- > words;) {
        up.word[w] = bits.word[w - words] << rest;
        if (rest > 0 && w > words)
            up.word[w] |= bits.word[w - words - 1] >> (64 - rest);
    }
    return up;
}

/* Takes out one bit: those above it move down by one. */
static inline struct bits256 bits256_without(const struct bits256 *bits, unsigned at)
{
    assert(at < 64 * BITS256_WORDS);
    struct bits256 less = *bits;
    for (unsigned w = at / 64; w < BITS256_WORDS; w++) {
        uint64_t kept = w == at / 64 ? bits64_ones(at % 64) : 0;
        uint64_t above = w + 1 < BITS256_WORDS ? bits->word[w + 1] << 63 : 0;
        less.word[w] = (bits->word[w] & kept) | ((bits->word[w] >> 1 | above) & ~kept);
    }
    return less;
}

/* Where the n-th one lies, counted from 0 at the highest; there must be as many. */
static inline unsigned bits256_find_one(const struct bits256 *bits, unsigned n)
{
    unsigned w = BITS256_WORDS - 1, ones;
    while ((ones = (unsigned)__builtin_popcountll(bits->word[w])) <= n) {
        assert(w > 0);
        n -= ones;
        w--;
    }
    uint64_t word = bits->word[w];
    for (; n > 0; n--)
        word &= ~(UINT64_C(1) << (bit_length(word) - 1));
    return 64 * w + bit_length(word) - 1;
}

/* A number of n bits, n up to 64, from bit `at` on. */
static inline uint64_t bits256_get(const struct bits256 *bits, unsigned at, unsigned n)
{
    assert(n <= 64 && at + n <= 64 * BITS256_WORDS);
    if (n == 0)
        return 0;
    uint64_t number = bits->word[at / 64] >> at % 64;
    if (at % 64 + n > 64)
        number |= bits->word[at / 64 + 1] << (64 - at % 64);
    return number & bits64_ones(n);
}

/* The same bits, which must be zero, become that number. */
static inline void bits256_put(struct bits256 *bits, unsigned at, unsigned n, uint64_t number)
{
    assert(n <= 64 && at + n <= 64 * BITS256_WORDS && (number & ~bits64_ones(n)) == 0);
    if (n == 0)
        return;
    bits->word[at / 64] |= number << at % 64;
    if (at % 64 + n > 64)
        bits->word[at / 64 + 1] |= number >> (64 - at % 64);
}

#endif
