/* SPDX-License-Identifier: MIT */
/*
 * The store over memcached where others are always faster, where memcached says nothing, and where
 * a state is damaged. The servers are those of test_memcached_backend.c.
 */
#include "unit/test_memcached.h"

#define A_NAME "p:{a}window,10000000,24:r:"
#define K_NAME "p:{k}window,10000000,24:r:"

/* Each time another writes between its read and its swap. */
static void lose_for_long(struct server *server, const char *spec, const char *name)
{
    for (uint64_t lost = metrics()->conflicts, i = 1; i <= 25; i++) {
        assert_true(run_one(server)); /* the read */
        rival_takes(server, spec, name, 1);
        while (metrics()->conflicts < lost + i)
            assert_true(run_one(server)); /* the swap, and what goes with it */
        now_ns += 2 * MS;
    }
}

static void lose_until_late(struct asked *asked, struct server *server, const char *spec,
                            const char *name)
{
    lose_for_long(server, spec, name);
    assert_int_equal(asked->n_answers, 0);
    memcached_backend_wake(store, now_ns);
}

TEST(who_is_never_fast_enough_is_denied)
{
    struct asked asked;
    struct server *server = server_of("window 500/10s", "k");
    start_one(&asked, REQUEST_TAKE, "window 500/10s", "k", 3);
    lose_until_late(&asked, server, "window 500/10s", "p:{k}window,10000000,24:r:");
    assert_decided(&asked, STINT_DENY, 0);
    assert_in_range(asked.op.answer.sum.retry_after_ns, MS, 100 * MS);
    assert_int_equal(asked.op.answer.sum.limit, 500);
    assert_int_equal(asked.op.answer.fault, BACKEND_ERROR_BUSY);
    assert_int_equal(metrics()->busy, 1);
    assert_true(metrics()->conflicts >= 20);
    assert_int_equal(metrics()->lost, 0);
    /* What can not be denied has failed, but memcached has not. */
    start_one(&asked, REQUEST_CHARGE, "window 500/10s", "k", 3);
    lose_until_late(&asked, server, "window 500/10s", "p:{k}window,10000000,24:r:");
    assert_failed(&asked, BACKEND_ERROR_BUSY);
    assert_int_equal(metrics()->busy, 2);
}

/* The swap that is sent when the denial is answered succeeds, and is taken back. */
TEST(a_take_that_was_denied_as_busy_stays_uncharged)
{
    struct asked asked;
    struct server *server = server_of("window 500/10s", "k");
    start_one(&asked, REQUEST_TAKE, "window 500/10s", "k", 3);
    lose_for_long(server, "window 500/10s", K_NAME);
    assert_true(run_one(server)); /* the read; the swap is sent */
    memcached_backend_wake(store, now_ns);
    assert_decided(&asked, STINT_DENY, 0);
    run_all();
    assert_int_equal(left_of("window 500/10s", "k"), 500 - 25);
    assert_int_equal(metrics()->kept, 0);
}

/* It fails: the take is not tried again. */
TEST(a_take_that_was_denied_as_busy_is_over_where_its_swap_fails)
{
    struct asked asked;
    struct server *server = server_of("window 500/10s", "k");
    start_one(&asked, REQUEST_TAKE, "window 500/10s", "k", 3);
    lose_for_long(server, "window 500/10s", K_NAME);
    assert_true(run_one(server));
    memcached_backend_wake(store, now_ns);
    assert_decided(&asked, STINT_DENY, 0);
    unsigned writes = server->writes;
    rival_takes(server, "window 500/10s", K_NAME, 1);
    run_all();
    assert_int_equal(server->writes, writes);
    assert_int_equal(left_of("window 500/10s", "k"), 500 - 26);
}

