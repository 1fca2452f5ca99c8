/* SPDX-License-Identifier: MIT */
/* Bytes of the caller's under any algorithm: made, asked, filled, converted, and held. */
#include "base/buf.h"

#include "unit/test_quota.h"

#define STATE_MAX 65536

static const char *const specs[] = {
    "window 20/1m resolution=12",
    "window 20/1m",
    "buckets 20/1m time_slack=6s count_slack=5",
    "log 20/1m",
    "gcra 20/1m",
    "fixed_window 20/1m",
    "fixed_window 20/1m align=first_use",
    "sliding_counter 20/1m",
};
#define N_SPECS (N(specs))

struct state {
    _Alignas(16) uint8_t bytes[STATE_MAX];
};

static struct stint_decision ask(const struct stint_quota *quota, struct state *state,
                                 enum stint_verb verb, uint64_t now_ns, uint32_t cost)
{
    struct stint_ask asked = {.now_ns = now_ns, .cost = cost, .verb = (uint8_t)verb};
    return stint_state_ask(quota, state->bytes, &asked);
}

/* A new state has the units free that `initial` says, and all of them without it. */
TEST(test_a_new_state_has_its_initial_units)
{
    static struct state state;
    for (size_t i = 0; i < N_SPECS; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        for (uint32_t initial = 0; initial <= 20; initial += 5) {
            quota.initial_set = true;
            quota.initial = initial;
            assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
            memset(&state, 0xff, sizeof(state));
            stint_state_init(&quota, state.bytes, 7 * MINUTE);
            assert_int_equal(ask(&quota, &state, STINT_PEEK, 7 * MINUTE, 0).remaining, initial);
            assert_int_equal(ask(&quota, &state, STINT_TAKE, 7 * MINUTE, initial).outcome,
                             STINT_ALLOW);
            assert_int_equal(ask(&quota, &state, STINT_TAKE, 7 * MINUTE, 1).outcome, STINT_DENY);
        }
        quota.initial_set = false;
        stint_state_init(&quota, state.bytes, 7 * MINUTE);
        assert_int_equal(ask(&quota, &state, STINT_TAKE, 7 * MINUTE, 20).outcome, STINT_ALLOW);
        assert_int_equal(state.bytes[stint_state_size(&quota)], 0xff); /* none beyond its size */
    }
}

/* A state is dead at expires_at and not before; a new one is dead from the beginning. */
TEST(test_states_die_when_they_say)
{
    static struct state state, copy;
    for (size_t i = 0; i < N_SPECS; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        stint_state_init(&quota, state.bytes, 0);
        assert_int_equal(stint_state_expires_at(&quota, state.bytes), 0);
        struct stint_decision last = ask(&quota, &state, STINT_TAKE, 90 * S, 3);
        uint64_t expires_ns = stint_state_expires_at(&quota, state.bytes);
        assert_int_equal(expires_ns, 90 * S + last.reset_after_ns);
        copy = state;
        assert_true(ask(&quota, &copy, STINT_PEEK, expires_ns - 1, 0).remaining < 20);
        assert_int_equal(ask(&quota, &copy, STINT_TAKE, expires_ns, 20).outcome, STINT_ALLOW);
    }
}

/* A filled state is full until its instant, whatever comes before; gcra owes until then. */
TEST(test_filled_states_deny)
{
    static struct state state;
    for (size_t i = 0; i < N_SPECS; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        stint_state_init(&quota, state.bytes, 0);
        uint64_t until_ns = 5 * MINUTE;
        stint_state_fill(&quota, state.bytes, until_ns);
        assert_true(stint_state_expires_at(&quota, state.bytes) >= until_ns);
        if (quota.algorithm == STINT_GCRA) {
            assert_int_equal(stint_state_expires_at(&quota, state.bytes), until_ns);
            assert_int_equal(ask(&quota, &state, STINT_TAKE, 4 * MINUTE, 1).outcome, STINT_DENY);
            assert_int_equal(ask(&quota, &state, STINT_PEEK, until_ns - 3 * S, 20).outcome,
                             STINT_DENY);
            continue;
        }
        assert_int_equal(ask(&quota, &state, STINT_TAKE, 0, 1).outcome, STINT_DENY);
        assert_int_equal(ask(&quota, &state, STINT_TAKE, until_ns - 1, 1).outcome, STINT_DENY);
    }
}

