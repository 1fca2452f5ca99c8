/* SPDX-License-Identifier: MIT */
/*
 * SipHash-1-3 with a 128-bit result: a pseudorandom function, so that a client that chooses keys
 * cannot make them collide. Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; the
 * 128-bit form is by the same authors, 2014.
 */
#ifndef STINT_BASE_SIPHASH_H
#define STINT_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t lo, hi;
};

/* `tweak` is hashed before the bytes: it separates uses of one secret. */
struct hash128 siphash13_128(const uint64_t secret[2], uint64_t tweak, const void *bytes,
                             size_t len);

#endif
