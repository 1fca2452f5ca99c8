/* SPDX-License-Identifier: MIT */
/* buckets in its three forms against a plain count of every use, and its published traces. */
#include "unit/strict_model.h"

/*
 * A: U_{W+O} + c > N. B: U_W + c > N - k + 1. AB: both. Of what a charge has displaced, less than
 * one bucket may count longer than it should.
 */
static bool buckets_justified(const struct strict_model *model, uint64_t cost, uint64_t at_ns)
{
    const struct stint_quota *quota = model->quota;
    uint64_t period_ns = quota->period_ns;
    bool by_time =
        strict_used(model, at_ns, period_ns + quota->time_slack_ns) + cost > quota->limit;
    uint64_t slack = quota->count_slack > 0 ? quota->count_slack - 1 : 0;
    bool by_count = strict_used(model, at_ns, period_ns) + cost + slack > quota->limit;
    if (model->displaces)
        return strict_used(model, at_ns, period_ns + quota->time_slack_ns) + cost + 2 * slack >
               quota->limit;
    return (quota->time_slack_ns == 0 || by_time) && (quota->count_slack == 0 || by_count);
}

static const struct strict_subject buckets_subject = {
    .algorithm = &algorithm_buckets,
    .justified = buckets_justified,
};

static struct stint_quota buckets_quota(uint32_t limit, uint64_t period_ns, uint64_t time_slack_ns,
                                        uint32_t count_slack)
{
    struct stint_quota quota = {.algorithm = STINT_BUCKETS,
                                .limit = limit,
                                .period_ns = period_ns,
                                .time_slack_ns = time_slack_ns,
                                .count_slack = count_slack};
    struct stint_error error;
    if (algorithm_buckets.check(&quota, &error) != STINT_OK)
        fail_msg("%s", error.message);
    return quota;
}

static struct stint_decision buckets_do(const struct stint_quota *quota, void *state, uint8_t verb,
                                        uint64_t now_ns, uint32_t cost)
{
    struct stint_ask ask = {.now_ns = now_ns, .at_ns = now_ns, .cost = cost, .verb = verb};
    return algorithm_buckets.ask(quota, state, &ask);
}

/* The number of buckets in a state, from its header alone. */
static uint32_t buckets_alive(const uint64_t *state)
{
    return (uint32_t)((state[0] & 31) | (state[1] & 15) << 5);
}

static const struct {
    uint32_t limit;
    uint64_t period_ns, time_slack_ns;
    uint32_t count_slack;
} buckets_cases[] = {
    {1, NS_PER_S, NS_PER_S, 0},
    {1, NS_PER_S, 0, 1},
    {5, 5000, 1000, 2},
    {9, 5003, 1000, 1},
    {10, NS_PER_US, 1, 3},
    {20, NS_PER_S, NS_PER_S / 3, 4},
    {100, NS_PER_MIN, 6 * NS_PER_S, 0},
    {100, NS_PER_MIN, 0, 7},
    {100, NS_PER_MIN, 7 * NS_PER_S, 30},
    {500, 10 * NS_PER_MIN, NS_PER_MIN, 50},
    {500, 10 * NS_PER_MIN, 0, 1},
    {500, 10 * NS_PER_MIN, 10 * NS_PER_MIN, 500},
    {4000, NS_PER_HOUR, NS_PER_HOUR / 400, 40},
    {31, 10 * NS_PER_YEAR, NS_PER_YEAR, 5},
    {UINT32_MAX, 4 * NS_PER_S, NS_PER_S, 0},
    {UINT32_MAX, 4 * NS_PER_S, NS_PER_S / 7, UINT32_MAX / 50},
};
#define BUCKETS_CASES (N(buckets_cases))

static void buckets_run_all(struct strict_options options, uint32_t runs)
{
    uint32_t denials = 0;
    for (size_t i = 0; i < BUCKETS_CASES; i++) {
        struct stint_quota quota =
            buckets_quota(buckets_cases[i].limit, buckets_cases[i].period_ns,
                          buckets_cases[i].time_slack_ns, buckets_cases[i].count_slack);
        for (uint32_t run = 0; run < runs; run++) {
            options.seed = 77000 * i + run;
            denials += strict_run(&buckets_subject, &quota, &options);
        }
    }
    assert_true(denials > 1000);
}

/* Whatever is asked, no window holds more than N, and every denial has its form's reason. */
TEST(test_never_over_and_never_denied_without_cause)
{
    buckets_run_all((struct strict_options){.steps = 1200}, REPEATS(12, 3));
}

/* The same holds for callers whose clocks are behind. */
TEST(test_stale_clocks_mint_nothing)
{
    buckets_run_all((struct strict_options){.steps = 1200, .stale = true}, REPEATS(8, 2));
}

/* Refunds never let a window hold more than N, nor more buckets live than the state has. */
TEST(test_refunds_never_over)
{
    buckets_run_all((struct strict_options){.steps = 1200, .refunds = true}, REPEATS(10, 2));
    buckets_run_all((struct strict_options){.steps = 1200, .refunds = true, .stale = true},
                    REPEATS(8, 2));
}

/* 500 uses at t = 0 are free again at W: not at W + O, as where a full bucket keeps its close. */
TEST(test_a_full_bucket_comes_back_after_its_last_use)
{
    struct stint_quota quota = buckets_quota(500, 10 * NS_PER_MIN, NS_PER_MIN, 50);
    uint64_t state[BUCKETS_STATE_MAX / 8] = {0};
    for (int i = 0; i < 500; i++)
        assert_int_equal(buckets_do(&quota, state, STINT_TAKE, 0, 1).outcome, STINT_ALLOW);
    struct stint_decision decision = buckets_do(&quota, state, STINT_TAKE, 1, 500);
    assert_true(decision.retry_after_ns == 10 * NS_PER_MIN - 1);
    decision = buckets_do(&quota, state, STINT_TAKE, 10 * NS_PER_MIN, 500);
    assert_int_equal(decision.outcome, STINT_ALLOW);
}