/*
 * From any algorithm to any other, what is held now stays held, up to the new limit. A window may
 * date its units up to a slot too late; to a bucket that refills all the time, that is 2 units.
 */
TEST(test_what_is_held_is_carried_over)
{
    static struct state from_state, to_state;
    for (size_t i = 0; i < N_SPECS; i++) {
        for (size_t j = 0; j < N_SPECS; j++) {
            for (uint32_t held = 0; held <= 20; held += 4) {
                struct stint_quota from = quota_of(specs[i]), to = quota_of(specs[j]);
                stint_state_init(&from, from_state.bytes, 0);
                if (held > 0)
                    ask(&from, &from_state, STINT_TAKE, 90 * S, held);
                stint_state_convert(&from, from_state.bytes, &to, to_state.bytes, 90 * S);
                uint32_t free_units = ask(&to, &to_state, STINT_PEEK, 90 * S, 0).remaining;
                bool is_late = from.algorithm == STINT_WINDOW && to.algorithm == STINT_GCRA;
                assert_true(free_units <= 20 - held);
                assert_true(free_units + (is_late ? 2 : 0) >= 20 - held);
            }
        }
    }
}

/* A lower limit holds at once, a higher one is there at once, and debt is not carried. */
TEST(test_limits_change_at_once)
{
    struct small_state state = {{0, 0}}, lowered, raised;
    static const char *const names[] = {"gcra", "fixed_window", "sliding_counter"};
    for (size_t i = 0; i < 3; i++) {
        char spec[64];
        struct stint_quota quotas[3];
        static const unsigned limits[] = {20, 5, 50};
        for (size_t j = 0; j < 3; j++) {
            struct buf buf = buf_of(spec, sizeof(spec));
            buf_add(&buf, "%s %u/1m", names[i], limits[j]);
            quotas[j] = quota_of(spec);
        }
        stint_state_init(&quotas[0], &state, 0);
        charge(&quotas[0], &state, 90 * S, 30);
        stint_state_convert(&quotas[0], &state, &quotas[1], &lowered, 90 * S);
        assert_int_equal(peek(&quotas[1], &lowered, 90 * S, 0).remaining, 0);
        assert_int_equal(refund(&quotas[1], &lowered, 90 * S, 5, 90 * S).remaining, 5);
        stint_state_convert(&quotas[0], &state, &quotas[2], &raised, 90 * S);
        assert_int_equal(drain(&quotas[2], &raised, 90 * S), 20);
    }
}

/*
 * What is over at a change is not carried, so whoever comes late after it is decided as at the
 * change: else the units of before and his would be one period's, and only his were counted.
 */
TEST(test_a_change_keeps_the_time)
{
    static const char *const tens[] = {"window 10/10s",
                                       "window 10/10s resolution=10",
                                       "log 10/10s",
                                       "buckets 10/10s count_slack=3",
                                       "gcra 10/10s",
                                       "buckets 10/10s time_slack=1s",
                                       "fixed_window 10/10s",
                                       "fixed_window 10/10s align=first_use",
                                       "sliding_counter 10/10s"};
    static const size_t n = N(tens);
    static struct state from_state, to_state;
    for (size_t i = 0; i < n * n; i++) {
        struct stint_quota from = quota_of(tens[i / n]), to = quota_of(tens[i % n]);
        if (i / n == i % n)
            continue; /* no change */
        stint_state_init(&from, from_state.bytes, 0);
        stint_state_init(&to, to_state.bytes, 0);
        ask(&from, &from_state, STINT_TAKE, S, 10);
        stint_state_convert(&from, from_state.bytes, &to, to_state.bytes, 20 * S);
        uint32_t granted = ask(&to, &to_state, STINT_TAKE_UPTO, 19 * S, 10).granted;
        if (to.algorithm == STINT_GCRA) { /* the second that he is late has not flowed yet */
            assert_int_equal(granted, 9);
            continue;
        }
        assert_int_equal(granted, 10);
        assert_int_equal(ask(&to, &to_state, STINT_PEEK, 29500 * MS, 0).remaining, 0);
    }
}

/*
 * What a lower limit cut off is still used under a strict quota that is raised again. The others
 * hold no more than their limit, so there it is free.
 */
