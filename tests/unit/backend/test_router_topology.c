/* SPDX-License-Identifier: MIT */
/*
 * A router among the servers of a cluster, or behind sentinels, in virtual time: who is asked what
 * after each redirect, and how it finds another master.
 */
#include "unit/test_router.h"

/* Slots in halves: a has those up to 8191, b the others. `c` in place of b once it is given. */
static const char *slots(const char *low, unsigned low_port, const char *high, unsigned high_port)
{
    static char text[512];
    snprintf(text, sizeof(text),
             "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$1\r\n%s\r\n:%u\r\n"
             "*3\r\n:8192\r\n:16383\r\n*2\r\n$1\r\n%s\r\n:%u\r\n",
             low, low_port, high, high_port);
    return text;
}

/* Keys by their slots: x is 16287, of the upper half; "b" 3300, of the lower. */
#define LOW "b"
#define HIGH "x"

static void begin_cluster(void)
{
    begin("redis-cluster://a:1");
    meet(&net, "a:1", "A");
    assert_sent(&net, "a:1", "CLUSTER SLOTS");
    say(&net, "a:1", slots("a", 1, "b", 2));
    ask(HIGH); /* b is connected once it is needed */
    meet(&net, "b:2", "B");
    assert_sent(&net, "b:2", "GET x");
    say(&net, "b:2", "+1\r\n");
    assert_replied("x done 1");
}

/* ---- A cluster ------------------------------------------------------------------------------- */

TEST(each_slot_has_its_server)
{
    begin_cluster();
    ask(LOW);
    ask(HIGH);
    assert_sent(&net, "a:1", "GET b");
    assert_sent(&net, "b:2", "GET x");
}

TEST(a_slot_that_moved_is_followed_at_once)
{
    begin_cluster();
    pass(&net, 200 * MS);
    ask(LOW);
    assert_sent(&net, "a:1", "GET b");
    say(&net, "a:1", "-MOVED 3300 b:2\r\n");
    assert_sent(&net, "b:2", "GET b");
    say(&net, "b:2", "+v\r\n");
    assert_replied("b done v");
    /* The rest of the map is asked for, of the one who knew better; the slot stays where it is. */
    assert_sent(&net, "a:1", "CLUSTER SLOTS");
    ask(LOW);
    assert_sent(&net, "b:2", "GET b");
    say(&net, "a:1", slots("b", 2, "b", 2));
    assert_int_equal(FIGURE(redirects), 1);
    assert_int_equal(FIGURE(failovers), 0);
    /* Nobody needs a any more. */
    pass(&net, 1200 * MS);
    assert_null(line_nth(&net, "a:1", 0));
}

TEST(a_slot_on_its_way_is_asked_for_there)
{
    begin_cluster();
    ask(LOW);
    assert_sent(&net, "a:1", "GET b");
    say(&net, "a:1", "-ASK 3300 c:3\r\n");
    meet(&net, "c:3", "C");
    assert_sent(&net, "c:3", "ASKING; GET b");
    say(&net, "c:3", "+OK\r\n+v\r\n");
    assert_replied("b done v");
    ask(LOW); /* this once */
    assert_sent(&net, "a:1", "GET b");
    assert_int_equal(FIGURE(failovers), 0);
}

