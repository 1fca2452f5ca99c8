/* SPDX-License-Identifier: MIT */
/*
 * A cost of 0 takes nothing and asks whether more is charged than the limit: at every entry of the
 * library, until to the nanosecond of the wait. Strict quotas have no debt: what does not fit is
 * recorded in the place of what is older, in a cell, in a table, by a ticket and over a list.
 */
#include "unit/test_quota.h"

static const char *const with_debt[] = {
    "gcra 10/10s",
    "gcra 7/1000003ns burst=3",
    "fixed_window 10/10s",
    "fixed_window 10/10s align=first_use",
    "fixed_window 10/1d align=calendar",
    "sliding_counter 10/10s",
    "sliding_counter 7/1000003ns",
};
static const char *const strict[] = {
    "window 1000/1h",
    "window 1000/1h resolution=12",
    "window 1000/1h resolution=100",
    "buckets 1000/1h count_slack=50 time_slack=6m",
    "log 1000/1h",
};
#define HOUR (60 * MINUTE)
#define NOW (100 * DAY)

static struct stint_table *table_of(void)
{
    struct stint_table_options options = {.keys = 64,
                                          .keys16 = 64,
                                          .keys_wide = 64,
                                          .wide_size = 8192,
                                          .clock = STINT_CLOCK_VIRTUAL,
                                          .hash_key = {3, 4}};
    return must_open_table(&options);
}

static void assert_stands(struct stint_decision decision, uint64_t wait_ns)
{
    assert_int_equal(decision.outcome, wait_ns > 0 ? STINT_DENY : STINT_ALLOW);
    assert_int_equal(decision.granted, 0);
    assert_true(decision.retry_after_ns == wait_ns);
}

/* A cost of 0 through every verb that a caller-owned state answers, and no byte changes. */
static uint64_t zero_of_state(const struct stint_quota *quota, struct small_state *state,
                              uint64_t now_ns)
{
    struct small_state before = *state;
    struct stint_ask ask = {.now_ns = now_ns, .verb = STINT_PEEK};
    uint64_t wait_ns = stint_state_ask(quota, state, &ask).retry_after_ns;
    for (ask.verb = STINT_TAKE; ask.verb <= STINT_PEEK; ask.verb++)
        assert_stands(stint_state_ask(quota, state, &ask), wait_ns);
    if (stint_state_size(quota) == 8) {
        struct stint_cell8 cell = {state->word[0]};
        assert_stands(stint_cell8_take(quota, &cell, now_ns, 0), wait_ns);
    } else {
        struct stint_cell16 cell = {{state->word[0], state->word[1]}};
        assert_stands(stint_cell16_take(quota, &cell, now_ns, 0), wait_ns);
    }
    assert_memory_equal(&before, state, sizeof(before));
    return wait_ns;
}

TEST(test_a_cost_of_0_is_denied_in_debt)
{
    for (size_t i = 0; i < N(with_debt); i++) {
        struct stint_quota quota = quota_of(with_debt[i]);
        struct small_state state = {{0, 0}};
        uint32_t capacity = quota.burst > 0 ? quota.burst : quota.limit;
        assert_true(zero_of_state(&quota, &state, NOW) == 0);
        assert_int_equal(take(&quota, &state, NOW, capacity).outcome, STINT_ALLOW);
        assert_true(zero_of_state(&quota, &state, NOW) == 0);
        struct stint_ask charge = {.now_ns = NOW, .cost = capacity / 2, .verb = STINT_CHARGE};
        assert_int_equal(stint_state_ask(&quota, &state, &charge).granted, capacity / 2);
        uint64_t wait_ns = zero_of_state(&quota, &state, NOW);
        assert_true(wait_ns > 0);
        assert_true(zero_of_state(&quota, &state, NOW + wait_ns - 1) == 1);
        assert_true(zero_of_state(&quota, &state, NOW + wait_ns) == 0);
    }
}

TEST(test_a_cost_of_0_is_denied_in_a_table_and_a_list)
{
    struct stint_table *table = table_of();
    struct stint_quota window = quota_of("window 10/10s");
    for (size_t i = 0; i < N(with_debt); i++) {
        struct stint_quota quota = quota_of(with_debt[i]);
        const struct stint_item item = {&quota, "key", 3, 0};
        const struct stint_item list[] = {{&window, "key", 3, 0}, item};
        struct stint_item charged = item;
        charged.cost = quota.burst > 0 ? quota.burst * 2 : quota.limit * 2;
        assert_stands(stint_take(table, &quota, "key", 3, 0, NOW), 0);
        stint_charge(table, &charged, 1, NOW);
        uint64_t wait_ns = stint_take(table, &quota, "key", 3, 0, NOW).retry_after_ns;
        assert_true(wait_ns > 0);
        const uint64_t lefts_ns[] = {wait_ns, 1, 0};
        for (size_t at = 0; at < N(lefts_ns); at++) {
            uint64_t left_ns = lefts_ns[at], now_ns = NOW + wait_ns - left_ns;
            struct stint_ticket ticket;
            assert_stands(stint_take(table, &quota, "key", 3, 0, now_ns), left_ns);
            assert_stands(stint_peek(table, &item, 1, now_ns), left_ns);
            assert_stands(stint_take_upto(table, &item, 1, now_ns), left_ns);
            assert_stands(stint_take_all(table, list, 2, now_ns), left_ns);
            assert_stands(stint_peek(table, list, 2, now_ns), left_ns);
            assert_stands(stint_take_upto(table, list, 2, now_ns), left_ns);
            assert_stands(stint_reserve(table, list, 2, S, now_ns, &ticket), left_ns);
        }
    }
    stint_table_close(table);
}

