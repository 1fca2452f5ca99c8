/* SPDX-License-Identifier: MIT */
/*
 * A router and one server that this file plays, in virtual time: what becomes of each kind of
 * refusal and loss; that nothing is done twice, nobody waits too long, and memory is bounded.
 */
#include "unit/test_router.h"

static void begin_single(void)
{
    begin("redis://a");
    meet(&net, "a:6379", "one");
}

/* ---- A single server ------------------------------------------------------------------------- */

TEST(what_is_asked_early_waits_for_the_server)
{
    begin("redis://a");
    assert_true(router_unavailable_since(net.router) > 0);
    ask("k");
    struct line *line = line_to(&net, "a:6379");
    greet_on(&net, line, "master");
    /* Nothing before it is known who it is. */
    assert_string_equal(sent_to(&net, line), "INFO server");
    say(&net, "a:6379", "-NOPERM no INFO for you\r\n");
    assert_int_equal(router_unavailable_since(net.router), 0);
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", "+v\r\n");
    assert_replied("k done v");
    assert_int_equal(FIGURE(failovers), 0);
}

/* Its connection is not lost, since something was said on it. */
TEST(who_tells_slowly_who_it_is_is_asked_again)
{
    begin("redis://a");
    ask_as("k", 500 * MS, false);
    struct line *line = line_to(&net, "a:6379");
    greet_on(&net, line, "master");
    assert_string_equal(sent_to(&net, line), "INFO server");
    pass(&net, 40 * MS);
    say(&net, "a:6379", "$22\r\n# Server\r\n");
    pass(&net, 12 * MS);
    assert_sent(&net, "a:6379", "INFO server");
    say(&net, "a:6379", "run_id:one\r\n\r\n"); /* too late: nobody knows any more what it is of */
    assert_sent(&net, "a:6379", "");
    say(&net, "a:6379", "$12\r\nrun_id:one\r\n\r\n");
    assert_int_equal(router_unavailable_since(net.router), 0);
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", "+v\r\n");
    assert_replied("k done v");
}

TEST(nobody_waits_past_his_deadline)
{
    begin("redis://a");
    ask_as("k", 30 * MS, false);
    pass(&net, 29 * MS);
    assert_replied("");
    pass(&net, 2 * MS);
    assert_replied("k failed");
    /* What was sent and is not answered may have been done. */
    meet(&net, "a:6379", "one");
    assert_sent(&net, "a:6379", "");
    ask_as("l", 30 * MS, false);
    assert_sent(&net, "a:6379", "GET l");
    pass(&net, 31 * MS);
    assert_replied("l late");
    say(&net, "a:6379", "+too late\r\n");
    assert_replied("");
    assert_true(link_is_ready(redis_conn_link(line_to(&net, "a:6379")->conn)));
}

TEST(what_may_have_been_done_is_not_sent_again)
{
    begin_single();
    ask_as("k", 500 * MS, false);
    ask_as("again", 500 * MS, true);
    assert_sent(&net, "a:6379", "GET k; GET again");
    ask_as("unsent", 500 * MS, false);
    lose(&net, "a:6379");
    assert_replied("k lost");
    pass(&net, 20 * MS);
    meet(&net, "a:6379", "one");
    pass(&net, 20 * MS);
    assert_sent(&net, "a:6379", "GET again; GET unsent");
    say(&net, "a:6379", "+1\r\n+2\r\n");
    assert_replied("again done 1; unsent done 2");
    assert_int_equal(FIGURE(failovers), 0);
}

TEST(a_silent_server_is_left_and_connected_anew)
{
    begin_single();
    ask_as("k", 500 * MS, false);
    ask_as("r", 500 * MS, true);
    assert_sent(&net, "a:6379", "GET k; GET r");
    pass(&net, 51 * MS);
    assert_replied("k late");
    assert_true(router_unavailable_since(net.router) > 0);
    assert_true(strstr(router_error(net.router), "not answered within 50 ms") != NULL);
    pass(&net, 12 * MS);
    meet(&net, "a:6379", "one");
    pass(&net, 5 * MS);
    assert_sent(&net, "a:6379", "GET r");
}

TEST(refusals_that_pass_are_outlasted)
{
    static const char *const refusals[] = {
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-BUSY Redis is busy running a script\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    };
    begin_single();
    for (size_t i = 0; i < 3; i++) {
        unsigned n_sent = 0;
        ask("k");
        for (int ms = 0; ms < 52; ms++, pass(&net, MS))
            if (strcmp(sent_to(&net, line_to(&net, "a:6379")), "GET k") == 0) {
                say(&net, "a:6379", refusals[i]);
                assert_sent(&net, "a:6379", ""); /* not at once */
                n_sent++;
            }
        assert_replied("k failed");
        assert_in_range(n_sent, 5, 14);
    }
    ask("k");
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", refusals[0]);
    pass(&net, 17 * MS);
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", "+v\r\n");
    assert_replied("k done v");
}

