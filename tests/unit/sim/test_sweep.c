/* SPDX-License-Identifier: MIT */
/* The sweep against cases small enough to be counted by hand, and the most buckets against those
 * that the exhaustive search finds. */
#include "algorithm/algorithm.h"
#include "base/ns.h"
#include "sim/input/bucket_trace.h"
#include "sim/plan/sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { EXACT = 0, FIRST = 1 };

static void must(int code, const struct stint_error *error)
{
    if (code != 0)
        fail_msg("%s", error->message);
}

static void begin_with(struct sweep *sweep, struct sweep_terms terms)
{
    struct stint_error error;
    must(sweep_init(sweep, &terms, &error), &error);
}

static void add_demand(struct sweep *sweep, const char *name)
{
    struct sweep_demand demand;
    struct stint_error error;
    must(sweep_demand_parse(&demand, span_of_text(name), &error), &error);
    must(sweep_add_demand(sweep, &demand, &error), &error);
}

static void add_buckets(struct sweep *sweep, uint64_t time_ns, uint32_t units)
{
    struct stint_error error;
    must(sweep_add_grid(sweep, (struct sweep_slack){time_ns, units}, &error), &error);
}

static void run(struct sweep *sweep)
{
    struct stint_error error;
    must(sweep_begin(sweep, &error), &error);
    while (sweep->rounds < sweep_rounds(sweep))
        must(sweep_round(sweep, &error), &error);
}

/*
 * 2 units in 10 s, asked for every 2.5 s. Exactly: units at 0 and 2.5 come back at 10 and 12.5, so
 * 2 in 10 s. In one bucket of 2 both come back at 12.5, and the next two go at 12.5 and 15: 2 in
 * 12.5 s, 0.8 of the limit. A bucket that closes after 2.5 s holds one unit, which is exact again.
 */
static void test_two_units_counted_by_hand(void **unused)
{
    (void)unused;
    struct sweep sweep;
    begin_with(&sweep, (struct sweep_terms){.limit = 2,
                                            .period_ns = 10 * NS_PER_S,
                                            .demand = 2,
                                            .seed = 1,
                                            .seeds = 3,
                                            .periods = 5});
    add_demand(&sweep, "smooth");
    add_buckets(&sweep, 0, 2);
    add_buckets(&sweep, 10 * NS_PER_S, 0);
    add_buckets(&sweep, NS_PER_S * 5 / 2, 0);
    add_buckets(&sweep, 10 * NS_PER_S, 1);
    run(&sweep);
    static const double expected[] = {1, 0.8, 0.8, 1, 1};
    for (size_t i = 0; i < 5; i++)
        for (uint32_t seed = 0; seed < 3; seed++) {
            assert_float_equal(sweep_share(&sweep, i, 0, seed), expected[i], 1e-6);
            assert_float_equal(sweep_of_exact(&sweep, i, 0, seed), expected[i], 1e-6);
        }
    assert_int_equal(sweep.settings[FIRST].most_alive, 1);
    assert_int_equal(sweep.settings[FIRST + 2].most_alive, 2);
    assert_true(sweep_is_worse(&sweep, FIRST, EXACT, 0) == (3 >= sweep_agreeing(3)));
    sweep_deinit(&sweep);
}

/*
 * Who takes all at once gets N again at W from `log` and from buckets of any kind. From `window`
 * only when the last of M+1 slots has passed: once the first lump lies at a slot's edge, each
 * (M+1)/M of a period, of which 11 make 10.
 */
static void test_lumps_of_the_greedy_counted_by_hand(void **unused)
{
    (void)unused;
    struct sweep sweep;
    struct stint_error error;
    begin_with(&sweep, (struct sweep_terms){.limit = 500,
                                            .period_ns = 10 * NS_PER_MIN,
                                            .demand = 1,
                                            .seed = 7,
                                            .seeds = 5,
                                            .periods = 110});
    add_demand(&sweep, "greedy");
    add_buckets(&sweep, NS_PER_MIN, 50);
    add_buckets(&sweep, NS_PER_MIN, 0);
    add_buckets(&sweep, 0, 50);
    must(sweep_add_window(&sweep, 10, &error), &error);
    run(&sweep);
    for (uint32_t seed = 0; seed < 5; seed++) {
        for (size_t i = 0; i < 4; i++)
            assert_float_equal(sweep_share(&sweep, i, 0, seed), 1, 1e-9);
        assert_float_equal(sweep_share(&sweep, 4, 0, seed), 10.0 / 11, 1e-3);
    }
    sweep_deinit(&sweep);
}

