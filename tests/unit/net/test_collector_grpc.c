/* SPDX-License-Identifier: MIT */
/* Requests to a collector over gRPC and its answers, in virtual time. */
#include "unit/test_grpc_server.h"

#include "net/upstream/collector_conn.h"

#define TIMEOUT (5 * S)
#define BACKOFF S

struct collector {
    struct grpc_server server;
    struct collector_conn conn;
    char heard[64]; /* the last request */
    unsigned n_heard, n_answers;
    enum link_outcome outcome;
    struct collector_answer answer;
    char body[COLLECTOR_BODY_MAX + 1];
    bool posts_again;
};

static struct collector *collector;

static void hear(struct span message)
{
    size_t len =
        message.len < sizeof(collector->heard) ? message.len : sizeof(collector->heard) - 1;
    collector->n_heard++;
    memcpy(collector->heard, message.ptr, len);
    collector->heard[len] = '\0';
}

static bool post(const char *text)
{
    return collector_conn_post(&collector->conn, span_of_text(text), collector->server.now_ns);
}

static void take_answer(void *arg, enum link_outcome outcome, const struct collector_answer *answer,
                        uint64_t now_ns)
{
    assert_ptr_equal(arg, collector);
    assert_int_equal(now_ns, collector->server.now_ns);
    assert_int_equal(outcome == LINK_DONE, answer != NULL);
    collector->n_answers++;
    collector->outcome = outcome;
    if (answer != NULL) {
        collector->answer = *answer;
        if (answer->body.len > 0)
            memcpy(collector->body, answer->body.ptr, answer->body.len);
        collector->body[answer->body.len] = '\0';
    }
    if (collector->posts_again)
        assert_true(post("next"));
}

SETUP
{
    static const struct collector_url url = {.authority = "c:4317", .is_grpc = true};
    static const char *const headers[] = {"api-key:secret"};
    collector = calloc(1, sizeof(*collector));
    assert_non_null(collector);
    collector->server.now_ns = 1000 * S;
    collector->server.hear = hear;
    assert_true(collector_conn_open(
        &collector->conn,
        &(struct collector_conn_options){
            .url = &url,
            .headers = headers,
            .n_headers = 1,
            .body_max = 200000,
            .link = {.reply_ns = TIMEOUT, .backoff_first_ns = BACKOFF, .backoff_max_ns = 8 * S},
            .answered = take_answer,
            .arg = collector,
        }));
    collector->server.link = collector->conn.link;
}

TEARDOWN
{
    collector->posts_again = false;
    link_free(collector->conn.link, collector->server.now_ns);
    nghttp2_session_del(collector->server.session);
    free(collector);
}

static void connect_and_post(void)
{
    server_open_link(&collector->server);
    assert_true(post("spans"));
    exchange(&collector->server);
    assert_string_equal(collector->heard, "spans");
    assert_true(collector->server.has_all);
}

/* Header fields, a message if `message` is not NULL, and trailers. */
static void answer_with(const char *message, const nghttp2_nv *trailers, size_t n)
{
    const nghttp2_nv status = FIELD(":status", "200");
    struct wire text = {.len = 0}, wire = {.len = 0};
    struct span bytes = span_of(NULL, 0);
    if (message != NULL) {
        wire_bytes(&text, span_of_text(message));
        bytes = framed(&wire, &text);
    }
    collector->server.data = bytes.ptr;
    collector->server.data_left = bytes.len;
    collector->server.ends = true;
    memcpy(collector->server.trailers, trailers, n * sizeof(*trailers));
    collector->server.n_trailers = n;
    respond(&collector->server, &status, 1);
}

static void answer_ok(const char *message)
{
    const nghttp2_nv ok = FIELD("grpc-status", "0");
    answer_with(message, &ok, 1);
}

static void assert_verdict(enum collector_verdict verdict, const char *reason)
{
    assert_int_equal(collector->n_answers, 1);
    assert_int_equal(collector->outcome, LINK_DONE);
    assert_int_equal(collector->answer.verdict, verdict);
    assert_string_equal(collector->answer.reason, reason);
    collector->n_answers = 0;
}