/* The strict ones have no debt: 0 is allowed however much is charged. */
TEST(test_strict_quotas_have_no_debt)
{
    struct stint_table *table = table_of();
    for (size_t i = 0; i < N(strict); i++) {
        struct stint_quota quota = quota_of(strict[i]);
        const struct stint_item item = {&quota, "key", 3, 3000};
        assert_int_equal(stint_charge(table, &item, 1, NOW).granted, 1000);
        assert_stands(stint_take(table, &quota, "key", 3, 0, NOW), 0);
    }
    stint_table_close(table);
}

/* At most this many of the newest 200 are free an hour after 950 that were taken a second before.
 */
static void assert_remembers_the_newest(struct stint_decision an_hour_later)
{
    assert_true(an_hour_later.remaining <= 800);
}

/* 950 at t, 200 a second later: an hour after t, 200 are remembered, however they were charged. */
TEST(test_a_charge_keeps_the_newest_units)
{
    struct stint_table *table = table_of();
    for (size_t i = 0; i < N(strict); i++) {
        struct stint_quota quota = quota_of(strict[i]);
        const char *const keys[] = {"charge", "ticket", "list"};
        struct stint_ticket ticket;
        for (size_t k = 0; k < N(keys); k++) {
            uint64_t now_ns = NOW + (i * N(keys) + k) * DAY;
            const struct stint_item items[] = {{&quota, keys[k], strlen(keys[k]), 200},
                                               {&quota, "beside", 6, 200}};
            stint_take(table, &quota, keys[k], strlen(keys[k]), k == 1 ? 940 : 950, now_ns);
            if (k == 0) {
                stint_charge(table, items, 1, now_ns + S);
            } else if (k == 2) {
                stint_charge(table, items, 2, now_ns + S);
            } else {
                struct stint_item estimate = items[0];
                estimate.cost = 10;
                stint_reserve(table, &estimate, 1, MINUTE, now_ns + S / 2, &ticket);
                stint_settle(table, ticket, 210, now_ns + S, NULL);
            }
            const struct stint_item one = {&quota, keys[k], strlen(keys[k]), 1};
            struct stint_decision full = stint_peek(table, &one, 1, now_ns + S);
            assert_int_equal(full.outcome, STINT_DENY);
            assert_int_equal(full.remaining, 0);
            uint64_t free_ns = now_ns + S + full.retry_after_ns;
            assert_int_equal(stint_peek(table, &one, 1, free_ns - 1).outcome, STINT_DENY);
            assert_int_equal(stint_peek(table, &one, 1, free_ns).outcome, STINT_ALLOW);
            assert_remembers_the_newest(stint_peek(table, &one, 1, now_ns + HOUR));
            assert_remembers_the_newest(stint_peek(table, &one, 1, now_ns + HOUR + S - 1));
            assert_true(stint_peek(table, &one, 1, now_ns + HOUR + 10 * MINUTE).remaining == 999);
        }
    }
    stint_table_close(table);
}

/* A ticket that is settled below its estimate does not free units that others use. */
TEST(test_a_refund_does_not_free_what_was_displaced)
{
    struct stint_table *table = table_of();
    for (size_t i = 0; i < N(strict); i++) {
        struct stint_quota quota = quota_of(strict[i]);
        const struct stint_item first = {&quota, "key", 3, 950}, late = {&quota, "key", 3, 200};
        const struct stint_item one = {&quota, "key", 3, 1};
        struct stint_ticket ticket;
        uint64_t now_ns = NOW + i * DAY;
        stint_reserve(table, &first, 1, HOUR / 2, now_ns, &ticket);
        stint_charge(table, &late, 1, now_ns + S);
        /* 1,150 are in use; 450 come back: 700 are. */
        assert_int_equal(stint_settle(table, ticket, 500, now_ns + 2 * S, NULL), STINT_OK);
        uint32_t free = stint_peek(table, &one, 1, now_ns + 2 * S).remaining + 1;
        assert_true(free <= 300 && free > 150);
    }
    stint_table_close(table);
}
