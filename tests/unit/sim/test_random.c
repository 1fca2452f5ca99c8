/* SPDX-License-Identifier: MIT */
/*
 * Known answers: a seed gives the same numbers with every compiler, since these very bits are
 * demanded of all. And each algorithm is the algorithm it is named after.
 */
#include "unit/test.h"

#include "sim/workload/random.h"

#include "base/splitmix.h"

#include <math.h>

#define DRAWS 200000

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* The generators' own published test vectors. */
TEST(test_the_generators_are_those_of_their_papers)
{
    static const uint64_t splitmix[] = {
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431), UINT64_C(16408922859458223821)};
    static const uint64_t xoshiro[] = {UINT64_C(41943041), UINT64_C(58720359),
                                       UINT64_C(3588806011781223), UINT64_C(3591011842654386)};
    uint64_t seed = 1234567;
    struct random random = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof(splitmix) / sizeof(*splitmix); i++)
        assert_int_equal(splitmix_next(&seed), splitmix[i]);
    for (size_t i = 0; i < sizeof(xoshiro) / sizeof(*xoshiro); i++)
        assert_int_equal(random_next(&random), xoshiro[i]);
}

/* Every bit of 1,000 numbers of each algorithm, folded into one word. */
TEST(test_a_seed_gives_the_same_bits_everywhere)
{
    uint64_t folded[6] = {0};
    struct random random;
    struct random_zipf zipf;
    random_init(&random, 42, 7);
    assert_int_equal(random_zipf_init(&zipf, 1000, 1.1, NULL), 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t drawn[6];
        drawn[0] = random_below(&random, 1000003);
        drawn[1] = bits_of(random_unit(&random));
        drawn[2] = bits_of(random_exponential(&random));
        drawn[3] = bits_of(random_normal(&random));
        drawn[4] = bits_of(random_pareto(&random, 1.5));
        drawn[5] = random_zipf_next(&zipf, &random);
        for (int algorithm = 0; algorithm < 6; algorithm++)
            folded[algorithm] = random_rotate(folded[algorithm], 5) ^ drawn[algorithm];
    }
    random_zipf_deinit(&zipf);
    static const uint64_t known[6] = {
        UINT64_C(0xb5c5076d87428b61), UINT64_C(0x5dae587de8b5d96f), UINT64_C(0x7d2c1f17cfb8eec0),
        UINT64_C(0x5e8bbe22b17e7955), UINT64_C(0xac50a868346f8c9f), UINT64_C(0x3cb91af1be19fc01),
    };
    for (int algorithm = 0; algorithm < 6; algorithm++)
        assert_int_equal(folded[algorithm], known[algorithm]);
}

/* Another seed, or another stream of it, is another sequence. */
TEST(test_streams_have_nothing_in_common)
{
    struct random a, b, c;
    random_init(&a, 1, 0);
    random_init(&b, 1, 1);
    random_init(&c, 2, 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t x = random_next(&a), y = random_next(&b), z = random_next(&c);
        assert_true(x != y && y != z && x != z);
    }
}

/* The C library's functions agree to the last bits; they need not be the same everywhere. */
TEST(test_logarithm_power_and_sine_are_right)
{
    for (int i = 1; i <= 100000; i++) {
        double x = (double)i * 0x1.3333p-10, y = 0x1p-53 * (double)i;
        assert_true(fabs(random_log(x) - log(x)) <= 4e-16 * fmax(1, fabs(log(x))));
        assert_true(fabs(random_log(y) - log(y)) <= 4e-16 * fabs(log(y)));
        double e = ((double)i - 50000) * 0.013;
        assert_true(fabs(random_exp(e) - exp(e)) <= 1e-15 * exp(e));
        double part = ((double)i - 1) / 100000;
        assert_true(fabs(random_sine(part) - sin(2 * 3.14159265358979323846 * part)) <= 1e-15);
    }
    assert_true(random_log(1.0) == 0 && random_exp(0.0) == 1);
    assert_true(random_exp(-1e9) == 0 && random_exp(1e9) > 1e308);
}

