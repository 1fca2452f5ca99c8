/* SPDX-License-Identifier: MIT */
/*
 * Reads of memory that other threads and processes may write to at any time: the value that is
 * checked is the one that is used, since the compiler reads no volatile word twice.
 */
#ifndef STINT_BASE_READ_ONCE_H
#define STINT_BASE_READ_ONCE_H

#include <stdint.h>

static inline uint32_t read_once32(const uint32_t *at)
{
    return *(const volatile uint32_t *)at;
}

static inline uint64_t read_once64(const uint64_t *at)
{
    return *(const volatile uint64_t *)at;
}

#endif
