/* SPDX-License-Identifier: MIT */
/* fixed_window: N per window wherever the windows lie, 2N across an edge, nothing kept after it. */
#include "unit/test_quota.h"

/* N fit in a window, N more in the next: 2N within one period, as explain says. */
TEST(test_twice_the_limit_across_an_edge)
{
    struct stint_quota quota = quota_of("fixed_window 100/1m");
    struct small_state state = {{0, 0}};
    assert_int_equal(drain(&quota, &state, MINUTE - 1), 100);
    assert_int_equal(take(&quota, &state, MINUTE - 1, 1).retry_after_ns, 1);
    assert_int_equal(drain(&quota, &state, MINUTE), 100);
    assert_int_equal(stint_max_in_any_window(&quota), 200);
    assert_int_equal(take(&quota, &state, MINUTE, 1).retry_after_ns, MINUTE);
    assert_int_equal(stint_state_expires_at(&quota, &state), 2 * MINUTE);
    assert_int_equal(take(&quota, &state, 2 * MINUTE, 100).remaining, 0);
}

/* Windows lie on the wall clock, also before 1970, where the epoch makes now a time then. */
TEST(test_windows_lie_on_the_wall_clock)
{
    struct stint_quota quota = quota_of("fixed_window 5/1h");
    int64_t epochs_ns[] = {0, (int64_t)(1800 * S), -(int64_t)(900 * S), -(int64_t)(4500 * S)};
    uint64_t ends_s[] = {3600, 1800, 900, 900};
    for (size_t i = 0; i < 4; i++) {
        struct small_state state = {{0, 0}};
        quota.epoch_ns = epochs_ns[i];
        assert_int_equal(take(&quota, &state, 0, 5).reset_after_ns, ends_s[i] * S);
        assert_int_equal(take(&quota, &state, ends_s[i] * S - 1, 1).outcome, STINT_DENY);
        assert_int_equal(take(&quota, &state, ends_s[i] * S, 1).outcome, STINT_ALLOW);
    }
}

/* A month ends with the month, at the offset's midnight. */
TEST(test_months_end_at_the_offsets_midnight)
{
    struct stint_quota quota = quota_of("fixed_window 1000/1mo align=calendar utc_offset=+01:00");
    struct small_state state = {{0, 0}};
    assert_int_equal(quota.period_ns, 28 * DAY);
    assert_int_equal(take(&quota, &state, 0, 1000).reset_after_ns, 31 * DAY - 3600 * S);
    uint64_t february_ns = 31 * DAY - 3600 * S;
    assert_int_equal(take(&quota, &state, february_ns - 1, 1).outcome, STINT_DENY);
    assert_int_equal(take(&quota, &state, february_ns, 1000).reset_after_ns, 28 * DAY);
}

/* The window of the first use lasts the period, whatever the grain its start is kept in. */
TEST(test_first_use_windows_last_their_period)
{
    static const char *const specs[] = {"fixed_window 10/1s align=first_use",
                                        "fixed_window 100000/1s align=first_use",
                                        "fixed_window 1000000/999999937ns align=first_use",
                                        "fixed_window 4294967295/1d align=first_use"};
    uint64_t seed = 5;
    for (size_t i = 0; i < 4; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        assert_true(quota.derived.grain_ns <= quota.period_ns / 1000);
        for (int turn = 0; turn < 2000; turn++) {
            struct small_state state = {{0, 0}};
            uint64_t now_ns = next_random(&seed) % (7 * YEAR);
            struct stint_decision first = take(&quota, &state, now_ns, quota.limit);
            assert_in_range(first.reset_after_ns, quota.period_ns,
                            quota.period_ns + quota.derived.grain_ns - 1);
            assert_wait_is_exact(&quota, &state, now_ns, 1);
            assert_int_equal(stint_state_expires_at(&quota, &state), now_ns + first.reset_after_ns);
            assert_int_equal(refund(&quota, &state, now_ns + 5, 1, now_ns).granted, 1);
        }
    }
}

