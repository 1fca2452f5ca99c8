/* SPDX-License-Identifier: MIT */
/* gcra: its algorithm to the tick, the forms it must not have, and what comes back by refund. */
#include "unit/test_quota.h"

/* A bucket of three a minute answers as a transcript of it would read. */
TEST(test_three_a_minute_reads_as_it_should)
{
    static const struct {
        uint64_t at_s, reset_s, retry_s;
        int outcome;
    } lines[] = {
        {0, 20, 0, STINT_ALLOW}, {0, 40, 0, STINT_ALLOW},  {0, 60, 0, STINT_ALLOW},
        {1, 59, 19, STINT_DENY}, {5, 55, 15, STINT_DENY},  {10, 50, 10, STINT_DENY},
        {15, 45, 5, STINT_DENY}, {21, 59, 0, STINT_ALLOW}, {22, 58, 18, STINT_DENY},
    };
    struct stint_quota quota = quota_of("gcra 3/60s");
    struct small_state state = {{0, 0}};
    for (size_t i = 0; i < N(lines); i++) {
        struct stint_decision decision = take(&quota, &state, lines[i].at_s * S, 1);
        assert_int_equal(decision.outcome, lines[i].outcome);
        assert_int_equal(decision.reset_after_ns, lines[i].reset_s * S);
        assert_int_equal(decision.retry_after_ns, lines[i].retry_s * S);
        assert_int_equal(decision.limit, 3);
    }
}

/* The forms that are known to be wrong, in ticks, each with the same quota fields. */
enum flaw { NO_FLAW, TRIAL_AGAINST_NOW, CLAMP_TO_NOW_LESS_TOLERANCE };

static uint32_t drain_flawed(const struct stint_quota *quota, uint64_t *tat, uint64_t now_ns,
                             enum flaw flaw)
{
    uint64_t interval = quota->derived.interval_ticks, now = now_ns * 32;
    uint64_t capacity = quota->derived.capacity_ticks, tolerance = capacity - interval;
    uint32_t units = 0;
    while (units < 1000) {
        uint64_t floor = flaw == CLAMP_TO_NOW_LESS_TOLERANCE ? now - tolerance : now;
        uint64_t base = *tat > floor ? *tat : floor;
        uint64_t trial = base + interval;
        if (flaw == TRIAL_AGAINST_NOW ? base > now + capacity : trial > now + capacity)
            break;
        *tat = trial;
        units++;
    }
    return units;
}

/* Exactly `burst` units fit at once, from new and after idling, where flawed forms admit more. */
TEST(test_admits_the_burst_and_not_one_more)
{
    for (uint32_t burst = 1; burst <= 20; burst++) {
        struct stint_quota quota = quota_of("gcra 10/1s");
        quota.burst = burst;
        assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
        struct small_state state = {{0, 0}};
        assert_int_equal(drain(&quota, &state, 10 * S), burst);
        assert_int_equal(drain(&quota, &state, 1000 * S), burst);
        uint64_t right = 0, trial = 0, clamped = 0;
        assert_int_equal(drain_flawed(&quota, &right, 10 * S, NO_FLAW), burst);
        assert_int_equal(drain_flawed(&quota, &trial, 10 * S, TRIAL_AGAINST_NOW), burst + 1);
        assert_int_equal(drain_flawed(&quota, &clamped, 10 * S, CLAMP_TO_NOW_LESS_TOLERANCE),
                         2 * burst - 1);
    }
}

