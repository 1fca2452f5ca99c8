/* SPDX-License-Identifier: MIT */
/* window against a plain count of every use, in all forms and at the edges of what fits. */
#include "unit/strict_model.h"

/*
 * U_{W+O} + c > N - q + 1, where x < W + W/M is x * M < W * (M + 1). What a charge has displaced
 * counts until the oldest bunch comes back: less than another bunch too long.
 */
static bool window_justified(const struct strict_model *model, uint64_t cost, uint64_t at_ns)
{
    const struct stint_quota *quota = model->quota;
    uint64_t slots = quota->resolution, used = 0;
    uint64_t bunch = (quota->limit + slots - 1) / slots;
    for (size_t i = 0; i < model->n; i++)
        if ((uint128)(at_ns - model->uses[i].at_ns) * slots <
            (uint128)quota->period_ns * (slots + 1))
            used += model->uses[i].units;
    uint64_t slack = model->displaces ? 2 * (bunch - 1) : bunch - 1;
    return used + cost + slack > quota->limit;
}

static const struct strict_subject window_subject = {
    .algorithm = &algorithm_window,
    .justified = window_justified,
    .refund_ages = true,
};

static struct stint_quota window_quota(uint32_t limit, uint64_t period_ns, uint32_t resolution)
{
    struct stint_quota quota = {.algorithm = STINT_WINDOW,
                                .limit = limit,
                                .period_ns = period_ns,
                                .resolution = resolution};
    struct stint_error error;
    if (algorithm_window.check(&quota, &error) != STINT_OK)
        fail_msg("%s", error.message);
    return quota;
}

static struct stint_decision window_do(const struct stint_quota *quota, uint64_t *state,
                                       uint8_t verb, uint64_t now_ns, uint32_t cost)
{
    struct stint_ask ask = {.now_ns = now_ns, .at_ns = now_ns, .cost = cost, .verb = verb};
    return algorithm_window.ask(quota, state, &ask);
}

static const struct {
    uint32_t limit;
    uint64_t period_ns;
    uint32_t resolution;
} window_cases[] = {
    {1, NS_PER_S, 0},
    {1, 10 * NS_PER_YEAR, 24},
    {2, NS_PER_US, 16},
    {7, NS_PER_S, 24},
    {9, NS_PER_MIN, 10},
    {13, 13 * NS_PER_S, 13},
    {15, NS_PER_MIN, 0},
    {15, NS_PER_HOUR, 12},
    {17, 7 * NS_PER_S + 3, 17},
    {23, NS_PER_US, 16},
    {24, 24 * NS_PER_S, 24},
    {25, 1000 * NS_PER_S + 1, 24},
    {49, NS_PER_DAY, 11},
    {50, NS_PER_MIN, 23},
    {100, NS_PER_MIN, 0},
    {101, NS_PER_MIN, 10},
    {101, NS_PER_MIN, 0},
    {500, 10 * NS_PER_MIN, 10},
    {500, 10 * NS_PER_MIN, 12},
    {500, 10 * NS_PER_MIN, 0},
    {999, 10 * NS_PER_YEAR, 12},
    {1000, NS_PER_US, 0},
    {1000, 1001, 13},
    {65537, NS_PER_DAY, 19},
    {393215, NS_PER_HOUR, 24},
    {393216, 2 * NS_PER_MS, 0},
    {393217, NS_PER_S, 0},
    {1000003, NS_PER_S, 16},
    {UINT32_C(1) << 31, NS_PER_DAY, 13},
    {UINT32_MAX - 1, NS_PER_HOUR, 16},
    {UINT32_MAX, NS_PER_HOUR, 0},
    {UINT32_MAX, NS_PER_MS, 13},
    {UINT32_MAX, 10 * NS_PER_YEAR, 0},
    {1, NS_PER_DAY, 112},
    {7, NS_PER_S, 25},
    {24, 24 * NS_PER_S, 32},
    {30, NS_PER_MIN, 111},
    {63, NS_PER_US, 64}, /* a string of two words */
    {95, NS_PER_S, 96},  /* and the fields after it in the fourth */
    {100, NS_PER_MIN, 111},
    {101, NS_PER_MIN, 100},
    {500, 10 * NS_PER_MIN, 31},
    {1000, 10 * NS_PER_S, 104},
    {1000, 1001, 65},
    {1000003, NS_PER_S, 97},
    {1000000, NS_PER_HOUR, 104},
    {UINT32_MAX - 1, NS_PER_US, 82},
    {UINT32_MAX, NS_PER_HOUR, 90},
    {UINT32_MAX, 10 * NS_PER_YEAR, 99},
};
#define WINDOW_CASES (N(window_cases))

