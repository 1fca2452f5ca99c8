/* SPDX-License-Identifier: MIT */
/* SipHash-1-3-128 over (tweak as eight little-endian bytes, then the bytes). */
#include "base/siphash.h"

#include "base/load_le.h"

struct sip_state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static inline void sip_round(struct sip_state *s)
{
    s->v0 += s->v1;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static inline void sip_word(struct sip_state *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    s->v0 ^= word;
}

struct hash128 siphash13_128(const uint64_t secret[2], uint64_t tweak, const void *bytes,
                             size_t len)
{
    struct sip_state s = {
        .v0 = secret[0] ^ UINT64_C(0x736f6d6570736575),
        .v1 = secret[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
        .v2 = secret[0] ^ UINT64_C(0x6c7967656e657261),
        .v3 = secret[1] ^ UINT64_C(0x7465646279746573),
    };
    const uint8_t *p = bytes;
    size_t left = len;

    sip_word(&s, tweak);
    for (; left >= 8; p += 8, left -= 8)
        sip_word(&s, load_le64(p));
    sip_word(&s, ((uint64_t)(len + 8) << 56) | load_rest(p, left));

    struct hash128 hash;
    s.v2 ^= 0xee;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    hash.lo = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= 0xdd;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    hash.hi = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    return hash;
}