/* A rate that does not divide a second is never faster than it says; truncated intervals are. */
TEST(test_no_rate_runs_fast)
{
    static const uint32_t limits[] = {3, 7, 1000003, 30000001, 600000000, 1000000000, 2000000000};
    for (size_t i = 0; i < N(limits); i++) {
        struct stint_quota quota = {
            .algorithm = STINT_GCRA, .limit = limits[i], .period_ns = S, .burst = limits[i]};
        if (stint_quota_check(&quota, NULL) != STINT_OK) {
            assert_true(limits[i] == 600000000 || limits[i] == 30000001);
            continue;
        }
        assert_true(quota.derived.interval_ticks * limits[i] >= 32 * S);
        struct small_state state = {{0, 0}};
        assert_int_equal(take(&quota, &state, 0, limits[i]).outcome, STINT_ALLOW);
        uint64_t granted = 0;
        for (uint64_t now_ns = S / 10; now_ns <= 10 * S; now_ns += S / 10) {
            struct stint_ask ask = {.now_ns = now_ns, .cost = UINT32_MAX, .verb = STINT_TAKE_UPTO};
            granted += ask_at(&quota, &state, 0, ask).granted;
        }
        assert_true(granted <= 10 * (uint64_t)limits[i]);
        assert_true(granted >= 10 * (uint64_t)limits[i] / 1000 * 999);
    }
}

/* Remaining is the exact quotient at every distance, though it is found without dividing. */
TEST(test_remaining_is_the_exact_quotient)
{
    static const char *const specs[] = {"gcra 1/1us", "gcra 7/1s burst=1000000",
                                        "gcra 4294967295/365d", "gcra 1/1s burst=100000000",
                                        "gcra 1000003/1m"};
    uint64_t seed = 1;
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        uint64_t interval = quota.derived.interval_ticks, capacity = quota.derived.capacity_ticks;
        for (int turn = 0; turn < 20000; turn++) {
            uint64_t units = next_random(&seed) % ((uint64_t)quota.burst + 1);
            uint64_t ahead = units * interval;
            if (turn % 3 > 0 && ahead > 0 && ahead < capacity)
                ahead += turn % 3 == 1 ? 1 : -UINT64_C(1);
            struct small_state state = {{32 * S + ahead, 0}};
            struct stint_decision decision = peek(&quota, &state, S, 0);
            assert_int_equal(decision.remaining, (capacity - ahead) / interval);
            assert_int_equal(decision.reset_after_ns, (ahead + 31) / 32);
        }
    }
}

/* retry_after is exact to the nanosecond, and a refusal leaves the state as it was. */
TEST(test_waits_are_exact)
{
    static const char *const specs[] = {"gcra 3/60s", "gcra 7/1us burst=3", "gcra 1000003/1s",
                                        "gcra 1/3650d", "gcra 86401/1d burst=17"};
    uint64_t seed = 2;
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct small_state state = {{0, 0}};
        uint64_t now_ns = 0;
        for (int turn = 0; turn < 5000 && now_ns < 5 * YEAR; turn++) {
            uint32_t cost = (uint32_t)(next_random(&seed) % quota.burst) + 1;
            assert_wait_is_exact(&quota, &state, now_ns, cost);
            struct small_state before = state;
            if (take(&quota, &state, now_ns, cost).outcome != STINT_ALLOW)
                assert_memory_equal(&state, &before, sizeof(state));
            now_ns += next_random(&seed) % (2 * quota.period_ns / quota.limit + 2);
        }
    }
}

/* Take 10, wait until all have flowed back, take 10, refund the first 10: nothing comes back. */
TEST(test_a_refund_does_not_return_what_has_flowed_back)
{
    struct stint_quota quota = quota_of("gcra 10/10s");
    struct small_state state = {{0, 0}};
    assert_int_equal(take(&quota, &state, 0, 10).granted, 10);
    assert_int_equal(take(&quota, &state, 10 * S, 10).granted, 10);
    assert_int_equal(refund(&quota, &state, 10 * S, 10, 0).granted, 0);
    assert_int_equal(take(&quota, &state, 10 * S, 1).outcome, STINT_DENY);
    /* The second ten were not used: after 3.5 s, six and a half of them are still out. */
    assert_int_equal(refund(&quota, &state, 13500 * MS, 10, 10 * S).granted, 6);
    assert_int_equal(take(&quota, &state, 13500 * MS, 0).reset_after_ns, 0);
    /* A time of "never" counts as granted just now, and more never comes back than is out. */
    assert_int_equal(take(&quota, &state, 20 * S, 4).granted, 4);
    struct stint_decision all = refund(&quota, &state, 20 * S, UINT32_MAX, STINT_NEVER_NS);
    assert_int_equal(all.granted, 4);
    assert_int_equal(all.remaining, 10);
}