TEST(test_changes_add_what_they_raise)
{
    static const char *const names[] = {"window", "log", "fixed_window", "sliding_counter"};
    static struct state one, other;
    for (size_t i = 0; i < N(names); i++) {
        char spec[64];
        struct stint_quota quotas[2];
        for (size_t j = 0; j < 2; j++) {
            struct buf buf = buf_of(spec, sizeof(spec));
            buf_add(&buf, "%s %u/1m", names[i], j == 0 ? 10 : 4);
            quotas[j] = quota_of(spec);
        }
        stint_state_init(&quotas[0], one.bytes, 0);
        ask(&quotas[0], &one, STINT_TAKE, 60 * S, 10);
        stint_state_convert(&quotas[0], one.bytes, &quotas[1], other.bytes, 60 * S);
        assert_int_equal(ask(&quotas[1], &other, STINT_PEEK, 60 * S, 0).remaining, 0);
        stint_state_convert(&quotas[1], other.bytes, &quotas[0], one.bytes, 60 * S);
        assert_int_equal(ask(&quotas[0], &one, STINT_PEEK, 60 * S, 0).remaining,
                         stint_is_strict(&quotas[0]) ? 0 : 10 - 4);
    }
}

/* The same quota under another name or policy keeps the very bits. */
TEST(test_a_change_of_name_changes_no_state)
{
    static struct state from_state, to_state;
    for (size_t i = 0; i < N_SPECS; i++) {
        struct stint_quota from = quota_of(specs[i]), to = from;
        to.rule = 77;
        to.when_full = STINT_FULL_DENY;
        stint_state_init(&from, from_state.bytes, 0);
        for (uint64_t k = 0; k < 7; k++)
            ask(&from, &from_state, STINT_TAKE, k * 7 * S, 2);
        stint_state_convert(&from, from_state.bytes, &to, to_state.bytes, 55 * S);
        assert_memory_equal(&to_state, &from_state, stint_state_size(&from));
    }
}

/* Places are held, given back once, and free again when the lease ends. */
TEST(test_places_are_held_and_given_back)
{
    static struct state state;
    struct stint_quota quota = quota_of("concurrency 2 lease=30s");
    uint64_t first, second, third;
    stint_state_init(&quota, state.bytes, 0);
    assert_int_equal(stint_state_hold(&quota, state.bytes, S, 1, &first).outcome, STINT_ALLOW);
    assert_int_equal(stint_state_hold(&quota, state.bytes, S, 1, &second).outcome, STINT_ALLOW);
    assert_true(first != second);
    struct stint_decision full = stint_state_hold(&quota, state.bytes, 2 * S, 1, &third);
    assert_int_equal(full.outcome, STINT_DENY);
    assert_int_equal(full.retry_after_ns, 29 * S);
    assert_int_equal(stint_state_release(&quota, state.bytes, 2 * S, first), STINT_OK);
    assert_int_equal(stint_state_release(&quota, state.bytes, 2 * S, first), STINT_E_GONE);
    assert_int_equal(stint_state_hold(&quota, state.bytes, 2 * S, 1, &third).outcome, STINT_ALLOW);
    assert_int_equal(stint_state_renew(&quota, state.bytes, 20 * S, &second), STINT_OK);
    assert_int_equal(stint_state_renew(&quota, state.bytes, 40 * S, &third), STINT_E_GONE);
    assert_int_equal(stint_state_release(&quota, state.bytes, 40 * S, second), STINT_OK);
    assert_int_equal(stint_state_hold(&quota, state.bytes, STINT_NOW_MAX + 1, 1, &third).outcome,
                     STINT_NEVER);
}

/* A holder is neither released nor renewed at a time out of range. */
TEST(test_holders_at_a_time_out_of_range)
{
    struct stint_quota quota = quota_of("concurrency 2 lease=1h");
    uint64_t state[4] = {0}, before[4], holder;
    assert_int_equal(stint_state_hold(&quota, state, STINT_NOW_MAX, 1, &holder).granted, 1);
    memcpy(before, state, sizeof(state));
    assert_int_equal(stint_state_release(&quota, state, STINT_NOW_MAX + 1, holder), STINT_E_RANGE);
    assert_int_equal(stint_state_renew(&quota, state, STINT_NOW_MAX + 1, &holder), STINT_E_RANGE);
    assert_memory_equal(state, before, sizeof(state));
    assert_int_equal(stint_state_release(&quota, state, STINT_NOW_MAX, holder), 0);
}
