/* SPDX-License-Identifier: MIT */
/*
 * The functions of stint that one warm request enters, in their order. Compiled with
 * -finstrument-functions; bench/calls.py builds it, runs it, and counts. Bytes go in and out of a
 * connection, with no socket:
 *
 *     throttle   CL.THROTTLE: feed, output and sent of a RESP connection
 *     rls        ShouldRateLimit of one descriptor: the same of a gRPC connection
 *     store      a take of one descriptor over Redis: the request to a service, the command sent,
 *                its reply fed, and the request again
 *
 * A line for each call: the load, its depth, and the function's address less that of main().
 */
#include "backend/front/front.h"
#include "backend/front/lease.h"
#include "backend/redis/redis_backend.h"
#include "backend/script/script.h"
#include "base/ns.h"
#include "frontend/grpc/grpc_conn.h"
#include "frontend/resp/resp_conn.h"
#include "rules/yaml/rules_load.h"

#include <inttypes.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM 100 /* requests before the one that is counted */
#define CALLS_MAX 65536
#define STEP_NS 500000

int main(void);
void __cyg_profile_func_enter(void *function, void *from);
void __cyg_profile_func_exit(void *function, void *from);

static struct {
    intptr_t function;
    unsigned depth;
} calls[CALLS_MAX];
static size_t n_calls;
static unsigned depth;
static bool is_counting;

void __cyg_profile_func_enter(void *function, void *from)
{
    (void)from;
    depth++;
    if (!is_counting || n_calls == CALLS_MAX)
        return;
    calls[n_calls].function = (intptr_t)function;
    calls[n_calls++].depth = depth;
}

void __cyg_profile_func_exit(void *function, void *from)
{
    (void)function, (void)from;
    depth--;
}

static _Noreturn void die(const char *message)
{
    fprintf(stderr, "calls: %s\n", message);
    exit(1);
}

/* ---- A server ------------------------------------------------------------------------------- */

static const char yaml[] = "domain: d\n"
                           "descriptors:\n"
                           "  - key: here\n"
                           "    rate_limit: {unit: minute, requests_per_unit: 1000000}\n"
                           "  - key: there\n"
                           "    rate_limit: {unit: minute, requests_per_unit: 1000000, "
                           "store: default}\n";

static struct stint_table *table;
static struct server_state *server_state;
static struct service *service;
static uint64_t now_ns = NS_PER_HOUR;

static int accepts(void *arg, size_t store, const struct rule *rule,
                   const struct stint_quota *quota, struct stint_error *error)
{
    (void)arg, (void)store, (void)rule;
    return script_accepts(quota, error);
}

static void open_service(void)
{
    static const char *const names[] = {RULES_STORE_DEFAULT};
    const struct stint_table_options size = {
        .keys = 1000, .clock = STINT_CLOCK_VIRTUAL, .hash_key = {1, 2}};
    const struct rules_file file = {.path = "calls.yaml", .text = span_of_text(yaml)};
    const struct rules_load_options how = {.stores = names, .n_stores = 1};
    struct stint_error error;
    struct rules_diagnostics diagnostics;
    struct rules *rules = rules_load(&file, 1, &how, &diagnostics);
    if (rules == NULL)
        die(diagnostics.diagnostics[0].message);
    rules_diagnostics_free(&diagnostics);
    if (stint_table_open(&table, &size, &error) != 0)
        die(error.message);
    const struct server_state_options options = {
        .table = table, .rules = rules, .workers = 1, .store_accepts = accepts};
    if (server_state_open(&server_state, &options, &error) != 0)
        die(error.message);
    rules_unref(rules);
    service = service_new(server_state, 0);
    if (service == NULL)
        die("no memory for a service");
}

/* ---- A connection ---------------------------------------------------------------------------- */

/* Bytes that one request makes a connection reply with, from `bytes` for as long as they last. */
static struct span answered(struct conn *conn, struct span bytes)
{
    static uint8_t reply[4096];
    is_counting = true;
    conn->ops->feed(conn, bytes, now_ns);
    struct span output = conn->ops->output(conn);
    is_counting = false;
    if (output.len == 0 || output.len > sizeof(reply))
        die("a request has no reply");
    memcpy(reply, output.ptr, output.len);
    is_counting = true;
    conn->ops->sent(conn, output.len, now_ns);
    is_counting = false;
    return span_of(reply, output.len);
}

