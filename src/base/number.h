/* SPDX-License-Identifier: MIT */
/* Whole numbers in arguments and replies: read and written without a library, for every request. */
#ifndef STINT_BASE_NUMBER_H
#define STINT_BASE_NUMBER_H

#include "base/span.h"

#include <stdbool.h>

#define RESP_DIGITS_MAX 20 /* of a uint64_t */

/* Reads digits from `at` to `end`, appended to those read already. False: another byte is there. */
static inline bool resp_number_digits(const uint8_t *at, const uint8_t *end, uint64_t *number)
{
    uint64_t read = *number;
    for (; at < end; at++) {
        unsigned digit = *at - (unsigned)'0';
        if (digit > 9)
            return false;
        read = read * 10 + digit;
    }
    *number = read;
    return true;
}

/* Digits and nothing else, at most max. False: *number is not set. */
static inline bool resp_number_read(struct span text, uint64_t max, uint64_t *number)
{
    uint64_t read = 0;
    if (text.len - 1 >= RESP_DIGITS_MAX) /* an empty text wraps around, and has no pointer */
        return false;
    const uint8_t *end = text.ptr + text.len;
    if (text.len < RESP_DIGITS_MAX) {
        if (!resp_number_digits(text.ptr, end, &read))
            return false;
    } else {
        /* Nineteen digits always fit; a number that wraps becomes smaller. */
        if (!resp_number_digits(text.ptr, end - 1, &read) || read > UINT64_MAX / 10)
            return false;
        uint64_t tens = read * 10;
        if (!resp_number_digits(end - 1, end, &read) || read < tens)
            return false;
    }
    if (read > max)
        return false;
    *number = read;
    return true;
}

/* From the number of bits: one too few where the number has not reached that power of ten. */
static inline size_t resp_number_len(uint64_t number)
{
    static const uint64_t powers[RESP_DIGITS_MAX] = {
        0,
        UINT64_C(10),
        UINT64_C(100),
        UINT64_C(1000),
        UINT64_C(10000),
        UINT64_C(100000),
        UINT64_C(1000000),
        UINT64_C(10000000),
        UINT64_C(100000000),
        UINT64_C(1000000000),
        UINT64_C(10000000000),
        UINT64_C(100000000000),
        UINT64_C(1000000000000),
        UINT64_C(10000000000000),
        UINT64_C(100000000000000),
        UINT64_C(1000000000000000),
        UINT64_C(10000000000000000),
        UINT64_C(100000000000000000),
        UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    if (number < 10)
        return 1;
    size_t bits = 64 - (size_t)__builtin_clzll(number | 1);
    size_t tens = bits * 1233 >> 12; /* log10(2) = 0.30103 */
    return tens + (number >= powers[tens]);
}

/* Writes the digits at `text`, which has space for RESP_DIGITS_MAX; returns the end of them. */
static inline uint8_t *resp_number_write(uint8_t *text, uint64_t number)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    uint8_t *end = text + resp_number_len(number), *at = end;
    for (; number >= 100; number /= 100)
        memcpy(at -= 2, &pairs[number % 100 * 2], 2);
    if (number >= 10)
        memcpy(at - 2, &pairs[number * 2], 2);
    else
        at[-1] = (uint8_t)('0' + number);
    return end;
}

/* 0 to 15, or -1. */
static inline int number_hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
