/* SPDX-License-Identifier: MIT */
/* Series to the last bit that a double has, and Walker's alias table for ranks. */
#include "sim/workload/random.h"

#include "base/splitmix.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LN2_HIGH 0x1.62e42fefa3800p-1 /* 42 bits: a multiple of it by an exponent is exact */
#define LN2_LOW 0x1.ef35793c76730p-45
#define PI 0x1.921fb54442d18p+1
#define NORMAL_MIN 0x1p-1022 /* the least double with all its bits */
#define DOUBLE_MAX 0x1.fffffffffffffp+1023

void random_init(struct random *random, uint64_t seed, uint64_t stream)
{
    uint64_t state = stream;
    state = splitmix_next(&state) ^ seed;
    for (int i = 0; i < 4; i++)
        random->words[i] = splitmix_next(&state);
}

/*
 * Lemire, "Fast random integer generation in an interval", 2019: the few products that would make
 * some numbers likelier are drawn again.
 */
uint64_t random_below(struct random *random, uint64_t n)
{
    assert(n > 0);
    struct wide product = wide_mul(random_next(random), n);
    if (product.lo < n) {
        uint64_t uneven = (0 - n) % n;
        while (product.lo < uneven)
            product = wide_mul(random_next(random), n);
    }
    return product.hi;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/*
 * x = m 2^k with m between sqrt(1/2) and sqrt(2), and with s = (m - 1) / (m + 1) log m = 2 (s +
 * s^3/3 + s^5/5 + …). The terms are summed in pairs: a chain of them has more latency.
 */
double random_log(double x)
{
    assert(x >= NORMAL_MIN);
    uint64_t bits = bits_of(x) - UINT64_C(0x3fe6a09e667f3bcd); /* sqrt(1/2) */
    int64_t k = (int64_t)bits >> 52;
    double m = double_of((bits & UINT64_C(0x000fffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd));
    double s = (m - 1.0) / (m + 1.0), z = s * s, z2 = z * z, z4 = z2 * z2;
    double low = (1.0 / 3 + z * (1.0 / 5)) + z2 * (1.0 / 7 + z * (1.0 / 9));
    double mid = (1.0 / 11 + z * (1.0 / 13)) + z2 * (1.0 / 15 + z * (1.0 / 17));
    double high = 1.0 / 19 + z * (1.0 / 21);
    double rest = z * (low + z4 * (mid + z4 * high));
    return (double)k * LN2_HIGH + (2.0 * s + (2.0 * s * rest + (double)k * LN2_LOW));
}

double random_exp(double x)
{
    static const double inverse_factorials[] = {
        1.0 / 6227020800,
        1.0 / 479001600,
        1.0 / 39916800,
        1.0 / 3628800,
        1.0 / 362880,
        1.0 / 40320,
        1.0 / 5040,
        1.0 / 720,
        1.0 / 120,
        1.0 / 24,
        1.0 / 6,
        0.5,
        1.0,
        1.0,
    };
    if (x > 709.0)
        return DOUBLE_MAX;
    if (x < -700.0)
        return 0.0;
    int64_t k = (int64_t)(x * 0x1.71547652b82fep+0 + (x < 0 ? -0.5 : 0.5));
    double r = (x - (double)k * LN2_HIGH) - (double)k * LN2_LOW, sum = 0;
    for (size_t i = 0; i < sizeof(inverse_factorials) / sizeof(*inverse_factorials); i++)
        sum = sum * r + inverse_factorials[i];
    return double_of(bits_of(sum) + ((uint64_t)k << 52));
}

/* A quarter of the wave serves all four; its series alternates and ends soon. */
double random_sine(double x)
{
    bool below = x >= 0.5;
    double half = below ? x - 0.5 : x;
    double angle = 2.0 * PI * (half > 0.25 ? 0.5 - half : half), z = angle * angle;
    double term = angle, sum = angle;
    for (int n = 2; n <= 22; n += 2) {
        term = -term * z / (double)(n * (n + 1));
        sum += term;
    }
    return below ? -sum : sum;
}

/* Marsaglia and Bray's polar method; a square root is rounded alike everywhere. */
double random_normal(struct random *random)
{
    for (;;) {
        double u = 2.0 * random_unit(random) - 1.0, v = 2.0 * random_unit(random) - 1.0;
        double s = u * u + v * v;
        if (s >= NORMAL_MIN && s < 1.0)
            return u * sqrt(-2.0 * random_log(s) / s);
    }
}

double random_pareto(struct random *random, double exponent)
{
    return random_exp(-random_log(random_unit(random)) / exponent);
}

/* ---- Zipf's law ---- */

/* The share of a column (of 1 on average) that each rank would fill. */
static void weigh(double *weights, uint32_t n_ranks, double exponent)
{
    double sum = 0;
    for (uint32_t i = n_ranks; i-- > 0;) {
        weights[i] = random_exp(-exponent * random_log((double)i + 1.0));
        sum += weights[i];
    }
    for (uint32_t i = 0; i < n_ranks; i++)
        weights[i] = weights[i] / sum * n_ranks;
}

/*
 * Vose, 1991: a rank that does not fill its column gets the rest of it from one that overflows.
 * `ranks` holds those that do not fill theirs from the front, those that overflow from the back.
 */
static void fill_columns(struct random_zipf *zipf, double *weights, uint32_t *ranks)
{
    uint32_t n_small = 0, large_at = zipf->n_ranks;
    for (uint32_t i = 0; i < zipf->n_ranks; i++) {
        zipf->columns[i] = (struct random_alias){UINT32_MAX, i};
        if (weights[i] < 1.0)
            ranks[n_small++] = i;
        else
            ranks[--large_at] = i;
    }
    while (n_small > 0 && large_at < zipf->n_ranks) {
        uint32_t small = ranks[--n_small], large = ranks[large_at];
        zipf->columns[small] = (struct random_alias){(uint32_t)(weights[small] * 0x1p32), large};
        weights[large] -= 1.0 - weights[small];
        if (weights[large] < 1.0) {
            large_at++;
            ranks[n_small++] = large;
        }
    }
}

int random_zipf_init(struct random_zipf *zipf, uint32_t n_ranks, double exponent,
                     struct stint_error *error)
{
    assert(n_ranks > 0 && n_ranks <= RANDOM_ZIPF_MAX);
    *zipf = (struct random_zipf){.n_ranks = n_ranks,
                                 .columns = malloc(n_ranks * sizeof(*zipf->columns))};
    double *weights = malloc(n_ranks * sizeof(*weights));
    uint32_t *ranks = malloc(n_ranks * sizeof(*ranks));
    int code = 0;
    if (zipf->columns == NULL || weights == NULL || ranks == NULL) {
        code = err_set(error, STINT_E_SYSTEM, "out of memory for %u keys", (unsigned)n_ranks);
        random_zipf_deinit(zipf);
    } else {
        weigh(weights, n_ranks, exponent);
        fill_columns(zipf, weights, ranks);
    }
    free(weights);
    free(ranks);
    return code;
}

void random_zipf_deinit(struct random_zipf *zipf)
{
    free(zipf->columns);
    *zipf = (struct random_zipf){0};
}