/* Each number below n comes about as often as the others, also where n does not divide 2^64. */
TEST(test_below_is_even)
{
    static const uint64_t ns[] = {1, 2, 3, 7, 100};
    for (size_t i = 0; i < sizeof(ns) / sizeof(*ns); i++) {
        unsigned seen[100] = {0};
        struct random random;
        random_init(&random, i, 0);
        for (int draw = 0; draw < DRAWS; draw++)
            seen[random_below(&random, ns[i])]++;
        double expected = (double)DRAWS / (double)ns[i];
        for (uint64_t n = 0; n < ns[i]; n++)
            assert_true(fabs(seen[n] - expected) <= 5 * sqrt(expected));
    }
    struct random random;
    random_init(&random, 1, 0);
    uint64_t most = 0;
    for (int draw = 0; draw < 1000; draw++) {
        uint64_t n = random_below(&random, UINT64_MAX / 3 * 2);
        most = n > most ? n : most;
    }
    assert_true(most < UINT64_MAX / 3 * 2 && most > UINT64_MAX / 3 * 2 / 100 * 98);
}

struct timestamps {
    double sum, squares, least, beyond;
};

static struct timestamps draw(double (*algorithm)(struct random *random), double limit)
{
    struct timestamps timestamps = {.least = 1e300};
    struct random random;
    random_init(&random, 11, 0);
    for (int i = 0; i < DRAWS; i++) {
        double x = algorithm(&random);
        timestamps.sum += x / DRAWS;
        timestamps.squares += x * x / DRAWS;
        timestamps.least = fmin(timestamps.least, x);
        timestamps.beyond += x > limit ? 1.0 / DRAWS : 0;
    }
    return timestamps;
}

static double pareto_2_5(struct random *random)
{
    return random_pareto(random, 2.5);
}

TEST(test_algorithms_have_their_timestamps_and_tails)
{
    struct timestamps exponential = draw(random_exponential, 3);
    assert_true(fabs(exponential.sum - 1) < 0.01 && fabs(exponential.squares - 2) < 0.05);
    assert_true(exponential.least >= 0 && fabs(exponential.beyond - exp(-3)) < 0.002);
    struct timestamps normal = draw(random_normal, 1.959964);
    assert_true(fabs(normal.sum) < 0.01 && fabs(normal.squares - 1) < 0.01);
    assert_true(fabs(normal.beyond - 0.025) < 0.002);
    struct timestamps pareto = draw(pareto_2_5, 4);
    assert_true(fabs(pareto.sum - 2.5 / 1.5) < 0.02 && pareto.least >= 1);
    assert_true(fabs(pareto.beyond - pow(4, -2.5)) < 0.002);
}

/* Rank r comes in proportion to 1 / (r + 1)^exponent; 0 makes all alike. */
TEST(test_ranks_follow_zipf)
{
    static const double exponents[] = {0, 0.5, 1, 2.5};
    for (size_t i = 0; i < sizeof(exponents) / sizeof(*exponents); i++) {
        enum { RANKS = 50 };
        unsigned seen[RANKS] = {0};
        double sum = 0;
        struct random random;
        struct random_zipf zipf;
        random_init(&random, 5, 0);
        assert_int_equal(random_zipf_init(&zipf, RANKS, exponents[i], NULL), 0);
        for (int draw = 0; draw < DRAWS; draw++)
            seen[random_zipf_next(&zipf, &random)]++;
        for (int rank = 0; rank < RANKS; rank++)
            sum += pow(rank + 1, -exponents[i]);
        for (int rank = 0; rank < RANKS; rank++) {
            double expected = DRAWS * pow(rank + 1, -exponents[i]) / sum;
            assert_true(fabs(seen[rank] - expected) <= 5 * sqrt(expected) + 1);
        }
        random_zipf_deinit(&zipf);
    }
}