/* A place that has not begun is its booker's: no other refund frees the time that it stands on. */
TEST(test_a_refund_leaves_booked_places_alone)
{
    struct stint_quota quota = quota_of("gcra 2/2s burst=1");
    struct stint_ask book = {.cost = 1, .verb = STINT_BOOK};
    struct small_state state = {{0, 0}};
    assert_int_equal(take(&quota, &state, 0, 1).granted, 1);
    assert_int_equal(ask_at(&quota, &state, 10 * S, book).retry_after_ns, S);
    assert_int_equal(refund(&quota, &state, 0, 1, 0).granted, 0);
    assert_int_equal(take(&quota, &state, S, 1).outcome, STINT_DENY); /* it is the place's */
    assert_int_equal(take(&quota, &state, 2 * S, 1).outcome, STINT_ALLOW);
}

/*
 * One TAT cannot tell when it was last used: the very same state may have to give a unit back to
 * whoever comes at once, and nothing to whoever comes a second late and says the same.
 */
TEST(test_a_late_refund_gains_what_it_is_late)
{
    struct stint_quota quota = quota_of("gcra 2/2s");
    struct small_state at_once = {{0, 0}}, late = {{0, 0}};
    take(&quota, &at_once, 0, 2);
    take(&quota, &late, 0, 1);
    take(&quota, &late, S, 1); /* the first has flowed back by now */
    assert_memory_equal(&at_once, &late, sizeof(late));
    assert_int_equal(refund(&quota, &at_once, 0, 1, 0).granted, 1);
    assert_int_equal(take(&quota, &at_once, 0, 2).outcome, STINT_DENY);
    struct small_state in_time = late;
    assert_int_equal(refund(&quota, &in_time, S, 1, 0).granted, 0);
    assert_int_equal(refund(&quota, &late, 0, 1, 0).granted, 1);
    /* One second is one unit, and that is all. */
    assert_int_equal(drain(&quota, &in_time, S), 1);
    assert_int_equal(drain(&quota, &late, S), 2);
}

/* Nor does it tell under which quota a unit was granted: one that refilled faster, long since. */
TEST(test_a_refund_over_a_change_gains_what_came_back)
{
    struct stint_quota fast = quota_of("gcra 10/10s"), slow = quota_of("gcra 1/10s burst=10");
    struct small_state before = {{0, 0}}, state = {{0, 0}}, same = {{0, 0}};
    take(&fast, &before, 0, 10);
    stint_state_convert(&fast, &before, &slow, &state, 10 * S);
    assert_int_equal(take(&slow, &state, 10 * S, 9).granted, 9);
    take(&slow, &same, 0, 10); /* under the new quota all along, where nine are still out */
    assert_memory_equal(&same, &state, sizeof(state));
    assert_int_equal(refund(&slow, &same, 10 * S, 10, 0).granted, 9);
    assert_int_equal(refund(&slow, &state, 10 * S, 10, 0).granted, 9);
    assert_int_equal(drain(&slow, &state, 10 * S), 10); /* 19 in all: 10, and the 9 */
}

/*
 * Whatever is taken and given back, honestly dated, the state is never better than if what was
 * given back had not been taken.
 */
