/* SPDX-License-Identifier: MIT */
/*
 * Arithmetic whose intermediate results exceed 64 bits. Uses a 128-bit type where the compiler has
 * one, else 64-bit halves (32-bit targets); both give the same results and are tested against each
 * other.
 */
#ifndef STINT_BASE_WIDE_INT_H
#define STINT_BASE_WIDE_INT_H

#include <stdint.h>

#ifdef __SIZEOF_INT128__
/* Not in ISO C: the word before it keeps -Wpedantic silent. */
__extension__ typedef unsigned __int128 uint128;
#endif

struct wide {
    uint64_t hi, lo;
};

#if defined(__SIZEOF_INT128__) && !defined(STINT_NO_INT128)

static inline struct wide wide_mul(uint64_t a, uint64_t b)
{
    uint128 product = (uint128)a * b;
    return (struct wide){(uint64_t)(product >> 64), (uint64_t)product};
}

/* Modulo 2^128. */
static inline struct wide wide_add(struct wide a, struct wide b)
{
    uint128 sum = (((uint128)a.hi << 64) | a.lo) + (((uint128)b.hi << 64) | b.lo);
    return (struct wide){(uint64_t)(sum >> 64), (uint64_t)sum};
}

/* floor(n / d), or UINT64_MAX where it does not fit 64 bits. */
static inline uint64_t wide_div(struct wide n, uint64_t d)
{
    if (n.hi >= d)
        return UINT64_MAX;
    return (uint64_t)((((uint128)n.hi << 64) | n.lo) / d);
}

#else

static inline struct wide wide_mul(uint64_t a, uint64_t b)
{
    uint64_t a_lo = (uint32_t)a, a_hi = a >> 32, b_lo = (uint32_t)b, b_hi = b >> 32;
    uint64_t low = a_lo * b_lo;
    uint64_t mid = a_hi * b_lo + (low >> 32);
    uint64_t mid2 = a_lo * b_hi + (uint32_t)mid;
    return (struct wide){a_hi * b_hi + (mid >> 32) + (mid2 >> 32), (mid2 << 32) | (uint32_t)low};
}

/* Modulo 2^128. */
static inline struct wide wide_add(struct wide a, struct wide b)
{
    uint64_t lo = a.lo + b.lo;
    return (struct wide){a.hi + b.hi + (lo < a.lo), lo};
}

/* floor(n / d), or UINT64_MAX where it does not fit 64 bits. Long division, bit by bit. */
static inline uint64_t wide_div(struct wide n, uint64_t d)
{
    if (n.hi >= d)
        return UINT64_MAX;
    uint64_t rest = n.hi, quotient = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t carry = rest >> 63;
        rest = (rest << 1) | ((n.lo >> bit) & 1);
        if (carry || rest >= d) {
            rest -= d;
            quotient |= UINT64_C(1) << bit;
        }
    }
    return quotient;
}

#endif

/* floor(a * b / d) and ceil(a * b / d), saturating at UINT64_MAX. */
static inline uint64_t mul_div(uint64_t a, uint64_t b, uint64_t d)
{
    struct wide product = wide_mul(a, b);
    return product.hi == 0 ? product.lo / d : wide_div(product, d);
}

static inline uint64_t mul_div_up(uint64_t a, uint64_t b, uint64_t d)
{
    struct wide product = wide_mul(a, b);
    product.lo += d - 1;
    product.hi += product.lo < d - 1;
    return product.hi == 0 ? product.lo / d : wide_div(product, d);
}

/* The high half of a * b. */
static inline uint64_t mul_hi(uint64_t a, uint64_t b)
{
    return wide_mul(a, b).hi;
}

static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t sub_floor(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Bits needed to write n: 0 for 0. */
static inline unsigned bit_length(uint64_t n)
{
    return n == 0 ? 0 : 64 - (unsigned)__builtin_clzll(n);
}

#endif
