/* SPDX-License-Identifier: MIT */
/*
 * The hash of a table's keys: answers of tests/property/test_key_hash.py, what is part of the
 * message, and how keys in a pattern spread over sets.
 */
#include "unit/test_quota.h"

#include "base/key_hash.h"

static const struct {
    size_t len;
    uint64_t lo, hi;
} vectors[] = {
    {0, UINT64_C(0x1f3311e080b7fff9), UINT64_C(0x006668fa68b86382)},
    {1, UINT64_C(0xb43b0157ae56bb00), UINT64_C(0xc656a12b83337ab1)},
    {3, UINT64_C(0xe9ae28a998ac5a5b), UINT64_C(0xb1deba515738e6a8)},
    {4, UINT64_C(0x8e1afb05f7f03570), UINT64_C(0x408cd9f86ddcf019)},
    {7, UINT64_C(0xc2ed42abaed467ee), UINT64_C(0xb773809608674530)},
    {8, UINT64_C(0x212127995f635234), UINT64_C(0x1651c76a784e67be)},
    {9, UINT64_C(0xcd23370842608c3f), UINT64_C(0x9c7454e51c57c8d0)},
    {15, UINT64_C(0x7e82f4c022dc96de), UINT64_C(0x5d6c4cb59d73b1a3)},
    {16, UINT64_C(0xf0cf4070342c5516), UINT64_C(0xeb4d2a279b22f4ac)},
    {17, UINT64_C(0x751a28fc10f48169), UINT64_C(0xcbcaec8f686519fd)},
    {31, UINT64_C(0x07b974e2c96eb05a), UINT64_C(0xccbbf5a1a24ada52)},
    {32, UINT64_C(0xa7e4e90335fe1d68), UINT64_C(0x85c60d5ca58869bc)},
    {33, UINT64_C(0x3249c42f201b8738), UINT64_C(0x100e99e41ba4326e)},
    {56, UINT64_C(0xdbc057fe099ae29d), UINT64_C(0x53af39357bc0a6f4)},
    {57, UINT64_C(0xe3a4236a993c60fc), UINT64_C(0xefda5f3e77a2920d)},
    {63, UINT64_C(0x44a6d08e27d02d41), UINT64_C(0x3d5f4fc50dec2128)},
    {64, UINT64_C(0x801596ad53adbd84), UINT64_C(0xea56e71235b4bf65)},
    {65, UINT64_C(0xe29aa2dddbabc7ff), UINT64_C(0x08b85ea89d57c8dc)},
    {66, UINT64_C(0x4076b074f4c019c7), UINT64_C(0xe66542575e59ec61)},
    {72, UINT64_C(0x790b182cb506efd2), UINT64_C(0x78c6690634d42725)},
    {255, UINT64_C(0x1a4e6851c590aa3f), UINT64_C(0x672c2e64af8f119e)},
    {1000, UINT64_C(0xffcb0c414b7df264), UINT64_C(0x0f76c5f1d2fc4e6e)},
    {65536, UINT64_C(0x1fa45132e1751b0f), UINT64_C(0xa2c7cf43e3b093e6)},
};

