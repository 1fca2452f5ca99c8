/* SPDX-License-Identifier: MIT */
/* counter: the count and its expiry in 16 bytes, at every edge; and that no quota can be one. */
#include "algorithm/expiring_counter.h"

#include "unit/test_quota.h"

static struct counter_value value_of(const struct small_state *state, uint64_t now_ns)
{
    struct word16 words = {state->word[0], state->word[1]};
    return counter_at(&words, now_ns);
}

static struct stint_decision count(struct small_state *state, int64_t amount, uint64_t expiry_ns,
                                   uint64_t now_ns)
{
    struct stint_quota quota = counter_quota();
    struct stint_ask ask = counter_ask_of(amount, expiry_ns, now_ns);
    return stint_state_ask(&quota, state, &ask);
}

static void assert_value(const struct small_state *state, uint64_t now_ns, uint64_t expected,
                         uint64_t expires_at_ns)
{
    struct counter_value value = value_of(state, now_ns);
    assert_int_equal(value.count, expected);
    assert_int_equal(value.expires_at_ns, expires_at_ns);
}

/* Every expiry to the nanosecond, beside every count: neither takes a bit of the other. */
TEST(test_the_first_amount_sets_the_expiry)
{
    static const uint64_t starts[] = {0, 1, YEAR, STINT_NOW_MAX};
    static const uint64_t expiries[] = {1, 2047, S, YEAR + 1, STINT_COUNT_EXPIRY_MAX_NS};
    static const uint32_t amounts[] = {1, 17, UINT32_MAX};
    for (size_t i = 0; i < N(starts) * N(expiries) * N(amounts); i++) {
        uint64_t now_ns = starts[i % N(starts)], expiry_ns = expiries[i / N(starts) % N(expiries)];
        uint32_t amount = amounts[i / N(starts) / N(expiries)];
        struct small_state state = {{0, 0}};
        struct stint_decision first = count(&state, amount, expiry_ns, now_ns);
        assert_int_equal(first.outcome, STINT_ALLOW);
        assert_int_equal(first.granted, amount);
        assert_int_equal(first.reset_after_ns, expiry_ns);
        count(&state, 2, 9 * S, now_ns);
        assert_value(&state, now_ns, amount + UINT64_C(2), now_ns + expiry_ns);
        assert_value(&state, now_ns + expiry_ns - 1, amount + UINT64_C(2), now_ns + expiry_ns);
        assert_value(&state, now_ns + expiry_ns, 0, 0);
    }
}

TEST(test_it_begins_again_at_its_expiry)
{
    struct small_state state = {{0, 0}};
    count(&state, 5, S, 10 * S);
    count(&state, 1, 9 * S, 11 * S - 1);
    assert_value(&state, 11 * S - 1, 6, 11 * S);
    count(&state, 1, 9 * S, 11 * S);
    assert_value(&state, 11 * S, 1, 20 * S);
}

TEST(test_it_stays_at_the_largest)
{
    struct small_state state = {{0, 0}};
    struct stint_quota quota = counter_quota();
    count(&state, 1, S, 0);
    for (uint64_t left = STINT_COUNT_MAX - 1; left > 0;) {
        uint32_t amount = (uint32_t)min_u64(left, UINT32_MAX);
        assert_int_equal(count(&state, amount, S, 0).granted, amount);
        left -= amount;
    }
    assert_value(&state, 0, STINT_COUNT_MAX, S);
    struct small_state full = state;
    assert_int_equal(count(&state, 1, S, 0).granted, 0);
    assert_int_equal(count(&state, UINT32_MAX, S, 0).outcome, STINT_ALLOW);
    assert_memory_equal(&state, &full, sizeof(full));
    assert_true(algorithm_is_valid(&quota, &state, 0));
    count(&state, -1, 0, 0);
    assert_value(&state, 0, STINT_COUNT_MAX - 1, S);
}

/* Down to 0, where it keeps its expiry; what never was, or has expired, is not begun by it. */
TEST(test_it_never_falls_below_zero)
{
    struct small_state state = {{0, 0}}, unused = state;
    assert_int_equal(count(&state, -1, S, 0).granted, 0);
    assert_memory_equal(&state, &unused, sizeof(unused));
    count(&state, 5, S, 0);
    assert_int_equal(count(&state, -3, 0, 1).granted, 3);
    assert_int_equal(count(&state, -3, 0, 1).granted, 2);
    assert_value(&state, 1, 0, S);
    count(&state, 4, 9 * S, 2);
    assert_value(&state, 2, 4, S);
    assert_int_equal(count(&state, -3, 0, S).granted, 0);
    assert_value(&state, S, 0, 0);
}

/* No cost is held against a limit, so these verbs have no meaning and change nothing. */
TEST(test_verbs_that_ask_for_a_limit_are_never)
{
    static const uint8_t verbs[] = {STINT_TAKE, STINT_TAKE_UPTO, STINT_BOOK, STINT_UNBOOK};
    struct stint_quota quota = counter_quota();
    struct small_state state = {{0, 0}};
    count(&state, 5, S, 0);
    for (size_t i = 0; i < N(verbs); i++) {
        struct stint_ask ask = {.cost = 1, .verb = verbs[i]};
        assert_int_equal(stint_state_ask(&quota, &state, &ask).outcome, STINT_NEVER);
    }
    struct small_state unused = {{0, 0}};
    assert_int_equal(charge(&quota, &unused, 0, 1).outcome, STINT_NEVER); /* no expiry given */
    assert_int_equal(stint_state_expires_at(&quota, &unused), 0);
    assert_value(&state, 0, 5, S);
}

TEST(test_no_quota_is_a_counter)
{
    struct stint_error error;
    struct stint_quota quota = counter_quota();
    assert_int_equal(stint_quota_check(&quota, &error), STINT_E_MISMATCH);
    assert_non_null(strstr(error.message, "stint_count()"));
    assert_int_equal(quota.derived.checked, 0);
    assert_int_equal(stint_quota_parse(&quota, "counter 5/1m", &error), STINT_E_SYNTAX);
}

/* What a damaged file may claim to be the quota of counters. */
TEST(test_its_quota_has_one_form)
{
    struct stint_quota quota = counter_quota(), other = quota;
    char text[32];
    stint_quota_format(&quota, text, sizeof(text));
    assert_string_equal(text, "counter");
    assert_int_equal(algorithm_check_any(&other, NULL), STINT_OK);
    assert_memory_equal(&other, &quota, sizeof(quota));
    other.limit--;
    assert_int_equal(algorithm_check_any(&other, NULL), STINT_E_MISMATCH);
    other = quota;
    other.period_ns++;
    assert_int_equal(algorithm_check_any(&other, NULL), STINT_E_MISMATCH);
}
