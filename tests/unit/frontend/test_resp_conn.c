/* SPDX-License-Identifier: MIT */
/*
 * A connection as its socket sees it: order, pieces, back-pressure, waiting, draining, and who may
 * ask. What each command answers is in the dialogues of tests/trace.
 */
#include "unit/test_access.h"
#include "unit/test_resp_client.h"

SETUP
{
    resp_open();
}

TEARDOWN
{
    resp_close();
}

static size_t pending(void)
{
    return output().len;
}

static bool output_has(const char *text)
{
    struct span sent = output();
    size_t len = strlen(text);
    for (size_t at = 0; at + len <= sent.len; at++)
        if (memcmp(sent.ptr + at, text, len) == 0)
            return true;
    return false;
}

static uint64_t deadline(void)
{
    return resp.conn->ops->deadline(resp.conn);
}

static bool is_over(void)
{
    return resp.conn->ops->is_over(resp.conn);
}

static bool is_busy(void)
{
    return resp.conn->ops->is_busy(resp.conn);
}

static bool is_backpressured(void)
{
    return resp.conn->ops->is_backpressured(resp.conn);
}

static void wake_at(uint64_t now_ns)
{
    resp.now_ns = now_ns;
    stint_table_set_now(resp.table, now_ns);
    resp.conn->ops->wake(resp.conn, now_ns);
}

/* ---- Order and pieces ------------------------------------------------------------------------ */

TEST(a_pipeline_is_answered_in_one_output)
{
    open_frontend(NULL, NULL);
    feed("PING\r\n*1\r\n$4\r\nPING\r\n\r\n*0\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nCL.THROTTLE k 4 5 "
         "5\r\n");
    assert_sent("+PONG\r\n+PONG\r\n$2\r\nhi\r\n*5\r\n:0\r\n:5\r\n:4\r\n:-1\r\n:1\r\n");
    assert_false(is_busy());
}

TEST(any_two_pieces_give_the_same_answers)
{
    static const char text[] = "*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\nECHO \"d e\"\r\nNO\r\nPING\r\n";
    open_frontend(NULL, NULL);
    for (size_t cut = 0; cut <= sizeof(text) - 1; cut++) {
        feed_bytes(text, cut);
        feed_bytes(text + cut, sizeof(text) - 1 - cut);
        assert_sent("$3\r\nabc\r\n$3\r\nd e\r\n-ERR unknown command 'NO'\r\n+PONG\r\n");
        assert_false(is_busy());
    }
}

TEST(a_connection_is_busy_while_a_command_is_half_read)
{
    open_frontend(NULL, NULL);
    assert_false(is_busy());
    feed("*1\r\n$4\r\nPI");
    assert_true(is_busy());
    assert_int_equal(pending(), 0);
    feed("NG\r\n");
    assert_false(is_busy());
    assert_sent("+PONG\r\n");
}

TEST(a_large_argument_may_come_in_many_pieces)
{
    enum { LEN = 100000 };
    char *echoed = malloc(LEN + 32), piece[101];
    open_frontend(NULL, NULL);
    feed("*2\r\n$4\r\nECHO\r\n$100000\r\n");
    memset(piece, 'x', 100);
    piece[100] = '\0';
    for (int i = 0; i < LEN / 100; i++)
        feed(piece);
    assert_int_equal(pending(), 0);
    feed("\r\nPING\r\n");
    size_t head = (size_t)sprintf(echoed, "$100000\r\n");
    memset(echoed + head, 'x', LEN);
    strcpy(echoed + head + LEN, "\r\n+PONG\r\n");
    assert_sent(echoed);
    free(echoed);
}

TEST(a_protocol_error_is_answered_and_ends_it)
{
    open_frontend(NULL, NULL);
    feed("PING\r\n*1\r\n:5\r\nPING\r\n");
    assert_true(is_over());
    assert_false(is_busy());
    feed("PING\r\n");
    assert_sent("+PONG\r\n-ERR Protocol error: expected an argument that begins with '$'\r\n");
}

TEST(quit_ends_it_and_what_follows_is_not_done)
{
    open_frontend(NULL, NULL);
    feed("CL.THROTTLE k 4 5 5\r\nQUIT\r\nCL.THROTTLE k 4 5 5\r\n");
    assert_true(is_over());
    assert_sent("*5\r\n:0\r\n:5\r\n:4\r\n:-1\r\n:1\r\n+OK\r\n");
    hang_up();
    dial();
    feed("CL.THROTTLE k 4 5 5 0\r\n");
    assert_sent("*5\r\n:0\r\n:5\r\n:4\r\n:-1\r\n:1\r\n");
}

