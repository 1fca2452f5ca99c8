/* SPDX-License-Identifier: MIT */
/* How a gRPC connection lives and ends: watchers, reflection, back-pressure, drain and age. */
#include "unit/test_grpc_client.h"

#include "proto/grpc/grpc.h"
#include "proto/grpc/rls.h"
#include "service/metrics/metrics.h"
#include "unit/test_http_client.h"

#define YAML                                                                                       \
    "domain: d\n"                                                                                  \
    "descriptors:\n"                                                                               \
    "  - key: k\n"                                                                                 \
    "    rate_limit: {unit: minute, requests_per_unit: 1000}\n"

static struct grpc_client *grpc;

SETUP
{
    grpc = grpc_open(YAML, NULL, NULL);
}

TEARDOWN
{
    grpc_close(grpc);
}

static void reopen(const struct grpc_limits *limits)
{
    grpc_close(grpc);
    grpc = grpc_open(YAML, limits, NULL);
}

/* The statuses that were told, as text: "1 2". */
static const char *told(const struct heard *heard)
{
    static char text[256];
    struct span rest = span_of(heard->data, heard->len);
    struct grpc_frame frame;
    struct stint_error error;
    size_t at = 0;
    text[0] = '\0';
    while (rest.len > 0) {
        int len = grpc_frame_read(rest, 1024, &frame, &error);
        assert_true(len > 0 && at < sizeof(text) - 8);
        at += (size_t)snprintf(text + at, sizeof(text) - at, at > 0 ? " %u" : "%u",
                               (unsigned)wire_number_of(frame.message, 1));
        rest = span_of(rest.ptr + len, rest.len - (size_t)len);
    }
    return text;
}

static struct heard *ask_health(const char *method, const char *service, const struct field *more)
{
    char path[64];
    struct wire message = {.len = 0};
    wire_span(&message, 1, span_of_text(service));
    snprintf(path, sizeof(path), HEALTH "%s", method);
    struct heard *heard = call_bytes(grpc, path, framed(wired(&message)), more);
    exchange(grpc);
    return heard;
}

/* ---- Health ---------------------------------------------------------------------------------- */

TEST(health_is_that_of_the_server)
{
    assert_code(ask_health("Check", "", NULL), HEALTH_SERVING);
    assert_code(ask_health("Check", "ratelimit", NULL), HEALTH_SERVING);
    assert_status(ask_health("Check", "nobody", NULL), GRPC_NOT_FOUND, "");
    grpc->is_ready = false;
    assert_code(ask_health("Check", "", NULL), HEALTH_NOT_SERVING);
    grpc->is_ready = true;
    grpc_frontend_drain(grpc->frontend);
    assert_code(ask_health("Check", "", NULL), HEALTH_NOT_SERVING);
    struct heard *list = ask_health("List", "", NULL);
    assert_status(list, GRPC_OK, "");
    assert_true(message_of(list).len > 0);
}

/* As /readyz: a store that is needed is away, then another that is not. */
TEST(a_server_without_its_store_does_not_serve)
{
    struct metrics *metrics = server_state_metrics(grpc->s.server_state);
    struct http_config *config;
    struct http_client http = {.s = grpc->s, .peer = "127.0.0.1"};
    assert_true(metrics_add_store(metrics, "cache", false));
    assert_true(metrics_add_store(metrics, "main", true));
    assert_int_equal(http_config_new(&config, &(struct http_config_options){0}, NULL), 0);
    http.frontend = http_frontend_new(
        &(struct http_frontend_options){.service = grpc->s.service, .config = config});
    assert_non_null(http.frontend);
    struct heard *watcher = ask_health("Watch", "", NULL);
    for (uint64_t which = 0; which < 4; which++) { /* of the stores, as bits */
        for (size_t i = 0; i < 2; i++)
            backend_metric_set(&metrics_store(metrics, i, 1)->unavailable_since_ns,
                               (which >> i & 1) * grpc->s.now_ns);
        bool serves = (which & 2) == 0;
        assert_code(ask_health("Check", "", NULL), serves ? HEALTH_SERVING : HEALTH_NOT_SERVING);
        assert_int_equal(status_of(&http, "GET /readyz\n"), serves ? 200 : 503);
        pass(grpc, 500 * MS);
        exchange(grpc);
        assert_string_equal(told(watcher), serves ? "1" : "1 2");
    }
    http_frontend_free(http.frontend);
    http_config_free(config);
}