/* What is asked at random is as much as was said, all told, and below the limit all is admitted. */
static void test_demands_ask_as_much_as_they_say(void **unused)
{
    (void)unused;
    struct sweep sweep;
    begin_with(&sweep, (struct sweep_terms){.limit = 4000,
                                            .period_ns = NS_PER_MIN,
                                            .demand = 0.5,
                                            .seed = 3,
                                            .seeds = 7,
                                            .periods = 100});
    add_demand(&sweep, "smooth");
    add_demand(&sweep, "poisson");
    add_demand(&sweep, "onoff:50%");
    run(&sweep);
    assert_float_equal(sweep_spread(&sweep, EXACT, 0, sweep_share).median, 0.5, 1e-3);
    assert_float_equal(sweep_spread(&sweep, EXACT, 1, sweep_share).median, 0.5, 5e-3);
    assert_float_equal(sweep_spread(&sweep, EXACT, 2, sweep_share).median, 0.5, 0.1);
    sweep_deinit(&sweep);
}

/* Every split keeps within its number of buckets, in state and in play, and none is missing. */
static void test_splits_keep_within_their_buckets(void **unused)
{
    (void)unused;
    struct sweep sweep;
    struct stint_error error;
    begin_with(&sweep, (struct sweep_terms){.limit = 500,
                                            .period_ns = 10 * NS_PER_MIN,
                                            .demand = 1.05,
                                            .seed = 1,
                                            .seeds = 1,
                                            .periods = 20});
    add_demand(&sweep, "poisson");
    add_demand(&sweep, "onoff:20%");
    must(sweep_add_splits(&sweep, 20, &error), &error);
    must(sweep_add_splits(&sweep, 100, &error), &error);
    assert_int_equal(sweep.n_settings, 1 + 21 + 101);
    run(&sweep);
    uint32_t reached = 0;
    for (size_t i = FIRST; i < sweep.n_settings; i++) {
        const struct sweep_setting *split = &sweep.settings[i];
        assert_true(split->quota.derived.max_buckets <= split->buckets);
        assert_true(split->most_alive <= split->quota.derived.max_buckets);
        reached += split->most_alive == split->buckets;
    }
    assert_true(reached > 0);
    const struct stint_quota *by_count = &sweep.settings[FIRST].quota;
    const struct stint_quota *even = &sweep.settings[FIRST + 10].quota;
    const struct stint_quota *by_time = &sweep.settings[FIRST + 20].quota;
    assert_int_equal(by_count->count_slack, 25);
    assert_int_equal(by_count->time_slack_ns, 0);
    assert_int_equal(even->count_slack, 49);
    assert_int_equal(even->time_slack_ns, NS_PER_MIN);
    assert_int_equal(by_time->count_slack, 0);
    assert_int_equal(by_time->derived.max_buckets, 20);
    sweep_deinit(&sweep);
}

/* A seed gives the same figures again, another one others; both demands are as far along. */
static void test_a_seed_is_a_result(void **unused)
{
    (void)unused;
    struct sweep sweeps[3];
    struct stint_error error;
    for (int i = 0; i < 3; i++) {
        begin_with(&sweeps[i], (struct sweep_terms){.limit = 100,
                                                    .period_ns = NS_PER_MIN,
                                                    .demand = 1.05,
                                                    .seed = i == 2 ? 12 : 11,
                                                    .seeds = 4,
                                                    .periods = 10});
        add_demand(&sweeps[i], "poisson");
        add_demand(&sweeps[i], "onoff:20%");
        must(sweep_add_splits(&sweeps[i], 10, &error), &error);
        must(sweep_begin(&sweeps[i], &error), &error);
        for (int rounds = 0; rounds < 5; rounds++)
            must(sweep_round(&sweeps[i], &error), &error);
        assert_int_equal(sweep_seeds_done(&sweeps[i], 0), 3);
        assert_int_equal(sweep_seeds_done(&sweeps[i], 1), 2);
    }
    size_t size = 2 * 4 * sweeps[0].n_settings * sizeof(double);
    assert_memory_equal(sweeps[0].shares, sweeps[1].shares, size);
    assert_memory_not_equal(sweeps[0].shares, sweeps[2].shares, size);
    /* The second seed of one is the first of the other: the list of seeds is what was said. */
    assert_true(sweep_share(&sweeps[0], 3, 0, 1) == sweep_share(&sweeps[2], 3, 0, 0));
    for (int i = 0; i < 3; i++)
        sweep_deinit(&sweeps[i]);
}

