/* SPDX-License-Identifier: MIT */
/* Which quotas can be kept: defaults, ranges, and options in the wrong place. */
#include "unit/test_quota.h"

#define N_ALGORITHMS 7

/* A quota that each algorithm keeps. */
static struct stint_quota plain(int algorithm)
{
    struct stint_quota quota = {.algorithm = (uint8_t)algorithm, .limit = 20, .period_ns = MINUTE};
    if (algorithm == STINT_BUCKETS)
        quota.count_slack = 2;
    if (algorithm == STINT_CONCURRENCY) {
        quota.period_ns = 0;
        quota.lease_ns = 30 * S;
    }
    return quota;
}

static void assert_refused(struct stint_quota quota, int code, const char *part)
{
    struct stint_error error = {0};
    assert_int_equal(stint_quota_check(&quota, &error), code);
    assert_int_equal(error.code, code);
    if (strstr(error.message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.message, part);
    assert_int_equal(quota.derived.checked, 0);
    assert_int_equal(stint_quota_check(&quota, NULL), code);
}

/* Every default is filled in, and a checked quota passes unchanged. */
TEST(test_defaults_are_filled_in_once)
{
    for (int algorithm = 1; algorithm <= N_ALGORITHMS; algorithm++) {
        struct stint_quota quota = plain(algorithm);
        assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
        assert_int_equal(quota.when_full, STINT_FULL_DEFAULT); /* open: a table may say */
        assert_int_equal(quota.burst, algorithm == STINT_GCRA ? 20 : 0);
        assert_true(stint_state_size(&quota) > 0);
        struct stint_quota again = quota;
        assert_int_equal(stint_quota_check(&again, NULL), STINT_OK);
        assert_memory_equal(&again, &quota, sizeof(quota));
    }
    struct stint_quota nameless = {.limit = 5, .period_ns = S};
    assert_int_equal(stint_quota_check(&nameless, NULL), STINT_OK);
    assert_int_equal(nameless.algorithm, STINT_WINDOW);
    assert_int_equal(nameless.resolution, 24);
}

/* Whatever lies in the padding of a caller's struct, equal quotas are equal bytes. */
TEST(test_equal_quotas_are_equal_bytes)
{
    struct stint_quota a = plain(STINT_GCRA), b = a;
    memset(&b.derived, 0xa5, sizeof(b.derived));
    memset(b.pad, 0xa5, sizeof(b.pad));
    assert_int_equal(stint_quota_check(&a, NULL), STINT_OK);
    assert_int_equal(stint_quota_check(&b, NULL), STINT_OK);
    assert_memory_equal(&a, &b, sizeof(a));
}

/* A limit of 0 is a quota of every algorithm: it denies all but nothing. */
TEST(test_a_limit_of_0_denies_every_cost)
{
    for (int algorithm = 1; algorithm <= N_ALGORITHMS; algorithm++) {
        _Alignas(16) uint64_t bytes[512] = {0};
        struct stint_quota quota = plain(algorithm);
        quota.limit = 0;
        quota.count_slack = 0;
        if (algorithm == STINT_BUCKETS)
            quota.time_slack_ns = S;
        struct stint_error error;
        if (stint_quota_check(&quota, &error) != STINT_OK)
            fail_msg("%s: %s", stint_algorithm_name(algorithm), error.message);
        assert_true(stint_state_size(&quota) <= sizeof(bytes));
        struct stint_ask ask = {.now_ns = S, .cost = 1};
        struct stint_decision decision = stint_state_ask(&quota, bytes, &ask);
        assert_int_equal(decision.outcome, STINT_NEVER);
        assert_true(decision.retry_after_ns == STINT_NEVER_NS);
        ask.cost = 0;
        assert_int_equal(stint_state_ask(&quota, bytes, &ask).outcome, STINT_ALLOW);
        assert_int_equal(stint_max_in_any_window(&quota), 0);
    }
}

/* Periods from 1 us to 10 years, and nothing else. */
TEST(test_periods_have_a_range)
{
    struct stint_quota quota = {.algorithm = STINT_GCRA, .limit = 1};
    assert_refused(quota, STINT_E_RANGE, "period");
    quota.period_ns = US - 1;
    assert_refused(quota, STINT_E_RANGE, "period");
    quota.period_ns = 10 * YEAR + 1;
    assert_refused(quota, STINT_E_RANGE, "period");
    quota.period_ns = US;
    assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
    quota.period_ns = 10 * YEAR;
    assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
    struct stint_quota lease = plain(STINT_CONCURRENCY);
    lease.lease_ns = US - 1;
    assert_refused(lease, STINT_E_RANGE, "lease");
    lease.lease_ns = 0;
    assert_refused(lease, STINT_E_MISMATCH, "lease");
}

/* An option of one algorithm is refused by all others, and named. */
TEST(test_options_belong_to_their_algorithm)
{
    for (int algorithm = 1; algorithm <= N_ALGORITHMS; algorithm++) {
        struct stint_quota quota = plain(algorithm);
        quota.burst = 5;
        if (algorithm != STINT_GCRA)
            assert_refused(quota, STINT_E_MISMATCH, "burst");
        quota = plain(algorithm);
        quota.resolution = 12;
        if (algorithm != STINT_WINDOW)
            assert_refused(quota, STINT_E_MISMATCH, "resolution");
        quota = plain(algorithm);
        quota.time_slack_ns = S;
        if (algorithm != STINT_BUCKETS)
            assert_refused(quota, STINT_E_MISMATCH, "time_slack");
        quota = plain(algorithm);
        quota.count_slack = 2;
        if (algorithm != STINT_BUCKETS)
            assert_refused(quota, STINT_E_MISMATCH, "count_slack");
        quota = plain(algorithm);
        quota.lease_ns = S;
        if (algorithm != STINT_CONCURRENCY)
            assert_refused(quota, STINT_E_MISMATCH, "lease");
        quota = plain(algorithm);
        quota.align = STINT_ALIGN_FIRST_USE;
        if (algorithm != STINT_FIXED_WINDOW)
            assert_refused(quota, STINT_E_MISMATCH, "align");
        quota = plain(algorithm);
        quota.utc_offset_s = 3600;
        assert_refused(quota, STINT_E_MISMATCH, "utc_offset");
        quota = plain(algorithm);
        quota.count_denied = true;
        if (algorithm < STINT_GCRA || algorithm == STINT_CONCURRENCY)
            assert_refused(quota, STINT_E_MISMATCH, "count_denied");
    }
}

/* Numbers that name nothing, and values out of their range, are refused. */
TEST(test_values_have_ranges)
{
    struct stint_quota quota = plain(STINT_FIXED_WINDOW);
    quota.algorithm = 9;
    assert_refused(quota, STINT_E_RANGE, "algorithm");
    quota.algorithm = STINT_COUNTER;
    assert_refused(quota, STINT_E_MISMATCH, "stint_count()");
    quota = plain(STINT_FIXED_WINDOW);
    quota.align = 6;
    assert_refused(quota, STINT_E_RANGE, "align");
    quota = plain(STINT_FIXED_WINDOW);
    quota.when_full = 5;
    assert_refused(quota, STINT_E_RANGE, "when_full");
    quota = plain(STINT_FIXED_WINDOW);
    quota.epoch_ns = INT64_MIN;
    assert_refused(quota, STINT_E_RANGE, "epoch");
    quota = (struct stint_quota){.algorithm = STINT_FIXED_WINDOW,
                                 .limit = 1,
                                 .align = STINT_ALIGN_DAY,
                                 .utc_offset_s = 86400};
    assert_refused(quota, STINT_E_RANGE, "utc_offset");
    quota.utc_offset_s = -86399;
    assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
    assert_int_equal(quota.period_ns, DAY);
    quota.period_ns = MINUTE;
    assert_refused(quota, STINT_E_MISMATCH, "calendar");
    quota = plain(STINT_GCRA);
    quota.initial_set = true;
    quota.initial = 21;
    assert_refused(quota, STINT_E_RANGE, "initial");
    quota.initial = STINT_INITIAL_FULL;
    assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
    assert_false(quota.initial_set);
    quota = plain(STINT_GCRA);
    quota.limit = 0;
    quota.burst = 1;
    assert_refused(quota, STINT_E_MISMATCH, "burst");
}

/* The most in any window, by the table of the algorithms. */
TEST(test_the_most_in_any_window)
{
    static const struct {
        const char *spec;
        uint64_t most;
    } lines[] = {
        {"window 100/1m", 100},
        {"buckets 500/10m time_slack=1m count_slack=50", 500},
        {"log 5/1s", 5},
        {"gcra 100/60s", 199},
        {"gcra 100/60s burst=1", 100},
        {"gcra 7/1s burst=20", 26},
        {"fixed_window 4294967295/1d", 8589934590},
        {"fixed_window 10/1mo align=calendar", 20},
        {"sliding_counter 100/1m", 199},
        {"sliding_counter 1/1m", 1},
        {"concurrency 10 lease=30s", 10},
    };
    for (size_t i = 0; i < N(lines); i++) {
        struct stint_quota quota = quota_of(lines[i].spec);
        assert_int_equal(stint_max_in_any_window(&quota), lines[i].most);
    }
    assert_null(stint_algorithm_name(0));
    assert_string_equal(stint_algorithm_name(STINT_COUNTER), "counter");
    assert_null(stint_algorithm_name(9));
}
