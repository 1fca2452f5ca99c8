/* SPDX-License-Identifier: MIT */
/* The exact count against a count that looks at every pair of uses. */
#include "unit/test_quota.h"

#include "sim/judge/exact.h"

enum { USES_MAX = 400 };

struct use {
    uint64_t at_ns, units;
    uint32_t key;
};

/* The most in any (t-W, t]: t need only be a time of use. */
static uint64_t most_by_pairs(const struct use *uses, size_t n_uses, uint64_t period_ns)
{
    uint64_t most = 0;
    for (size_t end = 0; end < n_uses; end++) {
        uint64_t units = 0;
        for (size_t i = 0; i < n_uses; i++)
            if (uses[i].key == uses[end].key && uses[i].at_ns <= uses[end].at_ns &&
                uses[end].at_ns < uses[i].at_ns + period_ns)
                units += uses[i].units;
        most = units > most ? units : most;
    }
    return most;
}

/* A use at u is inside a window that ends before u + W, and outside one that ends at it. */
TEST(test_a_unit_leaves_exactly_one_period_after_its_use)
{
    static const uint64_t period_ns = 10;
    struct exact exact;
    exact_init(&exact, &period_ns, 1);
    assert_int_equal(exact_add(&exact, 0, (struct exact_run){5, 3}, NULL), 0);
    assert_int_equal(exact_add(&exact, 0, (struct exact_run){15, 4}, NULL), 0);
    assert_int_equal(exact.most[0].units, 4);
    assert_int_equal(exact_add(&exact, 0, (struct exact_run){24, 5}, NULL), 0);
    assert_int_equal(exact.most[0].units, 9);
    assert_int_equal(exact.most[0].at_ns, 24);
    exact_deinit(&exact);
}

TEST(test_agrees_with_counting_every_pair)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed, now_ns = 0;
        uint64_t periods_ns[3] = {1 + next_random(&random) % 50, 1 + next_random(&random) % 500,
                                  1 + next_random(&random) % 5000};
        struct use uses[USES_MAX];
        struct exact exact;
        exact_init(&exact, periods_ns, 3);
        for (size_t i = 0; i < USES_MAX; i++) {
            now_ns += next_random(&random) % 3 == 0 ? next_random(&random) % 60 : 0;
            uint32_t key = (uint32_t)(next_random(&random) % 3) * 1500;
            uses[i] = (struct use){now_ns, next_random(&random) % 4, key};
            struct exact_run run = {uses[i].at_ns, uses[i].units};
            assert_int_equal(exact_add(&exact, uses[i].key, run, NULL), 0);
        }
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(exact.most[i].units, most_by_pairs(uses, USES_MAX, periods_ns[i]));
        exact_deinit(&exact);
    }
}

static uint64_t units_by_pairs(const struct use *uses, size_t n_uses, uint64_t now_ns,
                               uint64_t period_ns)
{
    uint64_t units = 0;
    for (size_t i = 0; i < n_uses; i++)
        if (uses[i].at_ns <= now_ns && now_ns < uses[i].at_ns + period_ns)
            units += uses[i].units;
    return units;
}

/* One window is looked at now, the other much later; and a look may be followed by an earlier one.
 */
TEST(test_windows_are_looked_at_one_by_one_and_times_go_back)
{
    static const uint64_t periods_ns[2] = {50, 70};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed, now_ns = 0;
        struct use uses[USES_MAX];
        struct exact exact;
        exact_init(&exact, periods_ns, 2);
        assert_int_equal(exact_units(&exact, 0, 1, 0), 0); /* a key that never was */
        for (size_t i = 0; i < USES_MAX; i++) {
            now_ns += next_random(&random) % 20;
            uses[i] = (struct use){now_ns, next_random(&random) % 4, 0};
            struct exact_run run = {now_ns, uses[i].units};
            assert_int_equal(exact_add(&exact, 0, run, NULL), 0);
            for (uint64_t looks = next_random(&random) % 4; looks > 0; looks--) {
                size_t period = next_random(&random) % 2;
                uint64_t then_ns = now_ns + next_random(&random) % 90;
                assert_int_equal(exact_units(&exact, 0, period, then_ns),
                                 units_by_pairs(uses, i + 1, then_ns, periods_ns[period]));
            }
        }
        exact_deinit(&exact);
    }
}

/* What a key holds in memory is what its longest period holds, not its whole past. */
TEST(test_memory_is_bounded_by_one_period)
{
    static const uint64_t periods_ns[2] = {7, 100};
    struct exact exact;
    exact_init(&exact, periods_ns, 2);
    for (uint64_t now_ns = 0; now_ns < 1000000; now_ns += 3)
        assert_int_equal(exact_add(&exact, 0, (struct exact_run){now_ns, 1}, NULL), 0);
    assert_true(exact.keys[0].size <= 64);
    assert_int_equal(exact.most[0].units, 3);
    assert_int_equal(exact.most[1].units, 34);
    exact_deinit(&exact);
}

/* As if it had not been used, in every window that is looked at from then on. */
TEST(test_what_is_taken_back_leaves_the_windows)
{
    static const uint64_t periods_ns[2] = {10, 30};
    struct exact exact;
    exact_init(&exact, periods_ns, 2);
    assert_int_equal(exact_add(&exact, 0, (struct exact_run){5, 3}, NULL), 0);
    assert_int_equal(exact_add_unjudged(&exact, 0, (struct exact_run){12, 8}, NULL), 0);
    assert_int_equal(exact.most[0].units, 3);
    exact_take_back(&exact, 0, (struct exact_run){5, 2});
    assert_int_equal(exact_units(&exact, 0, 0, 14), 9);
    assert_int_equal(exact_units(&exact, 0, 0, 15), 8);
    assert_int_equal(exact_units(&exact, 0, 1, 15), 9);
    exact_take_back(&exact, 0, (struct exact_run){5, 1}); /* has left the shorter one */
    assert_int_equal(exact_units(&exact, 0, 0, 15), 8);
    assert_int_equal(exact_units(&exact, 0, 1, 15), 8);
    exact_take_back(&exact, 0, (struct exact_run){12, 8});
    assert_int_equal(exact_add(&exact, 0, (struct exact_run){20, 4}, NULL), 0);
    assert_int_equal(exact.most[0].units, 4);
    assert_int_equal(exact.most[1].units, 4);
    exact_take_back(&exact, 0, (struct exact_run){6, 1}); /* nothing was used then */
    exact_take_back(&exact, 7, (struct exact_run){20, 1});
    assert_int_equal(exact_units(&exact, 0, 1, 20), 4);
    exact_deinit(&exact);
}
