/* SPDX-License-Identifier: MIT */
/*
 * Dialogues with a Redis that is this file, in virtual time: what is said at the beginning, what
 * becomes of each command when replies are late, lost, refused or none of Redis, and when it comes
 * back.
 */
#include "unit/test_link.h"

#include "backend/wire/redis_conn.h"

#define HELLO "*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"
#define GREETED                                                                                    \
    "*8\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n"                       \
    "$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"
#define GET(key) "*2\r\n$3\r\nGET\r\n$1\r\n" key "\r\n"
#define EVALSHA "*4\r\n$7\r\nEVALSHA\r\n$2\r\nff\r\n$1\r\n1\r\n$1\r\nk\r\n"
#define ASKING "*1\r\n$6\r\nASKING\r\n"
#define LOAD "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$8\r\nreturn 1\r\n"

static struct redis_conn *conn;

static void note(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                 uint64_t now_ns)
{
    static const char *const names[] = {"done", "refused", "unsent", "late", "lost"};
    buf_add(&replied_line, "%s%s %s at %d", replied_line.len > 0 ? "; " : "", (const char *)arg,
            names[outcome], (int)(now_ns / MS));
    if (reply != NULL && reply->type == REDIS_INTEGER)
        buf_add(&replied_line, " :%d", (int)reply->number);
    else if (reply != NULL && reply->text.len > 0)
        buf_add(&replied_line, " %.*s", (int)reply->text.len, (const char *)reply->text.ptr);
}

static bool ask_get(const char *key, const char *who, uint64_t now_ns)
{
    const struct span words[] = {span_of_text("GET"), span_of_text(key)};
    return redis_conn_ask(
        conn,
        &(struct redis_command){
            .words = words, .n_words = 2, .answered = note, .arg = (void *)(uintptr_t)who},
        now_ns);
}

static const char script[] = "return 1";

static void ask_script(const char *who, bool is_asking, uint64_t now_ns)
{
    const struct span words[] = {span_of_text("EVALSHA"), span_of_text("ff"), span_of_text("1"),
                                 span_of_text("k")};
    assert_true(redis_conn_ask(conn,
                               &(struct redis_command){.words = words,
                                                       .n_words = 4,
                                                       .script = span_of(script, 8),
                                                       .is_asking = is_asking,
                                                       .answered = note,
                                                       .arg = (void *)(uintptr_t)who},
                               now_ns));
}

static void begin(const struct redis_conn_options *options)
{
    redis_conn_free(conn, 0);
    forget_replies();
    conn = redis_conn_new(options);
    assert_non_null(conn);
    link = redis_conn_link(conn);
    assert_int_equal(link_wants(link), LINK_WANTS_SOCKET);
}

static void begin_ready(void)
{
    begin(&(struct redis_conn_options){.link = {.commands_max = 8}});
    connect_greeted(HELLO, GREETED);
}

TEARDOWN
{
    redis_conn_free(conn, 0);
    conn = NULL;
}

/* ---- The greeting ---------------------------------------------------------------------------- */

TEST(it_greets_with_password_name_and_database)
{
    begin(&(struct redis_conn_options){
        .link = {.user = "ann", .password = "pw"}, .name = "stint", .database = 12});
    connect_at(0);
    assert_false(ask_get("a", "a", 0));
    assert_output("*7\r\n$5\r\nHELLO\r\n$1\r\n2\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$2\r\npw\r\n"
                  "$7\r\nSETNAME\r\n$5\r\nstint\r\n"
                  "*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n");
    feed(GREETED, 0);
    assert_false(link_is_ready(link));
    assert_output("");
    feed("+OK\r\n", 0);
    assert_true(link_is_ready(link));
    assert_string_equal(redis_conn_server(conn)->version, "7.0.15");
    assert_string_equal(redis_conn_server(conn)->mode, "standalone");
    assert_false(redis_conn_server(conn)->is_replica);
    ask_get("a", "a", 0);
    assert_output(GET("a"));
    feed("$2\r\nhi\r\n", 3 * MS);
    assert_replied("a done at 3 hi");
}