TEST(test_refunds_never_leave_less_than_without_the_grant)
{
    enum { N_GRANTS = 12 };
    uint64_t seed = 3;
    for (int run = 0; run < 20000; run++) {
        struct stint_quota quota = quota_of(run % 2 ? "gcra 5/50us" : "gcra 4/30us burst=9");
        struct small_state state = {{0, 0}};
        struct {
            uint64_t at_ns;
            uint32_t units;
            bool is_used;
        } grants[N_GRANTS];
        size_t n_grants = 0;
        uint64_t now_ns = 1000;
        while (n_grants < N_GRANTS) {
            now_ns += next_random(&seed) % 15000;
            uint32_t cost = (uint32_t)(next_random(&seed) % quota.burst) + 1;
            if (take(&quota, &state, now_ns, cost).outcome == STINT_ALLOW) {
                grants[n_grants].at_ns = now_ns;
                grants[n_grants].units = cost;
                grants[n_grants++].is_used = true;
            }
            size_t chosen = (size_t)(next_random(&seed) % N_GRANTS);
            if (chosen >= n_grants || !grants[chosen].is_used)
                continue;
            now_ns += next_random(&seed) % 4000;
            grants[chosen].is_used = false;
            refund(&quota, &state, now_ns, grants[chosen].units, grants[chosen].at_ns);
            uint64_t tat = 0;
            for (size_t i = 0; i < n_grants; i++) {
                uint64_t at = 32 * grants[i].at_ns;
                if (grants[i].is_used)
                    tat = (tat > at ? tat : at) + grants[i].units * quota.derived.interval_ticks;
            }
            assert_true(tat <= 32 * now_ns || state.word[0] >= tat);
        }
    }
}

/* Charging goes one capacity into debt and no further, and says how much. */
TEST(test_charge_goes_one_capacity_into_debt)
{
    struct stint_quota quota = quota_of("gcra 10/10s");
    struct small_state state = {{0, 0}};
    assert_int_equal(charge(&quota, &state, 5 * S, 14).granted, 14);
    assert_int_equal(charge(&quota, &state, 5 * S, 14).granted, 6);
    assert_int_equal(charge(&quota, &state, 5 * S, 1).granted, 0);
    assert_int_equal(take(&quota, &state, 5 * S, 1).retry_after_ns, 11 * S);
    struct stint_ask upto = {.now_ns = 5 * S, .cost = 5, .verb = STINT_TAKE_UPTO};
    assert_int_equal(ask_at(&quota, &state, 0, upto).granted, 0);
    assert_int_equal(take(&quota, &state, 16 * S, 1).outcome, STINT_ALLOW);
}

/* With count_denied a refusal charges, so hammering never gets in; what never fits does not. */
TEST(test_count_denied_charges_refusals)
{
    struct stint_quota quota = quota_of("gcra 1/1s burst=2 count_denied=true");
    struct small_state state = {{0, 0}};
    assert_int_equal(drain(&quota, &state, 0), 2);
    for (uint64_t now_ns = 0; now_ns < 100 * S; now_ns += S / 2)
        assert_int_equal(take(&quota, &state, now_ns, 1).outcome, STINT_DENY);
    struct small_state before = state;
    assert_int_equal(take(&quota, &state, 100 * S, 3).outcome, STINT_NEVER);
    assert_memory_equal(&state, &before, sizeof(state));
}

/* A place in the future is charged now, starts when it would have been allowed, and can go back. */
TEST(test_book_charges_a_place_in_the_future)
{
    struct stint_quota quota = quota_of("gcra 1/1s burst=2");
    struct small_state state = {{0, 0}};
    struct stint_ask book = {.now_ns = 10 * S, .cost = 1, .verb = STINT_BOOK};
    static const uint64_t starts_s[] = {0, 0, 1, 2, 3};
    for (size_t i = 0; i < 5; i++) {
        struct stint_decision decision = ask_at(&quota, &state, 3 * S, book);
        assert_int_equal(decision.outcome, STINT_ALLOW);
        assert_int_equal(decision.retry_after_ns, starts_s[i] * S);
    }
    struct small_state before = state;
    struct stint_decision late = ask_at(&quota, &state, 3 * S, book);
    assert_int_equal(late.outcome, STINT_DENY);
    assert_int_equal(late.retry_after_ns, 1 * S);
    assert_memory_equal(&state, &before, sizeof(state));
    struct stint_ask unbook = {.now_ns = 11 * S, .cost = 1, .verb = STINT_UNBOOK};
    assert_int_equal(ask_at(&quota, &state, 13 * S, unbook).granted, 1);
    book.now_ns = 11 * S;
    assert_int_equal(ask_at(&quota, &state, 3 * S, book).retry_after_ns, 2 * S);
    book.cost = 3;
    assert_int_equal(ask_at(&quota, &state, STINT_NEVER_NS, book).outcome, STINT_NEVER);
}