static struct conn *resp;

static void open_resp(void)
{
    struct resp_frontend *frontend = resp_frontend_new(service, NULL, NULL);
    resp = frontend != NULL ? resp_conn_new(frontend, span_of(NULL, 0)) : NULL;
    if (resp == NULL)
        die("no memory for a connection");
}

static void throttle(void)
{
    static const char command[] =
        "*5\r\n$11\r\nCL.THROTTLE\r\n$3\r\nkey\r\n$4\r\n9999\r\n$5\r\n10000\r\n$1\r\n1\r\n";
    struct span reply = answered(resp, span_of(command, sizeof(command) - 1));
    if (memcmp(reply.ptr, "*5\r\n:0\r\n", 8) != 0)
        die("CL.THROTTLE does not allow");
}

static struct conn *grpc;
static nghttp2_session *client;

static ssize_t read_message(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t size,
                            uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    /* domain "d", one descriptor here=key */
    static const char message[] = "\0\0\0\0\x12\x0a\1d\x12\x0d\x0a\x0b\x0a\4here\x12\3key";
    (void)session, (void)id, (void)size, (void)source, (void)arg;
    memcpy(bytes, message, sizeof(message) - 1);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    return sizeof(message) - 1;
}

static int on_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                    size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                    void *arg)
{
    (void)session, (void)frame, (void)flags;
    if (span_equals(span_of(name, name_len), "grpc-status"))
        *(bool *)arg = span_equals(span_of(value, value_len), "0");
    return 0;
}

static bool is_ok;

static void open_grpc(void)
{
    nghttp2_session_callbacks *callbacks;
    struct grpc_frontend *frontend =
        grpc_frontend_new(&(struct grpc_frontend_options){.service = service});
    grpc = frontend != NULL ? grpc_conn_new(frontend, span_of(NULL, 0), now_ns) : NULL;
    if (grpc == NULL || nghttp2_session_callbacks_new(&callbacks) != 0)
        die("no memory for a connection");
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_field);
    if (nghttp2_session_client_new(&client, callbacks, &is_ok) != 0)
        die("no memory for a client");
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(client, NGHTTP2_FLAG_NONE, NULL, 0);
}