TEST(watchers_are_told_at_once_and_when_it_changes)
{
    struct heard *known = ask_health("Watch", "", NULL);
    struct heard *unknown = ask_health("Watch", "nobody", NULL);
    assert_string_equal(told(known), "1");
    assert_string_equal(told(unknown), "3");
    assert_true(grpc->conn->ops->is_busy(grpc->conn));
    pass(grpc, 2 * S);
    assert_false(hear_all(grpc));
    grpc->is_ready = false;
    pass(grpc, 500 * MS);
    exchange(grpc);
    assert_string_equal(told(known), "1 2");
    grpc->is_ready = true;
    pass(grpc, 500 * MS);
    exchange(grpc);
    assert_string_equal(told(known), "1 2 1");
    grpc_frontend_drain(grpc->frontend);
    pass(grpc, 500 * MS);
    exchange(grpc);
    assert_string_equal(told(known), "1 2 1 2");
    assert_string_equal(told(unknown), "3");
    assert_false(known->is_closed || unknown->is_closed);
}

TEST(a_watcher_goes_when_it_likes_or_its_time_is_up)
{
    const struct field more[] = {{"grpc-timeout", "1200m"}, {NULL, NULL}};
    struct heard *timed = ask_health("Watch", "", more);
    struct heard *other = ask_health("Watch", "", NULL);
    pass(grpc, 1200 * MS - 1);
    exchange(grpc);
    assert_false(timed->is_closed);
    pass(grpc, 1);
    exchange(grpc);
    assert_status(timed, GRPC_DEADLINE_EXCEEDED, "");
    assert_true(timed->is_closed);
    nghttp2_submit_rst_stream(grpc->client, NGHTTP2_FLAG_NONE, other->id, NGHTTP2_CANCEL);
    exchange(grpc);
    assert_int_equal(grpc->conn->ops->deadline(grpc->conn), STINT_NEVER_NS);
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
    grpc_frontend_drain(grpc->frontend); /* no call watches any more */
}

TEST(changes_that_a_window_has_no_space_for_are_told_as_one)
{
    const nghttp2_settings_entry none = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    nghttp2_submit_settings(grpc->client, NGHTTP2_FLAG_NONE, &none, 1);
    exchange(grpc);
    struct heard *heard = ask_health("Watch", "", NULL);
    assert_int_equal(heard->len, 0);
    for (int i = 0; i < 51; i++) {
        grpc->is_ready = !grpc->is_ready;
        pass(grpc, 500 * MS);
    }
    nghttp2_submit_window_update(grpc->client, NGHTTP2_FLAG_NONE, heard->id, 100);
    exchange(grpc);
    assert_string_equal(told(heard), "1 2");
}

TEST(a_watcher_whose_window_is_shut_holds_up_no_drain)
{
    const nghttp2_settings_entry none = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    nghttp2_submit_settings(grpc->client, NGHTTP2_FLAG_NONE, &none, 1);
    exchange(grpc);
    struct heard *heard = ask_health("Watch", "", NULL);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    exchange(grpc);
    pass(grpc, 30 * S - 1);
    assert_false(is_over(grpc));
    pass(grpc, 1);
    exchange(grpc);
    assert_int_equal(heard->close_code, NGHTTP2_CANCEL);
    assert_true(is_over(grpc));
}

/* ---- Reflection ------------------------------------------------------------------------------ */

/* list_services. */
static struct span list_request(void)
{
    static struct wire message;
    message.len = 0;
    wire_span(&message, 7, span_of_text(""));
    return framed(wired(&message));
}

TEST(reflection_answers_each_request_until_the_client_ends)
{
    const struct field fields[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":authority", "stint"},
                                   {":path", REFLECTION},
                                   {"content-type", "application/grpc"}};
    struct span once = list_request();
    enum { n = 7 };
    uint8_t requests[256];
    for (size_t i = 0; i < n; i++)
        memcpy(requests + i * once.len, once.ptr, once.len);
    struct heard *heard = call_with(grpc, fields, N(fields), span_of(requests, n * once.len), true);
    heard->says_len = once.len + 2;
    exchange(grpc);
    size_t len = heard->len;
    assert_true(len > 0);
    assert_int_equal(heard->status, -1);
    for (size_t i = 0; i < 6; i++) { /* its time begins anew with each answer */
        pass(grpc, 20 * S);
        heard->says_len = i < 5 ? heard->says_len + once.len : n * once.len;
        heard->says_more = i < 5;
        nghttp2_session_resume_data(grpc->client, heard->id);
        exchange(grpc);
    }
    assert_int_equal(heard->len, n * len);
    assert_status(heard, GRPC_OK, "");
    assert_true(heard->is_closed);
}

