/* SPDX-License-Identifier: MIT */
/* Words of bytes, the first byte lowest on every machine; compilers make one load of each. */
#ifndef STINT_BASE_LOAD_LE_H
#define STINT_BASE_LOAD_LE_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t load_le32(const uint8_t *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

static inline uint64_t load_le64(const uint8_t *p)
{
    return load_le32(p) | load_le32(p + 4) << 32;
}

/* The last 0 … 7 bytes; where two loads overlap, both have the same bits there. */
static inline uint64_t load_rest(const uint8_t *p, size_t n)
{
    if (n >= 4)
        return load_le32(p) | load_le32(p + n - 4) << (8 * (n - 4));
    if (n == 0)
        return 0;
    return (uint64_t)p[0] | (uint64_t)p[n / 2] << (8 * (n / 2)) |
           (uint64_t)p[n - 1] << (8 * (n - 1));
}

#endif
