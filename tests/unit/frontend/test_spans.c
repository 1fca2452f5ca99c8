/* SPDX-License-Identifier: MIT */
/* The spans of requests, as each frontend makes them: what they say, and of which requests. */
#define _GNU_SOURCE /* memmem */
#include "unit/fake_store.h"
#include "unit/test_grpc_client.h"
#include "unit/test_http_client.h"
#include "unit/test_protobuf.h"
#include "unit/test_resp_client.h"

#include "service/traces.h"

#define YAML                                                                                       \
    "domain: d\n"                                                                                  \
    "descriptors:\n"                                                                               \
    "  - key: k\n"                                                                                 \
    "    rate_limit: {unit: minute, requests_per_unit: 2}\n"                                       \
    "  - key: soon\n"                                                                              \
    "    rate_limit: {unit: second, requests_per_unit: 1}\n"                                       \
    "  - key: far\n"                                                                               \
    "    rate_limit: {unit: minute, requests_per_unit: 2, store: red}\n"
#define TAKE(key)                                                                                  \
    "POST /v1/take\nContent-Type: application/json\n"                                              \
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n\n"                     \
    "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"" key                             \
    "\",\"value\":\"secret\"}]}]"

static const struct traces_options all = {.ratio = TRACES_RATIO_ALL, .follows_caller = true};
static struct http_client http;
static struct fake_store red;
static struct backend *stores[1];
static uint8_t taken[TRACES_RING_SIZE];
static struct span spans; /* what was taken last */

SETUP
{
    test_traces = resp_traces = &all;
    fake_store_begin(&red);
    stores[0] = &red.store;
}

TEARDOWN
{
    fake_store_end(&red);
}

static void open_http(void)
{
    static const char *const labels[] = {"red"}, *const systems[] = {"redis"};
    http_open(&http, YAML, &(struct http_config_options){.domain = "d"}, NULL);
    service_set_stores(http.s.service, &(struct evaluation_stores){.stores = stores,
                                                                   .labels = labels,
                                                                   .systems = systems,
                                                                   .n_stores = 1,
                                                                   .timeout_ns = 50 * MS});
}

/* How many spans there are since the last time. */
static size_t take_spans(struct server_state *server_state)
{
    uint64_t n = 0;
    spans = span_of(taken, traces_take(server_state_traces(server_state), 0, taken, &n));
    assert_int_equal(wire_count(spans, 2), n);
    assert_null(memmem(spans.ptr, spans.len, "secret", 6));
    return n;
}

static struct span span_at(size_t i)
{
    return wire_bytes_of(spans, 2, i);
}

static void assert_name(size_t i, const char *name)
{
    struct span text = wire_bytes_of(span_at(i), 5, 0);
    if (!span_equals(text, name))
        fail_msg("%.*s, not %s", (int)text.len, (const char *)text.ptr, name);
}

/* The value of an attribute as text; "" where there is none. */
static const char *attribute(size_t i, const char *name)
{
    static char text[256];
    text[0] = '\0';
    for (size_t at = 0; at < wire_count(span_at(i), 9); at++) {
        struct span pair = wire_bytes_of(span_at(i), 9, at), value = wire_bytes_of(pair, 2, 0);
        if (!span_equals(wire_bytes_of(pair, 1, 0), name))
            continue;
        struct span bytes = wire_bytes_of(value, 1, 0);
        if (wire_count(value, 3) > 0)
            snprintf(text, sizeof(text), "%llu", (unsigned long long)wire_number_of(value, 3));
        else
            snprintf(text, sizeof(text), "%.*s", (int)bytes.len, (const char *)bytes.ptr);
    }
    return text;
}

#define assert_attribute(i, name, value) assert_string_equal(attribute(i, name), value)

