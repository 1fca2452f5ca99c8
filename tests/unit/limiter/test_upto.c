/* SPDX-License-Identifier: MIT */
/* Best effort over lists that stand in their own way: it ends, and what it grants, all grant. */
#include "unit/test_quota.h"

#include <unistd.h>

#define PLACES 8 /* of a table for one key */

static struct stint_table *small_table(void)
{
    struct stint_table_options options = {
        .keys = 1, .keys16 = 1, .clock = STINT_CLOCK_VIRTUAL, .hash_key = {3, 4}};
    return must_open_table(&options);
}

SETUP
{
    alarm(60); /* a loop without end is what this is about */
}

/* Two new keys, and a place for one of them. */
TEST(test_two_keys_for_the_last_place)
{
    struct stint_quota quota = quota_of("window 5/1m");
    struct stint_table *table = small_table();
    for (char key = 'a'; key < 'a' + PLACES - 1; key++)
        assert_int_equal(stint_take(table, &quota, &key, 1, 1, S).stored, 1);
    struct stint_item items[] = {{&quota, "x", 1, 3}, {&quota, "y", 1, 3}};
    struct stint_decision decision = stint_take_upto(table, items, 2, 2 * S);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_int_equal(decision.granted, 0);
    assert_int_equal(decision.stored, 0);
    /* The place is free still, and the key that had it for a moment owes nothing. */
    decision = stint_take_upto(table, items, 1, 2 * S);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_int_equal(decision.granted, 3);
    assert_int_equal(decision.remaining, 2);
    stint_table_close(table);
}

/* One rule in two forms: both quotas are charged to one state, which each sees as its own. */
TEST(test_two_quotas_on_one_state)
{
    struct stint_quota narrow = quota_of("window 9/1m"), wide = quota_of("window 10/1m");
    narrow.rule = wide.rule = 77;
    struct stint_table *table = small_table();
    struct stint_item items[] = {{&narrow, "k", 1, 9}, {&wide, "k", 1, 9}};
    struct stint_decision decision = stint_take_upto(table, items, 2, S);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_true(decision.granted >= 4 && decision.granted <= 5);
    assert_int_equal(stint_peek(table, &items[1], 1, S).remaining, 10 - 2 * decision.granted);
    stint_table_close(table);
}
