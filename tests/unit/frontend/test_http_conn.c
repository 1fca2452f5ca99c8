/* SPDX-License-Identifier: MIT */
/*
 * An HTTP connection as its socket sees it: what is a request and what is refused, in pieces of any
 * size; order, back-pressure, turns, waiting, time limits, draining, and the memory that it holds.
 */
#include "unit/fake_store.h"
#include "unit/test_http_client.h"

#include "frontend/http/http.h"

#define BODY "{\"quota\":\"999999/1m\",\"key\":\"k\"}" /* of 31 bytes */
#define TAKE_HEAD "POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
#define TAKE TAKE_HEAD "Content-Length: 31\r\n\r\n" BODY
#define GET "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
#define OK GET "\r\n"

static const char *const yaml =
    "domain: shop\n"
    "descriptors:\n"
    "  - key: user\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2, algorithm: fixed_window, store: red}\n";

static struct http_client t;
static struct conn *conn;

static void dial(void)
{
    conn = http_conn_new(t.frontend, span_of_text("192.0.2.1"));
    assert_non_null(conn);
}

static void hang_up(void)
{
    conn->ops->free(conn);
    conn = NULL;
}

SETUP
{
    http_open(&t, yaml, &(struct http_config_options){.domain = "shop"}, NULL);
    dial();
}

TEARDOWN
{
    if (conn != NULL)
        hang_up();
    http_close(&t);
}

static void feed(const char *text)
{
    conn->ops->feed(conn, span_of_text(text), t.s.now_ns);
}

static size_t unsent(void)
{
    return conn->ops->output(conn).len;
}

/* Takes up to `most` bytes of what is to be sent, behind what `text` has already. */
static void take_output(char *text, size_t size, size_t most)
{
    size_t len = strlen(text);
    struct span output;
    while ((output = conn->ops->output(conn)).len > 0 && most > 0) {
        size_t n = output.len < most ? output.len : most;
        assert_true(len + n < size);
        memcpy(text + len, output.ptr, n);
        text[len += n] = '\0';
        conn->ops->sent(conn, n, t.s.now_ns);
        most -= n;
    }
}

static char answers[1 << 20];

static const char *all_output(void)
{
    answers[0] = '\0';
    take_output(answers, sizeof(answers), SIZE_MAX);
    return answers;
}

/* The statuses of answers that follow each other, "200 400"; `text` must be answers and no more. */
static const char *statuses_in(const char *text, bool is_head)
{
    static char found[1024];
    size_t len = 0;
    found[0] = '\0';
    while (*text != '\0') {
        unsigned status;
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        assert_int_equal(sscanf(text, "HTTP/1.1 %u ", &status), 1);
        assert_non_null(end);
        size_t body =
            length != NULL && length < end && !is_head ? strtoul(length + 16, NULL, 10) : 0;
        assert_true(strlen(end + 4) >= body);
        text = end + 4 + body;
        len +=
            (size_t)snprintf(found + len, sizeof(found) - len, "%s%u", len > 0 ? " " : "", status);
    }
    return found;
}

/* ---- What is a request ----------------------------------------------------------------------- */

