/* SPDX-License-Identifier: MIT */
/* The random numbers of the hash of keys; keys of unusual lengths. */
#include "base/key_hash.h"

#define EXPAND_TWEAK UINT64_C(0x646e61707865)       /* of the secret: the numbers */
#define COMPRESS_TWEAK UINT64_C(0x73736572706d6f63) /* of the secret of long keys */

static uint64_t limb(const uint64_t secret[2], size_t n, uint8_t at)
{
    const uint8_t bytes[2] = {(uint8_t)n, at};
    return siphash13_128(secret, EXPAND_TWEAK, bytes, sizeof(bytes)).lo;
}

/* The n-th number. */
static struct key_number number(const uint64_t secret[2], size_t n)
{
    assert(n <= UINT8_MAX);
    return (struct key_number){.low = limb(secret, n, 0),
                               .upper = {.lo = limb(secret, n, 1), .hi = limb(secret, n, 2)}};
}

void key_hash_open(struct key_hash *key_hash, const uint64_t secret[2])
{
    for (size_t i = 0; i < KEY_HASH_STARTS; i++)
        key_hash->starts[i] = number(secret, i);
    key_hash->tweak = number(secret, KEY_HASH_STARTS);
    for (size_t i = 0; i < KEY_HASH_DIRECT / 8; i++)
        key_hash->words[i] = number(secret, KEY_HASH_STARTS + 1 + i);
    struct hash128 compress = siphash13_128(secret, COMPRESS_TWEAK, NULL, 0);
    key_hash->secret[0] = compress.lo;
    key_hash->secret[1] = compress.hi;
}

struct hash128 key_hash_other(const struct key_hash *key_hash, struct key_number sum,
                              const void *bytes, size_t len)
{
    assert(len < 8 || len > KEY_HASH_DIRECT);
    const struct key_number *words = key_hash->words;
    if (len < 8)
        return key_hash_end(key_hash_add(sum, &words[0], load_rest(bytes, len)));
    struct hash128 compressed = siphash13_128(key_hash->secret, len, bytes, len);
    sum = key_hash_add(sum, &words[0], compressed.lo);
    return key_hash_end(key_hash_add(sum, &words[1], compressed.hi));
}