/* One key of a list is charged, the other one waits for its turn. */
TEST(a_list_that_was_denied_as_busy_stays_uncharged)
{
    struct asked asked = {.n_answers = 0};
    struct server *server = server_of("gcra 400/10s", "b");
    add(&asked, "window 5/10s", "a", 3);
    add(&asked, "gcra 400/10s", "b", 3);
    start(&asked, REQUEST_TAKE);
    while (all_reads() < 3)
        assert_true(run_one(&servers[0]) || run_one(&servers[1]));
    for (int i = 0; i < 60; i++) {
        rival_takes(server, "gcra 400/10s", "p:{b}gcra:r:", 1);
        run_one(&servers[0]);
        run_one(&servers[1]);
        now_ns += MS;
    }
    assert_int_equal(asked.n_answers, 0);
    assert_true(find(&servers[0], A_NAME) != NULL || find(&servers[1], A_NAME) != NULL);
    memcached_backend_wake(store, now_ns);
    assert_decided(&asked, STINT_DENY, 0);
    assert_int_equal(asked.op.answer.sum.binding, 1);
    assert_in_range(asked.op.answer.sum.retry_after_ns, MS, 100 * MS);
    assert_int_equal(asked.each[0].outcome, STINT_ALLOW); /* no other request wants it */
    assert_int_equal(asked.each[0].granted, 0);
    assert_int_equal(asked.each[0].remaining, 5);
    assert_int_equal(asked.each[1].outcome, STINT_DENY);
    assert_int_equal(asked.each[1].limit, 400);
    run_all();
    assert_int_equal(left_of("window 5/10s", "a"), 5);
    assert_int_equal(left_of("gcra 400/10s", "b"), 400 - 60);
    assert_int_equal(metrics()->kept, 0);
}

/* One key may have been charged, the other one waits for its turn: the answer is the worse one. */
TEST(a_list_that_may_have_been_charged_is_not_denied_as_busy)
{
    struct asked asked = {.n_answers = 0};
    char key[16] = "a", other[16] = "a";
    while (server_of("window 5/10s", key) != &servers[0])
        key[0]++;
    while (server_of("gcra 400/10s", other) != &servers[1])
        other[0]++;
    char name[32];
    snprintf(name, sizeof(name), "p:{%s}gcra:r:", other);
    add(&asked, "window 5/10s", key, 3);
    add(&asked, "gcra 400/10s", other, 3);
    start(&asked, REQUEST_TAKE);
    assert_true(run_one(&servers[0]));
    assert_true(run_one(&servers[1])); /* both were looked at */
    assert_true(run_one(&servers[0])); /* the swap is sent */
    link_sent(memcached_conn_link(servers[0].conn),
              link_output(memcached_conn_link(servers[0].conn)).len);
    cut(&servers[0]);
    for (int i = 0; i < 60; i++) {
        rival_takes(&servers[1], "gcra 400/10s", name, 1);
        run_one(&servers[1]);
        now_ns += MS;
    }
    memcached_backend_wake(store, now_ns);
    assert_failed(&asked, BACKEND_ERROR_LOST);
}

/* It lost swaps, but then memcached said nothing for most of its time. */
TEST(silence_is_late_though_swaps_were_lost_before)
{
    struct asked asked;
    struct server *server = server_of("window 5/10s", "k");
    struct link *link = memcached_conn_link(server->conn);
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_true(run_one(server));
    rival_takes(server, "window 5/10s", K_NAME, 1);
    now_ns += MS;
    assert_true(run_one(server));
    link_sent(link, link_output(link).len);
    now_ns += 49 * MS;
    memcached_backend_wake(store, now_ns);
    assert_failed(&asked, BACKEND_ERROR_LATE);
    assert_int_equal(metrics()->busy, 0);
}

TEST(a_state_that_is_damaged_is_denied_and_counted)
{
    struct server *server = server_of("window 5/10s", "k");
    take("window 5/10s", "k", 5);
    find(server, K_NAME)->bytes[9] ^= 4;
    assert_int_equal(take("window 5/10s", "k", 1).outcome, STINT_DENY);
    assert_int_equal(metrics()->damaged, 1);
    wall_ns += 9 * NS_PER_S;
    assert_int_equal(take("window 5/10s", "k", 1).outcome, STINT_DENY);
    assert_int_equal(metrics()->damaged, 1); /* it was replaced */
    wall_ns += 3 * NS_PER_S;
    assert_int_equal(take("window 5/10s", "k", 5).granted, 5);
}