/* Units come back to the window they were granted in, and to no other. */
TEST(test_refunds_go_to_their_own_window)
{
    static const char *const specs[] = {"fixed_window 10/1s", "fixed_window 10/1s align=first_use",
                                        "fixed_window 100000/1s align=first_use"};
    for (size_t i = 0; i < 3; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct small_state state = {{0, 0}};
        uint64_t now_ns = 100 * S;
        uint64_t end_ns = now_ns + take(&quota, &state, now_ns, quota.limit).reset_after_ns;
        assert_int_equal(take(&quota, &state, end_ns, quota.limit).granted, quota.limit);
        assert_int_equal(refund(&quota, &state, end_ns + 5, 3, end_ns - 1).granted, 0);
        assert_int_equal(take(&quota, &state, end_ns + 5, 1).outcome, STINT_DENY);
        uint64_t later_ns = end_ns + S / 2;
        assert_int_equal(refund(&quota, &state, later_ns, 3, later_ns - 1).granted, 3);
        assert_int_equal(take(&quota, &state, later_ns, 3).outcome, STINT_ALLOW);
        assert_int_equal(refund(&quota, &state, later_ns, UINT32_MAX, later_ns).granted,
                         quota.limit);
        assert_int_equal(stint_state_expires_at(&quota, &state) > later_ns, 1);
    }
}

/* Charging goes N into debt; the debt ends with the window. */
TEST(test_debt_ends_with_the_window)
{
    struct stint_quota quota = quota_of("fixed_window 10/1s");
    struct small_state state = {{0, 0}};
    assert_int_equal(charge(&quota, &state, 0, 15).granted, 15);
    assert_int_equal(charge(&quota, &state, 0, 15).granted, 5);
    assert_int_equal(take(&quota, &state, 0, 1).outcome, STINT_DENY);
    assert_int_equal(take(&quota, &state, 0, 0).remaining, 0);
    assert_int_equal(refund(&quota, &state, 0, 12, 0).granted, 12);
    assert_int_equal(take(&quota, &state, 0, 0).remaining, 2);
    assert_int_equal(take(&quota, &state, S, 10).outcome, STINT_ALLOW);
}

/* A state that is later than now stays in force: an old clock opens no new window. */
TEST(test_a_late_clock_opens_no_window)
{
    struct stint_quota quota = quota_of("fixed_window 10/1s");
    struct small_state state = {{0, 0}};
    assert_int_equal(take(&quota, &state, 5 * S, 9).granted, 9);
    assert_int_equal(take(&quota, &state, 3 * S, 1).outcome, STINT_ALLOW);
    assert_int_equal(take(&quota, &state, 3 * S, 1).retry_after_ns, 3 * S);
    assert_int_equal(take(&quota, &state, 5 * S, 1).outcome, STINT_DENY);
}

/* A filled state denies until its instant, and expires then or within two grains. */
TEST(test_fill_denies_until_its_instant)
{
    static const char *const specs[] = {
        "fixed_window 10/1s", "fixed_window 10/1s align=first_use", "fixed_window 1000000/1s",
        "fixed_window 1000000/1s align=first_use", "fixed_window 5/1mo align=calendar"};
    uint64_t seed = 6;
    for (size_t i = 0; i < 5; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        for (int turn = 0; turn < 1000; turn++) {
            struct small_state state = {{0, 0}}, used = {{0, 0}};
            uint64_t until_ns = 1 + next_random(&seed) % (turn % 2 ? YEAR : 3 * S);
            stint_state_fill(&quota, &state, until_ns);
            uint64_t expires_ns = stint_state_expires_at(&quota, &state);
            assert_in_range(expires_ns, until_ns, until_ns + 2 * quota.derived.grain_ns - 1);
            assert_int_equal(peek(&quota, &state, 0, 1).retry_after_ns, expires_ns);
            assert_int_equal(peek(&quota, &state, until_ns - 1, 1).outcome, STINT_DENY);
            assert_int_equal(peek(&quota, &state, expires_ns, 1).outcome, STINT_ALLOW);
            /* The death of a state that was really used is met to the nanosecond. */
            take(&quota, &used, until_ns, 1);
            expires_ns = stint_state_expires_at(&quota, &used);
            stint_state_fill(&quota, &state, expires_ns);
            assert_int_equal(stint_state_expires_at(&quota, &state), expires_ns);
        }
    }
}