static void lose(void)
{
    link_lost(collector->server.link, NULL, collector->server.now_ns);
    wait_for(&collector->server, BACKOFF);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

TEST(one_call_after_the_other_on_one_connection)
{
    server_open_link(&collector->server);
    for (unsigned i = 1; i <= 2000; i++) {
        assert_true(post("spans"));
        assert_false(post("next"));
        exchange(&collector->server);
        assert_int_equal(collector->n_heard, i);
        answer_ok("fine");
        assert_verdict(COLLECTOR_ACCEPTS, "");
        assert_string_equal(collector->body, "fine");
        assert_int_equal(collector->server.n_resets, 0);
    }
}

TEST(the_next_request_may_be_posted_within_the_answer)
{
    connect_and_post();
    collector->posts_again = true;
    answer_ok("fine");
    assert_verdict(COLLECTOR_ACCEPTS, "");
    assert_string_equal(collector->heard, "next");
}

/* The collector's window is 65,535 bytes, so most of the request waits for it. */
TEST(a_request_is_larger_than_a_window)
{
    static char text[150001];
    memset(text, 'x', sizeof(text) - 1);
    server_open_link(&collector->server);
    for (unsigned i = 1; i <= 20; i++) {
        assert_true(post(text));
        exchange(&collector->server);
        assert_int_equal(collector->n_heard, i);
        answer_ok("");
        assert_verdict(COLLECTOR_ACCEPTS, "");
    }
}

TEST(an_answer_without_a_message_is_one)
{
    connect_and_post();
    answer_ok(NULL);
    assert_verdict(COLLECTOR_ACCEPTS, "");
    assert_string_equal(collector->body, "");
}

TEST(an_answer_before_the_end_of_a_request_ends_the_call)
{
    static char text[180000];
    const nghttp2_nv denied[] = {FIELD(":status", "200"), FIELD("grpc-status", "16"),
                                 FIELD("grpc-message", "who?")};
    memset(text, 'x', sizeof(text) - 1);
    server_open_link(&collector->server);
    nghttp2_submit_settings(collector->server.session, NGHTTP2_FLAG_NONE,
                            &(nghttp2_settings_entry){NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0}, 1);
    exchange(&collector->server);
    assert_true(post(text));
    exchange(&collector->server);
    assert_false(collector->server.has_all);
    respond_without_data(&collector->server, denied, 3);
    assert_verdict(COLLECTOR_REFUSES, "it answers UNAUTHENTICATED \"who?\"");
    assert_int_equal(collector->server.n_resets, 1);
    assert_true(post("spans"));
}

/* ---- Verdicts -------------------------------------------------------------------------------- */

TEST(statuses)
{
    static const struct {
        nghttp2_nv fields[2];
        enum collector_verdict verdict;
        const char *reason;
    } cases[] = {
        {{FIELD(":status", "200"), FIELD("grpc-status", "14")},
         COLLECTOR_MAY_LATER,
         "it answers UNAVAILABLE"},
        {{FIELD(":status", "200"), FIELD("grpc-status", "15")},
         COLLECTOR_MAY_LATER,
         "it answers DATA_LOSS"},
        {{FIELD(":status", "200"), FIELD("grpc-status", "8")},
         COLLECTOR_REFUSES,
         "it answers RESOURCE_EXHAUSTED"},
        {{FIELD(":status", "200"), FIELD("grpc-status", "12")},
         COLLECTOR_REFUSES,
         "it answers UNIMPLEMENTED"},
        {{FIELD(":status", "503"), FIELD("content-type", "text/html")},
         COLLECTOR_MAY_LATER,
         "it answers HTTP status 503"},
        {{FIELD(":status", "404"), FIELD("content-type", "text/html")},
         COLLECTOR_REFUSES,
         "it answers HTTP status 404"},
        {{FIELD(":status", "200"), FIELD("grpc-status", "x")},
         COLLECTOR_MAY_LATER,
         "it ends a call without a status"},
    };
    server_open_link(&collector->server);
    for (size_t i = 0; i < N(cases); i++) {
        assert_true(post("spans"));
        exchange(&collector->server);
        respond_without_data(&collector->server, cases[i].fields, 2);
        assert_verdict(cases[i].verdict, cases[i].reason);
        assert_int_equal(collector->answer.retry_ns, 0);
    }
}

/* google.rpc.Status of code 8 with RetryInfo of 1.5 s, with and without padding. */
TEST(a_collector_may_say_when_to_come_back)
{
#define DETAILS "CAgaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIARCAyrXuAQ"
    const nghttp2_nv trailers[] = {FIELD("grpc-status", "8"),
                                   FIELD("grpc-status-details-bin", DETAILS)};
    connect_and_post();
    answer_with(NULL, trailers, 2);
    assert_verdict(COLLECTOR_MAY_LATER, "it answers RESOURCE_EXHAUSTED");
    assert_int_equal(collector->answer.retry_ns, S + S / 2);
}

TEST(a_stream_that_is_reset_may_be_repeated)
{
    connect_and_post();
    nghttp2_submit_rst_stream(collector->server.session, NGHTTP2_FLAG_NONE,
                              collector->server.stream, NGHTTP2_REFUSED_STREAM);
    exchange(&collector->server);
    assert_verdict(COLLECTOR_MAY_LATER, "it answers REFUSED_STREAM");
    assert_true(post("spans"));
}

/* For a frame that must not come. That is seen at once, not with the collector's next bytes. */
TEST(a_stream_that_the_client_resets_may_be_repeated)
{
    const nghttp2_nv status = FIELD(":status", "200");
    connect_and_post();
    respond(&collector->server, &status, 1);
    uint8_t again[] = {0,   0, 1, NGHTTP2_HEADERS, 4, 0, 0, 0, (uint8_t)collector->server.stream,
                       0x88};
    link_feed(collector->server.link, span_of(again, sizeof(again)), collector->server.now_ns);
    assert_verdict(COLLECTOR_MAY_LATER, "it answers PROTOCOL_ERROR");
    assert_true(post("next"));
}

/* ---- Connections that end -------------------------------------------------------------------- */

TEST(a_late_answer_is_not_waited_for)
{
    connect_and_post();
    assert_int_equal(link_deadline(collector->server.link), collector->server.now_ns + TIMEOUT);
    collector->server.now_ns += TIMEOUT;
    link_wake(collector->server.link, collector->server.now_ns);
    assert_int_equal(collector->n_answers, 1);
    assert_int_equal(collector->outcome, LINK_LATE);
    assert_given_up(&collector->server, "the collector has not answered within 5000 ms");
}

TEST(a_lost_connection_loses_the_call)
{
    connect_and_post();
    link_lost(collector->server.link, "closed", collector->server.now_ns);
    assert_int_equal(collector->n_answers, 1);
    assert_int_equal(collector->outcome, LINK_LOST);
    assert_false(post("spans"));
    wait_for(&collector->server, BACKOFF);
    connect_and_post();
}

/* As servers do with connections of some age. */
TEST(a_goaway_ends_an_idle_connection)
{
    connect_and_post();
    answer_ok("");
    assert_verdict(COLLECTOR_ACCEPTS, "");
    nghttp2_submit_goaway(collector->server.session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_NO_ERROR, NULL,
                          0);
    exchange(&collector->server);
    assert_given_up(&collector->server, "the collector has ended the connection");
    lose();
    connect_and_post();
}

TEST(a_goaway_waits_for_the_call)
{
    connect_and_post();
    nghttp2_submit_goaway(collector->server.session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_NO_ERROR, NULL,
                          0);
    exchange(&collector->server);
    assert_true(link_is_ready(collector->server.link));
    answer_ok("fine");
    assert_verdict(COLLECTOR_ACCEPTS, "");
    assert_given_up(&collector->server, "the collector has ended the connection");
}

/* ---- Hostile collectors ---------------------------------------------------------------------- */

TEST(a_large_message_is_as_none)
{
    static uint8_t bytes[GRPC_PREFIX + COLLECTOR_BODY_MAX + 1];
    const nghttp2_nv status = FIELD(":status", "200"), ok = FIELD("grpc-status", "0");
    grpc_frame_write(bytes, false, sizeof(bytes) - GRPC_PREFIX);
    connect_and_post();
    collector->server.data = bytes;
    collector->server.data_left = sizeof(bytes);
    collector->server.ends = true;
    collector->server.trailers[0] = ok;
    collector->server.n_trailers = 1;
    respond(&collector->server, &status, 1);
    assert_verdict(COLLECTOR_ACCEPTS, "");
    assert_string_equal(collector->body, "");
}

TEST(an_endless_answer_is_cut)
{
    static uint8_t bytes[4 * COLLECTOR_ANSWER_MAX];
    const nghttp2_nv status = FIELD(":status", "200");
    connect_and_post();
    respond(&collector->server, &status, 1);
    send_bytes(&collector->server, span_of(bytes, sizeof(bytes)));
    assert_int_equal(collector->n_answers, 1);
    assert_int_not_equal(collector->outcome, LINK_DONE);
    assert_given_up(&collector->server, "the collector has sent a response of more than 64 KiB");
}

TEST(another_protocol_is_refused)
{
    connect_and_post();
    feed_raw(&collector->server, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    assert_int_equal(collector->n_answers, 1);
    assert_given_up(&collector->server, "the collector");
}

TEST(answers_without_a_call_end_the_connection)
{
    static const uint8_t headers[] = {0, 0, 1, NGHTTP2_HEADERS, 5, 0, 0, 0, 1, 0x88};
    server_open_link(&collector->server);
    feed_raw(&collector->server, headers, sizeof(headers));
    assert_int_equal(collector->n_answers, 0);
    assert_int_equal(link_wants(collector->server.link), LINK_WANTS_CLOSE);
}

TEST(test_header_fields_of_users)
{
    static const char *const taken[] = {
        "api-key:secret", "x:",     "b:c:d",       "tenant:a b",
        "hosts:x",        "te-x:1", "x-grpc-id:1", "a!#$%&'*+.^_`|~:x"};
    static const char *const refused[] = {"",
                                          "x",
                                          ":x",
                                          "X:y",
                                          "a b:c",
                                          "a:b\r\nc: d",
                                          "a:\x7f",
                                          "te:x",
                                          "host:x",
                                          "upgrade:h",
                                          "grpc-status:0",
                                          "content-length:3",
                                          "user-agent:x",
                                          "connection:close",
                                          "keep-alive:1",
                                          "proxy-connection:x",
                                          "content-type:x",
                                          "transfer-encoding:x"};
    for (size_t i = 0; i < N(taken); i++)
        if (!grpc_link_takes_header(taken[i]))
            fail_msg("refused: %s", taken[i]);
    for (size_t i = 0; i < N(refused); i++)
        if (grpc_link_takes_header(refused[i]))
            fail_msg("taken: %s", refused[i]);
}
