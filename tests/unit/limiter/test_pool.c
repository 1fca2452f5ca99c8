/* SPDX-License-Identifier: MIT */
/*
 * Key pools, one story at a time: whose turn it is, when the first is back, who is in the list, and
 * what is refused with which message.
 */
#include "unit/test_pool.h"

/* ---- Orders ---------------------------------------------------------------------------------- */

/* Round robin goes through the keys by their names, and passes over the one that is used up. */
TEST(test_round_robin_takes_turns)
{
    struct stint_quota quota = quota_of("log 2/1m"), one = quota_of("log 1/1m");
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    struct stint_pool_key small = {.name = "bb", .quotas = &one, .n_quotas = 1};
    assert_int_equal(stint_pool_add(fixture->pool, &small, NOW, NULL), 0);
    expect(fixture->pool, NOW, "abbcabc--");
}

/* Weights are turns in a round; the heaviest come first in each pass. */
TEST(test_round_robin_gives_turns_by_weight)
{
    struct stint_quota quota = quota_of("log 6/1m");
    static const uint32_t weights[] = {1, 3, 2};
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, weights);
    expect(fixture->pool, NOW,
           "bcabcb"
           "bcabcb");
    /* b has used up its six: its turns go to those whose turn comes next. */
    expect(fixture->pool, NOW, "cacaaa-");
}

/* Fill first: the later keys are touched only while the earlier are used up. */
TEST(test_fill_first_fills_in_the_order_of_adding)
{
    struct stint_quota quota = quota_of("log 2/1m");
    fixture->pool = pool_of(fixture->table, STINT_FILL_FIRST, 0, &quota, 1, NULL);
    static const char *const names[] = {"z", "y", "x"};
    for (size_t i = 0; i < N(names); i++) {
        struct stint_pool_key key = {.name = names[i], .quotas = &quota, .n_quotas = 1};
        assert_int_equal(stint_pool_add(fixture->pool, &key, NOW, NULL), 0);
    }
    expect(fixture->pool, NOW, "zzyyx");
    expect(fixture->pool, NOW + MINUTE, "zzyyxx-");
}

/* Least used: the share that is used decides, and a key of weight 2 may be used twice as much. */
TEST(test_least_used_goes_by_the_used_share)
{
    struct stint_quota four = quota_of("log 4/1m"), eight = quota_of("log 8/1m");
    static const uint32_t weights[] = {1, 2};
    fixture->pool = pool_of(fixture->table, STINT_LEAST_USED, 2, &four, 1, weights);
    struct stint_pool_key big = {.name = "c", .quotas = &eight, .n_quotas = 1};
    assert_int_equal(stint_pool_add(fixture->pool, &big, NOW, NULL), 0);
    /* Shares by weight after each: a 1/4, b 1/8, c 1/8, b 1/4, … Of equal ones the oldest goes. */
    expect(fixture->pool, NOW, "abcbcabc");
    expect(fixture->pool, NOW, "bcaccacc--");
}

/* ---- Several quotas, costs ------------------------------------------------------------------- */

/* Of several quotas of a key all are charged, or none. */
TEST(test_quotas_of_a_key_are_all_or_nothing)
{
    struct stint_quota quotas[2] = {quota_of("log 5/1h"), quota_of("log 2/1m")};
    fixture->pool = pool_of(fixture->table, STINT_FILL_FIRST, 2, quotas, 2, NULL);
    expect(fixture->pool, NOW, "aabb");
    expect_wait(fixture->pool, NOW, 1, MINUTE);
    /* The refusals above took nothing from the hour: a had 5, and has 2 left. */
    expect(fixture->pool, NOW + MINUTE, "abb");
    expect(fixture->pool, NOW + 2 * MINUTE, "ab");
    expect_wait(fixture->pool, NOW + 2 * MINUTE, 1, HOUR - 2 * MINUTE);
}