/* The ends of every range, and what a word cannot hold. */
TEST(test_ends_of_ranges)
{
    static const uint64_t nows_ns[] = {0, 1, 8 * YEAR, STINT_NOW_MAX};
    struct stint_error error;
    struct stint_quota quota = quota_of("fixed_window 2/1s");
    for (size_t i = 0; i < 4; i++) {
        struct small_state state = {{0, 0}};
        assert_int_equal(take(&quota, &state, nows_ns[i], 0).outcome, STINT_ALLOW);
        assert_int_equal(state.word[0], 0);
        assert_int_equal(take(&quota, &state, nows_ns[i], 3).outcome, STINT_NEVER);
        assert_int_equal(take(&quota, &state, nows_ns[i], UINT32_MAX).outcome, STINT_NEVER);
        assert_int_equal(drain(&quota, &state, nows_ns[i]), 2);
    }
    struct small_state state = {{0, 0}};
    assert_int_equal(take(&quota, &state, STINT_NOW_MAX + 1, 0).outcome, STINT_NEVER);
    struct stint_quota wide = quota_of("fixed_window 1000000000/1h");
    assert_int_equal(drain(&wide, &state, STINT_NOW_MAX), 0); /* past its life: nothing fits */
    struct stint_quota nothing = quota_of("fixed_window 0/1s");
    assert_int_equal(take(&nothing, &state, 5, 0).outcome, STINT_ALLOW);
    assert_int_equal(take(&nothing, &state, 5, 1).outcome, STINT_NEVER);
    struct stint_quota fast = {
        .algorithm = STINT_FIXED_WINDOW, .limit = UINT32_MAX, .period_ns = S / 10};
    assert_int_equal(stint_quota_check(&fast, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "8 bytes"));
    fast = (struct stint_quota){.algorithm = STINT_FIXED_WINDOW,
                                .align = STINT_ALIGN_FIRST_USE,
                                .limit = 1000000000,
                                .period_ns = S};
    assert_int_equal(stint_quota_check(&fast, &error), STINT_E_RANGE);
}

/* On the wall clock a coarse grain rounds no end: it has one edge, and that is found. */
TEST(test_counts_that_leave_few_bits_for_the_time)
{
    static const char *const specs[] = {"fixed_window 1000000000/1s", "fixed_window 4294967295/1s",
                                        "fixed_window 4294967295/999999937ns"};
    uint64_t seed = 7;
    for (size_t i = 0; i < 3; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        assert_true(quota.derived.grain_ns > quota.period_ns / 1000);
        for (int turn = 0; turn < 2000; turn++) {
            struct small_state state = {{0, 0}};
            quota.epoch_ns = (int64_t)(next_random(&seed) % (50 * YEAR));
            uint64_t now_ns = next_random(&seed) % (7 * YEAR);
            uint64_t wall_ns = now_ns + (uint64_t)quota.epoch_ns;
            uint64_t end_ns = now_ns + quota.period_ns - wall_ns % quota.period_ns;
            assert_int_equal(take(&quota, &state, now_ns, quota.limit).reset_after_ns,
                             end_ns - now_ns);
            assert_int_equal(stint_state_expires_at(&quota, &state), end_ns);
            assert_int_equal(take(&quota, &state, end_ns - 1, 1).retry_after_ns, 1);
            assert_int_equal(refund(&quota, &state, end_ns - 1, 3, now_ns).granted, 3);
            assert_int_equal(drain(&quota, &state, end_ns - 1), 3);
            assert_int_equal(take(&quota, &state, end_ns, quota.limit).granted, quota.limit);
            stint_state_fill(&quota, &state, now_ns + 1);
            uint64_t expires_ns = stint_state_expires_at(&quota, &state);
            assert_in_range(expires_ns, now_ns + 1, now_ns + 2 * quota.period_ns);
            assert_int_equal(peek(&quota, &state, now_ns, 1).outcome, STINT_DENY);
            stint_state_fill(&quota, &state, end_ns);
            assert_int_equal(stint_state_expires_at(&quota, &state), end_ns);
        }
    }
}