/* A key that is too long is an error of every command, and no denial. */
TEST(no_command_takes_a_key_that_is_too_long)
{
    static char command[STINT_KEY_MAX + 100];
    static char key[STINT_KEY_MAX + 2];
    memset(key, 'k', STINT_KEY_MAX + 1);
    open_frontend(NULL, NULL);
    static const char *const forms[][2] = {
        {"*5\r\n$11\r\nCL.THROTTLE", "\r\n$1\r\n4\r\n$1\r\n5\r\n$1\r\n5\r\n"},
        {"*4\r\n$10\r\nSTINT.TAKE\r\n$5\r\nQUOTA\r\n$4\r\n1/1m", "\r\n"}};
    for (size_t i = 0; i < N(forms); i++) {
        snprintf(command, sizeof(command), "%s\r\n$65537\r\n%s%s", forms[i][0], key, forms[i][1]);
        feed(command);
        assert_sent("-ERR the key has 65537 bytes; at most 65536 are allowed\r\n");
    }
}

static bool is_turn_over(void *owner)
{
    (void)owner;
    return true;
}

TEST(a_turn_that_is_over_leaves_whole_commands_for_the_next)
{
    static char pings[6 * 64 + 1];
    open_frontend(NULL, NULL);
    resp.conn->turn_is_over = is_turn_over;
    for (size_t n = 0; n < 64; n++) {
        memcpy(pings + 6 * n, "PING\r\n", 7);
        feed(pings);
        unsigned turns = 1;
        size_t answered = pending();
        resp.conn->ops->sent(resp.conn, answered, resp.now_ns);
        for (; resp.conn->ops->has_work(resp.conn); turns++) {
            assert_true(is_backpressured());
            resp.conn->ops->wake(resp.conn, resp.now_ns);
            answered += pending();
            resp.conn->ops->sent(resp.conn, pending(), resp.now_ns);
        }
        assert_int_equal(answered, 7 * (n + 1));
        assert_int_equal(turns, n / 15 + 1);
        assert_false(is_backpressured());
        assert_false(is_busy());
    }
}

/* ---- Back-pressure --------------------------------------------------------------------------- */

static const struct resp_limits narrow = {.output_bytes = 20};

TEST(unread_replies_stop_the_answers)
{
    open_frontend(NULL, &narrow);
    for (int i = 0; i < 10; i++)
        feed("PING\r\n");
    /* Three of 7 bytes pass the limit of 20; the other commands are kept. */
    assert_true(is_backpressured());
    assert_true(is_busy());
    assert_int_equal(pending(), 21);
    assert_sent("+PONG\r\n+PONG\r\n+PONG\r\n");
    assert_true(is_backpressured());
    assert_sent("+PONG\r\n+PONG\r\n+PONG\r\n");
    assert_sent("+PONG\r\n+PONG\r\n+PONG\r\n");
    assert_false(is_backpressured());
    assert_sent("+PONG\r\n");
    assert_sent("");
    assert_false(is_busy());
}

TEST(a_reply_may_be_sent_byte_by_byte)
{
    char got[200] = "", expected[200] = "";
    open_frontend(NULL, &narrow);
    for (int i = 0; i < 12; i++) {
        char text[32];
        snprintf(text, sizeof(text), "ECHO %02d\r\n", i);
        feed(text);
        snprintf(expected + strlen(expected), 32, "$2\r\n%02d\r\n", i);
    }
    while (pending() > 0) {
        size_t len = strlen(got);
        got[len] = (char)resp.conn->ops->output(resp.conn).ptr[0];
        got[len + 1] = '\0';
        resp.conn->ops->sent(resp.conn, 1, resp.now_ns);
    }
    assert_string_equal(got, expected);
    assert_false(is_busy());
}

/* ---- Waiting --------------------------------------------------------------------------------- */

#define TAKE "STINT.TAKE QUOTA 'gcra 1/1s' k WAIT 2500\r\n"
#define ALLOWED_AT(at)                                                                             \
    "*16\r\n$7\r\noutcome\r\n$5\r\nallow\r\n$7\r\ngranted\r\n:1\r\n$5\r\nlimit\r\n:1\r\n"          \
    "$9\r\nremaining\r\n:0\r\n$14\r\nretry_after_ms\r\n:0\r\n$14\r\nreset_after_ms\r\n:1000\r\n"   \
    "$7\r\nbinding\r\n:0\r\n$2\r\nat\r\n$13\r\n" at "\r\n"

