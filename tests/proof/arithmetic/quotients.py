#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Proves the contracts of solve.c for the functions of base/wide_int.h that give quotients.

With words of w bits, M = 2^w, and R = floor((M - 1) / d): M - d <= R d < M, so for n < M

    n / d - 1 <= n / d - n d / (M d) <= n R / M <= n / d

and floor(n R / M) is floor(n / d) or one less. With R + 1, M <= (R + 1) d <= M + d - 1, and where
n <= M / d the result is less than 1 / d above n / d: then its floor is the quotient's. Of shares,
ceil(p x / w) > s exactly if p x > s w, exactly if x > floor(s w / p): both sides are integers.

The code then adds one where what is left is d or more; or rounds up.

This program looks whether that is so: of small words for all n and d, of 64 bits for the bounds of
R at each power of two, beside it, and at the periods of common quotas.
"""

BITS_MAX = 8
SHARES_MAX = 13
PERIODS = [10**9 * s for s in (1, 10, 60, 3600, 86400, 7 * 86400, 3650 * 86400)]


def check_words(bits):
    count, words = 0, 1 << bits
    for d in range(1, words):
        low = (words - 1) // d
        for n in range(words):
            assert n // d - (n * low >> bits) in (0, 1), (bits, d, n)
            assert n > words // d or n * (low + 1) >> bits == n // d, (bits, d, n)
            over = n - (n * low >> bits) * d
            assert (n * low >> bits) + (over >= d) == n // d, (bits, d, n)
            assert (n * low >> bits) + (over > 0) + (over > d) == -(-n // d), (bits, d, n)
            count += 1
    return count


def check_bounds(bits):
    words = 1 << bits
    near = {(1 << k) + more for k in range(bits) for more in (-1, 0, 1)}
    divisors = sorted(d for d in near | set(PERIODS) | set(range(10, 25)) if 0 < d < words)
    for d in divisors:
        low = (words - 1) // d
        assert words - d <= low * d < words <= (low + 1) * d < words + d, d
    return len(divisors)


def check_shares():
    count = 0
    for whole in range(1, SHARES_MAX):
        for part in range(whole + 1):
            for units in range(1, SHARES_MAX):
                up = (units * part + whole - 1) // whole
                assert up <= units and (part < whole or up == units)
                assert (up == 0) == (part == 0)
                for s in range(units):
                    down = s * whole // units
                    assert down < whole and (s > 0 or down == 0)
                    assert (up > s) == (down < part), (units, part, whole, s)
                    count += 1
    return count


if __name__ == "__main__":
    WORDS = sum(check_words(bits) for bits in range(1, BITS_MAX + 1))
    print(f"{WORDS:,} quotients of up to {BITS_MAX} bits, {check_bounds(64)} divisors of 64 bits, "
          f"{check_shares():,} pairs of shares")
