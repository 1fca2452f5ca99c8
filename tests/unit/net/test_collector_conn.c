/* SPDX-License-Identifier: MIT */
/* Requests to a collector over HTTP and its answers as bytes, and URLs. */
#include "unit/test_link.h"

#include "net/upstream/collector_conn.h"

#include <strings.h>

#define HEAD                                                                                       \
    "POST /v1/x HTTP/1.1\r\nHost: c:1\r\nUser-Agent: stint/" STINT_VERSION                         \
    "\r\nContent-Type: application/x-protobuf\r\na: b c\r\nd: \r\nContent-Length: "
#define SENT HEAD "4\r\n\r\nbody"
#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static struct collector_conn conn;
static unsigned n_answers;
static enum link_outcome outcome;
static struct collector_answer answer;
static char body[COLLECTOR_BODY_MAX + 1];

static void take(void *arg, enum link_outcome how, const struct collector_answer *what,
                 uint64_t now_ns)
{
    (void)now_ns;
    assert_ptr_equal(arg, &n_answers);
    n_answers++;
    outcome = how;
    assert_int_equal(how == LINK_DONE, what != NULL);
    if (what == NULL)
        return;
    answer = *what;
    memcpy(body, what->body.ptr, what->body.len);
    body[what->body.len] = '\0';
}

SETUP
{
    static const char *const headers[] = {"a:b c", "d:"};
    const struct collector_url url = {.authority = "c:1", .path = "/v1/x"};
    assert_true(
        collector_conn_open(&conn, &(struct collector_conn_options){
                                       .url = &url,
                                       .headers = headers,
                                       .n_headers = 2,
                                       .body_max = 1024,
                                       .link = {.reply_ns = 100 * MS, .backoff_first_ns = 10 * MS},
                                       .answered = take,
                                       .arg = &n_answers,
                                   }));
    link = conn.link;
    n_answers = 0;
    connect_at(0);
    assert_true(link_is_ready(link));
}

TEARDOWN
{
    link_free(link, 0);
}

static void post(void)
{
    assert_true(collector_conn_post(&conn, span_of_text("body"), 1 * MS));
    assert_output(SENT);
}

static void assert_verdict(enum collector_verdict verdict, const char *reason, const char *text)
{
    assert_int_equal(n_answers, 1);
    assert_int_equal(outcome, LINK_DONE);
    assert_int_equal(answer.verdict, verdict);
    assert_string_equal(answer.reason, reason);
    assert_string_equal(body, text);
    n_answers = 0;
}

static void assert_closes(const char *fault)
{
    assert_int_equal(link_wants(link), LINK_WANTS_CLOSE);
    assert_string_equal(link_fault(link), fault);
}

/* The answer was an error of the collector, which ends the connection. */
static void assert_ended(const char *fault)
{
    assert_int_equal(n_answers, 1);
    assert_int_not_equal(outcome, LINK_DONE);
    assert_closes(fault);
}

TEST(one_request_after_the_other)
{
    for (int i = 0; i < 3; i++) {
        post();
        assert_false(collector_conn_post(&conn, span_of_text("next"), 1 * MS));
        feed(OK, 2 * MS);
        assert_verdict(COLLECTOR_ACCEPTS, "", "ok");
        assert_int_equal(link_wants(link), LINK_WANTS_NOTHING);
    }
}

TEST(an_answer_may_come_in_single_bytes)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n"
                               "HTTP/1.1 503 Busy\r\nX: y\r\nRetry-After: 17\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n"
                               "2\r\nno\r\n3\r\nt n\r\n2\r\now\r\n0\r\n\r\n";
    post();
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        assert_int_equal(n_answers, 0);
        link_feed(link, span_of(text + i, 1), 2 * MS);
    }
    assert_verdict(COLLECTOR_MAY_LATER, "it answers with status 503", "not now");
    assert_int_equal(answer.retry_ns, 17 * NS_PER_S);
}

TEST(other_times_to_retry_count_as_none)
{
    static const char *const values[] = {"Fri, 31 Dec 1999 23:59:59 GMT", "-1",
                                         "99999999999999999999999999", "1x"};
    for (size_t i = 0; i < N(values); i++) {
        char text[256];
        post();
        snprintf(text, sizeof(text),
                 "HTTP/1.1 429 No\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", values[i]);
        feed(text, 2 * MS);
        assert_verdict(COLLECTOR_MAY_LATER, "it answers with status 429", "");
        assert_int_equal(answer.retry_ns, 0);
    }
}

TEST(an_answer_without_a_length_ends_with_the_connection)
{
    post();
    feed("HTTP/1.1 200 OK\r\n\r\nsome text", 2 * MS);
    assert_int_equal(n_answers, 0);
    link_lost(link, "closed", 3 * MS);
    assert_verdict(COLLECTOR_ACCEPTS, "", "some text");
}

TEST(half_an_answer_is_none)
{
    post();
    feed("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome", 2 * MS);
    link_lost(link, "closed", 3 * MS);
    assert_int_equal(n_answers, 1);
    assert_int_equal(outcome, LINK_LOST);
}