TEST(reflection_that_is_cut_or_wrong_is_refused)
{
    struct span once = list_request();
    struct heard *cut = call_bytes(grpc, REFLECTION, span_of(once.ptr, once.len - 1), NULL);
    struct heard *wrong = call_bytes(grpc, REFLECTION, span_of("\0\0\0\0\1\xff", 6), NULL);
    exchange(grpc);
    assert_status(cut, GRPC_INTERNAL, "the request ends within a message");
    assert_status(wrong, GRPC_INVALID_ARGUMENT, "");
}

/* As many as fit into the bytes, all at once. */
static struct heard *ask_much(size_t size)
{
    static uint8_t requests[64000];
    struct span once = list_request();
    size_t n = size / once.len * once.len;
    for (size_t at = 0; at < n; at += once.len)
        memcpy(requests + at, once.ptr, once.len);
    struct heard *heard = call_bytes(grpc, REFLECTION, span_of(requests, n), NULL);
    exchange(grpc);
    return heard;
}

static void shut_windows(void)
{
    const nghttp2_settings_entry none = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    nghttp2_submit_settings(grpc->client, NGHTTP2_FLAG_NONE, &none, 1);
    exchange(grpc);
}

TEST(reflection_asked_at_once_is_answered_as_it_is_read)
{
    struct heard *heard = ask_much(20000);
    assert_status(heard, GRPC_OK, "");
    assert_true(heard->len > 300000);
    shut_windows();
    heard = ask_much(10000);
    assert_int_equal(heard->len, 0);
    while (!heard->is_closed) {
        size_t len = heard->len;
        nghttp2_submit_window_update(grpc->client, NGHTTP2_FLAG_NONE, heard->id, 1 << 16);
        exchange(grpc);
        assert_true(heard->is_closed || heard->len == len + (1 << 16));
    }
    assert_status(heard, GRPC_OK, "");
}

/* Messages of reflection wait for the next turn meanwhile. */
TEST(a_watch_that_has_not_ended_waits_beside_reflection)
{
    static const struct field fields[] = {{":method", "POST"},
                                          {":scheme", "http"},
                                          {":authority", "stint"},
                                          {":path", HEALTH "Watch"},
                                          {"content-type", "application/grpc"}};
    struct heard *watch = call_with(grpc, fields, N(fields), framed(span_of(NULL, 0)), true);
    assert_status(ask_much(20000), GRPC_OK, "");
    assert_int_equal(watch->len, 0);
    assert_int_equal(watch->status, -1);
}

TEST(reflection_that_is_asked_and_not_read_is_bounded)
{
    shut_windows();
    struct heard *heard = ask_much(64000);
    nghttp2_submit_window_update(grpc->client, NGHTTP2_FLAG_NONE, heard->id, 1 << 20);
    exchange(grpc);
    assert_status(heard, GRPC_RESOURCE_EXHAUSTED, "the answers are not read");
    assert_in_range(heard->len, 100, 1000); /* the one that waited */
}

/* ---- Time ------------------------------------------------------------------------------------ */

static const struct field reflection_fields[] = {{":method", "POST"},
                                                 {":scheme", "http"},
                                                 {":authority", "stint"},
                                                 {":path", REFLECTION},
                                                 {"content-type", "application/grpc"}};

TEST(reflection_that_asks_no_more_ends)
{
    struct span once = list_request();
    const struct span begun[] = {span_of("", 0), span_of(once.ptr, 3), once};
    for (size_t i = 0; i < N(begun); i++) {
        struct heard *heard =
            call_with(grpc, reflection_fields, N(reflection_fields), begun[i], true);
        exchange(grpc);
        pass(grpc, 30 * S - 1);
        exchange(grpc);
        assert_int_equal(heard->status, -1);
        pass(grpc, 1);
        exchange(grpc);
        assert_status(heard, GRPC_DEADLINE_EXCEEDED, "the request does not end");
        assert_true(heard->is_closed);
    }
}

/* A watcher is asked by a PING, and any answer will do. */
TEST(a_peer_that_watches_has_to_be_there)
{
    struct heard *heard = ask_health("Watch", "", NULL);
    for (int i = 0; i < 5; i++) {
        pass(grpc, 60 * S);
        assert_true(hear_all(grpc)); /* the PING */
        exchange(grpc);
        assert_false(is_over(grpc));
    }
    assert_false(heard->is_closed);
    pass(grpc, 120 * S - 1);
    assert_false(is_over(grpc));
    pass(grpc, 500 * MS);
    hear_all(grpc);
    assert_true(is_over(grpc));
    assert_int_equal(grpc->goaway_code, NGHTTP2_NO_ERROR);
}

