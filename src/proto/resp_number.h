/* SPDX-License-Identifier: MIT */
/* Whole numbers in arguments and replies: read and written without a library, for every request. */
#ifndef STINT_PROTO_RESP_NUMBER_H
#define STINT_PROTO_RESP_NUMBER_H

#include "base/span.h"

#include <stdbool.h>

#define RESP_DIGITS_MAX 20 /* of a uint64_t */

/* Digits and nothing else, at most max. False: *number is not set. */
static inline bool resp_number_read(struct span text, uint64_t max, uint64_t *number)
{
    uint64_t read = 0;
    if (text.len == 0 || text.len > RESP_DIGITS_MAX)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = text.ptr[i] - (unsigned)'0';
        /* Below UINT64_MAX / 10 nothing can wrap, and above it few numbers end. */
        if (digit > 9 || read > UINT64_MAX / 10)
            return false;
        uint64_t tens = read * 10;
        read = tens + digit;
        if (read < tens)
            return false;
    }
    if (read > max)
        return false;
    *number = read;
    return true;
}

/* Writes the digits at `text`, which has room for RESP_DIGITS_MAX; returns the place behind them.
 */
static inline uint8_t *resp_number_write(uint8_t *text, uint64_t number)
{
    uint8_t digits[RESP_DIGITS_MAX];
    size_t n = 0;
    do {
        digits[RESP_DIGITS_MAX - ++n] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    memcpy(text, digits + RESP_DIGITS_MAX - n, n);
    return text + n;
}

#endif