TEST(the_collector_may_close_after_an_answer)
{
    post();
    feed("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 2 * MS);
    assert_verdict(COLLECTOR_ACCEPTS, "", "");
    assert_closes("the collector ends a connection with its response");
}

/* The rest of the request would be taken for another one. */
TEST(an_early_answer_ends_the_connection)
{
    assert_true(collector_conn_post(&conn, span_of_text("body"), 1 * MS));
    link_sent(link, 10);
    feed("HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n", 2 * MS);
    assert_verdict(COLLECTOR_REFUSES, "it answers with status 413", "");
    assert_closes("the collector has answered before the request was sent");
}

TEST(bytes_without_a_request_end_the_connection)
{
    feed(OK, 2 * MS);
    assert_int_equal(n_answers, 0);
    assert_closes("the collector has sent bytes without a request");
}

TEST(bytes_after_an_answer_end_the_connection)
{
    post();
    feed(OK OK, 2 * MS);
    assert_verdict(COLLECTOR_ACCEPTS, "", "ok");
    assert_closes("the collector has sent more than its response");
}

TEST(another_protocol_is_refused)
{
    post();
    feed("-ERR unknown command\r\n", 2 * MS);
    assert_ended("the collector has sent no HTTP response");
}

TEST(an_endless_answer_is_cut)
{
    char many[1024];
    memset(many, 'x', sizeof(many));
    post();
    feed("HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", 2 * MS);
    for (size_t n = 0; n < COLLECTOR_ANSWER_MAX && link_wants(link) == LINK_WANTS_NOTHING;
         n += sizeof(many))
        link_feed(link, span_of(many, sizeof(many)), 2 * MS);
    assert_ended("the collector has sent a response of more than 64 KiB");
}

TEST(an_endless_head_is_cut)
{
    post();
    feed("HTTP/1.1 200 OK\r\n", 2 * MS);
    for (size_t n = 0; n < COLLECTOR_ANSWER_MAX && link_wants(link) == LINK_WANTS_NOTHING; n += 8)
        feed("X-Y: z\r\n", 2 * MS);
    assert_ended("the collector has sent a response of more than 64 KiB");
}

TEST(a_late_answer_is_not_waited_for)
{
    post();
    assert_int_equal(link_deadline(link), 101 * MS);
    link_wake(link, 101 * MS);
    assert_int_equal(outcome, LINK_LATE);
    assert_ended("the collector has not answered within 100 ms");
}

/* ---- URLs ------------------------------------------------------------------------------------ */

static void assert_url(const char *text, const char *host, unsigned port, const char *authority,
                       const char *path)
{
    struct collector_url url;
    struct stint_error error;
    if (collector_url_parse(&url, text, &error) != 0)
        fail_msg("%s: %s", text, error.message);
    assert_string_equal(url.host.name, host);
    assert_int_equal(url.host.port, port);
    assert_string_equal(url.authority, authority);
    assert_string_equal(url.path, path);
    assert_int_equal(url.is_tls,
                     strncasecmp(text, "https", 5) == 0 || strncasecmp(text, "grpcs", 5) == 0);
    assert_int_equal(url.is_grpc, strncasecmp(text, "grpc", 4) == 0);
}

TEST(urls)
{
    assert_url("http://collector", "collector", 4318, "collector:4318", "");
    assert_url("HTTPS://collector:443/", "collector", 443, "collector:443", "/");
    assert_url("http://10.0.0.1:80/v1/traces", "10.0.0.1", 80, "10.0.0.1:80", "/v1/traces");
    assert_url("http://[::1]/a/b", "::1", 4318, "[::1]:4318", "/a/b");
    assert_url("https://[fe80::1%25eth0]:65535", "fe80::1%25eth0", 65535, "[fe80::1%25eth0]:65535",
               "");
    assert_url("grpc://collector", "collector", 4317, "collector:4317", "");
    assert_url("GRPCS://[::1]:1/", "::1", 1, "[::1]:1", "");
}

TEST(wrong_urls)
{
    static const char *const wrong[] = {
        "",
        "collector:4318",
        "grpc://collector:4317/v1/traces",
        "otlp://collector",
        "http:/collector",
        "http://",
        "http://:4318",
        "http://[::1",
        "http://[::1]x",
        "http://[]:1",
        "http://c:0",
        "http://c:65536",
        "http://c:",
        "http://c:80x",
        "http://user:secret@c",
        "http://c/?a=b",
        "http://c/#f",
        "http://c/a b",
        "http://c/\r\nX: y",
        "http://c\xc3\xa9",
    };
    struct collector_url url;
    struct stint_error error;
    for (size_t i = 0; i < N(wrong); i++) {
        if (collector_url_parse(&url, wrong[i], &error) == 0)
            fail_msg("%s", wrong[i]);
        assert_null(strstr(error.message, "secret"));
    }
    char text[400];
    snprintf(text, sizeof(text), "http://%0256d", 1);
    assert_int_equal(collector_url_parse(&url, text, &error), STINT_E_SYNTAX);
    snprintf(text, sizeof(text), "http://c/%0256d", 1);
    assert_int_equal(collector_url_parse(&url, text, &error), STINT_E_RANGE);
}