/* ---- Whoever does not read ------------------------------------------------------------------- */

TEST(a_choked_connection_writes_nothing_more)
{
    const struct grpc_limits limits = {.output_bytes = 1000};
    reopen(&limits);
    exchange(grpc);
    for (int i = 0; i < 200; i++)
        call_limit(grpc, "k=a", NULL);
    say_at_once(grpc);
    assert_true(grpc->conn->ops->is_backpressured(grpc->conn));
    assert_in_range(grpc->conn->ops->output(grpc->conn).len, 1001, 1200);
    exchange(grpc);
    assert_false(grpc->conn->ops->is_backpressured(grpc->conn));
    for (int i = 0; i < 200; i++)
        assert_code(&grpc->heard[i], RLS_CODE_OK);
}

TEST(answers_go_through_tiny_windows_byte_by_byte)
{
    const nghttp2_settings_entry none = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    nghttp2_submit_settings(grpc->client, NGHTTP2_FLAG_NONE, &none, 1);
    exchange(grpc);
    struct heard *heard = call_limit(grpc, "k=a", NULL);
    exchange(grpc);
    assert_int_equal(heard->http_status, 200);
    assert_int_equal(heard->len, 0);
    assert_true(grpc->conn->ops->is_busy(grpc->conn));
    for (int i = 0; !heard->is_closed; i++) {
        assert_true(i < 100);
        nghttp2_submit_window_update(grpc->client, NGHTTP2_FLAG_NONE, heard->id, 1);
        exchange(grpc);
    }
    assert_code(heard, RLS_CODE_OK);
}

TEST(an_answer_that_is_not_read_in_time_is_given_up)
{
    const nghttp2_settings_entry none = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    nghttp2_submit_settings(grpc->client, NGHTTP2_FLAG_NONE, &none, 1);
    exchange(grpc);
    struct heard *heard = call_limit(grpc, "k=a", NULL);
    exchange(grpc);
    pass(grpc, 30 * S);
    exchange(grpc);
    assert_true(heard->is_closed);
    assert_int_equal(heard->close_code, NGHTTP2_CANCEL);
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
}

/* ---- Ends ------------------------------------------------------------------------------------ */

TEST(a_drain_takes_what_is_on_its_way_and_ends)
{
    struct heard *before = call_limit(grpc, "k=a", NULL);
    exchange(grpc);
    assert_code(before, RLS_CODE_OK);
    struct heard *crossing = call_limit(grpc, "k=a", NULL);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    assert_false(is_over(grpc));
    say_all(grpc); /* it was said before the GOAWAY is heard */
    exchange(grpc);
    assert_code(crossing, RLS_CODE_OK);
    assert_int_equal(grpc->n_goaways, 2);
    assert_int_equal(grpc->goaway_code, NGHTTP2_NO_ERROR);
    assert_int_equal(grpc->goaway_last, crossing->id);
    assert_true(is_over(grpc));
    assert_int_equal(grpc->conn->ops->deadline(grpc->conn), STINT_NEVER_NS);
}

TEST(a_drain_does_not_wait_for_long_for_who_is_silent)
{
    exchange(grpc);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    hear_all(grpc);
    assert_int_equal(grpc->n_goaways, 1);
    assert_int_equal(grpc->goaway_last, INT32_MAX);
    pass(grpc, S - 1);
    assert_false(is_over(grpc));
    pass(grpc, 1);
    hear_all(grpc);
    assert_int_equal(grpc->n_goaways, 2);
    assert_true(is_over(grpc));
}

TEST(a_second_drain_does_not_wait)
{
    exchange(grpc);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    assert_true(is_over(grpc));
    hear_all(grpc);
    assert_int_equal(grpc->n_goaways, 2);
}

TEST(a_client_that_has_its_replies_and_ends_its_input_is_not_waited_for)
{
    struct heard *asked = call_limit(grpc, "k=a", NULL);
    exchange(grpc);
    assert_code(asked, RLS_CODE_OK);
    grpc->conn->ops->end_input(grpc->conn, grpc->s.now_ns);
    assert_true(is_over(grpc));
    hear_all(grpc);
    assert_int_equal(grpc->n_goaways, 1);
}

TEST(a_client_that_only_connected_is_not_waited_for)
{
    grpc->conn->ops->end_input(grpc->conn, grpc->s.now_ns);
    assert_true(is_over(grpc));
}