/* A cost is taken from one key, or from none; what no key can ever serve is said to be never. */
TEST(test_costs_fit_into_one_key)
{
    struct stint_quota quota = quota_of("log 3/1m");
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 2, &quota, 1, NULL);
    assert_string_equal(next(fixture->pool, NOW, 2).name, "a");
    assert_string_equal(next(fixture->pool, NOW, 2).name, "b");
    expect_wait(fixture->pool, NOW, 2, MINUTE);
    struct stint_pool_answer never = next(fixture->pool, NOW, 4);
    assert_null(never.name);
    assert_int_equal(never.wait_ns, STINT_NEVER_NS);
    assert_int_equal(never.decision.outcome, STINT_NEVER);
}

/* Cost 0 names the key whose turn it is, and changes nothing. */
TEST(test_cost_0_only_asks)
{
    struct stint_quota quota = quota_of("window 1/1m");
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 2, &quota, 1, NULL);
    for (int i = 0; i < 5; i++)
        assert_string_equal(next(fixture->pool, NOW, 0).name, "a");
    expect(fixture->pool, NOW, "ab-");
}

/* An empty pool has no key, and never will have. */
TEST(test_an_empty_pool_has_none)
{
    assert_int_equal(stint_pool_open(&fixture->pool, fixture->table, NULL, NULL), 0);
    struct stint_pool_answer none = next(fixture->pool, NOW, 1);
    assert_null(none.name);
    assert_int_equal(none.wait_ns, STINT_NEVER_NS);
    assert_null(next(fixture->pool, STINT_NOW_MAX + 1, 1).name);
}

/* The wait is exact for every algorithm: none a nanosecond before it is over, one then. */
TEST(test_the_wait_is_exact)
{
    static const char *const specs[] = {
        "gcra 3/1m burst=2",          "fixed_window 2/1m",    "window 3/1m",
        "window 3/1m resolution=12",  "sliding_counter 3/1m", "log 3/1m",
        "buckets 3/1m time_slack=6s",
    };
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct stint_pool *pool = pool_of(fixture->table, STINT_FILL_FIRST, 3, &quota, 1, NULL);
        uint64_t now_ns = NOW + i * HOUR + 7 * S;
        while (next(pool, now_ns, 1).name != NULL)
            now_ns += 333 * MS;
        struct stint_pool_answer none = next(pool, now_ns, 1);
        expect_wait(pool, now_ns, 1, none.wait_ns);
        stint_pool_close(pool);
    }
}

/* Two pools of one name share benches and units; of another name nothing. */
TEST(test_pools_of_a_name_share_their_states)
{
    struct stint_quota quota = quota_of("log 2/1m");
    const struct stint_pool_options other = {.name = "other"};
    struct stint_pool_key a = {.name = "a", .quotas = &quota, .n_quotas = 1};
    struct stint_pool *twin, *stranger;
    fixture->pool = pool_of(fixture->table, STINT_FILL_FIRST, 1, &quota, 1, NULL);
    twin = pool_of(fixture->table, STINT_FILL_FIRST, 1, &quota, 1, NULL);
    assert_int_equal(stint_pool_open(&stranger, fixture->table, &other, NULL), 0);
    assert_int_equal(stint_pool_add(stranger, &a, NOW, NULL), 0);
    expect(fixture->pool, NOW, "a");
    expect(twin, NOW, "a-");
    expect(stranger, NOW, "a");
    assert_int_equal(report(twin, "a", STINT_POOL_COOL, HOUR, NOW), 0);
    expect(fixture->pool, NOW + MINUTE, "-");
    expect(stranger, NOW + MINUTE, "aa");
    stint_pool_close(twin);
    stint_pool_close(stranger);
}

/* ---- Giving back ----------------------------------------------------------------------------- */