static void rls(void)
{
#define FIELD(name, value)                                                                         \
    {                                                                                              \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1, 0              \
    }
    static const nghttp2_nv fields[] = {
        FIELD(":method", "POST"),
        FIELD(":scheme", "http"),
        FIELD(":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
        FIELD(":authority", "ratelimit"),
        FIELD("content-type", "application/grpc"),
        FIELD("te", "trailers"),
    };
    const nghttp2_data_provider provider = {.read_callback = read_message};
    uint8_t feed[4096];
    const uint8_t *bytes;
    size_t len = 0;
    ssize_t n;
    nghttp2_submit_request(client, NULL, fields, sizeof(fields) / sizeof(fields[0]), &provider,
                           NULL);
    for (; (n = nghttp2_session_mem_send(client, &bytes)) > 0; len += (size_t)n) {
        if (len + (size_t)n > sizeof(feed))
            die("a request is too long");
        memcpy(feed + len, bytes, (size_t)n);
    }
    is_ok = false;
    struct span reply = answered(grpc, span_of(feed, len));
    if (nghttp2_session_mem_recv(client, reply.ptr, reply.len) != (ssize_t)reply.len || !is_ok)
        die("ShouldRateLimit does not reply");
}

/* ---- A store --------------------------------------------------------------------------------- */

static struct redis_conn *redis;
static void *redis_arg;
static struct backend *chain;

static uint64_t dialer_now(struct dialer *dialer)
{
    (void)dialer;
    return now_ns;
}

static uint64_t lease_now(void *arg)
{
    (void)arg;
    return now_ns;
}

static bool dialer_open(struct dialer *dialer, const struct store_host *host, const char *path,
                        const struct redis_conn_options *options, void *arg,
                        struct dialled *dialled)
{
    (void)dialer, (void)host, (void)path;
    redis = redis_conn_new(options);
    redis_arg = arg;
    *dialled = (struct dialled){.conn = redis};
    return redis != NULL;
}

static void dialer_asked(struct dialer *dialer, struct dialled *dialled)
{
    (void)dialer, (void)dialled;
}

static void dialer_hurry(struct dialer *dialer)
{
    (void)dialer;
}

static const struct dialer_ops dialer_ops = {
    .now = dialer_now, .open = dialer_open, .asked = dialer_asked, .hurry = dialer_hurry};

/* What the server replies to all that was sent. */
static void reply_with(const char *bytes)
{
    struct link *link = redis_conn_link(redis);
    link_sent(link, link_output(link).len);
    link_feed(link, span_of_text(bytes), now_ns);
}

static void open_store(void)
{
    static const char hello[] = "*8\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n"
                                "$6\r\n7.0.15\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"
                                "$4\r\nrole\r\n$6\r\nmaster\r\n";
    static const char info[] =
        "$50\r\n# Server\r\nredis_version:7.0.15\r\nrun_id:A\r\nport:1\r\n\r\n";
    static struct store_url url;
    static struct dialer dialer = {&dialer_ops};
    static const struct evaluation_stores stores = {
        .stores = &chain, .n_stores = 1, .timeout_ns = NS_PER_S};
    struct stint_error error;
    if (store_url_parse(&url, "redis://127.0.0.1", &error) != 0)
        die(error.message);
    struct backend *store = redis_backend_new(
        &(struct redis_backend_options){.router = {.url = &url, .dialer = &dialer}});
    struct backend *front =
        store == NULL ? NULL : front_new(&(struct front_options){.inner = store, .denials = 1024});
    chain =
        front == NULL ? NULL : lease_new(&(struct lease_options){.inner = front, .now = lease_now});
    if (chain == NULL)
        die("no memory for a store");
    router_wake(redis_backend_router(store), now_ns);
    link_dialling(redis_conn_link(redis), now_ns);
    link_connected(redis_conn_link(redis), now_ns);
    reply_with(hello);
    while (!link_is_ready(redis_conn_link(redis)))
        reply_with("+OK\r\n");
    router_changed(redis_arg, now_ns);
    reply_with(info);
    service_set_stores(service, &stores);
}

static void on_answers(void *arg, uint64_t at_ns)
{
    (void)at_ns;
    *(bool *)arg = true;
}

static void store(void)
{
    static const struct caller caller = {.name = "", .roles = ACCESS_ALL};
    const struct descriptor_entry entry = {span_of_text("there"), span_of_text("key")};
    const struct descriptor descriptor = {.entries = &entry, .n_entries = 1};
    struct request request = {.verb = REQUEST_TAKE,
                              .cost = 1,
                              .domain = span_of_text("d"),
                              .descriptors = &descriptor,
                              .n_descriptors = 1};
    struct reply reply;
    bool is_answered = false;
    is_counting = true;
    service_ask(service, &request, &caller, now_ns, &reply);
    if (reply.error == REPLY_WAITS) {
        service_on_answers(reply.pending, on_answers, &is_answered);
        request.pending = reply.pending;
        reply_with("*8\r\n:0\r\n:1\r\n:1000000\r\n:999999\r\n:0\r\n:60000000\r\n:0\r\n"
                   ":1700000000000000\r\n");
        service_ask(service, &request, &caller, now_ns, &reply);
    }
    is_counting = false;
    if (!is_answered || reply.error != REPLY_DECIDED || reply.decision.remaining != 999999)
        die("the take over a store is not decided by its reply");
}

/* ---------------------------------------------------------------------------------------------- */

int main(void)
{
    static const struct {
        const char *name;
        void (*open)(void), (*request)(void);
    } loads[] = {
        {"throttle", open_resp, throttle}, {"rls", open_grpc, rls}, {"store", open_store, store}};
    open_service();
    for (size_t load = 0; load < sizeof(loads) / sizeof(loads[0]); load++) {
        loads[load].open();
        for (unsigned i = 0; i <= WARM; i++) {
            n_calls = 0;
            now_ns += STEP_NS;
            stint_table_set_now(table, now_ns);
            loads[load].request();
        }
        for (size_t i = 0; i < n_calls; i++)
            printf("%s %u %" PRIdPTR "\n", loads[load].name, calls[i].depth,
                   calls[i].function - (intptr_t)main);
    }
    return 0;
}