/* A connection that the kernel had, and its client has not spoken on yet. */
TEST(a_drain_meets_who_has_just_come)
{
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    assert_false(is_over(grpc));
    assert_int_equal(grpc->conn->ops->output(grpc->conn).len, 0);
    struct heard *heard = call_limit(grpc, "k=a", NULL);
    exchange(grpc); /* what was sent with the first bytes is answered */
    assert_code(heard, RLS_CODE_OK);
    assert_int_equal(grpc->n_goaways, 2);
    assert_true(is_over(grpc));
}

TEST(a_drain_of_who_says_nothing_is_short)
{
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    pass(grpc, S);
    assert_true(is_over(grpc));
    reopen(NULL);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    assert_true(is_over(grpc));
    assert_int_equal(grpc->conn->ops->output(grpc->conn).len, 0);
}

TEST(a_drain_of_who_has_said_goodbye_is_short)
{
    exchange(grpc);
    nghttp2_submit_goaway(grpc->client, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
    exchange(grpc);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    assert_true(is_over(grpc));
}

TEST(half_a_call_is_waited_for_and_watchers_are_not)
{
    struct asked asked;
    struct wire message;
    const struct field fields[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":authority", "stint"},
                                   {":path", SHOULD_RATE_LIMIT},
                                   {"content-type", "application/grpc"}};
    struct heard *watcher = ask_health("Watch", "", NULL);
    struct heard *half =
        call_with(grpc, fields, N(fields),
                  framed(wire_of_request(&message, descriptors_of(&asked, "k=a"))), true);
    exchange(grpc);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    exchange(grpc);
    assert_status(watcher, GRPC_UNAVAILABLE, "the connection ends");
    assert_true(watcher->is_closed);
    assert_false(is_over(grpc));
    half->says_more = false;
    nghttp2_session_resume_data(grpc->client, half->id);
    exchange(grpc);
    assert_code(half, RLS_CODE_OK);
    assert_true(is_over(grpc));
}

TEST(no_call_is_taken_behind_the_last)
{
    exchange(grpc);
    struct heard *late = call_limit(grpc, "k=a", NULL);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    say_all(grpc);
    exchange(grpc);
    assert_int_equal(late->status, -1);
    assert_int_equal(grpc->goaway_last, 0);
    assert_int_equal(left(&grpc->s, "k=a"), 1000);
}

TEST(a_connection_of_age_is_asked_to_be_made_anew)
{
    const struct grpc_limits limits = {.age_ns = 100 * S, .age_grace_ns = 10 * S};
    uint64_t least_ns = UINT64_MAX, most_ns = 0;
    reopen(&limits);
    for (int i = 0; i < 100; i++) {
        struct conn *conn = grpc_conn_new(grpc->frontend, span_of(NULL, 0), grpc->s.now_ns);
        uint64_t age_ns = conn->ops->deadline(conn) - grpc->s.now_ns;
        least_ns = age_ns < least_ns ? age_ns : least_ns;
        most_ns = age_ns > most_ns ? age_ns : most_ns;
        conn->ops->free(conn);
    }
    assert_in_range(least_ns, 90 * S, 95 * S);
    assert_in_range(most_ns, 105 * S, 110 * S);
    struct heard *half = call_bytes(grpc, REFLECTION, span_of("", 0), NULL);
    exchange(grpc);
    assert_true(half->is_closed);
    pass(grpc, grpc->conn->ops->deadline(grpc->conn) - grpc->s.now_ns);
    exchange(grpc);
    assert_int_equal(grpc->n_goaways, 2);
    assert_int_equal(grpc->goaway_code, NGHTTP2_NO_ERROR);
    assert_true(is_over(grpc));
}

TEST(the_grace_of_an_old_connection_ends)
{
    const struct grpc_limits limits = {
        .age_ns = 100 * S, .age_grace_ns = 10 * S, .call_ns = 1000 * S};
    const struct field fields[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":authority", "stint"},
                                   {":path", SHOULD_RATE_LIMIT},
                                   {"content-type", "application/grpc"}};
    reopen(&limits);
    call_with(grpc, fields, N(fields), span_of("\0", 1), true);
    exchange(grpc);
    pass(grpc, grpc->conn->ops->deadline(grpc->conn) - grpc->s.now_ns);
    exchange(grpc);
    assert_int_equal(grpc->n_goaways, 2);
    pass(grpc, 10 * S - 1);
    assert_false(is_over(grpc));
    pass(grpc, 1);
    assert_true(is_over(grpc));
    assert_true(hear_all(grpc));
    assert_int_equal(grpc->goaway_code, NGHTTP2_NO_ERROR);
}