/* Uses at 0 and 59 s, one a minute at 1…9 min and 451 at 10 min fill the 20 buckets of the bound.
 */
TEST(test_the_trace_that_reaches_twenty)
{
    struct stint_quota quota = buckets_quota(500, 10 * NS_PER_MIN, NS_PER_MIN, 50);
    assert_int_equal(quota.derived.max_buckets, 20);
    assert_int_equal(quota.derived.state_size, 16 + 8 * 20);
    uint64_t state[22] = {0};
    buckets_do(&quota, state, STINT_TAKE, 0, 1);
    buckets_do(&quota, state, STINT_TAKE, 59 * NS_PER_S, 1);
    for (uint64_t minute = 1; minute <= 9; minute++)
        buckets_do(&quota, state, STINT_TAKE, minute * NS_PER_MIN, 1);
    for (int i = 0; i < 451; i++)
        assert_int_equal(buckets_do(&quota, state, STINT_TAKE, 10 * NS_PER_MIN, 1).granted, 1);
    assert_int_equal(buckets_alive(state), 20);
}

/* A bucket that is first again because a newer one was emptied takes nothing more. */
TEST(test_an_emptied_bucket_does_not_reopen_the_one_before)
{
    struct stint_quota quota = buckets_quota(6, 10 * NS_PER_S, 10 * NS_PER_S, 2);
    uint64_t state[BUCKETS_STATE_MAX / 8] = {0};
    for (int turn = 0; turn < 20; turn++) {
        buckets_do(&quota, state, STINT_TAKE, 1000, 3);
        buckets_do(&quota, state, STINT_REFUND, 1000, 1);
        buckets_do(&quota, state, STINT_REFUND, 1000, 1);
        assert_true(buckets_alive(state) <= quota.derived.max_buckets);
    }
}

/* A full state denies every cost until its instant, exactly, and is then new. */
TEST(test_a_filled_state_denies_until_then)
{
    uint64_t random = 5;
    for (size_t i = 0; i < BUCKETS_CASES; i++) {
        struct stint_quota quota =
            buckets_quota(buckets_cases[i].limit, buckets_cases[i].period_ns,
                          buckets_cases[i].time_slack_ns, buckets_cases[i].count_slack);
        uint64_t state[BUCKETS_STATE_MAX / 8];
        for (int turn = 0; turn < 100; turn++) {
            uint64_t until_ns =
                1 + strict_below(&random, turn < 50 ? 4 * quota.period_ns : STINT_NOW_MAX - 1);
            algorithm_buckets.fill(&quota, state, until_ns);
            uint64_t expires_ns = algorithm_buckets.expires_at(&quota, state);
            uint64_t expected_ns =
                min_u64(max_u64(until_ns, quota.period_ns), STINT_NOW_MAX + quota.period_ns);
            assert_true(expires_ns == expected_ns);
            uint64_t times_ns[] = {0, until_ns / 2, until_ns - 1, expires_ns - 1};
            for (int t = 0; t < 4; t++)
                if (times_ns[t] <= STINT_NOW_MAX)
                    assert_int_equal(buckets_do(&quota, state, STINT_TAKE, times_ns[t], 1).outcome,
                                     STINT_DENY);
            if (expires_ns <= STINT_NOW_MAX)
                assert_int_equal(
                    buckets_do(&quota, state, STINT_TAKE, expires_ns, quota.limit).outcome,
                    STINT_ALLOW);
        }
    }
}

/* The size follows the formula, and what is too wide or not exact is refused with its numbers. */
TEST(test_sizes_and_refusals)
{
    assert_int_equal(buckets_quota(100, NS_PER_MIN, NS_PER_S, 0).derived.max_buckets, 61);
    assert_int_equal(buckets_quota(100, NS_PER_MIN, 0, 7).derived.max_buckets, 15);
    assert_int_equal(buckets_quota(100, NS_PER_MIN, 9 * NS_PER_S, 7).derived.max_buckets, 21);
    assert_int_equal(buckets_quota(100, NS_PER_MIN, 9 * NS_PER_S, 1).derived.max_buckets, 100);
    assert_int_equal(buckets_quota(0, NS_PER_MIN, 9 * NS_PER_S, 1).derived.state_size, 24);
    struct stint_error error;
    struct stint_quota quota = {.algorithm = STINT_BUCKETS, .limit = 1000, .period_ns = NS_PER_MIN};
    assert_int_equal(algorithm_buckets.check(&quota, &error), STINT_E_MISMATCH);
    quota.count_slack = 1;
    assert_int_equal(algorithm_buckets.check(&quota, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "8016 bytes"));
    quota.count_slack = 1001;
    assert_int_equal(algorithm_buckets.check(&quota, &error), STINT_E_RANGE);
    quota.count_slack = 0;
    quota.time_slack_ns = NS_PER_MIN / 1000 - 1;
    assert_int_equal(algorithm_buckets.check(&quota, &error), STINT_E_RANGE);
    quota.time_slack_ns = NS_PER_MIN + 1;
    assert_int_equal(algorithm_buckets.check(&quota, &error), STINT_E_RANGE);
    quota = (struct stint_quota){
        .limit = 100000, .period_ns = NS_PER_YEAR, .time_slack_ns = NS_PER_YEAR / 10};
    assert_int_equal(algorithm_buckets.check(&quota, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "count_slack of at most 512 fits"));
    quota.count_slack = 512;
    assert_int_equal(algorithm_buckets.check(&quota, &error), STINT_OK);
}
