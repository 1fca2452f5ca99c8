/* SPDX-License-Identifier: MIT */
/*
 * A router among servers that this file plays, in virtual time: who is asked what, after each kind
 * of redirect, refusal and loss; how it finds another master; and that nothing is done twice.
 */
#include "unit/dialling.h"

#include "remote/cluster.h"

static struct dialling net;
static struct store_url url;
static char told[4096];
static struct buf telling;

/* ---- Asking ---------------------------------------------------------------------------------- */

static void note(void *arg, enum router_outcome outcome, const struct redis_reply *reply,
                 uint64_t now_ns)
{
    static const char *const names[] = {"done", "refused", "failed", "late", "lost"};
    buf_add(&telling, "%s%s %s", telling.len > 0 ? "; " : "", (const char *)arg, names[outcome]);
    if (reply != NULL && reply->text.len > 0)
        buf_add(&telling, " %.*s", (int)reply->text.len, (const char *)reply->text.ptr);
    assert_int_equal(now_ns, net.now_ns);
}

static void assert_told(const char *expected)
{
    assert_string_equal(told, expected);
    telling = buf_of(told, sizeof(told));
}

static struct router_ask *ask_as(const char *key, uint64_t timeout_ns, bool is_repeatable)
{
    const struct span words[] = {span_of_text("GET"), span_of_text(key)};
    return router_ask(net.router,
                      &(struct router_command){.slot = cluster_slot_of(span_of_text(key)),
                                               .words = words,
                                               .n_words = 2,
                                               .deadline_ns = net.now_ns + timeout_ns,
                                               .is_repeatable = is_repeatable,
                                               .answered = note,
                                               .arg = (void *)(uintptr_t)key},
                      net.now_ns);
}

static struct router_ask *ask(const char *key)
{
    struct router_ask *asked = ask_as(key, 50 * MS, false);
    assert_non_null(asked);
    return asked;
}

static uint64_t figure(const _Atomic uint64_t *value)
{
    return atomic_load(value);
}
#define FIGURE(name) figure(&router_figures(net.router)->name)

/* ---- Set-up ---------------------------------------------------------------------------------- */

static void begin_with(const char *text, struct router_options options)
{
    struct stint_error error;
    dialling_begin(&net);
    telling = buf_of(told, sizeof(told));
    if (store_url_parse(&url, text, &error) != 0)
        fail_msg("%s", error.sentence);
    options.url = &url;
    options.dialer = &net.dialer;
    net.router = router_new(&options);
    assert_non_null(net.router);
    pass(&net, MS);
}

static void begin(const char *text)
{
    begin_with(text, (struct router_options){.asks_max = 8});
}

static int end(void **state)
{
    (void)state;
    router_free(net.router);
    net.router = NULL;
    assert_true(net.is_freed);
    for (size_t i = 0; i < net.n_lines; i++)
        assert_false(net.lines[i].is_open);
    return 0;
}

static void begin_single(void)
{
    begin("redis://a");
    meet(&net, "a:6379", "one");
}

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
    assert_told("x done 1");
}

/* ---- A single server ------------------------------------------------------------------------- */

static void what_is_asked_early_waits_for_the_server(void **state)
{
    (void)state;
    begin("redis://a");
    assert_true(router_away_since(net.router) > 0);
    ask("k");
    struct line *line = line_to(&net, "a:6379");
    greet_on(&net, line, "master");
    /* Nothing before it is known who it is. */
    assert_string_equal(sent_to(&net, line), "INFO server");
    say(&net, "a:6379", "-NOPERM no INFO for you\r\n");
    assert_int_equal(router_away_since(net.router), 0);
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", "+v\r\n");
    assert_told("k done v");
    assert_int_equal(FIGURE(asks_waiting), 0);
    assert_int_equal(FIGURE(failovers), 0);
}

static void nobody_waits_past_his_deadline(void **state)
{
    (void)state;
    begin("redis://a");
    ask_as("k", 30 * MS, false);
    pass(&net, 29 * MS);
    assert_told("");
    pass(&net, 2 * MS);
    assert_told("k failed");
    /* What was sent and is not answered may have been done. */
    meet(&net, "a:6379", "one");
    assert_sent(&net, "a:6379", "");
    ask_as("l", 30 * MS, false);
    assert_sent(&net, "a:6379", "GET l");
    pass(&net, 31 * MS);
    assert_told("l late");
    say(&net, "a:6379", "+too late\r\n");
    assert_told("");
    assert_int_equal(FIGURE(asks_waiting), 0);
    assert_true(redis_conn_is_ready(line_to(&net, "a:6379")->conn));
}

