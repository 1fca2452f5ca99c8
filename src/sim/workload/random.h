/* SPDX-License-Identifier: MIT */
/*
 * Seeded random numbers: the same for a seed with every compiler and C library. So logarithms and
 * powers are computed here, from operations that IEEE 754 rounds in one way only; the build turns
 * contraction into fused steps off. Good for simulations, not for secrets.
 *
 * The generator is xoshiro256++ of Blackman and Vigna, "Scrambled linear pseudorandom number
 * generators", 2021; its state is filled by Steele, Lea and Flood's splitmix64, 2014.
 */
#ifndef STINT_SIM_WORKLOAD_RANDOM_H
#define STINT_SIM_WORKLOAD_RANDOM_H

#include "base/err.h"
#include "base/wide_int.h"

#define RANDOM_ZIPF_MAX (UINT32_C(1) << 24) /* ranks; 8 bytes each */

struct random {
    uint64_t words[4];
};

/* One seed gives many independent sequences: one for each `stream`. */
void random_init(struct random *random, uint64_t seed, uint64_t stream);

static inline uint64_t random_rotate(uint64_t word, unsigned by)
{
    return word << by | word >> (64 - by);
}

static inline uint64_t random_next(struct random *random)
{
    uint64_t *w = random->words;
    uint64_t result = random_rotate(w[0] + w[3], 23) + w[0];
    uint64_t shifted = w[1] << 17;
    w[2] ^= w[0];
    w[3] ^= w[1];
    w[1] ^= w[2];
    w[0] ^= w[3];
    w[2] ^= shifted;
    w[3] = random_rotate(w[3], 45);
    return result;
}

/* Every one of 0 … n-1 with equal probability; n > 0. */
uint64_t random_below(struct random *random, uint64_t n);

/* Above 0, at most 1, in steps of 2^-53. */
static inline double random_unit(struct random *random)
{
    return (double)((random_next(random) >> 11) + 1) * 0x1p-53;
}

/* Of x > 0, normal; and e to the power x, 0 or the largest number if that is beyond doubles. */
double random_log(double x);
double random_exp(double x);
/* sin(2 pi x) for 0 <= x < 1. */
double random_sine(double x);

/* Mean 1. */
static inline double random_exponential(struct random *random)
{
    return -random_log(random_unit(random));
}

double random_normal(struct random *random);                  /* mean 0, variance 1 */
double random_pareto(struct random *random, double exponent); /* from 1 on */

/* Ranks 0, 1, 2 …, of which rank r is drawn in proportion to 1 / (r + 1)^exponent. */
struct random_zipf {
    uint32_t n_ranks;
    struct random_alias {
        uint32_t share; /* of 2^32: the share of this column that is its own rank's */
        uint32_t other; /* the rest is this one's */
    } * columns;
};

int random_zipf_init(struct random_zipf *zipf, uint32_t n_ranks, double exponent,
                     struct stint_error *error);
void random_zipf_deinit(struct random_zipf *zipf);

static inline uint32_t random_zipf_next(const struct random_zipf *zipf, struct random *random)
{
    struct wide product = wide_mul(random_next(random), zipf->n_ranks);
    struct random_alias column = zipf->columns[product.hi]; /* known to be an integer */
    return product.lo >> 32 < column.share ? (uint32_t)product.hi : column.other;
}

#endif