/* Some of its keys are on their way: neither server has all of them, for a while. */
TEST(a_slot_whose_keys_are_on_their_way_is_asked_for_until_they_are_there)
{
    begin_cluster();
    ask_as(LOW, 200 * MS, false);
    assert_sent(&net, "a:1", "GET b");
    say(&net, "a:1", "-ASK 3300 c:3\r\n");
    meet(&net, "c:3", "C");
    int refused = 0;
    for (int ms = 0; ms < 190 && refused < 7; ms++, pass(&net, MS)) {
        if (strstr(sent_to(&net, line_to(&net, "a:1")), "GET b") != NULL)
            say(&net, "a:1", "-ASK 3300 c:3\r\n");
        if (strstr(sent_to(&net, line_to(&net, "c:3")), "GET b") != NULL) {
            say(&net, "c:3", "+OK\r\n-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
            refused++;
        }
    }
    assert_int_equal(refused, 7);
}

TEST(an_unknown_master_is_asked_once_the_map_has_it)
{
    begin_cluster();
    pass(&net, 200 * MS);
    ask_as(HIGH, 200 * MS, false);
    assert_sent(&net, "b:2", "GET x");
    say(&net, "b:2", "-MOVED 16287 c:3\r\n");
    assert_null(line_nth(&net, "c:3", 0));
    assert_sent(&net, "b:2", "CLUSTER SLOTS");
    say(&net, "b:2", slots("a", 1, "c", 3));
    assert_int_equal(FIGURE(failovers), 1); /* before c is asked anything */
    pass(&net, 3 * MS);
    meet(&net, "c:3", "C");
    assert_sent(&net, "c:3", "GET x");
    say(&net, "c:3", "+v\r\n");
    assert_replied("x done v");
    assert_int_equal(FIGURE(failovers), 1);
}

TEST(a_master_that_died_is_replaced)
{
    begin_cluster();
    pass(&net, 200 * MS);
    lose(&net, "b:2");
    ask_as(HIGH, 900 * MS, false);
    await(&net, "a:1", "CLUSTER SLOTS", 100 * MS);
    say(&net, "a:1", slots("a", 1, "b", 2)); /* not yet */
    await(&net, "a:1", "CLUSTER SLOTS", 450 * MS);
    say(&net, "a:1", slots("a", 1, "c", 3));
    assert_int_equal(FIGURE(failovers), 1);
    meet(&net, "c:3", "C");
    assert_sent(&net, "c:3", "GET x");
    say(&net, "c:3", "+v\r\n");
    assert_replied("x done v");
    pass(&net, 1500 * MS);
    assert_null(line_nth(&net, "b:2", 0));
}

static uint64_t bit_of(const char *key)
{
    return router_server_bit(net.router, cluster_slot_of(span_of_text(key)), net.now_ns);
}

/* Whoever takes another's place is known by another bit, wherever the map has it. */
TEST(each_server_has_a_bit)
{
    begin_cluster();
    uint64_t low = bit_of(LOW), high = bit_of(HIGH);
    assert_true(low > 1 && high > 1 && low != high);
    assert_true((low & (low - 1)) == 0 && (high & (high - 1)) == 0);
    pass(&net, 200 * MS);
    lose(&net, "b:2");
    assert_true(bit_of(HIGH) == high);
    ask_as(HIGH, 900 * MS, false);
    await(&net, "a:1", "CLUSTER SLOTS", 100 * MS);
    say(&net, "a:1", slots("c", 3, "a", 1));
    assert_true(bit_of(HIGH) == low); /* a has it now */
    uint64_t third = bit_of(LOW);
    assert_true(third > 1 && third != low && third != high);
}

/* Of one server, and of keys that nobody is known to have, it is the first. */
TEST(who_is_not_known_has_the_first_bit)
{
    begin("redis-cluster://a:1");
    assert_true(bit_of(LOW) == 1);
    tear_down();
    begin("redis://a:1");
    assert_true(bit_of(LOW) == 1 && bit_of(HIGH) == 1);
}

TEST(nodes_that_send_in_circles_are_not_followed_for_ever)
{
    begin_cluster();
    ask_as(LOW, 50 * MS, false);
    int redirects = 0;
    for (int i = 0; i < 60; i++) {
        const char *said = sent_to(&net, line_to(&net, "a:1"));
        if (strstr(said, "GET") != NULL) {
            say(&net, "a:1", strstr(said, "SLOTS") != NULL ? "-LOADING\r\n" : "");
            say(&net, "a:1", "-MOVED 3300 b:2\r\n");
            redirects++;
        } else if (said[0] != '\0')
            say(&net, "a:1", "-LOADING\r\n");
        said = sent_to(&net, line_to(&net, "b:2"));
        if (strstr(said, "GET") != NULL) {
            say(&net, "b:2", "-MOVED 3300 a:1\r\n");
            redirects++;
        }
        if (strstr(said, "SLOTS") != NULL)
            say(&net, "b:2", "-LOADING\r\n");
        pass(&net, MS);
    }
    assert_replied("b failed");
    assert_true(redirects >= 5 && redirects < 30);
}

TEST(seeds_are_tried_in_turn)
{
    begin("redis-cluster://a:1,b:2");
    lose(&net, "a:1");
    pass(&net, 200 * MS);
    meet(&net, "b:2", "B");
    assert_sent(&net, "b:2", "CLUSTER SLOTS");
    say(&net, "b:2", "*0\r\n"); /* knows nobody yet */
    await(&net, "b:2", "CLUSTER SLOTS", 400 * MS);
    say(&net, "b:2", slots("b", 2, "c", 3));
    ask(HIGH);
    meet(&net, "c:3", "C");
    assert_sent(&net, "c:3", "GET x");
}

TEST(a_slot_that_nobody_has_is_waited_for)
{
    begin("redis-cluster://a:1");
    meet(&net, "a:1", "A");
    assert_sent(&net, "a:1", "CLUSTER SLOTS");
    say(&net, "a:1", "*1\r\n*3\r\n:0\r\n:99\r\n*2\r\n$1\r\na\r\n:1\r\n");
    ask_as(HIGH, 300 * MS, false);
    await(&net, "a:1", "CLUSTER SLOTS", 250 * MS);
    say(&net, "a:1", "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:1\r\n");
    assert_sent(&net, "a:1", "GET x");
    say(&net, "a:1", "-CLUSTERDOWN Hash slot not served\r\n");
    pass(&net, 5 * MS);
    assert_sent(&net, "a:1", "GET x");
    say(&net, "a:1", "+v\r\n");
    assert_replied("x done v");
}

TEST(all_is_looked_at_from_time_to_time)
{
    begin_cluster();
    uint64_t n_looks = 0, began_ns = net.now_ns;
    while (net.now_ns < began_ns + 35 * NS_PER_S) {
        static const char *const addresses[] = {"a:1", "b:2"};
        for (size_t i = 0; i < 2; i++)
            if (strcmp(sent_to(&net, line_to(&net, addresses[i])), "CLUSTER SLOTS") == 0) {
                say(&net, addresses[i], slots("a", 1, "b", 2));
                n_looks++;
            }
        pass(&net, 5 * MS);
    }
    assert_in_range(n_looks, 3, 4);
    assert_int_equal(FIGURE(failovers), 0);
}

/* ---- Sentinels ------------------------------------------------------------------------------- */

#define GET_MASTER "SENTINEL GET-MASTER-ADDR-BY-NAME main"
#define SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"
static void begin_sentinels(void)
{
    begin("redis-sentinel://s:1,t:2/main");
    struct line *asked = line_nth(&net, "s:1", 0), *channel = line_nth(&net, "s:1", 1);
    greet_on(&net, asked, "sentinel");
    assert_string_equal(sent_to(&net, asked), GET_MASTER);
    greet_on(&net, channel, "sentinel");
    assert_string_equal(sent_to(&net, channel), "SUBSCRIBE +switch-master");
    say_on(&net, channel, SUBSCRIBED);
    say_on(&net, asked, "*2\r\n$1\r\nm\r\n$1\r\n1\r\n");
    meet(&net, "m:1", "M");
}

TEST(sentinels_name_the_master)
{
    begin_sentinels();
    ask("k");
    assert_sent(&net, "m:1", "GET k");
    say(&net, "m:1", "+v\r\n");
    assert_replied("k done v");
    assert_int_equal(FIGURE(failovers), 0);
}

TEST(a_switch_is_followed_at_once)
{
    begin_sentinels();
    pass(&net, 500 * MS);
    lose(&net, "m:1");
    ask_as("k", 200 * MS, false);
    pass(&net, 10 * MS);
    static const char text[] = "main m 1 n 2";
    char message[128];
    snprintf(message, sizeof(message),
             "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%zu\r\n%s\r\n", sizeof(text) - 1,
             text);
    say_on(&net, line_nth(&net, "s:1", 1), message);
    pass(&net, MS);
    assert_null(line_nth(&net, "m:1", 0));
    meet(&net, "n:2", "N");
    assert_int_equal(FIGURE(failovers), 1);
    assert_sent(&net, "n:2", "GET k");
    say(&net, "n:2", "+v\r\n");
    assert_replied("k done v");
}

TEST(who_is_told_to_be_master_and_is_none_is_left)
{
    begin("redis-sentinel://s:1/main");
    struct line *asked = line_nth(&net, "s:1", 0);
    greet_on(&net, asked, "sentinel");
    (void)sent_to(&net, asked);
    say_on(&net, asked, "*2\r\n$1\r\nm\r\n$1\r\n1\r\n");
    greet_on(&net, line_to(&net, "m:1"), "slave");
    await_on(&net, asked, GET_MASTER, 400 * MS);
    assert_null(line_nth(&net, "m:1", 0));
    say_on(&net, asked, "*2\r\n$1\r\nn\r\n$1\r\n2\r\n");
    meet(&net, "n:2", "N");
    ask("k");
    assert_sent(&net, "n:2", "GET k");
    assert_int_equal(FIGURE(failovers), 0);
}

TEST(the_next_sentinel_takes_the_place_of_one_that_is_lost)
{
    begin_sentinels();
    lose(&net, "s:1");
    pass(&net, MS);
    assert_null(line_nth(&net, "s:1", 0));
    struct line *asked = line_nth(&net, "t:2", 0);
    assert_non_null(asked);
    greet_on(&net, asked, "sentinel");
    assert_string_equal(sent_to(&net, asked), GET_MASTER);
    say_on(&net, asked, "*-1\r\n"); /* it does not know the name */
    pass(&net, 200 * MS);
    assert_null(line_nth(&net, "t:2", 0));
    assert_non_null(line_nth(&net, "s:1", 0));
    /* The master is served all the while. */
    ask("k");
    assert_sent(&net, "m:1", "GET k");
}

TEST(sentinels_are_asked_from_time_to_time)
{
    begin_sentinels();
    struct line *asked = line_nth(&net, "s:1", 0);
    await_on(&net, asked, GET_MASTER, NS_PER_S); /* in doubt once the channel listened */
    say_on(&net, asked, "*2\r\n$1\r\nm\r\n$1\r\n1\r\n");
    uint64_t began_ns = net.now_ns;
    await_on(&net, asked, GET_MASTER, 11 * NS_PER_S);
    assert_true(net.now_ns > began_ns + 9 * NS_PER_S);
    say_on(&net, asked, "*2\r\n$1\r\nn\r\n$1\r\n2\r\n"); /* the channel was silent */
    pass(&net, MS);
    meet(&net, "n:2", "N");
    assert_int_equal(FIGURE(failovers), 1);
}

/* It is connected, and yet nobody can be asked. */
TEST(what_is_no_cluster_is_unavailable_and_says_why)
{
    begin("redis-cluster://a");
    ask("k");
    meet(&net, "a:6379", "one");
    assert_sent(&net, "a:6379", "CLUSTER SLOTS");
    assert_true(router_unavailable_since(net.router) > 0);
    say(&net, "a:6379", "-ERR This instance has cluster support disabled\r\n");
    pass(&net, 51 * MS);
    assert_replied("k failed");
    assert_true(router_unavailable_since(net.router) > 0);
    assert_non_null(strstr(router_error(net.router), "CLUSTER SLOTS: ERR This instance"));
}
