/* SPDX-License-Identifier: MIT */
/* The random numbers of the hash of keys; keys of unusual lengths. */
#include "base/key_hash.h"

#define EXPAND_TWEAK UINT64_C(0x646e61707865)       /* of the secret: the numbers */
#define COMPRESS_TWEAK UINT64_C(0x73736572706d6f63) /* of the secret of long keys */

static uint64_t limb(const uint64_t secret[2], size_t number, uint8_t at)
{
    const uint8_t bytes[2] = {(uint8_t)number, at};
    return siphash13_128(secret, EXPAND_TWEAK, bytes, sizeof(bytes)).lo;
}

void key_hash_open(struct key_hash *key_hash, const uint64_t secret[2])
{
    struct key_number *const head[] = {&key_hash->start, &key_hash->tweak, &key_hash->len};
    const size_t n_head = sizeof(head) / sizeof(head[0]);
    for (size_t i = 0; i < n_head + KEY_HASH_DIRECT / 8; i++) {
        struct key_number *number = i < n_head ? head[i] : &key_hash->words[i - n_head];
        number->low = limb(secret, i, 0);
        number->upper.lo = limb(secret, i, 1);
        number->upper.hi = limb(secret, i, 2);
    }
    struct hash128 compress = siphash13_128(secret, COMPRESS_TWEAK, NULL, 0);
    key_hash->secret[0] = compress.lo;
    key_hash->secret[1] = compress.hi;
}

struct hash128 key_hash_other(const struct key_hash *key_hash, struct key_number sum,
                              const void *bytes, size_t len)
{
    assert(len < 8 || len > KEY_HASH_DIRECT);
    const struct key_number *number = key_hash->words;
    if (len < 8)
        return key_hash_end(key_hash_add(sum, number, load_rest(bytes, len)));
    struct hash128 compressed = siphash13_128(key_hash->secret, 0, bytes, len);
    sum = key_hash_add(sum, &number[0], compressed.lo);
    return key_hash_end(key_hash_add(sum, &number[1], compressed.hi));
}
