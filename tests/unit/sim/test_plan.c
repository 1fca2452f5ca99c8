/* SPDX-License-Identifier: MIT */
/* Proposals of quotas: targets in words, requests by key, and searches that can be done by hand. */
#include "unit/test.h"

#include "base/ns.h"
#include "sim/plan/plan.h"

/* ---- Targets ----------------------------------------------------------------------------------
 */

TEST(test_targets_are_read_as_they_are_said)
{
    static const struct {
        const char *text;
        uint64_t all, most;
        bool of_keys;
    } cases[] = {
        {PLAN_TARGET_DEFAULT, 1999, 1, true},
        {"deny at most 0.1 % of keys", 2000, 2, true},
        {"0.1% of keys", 999, 0, true},
        {"deny at most 5 keys", 100, 5, true},
        {"deny at most 5 keys", 3, 3, true},
        {"1 key", 10, 1, true},
        {"deny  at most 100 % requests", 7, 7, false},
        {"deny at most 0 requests", 7, 0, false},
        {"33.333333333% of requests", 3, 0, false},
        {"0.000000001 % of keys", UINT64_C(100000000000), 1, true},
        {"50 % of keys", UINT64_MAX, UINT64_MAX / 2, true},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct plan_target target;
        assert_int_equal(plan_target_parse(&target, cases[i].text, NULL), 0);
        assert_int_equal(target.of_keys, cases[i].of_keys);
        assert_int_equal(plan_target_most(&target, cases[i].all), cases[i].most);
    }
}

TEST(test_what_is_no_target_is_refused)
{
    static const char *const texts[] = {
        "",
        "deny",
        "deny at most",
        "deny at most keys",
        "5",
        "5 %",
        "5 % of",
        "5 % of users",
        "-1 keys",
        "1e3 keys",
        "0.5 keys",
        "100.1 % of keys",
        "5 keys more",
        "5 % % of keys",
        "deny at 5 keys",
        "allow 5 keys",
        "5 keys %",
        "0.1.2 % of keys",
    };
    for (size_t i = 0; i < N(texts); i++) {
        struct plan_target target;
        struct stint_error error = {0};
        assert_true(plan_target_parse(&target, texts[i], &error) < 0);
        assert_string_not_equal(error.message, "");
    }
}

/* ---- Traffic ----------------------------------------------------------------------------------
 */

struct asked {
    uint64_t at_s;
    uint32_t key, cost;
};

static void make_traffic(struct traffic *traffic, const struct asked *asked, size_t n,
                         uint32_t n_keys, uint64_t epoch_s)
{
    struct event_list events = {0};
    for (size_t i = 0; i < n; i++) {
        struct event_entry entry = {asked[i].at_s * NS_PER_S, asked[i].key, asked[i].cost, 0};
        assert_int_equal(event_list_add(&events, entry, NULL), 0);
    }
    assert_int_equal(traffic_init(traffic, &events, n_keys, epoch_s * NS_PER_S, NULL), 0);
    assert_null(events.entries);
}

TEST(test_requests_stand_by_key_and_in_the_order_of_time)
{
    static const struct asked asked[] = {{5, 2, 1}, {5, 0, 2}, {6, 2, 3}, {7, 3, 4},
                                         {7, 2, 5}, {9, 0, 6}, {9, 0, 7}};
    static const size_t begins[] = {0, 3, 3, 6, 7}; /* key 1 asked for nothing */
    static const uint64_t at_s[] = {0, 4, 4, 0, 1, 2, 2};
    static const uint32_t costs[] = {2, 6, 7, 1, 3, 5, 4};
    struct traffic traffic;
    make_traffic(&traffic, asked, 7, 4, 5);
    assert_memory_equal(traffic.begins, begins, sizeof(begins));
    assert_memory_equal(traffic.costs, costs, sizeof(costs));
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(traffic.at_ns[i], at_s[i] * NS_PER_S);
    traffic_deinit(&traffic);
}

/* ---- Searches ---------------------------------------------------------------------------------
 */

/* Key k asks for k + 1 units, one a second; key 9 for 10 at once. */
static void make_stairs(struct traffic *traffic)
{
    struct asked asked[9 * 10 / 2 + 10];
    size_t n = 0;
    for (uint64_t at_s = 0; at_s < 9; at_s++)
        for (uint32_t key = (uint32_t)at_s; key < 9; key++)
            asked[n++] = (struct asked){at_s, key, 1};
    for (size_t i = 0; i < 10; i++)
        asked[n++] = (struct asked){20, 9, 1};
    make_traffic(traffic, asked, n, 10, 0);
}

static struct plan_proposal least(uint64_t period_ns, enum stint_algorithm algorithm,
                                  const char *target_text)
{
    struct traffic traffic;
    struct plan plan;
    struct plan_target target;
    struct plan_proposal proposal;
    make_stairs(&traffic);
    assert_int_equal(plan_target_parse(&target, target_text, NULL), 0);
    assert_int_equal(plan_init(&plan, &traffic, NULL), 0);
    assert_int_equal(plan_set_period(&plan, period_ns, NULL), 0);
    assert_int_equal(plan_least(&plan, algorithm, &target, &proposal, NULL), 0);
    plan_deinit(&plan);
    traffic_deinit(&traffic);
    return proposal;
}

