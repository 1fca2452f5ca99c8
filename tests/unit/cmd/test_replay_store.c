/* SPDX-License-Identifier: MIT */
/* What `stint replay --store` holds the engine and a store to, and where their time begins. */
#define _GNU_SOURCE /* for uv.h */
#include "unit/test_quota.h"

#include "cmd/replay/replay.h"

#define HOUR (60 * MINUTE)
#define FIRST (UINT64_C(1790000123) * S + 456789)

static uint64_t epoch(const char *one, const char *two)
{
    const struct stint_quota quotas[] = {quota_of(one), quota_of(two != NULL ? two : one)};
    return replay_store_epoch_ns(quotas, two != NULL ? 2 : 1, FIRST);
}

TEST(time_begins_at_a_multiple_of_all_periods)
{
    static const char *const specs[] = {"window 5/7m",  "sliding_counter 5/11m", "window 5/1d",
                                        "window 5/36h", "fixed_window 5/13s",    "window 5/7d"};
    assert_int_equal(epoch("window 5/1h", NULL), FIRST - FIRST % DAY);
    for (size_t i = 0; i < N(specs); i++) {
        const struct stint_quota quota = quota_of(specs[i]);
        uint64_t begins_ns = epoch(specs[i], NULL), both_ns = epoch(specs[i], "gcra 5/17m");
        assert_int_equal(begins_ns % quota.period_ns, 0);
        assert_int_equal(begins_ns % DAY, 0);
        assert_int_equal(both_ns % quota.period_ns, 0);
        assert_int_equal(both_ns % (17 * MINUTE), 0);
        assert_true(begins_ns <= FIRST && FIRST - begins_ns <= STINT_NOW_MAX / 2);
        assert_true(both_ns <= FIRST && FIRST - both_ns <= STINT_NOW_MAX / 2);
    }
}

TEST(periods_without_a_common_multiple_begin_at_midnight)
{
    assert_int_equal(epoch("window 5/3599s", "window 5/3593s"), FIRST - FIRST % DAY);
    /* Holders have a lease, and no window that could begin anywhere. */
    assert_int_equal(epoch("concurrency 5 lease=7m", NULL), FIRST - FIRST % DAY);
}

TEST(waits_are_the_same_rounded_up_and_all_else_as_it_is)
{
    const struct stint_decision engine = {.outcome = STINT_DENY,
                                          .limit = 9,
                                          .remaining = 1,
                                          .retry_after_ns = 1001,
                                          .reset_after_ns = 5000};
    struct stint_decision store = engine;
    store.retry_after_ns = 2000;
    assert_true(replay_store_agrees(&engine, &store));
    store.retry_after_ns = 1000;
    assert_false(replay_store_agrees(&engine, &store));
    store.retry_after_ns = 3000;
    assert_false(replay_store_agrees(&engine, &store));
    store.retry_after_ns = STINT_NEVER_NS;
    assert_false(replay_store_agrees(&engine, &store));
    store = engine;
    store.reset_after_ns = 5001;
    assert_false(replay_store_agrees(&engine, &store));
    store = engine;
    store.remaining = 2;
    assert_false(replay_store_agrees(&engine, &store));
    store = engine;
    store.granted = 1;
    assert_false(replay_store_agrees(&engine, &store));
    store = engine;
    store.outcome = STINT_ALLOW;
    assert_false(replay_store_agrees(&engine, &store));
    store = engine;
    store.limit = 10;
    assert_false(replay_store_agrees(&engine, &store));
}
