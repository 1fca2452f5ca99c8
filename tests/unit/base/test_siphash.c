/* SPDX-License-Identifier: MIT */
/*
 * The keyed hash against values worked out by another implementation, in Python, which itself was
 * held against the authors' vectors of SipHash-2-4 (64 and 128 bits) and CPython's SipHash-1-3.
 */
#include "unit/test_quota.h"

#include "base/siphash.h"

static const struct {
    size_t len;
    uint64_t lo, hi;
} vectors[] = {
    {0, UINT64_C(0xe73a7f7c4f73e4ae), UINT64_C(0x6ac8ac46399fbddb)},
    {1, UINT64_C(0x37ba49e9b9c8e378), UINT64_C(0x5c524d7941ff9609)},
    {7, UINT64_C(0x3bf4194c825c9800), UINT64_C(0xd7278713a1aa7f5d)},
    {8, UINT64_C(0x11f6354d64ab8aa7), UINT64_C(0xb98bdca5bdd0776a)},
    {9, UINT64_C(0xc035ddd6fcd2f002), UINT64_C(0xf651da61b398627e)},
    {15, UINT64_C(0x0d7f43ced746cb6b), UINT64_C(0xe8cf1ad1c6009f12)},
    {16, UINT64_C(0x15eee2ea2768c376), UINT64_C(0x9a88ad21562e65b9)},
    {17, UINT64_C(0xcfc32c52448927f8), UINT64_C(0x4bffcbacf3fea41c)},
    {63, UINT64_C(0xe57a3e0c73fbec3d), UINT64_C(0xbb068eb2f71b2257)},
    {64, UINT64_C(0xf58c997d99f6aa9d), UINT64_C(0xc4c6865a19ab990e)},
    {255, UINT64_C(0x4b94c601a31d8faa), UINT64_C(0x6eefeb0022f5299e)},
    {256, UINT64_C(0x86b721f79a401bf9), UINT64_C(0x938baa62e484c114)},
    {1000, UINT64_C(0xccec0e9b06a01054), UINT64_C(0xf26f8355972689c3)},
};

static const uint64_t secret[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

TEST(test_known_values)
{
    unsigned char bytes[1001];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t i = 0; i < N(vectors); i++) {
        uint64_t tweak = UINT64_C(0x0123456789abcdef) ^ vectors[i].len;
        struct hash128 hash = siphash13_128(secret, tweak, bytes, vectors[i].len);
        assert_true(hash.lo == vectors[i].lo && hash.hi == vectors[i].hi);
    }
}

/* Where the bytes stand in memory does not matter. */
TEST(test_alignment)
{
    unsigned char bytes[64];
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(bytes + shift, "the same forty bytes, wherever they are!", 40);
        struct hash128 hash = siphash13_128(secret, 1, bytes + shift, 40);
        struct hash128 first =
            siphash13_128(secret, 1, "the same forty bytes, wherever they are!", 40);
        assert_true(hash.lo == first.lo && hash.hi == first.hi);
    }
}

/* B18: NULs, prefixes and lengths tell keys apart, and so do the secret and the tweak. */
TEST(test_near_keys_differ)
{
    static const struct {
        const char *bytes;
        size_t len;
    } keys[] = {{"", 0}, {"\0", 1}, {"\0\0", 2}, {"a", 1}, {"a\0", 2}, {"a\0b", 3}, {"ab", 2}};
    struct hash128 hashes[N(keys)];
    for (size_t i = 0; i < N(keys); i++) {
        hashes[i] = siphash13_128(secret, 1, keys[i].bytes, keys[i].len);
        for (size_t j = 0; j < i; j++)
            assert_true(hashes[i].lo != hashes[j].lo && hashes[i].hi != hashes[j].hi);
        struct hash128 tweaked = siphash13_128(secret, 2, keys[i].bytes, keys[i].len);
        assert_true(tweaked.lo != hashes[i].lo && tweaked.hi != hashes[i].hi);
    }
}