TEST(a_command_waits_and_those_behind_it_keep_their_order)
{
    open_frontend(NULL, NULL);
    feed(TAKE);
    assert_sent(ALLOWED_AT("1000000000000"));
    assert_int_equal(deadline(), STINT_NEVER_NS);
    feed(TAKE "PING\r\n");
    assert_int_equal(pending(), 0);
    assert_true(is_busy());
    assert_int_equal(deadline(), 1001 * S);
    feed("ECHO x\r\n");
    wake_at(1001 * S - 1);
    assert_int_equal(pending(), 0);
    assert_int_equal(deadline(), 1001 * S);
    wake_at(1001 * S);
    assert_sent(ALLOWED_AT("1001000000000") "+PONG\r\n$1\r\nx\r\n");
    assert_int_equal(deadline(), STINT_NEVER_NS);
    assert_false(is_busy());
}

TEST(patience_is_counted_from_the_first_asking)
{
    open_frontend(NULL, NULL);
    feed(TAKE TAKE TAKE TAKE TAKE);
    assert_sent(ALLOWED_AT("1000000000000"));
    assert_int_equal(deadline(), 1001 * S);
    /* Another is always faster: at 1003 s the third asking would come after 2.5 s. */
    for (int i = 1; i <= 2; i++) {
        struct conn *other = resp_conn_new(resp.frontend, span_of(NULL, 0));
        stint_table_set_now(resp.table, (1000 + (uint64_t)i) * S);
        other->ops->feed(other, span_of_text("STINT.TAKE QUOTA 'gcra 1/1s' k\r\n"),
                         (1000 + (uint64_t)i) * S);
        other->ops->free(other);
        wake_at((1000 + (uint64_t)i) * S);
        if (i == 1)
            assert_int_equal(deadline(), 1002 * S);
    }
    struct span output = resp.conn->ops->output(resp.conn);
    assert_true(output_has("$4\r\ndeny\r\n"));
    resp.conn->ops->sent(resp.conn, output.len, resp.now_ns);
    /* The one behind it has all its patience left. */
    assert_int_equal(deadline(), 1003 * S);
}

TEST(who_cannot_wait_long_enough_is_denied_at_once)
{
    open_frontend(NULL, NULL);
    feed(TAKE "STINT.TAKE QUOTA 'gcra 1/1s' k WAIT 999\r\nSTINT.TAKE QUOTA 'gcra 1/1s' k COST 2 "
              "WAIT 5000\r\n");
    assert_int_equal(deadline(), STINT_NEVER_NS);
    assert_true(output_has("$4\r\ndeny\r\n"));
    assert_true(output_has("$5\r\nnever\r\n"));
}

TEST(commands_behind_one_that_waits_do_not_fill_the_memory)
{
    const struct resp_limits limits = {.request_bytes = 100};
    open_frontend(NULL, &limits);
    feed(TAKE TAKE);
    assert_false(is_backpressured());
    for (int i = 0; i < 20; i++)
        feed("PING\r\n");
    assert_true(is_backpressured());
    wake_at(1001 * S);
    assert_false(is_backpressured());
}

/* ---- Draining -------------------------------------------------------------------------------- */

TEST(drain_ends_an_idle_connection)
{
    open_frontend(NULL, NULL);
    resp.conn->ops->drain(resp.conn, resp.now_ns);
    assert_true(is_over());
    assert_int_equal(pending(), 0);
}

TEST(drain_answers_what_waits_and_what_is_behind_it)
{
    open_frontend(NULL, NULL);
    feed(TAKE);
    resp.conn->ops->sent(resp.conn, pending(), resp.now_ns);
    feed(TAKE TAKE "PING\r\n*1\r\n$4\r\nPI");
    assert_int_equal(pending(), 0);
    resp.conn->ops->drain(resp.conn, resp.now_ns);
    struct span output = resp.conn->ops->output(resp.conn);
    const char *end = "+PONG\r\n";
    assert_true(output_has("$4\r\ndeny\r\n"));
    assert_memory_equal(output.ptr + output.len - strlen(end), end, strlen(end));
    assert_true(is_over());
    assert_int_equal(deadline(), STINT_NEVER_NS);
}

TEST(drain_waits_for_a_slow_reader)
{
    open_frontend(NULL, &narrow);
    for (int i = 0; i < 5; i++)
        feed("PING\r\n");
    resp.conn->ops->drain(resp.conn, resp.now_ns);
    assert_false(is_over());
    assert_sent("+PONG\r\n+PONG\r\n+PONG\r\n");
    assert_true(is_over());
    assert_sent("+PONG\r\n+PONG\r\n");
}