static void what_may_have_been_done_is_not_sent_again(void **state)
{
    (void)state;
    begin_single();
    ask_as("k", 500 * MS, false);
    ask_as("again", 500 * MS, true);
    assert_sent(&net, "a:6379", "GET k; GET again");
    ask_as("unsent", 500 * MS, false);
    lose(&net, "a:6379");
    assert_told("k lost");
    assert_int_equal(FIGURE(lost), 1);
    pass(&net, 20 * MS);
    meet(&net, "a:6379", "one");
    pass(&net, 20 * MS);
    assert_sent(&net, "a:6379", "GET again; GET unsent");
    say(&net, "a:6379", "+1\r\n+2\r\n");
    assert_told("again done 1; unsent done 2");
    assert_int_equal(FIGURE(failovers), 0);
    assert_int_equal(FIGURE(reconnects), 1);
}

static void a_silent_server_is_left_and_connected_anew(void **state)
{
    (void)state;
    begin_single();
    ask_as("k", 500 * MS, false);
    ask_as("r", 500 * MS, true);
    assert_sent(&net, "a:6379", "GET k; GET r");
    pass(&net, 51 * MS);
    assert_told("k late");
    assert_true(router_away_since(net.router) > 0);
    assert_true(strstr(router_fault(net.router), "not answered within 50 ms") != NULL);
    pass(&net, 12 * MS);
    meet(&net, "a:6379", "one");
    pass(&net, 5 * MS);
    assert_sent(&net, "a:6379", "GET r");
}

static void refusals_that_pass_are_outlasted(void **state)
{
    (void)state;
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
        assert_told("k failed");
        assert_in_range(n_sent, 5, 14);
    }
    ask("k");
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", refusals[0]);
    pass(&net, 17 * MS);
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", "+v\r\n");
    assert_told("k done v");
}

static void refusals_that_stay_are_told_at_once(void **state)
{
    (void)state;
    static const char *const refusals[] = {
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOPERM this user has no permissions",
        "STINT the key holds no state of window",
        "MOVED 5 b:1",
        "ERR what?",
    };
    begin_single();
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        char line[128], expected[128];
        ask("k");
        assert_sent(&net, "a:6379", "GET k");
        snprintf(line, sizeof(line), "-%s\r\n", refusals[i]);
        say(&net, "a:6379", line);
        snprintf(expected, sizeof(expected), "k refused %s", refusals[i]);
        assert_told(expected);
    }
    assert_int_equal(FIGURE(retries), 0);
}

static void a_server_that_became_a_replica_is_connected_anew(void **state)
{
    (void)state;
    begin("redis://a,b");
    meet(&net, "a:6379", "one");
    ask("k");
    assert_sent(&net, "a:6379", "GET k");
    say(&net, "a:6379", "-READONLY You can't write against a read only replica.\r\n");
    pass(&net, 2 * MS);
    assert_null(line_nth(&net, "a:6379", 0));
    pass(&net, 210 * MS);
    assert_told("k failed");
    ask("k");
    meet(&net, "b:6379", "two");
    assert_int_equal(FIGURE(failovers), 1);
    assert_sent(&net, "b:6379", "GET k");
    say(&net, "b:6379", "+v\r\n");
    assert_told("k done v");
}

static void a_replica_is_not_asked_at_all(void **state)
{
    (void)state;
    begin("redis://a");
    ask("k");
    struct line *line = line_to(&net, "a:6379");
    greet_on(&net, line, "slave");
    pass(&net, 60 * MS);
    assert_false(line->is_open);
    assert_told("k failed");
    assert_true(strstr(router_fault(net.router), "replica") != NULL);
    pass(&net, 100 * MS);
    meet(&net, "a:6379", "one"); /* it was promoted */
    ask("k");
    assert_sent(&net, "a:6379", "GET k");
}

