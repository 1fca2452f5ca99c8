/* SPDX-License-Identifier: MIT */
/* Each function against the same on 256 single bits. */
#include "unit/test.h"

#include "base/bits256.h"
#include "base/splitmix.h"

#define BITS 256
#define TURNS 20000

struct plain {
    bool bit[BITS];
};

static uint64_t seed = 5;

static uint64_t below(uint64_t n)
{
    return splitmix_next(&seed) % n;
}

static struct bits256 packed(const struct plain *plain)
{
    struct bits256 bits = {{0}};
    for (unsigned i = 0; i < BITS; i++)
        bits.word[i / 64] |= (uint64_t)plain->bit[i] << i % 64;
    return bits;
}

static void assert_bits(struct bits256 bits, const struct plain *plain)
{
    struct bits256 expected = packed(plain);
    assert_memory_equal(&bits, &expected, sizeof(bits));
}

/* Of random length, with runs of ones and zeros that pass the edges of words. */
static struct plain some(void)
{
    struct plain plain = {{0}};
    uint64_t len = below(BITS + 1), run = 1 + below(100);
    for (uint64_t i = 0; i < len; i++)
        plain.bit[i] = i == 0 || below(run) > 0 ? i > 0 && plain.bit[i - 1] : !plain.bit[i - 1];
    if (len > 0 && below(2) == 0)
        for (uint64_t i = 0; i < len; i++)
            plain.bit[i] = !plain.bit[i];
    return plain;
}

TEST(test_counts_and_lengths)
{
    for (int turn = 0; turn < TURNS; turn++) {
        struct plain plain = some();
        struct bits256 bits = packed(&plain);
        unsigned ones = 0, len = 0, trailing = 0, leading = 0;
        for (unsigned i = 0; i < BITS; i++) {
            ones += plain.bit[i];
            len = plain.bit[i] ? i + 1 : len;
        }
        while (trailing < BITS && plain.bit[trailing])
            trailing++;
        while (leading < BITS && plain.bit[BITS - 1 - leading])
            leading++;
        assert_int_equal(bits256_is_zero(&bits), ones == 0);
        assert_int_equal(bits256_count(&bits), ones);
        assert_int_equal(bits256_length(&bits), len);
        assert_int_equal(bits256_trailing_ones(&bits), trailing);
        assert_int_equal(bits256_leading_ones(&bits), leading);
        for (unsigned i = BITS, n = 0; i-- > 0;)
            if (plain.bit[i])
                assert_int_equal(bits256_find_one(&bits, n++), i);
    }
}

TEST(test_shifts_and_cuts)
{
    for (int turn = 0; turn < TURNS; turn++) {
        struct plain plain = some(), up = {{0}}, low = {{0}}, less = {{0}}, ones = {{0}};
        struct bits256 bits = packed(&plain);
        unsigned n = (unsigned)below(BITS);
        for (unsigned i = 0; i < BITS; i++) {
            up.bit[i] = i >= n && plain.bit[i - n];
            low.bit[i] = i < n && plain.bit[i];
            ones.bit[i] = i < n;
            less.bit[i] = i < n ? plain.bit[i] : i + 1 < BITS && plain.bit[i + 1];
        }
        assert_bits(bits256_shift_up(bits, n), &up);
        assert_bits(bits256_low(bits, n), &low);
        assert_bits(bits256_low(bits, BITS), &plain);
        assert_bits(bits256_ones(n), &ones);
        assert_bits(bits256_without(&bits, n), &less);
    }
}

TEST(test_numbers_across_words)
{
    for (int turn = 0; turn < TURNS; turn++) {
        struct plain plain = some();
        unsigned n = (unsigned)below(65), at = (unsigned)below(BITS - n + 1);
        struct bits256 bits = packed(&plain);
        uint64_t number = 0;
        for (unsigned i = 0; i < n; i++)
            number |= (uint64_t)plain.bit[at + i] << i;
        assert_true(bits256_get(&bits, at, n) == number);
        uint64_t other = splitmix_next(&seed) & bits64_ones(n);
        for (unsigned i = 0; i < n; i++)
            plain.bit[at + i] = false;
        bits = packed(&plain);
        for (unsigned i = 0; i < n; i++)
            plain.bit[at + i] = other >> i & 1;
        bits256_put(&bits, at, n, other);
        assert_bits(bits, &plain);
    }
}
