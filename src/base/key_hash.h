/* SPDX-License-Identifier: MIT */
/*
 * The keyed hash of a table's keys. The message (tweak, words of the key) is hashed by one sum of
 * products modulo 2^192, of which the upper 128 bits are the result: Lemire and Kaser, "Strongly
 * universal string hashing is fast", 2014. Each length has a random number of its own to begin
 * with. With random numbers the results of two different messages are independent and uniform, so
 * that a client that chooses keys, and does not see hashes, cannot make them collide. This is no
 * pseudorandom function: an attacker who sees hashes can compute others. A hash that clients can
 * see needs SipHash (base/siphash.h); those of the states in a table are for its operator.
 *
 * Keys longer than KEY_HASH_DIRECT bytes are compressed by SipHash first, their length as its
 * tweak.
 */
#ifndef STINT_BASE_KEY_HASH_H
#define STINT_BASE_KEY_HASH_H

#include "base/load_le.h"
#include "base/siphash.h"
#include "base/wide_int.h"

#include <assert.h>

#define KEY_HASH_DIRECT 64
#define KEY_HASH_STARTS                                                                            \
    (KEY_HASH_DIRECT + 2) /* one for each length, the last for all longer ones */

/* A number below 2^192. */
struct key_number {
    struct wide upper;
    uint64_t low;
};

struct key_hash {
    struct key_number starts[KEY_HASH_STARTS], tweak, words[KEY_HASH_DIRECT / 8];
    uint64_t secret[2]; /* of the hash that compresses long keys */
};

/* Expands a random secret. */
void key_hash_open(struct key_hash *key_hash, const uint64_t secret[2]);

/* sum + number * word, modulo 2^192. */
static inline struct key_number key_hash_add(struct key_number sum, const struct key_number *number,
                                             uint64_t word)
{
    struct wide low = wide_add(wide_mul(number->low, word), (struct wide){0, sum.low});
    struct wide upper = wide_add(wide_mul(number->upper.lo, word), (struct wide){0, low.hi});
    upper.hi += number->upper.hi * word;
    return (struct key_number){wide_add(sum.upper, upper), low.lo};
}

/*
 * Sums of keys in arithmetic progression are one, too, and an unlucky step would put them in a few
 * sets. The upper half, which selects the sets, is therefore changed by a product of the lower one.
 * This is a bijection of 128 bits, so that all that holds for pairs of sums holds for hashes.
 */
static inline struct hash128 key_hash_end(struct key_number sum)
{
    uint64_t lo = sum.upper.lo;
    struct wide square = wide_mul(lo, lo ^ UINT64_C(0x9e3779b97f4a7c15));
    return (struct hash128){.lo = lo, .hi = sum.upper.hi ^ square.hi ^ square.lo};
}

/* Of keys that are longer than KEY_HASH_DIRECT, or shorter than a word. */
struct hash128 key_hash_other(const struct key_hash *key_hash, struct key_number sum,
                              const void *bytes, size_t len);

/* Always inline: the call would cost as much as a word. */
__attribute__((always_inline)) static inline struct hash128
key_hash(const struct key_hash *key_hash, uint64_t tweak, const void *bytes, size_t len)
{
    assert(bytes != NULL || len == 0);
    size_t start = len <= KEY_HASH_DIRECT ? len : KEY_HASH_STARTS - 1;
    struct key_number sum = key_hash_add(key_hash->starts[start], &key_hash->tweak, tweak);
    if (len < 8 || len > KEY_HASH_DIRECT)
        return key_hash_other(key_hash, sum, bytes, len);
    const struct key_number *number = key_hash->words;
    const uint8_t *p = bytes;
    const uint8_t *last = p + len - 8;
    for (; p < last; p += 8)
        sum = key_hash_add(sum, number++, load_le64(p));
    /* The last eight bytes: for one length, they tell what the words before leave open. */
    return key_hash_end(key_hash_add(sum, number, load_le64(last)));
}

#endif
