/* SPDX-License-Identifier: MIT */
/* sliding_counter: the weighted estimate, exact in integers, and the two forms that are wrong. */
#include "unit/test_quota.h"

/* Weighting the last window by the time elapsed admits 2N across an edge; by the rest, not. */
TEST(test_the_last_window_weighs_what_is_left_of_it)
{
    struct stint_quota quota = quota_of("sliding_counter 100/1m");
    struct small_state state = {{0, 0}};
    assert_int_equal(drain(&quota, &state, MINUTE - 1), 100);
    assert_int_equal(drain(&quota, &state, MINUTE), 0);
    double inverted_estimate = 100 * 0.0 / 60; /* previous * elapsed / W at the edge */
    assert_true(inverted_estimate + 100 <= 100);
    assert_int_equal(drain(&quota, &state, MINUTE + 15 * S), 25);
    assert_int_equal(take(&quota, &state, MINUTE + 15 * S, 1).retry_after_ns, S * 6 / 10);
}

/* A client at twice its limit still gets the limit; counting before asking starves it. */
TEST(test_refusals_do_not_starve)
{
    struct stint_quota quota = quota_of("sliding_counter 100/1m");
    struct small_state state = {{0, 0}};
    uint64_t step_ns = MINUTE / 200, granted = 0, starved = 0;
    uint64_t number = 0, previous = 0, current = 0;
    for (uint64_t now_ns = 0; now_ns < 100 * MINUTE; now_ns += step_ns) {
        granted += take(&quota, &state, now_ns, 1).granted;
        if (now_ns / MINUTE != number) {
            number = now_ns / MINUTE;
            previous = current;
            current = 0;
        }
        current++; /* counts first */
        starved += previous * (MINUTE - now_ns % MINUTE) + current * MINUTE <= 100 * MINUTE;
    }
    assert_true(granted >= 9000);
    assert_true(starved <= granted / 10);
}

/* The most in any window is 2N - 1, by taking each unit at the first instant that allows it. */
TEST(test_reaches_twice_the_limit_less_one)
{
    for (uint32_t limit = 1; limit <= 60; limit++) {
        struct stint_quota quota = {
            .algorithm = STINT_SLIDING_COUNTER, .limit = limit, .period_ns = MINUTE};
        assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
        struct small_state state = {{0, 0}};
        uint64_t admitted = drain(&quota, &state, MINUTE - 1), now_ns = MINUTE - 1;
        while (now_ns < 2 * MINUTE - 1) {
            struct stint_decision decision = take(&quota, &state, now_ns, 1);
            admitted += decision.granted;
            now_ns += decision.retry_after_ns;
            if (now_ns >= 2 * MINUTE - 1)
                break;
        }
        assert_int_equal(admitted, limit == 1 ? 1 : 2 * limit - 1);
        assert_int_equal(stint_max_in_any_window(&quota), 2 * limit - 1);
    }
}

/* Waits are exact in this window, into the next, and into the one after. */
TEST(test_waits_are_exact)
{
    static const char *const specs[] = {"sliding_counter 1/1us", "sliding_counter 7/1009ns",
                                        "sliding_counter 100/1m", "sliding_counter 4294967295/1d",
                                        "sliding_counter 3/3650d"};
    uint64_t seed = 7;
    for (size_t i = 0; i < 5; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        for (int run = 0; run < 200; run++) {
            struct small_state state = {{0, 0}};
            uint64_t now_ns = next_random(&seed) % quota.period_ns;
            for (int turn = 0; turn < 40 && now_ns < 8 * YEAR; turn++) {
                uint32_t cost = (uint32_t)(next_random(&seed) % quota.limit) + 1;
                assert_wait_is_exact(&quota, &state, now_ns, cost);
                assert_wait_is_exact(&quota, &state, now_ns, quota.limit);
                struct small_state before = state;
                if (turn % 7 == 6)
                    charge(&quota, &state, now_ns, cost);
                else if (take(&quota, &state, now_ns, cost).outcome != STINT_ALLOW)
                    assert_memory_equal(&state, &before, sizeof(state));
                assert_int_equal(state.word[1] >> 48, 0); /* the store's */
                struct stint_decision metrics = peek(&quota, &state, now_ns, 0);
                assert_int_equal(stint_state_expires_at(&quota, &state),
                                 now_ns + metrics.reset_after_ns);
                now_ns += next_random(&seed) % quota.period_ns / 2;
            }
        }
    }
}

