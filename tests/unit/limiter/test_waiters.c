/* SPDX-License-Identifier: MIT */
/* Waiters: first come, first served; one wake for each place; nothing is left behind. */
#include "unit/test.h"

#include "stint.h"

#define SECOND UINT64_C(1000000000)

struct fixture {
    struct stint_table *table;
    struct stint_waiters *waiters;
    struct stint_quota quota;
};

static struct fixture fixture[1];

SETUP
{
    const struct stint_table_options options = {.clock = STINT_CLOCK_VIRTUAL};
    memset(fixture, 0, sizeof(fixture));
    assert_int_equal(stint_quota_parse(&fixture->quota, "gcra 1/1s burst=3", NULL), 0);
    assert_int_equal(stint_table_open(&fixture->table, &options, NULL), 0);
    fixture->waiters = stint_waiters_new(4);
    assert_non_null(fixture->waiters);
}

TEARDOWN
{
    stint_waiters_free(fixture->waiters);
    stint_table_close(fixture->table);
}

static uint64_t add(uint32_t cost, uint64_t deadline_ns)
{
    uint64_t id = 0;
    assert_int_equal(stint_waiters_add(fixture->waiters, cost, deadline_ns, &id), 0);
    return id;
}

static struct stint_wake wake(uint64_t now_ns)
{
    return stint_waiters_wake(fixture->waiters, fixture->table, &fixture->quota, "key", 3, now_ns);
}

/* B22: the places go to waiters in the order in which they came, one wake for each. */
TEST(test_first_come_first_served)
{
    stint_take(fixture->table, &fixture->quota, "key", 3, 3, 0);
    uint64_t first = add(1, STINT_NEVER_NS), second = add(1, STINT_NEVER_NS);
    struct stint_wake none = wake(0);
    assert_int_equal(none.id, 0);
    assert_int_equal(none.next_ns, SECOND);
    assert_int_equal(wake(SECOND).id, first);
    assert_int_equal(wake(SECOND).id, 0);
    assert_int_equal(wake(2 * SECOND).id, second);
    assert_int_equal(wake(2 * SECOND).next_ns, STINT_NEVER_NS);
}

/* B22: small requests behind a big one do not take its units as they come free. */
TEST(test_a_big_request_is_not_starved)
{
    stint_take(fixture->table, &fixture->quota, "key", 3, 3, 0);
    uint64_t big = add(3, STINT_NEVER_NS);
    add(1, STINT_NEVER_NS);
    for (uint64_t s = 1; s < 3; s++) {
        assert_int_equal(wake(s * SECOND).id, 0);
        assert_int_equal(wake(s * SECOND).next_ns, 3 * SECOND);
    }
    assert_int_equal(wake(3 * SECOND).id, big);
}

/* B22: who gives up or is too late leaves no unit charged and no place in the line. */
TEST(test_cancel_and_deadline_leak_nothing)
{
    stint_take(fixture->table, &fixture->quota, "key", 3, 3, 0);
    uint64_t gone = add(1, STINT_NEVER_NS), late = add(1, SECOND / 2);
    uint64_t last = add(1, STINT_NEVER_NS);
    assert_int_equal(stint_waiters_cancel(fixture->waiters, gone), 0);
    assert_int_equal(stint_waiters_cancel(fixture->waiters, gone), STINT_E_GONE);
    assert_int_equal(wake(0).next_ns, SECOND / 2);
    struct stint_wake expired = wake(SECOND / 2);
    assert_int_equal(expired.id, late);
    assert_true(expired.expired);
    assert_int_equal(wake(SECOND).id, last);
    for (int i = 0; i < 4; i++)
        add(1, STINT_NEVER_NS);
    uint64_t id;
    assert_int_equal(stint_waiters_add(fixture->waiters, 1, STINT_NEVER_NS, &id), STINT_E_FULL);
}

/* A cost that can never fit is told so at once, and does not block the line. */
TEST(test_never_does_not_block_the_line)
{
    uint64_t never = add(4, STINT_NEVER_NS), next = add(1, STINT_NEVER_NS);
    struct stint_wake first = wake(0);
    assert_int_equal(first.id, never);
    assert_int_equal(first.decision.outcome, STINT_NEVER);
    assert_int_equal(wake(0).id, next);
}