TEST(refusals_that_stay_are_told_at_once)
{
    static const char *const refusals[] = {
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOPERM this user has no permissions",
        "STINT the key holds no state of window",
        "MOVED 5 b:1",
        "ERR what?",
    };
    begin_single();
    for (size_t i = 0; i < N(refusals); i++) {
        char line[128], expected[128];
        ask("k");
        assert_sent(&net, "a:6379", "GET k");
        snprintf(line, sizeof(line), "-%s\r\n", refusals[i]);
        say(&net, "a:6379", line);
        snprintf(expected, sizeof(expected), "k refused %s", refusals[i]);
        assert_replied(expected);
    }
    assert_int_equal(FIGURE(retries), 0);
}

TEST(a_server_that_became_a_replica_is_connected_anew)
{
    begin("redis://a,b");
    meet(&net, "a:6379", "one");
    ask("k");
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", "-READONLY You can't write against a read only replica.\r\n");
    pass(&net, 2 * MS);
    assert_null(line_nth(&net, "a:6379", 0));
    pass(&net, 210 * MS);
    assert_replied("k failed");
    ask("k");
    meet(&net, "b:6379", "two");
    assert_int_equal(FIGURE(failovers), 1);
    assert_sent(&net, "b:6379", "GET k");
    say(&net, "b:6379", "+v\r\n");
    assert_replied("k done v");
}

TEST(a_replica_is_not_asked_at_all)
{
    begin("redis://a");
    ask("k");
    struct line *line = line_to(&net, "a:6379");
    greet_on(&net, line, "slave");
    pass(&net, 60 * MS);
    assert_false(line->is_open);
    assert_replied("k failed");
    assert_true(strstr(router_error(net.router), "replica") != NULL);
    pass(&net, 100 * MS);
    meet(&net, "a:6379", "one"); /* it was promoted */
    ask("k");
    assert_sent(&net, "a:6379", "GET k");
}

TEST(a_server_that_began_anew_is_a_failover)
{
    begin_single();
    lose(&net, "a:6379");
    pass(&net, 20 * MS);
    meet(&net, "a:6379", "one");
    assert_int_equal(FIGURE(failovers), 0);
    lose(&net, "a:6379");
    pass(&net, 20 * MS);
    ask("k");
    struct line *line = line_to(&net, "a:6379");
    greet_on(&net, line, "master");
    assert_string_equal(sent_to(&net, line), "INFO server");
    say(&net, "a:6379", "$12\r\nrun_id:two\r\n\r\n");
    assert_int_equal(FIGURE(failovers), 1);
    assert_sent(&net, "a:6379", "GET k");
}

TEST(a_socket_has_a_path)
{
    begin("unix:/run/redis");
    meet(&net, "/run/redis", "one");
    ask("k");
    assert_sent(&net, "/run/redis", "GET k");
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

TEST(what_waits_is_bounded_in_number_and_bytes)
{
    char key[901];
    memset(key, 'k', 900);
    key[900] = '\0';
    begin_with("redis://a", (struct router_options){.asks_max = 4, .bytes_max = 2000});
    struct router_ask *first = ask("1");
    assert_non_null(ask_as(key, 50 * MS, false));
    assert_non_null(ask_as(key, 50 * MS, false));
    assert_null(ask_as(key, 50 * MS, false)); /* bytes */
    ask("2");
    assert_null(ask_as("3", 50 * MS, false)); /* number */
    router_forget(first);
    ask("4");
    pass(&net, 60 * MS);
    forget_replies();
    /* One that is sent and forgotten counts until its connection has spoken of it. */
    meet(&net, "a:6379", "one");
    struct router_ask *asks[4];
    for (size_t i = 0; i < 4; i++)
        asks[i] = ask("k");
    assert_sent(&net, "a:6379", "GET k; GET k; GET k; GET k");
    for (size_t i = 0; i < 4; i++)
        router_forget(asks[i]);
    assert_null(ask_as("k", 50 * MS, false));
    say(&net, "a:6379", "+1\r\n+2\r\n+3\r\n+4\r\n");
    assert_replied("");
    for (size_t i = 0; i < 4; i++)
        ask("k");
}

TEST(what_is_forgotten_before_it_is_sent_is_never_sent)
{
    begin("redis://a");
    struct router_ask *asked = ask("k");
    ask("l");
    router_forget(asked);
    meet(&net, "a:6379", "one");
    assert_sent(&net, "a:6379", "GET l");
}

TEST(no_memory_for_a_connection_is_tried_again)
{
    begin_single();
    net.is_full = true;
    ask("k");
    (void)sent_to(&net, line_to(&net, "a:6379"));
    say(&net, "a:6379", "-READONLY no\r\n");
    pass(&net, 300 * MS);
    assert_replied("k failed");
    net.is_full = false;
    pass(&net, 500 * MS);
    meet(&net, "a:6379", "one");
    ask("k");
    assert_sent(&net, "a:6379", "GET k");
}

TEST(the_end_answers_all)
{
    begin_single();
    ask_as("sent", 500 * MS, true);
    assert_sent(&net, "a:6379", "GET sent");
    ask("unsent");
    router_free(net.router);
    assert_replied("sent lost; unsent failed");
    begin("redis://a");
    ask("waits");
    router_end_by(net.router, net.now_ns + 10 * MS);
    pass(&net, 11 * MS);
    assert_replied("waits failed");
}