/* What was not used comes back to its key, as refunds do. */
TEST(test_units_are_given_back)
{
    struct stint_quota quotas[2] = {quota_of("log 2/1m"), quota_of("log 3/1h")};
    fixture->pool = pool_of(fixture->table, STINT_FILL_FIRST, 1, quotas, 2, NULL);
    struct stint_pool_answer answer = next(fixture->pool, NOW, 2);
    uint32_t given_back = 9;
    assert_int_equal(answer.granted_at_ns, NOW);
    assert_int_equal(
        stint_pool_give_back(fixture->pool, "a", 2, answer.granted_at_ns, NOW + S, &given_back), 0);
    assert_int_equal(given_back, 2);
    expect(fixture->pool, NOW + S, "aa-");
    /* A unit that is free again by itself is not given back once more. */
    assert_int_equal(
        stint_pool_give_back(fixture->pool, "a", 1, NOW - MINUTE, NOW + S, &given_back), 0);
    assert_int_equal(given_back, 0);
    assert_int_equal(stint_pool_give_back(fixture->pool, "zz", 1, NOW, NOW, &given_back),
                     STINT_E_GONE);
    assert_int_equal(stint_pool_give_back(fixture->pool, "a", 1, NOW, STINT_NOW_MAX + 1, NULL),
                     STINT_E_RANGE);
}

/* ---- Membership ------------------------------------------------------------------------------ */

/* Keys come and go while the pool is used; what one used before it went, it finds again. */
TEST(test_keys_come_and_go)
{
    struct stint_quota quota = quota_of("log 2/1m");
    struct stint_pool_key d = {.name = "d", .quotas = &quota, .n_quotas = 1};
    struct looking looking = {.name = NULL};
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 3, &quota, 1, NULL);
    expect(fixture->pool, NOW, "abca");
    const char *name = next(fixture->pool, NOW, 0).name;
    assert_string_equal(name, "b");
    for (int i = 0; i < 100; i++) { /* a name is the caller's to read, whoever goes meanwhile */
        assert_int_equal(stint_pool_remove(fixture->pool, name, NOW, NULL), 0);
        assert_int_equal(stint_pool_remove(fixture->pool, name, NOW, NULL), STINT_E_GONE);
        struct stint_pool_key again = {.name = name, .quotas = &quota, .n_quotas = 1};
        assert_int_equal(stint_pool_add(fixture->pool, &again, NOW, NULL), 0);
    }
    assert_int_equal(stint_pool_remove(fixture->pool, "a", NOW, NULL), 0);
    assert_int_equal(stint_pool_add(fixture->pool, &d, NOW, NULL), 0);
    stint_pool_each(fixture->pool, NOW, look_at, &looking);
    assert_string_equal(looking.names, "cbd"); /* by age: b was the last but one */
    for (int i = 0; i < 4; i++)
        assert_non_null(next(fixture->pool, NOW, 1).name);
    expect(fixture->pool, NOW, "-");
    d.name = "a";
    assert_int_equal(stint_pool_add(fixture->pool, &d, NOW, NULL), 0);
    expect(fixture->pool, NOW, "-");
    expect(fixture->pool, NOW + MINUTE, "abcdabcd-");
}

static void expect_refused(struct stint_pool *pool, const struct stint_pool_key *key, int code,
                           const char *word)
{
    struct stint_error error;
    assert_int_equal(stint_pool_add(pool, key, NOW, &error), code);
    if (strstr(error.message, word) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.message, word);
}