static void window_run_all(struct strict_options options, uint32_t runs)
{
    uint32_t denials = 0;
    for (size_t i = 0; i < WINDOW_CASES; i++) {
        struct stint_quota quota = window_quota(window_cases[i].limit, window_cases[i].period_ns,
                                                window_cases[i].resolution);
        for (uint32_t run = 0; run < runs; run++) {
            options.seed = 1000 * i + run;
            denials += strict_run(&window_subject, &quota, &options);
        }
    }
    assert_true(denials > 1000);
}

/* Whatever is asked, no window holds more than N, and every denial has its reason. */
TEST(test_never_over_and_never_denied_without_cause)
{
    window_run_all((struct strict_options){.steps = 1200}, REPEATS(12, 3));
}

/* The same holds for callers whose clocks are behind. */
TEST(test_stale_clocks_mint_nothing)
{
    window_run_all((struct strict_options){.steps = 1200, .stale = true}, REPEATS(8, 2));
}

/* Refunds, of old and of new uses, never let a window hold more than N units in use. */
TEST(test_refunds_never_over)
{
    window_run_all((struct strict_options){.steps = 1200, .refunds = true}, REPEATS(8, 2));
    window_run_all((struct strict_options){.steps = 1200, .refunds = true, .stale = true},
                   REPEATS(6, 2));
}

/* Who writes N gets N at once: for every resolution, and whether or not q divides N. */
TEST(test_exactly_n_units_fit)
{
    uint64_t random = 7;
    for (uint32_t resolution = 10; resolution <= 104; resolution++) {
        for (uint32_t limit = 1; limit <= 700; limit++) {
            struct stint_quota quota = window_quota(limit, NS_PER_DAY, resolution);
            uint64_t state[4] = {0}, granted = 0;
            uint32_t cost_max = 1 + (uint32_t)strict_below(&random, limit);
            while (granted < limit) {
                uint32_t cost = 1 + (uint32_t)strict_below(&random, cost_max);
                cost = (uint32_t)min_u64(cost, limit - granted);
                struct stint_decision decision =
                    window_do(&quota, state, STINT_TAKE, 5 * NS_PER_DAY, cost);
                assert_int_equal(decision.outcome, STINT_ALLOW);
                granted += decision.granted;
                assert_int_equal(decision.remaining, limit - granted);
            }
            assert_int_equal(window_do(&quota, state, STINT_TAKE, 5 * NS_PER_DAY, 1).outcome,
                             STINT_DENY);
        }
    }
}

/* A slot's units come back M+1 slots later, to the nanosecond, also where M does not divide W. */
TEST(test_a_slot_comes_back_at_its_end)
{
    struct stint_quota quota = window_quota(12, 1000 * NS_PER_S, 12);
    uint64_t state[4] = {0};
    /* Slot 2 begins at 166.6… s; it ends at 250 s, and W after that its units are free. */
    uint64_t slot_ns = 166666666667;
    assert_int_equal(window_do(&quota, state, STINT_TAKE, slot_ns - 1, 5).outcome, STINT_ALLOW);
    assert_int_equal(window_do(&quota, state, STINT_TAKE, slot_ns, 7).outcome, STINT_ALLOW);
    struct stint_decision decision = window_do(&quota, state, STINT_TAKE, slot_ns + 1, 6);
    assert_true(decision.retry_after_ns == 1250 * NS_PER_S - (slot_ns + 1));
    decision = window_do(&quota, state, STINT_TAKE, slot_ns + 1, 5);
    assert_true(decision.retry_after_ns == 1000 * NS_PER_S - 1);
    assert_true(decision.reset_after_ns == 1250 * NS_PER_S - (slot_ns + 1));
}

/* A bunch in use goes along with its latest use, so no unit is charged before it was taken. */
TEST(test_the_bunch_in_use_moves_along)
{
    struct stint_quota quota = window_quota(240, 24 * NS_PER_HOUR, 24);
    uint64_t state[4] = {0};
    for (uint64_t hour = 0; hour < 9; hour++)
        assert_int_equal(window_do(&quota, state, STINT_TAKE, hour * NS_PER_HOUR, 1).outcome,
                         STINT_ALLOW);
    /* All nine are in one bunch, which is now that of hour 8. */
    struct stint_decision decision = window_do(&quota, state, STINT_PEEK, 32 * NS_PER_HOUR, 240);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_true(decision.retry_after_ns == NS_PER_HOUR);
}