static void a_server_that_began_anew_is_a_failover(void **state)
{
    (void)state;
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

static void a_socket_has_a_path(void **state)
{
    (void)state;
    begin("unix:/run/redis");
    meet(&net, "/run/redis", "one");
    ask("k");
    assert_sent(&net, "/run/redis", "GET k");
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

static void what_waits_is_bounded_in_number_and_bytes(void **state)
{
    (void)state;
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
    assert_int_equal(FIGURE(asks_waiting), 4);
    router_forget(net.router, first);
    ask("4");
    pass(&net, 60 * MS);
    telling = buf_of(told, sizeof(told));
    assert_int_equal(FIGURE(asks_waiting), 0);
    /* One that is sent and forgotten counts until its connection has spoken of it. */
    meet(&net, "a:6379", "one");
    struct router_ask *asks[4];
    for (size_t i = 0; i < 4; i++)
        asks[i] = ask("k");
    assert_sent(&net, "a:6379", "GET k; GET k; GET k; GET k");
    for (size_t i = 0; i < 4; i++)
        router_forget(net.router, asks[i]);
    assert_null(ask_as("k", 50 * MS, false));
    say(&net, "a:6379", "+1\r\n+2\r\n+3\r\n+4\r\n");
    assert_int_equal(FIGURE(asks_waiting), 0);
    assert_told("");
}

static void what_is_forgotten_before_it_is_sent_is_never_sent(void **state)
{
    (void)state;
    begin("redis://a");
    struct router_ask *asked = ask("k");
    ask("l");
    router_forget(net.router, asked);
    meet(&net, "a:6379", "one");
    assert_sent(&net, "a:6379", "GET l");
}

static void no_memory_for_a_connection_is_tried_again(void **state)
{
    (void)state;
    begin_single();
    net.is_full = true;
    ask("k");
    (void)sent_to(&net, line_to(&net, "a:6379"));
    say(&net, "a:6379", "-READONLY no\r\n");
    pass(&net, 300 * MS);
    assert_told("k failed");
    net.is_full = false;
    pass(&net, 500 * MS);
    meet(&net, "a:6379", "one");
    ask("k");
    assert_sent(&net, "a:6379", "GET k");
}

static void the_end_answers_all(void **state)
{
    (void)state;
    begin_single();
    ask_as("sent", 500 * MS, true);
    assert_sent(&net, "a:6379", "GET sent");
    ask("unsent");
    router_free(net.router);
    assert_told("sent lost; unsent failed");
    begin("redis://a");
    ask("waits");
    router_end_by(net.router, net.now_ns + 10 * MS);
    pass(&net, 11 * MS);
    assert_told("waits failed");
}

/* ---- A cluster ------------------------------------------------------------------------------- */

static void each_slot_has_its_server(void **state)
{
    (void)state;
    begin_cluster();
    ask(LOW);
    ask(HIGH);
    assert_sent(&net, "a:1", "GET b");
    assert_sent(&net, "b:2", "GET x");
    assert_int_equal(FIGURE(generation), 1);
    assert_int_equal(FIGURE(servers_ready), 2);
}

static void a_slot_that_moved_is_followed_at_once(void **state)
{
    (void)state;
    begin_cluster();
    pass(&net, 200 * MS);
    ask(LOW);
    assert_sent(&net, "a:1", "GET b");
    say(&net, "a:1", "-MOVED 3300 b:2\r\n");
    assert_sent(&net, "b:2", "GET b");
    say(&net, "b:2", "+v\r\n");
    assert_told("b done v");
    /* The rest of the map is asked for, of the one who knew better; the slot stays where it is. */
    assert_sent(&net, "a:1", "CLUSTER SLOTS");
    ask(LOW);
    assert_sent(&net, "b:2", "GET b");
    say(&net, "a:1", slots("b", 2, "b", 2));
    assert_int_equal(FIGURE(redirects), 1);
    assert_int_equal(FIGURE(failovers), 0);
    assert_int_equal(FIGURE(generation), 2);
    /* Nobody needs a any more. */
    pass(&net, 1200 * MS);
    assert_null(line_nth(&net, "a:1", 0));
}

static void a_slot_on_its_way_is_asked_for_there(void **state)
{
    (void)state;
    begin_cluster();
    ask(LOW);
    assert_sent(&net, "a:1", "GET b");
    say(&net, "a:1", "-ASK 3300 c:3\r\n");
    meet(&net, "c:3", "C");
    assert_sent(&net, "c:3", "ASKING; GET b");
    say(&net, "c:3", "+OK\r\n+v\r\n");
    assert_told("b done v");
    ask(LOW); /* this once */
    assert_sent(&net, "a:1", "GET b");
    assert_int_equal(FIGURE(failovers), 0);
}

static void an_unknown_master_is_asked_once_the_map_has_it(void **state)
{
    (void)state;
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
    assert_told("x done v");
    assert_int_equal(FIGURE(failovers), 1);
}

static void a_master_that_died_is_replaced(void **state)
{
    (void)state;
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
    assert_told("x done v");
    pass(&net, 1500 * MS);
    assert_null(line_nth(&net, "b:2", 0));
}

static void nodes_that_send_in_circles_are_not_followed_for_ever(void **state)
{
    (void)state;
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
    assert_told("b failed");
    assert_true(redirects >= 5 && redirects < 30);
}

static void seeds_are_tried_in_turn(void **state)
{
    (void)state;
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

static void a_slot_that_nobody_has_is_waited_for(void **state)
{
    (void)state;
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
    assert_told("x done v");
}

static void all_is_looked_at_from_time_to_time(void **state)
{
    (void)state;
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
    assert_int_equal(FIGURE(generation), 1);
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

static void sentinels_name_the_master(void **state)
{
    (void)state;
    begin_sentinels();
    ask("k");
    assert_sent(&net, "m:1", "GET k");
    say(&net, "m:1", "+v\r\n");
    assert_told("k done v");
    assert_int_equal(FIGURE(failovers), 0);
}

static void a_switch_is_followed_at_once(void **state)
{
    (void)state;
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
    assert_told("k done v");
}

static void who_is_told_to_be_master_and_is_none_is_left(void **state)
{
    (void)state;
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

static void the_next_sentinel_takes_the_place_of_one_that_is_lost(void **state)
{
    (void)state;
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

static void sentinels_are_asked_from_time_to_time(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_asked_early_waits_for_the_server, end),
        cmocka_unit_test_teardown(nobody_waits_past_his_deadline, end),
        cmocka_unit_test_teardown(what_may_have_been_done_is_not_sent_again, end),
        cmocka_unit_test_teardown(a_silent_server_is_left_and_connected_anew, end),
        cmocka_unit_test_teardown(refusals_that_pass_are_outlasted, end),
        cmocka_unit_test_teardown(refusals_that_stay_are_told_at_once, end),
        cmocka_unit_test_teardown(a_server_that_became_a_replica_is_connected_anew, end),
        cmocka_unit_test_teardown(a_replica_is_not_asked_at_all, end),
        cmocka_unit_test_teardown(a_server_that_began_anew_is_a_failover, end),
        cmocka_unit_test_teardown(a_socket_has_a_path, end),
        cmocka_unit_test_teardown(what_waits_is_bounded_in_number_and_bytes, end),
        cmocka_unit_test_teardown(what_is_forgotten_before_it_is_sent_is_never_sent, end),
        cmocka_unit_test_teardown(no_memory_for_a_connection_is_tried_again, end),
        cmocka_unit_test_teardown(the_end_answers_all, end),
        cmocka_unit_test_teardown(each_slot_has_its_server, end),
        cmocka_unit_test_teardown(a_slot_that_moved_is_followed_at_once, end),
        cmocka_unit_test_teardown(a_slot_on_its_way_is_asked_for_there, end),
        cmocka_unit_test_teardown(an_unknown_master_is_asked_once_the_map_has_it, end),
        cmocka_unit_test_teardown(a_master_that_died_is_replaced, end),
        cmocka_unit_test_teardown(nodes_that_send_in_circles_are_not_followed_for_ever, end),
        cmocka_unit_test_teardown(seeds_are_tried_in_turn, end),
        cmocka_unit_test_teardown(a_slot_that_nobody_has_is_waited_for, end),
        cmocka_unit_test_teardown(all_is_looked_at_from_time_to_time, end),
        cmocka_unit_test_teardown(sentinels_name_the_master, end),
        cmocka_unit_test_teardown(a_switch_is_followed_at_once, end),
        cmocka_unit_test_teardown(who_is_told_to_be_master_and_is_none_is_left, end),
        cmocka_unit_test_teardown(the_next_sentinel_takes_the_place_of_one_that_is_lost, end),
        cmocka_unit_test_teardown(sentinels_are_asked_from_time_to_time, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