/* Units go back to the window in which they were granted, this or the last. */
TEST(test_refunds_go_to_their_own_window)
{
    struct stint_quota quota = quota_of("sliding_counter 10/10s");
    struct small_state state = {{0, 0}};
    take(&quota, &state, 5 * S, 10);
    assert_int_equal(refund(&quota, &state, 10 * S, 4, 5 * S).granted, 4);
    assert_int_equal(drain(&quota, &state, 10 * S), 4);
    assert_int_equal(refund(&quota, &state, 11 * S, 9, 10 * S).granted, 4);
    assert_int_equal(refund(&quota, &state, 21 * S, 9, 5 * S).granted, 0);
    take(&quota, &state, 21 * S, 3);
    assert_int_equal(refund(&quota, &state, 22 * S, 9, STINT_NEVER_NS).granted, 3);
    assert_int_equal(peek(&quota, &state, 22 * S, 0).reset_after_ns, 0);
}

/* Charging stops where the estimate is twice the limit. */
TEST(test_charge_goes_one_capacity_into_debt)
{
    struct stint_quota quota = quota_of("sliding_counter 10/10s");
    struct small_state state = {{0, 0}};
    assert_int_equal(charge(&quota, &state, 0, 100).granted, 20);
    assert_int_equal(charge(&quota, &state, 15 * S, 100).granted, 10);
    assert_int_equal(take(&quota, &state, 15 * S, 1).outcome, STINT_DENY);
    assert_wait_is_exact(&quota, &state, 15 * S, 10);
}

/* A clock that runs late is taken to be at the beginning of the state's window. */
TEST(test_a_late_clock_frees_nothing)
{
    struct stint_quota quota = quota_of("sliding_counter 10/10s");
    struct small_state state = {{0, 0}};
    take(&quota, &state, 95 * S, 10);
    assert_int_equal(take(&quota, &state, 5 * S, 1).outcome, STINT_DENY);
    assert_wait_is_exact(&quota, &state, 5 * S, 1);
    assert_int_equal(take(&quota, &state, 101 * S, 1).outcome, STINT_ALLOW);
}

/* A filled state denies until its instant, and expires in that window or the next. */
TEST(test_fill_denies_until_its_instant)
{
    static const char *const specs[] = {"sliding_counter 1/1s", "sliding_counter 10/1s",
                                        "sliding_counter 4294967295/1m"};
    uint64_t seed = 8;
    for (size_t i = 0; i < 3; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        for (int turn = 0; turn < 2000; turn++) {
            struct small_state state = {{0, 0}};
            uint64_t until_ns = 1 + next_random(&seed) % (20 * quota.period_ns);
            if (turn % 4 == 0)
                until_ns += quota.period_ns - until_ns % quota.period_ns;
            stint_state_fill(&quota, &state, until_ns);
            assert_int_equal(peek(&quota, &state, 0, 1).outcome, STINT_DENY);
            assert_int_equal(peek(&quota, &state, until_ns / 2, 1).outcome, STINT_DENY);
            assert_int_equal(peek(&quota, &state, until_ns - 1, 1).outcome, STINT_DENY);
            uint64_t expires_ns = stint_state_expires_at(&quota, &state);
            assert_in_range(expires_ns, until_ns, until_ns + 2 * quota.period_ns - 1);
            assert_int_equal(peek(&quota, &state, expires_ns, quota.limit).outcome, STINT_ALLOW);
        }
    }
}

/* The ends of every range, and what 16 bytes cannot hold. */
TEST(test_ends_of_ranges)
{
    static const uint64_t nows_ns[] = {0, 1, 8 * YEAR, STINT_NOW_MAX};
    struct stint_error error;
    struct stint_quota quota = quota_of("sliding_counter 10/1s");
    for (size_t i = 0; i < 4; i++) {
        struct small_state state = {{0, 0}};
        assert_int_equal(take(&quota, &state, nows_ns[i], 0).outcome, STINT_ALLOW);
        assert_int_equal(state.word[0] | state.word[1], 0);
        assert_int_equal(take(&quota, &state, nows_ns[i], 11).outcome, STINT_NEVER);
        assert_int_equal(take(&quota, &state, nows_ns[i], UINT32_MAX).outcome, STINT_NEVER);
        assert_int_equal(drain(&quota, &state, nows_ns[i]), 10);
    }
    struct small_state state = {{0, 0}};
    assert_int_equal(take(&quota, &state, STINT_NOW_MAX + 1, 0).outcome, STINT_NEVER);
    struct stint_quota nothing = quota_of("sliding_counter 0/1s");
    assert_int_equal(take(&nothing, &state, 5, 0).outcome, STINT_ALLOW);
    assert_int_equal(take(&nothing, &state, 5, 1).outcome, STINT_NEVER);
    struct stint_quota fast = {
        .algorithm = STINT_SLIDING_COUNTER, .limit = UINT32_MAX, .period_ns = US};
    assert_int_equal(stint_quota_check(&fast, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "16 bytes"));
    fast.limit = 1 << 29;
    assert_int_equal(stint_quota_check(&fast, &error), STINT_OK);
}