/* A full state denies every cost until its instant and is then new, wherever that lies. */
TEST(test_a_filled_state_denies_until_then)
{
    uint64_t random = 99;
    for (size_t i = 0; i < WINDOW_CASES; i++) {
        struct stint_quota quota = window_quota(window_cases[i].limit, window_cases[i].period_ns,
                                                window_cases[i].resolution);
        uint64_t slot_max_ns = quota.period_ns / quota.resolution + 1;
        for (int turn = 0; turn < 200; turn++) {
            uint64_t until_ns =
                1 + strict_below(&random, turn < 100 ? 4 * quota.period_ns : STINT_NOW_MAX - 1);
            uint64_t state[4] = {0};
            algorithm_window.fill(&quota, state, until_ns);
            assert_true(quota.derived.state_size != 16 || state[1] >> 48 == 0);
            uint64_t expires_ns = algorithm_window.expires_at(&quota, state);
            assert_true(expires_ns >= min_u64(until_ns, STINT_NOW_MAX + 1));
            assert_true(expires_ns <= max_u64(until_ns, quota.period_ns) + slot_max_ns + 1);
            uint64_t times_ns[] = {0, until_ns / 2, until_ns - 1, expires_ns - 1};
            for (int t = 0; t < 4; t++)
                if (times_ns[t] <= STINT_NOW_MAX)
                    assert_int_equal(window_do(&quota, state, STINT_TAKE, times_ns[t], 1).outcome,
                                     STINT_DENY);
            if (expires_ns <= STINT_NOW_MAX)
                assert_int_equal(
                    window_do(&quota, state, STINT_TAKE, expires_ns, quota.limit).outcome,
                    STINT_ALLOW);
        }
    }
}

/* An instant that no time reaches denies at every time there is. */
TEST(test_a_fill_beyond_all_time_denies_always)
{
    struct stint_quota quota = window_quota(100, 10 * NS_PER_YEAR, 24);
    uint64_t state[4];
    algorithm_window.fill(&quota, state, UINT64_MAX);
    assert_int_equal(window_do(&quota, state, STINT_TAKE, STINT_NOW_MAX, 1).outcome, STINT_DENY);
    algorithm_window.fill(&quota, state, 0);
    assert_true(state[0] == 0 && state[1] == 0);
}

/* A use older than all that is recorded gives nothing back: what is left belongs to others. */
TEST(test_a_expired_use_is_not_refunded)
{
    struct stint_quota quota = window_quota(24, 24 * NS_PER_S, 24);
    uint64_t state[4] = {0};
    window_do(&quota, state, STINT_TAKE, 0, 10);
    window_do(&quota, state, STINT_TAKE, 30 * NS_PER_S, 24);
    struct stint_ask ask = {.now_ns = 31 * NS_PER_S, .cost = 10, .verb = STINT_REFUND};
    assert_int_equal(algorithm_window.ask(&quota, state, &ask).granted, 0);
    ask.at_ns = 30 * NS_PER_S;
    assert_int_equal(algorithm_window.ask(&quota, state, &ask).granted, 10);
}

/* A part of a bunch comes back only while the bunch in use is the one the grant was made in. */
TEST(test_a_part_of_a_bunch_comes_back_only_from_the_one_in_use)
{
    struct stint_quota quota = window_quota(240, 24 * NS_PER_S, 24);
    uint64_t state[4] = {0};
    window_do(&quota, state, STINT_TAKE, 0, 14);           /* a whole bunch and 4 of the next */
    window_do(&quota, state, STINT_TAKE, 2 * NS_PER_S, 3); /* that one is now in slot 2 */
    struct stint_ask ask = {.now_ns = 3 * NS_PER_S, .cost = 4, .verb = STINT_REFUND};
    assert_int_equal(algorithm_window.ask(&quota, state, &ask).granted, 0);
    ask.at_ns = 2 * NS_PER_S;
    ask.cost = 3;
    struct stint_decision decision = algorithm_window.ask(&quota, state, &ask);
    assert_int_equal(decision.granted, 3);
    assert_int_equal(decision.remaining, 226);
    ask.at_ns = 0;
    ask.cost = 14; /* the oldest bunch whole, then what is left of the only other one */
    decision = algorithm_window.ask(&quota, state, &ask);
    assert_int_equal(decision.granted, 14);
    assert_int_equal(decision.remaining, 240);
}

/*
 * The default is 24 slots, 16 where the limit is large or the period short; up to 12 take 8 bytes,
 * and more than 24 take 32.
 */
TEST(test_defaults_and_sizes)
{
    assert_int_equal(window_quota(393216, 2 * NS_PER_MS, 0).resolution, 24);
    assert_int_equal(window_quota(393217, NS_PER_HOUR, 0).resolution, 16);
    assert_int_equal(window_quota(100, 2 * NS_PER_MS - 1, 0).resolution, 16);
    assert_int_equal(window_quota(100, NS_PER_MIN, 12).derived.state_size, 8);
    assert_int_equal(window_quota(100, NS_PER_MIN, 13).derived.state_size, 16);
    assert_int_equal(window_quota(100, NS_PER_MIN, 24).derived.state_size, 16);
    assert_int_equal(window_quota(100, NS_PER_MIN, 25).derived.state_size, 32);
    assert_int_equal(window_quota(100, NS_PER_DAY, 112).derived.state_size, 32);
    struct stint_quota none = window_quota(0, NS_PER_MIN, 0);
    assert_int_equal(none.derived.state_size, 16);
}

