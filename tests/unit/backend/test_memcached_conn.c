/* SPDX-License-Identifier: MIT */
/*
 * Dialogues with a memcached that is this file, in virtual time: replies in pieces, the greeting,
 * and what becomes of each command when replies are late, lost or none of memcached.
 */
#include "unit/test_link.h"

#include "backend/wire/memcached_conn.h"

#define HELLO "version\r\nstats\r\n"
#define GREETED "VERSION 1.6.18\r\nSTAT pid 7\r\nSTAT uptime 100\r\nSTAT time 5\r\nEND\r\n"

static struct memcached_conn *conn;

static void note(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                 uint64_t now_ns)
{
    static const char *const outcomes[] = {"done", "refused", "unsent", "late", "lost"};
    static const char *const codes[] = {"stored",    "value", "miss", "not stored", "exists",
                                        "not found", "stat",  "end",  "version",    "fault"};
    buf_add(&replied_line, "%s%s %s at %d", replied_line.len > 0 ? "; " : "", (const char *)arg,
            outcomes[outcome], (int)(now_ns / MS));
    if (reply == NULL)
        return;
    buf_add(&replied_line, " %s", codes[reply->code]);
    if (reply->name.len > 0)
        buf_add(&replied_line, " %.*s", (int)reply->name.len, (const char *)reply->name.ptr);
    if (reply->value.len > 0)
        buf_add(&replied_line, " %.*s", (int)reply->value.len, (const char *)reply->value.ptr);
    if (reply->number > 0)
        buf_add(&replied_line, " #%d", (int)reply->number);
}

static bool ask(enum memcached_verb verb, const char *key, uint64_t now_ns)
{
    return memcached_conn_ask(conn,
                              &(struct memcached_command){.verb = verb,
                                                          .key = span_of_text(key),
                                                          .value = span_of_text("new"),
                                                          .number = 17,
                                                          .ttl_s = 60,
                                                          .answered = note,
                                                          .arg = (void *)(uintptr_t)key},
                              now_ns);
}

static void begin(const struct link_options *options)
{
    if (conn != NULL)
        link_free(link, 0);
    forget_replies();
    conn = memcached_conn_new(options);
    assert_non_null(conn);
    link = memcached_conn_link(conn);
    assert_int_equal(link_wants(link), LINK_WANTS_SOCKET);
}

static void begin_ready(void)
{
    begin(&(struct link_options){.commands_max = 8});
    connect_greeted(HELLO, GREETED);
}

TEARDOWN
{
    if (conn != NULL)
        link_free(link, 0);
    conn = NULL;
}

/* ---- Replies --------------------------------------------------------------------------------- */

TEST(each_verb_has_its_words)
{
    begin_ready();
    ask(MEMCACHED_GET, "a", 0);
    ask(MEMCACHED_ADD, "b", 0);
    ask(MEMCACHED_SWAP, "c", 0);
    ask(MEMCACHED_DELETE, "d", 0);
    ask(MEMCACHED_STATS, "", 0);
    assert_output("mg a v c h\r\n"
                  "ms b 3 T60 ME\r\nnew\r\n"
                  "ms c 3 T60 C17\r\nnew\r\n"
                  "md d\r\n"
                  "stats\r\n");
    feed("VA 5 c12345\r\na\r\nbc\r\nNS\r\nEX\r\nNF\r\nSTAT pid 3\r\nEND\r\n", 2 * MS);
    assert_replied("a done at 2 value a\r\nbc #12345; b done at 2 not stored; c done at 2 exists; "
                   "d done at 2 not found;  done at 2 stat pid 3;  done at 2 end");
}

TEST(replies_come_in_any_pieces)
{
    static const char replies[] =
        "EN\r\nVA 2 t-1 c9\r\n\r\n\r\nHD c5\r\nSERVER_ERROR out of memory\r\n";
    for (size_t piece = 1; piece < sizeof(replies); piece++) {
        begin_ready();
        ask(MEMCACHED_GET, "a", 0);
        ask(MEMCACHED_GET, "b", 0);
        ask(MEMCACHED_ADD, "c", 0);
        ask(MEMCACHED_SWAP, "d", 0);
        link_sent(link, link_output(link).len);
        for (size_t at = 0; at < sizeof(replies) - 1; at += piece) {
            size_t left = sizeof(replies) - 1 - at;
            link_feed(link, span_of(replies + at, left < piece ? left : piece), 3 * MS);
        }
        assert_replied("a done at 3 miss; b done at 3 value \r\n #9; c done at 3 stored #5; "
                       "d refused at 3 fault SERVER_ERROR out of memory");
    }
}