/* The least number of agreeing signs at 1 in 20, both sides: from a table of the sign test. */
static void test_how_many_seeds_must_agree(void **unused)
{
    (void)unused;
    static const uint32_t table[][2] = {{1, 2},   {5, 6},   {6, 6},   {8, 8},  {9, 8},
                                        {12, 10}, {15, 12}, {20, 15}, {25, 18}};
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        assert_int_equal(sweep_agreeing(table[i][0]), table[i][1]);
}

/* Figures put in by hand: quartiles between the sorted values, and signs counted seed by seed. */
static void test_spread_and_signs_counted_by_hand(void **unused)
{
    (void)unused;
    enum { SEEDS = 8 };
    static const double exact[SEEDS] = {0.8, 0.5, 1, 1, 1, 1, 1, 1};
    static const double other[SEEDS] = {0.4, 0.4, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7};
    struct sweep sweep;
    struct stint_error error;
    begin_with(&sweep,
               (struct sweep_terms){
                   .limit = 5, .period_ns = NS_PER_S, .demand = 1, .seeds = SEEDS, .periods = 1});
    add_demand(&sweep, "smooth");
    add_buckets(&sweep, 0, 5);
    must(sweep_begin(&sweep, &error), &error);
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        sweep.shares[seed * 2] = exact[seed];
        sweep.shares[seed * 2 + 1] = other[seed];
    }
    sweep.rounds = 5; /* of the first five: 0.1 0.2 0.3 0.4 0.4 */
    struct sweep_spread spread = sweep_spread(&sweep, FIRST, 0, sweep_share);
    assert_float_equal(spread.low, 0.2, 1e-12);
    assert_float_equal(spread.median, 0.3, 1e-12);
    assert_float_equal(spread.high, 0.4, 1e-12);
    assert_false(sweep_is_worse(&sweep, FIRST, EXACT, 0)); /* 5 of 5 may be chance */
    sweep.rounds = SEEDS; /* of the exact: 0.5 0.8 0.1 0.2 0.3 0.5 0.6 0.7 */
    spread = sweep_spread(&sweep, FIRST, 0, sweep_of_exact);
    assert_float_equal(spread.low, 0.275, 1e-12);
    assert_float_equal(spread.median, 0.5, 1e-12);
    assert_float_equal(spread.high, 0.625, 1e-12);
    assert_true(sweep_is_worse(&sweep, FIRST, EXACT, 0)); /* 8 of 8 is not */
    assert_false(sweep_is_worse(&sweep, EXACT, FIRST, 0));
    sweep.shares[1] = 0.8;
    assert_false(sweep_is_worse(&sweep, FIRST, EXACT, 0));
    sweep_deinit(&sweep);
}

/* 20 buckets for 500 in 10 min, 1 min, 50: the trace that docs/algorithms.md gives. */
static void test_twenty_buckets_are_reached(void **unused)
{
    (void)unused;
    struct stint_quota quota;
    struct stint_error error;
    struct bucket_trace trace;
    must(stint_quota_parse(&quota, "buckets 500/10m time_slack=1m count_slack=50", &error), &error);
    must(bucket_trace_init(&trace, &quota, &error), &error);
    assert_int_equal(trace.most_alive, 20);
    assert_int_equal(trace.n_uses, 12);
    assert_int_equal(trace.uses[1].at_ns, NS_PER_MIN - 1);
    assert_int_equal(trace.uses[10].at_ns, 9 * NS_PER_MIN);
    assert_int_equal(trace.uses[10].alive, 10);
    assert_int_equal(trace.uses[11].at_ns, 10 * NS_PER_MIN);
    assert_int_equal(trace.uses[11].units, 489);
    assert_int_equal(trace.uses[11].alive, 20);
    bucket_trace_deinit(&trace);
}

/* A bucket lives until a period after its last use, whether anybody asks or not. */
static void test_a_expired_bucket_is_not_counted(void **unused)
{
    (void)unused;
    struct stint_quota quota;
    struct stint_error error;
    uint64_t state[8] = {0};
    must(stint_quota_parse(&quota, "buckets 6/1m count_slack=2", &error), &error);
    assert_true(stint_state_size(&quota) <= sizeof(state));
    struct stint_ask three = {.now_ns = 0, .cost = 3, .verb = STINT_TAKE};
    assert_int_equal(stint_state_ask(&quota, state, &three).outcome, STINT_ALLOW);
    three.now_ns = NS_PER_S;
    assert_int_equal(stint_state_ask(&quota, state, &three).outcome, STINT_ALLOW);
    assert_int_equal(buckets_living(&quota, state, NS_PER_MIN - 1), 3);
    assert_int_equal(buckets_living(&quota, state, NS_PER_MIN), 2);
    assert_int_equal(buckets_living(&quota, state, NS_PER_MIN + NS_PER_S), 0);
}

