/* SPDX-License-Identifier: MIT */
/* The two ways to calculate past 64 bits, with a 128-bit type and by halves, give the same. */
#include "unit/test_quota.h"

#include "base/wide_int.h"

/* The same header once more, under other names, as a 32-bit machine compiles it. */
#define STINT_NO_INT128
#undef STINT_BASE_WIDE_INT_H
#define wide half_wide
#define wide_mul half_wide_mul
#define wide_add half_wide_add
#define wide_div half_wide_div
#define mul_div half_mul_div
#define mul_div_up half_mul_div_up
#define mul_hi half_mul_hi
#define add_sat half_add_sat
#define sub_floor half_sub_floor
#define min_u64 half_min_u64
#define max_u64 half_max_u64
#define bit_length half_bit_length
#include "base/wide_int.h"
#undef wide
#undef wide_mul
#undef wide_add
#undef wide_div
#undef mul_div
#undef mul_div_up
#undef mul_hi
#undef add_sat
#undef sub_floor
#undef min_u64
#undef max_u64
#undef bit_length

static const uint64_t edges[] = {
    0,
    1,
    2,
    3,
    31,
    32,
    1000,
    UINT32_MAX - 1,
    UINT32_MAX,
    UINT64_C(1) << 32,
    (UINT64_C(1) << 32) + 1,
    UINT64_C(1) << 63,
    (UINT64_C(1) << 63) - 1,
    UINT64_MAX - 1,
    UINT64_MAX,
};
#define EDGES (N(edges))

static void compare(uint64_t a, uint64_t b, uint64_t d)
{
    struct wide product = wide_mul(a, b);
    struct half_wide half = half_wide_mul(a, b);
    assert_true(product.hi == half.hi && product.lo == half.lo);
    assert_true(mul_hi(a, b) == half_mul_hi(a, b));
    struct wide sum = wide_add(product, (struct wide){d, b});
    struct half_wide half_sum = half_wide_add(half, (struct half_wide){d, b});
    assert_true(sum.hi == half_sum.hi && sum.lo == half_sum.lo);
    if (d == 0)
        return;
    assert_true(wide_div(product, d) == half_wide_div(half, d));
    assert_true(mul_div(a, b, d) == half_mul_div(a, b, d));
    assert_true(mul_div_up(a, b, d) == half_mul_div_up(a, b, d));
}

TEST(test_edges)
{
    for (size_t i = 0; i < EDGES; i++)
        for (size_t j = 0; j < EDGES; j++)
            for (size_t k = 0; k < EDGES; k++)
                compare(edges[i], edges[j], edges[k]);
}

TEST(test_random)
{
    uint64_t seed = 1;
    for (unsigned i = 0; i < 200000; i++) {
        uint64_t a = next_random(&seed) * next_random(&seed), b = next_random(&seed) << 20;
        uint64_t d = next_random(&seed) * next_random(&seed);
        compare(a >> i % 64, b >> i % 61, d >> i % 59);
    }
}

/* What the quotient is, checked without dividing: q * d + r = a * b with r < d. */
TEST(test_quotients_are_right)
{
    uint64_t seed = 2;
    for (unsigned i = 0; i < 200000; i++) {
        uint64_t a = next_random(&seed) << 20 >> i % 60, b = next_random(&seed) << 10 >> i % 50;
        uint64_t d = (next_random(&seed) << 20 >> i % 57) | 1;
        struct half_wide product = half_wide_mul(a, b);
        if (product.hi >= d) {
            assert_true(half_mul_div(a, b, d) == UINT64_MAX);
            continue;
        }
        uint64_t quotient = half_mul_div(a, b, d);
        struct half_wide back = half_wide_mul(quotient, d);
        uint64_t rest = product.lo - back.lo;
        assert_true(product.hi - back.hi == (product.lo < back.lo) && rest < d);
        uint64_t up = half_mul_div_up(a, b, d);
        assert_true(up == quotient + (rest > 0) || (up == UINT64_MAX && quotient == UINT64_MAX));
    }
}