/* ---- Who may ask ----------------------------------------------------------------------------- */

#define SECRET "0123456789abcdef0123456789abcdef"
#define GRAPHS "\ngraphs metrics metrics-metrics-metrics-metrics-"
#define OTHER "fedcba9876543210fedcba9876543210"

#define NOAUTH "-NOAUTH Authentication required.\r\n"
#define NOPERM "-NOPERM the client's roles do not allow this\r\n"
#define WRONGPASS "-WRONGPASS no token has this name and secret\r\n"

TEST(strangers_are_asked_who_they_are)
{
    open_frontend(access_of("shop ask " SECRET GRAPHS), NULL);
    feed("PING\r\nCL.THROTTLE k 4 5 5\r\nAUTH " OTHER "\r\nAUTH graphs " SECRET "\r\n");
    assert_sent(NOAUTH NOAUTH WRONGPASS WRONGPASS);
    feed("AUTH " SECRET "\r\nPING\r\nCL.THROTTLE k 4 5 5\r\n");
    assert_sent("+OK\r\n+PONG\r\n*5\r\n:0\r\n:5\r\n:4\r\n:-1\r\n:1\r\n");
    feed("RESET\r\nPING\r\nAUTH default " SECRET "\r\nPING\r\nAUTH shop " SECRET "\r\n");
    assert_sent("+RESET\r\n" NOAUTH "+OK\r\n+PONG\r\n+OK\r\n");
}

TEST(a_stranger_may_send_little)
{
    open_frontend(access_of("shop ask " SECRET GRAPHS), NULL);
    feed("*11\r\n");
    assert_true(is_over());
    hang_up();
    dial();
    feed("*2\r\n$4\r\nECHO\r\n$4097\r\n");
    assert_true(is_over());
    hang_up();
    dial();
    feed("AUTH " SECRET "\r\n*12\r\n$4\r\nECHO\r\n$4097\r\n");
    assert_false(is_over());
}

TEST(a_command_that_does_not_come_ends_the_connection)
{
    open_frontend(NULL, NULL);
    feed("PING\r\n*1\r\n");
    assert_true(is_busy());
    assert_true(resp.conn->ops->held(resp.conn) > 0);
    resp.conn->ops->expire(resp.conn, resp.now_ns);
    assert_sent("+PONG\r\n-ERR Protocol error: the command did not arrive within request_time\r\n");
    assert_true(is_over());
}

TEST(a_role_opens_its_commands_and_no_others)
{
    open_frontend(access_of("shop ask " SECRET GRAPHS), NULL);
    feed("AUTH " SECRET "\r\nSTINT.RESET QUOTA 1/1s k\r\nSTINT.TOP\r\nINFO table\r\n"
         "STINT.POOL REMOVE p k\r\n");
    assert_sent("+OK\r\n" NOPERM NOPERM NOPERM NOPERM);
    feed("AUTH metrics-metrics-metrics-metrics-\r\nSTINT.TOP\r\nCL.THROTTLE k 4 5 5\r\nDEL k\r\n"
         "STINT.POOL LIST\r\n");
    assert_sent("+OK\r\n*0\r\n" NOPERM NOPERM NOPERM);
}

TEST(a_reload_of_tokens_reaches_who_is_connected)
{
    open_frontend(access_of("shop ask " SECRET GRAPHS), NULL);
    feed("AUTH " SECRET "\r\nSTINT.RESET QUOTA 1/1s k\r\n");
    assert_sent("+OK\r\n" NOPERM);
    access_now_set(resp.access, access_of("shop ask,administer " SECRET GRAPHS));
    feed("STINT.RESET QUOTA 1/1s k\r\n");
    assert_sent("+OK\r\n");
    access_now_set(resp.access, access_of("shop ask,administer " OTHER GRAPHS));
    feed("PING\r\n");
    assert_sent(NOAUTH);
    feed("AUTH " OTHER "\r\nPING\r\n");
    assert_sent("+OK\r\n+PONG\r\n");
}

TEST(a_token_taken_unavailable_ends_a_wait)
{
    open_frontend(access_of("shop ask " SECRET GRAPHS), NULL);
    feed("AUTH " SECRET "\r\n" TAKE TAKE);
    resp.conn->ops->sent(resp.conn, pending(), resp.now_ns);
    assert_int_equal(deadline(), 1001 * S);
    access_now_set(resp.access, access_of("shop ask " OTHER GRAPHS));
    wake_at(1001 * S);
    assert_sent(NOAUTH);
}