/* What cannot be a key is refused with a message, and leaves the pool as it was. */
TEST(test_bad_keys_are_refused)
{
    struct stint_quota quota = quota_of("log 2/1m"), held = quota_of("concurrency 2 lease=1m");
    struct stint_quota twice[5] = {quota, quota, quota, quota, quota}, raw = {.limit = 1};
    struct stint_quota wide = quota_of("log 1000/1m"), starts = quota_of("gcra 5/1m initial=2");
    struct stint_quota counts = quota_of("gcra 5/1m count_denied=true");
    char long_name[STINT_POOL_NAME_MAX + 2];
    struct looking looking = {.name = NULL};
    memset(long_name, 'x', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = '\0';
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 1, &quota, 1, NULL);
    const struct {
        struct stint_pool_key key;
        int code;
        const char *word;
    } cases[] = {
        {{.name = "a", .quotas = &quota, .n_quotas = 1}, STINT_E_MISMATCH, "already"},
        {{.name = NULL, .quotas = &quota, .n_quotas = 1}, STINT_E_RANGE, "name"},
        {{.name = "", .quotas = &quota, .n_quotas = 1}, STINT_E_RANGE, "name"},
        {{.name = long_name, .quotas = &quota, .n_quotas = 1}, STINT_E_RANGE, "255"},
        {{.name = "b c", .quotas = &quota, .n_quotas = 1}, STINT_E_SYNTAX, "byte 2 is 0x20"},
        {{.name = "b\n", .quotas = &quota, .n_quotas = 1}, STINT_E_SYNTAX, "0x0a"},
        {{.name = "b", .quotas = &quota, .n_quotas = 0}, STINT_E_RANGE, "quotas"},
        {{.name = "b", .quotas = NULL, .n_quotas = 1}, STINT_E_RANGE, "quotas"},
        {{.name = "b", .quotas = twice, .n_quotas = 5}, STINT_E_RANGE, "1 to 4"},
        {{.name = "b", .quotas = twice, .n_quotas = 2}, STINT_E_MISMATCH, "the same"},
        {{.name = "b", .quotas = &held, .n_quotas = 1}, STINT_E_MISMATCH, "concurrency"},
        {{.name = "b", .quotas = &counts, .n_quotas = 1}, STINT_E_MISMATCH, "count_denied"},
        {{.name = "b", .quotas = &raw, .n_quotas = 1}, STINT_E_MISMATCH, "not checked"},
        {{.name = "b", .quotas = &wide, .n_quotas = 1}, STINT_E_MISMATCH, "bytes"},
        {{.name = "b", .quotas = &starts, .n_quotas = 1}, STINT_E_MISMATCH, "initial"},
        {{.name = "b", .quotas = &quota, .n_quotas = 1, .weight = 1001}, STINT_E_RANGE, "weight"},
    };
    for (size_t i = 0; i < N(cases); i++)
        expect_refused(fixture->pool, &cases[i].key, cases[i].code, cases[i].word);
    stint_pool_each(fixture->pool, NOW, look_at, &looking);
    assert_string_equal(looking.names, "a");
}

/* Options, reports and times that cannot be are refused, too. */
TEST(test_bad_calls_are_refused)
{
    struct stint_quota quota = quota_of("log 2/1m");
    struct stint_pool_key key = {.name = "b", .quotas = &quota, .n_quotas = 1};
    const struct stint_pool_options options[] = {
        {.order = 3}, {.keys_max = 65537}, {.name = "a b"}};
    struct stint_error error;
    struct stint_pool *pool = NULL;
    for (size_t i = 0; i < N(options); i++)
        assert_int_not_equal(stint_pool_open(&pool, fixture->table, &options[i], &error), 0);
    assert_null(pool);
    fixture->pool = pool_of(fixture->table, STINT_ROUND_ROBIN, 1, &quota, 1, NULL);
    pool = fixture->pool;
    assert_int_equal(report(pool, "a", 4, 0, NOW), STINT_E_RANGE);
    assert_int_equal(report(pool, "a", -1, 0, NOW), STINT_E_RANGE);
    assert_int_equal(report(pool, "a", STINT_POOL_COOL, 0, NOW), STINT_E_RANGE);
    assert_int_equal(report(pool, "a", STINT_POOL_COOL, YEAR + 1, NOW), STINT_E_RANGE);
    assert_int_equal(report(pool, "a", STINT_POOL_OUT, S, NOW), STINT_E_MISMATCH);
    assert_int_equal(report(pool, "zz", STINT_POOL_OK, 0, NOW), STINT_E_GONE);
    assert_int_equal(report(pool, "a", STINT_POOL_OK, 0, STINT_NOW_MAX + 1), STINT_E_RANGE);
    assert_int_equal(stint_pool_add(pool, &key, STINT_NOW_MAX + 1, NULL), STINT_E_RANGE);
    assert_int_equal(stint_pool_remove(pool, "a", STINT_NOW_MAX + 1, NULL), STINT_E_RANGE);
    assert_int_equal(stint_pool_remove(pool, NULL, NOW, NULL), STINT_E_GONE);
    expect(pool, NOW, "aa-");
}