/* What does not fit is refused with its numbers and with what would fit. */
TEST(test_what_does_not_fit_is_refused)
{
    struct stint_error error;
    struct stint_quota quota = {
        .algorithm = STINT_WINDOW, .limit = 1000000, .period_ns = NS_PER_S, .resolution = 12};
    assert_int_equal(algorithm_window.check(&quota, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "resolution=23 fits, in 16 bytes"));
    /* What is too much for 16 bytes fits 32: the resolution that it names, and none above it. */
    quota = (struct stint_quota){.limit = UINT32_MAX, .period_ns = NS_PER_US};
    assert_int_equal(algorithm_window.check(&quota, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "resolution=85 fits, in 32 bytes"));
    quota.resolution = 86;
    assert_int_equal(algorithm_window.check(&quota, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "resolution=85 fits, in 32 bytes"));
    quota.resolution = 85;
    assert_int_equal(algorithm_window.check(&quota, &error), STINT_OK);
    quota = (struct stint_quota){.limit = 1, .period_ns = NS_PER_S, .resolution = 9};
    assert_int_equal(algorithm_window.check(&quota, &error), STINT_E_RANGE);
    quota.resolution = 113;
    assert_int_equal(algorithm_window.check(&quota, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "resolution is 113, expected 10 to 112"));
}

/* No quota that is accepted has slot numbers past half their range in 20 years. */
TEST(test_slot_numbers_outlive_the_table)
{
    uint64_t random = 3, accepted = 0;
    for (int turn = 0; turn < 200000; turn++) {
        unsigned limit_bits = 1 + (unsigned)strict_below(&random, 32);
        unsigned period_bits = 10 + (unsigned)strict_below(&random, 49);
        struct stint_quota quota = {
            .algorithm = STINT_WINDOW,
            .limit = (uint32_t)strict_below(&random, UINT64_C(1) << limit_bits),
            .period_ns = PERIOD_MIN_NS + strict_below(&random, UINT64_C(1) << period_bits),
            .resolution = 10 + (uint32_t)strict_below(&random, 103),
        };
        if (quota.period_ns > PERIOD_MAX_NS || algorithm_window.check(&quota, NULL) != STINT_OK)
            continue;
        accepted++;
        uint64_t slots = mul_div(SLOT_LIFE_NS, quota.resolution, quota.period_ns);
        assert_true(slots < UINT64_C(1) << (quota.derived.slot_bits - 1));
        unsigned bits = 2 * quota.resolution + 1 + quota.derived.remainder_bits +
                        quota.derived.place_bits + quota.derived.slot_bits;
        uint32_t size = quota.derived.state_size;
        assert_true(bits <= (size == 8 ? 64 : size == 16 ? 112 : 256));
    }
    assert_true(accepted > 20000);
}

/* A caller that always asks gets N in every M + 1 slots. */
TEST(test_the_share_of_a_caller_at_its_limit)
{
    static const struct {
        uint32_t limit;
        uint64_t period_ns;
        uint32_t resolution;
        double share; /* of N in each period */
    } cases[] = {
        {100, NS_PER_MIN, 12, 12.0 / 13},     {100, NS_PER_MIN, 24, 24.0 / 25},
        {1000, 10 * NS_PER_S, 24, 24.0 / 25}, {30, NS_PER_MIN, 111, 0.99},
        {100, NS_PER_MIN, 111, 0.99},         {1000, 10 * NS_PER_S, 104, 0.99},
        {1000000, NS_PER_HOUR, 104, 0.99},    {100, NS_PER_MIN, 100, 0.99},
        {1000, 10 * NS_PER_S, 100, 0.99},     {30, NS_PER_MIN, 100, 0.99},
        {1000000, NS_PER_HOUR, 100, 0.99},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_quota quota =
            window_quota(cases[i].limit, cases[i].period_ns, cases[i].resolution);
        uint64_t state[4] = {0}, granted = 0, now_ns = 0;
        uint64_t end_ns = 1000 * quota.period_ns;
        struct stint_decision decision;
        for (; now_ns < end_ns; now_ns += decision.retry_after_ns) {
            decision = window_do(&quota, state, STINT_TAKE_UPTO, now_ns, quota.limit);
            granted += decision.granted;
        }
        double share = (double)granted / (1000.0 * quota.limit);
        assert_true(share >= cases[i].share && share <= cases[i].share + 0.01);
    }
}