static const uint64_t secret[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

TEST(test_known_values)
{
    static unsigned char bytes[65536 + 8];
    struct key_hash key;
    key_hash_open(&key, secret);
    for (size_t shift = 0; shift < 8; shift++) { /* where the bytes are does not matter */
        for (size_t i = 0; i < 65536; i++)
            bytes[shift + i] = (unsigned char)(i * 7);
        for (size_t i = 0; i < N(vectors); i++) {
            uint64_t tweak = UINT64_C(0x0123456789abcdef) ^ vectors[i].len;
            struct hash128 hash = key_hash(&key, tweak, bytes + shift, vectors[i].len);
            assert_true(hash.lo == vectors[i].lo && hash.hi == vectors[i].hi);
        }
    }
}

static void assert_differ(struct hash128 a, struct hash128 b)
{
    assert_true(a.lo != b.lo && a.hi != b.hi);
}

/* B18: every bit of a key, its length, the tweak and the secret are hashed. */
TEST(test_all_is_hashed)
{
    static const size_t lens[] = {1, 7, 8, 9, 16, 17, 63, 64, 65, 72, 200};
    const uint64_t other_secret[2] = {secret[0] ^ 1, secret[1]};
    unsigned char bytes[200];
    struct key_hash key, other;
    key_hash_open(&key, secret);
    key_hash_open(&other, other_secret);
    for (size_t i = 0; i < N(lens); i++) {
        memset(bytes, 0, sizeof(bytes));
        struct hash128 hash = key_hash(&key, 1, bytes, lens[i]);
        assert_differ(hash, key_hash(&key, 2, bytes, lens[i]));
        assert_differ(hash, key_hash(&key, 1 | UINT64_C(1) << 63, bytes, lens[i]));
        assert_differ(hash, key_hash(&key, 1, bytes, lens[i] - 1));
        assert_differ(hash, key_hash(&other, 1, bytes, lens[i]));
        for (size_t bit = 0; bit < 8 * lens[i]; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_differ(hash, key_hash(&key, 1, bytes, lens[i]));
            bytes[bit / 8] = 0;
        }
    }
}

/* A key of the 16 bytes to which a long one is compressed is another key. */
TEST(test_a_long_key_is_no_short_one)
{
    static const unsigned char bytes[KEY_HASH_DIRECT + 1];
    struct key_hash key;
    key_hash_open(&key, secret);
    struct hash128 compressed = siphash13_128(key.secret, 0, bytes, sizeof(bytes));
    unsigned char copy[16];
    for (unsigned i = 0; i < 8; i++) {
        copy[i] = (unsigned char)(compressed.lo >> 8 * i);
        copy[8 + i] = (unsigned char)(compressed.hi >> 8 * i);
    }
    assert_differ(key_hash(&key, 1, bytes, sizeof(bytes)), key_hash(&key, 1, copy, 16));
}

#define SETS 1024
#define KEYS (8 * SETS)

/*
 * The sum over all sets of the squared distance from the mean, over what random keys have: near 1.
 * `half` is the half of the upper word that selects the set.
 */
static double unevenness(const struct key_hash *key, uint64_t step, size_t len, unsigned half)
{
    unsigned loads[SETS] = {0};
    double sum = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        const uint64_t words[2] = {i * step, len > 8 ? i * step : 0};
        uint64_t selects = (uint32_t)(key_hash(key, 1, words, len).hi >> 32 * half);
        loads[selects * SETS >> 32]++;
    }
    for (unsigned i = 0; i < SETS; i++) {
        double off = (double)loads[i] - (double)KEYS / SETS;
        sum += off * off;
    }
    return sum / KEYS;
}

/*
 * Keys in arithmetic progression spread as random keys do, under each of many secrets. Without a
 * step that is not linear, the sums are a progression themselves: far more even under most secrets,
 * and in a fraction of the sets under some. The bounds are 9 standard deviations away.
 */
TEST(test_patterns_of_keys_do_not_show)
{
    static const uint64_t steps[] = {1, 256, 1000003, UINT64_C(1) << 32, UINT64_C(1) << 50};
    for (uint64_t i = 0; i < 40; i++) {
        const uint64_t own[2] = {i, ~i};
        struct key_hash key;
        key_hash_open(&key, own);
        for (size_t j = 0; j < N(steps); j++)
            for (size_t len = 8; len <= 16; len += 8)
                for (unsigned half = 0; half < 2; half++) {
                    double found = unevenness(&key, steps[j], len, half);
                    if (found < 0.6 || found > 1.4)
                        fail_msg("secret %u, step %zu, length %zu, half %u: %g", (unsigned)i, j,
                                 len, half, found);
                }
    }
}