/*
 * Of all configurations up to 6 units and 6 ns, tests/unit/algorithm/exhaustive_buckets.c finds 511
 * in which the formula is reached and 182 in which the most is one less. The trace finds them all.
 */
static void test_the_trace_reaches_what_the_exhaustive_search_does(void **unused)
{
    (void)unused;
    uint32_t below[2] = {0};
    for (uint32_t limit = 1; limit <= 6; limit++)
        for (uint64_t period_ns = 1; period_ns <= 6; period_ns++)
            for (uint64_t slack_ns = 0; slack_ns <= period_ns; slack_ns++)
                for (uint32_t size = slack_ns == 0; size <= limit; size++) {
                    struct stint_quota quota = {.limit = limit,
                                                .period_ns = period_ns,
                                                .time_slack_ns = slack_ns,
                                                .count_slack = size,
                                                .algorithm = STINT_BUCKETS};
                    struct stint_error error;
                    struct bucket_trace trace;
                    must(buckets_check(&quota, &error), &error);
                    quota.derived.checked = 1;
                    must(bucket_trace_init(&trace, &quota, &error), &error);
                    assert_in_range(quota.derived.max_buckets - trace.most_alive, 0, 1);
                    below[quota.derived.max_buckets - trace.most_alive]++;
                    bucket_trace_deinit(&trace);
                }
    assert_int_equal(below[0], 511);
    assert_int_equal(below[1], 182);
}

/* What cannot be swept is told in a message. */
static void test_terms_that_cannot_be_met(void **unused)
{
    (void)unused;
    static const struct {
        struct sweep_terms terms;
        const char *told;
    } cases[] = {
        {{.limit = 0, .period_ns = NS_PER_S, .demand = 1, .periods = 1}, "nothing to be used"},
        {{.limit = 9000, .period_ns = NS_PER_S, .demand = 1, .periods = 1}, "a limit of 8189"},
        {{.limit = 5, .period_ns = 10 * NS_PER_YEAR, .demand = 1, .periods = 9}, "18 years"},
        {{.limit = 5000, .period_ns = NS_PER_S, .demand = 1e4, .periods = 99999}, "requests"},
        {{.limit = 100, .period_ns = NS_PER_US, .demand = 99, .periods = 1}, "in a nanosecond"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sweep sweep;
        struct stint_error error;
        struct sweep_terms terms = cases[i].terms;
        terms.seeds = 1;
        int code = sweep_init(&sweep, &terms, &error);
        if (code == 0) {
            add_demand(&sweep, "smooth");
            code = sweep_begin(&sweep, &error);
        }
        assert_int_equal(code, STINT_E_RANGE);
        if (strstr(error.message, cases[i].told) == NULL)
            fail_msg("%s", error.message);
        sweep_deinit(&sweep);
    }
}

/* Names of demands. */
static void test_names_of_demands(void **unused)
{
    (void)unused;
    static const char *const wrong[] = {
        "",           "poissonn", "onoff",      "onoff:",    "onoff:%", "onoff:0%",
        "onoff:100%", "onoff:20", "onoff:2.5%", "onoff: 5%", "smooth ", "onoff:020%"};
    struct sweep_demand demand;
    struct stint_error error;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_int_equal(sweep_demand_parse(&demand, span_of_text(wrong[i]), &error),
                         STINT_E_SYNTAX);
    must(sweep_demand_parse(&demand, span_of_text("onoff:5%"), &error), &error);
    assert_float_equal(demand.on_share, 0.05, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_units_counted_by_hand),
        cmocka_unit_test(test_lumps_of_the_greedy_counted_by_hand),
        cmocka_unit_test(test_demands_ask_as_much_as_they_say),
        cmocka_unit_test(test_splits_keep_within_their_buckets),
        cmocka_unit_test(test_a_seed_is_a_result),
        cmocka_unit_test(test_how_many_seeds_must_agree),
        cmocka_unit_test(test_spread_and_signs_counted_by_hand),
        cmocka_unit_test(test_twenty_buckets_are_reached),
        cmocka_unit_test(test_a_expired_bucket_is_not_counted),
        cmocka_unit_test(test_the_trace_reaches_what_the_exhaustive_search_does),
        cmocka_unit_test(test_terms_that_cannot_be_met),
        cmocka_unit_test(test_names_of_demands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