static bool has_failed(size_t i)
{
    return wire_number_of(wire_bytes_of(span_at(i), 15, 0), 3) == 2;
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

TEST(a_request_over_http_has_a_span)
{
    open_http();
    http_send(&http, TAKE("k") "}");
    http_send(&http, TAKE("k") ",\"cost\":2}");
    http_send(&http, TAKE("k") ",\"cost\":\"x\"}");
    assert_int_equal(take_spans(http.s.server_state), 3);
    assert_name(0, "POST /v1/take");
    assert_int_equal(wire_number_of(span_at(0), 6), 2);
    assert_memory_equal(wire_bytes_of(span_at(0), 1, 0).ptr, "\x0a\xf7\x65", 3);
    assert_memory_equal(wire_bytes_of(span_at(0), 4, 0).ptr, "\xb7\xad\x6b", 3);
    assert_attribute(0, "http.request.method", "POST");
    assert_attribute(0, "http.route", "/v1/take");
    assert_attribute(0, "http.response.status_code", "200");
    assert_attribute(0, "stint.domain", "d");
    assert_attribute(0, "stint.rule", "k");
    assert_attribute(0, "stint.outcome", "allow");
    assert_attribute(0, "stint.limit", "2");
    assert_attribute(0, "stint.remaining", "1");
    assert_attribute(1, "stint.outcome", "deny");
    assert_attribute(1, "http.response.status_code", "429");
    assert_attribute(2, "http.response.status_code", "400");
    assert_attribute(2, "stint.outcome", "");
    assert_false(has_failed(0) || has_failed(1) || has_failed(2));
    http_close(&http);
}

TEST(pages_and_unknown_methods)
{
    open_http();
    http_send(&http, "GET /healthz\n\n");
    http_send(&http, "GET /metrics\n\n");
    http_send(&http, "GET /none\n\n");
    assert_int_equal(take_spans(http.s.server_state), 0);
    http_send(&http, "BREW /auth\n\n");
    assert_int_equal(take_spans(http.s.server_state), 1);
    assert_name(0, "HTTP /auth");
    assert_attribute(0, "http.request.method", "_OTHER");
    http_close(&http);
}

TEST(requests_of_unauthenticated_clients_have_none)
{
    static const char file[] = "ann ask sha256:"
                               "0000000000000000000000000000000000000000000000000000000000000000\n";
    struct access *access;
    struct stint_error error;
    if (access_load(&access, "tokens", span_of_text(file), &error) != 0)
        fail_msg("%s", error.message);
    struct access_now *now = access_now_new(access);
    http_open(&http, YAML, &(struct http_config_options){.domain = "d"}, now);
    assert_int_equal(status_of(&http, TAKE("k") "}"), 401);
    assert_int_equal(take_spans(http.s.server_state), 0);
    http_close(&http);
    access_now_free(now);
}

static void wait_for_store(void)
{
    uint64_t again_ns;
    assert_null(http_send_or_wait(&http, TAKE("far") "}", &again_ns));
    assert_non_null(http.pending);
    assert_int_equal(take_spans(http.s.server_state), 0);
}

TEST(a_request_to_a_store_is_a_span_below)
{
    open_http();
    wait_for_store();
    fake_let(&red, 0, http.s.now_ns + 3 * MS);
    http_send(&http, TAKE("far") "}");
    assert_int_equal(take_spans(http.s.server_state), 2);
    assert_name(0, "take red");
    assert_int_equal(wire_number_of(span_at(0), 6), 3);
    assert_attribute(0, "db.system.name", "redis");
    assert_attribute(0, "db.operation.name", "take");
    assert_attribute(0, "stint.store", "red");
    assert_name(1, "POST /v1/take");
    assert_attribute(1, "stint.outcome", "allow");
    assert_memory_equal(wire_bytes_of(span_at(0), 1, 0).ptr, wire_bytes_of(span_at(1), 1, 0).ptr,
                        16);
    assert_memory_equal(wire_bytes_of(span_at(0), 4, 0).ptr, wire_bytes_of(span_at(1), 2, 0).ptr,
                        8);
    uint64_t begin, end;
    memcpy(&begin, wire_bytes_of(span_at(0), 7, 0).ptr, 8);
    memcpy(&end, wire_bytes_of(span_at(0), 8, 0).ptr, 8);
    assert_int_equal(end - begin, 3 * MS);
    http_close(&http);
}

TEST(a_store_that_fails_is_told)
{
    open_http();
    wait_for_store();
    fake_fail(&red, 0, http.s.now_ns + 50 * MS);
    http_send(&http, TAKE("far") "}");
    assert_int_equal(take_spans(http.s.server_state), 2);
    assert_true(has_failed(0));
    assert_attribute(0, "error.type", "other");
    http_close(&http);
}

TEST(an_abandoned_request_has_a_failed_span)
{
    open_http();
    wait_for_store();
    service_drop(http.s.service, http.pending);
    assert_int_equal(take_spans(http.s.server_state), 1);
    assert_name(0, "POST /v1/take");
    assert_true(has_failed(0));
    assert_attribute(0, "http.response.status_code", "");
    http_close(&http);
}

TEST(a_request_that_waits_for_its_time_has_one_span)
{
    uint64_t again_ns;
    open_http();
    http_send(&http, TAKE("soon") "}");
    assert_null(http_send_or_wait(&http, TAKE("soon") ",\"wait_ms\":9000}", &again_ns));
    assert_int_equal(take_spans(http.s.server_state), 1);
    http.s.now_ns = again_ns;
    stint_table_set_now(http.s.table, again_ns);
    http_send(&http, TAKE("soon") ",\"wait_ms\":9000}");
    assert_int_equal(take_spans(http.s.server_state), 1);
    assert_attribute(0, "stint.outcome", "allow");
    http_close(&http);
}

/* ---- gRPC ------------------------------------------------------------------------------------ */

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

TEST(a_call_has_a_span)
{
    static const struct field more[] = {
        {"traceparent", PARENT}, {"tracestate", "a=1"}, {"tracestate", "b=2"}, {NULL, NULL}};
    struct grpc_client *grpc = grpc_open(YAML, NULL, NULL);
    struct heard *heard = call_limit(grpc, "k=secret", more);
    exchange(grpc);
    assert_code(heard, 1);
    assert_int_equal(take_spans(grpc->s.server_state), 1);
    assert_name(0, "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    assert_attribute(0, "rpc.system", "grpc");
    assert_attribute(0, "rpc.service", "envoy.service.ratelimit.v3.RateLimitService");
    assert_attribute(0, "rpc.method", "ShouldRateLimit");
    assert_attribute(0, "rpc.grpc.status_code", "0");
    assert_attribute(0, "stint.rule", "k");
    assert_attribute(0, "stint.outcome", "allow");
    assert_true(span_equals(wire_bytes_of(span_at(0), 3, 0), "a=1,b=2"));
    call_bytes(grpc, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
               span_of("\0\0\0\0\1\xff", 6), NULL);
    call_path(grpc, "/grpc.health.v1.Health/Check", span_of("", 0));
    exchange(grpc);
    assert_int_equal(take_spans(grpc->s.server_state), 1);
    assert_attribute(0, "rpc.grpc.status_code", "3");
    grpc_close(grpc);
}

/* ---- RESP ------------------------------------------------------------------------------------ */

TEST(commands_have_spans_and_may_be_ahead)
{
    resp_open();
    resp_use_stores(stores, NULL, 1);
    open_frontend(NULL, NULL);
    feed("PING\r\nCL.THROTTLE secret1 1 60 60\r\nCL.THROTTLE secret2 1 60 60\r\n");
    assert_int_equal(red.n_asks, 2);
    assert_int_equal(take_spans(resp.server_state), 0);
    fake_let(&red, 1, resp.now_ns);
    fake_let(&red, 0, resp.now_ns);
    assert_int_equal(take_spans(resp.server_state), 4);
    assert_name(1, "cl.throttle");
    assert_attribute(1, "rpc.system", "resp");
    assert_attribute(1, "stint.outcome", "allow");
    assert_name(3, "cl.throttle");
    feed("CL.THROTTLE secret1 1 60 60\r\n");
    hang_up();
    assert_int_equal(take_spans(resp.server_state), 1);
    assert_true(has_failed(0));
    resp_close();
}