/* A clock that runs backwards or jumps ahead neither mints units nor locks anybody out. */
TEST(test_clocks_may_go_back)
{
    struct stint_quota quota = quota_of("gcra 100/1s burst=5");
    struct small_state state = {{0, 0}};
    uint64_t seed = 4, latest_ns = S, admitted = 0;
    for (int turn = 0; turn < 100000; turn++) {
        uint64_t now_ns = latest_ns - next_random(&seed) % S;
        if (turn % 10 == 0)
            now_ns = latest_ns += next_random(&seed) % (20 * MS);
        struct stint_decision decision = take(&quota, &state, now_ns, 1);
        admitted += decision.granted;
        assert_true(decision.retry_after_ns <= latest_ns - now_ns + 10 * MS);
    }
    assert_true(admitted <= 5 + latest_ns / (10 * MS));
    assert_true(admitted > latest_ns / (10 * MS) / 10 * 9);
}

/* The ends of every range: now 0, 1 and the last, cost 0 and the greatest, a limit of 0. */
TEST(test_ends_of_ranges)
{
    static const uint64_t nows_ns[] = {0, 1, STINT_NOW_MAX};
    struct stint_quota quota = quota_of("gcra 5/1s");
    for (size_t i = 0; i < 3; i++) {
        struct small_state state = {{0, 0}};
        assert_int_equal(take(&quota, &state, nows_ns[i], 0).outcome, STINT_ALLOW);
        assert_int_equal(state.word[0], 0);
        assert_int_equal(take(&quota, &state, nows_ns[i], UINT32_MAX).outcome, STINT_NEVER);
        assert_int_equal(take(&quota, &state, nows_ns[i], 6).outcome, STINT_NEVER);
        assert_true(take(&quota, &state, nows_ns[i], 6).retry_after_ns == STINT_NEVER_NS);
        if (nows_ns[i] < STINT_NOW_MAX)
            assert_int_equal(drain(&quota, &state, nows_ns[i]), 5);
        else /* time ends before a unit would have come back */
            assert_int_equal(take(&quota, &state, nows_ns[i], 1).outcome, STINT_NEVER);
        assert_int_equal(take(&quota, &state, STINT_NOW_MAX + 1, 0).outcome, STINT_NEVER);
    }
    struct stint_quota nothing = quota_of("gcra 0/1s");
    struct small_state state = {{0, 0}};
    assert_int_equal(take(&nothing, &state, 1, 0).outcome, STINT_ALLOW);
    assert_int_equal(take(&nothing, &state, 1, 1).outcome, STINT_NEVER);
    assert_int_equal(charge(&nothing, &state, 1, 1).granted, 0);
    assert_int_equal(refund(&nothing, &state, 1, 1, 1).granted, 0);
}

/* What 1/32 ns cannot express, or 8 years not hold, is refused with a reason. */
TEST(test_refuses_what_it_cannot_keep)
{
    struct stint_error error;
    struct stint_quota fast = {.algorithm = STINT_GCRA, .limit = 600000000, .period_ns = S};
    assert_int_equal(stint_quota_check(&fast, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "1/32 ns"));
    struct stint_quota deep = {
        .algorithm = STINT_GCRA, .limit = 1, .period_ns = 10 * YEAR, .burst = 2};
    assert_int_equal(stint_quota_check(&deep, &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "8 years"));
    assert_int_equal(stint_quota_parse(&fast, "gcra 45713633/1s", &error), STINT_E_RANGE);
    assert_non_null(strstr(error.message, "would run 0.15 % slow")); /* 0.142, rounded up */
    deep.burst = 1;
    assert_int_equal(stint_quota_check(&deep, &error), STINT_OK);
    struct stint_quota exact = {.algorithm = STINT_GCRA, .limit = 1000000000, .period_ns = S};
    assert_int_equal(stint_quota_check(&exact, &error), STINT_OK);
}
