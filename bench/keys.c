/* SPDX-License-Identifier: MIT */
/* Sequences of keys from a seed. */
#include "keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014. */
uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static struct sequence sequence_new(size_t len)
{
    struct sequence sequence = {.index = malloc(len * sizeof(uint32_t)), .len = len};
    if (sequence.index == NULL) {
        fprintf(stderr, "bench: out of memory\n");
        exit(1);
    }
    return sequence;
}

void sequence_free(struct sequence *sequence)
{
    free(sequence->index);
    sequence->index = NULL;
}

struct sequence sequence_uniform(uint32_t n_keys, size_t len, uint64_t seed)
{
    struct sequence sequence = sequence_new(len);
    struct rng rng = {seed};
    for (size_t i = 0; i < len; i++)
        sequence.index[i] = (uint32_t)(((rng_next(&rng) >> 32) * n_keys) >> 32);
    return sequence;
}

/*
 * Rejection-inversion for exponent 1: Hörmann and Derflinger, "Rejection-inversion to generate
 * variates from monotone discrete distributions", 1996. The integral of 1/x is ln x.
 */
static uint32_t zipf(struct rng *rng, uint32_t n_keys)
{
    double from = log(1.5) - 1, to = log(n_keys + 0.5);
    for (;;) {
        double u = to + ((double)(rng_next(rng) >> 11) * 0x1p-53) * (from - to);
        double x = exp(u), rank = floor(x + 0.5);
        rank = rank < 1 ? 1 : rank > n_keys ? n_keys : rank;
        if (u >= log(rank + 0.5) - 1 / rank)
            return (uint32_t)rank - 1;
    }
}

struct sequence sequence_zipf(uint32_t n_keys, size_t len, uint64_t seed)
{
    struct sequence sequence = sequence_new(len);
    struct rng rng = {seed};
    for (size_t i = 0; i < len; i++)
        sequence.index[i] = zipf(&rng, n_keys);
    return sequence;
}