/* What is full says so: keys of a pool, names of pools, places for benches. */
TEST(test_what_is_full_says_so)
{
    struct stint_quota quota = quota_of("log 2/1m");
    const struct stint_pool_options one = {.name = "one", .keys_max = 1};
    char name[8];
    struct stint_pool *pools[16];
    assert_int_equal(stint_pool_open(&fixture->pool, fixture->table, &one, NULL), 0);
    struct stint_pool_key a = {.name = "a", .quotas = &quota, .n_quotas = 1}, b = a;
    b.name = "b";
    assert_int_equal(stint_pool_add(fixture->pool, &a, NOW, NULL), 0);
    expect_refused(fixture->pool, &b, STINT_E_FULL, "1 keys");

    for (unsigned i = 0; i < 15; i++) {
        const struct stint_pool_options options = {.name = name};
        name[0] = (char)('a' + i);
        name[1] = '\0';
        assert_int_equal(stint_pool_open(&pools[i], fixture->table, &options, NULL), 0);
        stint_pool_close(pools[i]);
    }
    struct stint_table_info info;
    stint_table_info(fixture->table, NOW, &info);
    assert_int_equal(info.pools, 16);
    assert_int_equal(info.pools_max, 16);
    assert_int_equal(stint_pool_open(&pools[15], fixture->table, NULL, NULL), STINT_E_FULL);
    assert_int_equal(stint_pool_open(&pools[15], fixture->table, &one, NULL), 0);
    stint_pool_close(pools[15]);
}

/* Status tells each key's standing, and when it is back, without taking anything. */
TEST(test_status_tells_how_each_key_stands)
{
    struct stint_quota quota = quota_of("log 1/1m");
    fixture->pool = pool_of(fixture->table, STINT_FILL_FIRST, 4, &quota, 1, NULL);
    expect(fixture->pool, NOW, "a");
    assert_int_equal(report(fixture->pool, "b", STINT_POOL_COOL, 5 * S, NOW), 0);
    assert_int_equal(report(fixture->pool, "c", STINT_POOL_BACK_OFF, 0, NOW), 0);
    for (int i = 0; i < 3; i++) {
        struct stint_pool_status a = status_of(fixture->pool, "a", NOW + S / 2);
        assert_int_equal(a.standing, STINT_POOL_USED_UP);
        assert_int_equal(a.returns_after_ns, MINUTE - S / 2);
        assert_int_equal(a.decision.remaining, 0);
        assert_int_equal(a.decision.limit, 1);
        assert_int_equal(a.weight, 1);
        assert_int_equal(status_of(fixture->pool, "b", NOW).standing, STINT_POOL_COOLING);
        assert_int_equal(status_of(fixture->pool, "b", NOW).decision.remaining, 1);
        assert_int_equal(status_of(fixture->pool, "c", NOW).standing, STINT_POOL_BACKING_OFF);
        assert_int_equal(status_of(fixture->pool, "d", NOW).standing, STINT_POOL_FREE);
        assert_int_equal(status_of(fixture->pool, "d", NOW).returns_after_ns, 0);
    }
    expect(fixture->pool, NOW, "d-");
}

/* A caller whose clock is behind is told the wait from its own time, and gets nothing for it. */
TEST(test_late_callers_get_nothing_for_it)
{
    struct stint_quota quota = quota_of("log 1/1m");
    fixture->pool = pool_of(fixture->table, STINT_FILL_FIRST, 1, &quota, 1, NULL);
    expect(fixture->pool, NOW, "a");
    expect(fixture->pool, NOW - HOUR, "-");
    struct stint_pool_answer none = next(fixture->pool, NOW - HOUR, 1);
    assert_int_equal(none.wait_ns, HOUR + MINUTE);
    assert_int_equal(none.decision.retry_after_ns, HOUR + MINUTE);
}