static const struct {
    const char *bytes;
    const char *statuses;
    bool is_over; /* the connection ends */
} exchanges[] = {
    {OK, "200", false},
    {OK OK TAKE OK, "200 200 200 200", false},
    {"\r\n\r\n" OK, "200", false},
    {GET "Connection: close\r\n\r\n" OK, "200", true},
    {GET "Connection: keep-alive, close\r\n\r\n", "200", true},
    {"GET /healthz HTTP/1.0\r\n\r\n" OK, "200", true},
    {"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" OK, "200 200", false},
    {"GET http://h:80/healthz HTTP/1.1\r\nHost: other\r\n\r\n", "200", false},
    {"OPTIONS /v1/take HTTP/1.1\r\nHost: localhost\r\n\r\n", "204", false},
    {"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", "204", false},
    {GET "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n" OK, "200 200", false},
    {GET "Empty:\r\nBlank: \t \r\nLast: x \t\r\n\r\n", "200", false},
    {GET "Content-Length: 3\r\n\r\nabc" OK, "200 200", false},
    {TAKE_HEAD
     "Transfer-Encoding: chunked\r\n\r\na\r\n{\"quota\":\"\r\n15\r\n999999/1m\",\"key\":\"k\"}\r\n"
     "0\r\n\r\n" OK,
     "200 200", false},
    {TAKE_HEAD "Transfer-Encoding: Chunked\r\n\r\n1F;name=value\r\n" BODY "\r\n0\r\n"
               "Content-Type: text/plain\r\n\r\n" OK,
     "200 200", false}, /* a trailer does not change what the head says */
    {TAKE_HEAD "Expect: 100-continue\r\nContent-Length: 31\r\n\r\n" BODY, "200", false},
    {"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n" OK, "404 200", false},
    /* Line ends and folded fields: RFC 9112, 2.2 and 5.2. */
    {"GET /healthz HTTP/1.1\nHost: h\n\n", "400", true},
    {"GET /healthz HTTP/1.1\r\nHost: h\n\r\n", "400", true},
    {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\n", "400", true},
    {"GET /healthz HTTP/1.1\rHost: localhost\r\n\r\n", "400", true},
    {GET "A: b\rC: d\r\n\r\n", "400", true},
    {GET "A: b\r\r\n\r\n", "400", true},
    {GET "\r\r\n", "400", true},
    {GET "A: b\r\n c\r\n\r\n", "400", true},
    {GET "A: b\r\n\tc\r\n\r\n", "400", true},
    {"GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n", "400", true},
    /* Fields: 5.1 and 3.2. */
    {"GET /healthz HTTP/1.1\r\nHost : h\r\n\r\n", "400", true},
    {"GET /healthz HTTP/1.1\r\nHost h\r\n\r\n", "400", true},
    {GET ": x\r\n\r\n", "400", true},
    {GET "A\x01: x\r\n\r\n", "400", true},
    {GET "A: x\x01y\r\n\r\n", "400", true},
    {"GET /healthz HTTP/1.1\r\n\r\n", "400", true},
    {GET "Host: localhost\r\n\r\n", "400", true},
    {"GET /healthz HTTP/1.1\r\nHost: h/x\r\n\r\n", "400", true},
    {"GET /healthz HTTP/1.1\r\nHost: a@h\r\n\r\n", "400", true},
    {"GET /healthz HTTP/1.1\r\nHost: h, i\r\n\r\n", "400", true},
    /* Bodies: 6.1 to 6.3, 7.1. */
    {TAKE_HEAD "Content-Length: 31\r\nContent-Length: 31\r\n\r\n" BODY, "400", true},
    {TAKE_HEAD "Content-Length: 31, 26\r\n\r\n" BODY, "400", true},
    {TAKE_HEAD "Content-Length: +31\r\n\r\n" BODY, "400", true},
    {TAKE_HEAD "Content-Length: -1\r\n\r\n", "400", true},
    {TAKE_HEAD "Content-Length: 99999999999999999999\r\n\r\n", "400", true},
    {TAKE_HEAD "Content-Length: 31\r\nTransfer-Encoding: chunked\r\n\r\n", "400", true},
    {TAKE_HEAD "Transfer-Encoding: chunked\r\nContent-Length: 31\r\n\r\n", "400", true},
    {TAKE_HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n", "501", true},
    {TAKE_HEAD "Transfer-Encoding: chunked, gzip\r\n\r\n", "400", true},
    {TAKE_HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "400", true},
    {"POST /v1/take HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "400", true},
    {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n1f\n" BODY, "400", true},
    {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n1f;x\n\r\n" BODY, "400", true},
    {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n1f\r\n" BODY "0\r\n\r\n", "400", true},
    {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n-1\r\n", "400", true},
    {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", "400", true},
    {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n20000\r\n", "413", true},
    {TAKE_HEAD "Expect: a miracle\r\nContent-Length: 31\r\n\r\n" BODY, "417", true},
    {TAKE_HEAD "Content-Length: 70000\r\n\r\n", "413", true},
    {TAKE_HEAD "Expect: 100-continue\r\nContent-Length: 70000\r\n\r\n", "413", true},
    /* Request lines: 3. */
    {"GET / healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", true},
    {"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", true},
    {"GET /healthz  HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", true},
    {"GET /healthz HTTP/1.1 \r\nHost: localhost\r\n\r\n", "505", true},
    {" GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "501", true},
    {"GET /healthz#a HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", true},
    {"GET /healthz?a#b HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", true},
    {"GET http:///healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", true},
    {"GET http://:80/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", true},
    {"GET http://a@h/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", true},
    {"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", "505", true},
    {"GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n", "505", true},
    {"GET /healthz\r\n\r\n", "505", true},
    {"CONNECT h:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", "501", true},
    {"BREW /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "501", true},
    {"\x16\x03\x01\x02", "501", true},
};

/* Feeds the bytes in pieces of `size`, the first of `first`; the answers and 100s in `answers`. */
static const char *exchange_in_pieces(const char *bytes, size_t first, size_t size)
{
    size_t len = strlen(bytes), at = 0;
    answers[0] = '\0';
    while (at < len) {
        size_t n = at == 0 ? first : size;
        n = n < len - at ? n : len - at;
        conn->ops->feed(conn, span_of(bytes + at, n), t.s.now_ns);
        take_output(answers, sizeof(answers), SIZE_MAX);
        at += n;
    }
    return answers;
}

/* 100 Continue is sent where the body comes in a later piece than the head. */
static void drop_continue(char *text)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    char *found = strstr(text, line);
    if (found != NULL)
        memmove(found, found + sizeof(line) - 1, strlen(found + sizeof(line) - 1) + 1);
}

static void assert_exchange(size_t i, size_t first, size_t size)
{
    hang_up();
    dial();
    exchange_in_pieces(exchanges[i].bytes, first, size);
    drop_continue(answers);
    if (strcmp(statuses_in(answers, false), exchanges[i].statuses) != 0 ||
        conn->ops->is_over(conn) != exchanges[i].is_over)
        fail_msg("%s\n-- in pieces of %zu and %zu is answered --\n%s\n-- instead of %s",
                 exchanges[i].bytes, first, size, answers, exchanges[i].statuses);
    assert_true(conn->ops->held(conn) <= 1024);
}

TEST(requests_are_answered_and_others_refused)
{
    for (size_t i = 0; i < N(exchanges); i++)
        assert_exchange(i, SIZE_MAX, SIZE_MAX);
}

TEST(it_does_not_matter_in_which_pieces_they_come)
{
    for (size_t i = 0; i < N(exchanges); i++) {
        assert_exchange(i, 1, 1);
        assert_exchange(i, 3, 7);
        for (size_t first = 1; first < strlen(exchanges[i].bytes); first++)
            assert_exchange(i, first, SIZE_MAX);
    }
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static void fill(char *at, const char *piece, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(at + i * strlen(piece), piece, strlen(piece));
    at[n * strlen(piece)] = '\0';
}

TEST(what_is_too_long_is_answered_so)
{
    static const struct {
        const char *before, *piece;
        size_t n;
        const char *after, *statuses;
    } cases[] = {
        {"GET /healthz?", "&", 8000, " HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"},
        {"GET /healthz?", "&", 8192, " HTTP/1.1\r\nHost: localhost\r\n\r\n", "414"},
        {"GET /", "x", 90000, " HTTP/1.1\r\nHost: localhost\r\n\r\n", "414"},
        {GET, "a:b\r\n", 1600, "\r\n", "200"},
        {GET, "a:b\r\n", 1700, "\r\n", "431"},
        {GET "X: ", "x", 8192, "\r\n\r\n", "431"},
        {GET "X: ", "x", 90000, "\r\n\r\n", "431"},
        {GET "Cookie: ", "a=b; ", 131, "\r\n\r\n", "200"},
        {"", "\r\n", 4000, OK, "200"},
        {"", "\r\n", 5000, OK, "414"},
        {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", 60000, "0\r\n\r\n", "400"},
        {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", 70000, "0\r\n\r\n", "413"},
        {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n1;", "x", 9000, "\r\nx\r\n0\r\n\r\n", "431"},
        {TAKE_HEAD "Transfer-Encoding: chunked\r\n\r\n0\r\n", "a:b\r\n", 2000, "\r\n", "431"},
    };
    static char bytes[500000];
    for (size_t i = 0; i < N(cases); i++)
        for (size_t size = 1; size <= sizeof(bytes); size = size == 1 ? 1000 : 600 * size) {
            hang_up();
            dial();
            strcpy(bytes, cases[i].before);
            fill(bytes + strlen(bytes), cases[i].piece, cases[i].n);
            strcat(bytes, cases[i].after);
            assert_string_equal(statuses_in(exchange_in_pieces(bytes, size, size), false),
                                cases[i].statuses);
            assert_true(conn->ops->held(conn) <= 1024);
        }
}

TEST(an_answer_to_head_has_no_body)
{
    feed("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /none HTTP/1.1\r\nHost: "
         "localhost\r\n\r\n");
    assert_string_equal(statuses_in(all_output(), true), "200 404");
    assert_non_null(strstr(answers, "Content-Length: 3\r\n"));
    /* Nor one to a head that is refused: this field is invalid. */
    feed("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\na b: c\r\n\r\n");
    assert_string_equal(statuses_in(all_output(), true), "400");
    assert_memory_equal(answers + strlen(answers) - 4, "\r\n\r\n", 4);
}

/* The request whose method is unknown is not the HEAD before it. */
TEST(an_answer_after_one_to_head_has_a_body)
{
    static const char *const unknown[] = {"FOO / HTTP/1.1\r\n", "\r\nPO"};
    for (size_t i = 0; i < N(unknown); i++) {
        feed("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_string_equal(statuses_in(all_output(), true), "200");
        feed(unknown[i]);
        conn->ops->expire(conn, t.s.now_ns);
        assert_string_equal(statuses_in(all_output(), false), i == 0 ? "501" : "408");
        hang_up();
        dial();
    }
}

TEST(an_answer_has_its_date_and_says_whether_the_connection_stays)
{
    http_frontend_set_date(t.frontend, 784111777);
    feed(OK);
    assert_string_equal(all_output(), "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
                                      "Content-Type: text/plain; charset=utf-8\r\n"
                                      "Content-Length: 3\r\n\r\nok\n");
    feed("GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_non_null(strstr(all_output(), "Connection: keep-alive\r\n"));
    feed("GET /healthz HTTP/1.0\r\n\r\n");
    assert_non_null(strstr(all_output(), "Connection: close\r\n"));
}

TEST(a_body_is_asked_for_where_it_is_awaited)
{
    feed(TAKE_HEAD "Expect: 100-continue\r\nContent-Length: 31\r\n\r\n");
    assert_string_equal(all_output(), "HTTP/1.1 100 Continue\r\n\r\n");
    feed(BODY);
    assert_string_equal(statuses_in(all_output(), false), "200");
}

/* ---- Back-pressure and turns ----------------------------------------------------------------- */

TEST(what_is_not_read_is_not_answered_further)
{
    static char requests[20000 * (sizeof(OK) - 1) + 1];
    fill(requests, OK, 20000);
    feed(requests);
    size_t held = conn->ops->held(conn);
    assert_true(unsent() > (size_t)256 << 10);
    assert_true(unsent() < (size_t)257 << 10);
    assert_true(conn->ops->is_backpressured(conn));
    assert_false(conn->ops->has_work(conn));
    assert_true(held < 2 * (sizeof(requests) + ((size_t)257 << 10)));
    size_t n = 0;
    while (unsent() > 0) {
        answers[0] = '\0';
        take_output(answers, sizeof(answers), 256 << 10);
        for (const char *at = answers; (at = strstr(at, "HTTP/1.1 200 OK")) != NULL; at++)
            n++;
    }
    assert_int_equal(n, 20000);
    assert_false(conn->ops->is_backpressured(conn));
    assert_int_equal(conn->ops->held(conn), 0);
}

static int turns_left;

static bool is_turn_over(void *owner)
{
    (void)owner;
    return turns_left-- <= 0;
}

TEST(a_turn_ends_between_two_requests)
{
    conn->turn_is_over = is_turn_over;
    turns_left = 2;
    feed(OK OK OK OK OK);
    assert_string_equal(statuses_in(all_output(), false), "200 200 200");
    assert_true(conn->ops->has_work(conn));
    assert_true(conn->ops->is_backpressured(conn));
    turns_left = 0; /* at least one request in each turn */
    conn->ops->wake(conn, t.s.now_ns);
    assert_string_equal(statuses_in(all_output(), false), "200");
    conn->ops->wake(conn, t.s.now_ns);
    assert_string_equal(statuses_in(all_output(), false), "200");
    assert_false(conn->ops->has_work(conn));
    assert_false(conn->ops->is_backpressured(conn));
}

/* ---- Time ------------------------------------------------------------------------------------ */

TEST(a_request_that_does_not_come_is_answered_408)
{
    static const char *const parts[] = {"G", GET, TAKE_HEAD "Content-Length: 31\r\n\r\n{"};
    for (size_t i = 0; i < N(parts); i++) {
        feed(parts[i]);
        assert_true(conn->ops->is_busy(conn));
        conn->ops->expire(conn, t.s.now_ns);
        assert_string_equal(statuses_in(all_output(), false), "408");
        assert_true(conn->ops->is_over(conn));
        hang_up();
        dial();
    }
}

TEST(an_idle_connection_holds_nothing)
{
    assert_false(conn->ops->is_busy(conn));
    feed(TAKE OK "\r\n");
    all_output();
    assert_false(conn->ops->is_busy(conn));
    assert_true(conn->ops->held(conn) <= 1024);
    assert_true(conn->ops->deadline(conn) == STINT_NEVER_NS);
}

/* ---- Waiting and draining -------------------------------------------------------------------- */

#define WAITING_BODY                                                                               \
    "{\"quota\":\"gcra 1/1s burst=1\",\"key\":\"w\",\"wait_ms\":5000}" /* of 54                    \
                                                                        */
#define WAITING TAKE_HEAD "Content-Length: 54\r\n\r\n" WAITING_BODY

TEST(a_request_that_waits_holds_those_behind_it)
{
    feed(WAITING WAITING OK);
    assert_string_equal(statuses_in(all_output(), false), "200");
    assert_true(conn->ops->deadline(conn) == t.s.now_ns + S);
    assert_true(conn->ops->is_busy(conn));
    assert_false(conn->ops->is_backpressured(conn)); /* to see its peer leave */
    t.s.now_ns += S;
    stint_table_set_now(t.s.table, t.s.now_ns);
    conn->ops->wake(conn, t.s.now_ns);
    assert_string_equal(statuses_in(all_output(), false), "200 200");
    assert_true(conn->ops->deadline(conn) == STINT_NEVER_NS);
}

TEST(a_drain_answers_what_waits_and_ends)
{
    feed(WAITING WAITING OK);
    all_output();
    conn->ops->drain(conn, t.s.now_ns);
    assert_string_equal(statuses_in(all_output(), false), "429 200");
    assert_true(conn->ops->is_over(conn));
}

/* Reloads, as a server numbers them. */
static struct {
    uint64_t asked, ended;
} reloads;

static int reload(void *arg, uint64_t *number, struct stint_error *error)
{
    (void)arg;
    if (*number == 0)
        *number = ++reloads.asked;
    return reloads.ended >= *number ? 0 : err_set(error, STINT_E_BUSY, "not yet");
}

#define RELOAD "POST /v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"

static void dial_and_reload(void)
{
    hang_up();
    http_frontend_free(t.frontend);
    t.frontend = http_frontend_new(&(struct http_frontend_options){
        .service = t.s.service, .config = t.config, .reload = reload});
    assert_non_null(t.frontend);
    dial();
    reloads.asked = reloads.ended = 0;
    feed(RELOAD);
    assert_int_equal(reloads.asked, 1);
}

/* The time of the next look. */
static void wake_later(void)
{
    t.s.now_ns = conn->ops->deadline(conn);
    assert_true(t.s.now_ns != STINT_NEVER_NS);
    conn->ops->wake(conn, t.s.now_ns);
}

TEST(a_request_is_answered_by_a_reload_that_began_after_it)
{
    dial_and_reload();
    hang_up(); /* its reload ends, and no caller is left for the result */
    reloads.ended = 1;
    dial();
    feed(RELOAD RELOAD);
    wake_later();
    assert_int_equal(reloads.asked, 2);
    assert_int_equal(unsent(), 0);
    reloads.ended = 2;
    wake_later();
    assert_string_equal(statuses_in(all_output(), false), "200");
    assert_int_equal(reloads.asked, 3);
    reloads.ended = 3;
    wake_later();
    assert_string_equal(statuses_in(all_output(), false), "200");
}

/* Also one whose client has ended its input. */
TEST(a_connection_that_drains_waits_for_its_reload)
{
    dial_and_reload();
    conn->ops->drain(conn, t.s.now_ns);
    assert_int_equal(unsent(), 0);
    assert_false(conn->ops->is_over(conn));
    wake_later();
    assert_false(conn->ops->is_over(conn));
    reloads.ended = 1;
    wake_later();
    assert_string_equal(statuses_in(all_output(), false), "200");
    assert_true(conn->ops->is_over(conn));
}

TEST(a_frontend_that_drains_ends_connections_with_their_next_answer)
{
    feed(OK);
    http_frontend_drain(t.frontend);
    assert_false(conn->ops->is_over(conn));
    all_output();
    feed(OK OK);
    assert_string_equal(statuses_in(all_output(), false), "200");
    assert_non_null(strstr(answers, "Connection: close\r\n"));
    assert_true(conn->ops->is_over(conn));
}

static struct fake_store red;
static unsigned n_stirs;

static void on_stir(void *owner, uint64_t now_ns)
{
    (void)owner, (void)now_ns;
    n_stirs++;
}

#define BACKEND_BODY                                                                               \
    "{\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"user\",\"value\":\"a\"}]}]}"
#define SHARED TAKE_HEAD "Content-Length: 74\r\n\r\n" BACKEND_BODY

static void with_a_store(void)
{
    static struct backend *stores[1];
    fake_store_begin(&red);
    stores[0] = &red.store;
    service_set_stores(t.s.service,
                       &(struct evaluation_stores){.stores = stores,
                                                   .n_stores = 1,
                                                   .items = 1,
                                                   .timeout_ns = 50 * MS,
                                                   .items_on_error = RULE_STORE_ERROR_ERROR});
    conn->woken = on_stir;
    n_stirs = 0;
}

TEST(a_store_that_answers_lets_the_connection_go_on)
{
    with_a_store();
    feed(SHARED SHARED OK);
    assert_int_equal(unsent(), 0);
    assert_int_equal(red.n_asks, 1);
    fake_let(&red, 0, t.s.now_ns);
    assert_int_equal(n_stirs, 1);
    assert_string_equal(statuses_in(all_output(), false), "200");
    assert_int_equal(red.n_asks, 2);
    conn->ops->drain(conn, t.s.now_ns); /* the store was asked: its answer is waited for */
    assert_false(conn->ops->is_over(conn));
    fake_let(&red, 1, t.s.now_ns);
    assert_string_equal(statuses_in(all_output(), false), "200 200");
    assert_true(conn->ops->is_over(conn));
    fake_store_end(&red);
}

TEST(a_connection_that_ends_leaves_its_store_alone)
{
    with_a_store();
    feed(SHARED);
    assert_int_equal(red.n_asks, 1);
    hang_up();
    assert_null(red.asks[0].op);
    assert_int_equal(n_stirs, 0);
    fake_store_end(&red);
}
