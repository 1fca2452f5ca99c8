/* SPDX-License-Identifier: MIT */
/* Which key is asked for next, and what its 16 bytes are: the same for a subject and its baseline.
 */
#ifndef STINT_BENCH_KEYS_H
#define STINT_BENCH_KEYS_H

#include <stddef.h>
#include <stdint.h>

#define KEY_LEN 16

struct key {
    uint64_t word[2];
};

/* Made from the index alone, so that keys cost no memory access. */
static inline struct key key_of(uint64_t index)
{
    return (struct key){{index * UINT64_C(0x9e3779b97f4a7c15), ~index}};
}

struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);

/* The indices asked for, one after the other; read front to back, so they come from the prefetcher.
 */
struct sequence {
    uint32_t *index;
    size_t len; /* a power of two: reading on from the end begins anew */
};

/* Every key equally often, or the key of rank r as often as 1/r. Leaves with 1 if out of memory. */
struct sequence sequence_uniform(uint32_t n_keys, size_t len, uint64_t seed);
struct sequence sequence_zipf(uint32_t n_keys, size_t len, uint64_t seed);
void sequence_free(struct sequence *sequence);

static inline struct key sequence_key(const struct sequence *sequence, uint64_t at)
{
    return key_of(sequence->index[at & (sequence->len - 1)]);
}

#endif
