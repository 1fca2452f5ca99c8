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
    {0, UINT64_C(0x2872d64808372219), UINT64_C(0xc06739f1aded965a)},
    {1, UINT64_C(0x9fb46781d756c5f2), UINT64_C(0x274645368445d849)},
    {3, UINT64_C(0x8177218b41a26f1b), UINT64_C(0x024cbe48b960df90)},
    {4, UINT64_C(0x81595acbaa9d9476), UINT64_C(0x54936a9a0f76c264)},
    {7, UINT64_C(0x5876e2482c130e75), UINT64_C(0xf15ed07dbdfd127b)},
    {8, UINT64_C(0x18010db10d79994f), UINT64_C(0x225330261528f3ae)},
    {9, UINT64_C(0x1192f054d23b11b5), UINT64_C(0x9366c70e1db3c707)},
    {15, UINT64_C(0x0b59c70dcd01dc4a), UINT64_C(0xc1bfd245dd88ac9c)},
    {16, UINT64_C(0x0fd054ca00563ed5), UINT64_C(0xa61394de693f1d57)},
    {17, UINT64_C(0xfc9cf5a5e22e0c34), UINT64_C(0x1316db5c2a036d91)},
    {31, UINT64_C(0x1939c4aafeaa3435), UINT64_C(0x66839c67e343f838)},
    {32, UINT64_C(0x7d16258232283583), UINT64_C(0x558970bbd16b1d03)},
    {33, UINT64_C(0x65272b8f92a4ab9c), UINT64_C(0xe926ebd221325518)},
    {56, UINT64_C(0x443e02f2c7d65d38), UINT64_C(0x140a52cee10cff7e)},
    {57, UINT64_C(0x938b1ac286d111e6), UINT64_C(0x0e69ecd0a7df80b5)},
    {63, UINT64_C(0x6e950319ab49deec), UINT64_C(0xfe5939252ab54327)},
    {64, UINT64_C(0x53960273e393b4bb), UINT64_C(0x5b93f6904c8ef538)},
    {65, UINT64_C(0xa31dc7fa2237746a), UINT64_C(0x24203bddf11d38d9)},
    {66, UINT64_C(0x8e6a4e20f4e64c72), UINT64_C(0x452b119c2e7f7a66)},
    {72, UINT64_C(0x6bc2085f36e7cf22), UINT64_C(0xadae7d7cb69d5d36)},
    {255, UINT64_C(0x490569a0df2b59d5), UINT64_C(0x81f47f4d631e931c)},
    {1000, UINT64_C(0x7700dc74be06abfe), UINT64_C(0x56a1748009914925)},
    {65536, UINT64_C(0x7b206c9ebea6232a), UINT64_C(0xae51e0a827a4eafb)},
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
    struct hash128 compressed = siphash13_128(key.secret, sizeof(bytes), bytes, sizeof(bytes));
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