/* No state is as long: the value is of another program, and the connection goes on. */
TEST(a_value_that_is_too_long_is_skipped)
{
    static uint8_t value[1048577 + 2];
    for (size_t piece = 1; piece <= sizeof(value); piece = piece == 1 ? 70001 : 2 * piece) {
        begin_ready();
        ask(MEMCACHED_GET, "a", 0);
        ask(MEMCACHED_GET, "b", 0);
        assert_output("mg a v c h\r\nmg b v c h\r\n");
        feed("VA 1048577 c9 h1\r\n", 2 * MS);
        assert_replied("a done at 2 value #9");
        for (size_t at = 0; at < sizeof(value); at += piece) {
            size_t left = sizeof(value) - at;
            link_feed(link, span_of(value + at, left < piece ? left : piece), 3 * MS);
        }
        feed("VA 1 c3\r\nx\r\n", 4 * MS);
        assert_replied("b done at 4 value x #3");
        assert_true(link_is_ready(link));
    }
}

TEST(what_is_no_reply_ends_it)
{
    static const char *const cases[][2] = {
        {"+OK\r\n", "invalid reply from memcached"},
        {"VA x\r\n", "invalid reply from memcached"},
        {"VA 1 cx\r\na\r\n", "invalid reply from memcached"},
        {"VA 1\r\nabc", "invalid reply from memcached"},
        {"EN\n", "invalid reply from memcached"},
        {"HD\r\n", "a reply to no command"}, /* of a get */
        {"NF\r\n", "a reply to no command"},
        {"VERSION 1\r\n", "a reply to no command"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        begin_ready();
        ask(MEMCACHED_GET, "a", 0);
        assert_output("mg a v c h\r\n");
        feed(cases[i][0], 2 * MS);
        assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
        assert_replied("a lost at 2");
        if (strstr(link_fault(link), cases[i][1]) == NULL)
            fail_msg("%s: %s", cases[i][0], link_fault(link));
    }
    begin_ready();
    char line[4000];
    memset(line, 'x', sizeof(line));
    link_feed(link, span_of(line, sizeof(line)), 0);
    assert_non_null(strstr(link_fault(link), "at most 2048 bytes"));
    begin_ready();
    feed("EN\r\n", 2 * MS); /* nobody has asked */
    assert_non_null(strstr(link_fault(link), "a reply to no command"));
}

/* ---- The greeting ---------------------------------------------------------------------------- */

TEST(a_password_goes_first)
{
    begin(&(struct link_options){.user = "ann", .password = "hush"});
    connect_at(0);
    assert_output("set auth 0 0 8\r\nann hush\r\n" HELLO);
    feed("STORED\r\n", 0);
    assert_false(link_is_ready(link));
    feed(GREETED, 0);
    assert_true(link_is_ready(link));
    assert_string_equal(memcached_conn_version(conn), "1.6.18");
}

TEST(who_does_not_greet_as_memcached_is_left)
{
    static const struct {
        const char *password, *answer, *fault;
    } cases[] = {
        {"x", "CLIENT_ERROR authentication failure\r\n", "refuses the password: CLIENT_ERROR"},
        {NULL, "CLIENT_ERROR unauthenticated\r\n", "refuses to report its version"},
        {NULL, "HTTP/1.1 400 Bad Request\r\n", "invalid reply from memcached"},
        {NULL, "END\r\n", "does not identify itself as memcached"},
        {NULL, "VERSION 1.5.22\r\n", "1.5.22 is too old: expected 1.6.10"},
        {NULL, "VERSION 1.6.9\r\n", "1.6.9 is too old"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        begin(&(struct link_options){.user = "ann", .password = cases[i].password});
        connect_at(0);
        link_sent(link, link_output(link).len);
        feed(cases[i].answer, 1 * MS);
        assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
        if (strstr(link_fault(link), cases[i].fault) == NULL)
            fail_msg("%s", link_fault(link));
    }
    static const char *const fine[] = {"1.6.10", "1.7", "2.0.1", "1.6.33_rc1"};
    for (size_t i = 0; i < 4; i++) {
        char line[64];
        struct buf buf = buf_of(line, sizeof(line));
        begin(&(struct link_options){0});
        connect_at(0);
        assert_output(HELLO);
        buf_add(&buf, "VERSION %s\r\nCLIENT_ERROR stats are off\r\n", fine[i]);
        feed(line, 0);
        assert_true(link_is_ready(link));
    }
}

TEST(a_greeting_has_its_time)
{
    begin(&(struct link_options){0});
    link_dialling(link, 10 * MS);
    assert_int_equal(link_deadline(link), 260 * MS);
    assert_int_equal(memcached_conn_link(conn)->unavailable_since_ns, 10 * MS);
    link_wake(link, 260 * MS);
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
    assert_string_equal(link_fault(link), "memcached has not greeted within 250 ms");
}

/* Comes back to a server with that pid and uptime, so long after the first greeting. */
static unsigned restarts_after(uint64_t gone_s, const char *stats)
{
    begin_ready();
    link_lost(link, "reset", 2 * MS);
    uint64_t now_ns = gone_s * NS_PER_S;
    link_wake(link, now_ns);
    connect_at(now_ns);
    assert_output(HELLO);
    feed("VERSION 1.6.18\r\n", now_ns);
    feed(stats, now_ns);
    assert_true(link_is_ready(link));
    return memcached_conn_restarts(conn);
}

TEST(a_server_that_has_begun_anew_is_noticed)
{
    assert_int_equal(restarts_after(50, "STAT pid 7\r\nSTAT uptime 150\r\nEND\r\n"), 0);
    assert_int_equal(restarts_after(50, "STAT pid 7\r\nSTAT uptime 147\r\nEND\r\n"), 0);
    assert_int_equal(restarts_after(50, "STAT pid 8\r\nSTAT uptime 150\r\nEND\r\n"), 1);
    assert_int_equal(restarts_after(500, "STAT pid 7\r\nSTAT uptime 490\r\nEND\r\n"), 1);
    assert_int_equal(restarts_after(50, "STAT pid 7\r\nSTAT uptime 3\r\nEND\r\n"), 1);
    assert_int_equal(restarts_after(50, "END\r\n"), 1);
}

/* ---- Late and lost --------------------------------------------------------------------------- */

TEST(commands_are_taken_only_while_it_is_ready)
{
    begin(&(struct link_options){.commands_max = 2});
    assert_false(ask(MEMCACHED_GET, "a", 0));
    connect_at(0);
    assert_false(ask(MEMCACHED_GET, "a", 0));
    assert_output(HELLO);
    feed(GREETED, 0);
    assert_true(ask(MEMCACHED_GET, "a", 0));
    assert_true(ask(MEMCACHED_GET, "b", 0));
    assert_false(ask(MEMCACHED_GET, "c", 0));
    link_lost(link, "reset", 1 * MS);
    assert_replied("a unsent at 1; b unsent at 1");
    assert_false(ask(MEMCACHED_GET, "a", 1 * MS));
    assert_int_equal(memcached_conn_link(conn)->unavailable_since_ns, 1 * MS);
}

TEST(a_late_reply_ends_the_connection_and_nothing_is_sent_twice)
{
    begin_ready();
    ask(MEMCACHED_ADD, "a", 10 * MS);
    ask(MEMCACHED_GET, "b", 20 * MS);
    assert_output("ms a 3 T60 ME\r\nnew\r\nmg b v c h\r\n");
    ask(MEMCACHED_GET, "c", 30 * MS);
    link_sent(link, 3); /* half of it */
    assert_int_equal(link_deadline(link), 60 * MS);
    link_wake(link, 60 * MS);
    assert_replied("a late at 60; b lost at 60; c unsent at 60");
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
    feed("HD\r\n", 61 * MS); /* a's, for which nobody waits */
    assert_replied("");
    link_lost(link, NULL, 61 * MS);
    assert_string_equal(link_fault(link), "memcached has not answered within 50 ms");
    link_wake(link, link_deadline(link));
    connect_at(80 * MS);
    assert_output(HELLO);
    feed(GREETED, 81 * MS);
    assert_output("");
    ask(MEMCACHED_GET, "d", 82 * MS);
    assert_output("mg d v c h\r\n");
}

TEST(the_buffer_is_used_again)
{
    begin(&(struct link_options){.commands_max = 4, .bytes_max = 400});
    connect_at(0);
    assert_output(HELLO);
    feed(GREETED, 0);
    for (int i = 0; i < 1000; i++) {
        assert_true(ask(MEMCACHED_GET, "a", 0));
        assert_true(ask(MEMCACHED_GET, "b", 0));
        assert_output("mg a v c h\r\nmg b v c h\r\n");
        feed("EN\r\n", 0);
        assert_true(ask(MEMCACHED_GET, "c", 0));
        assert_output("mg c v c h\r\n");
        feed("EN\r\nEN\r\n", 0);
        assert_replied("a done at 0 miss; b done at 0 miss; c done at 0 miss");
    }
}

/* Each wait lies between half of the back-off and all of it; a greeting makes it short again. */
TEST(it_comes_back_ever_more_slowly)
{
    begin(
        &(struct link_options){.backoff_first_ns = 10 * MS, .backoff_max_ns = 50 * MS, .seed = 42});
    static const uint64_t waits_ms[] = {10, 20, 40, 50, 50};
    uint64_t now_ns = 0;
    for (size_t i = 0; i < 5; i++) {
        link_dialling(link, now_ns);
        link_lost(link, "refused", now_ns);
        uint64_t wait_ns = link_deadline(link) - now_ns;
        assert_in_range(wait_ns, waits_ms[i] * MS / 2, waits_ms[i] * MS);
        now_ns += wait_ns;
        link_wake(link, now_ns - 1);
        assert_int_equal(link_wants(link), LINK_WANTS_NOTHING);
        link_wake(link, now_ns);
        assert_int_equal(link_wants(link), LINK_WANTS_SOCKET);
    }
    connect_at(now_ns);
    feed(GREETED, now_ns);
    link_lost(link, "reset", now_ns);
    assert_in_range(link_deadline(link) - now_ns, 5 * MS, 10 * MS);
}