TEST(who_refuses_the_greeting_is_left)
{
    static const struct {
        const char *password, *answer, *fault;
    } cases[] = {
        {"x", "-WRONGPASS invalid\r\n", "the store refuses HELLO: WRONGPASS invalid"},
        {NULL, "-NOAUTH HELLO must\r\n", "the store refuses HELLO: NOAUTH HELLO must"},
        {NULL, "HTTP/1.1 400 Bad Request\r\n", "invalid reply from Redis or Valkey"},
        {NULL, "+PONG\r\n", "neither Redis nor Valkey"},
        {NULL, "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "neither Redis nor Valkey"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        begin(&(struct redis_conn_options){.link = {.password = cases[i].password}});
        connect_at(0);
        link_sent(link, link_output(link).len);
        feed(cases[i].answer, 1 * MS);
        assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
        if (strstr(link_fault(link), cases[i].fault) == NULL)
            fail_msg("%s", link_fault(link));
        link_lost(link, "closed", 1 * MS);
        assert_non_null(strstr(link_fault(link), cases[i].fault));
    }
}

TEST(a_greeting_has_its_time)
{
    begin(&(struct redis_conn_options){.link = {.connect_ns = 250 * MS}});
    link_dialling(link, 10 * MS);
    assert_int_equal(link_deadline(link), 260 * MS);
    link_connected(link, 10 * MS);
    assert_int_equal(link_deadline(link), 260 * MS); /* both together */
    link_wake(link, 260 * MS);
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
    assert_string_equal(link_fault(link), "the store has not greeted within 250 ms");
}

/* ---- Replies --------------------------------------------------------------------------------- */

TEST(a_pipeline_is_one_output_answered_in_order)
{
    begin_ready();
    ask_get("a", "a", 1 * MS);
    ask_get("b", "b", 1 * MS);
    assert_output(GET("a") GET("b"));
    ask_get("c", "c", 2 * MS);
    feed(":1\r\n:", 3 * MS);
    assert_replied("a done at 3 :1");
    feed("2\r\n", 4 * MS);
    assert_replied("b done at 4 :2");
    assert_output(GET("c"));
    feed("-ERR no\r\n", 5 * MS);
    assert_replied("c refused at 5 ERR no");
    assert_int_equal(redis_conn_link(conn)->n_pending, 0);
    assert_int_equal(link_deadline(link), STINT_NEVER_NS);
}

TEST(a_late_reply_ends_the_connection_and_nothing_is_sent_twice)
{
    begin_ready();
    ask_get("a", "a", 10 * MS);
    ask_get("b", "b", 20 * MS);
    assert_output(GET("a") GET("b"));
    ask_get("c", "c", 30 * MS); /* the socket has not taken it */
    assert_int_equal(link_deadline(link), 60 * MS);
    link_wake(link, 60 * MS);
    assert_replied("a late at 60; b lost at 60; c unsent at 60");
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
    feed(":1\r\n", 61 * MS); /* a's, which has no caller any more */
    assert_replied("");
    link_lost(link, NULL, 61 * MS);
    assert_string_equal(link_fault(link), "the store has not answered within 50 ms");
    link_wake(link, link_deadline(link));
    assert_int_equal(link_wants(link), LINK_WANTS_SOCKET);
    connect_at(72 * MS);
    assert_output(HELLO);
    feed(GREETED, 73 * MS);
    assert_output("");
    ask_get("d", "d", 73 * MS);
    assert_output(GET("d"));
    feed(":3\r\n", 74 * MS);
    assert_replied("d done at 74 :3");
}

TEST(half_a_command_was_not_sent)
{
    begin_ready();
    ask_get("a", "a", 1 * MS);
    ask_get("b", "b", 1 * MS);
    link_sent(link, strlen(GET("a")) + 5);
    link_lost(link, "reset", 2 * MS);
    assert_replied("a lost at 2; b unsent at 2");
    assert_string_equal(link_fault(link), "reset");
}

TEST(commands_that_wait_are_bounded)
{
    begin(&(struct redis_conn_options){.link = {.commands_max = 2, .bytes_max = 100}});
    assert_false(ask_get("a", "a", 0));
    connect_at(0);
    assert_false(ask_get("a", "a", 0));
    assert_output(HELLO);
    feed(GREETED, 0);
    assert_true(ask_get("a", "a", 0));
    assert_true(ask_get("b", "b", 5 * MS));
    assert_false(ask_get("c", "c", 5 * MS));
    assert_int_equal(link_deadline(link), 50 * MS);
    link_wake(link, 50 * MS); /* the socket took none of it: it may go to another server */
    assert_replied("a unsent at 50");
    assert_true(ask_get("d", "d", 50 * MS));
    assert_output(GET("b") GET("d"));

    begin(&(struct redis_conn_options){
        .link = {.commands_max = 9, .bytes_max = 2 * strlen(GET("a"))}});
    connect_at(0);
    assert_output(HELLO);
    feed(GREETED, 0);
    assert_true(ask_get("a", "a", 0));
    assert_true(ask_get("b", "b", 0));
    assert_false(ask_get("c", "c", 0));
    redis_conn_free(conn, 7 * MS);
    conn = NULL;
    assert_replied("a unsent at 7; b unsent at 7");
}

/* Commands in front of it leave the buffer: what is asked over time has no end. */
TEST(the_buffer_is_used_again)
{
    begin(&(struct redis_conn_options){.link = {.commands_max = 4, .bytes_max = 100}});
    connect_at(0);
    assert_output(HELLO);
    feed(GREETED, 0);
    for (int i = 0; i < 1000; i++) {
        assert_true(ask_get("a", "a", 0));
        assert_true(ask_get("b", "b", 0));
        assert_output(GET("a") GET("b"));
        feed(":1\r\n", 0);
        assert_true(ask_get("c", "c", 0));
        assert_output(GET("c"));
        feed(":2\r\n:3\r\n", 0);
        assert_replied("a done at 0 :1; b done at 0 :2; c done at 0 :3");
    }
}

TEST(what_nobody_asked_for_ends_it)
{
    begin_ready();
    ask_get("a", "a", 1 * MS); /* unsent, so no reply can be its */
    feed(":1\r\n", 2 * MS);
    assert_replied("a unsent at 2");
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
    assert_string_equal(link_fault(link), "the store sent a reply to no command");
}

TEST(what_is_no_reply_ends_it)
{
    begin_ready();
    ask_get("a", "a", 1 * MS);
    assert_output(GET("a"));
    feed("?\r\n", 2 * MS);
    assert_replied("a lost at 2");
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
}

TEST(a_reply_beyond_the_bound_ends_it)
{
    static const char *const replies[] = {"*100\r\n", "$2000\r\n", "*2\r\n*50\r\n"};
    for (size_t i = 0; i < 3; i++) {
        begin(&(struct redis_conn_options){.reply_bytes_max = 1000});
        connect_at(0);
        assert_output(HELLO);
        feed(GREETED, 0);
        ask_get("a", "a", 1 * MS);
        assert_output(GET("a"));
        feed(replies[i], 2 * MS);
        for (int fed = 0; i == 1 && fed < 2000; fed += 10)
            feed("0123456789", 2 * MS);
        assert_replied("a lost at 2");
        assert_non_null(strstr(link_fault(link), "at most 1000 bytes"));
    }
}

/* ---- Scripts --------------------------------------------------------------------------------- */

#define NOSCRIPT "-NOSCRIPT No matching script. Please use EVAL.\r\n"

TEST(an_unknown_script_is_loaded_once_for_all_who_wait)
{
    begin_ready();
    ask_script("s", false, 1 * MS);
    ask_script("t", false, 1 * MS);
    ask_get("a", "a", 1 * MS);
    assert_output(EVALSHA EVALSHA GET("a"));
    feed(NOSCRIPT, 2 * MS);
    assert_replied("");
    assert_output(LOAD EVALSHA);
    feed(NOSCRIPT ":7\r\n", 2 * MS);
    assert_replied("a done at 2 :7");
    assert_output(EVALSHA);
    feed("$2\r\nff\r\n:1\r\n:2\r\n", 3 * MS);
    assert_replied("s done at 3 :1; t done at 3 :2");
    ask_script("u", false, 4 * MS); /* after a SCRIPT FLUSH */
    assert_output(EVALSHA);
    feed(NOSCRIPT, 5 * MS);
    assert_output(LOAD EVALSHA);
    feed("$2\r\nff\r\n" NOSCRIPT, 6 * MS);
    assert_replied("u refused at 6 NOSCRIPT No matching script. Please use EVAL.");
}

TEST(a_script_that_cannot_be_loaded_is_answered_with_the_reason)
{
    begin_ready();
    ask_script("s", false, 1 * MS);
    ask_script("t", true, 1 * MS);
    assert_output(EVALSHA ASKING EVALSHA);
    feed(NOSCRIPT "+OK\r\n" NOSCRIPT, 2 * MS);
    assert_output(LOAD EVALSHA ASKING EVALSHA);
    feed("-NOPERM no SCRIPT LOAD\r\n" NOSCRIPT, 3 * MS);
    assert_replied("s refused at 3 NOPERM no SCRIPT LOAD");
    feed("+OK\r\n" NOSCRIPT, 3 * MS); /* it waited for the same load */
    assert_replied("t refused at 3 NOPERM no SCRIPT LOAD");
    ask_script("u", false, 4 * MS);
    assert_output(EVALSHA);
    feed(NOSCRIPT, 5 * MS);
    assert_output(LOAD EVALSHA);
    feed("$2\r\nff\r\n" NOSCRIPT, 5 * MS); /* permitted by now */
    assert_replied("u refused at 5 NOSCRIPT No matching script. Please use EVAL.");
}

/* It was in front of a command whose time was over before the socket took it. */
TEST(a_load_that_was_never_sent_is_sent_by_the_next)
{
    begin_ready();
    ask_script("s", false, 1 * MS);
    ask_script("t", false, 30 * MS);
    assert_output(EVALSHA EVALSHA);
    feed(NOSCRIPT NOSCRIPT, 40 * MS);
    link_wake(link, 51 * MS);
    assert_replied("s unsent at 51");
    assert_output(EVALSHA);
    feed(NOSCRIPT, 52 * MS);
    assert_replied("t refused at 52 NOSCRIPT No matching script. Please use EVAL.");
    ask_script("u", false, 53 * MS);
    assert_output(EVALSHA);
    feed(NOSCRIPT, 54 * MS);
    assert_output(LOAD EVALSHA);
}

TEST(a_retry_keeps_its_deadline)
{
    begin_ready();
    ask_script("s", false, 1 * MS);
    assert_output(EVALSHA);
    ask_get("a", "a", 30 * MS);
    assert_output(GET("a"));
    feed(NOSCRIPT, 40 * MS);
    assert_output(LOAD EVALSHA);
    link_wake(link, link_deadline(link));
    assert_replied("s late at 51");
}

TEST(what_comes_late_is_skipped_as_long_as_anything_comes)
{
    begin_ready();
    ask_get("a", "a", 1 * MS);
    ask_get("b", "b", 1 * MS);
    ask_get("c", "c", 40 * MS);
    assert_output(GET("a") GET("b") GET("c"));
    feed(":1\r\n", 45 * MS);
    assert_replied("a done at 45 :1");
    link_wake(link, 51 * MS);
    assert_replied("b late at 51");
    assert_true(link_is_ready(link));
    feed(":2\r\n:3\r\n", 60 * MS);
    assert_replied("c done at 60 :3");
    assert_int_equal(redis_conn_link(conn)->n_pending, 0);
    /* Silence is something else. */
    ask_get("d", "d", 61 * MS);
    assert_output(GET("d"));
    link_wake(link, 111 * MS);
    assert_replied("d late at 111");
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
}

/* Nobody is told twice of a command whose reply never came. */
TEST(silence_after_a_late_reply_ends_the_connection)
{
    begin_ready();
    ask_get("a", "a", 1 * MS);
    assert_output(GET("a"));
    ask_get("b", "b", 30 * MS);
    assert_output(GET("b"));
    feed(":1\r\n", 31 * MS);
    assert_replied("a done at 31 :1");
    link_wake(link, 80 * MS);
    assert_replied("b late at 80");
    assert_true(link_is_ready(link));
    link_wake(link, link_deadline(link));
    assert_replied("");
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
}

TEST(asking_goes_in_front)
{
    begin_ready();
    ask_script("s", true, 1 * MS);
    assert_output(ASKING EVALSHA);
    feed("+OK\r\n" NOSCRIPT, 2 * MS);
    assert_output(LOAD ASKING EVALSHA);
    feed("$2\r\nff\r\n+OK\r\n", 3 * MS);
    assert_replied("");
    feed(":1\r\n", 3 * MS);
    assert_replied("s done at 3 :1");
}

/* ---- Away ------------------------------------------------------------------------------------ */

/* Each wait lies between half of the back-off and all of it; a greeting makes it short again. */
TEST(it_comes_back_ever_more_slowly)
{
    begin(&(struct redis_conn_options){
        .link = {.backoff_first_ns = 10 * MS, .backoff_max_ns = 50 * MS, .seed = 42}});
    static const uint64_t waits_ms[] = {10, 20, 40, 50, 50};
    uint64_t now_ns = 0, waits_ns[5];
    for (size_t i = 0; i < 5; i++) {
        link_dialling(link, now_ns);
        link_lost(link, "refused", now_ns);
        waits_ns[i] = link_deadline(link) - now_ns;
        assert_in_range(waits_ns[i], waits_ms[i] * MS / 2, waits_ms[i] * MS);
        now_ns += waits_ns[i];
        link_wake(link, now_ns - 1);
        assert_int_equal(link_wants(link), LINK_WANTS_NOTHING);
        link_wake(link, now_ns);
        assert_int_equal(link_wants(link), LINK_WANTS_SOCKET);
    }
    assert_true(waits_ns[3] != waits_ns[4]);
    connect_at(now_ns);
    feed(GREETED, now_ns);
    assert_true(link_is_ready(link));
    link_lost(link, "reset", now_ns);
    assert_in_range(link_deadline(link) - now_ns, 5 * MS, 10 * MS);
}

TEST(messages_go_to_whoever_listens)
{
    begin(&(struct redis_conn_options){.pushed = note, .arg = (void *)(uintptr_t) "channel"});
    connect_at(0);
    assert_output(HELLO);
    feed(GREETED, 0);
    feed("$2\r\nhi\r\n", 4 * MS);
    assert_replied("channel done at 4 hi");
}

static void ask_more(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                     uint64_t now_ns)
{
    note(arg, outcome, reply, now_ns);
    assert_int_equal(ask_get("n", "next", now_ns), outcome == LINK_DONE);
}

/* A caller may send the next command from within its answer, as long as there is a connection. */
TEST(an_answer_may_be_a_evaluation)
{
    begin_ready();
    const struct span words[] = {span_of_text("PING")};
    const struct redis_command command = {
        .words = words, .n_words = 1, .answered = ask_more, .arg = (void *)(uintptr_t) "first"};
    assert_true(redis_conn_ask(conn, &command, 1 * MS));
    assert_true(redis_conn_ask(conn, &command, 1 * MS));
    assert_output("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n");
    feed("+PONG\r\n", 2 * MS);
    assert_replied("first done at 2 PONG");
    assert_output(GET("n"));
    link_lost(link, "reset", 3 * MS);
    assert_replied("first lost at 3; next lost at 3");
}

/* ---- What errors mean ------------------------------------------------------------------------ */

TEST(errors_are_told_apart)
{
    static const struct {
        const char *text;
        enum redis_error fault;
    } cases[] = {
        {"MOVED 1 a:1", REDIS_ERROR_MOVED},
        {"ASK 1 a:1", REDIS_ERROR_ASK},
        {"ASKEW", REDIS_ERROR_OTHER},
        {"TRYAGAIN Multiple keys", REDIS_ERROR_TRYAGAIN},
        {"CLUSTERDOWN Hash slot not served", REDIS_ERROR_CLUSTERDOWN},
        {"LOADING Redis is loading", REDIS_ERROR_LOADING},
        {"READONLY You can't write", REDIS_ERROR_READONLY},
        {"MASTERDOWN Link", REDIS_ERROR_MASTERDOWN},
        {"OOM command not allowed", REDIS_ERROR_OUT_OF_MEMORY},
        {"NOPERM this user", REDIS_ERROR_DENIED},
        {"NOSCRIPT", REDIS_ERROR_NOSCRIPT},
        {"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You",
         REDIS_ERROR_READONLY},
        {"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -WRONGTYPE Op",
         REDIS_ERROR_KEY},
        {"ERR Error running script (call to f_1): @user_script:3: user_script:3: bad argument #2",
         REDIS_ERROR_KEY},
        {"ERR user_script:31: bad argument #2 to 'unpack' script: 1, on @user_script:31.",
         REDIS_ERROR_KEY},
        {"WRONGTYPE Operation against a key", REDIS_ERROR_KEY},
        {"STINT the key holds no state of window", REDIS_ERROR_KEY},
        {"ERR syntax", REDIS_ERROR_OTHER},
        {"", REDIS_ERROR_OTHER},
    };
    for (size_t i = 0; i < N(cases); i++)
        assert_int_equal(redis_error_of(span_of_text(cases[i].text)), cases[i].fault);
}

TEST(redirects_are_read)
{
    struct redis_redirect redirect;
    assert_true(redis_redirect_parse(span_of_text("MOVED 3999 127.0.0.1:6381"), &redirect));
    assert_int_equal(redirect.slot, 3999);
    assert_true(span_equals(redirect.host, "127.0.0.1"));
    assert_int_equal(redirect.port, 6381);
    assert_true(redis_redirect_parse(span_of_text("ASK 0 ::1:7"), &redirect));
    assert_true(span_equals(redirect.host, "::1"));
    assert_true(redis_redirect_parse(span_of_text("MOVED 16383 :7"), &redirect));
    assert_int_equal(redirect.host.len, 0);
    assert_true(redis_redirect_parse(span_of_text("MOVED 16383 ?:7"), &redirect));
    assert_int_equal(redirect.host.len, 0);
    static const char *const wrong[] = {
        "",
        "MOVED",
        "MOVED 1",
        "MOVED 1 a",
        "MOVED 16384 a:1",
        "MOVED x a:1",
        "MOVED 1 a:0",
        "MOVED 1 a:65536",
        "GONE 1 a:1",
        "MOVED 1 a:",
    };
    for (size_t i = 0; i < N(wrong); i++)
        assert_false(redis_redirect_parse(span_of_text(wrong[i]), &redirect));
}