TEST(test_the_least_limit_that_touches_so_many_keys)
{
    for (uint32_t most = 0; most <= 9; most++) {
        char text[32];
        snprintf(text, sizeof(text), "%u keys", (unsigned)most);
        /* In a minute key k asks for k + 1: a limit of L touches the keys above L - 1. */
        struct plan_proposal found = least(NS_PER_MIN, STINT_LOG, text);
        assert_int_equal(found.found, PLAN_FOUND);
        assert_int_equal(found.quota.limit, 10 - most);
        assert_int_equal(found.touch.keys, most);
        assert_int_equal(found.touch.requests, most * (most + 1) / 2);
        assert_int_equal(least(NS_PER_MIN, STINT_WINDOW, text).quota.limit, 10 - most);
    }
    /* In a second nobody but key 9 asks for more than one. */
    struct plan_proposal found = least(NS_PER_S, STINT_LOG, "1 key");
    assert_int_equal(found.quota.limit, 1);
    assert_int_equal(found.touch.requests, 9);
    /* A limit of 0 is none that anybody would set. */
    assert_int_equal(least(NS_PER_MIN, STINT_LOG, "10 keys").quota.limit, 1);
}

TEST(test_the_least_limit_that_denies_so_many_requests)
{
    /* Of 55 requests, a limit of L denies 1 + 2 + … + (10 - L). */
    static const struct {
        const char *text;
        uint32_t limit, denied;
    } cases[] = {{"0 requests", 10, 0},      {"1 requests", 9, 1},        {"2 requests", 9, 1},
                 {"3 requests", 8, 3},       {"44 requests", 2, 36},      {"45 requests", 1, 45},
                 {"10 % of requests", 8, 3}, {"100 % of requests", 1, 45}};
    for (size_t i = 0; i < N(cases); i++) {
        struct plan_proposal found = least(NS_PER_MIN, STINT_LOG, cases[i].text);
        assert_int_equal(found.quota.limit, cases[i].limit);
        assert_int_equal(found.touch.requests, cases[i].denied);
    }
}

TEST(test_gcra_has_the_limit_of_window_and_the_least_burst)
{
    struct plan_proposal found = least(NS_PER_MIN, STINT_GCRA, "0 keys");
    assert_int_equal(found.quota.limit, 10);
    assert_int_equal(found.quota.burst, 10);
    /* 9 a minute is one in 6.7 s: with key 8's ninth request in 8 s, 1.2 of its units have flowed
     * back. Key 9 asks for 10 at once. */
    found = least(NS_PER_MIN, STINT_GCRA, "1 key");
    assert_int_equal(found.quota.limit, 9);
    assert_int_equal(found.quota.burst, 8);
    assert_int_equal(found.touch.keys, 1);
    assert_int_equal(found.touch.requests, 2);
}

TEST(test_quotas_that_cannot_be_made_are_told)
{
    static const struct asked asked[] = {{0, 0, 1000000}, {1, 1, 4000000000}, {1, 1, 4000000000}};
    struct traffic traffic;
    struct plan plan;
    struct plan_target target = {.of_keys = true, .number = 1};
    struct plan_proposal proposal;
    make_traffic(&traffic, asked, 3, 2, 0);
    assert_int_equal(plan_init(&plan, &traffic, NULL), 0);
    assert_int_equal(plan_set_period(&plan, NS_PER_MIN, NULL), 0);
    /* A log of a million units is wider than a state may be. */
    assert_int_equal(plan_least(&plan, STINT_LOG, &target, &proposal, NULL), 0);
    assert_int_equal(proposal.found, PLAN_REFUSED);
    assert_string_not_equal(proposal.why, "");
    assert_int_equal(plan_least(&plan, STINT_WINDOW, &target, &proposal, NULL), 0);
    assert_int_equal(proposal.found, PLAN_FOUND);
    assert_int_equal(proposal.quota.limit, 1000000);
    /* 8 billion in a minute are more than any limit. */
    target.number = 0;
    assert_int_equal(plan_least(&plan, STINT_WINDOW, &target, &proposal, NULL), 0);
    assert_int_equal(proposal.found, PLAN_NO_LIMIT);
    plan_deinit(&plan);
    traffic_deinit(&traffic);
}

static bool stops(void *arg)
{
    return --*(int *)arg > 0;
}

TEST(test_a_search_can_be_stopped)
{
    struct traffic traffic;
    struct plan plan;
    int left = 1;
    make_stairs(&traffic);
    assert_int_equal(plan_init(&plan, &traffic, NULL), 0);
    plan.goes_on = stops;
    plan.arg = &left;
    assert_int_equal(plan_set_period(&plan, NS_PER_MIN, NULL), PLAN_STOPPED);
    plan_deinit(&plan);
    traffic_deinit(&traffic);
}
