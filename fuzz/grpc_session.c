/* SPDX-License-Identifier: MIT */
/*
 * A whole session of gRPC: bytes as they come, or frames put together out of the input, in pieces,
 * with steps of time, answers read late, health that changes and a drain at the end. What goes out
 * is whole frames that a server may send; what waits stays bounded; a connection ends when it has
 * to; and the same bytes decide the same number of calls in whatever pieces they come.
 */
#include "bytes.h"

#include "base/ns.h"
#include "frontend/grpc/grpc_conn.h"
#include "proto/grpc/grpc.h"
#include "rules/yaml/rules_load.h"
#include "service/metrics/metrics.h"

#include <nghttp2/nghttp2.h>

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define OUTPUT_SLACK 70000 /* beyond output_bytes: one feed of 64 KiB may answer so much more */

static struct stint_table *table;
static struct server_state *server_state;
static struct service *service;
static uint64_t now_ns;
static bool is_ready;

static const char yaml[] = "domain: d\n"
                           "descriptors:\n"
                           "  - key: k\n"
                           "    rate_limit: {unit: second, requests_per_unit: 3}\n";

static void open_server(void)
{
    const struct stint_table_options options = {
        .keys = 256, .blocks = 64, .quotas = 256, .hash_key = {1, 2}, .clock = STINT_CLOCK_VIRTUAL};
    struct rules_diagnostics diagnostics;
    const struct rules_file file = {.path = "fuzz.yaml", .text = span_of_text(yaml)};
    struct rules *rules = rules_load(&file, 1, NULL, &diagnostics);
    MUST(rules != NULL);
    rules_diagnostics_free(&diagnostics);
    now_ns = 1000 * NS_PER_S;
    is_ready = true;
    MUST(stint_table_open(&table, &options, NULL) == 0);
    const struct server_state_options server_state_options = {
        .table = table, .rules = rules, .workers = 1};
    MUST(server_state_open(&server_state, &server_state_options, NULL) == 0);
    rules_unref(rules);
    service = service_new(server_state, 0);
    MUST(service != NULL);
}

static void close_server(void)
{
    service_free(service);
    server_state_close(server_state);
    stint_table_close(table);
}

static bool ask_ready(void *arg)
{
    (void)arg;
    return is_ready;
}

static struct grpc_frontend *open_frontend(const struct grpc_limits *limits)
{
    struct grpc_frontend *frontend = grpc_frontend_new(&(struct grpc_frontend_options){
        .service = service, .limits = limits, .is_ready = ask_ready});
    MUST(frontend != NULL);
    return frontend;
}

/* ---- What goes out --------------------------------------------------------------------------- */

struct side {
    struct conn *conn;
    uint8_t *heard; /* that is not yet a whole frame */
    size_t heard_len;
    bool has_ended; /* nothing stands behind the last GOAWAY */
};

/* Each frame is one that a server may send, and not longer than the peer has allowed. */
static size_t check_frame(const uint8_t *head, size_t len)
{
    size_t payload = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    if (len < 9 + payload)
        return 0;
    MUST(payload <= 16384 || head[3] == NGHTTP2_DATA);
    switch (head[3]) {
    case NGHTTP2_DATA:
    case NGHTTP2_HEADERS:
        MUST((head[8] & 1) == 1);
        break;
    case NGHTTP2_RST_STREAM:
        MUST(payload == 4);
        break;
    case NGHTTP2_SETTINGS:
        MUST(payload % 6 == 0);
        break;
    case NGHTTP2_PING:
        MUST(payload == 8);
        break;
    case NGHTTP2_GOAWAY:
        MUST(payload >= 8);
        break;
    case NGHTTP2_WINDOW_UPDATE:
        MUST(payload == 4);
        break;
    default:
        MUST(head[3] < NGHTTP2_DATA); /* a server has no use for others */
    }
    return 9 + payload;
}

/* A feed of 64 KiB has turns enough; else the socket's owner would call again and again. */
static void let_work(struct side *side)
{
    for (int i = 0; i < 10000 && side->conn->ops->deadline(side->conn) <= now_ns; i++)
        side->conn->ops->wake(side->conn, now_ns);
    MUST(side->conn->ops->deadline(side->conn) > now_ns);
}

static void hear(struct side *side, size_t most)
{
    struct span output = side->conn->ops->output(side->conn);
    size_t len = output.len < most ? output.len : most, at = 0;
    if (len == 0)
        return;
    side->heard = realloc(side->heard, side->heard_len + len);
    MUST(side->heard != NULL);
    memcpy(side->heard + side->heard_len, output.ptr, len);
    side->heard_len += len;
    side->conn->ops->sent(side->conn, len, now_ns);
    let_work(side);
    while (side->heard_len - at >= 9) {
        size_t frame = check_frame(side->heard + at, side->heard_len - at);
        if (frame == 0)
            break;
        at += frame;
    }
    memmove(side->heard, side->heard + at, side->heard_len - at);
    side->heard_len -= at;
}

static void hear_all(struct side *side)
{
    while (side->conn->ops->output(side->conn).len > 0)
        hear(side, SIZE_MAX);
}

static void step_time(struct side *side, uint64_t step_ns)
{
    now_ns += step_ns;
    stint_table_set_now(table, now_ns);
    let_work(side);
}

static void feed(struct side *side, struct span bytes)
{
    uint8_t *copy = bytes_copy(bytes);
    side->conn->ops->feed(side->conn, span_of(copy, bytes.len), now_ns);
    free(copy);
    let_work(side);
}

static void end_side(struct side *side)
{
    struct conn *conn = side->conn;
    conn->ops->drain(conn, now_ns);
    hear_all(side);
    /* Whatever was half asked, and whoever does not read, has had his time then. */
    for (int i = 0; i < 4 && !conn->ops->is_over(conn); i++) {
        step_time(side, 40 * NS_PER_S);
        hear_all(side);
    }
    MUST(conn->ops->is_over(conn));
    MUST(conn->ops->deadline(conn) == STINT_NEVER_NS);
    MUST(!conn->ops->is_busy(conn));
    MUST(side->heard_len == 0);
    conn->ops->free(conn);
    free(side->heard);
}

/* ---- Frames out of the input ----------------------------------------------------------------- */

struct out {
    uint8_t bytes[70000];
    size_t len;
};

static void put(struct out *out, const void *bytes, size_t len)
{
    if (len > sizeof(out->bytes) - out->len)
        len = sizeof(out->bytes) - out->len;
    if (len > 0)
        memcpy(out->bytes + out->len, bytes, len);
    out->len += len;
}

static void put_head(struct out *out, size_t len, uint8_t type, uint8_t flags, uint32_t id)
{
    const uint8_t head[9] = {
        (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len,       type,       flags,
        (uint8_t)(id >> 24),  (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};
    put(out, head, sizeof(head));
}

static void put_field(struct out *out, const char *name, const char *value)
{
    uint8_t len = (uint8_t)strlen(name);
    put(out, "\x10", 1);
    put(out, &len, 1);
    put(out, name, len);
    len = (uint8_t)strlen(value);
    put(out, &len, 1);
    put(out, value, len);
}

static const char *const paths[] = {
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.health.v1.Health/List",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/none",
    "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit",
    "/kuadrant.service.ratelimit.v1.RateLimitService/Report",
    "/kuadrant.service.ratelimit.v1.RateLimitService/Reserve",
    "/kuadrant.service.ratelimit.v1.RateLimitService/Commit",
};
#define N_PATHS (sizeof(paths) / sizeof(paths[0]))

static const char *const extras[][2] = {
    {"grpc-timeout", "10m"},  {"grpc-timeout", "x"}, {"grpc-encoding", "gzip"},
    {"grpc-encoding", "br"},  {"te", "trailers"},    {"grpc-accept-encoding", "gzip"},
    {"content-length", "17"}, {"Upper", "x"},
};

static void put_call(struct out *out, uint32_t id, uint8_t what, uint8_t how)
{
    static struct out block;
    block.len = 0;
    put_field(&block, ":method", (what & 0x80) != 0 ? "GET" : "POST");
    put_field(&block, ":scheme", "http");
    put_field(&block, ":path", paths[(what & 0x7f) % N_PATHS]);
    put_field(&block, ":authority", "s");
    put_field(&block, "content-type", (how & 0x80) != 0 ? "text/plain" : "application/grpc");
    if ((how & 0x40) != 0)
        put_field(&block, extras[how & 7][0], extras[how & 7][1]);
    put_head(
        out, block.len, NGHTTP2_HEADERS,
        (uint8_t)(NGHTTP2_FLAG_END_HEADERS | ((how & 0x20) != 0 ? NGHTTP2_FLAG_END_STREAM : 0)),
        id);
    put(out, block.bytes, block.len);
}

/* domain d, one descriptor k=v. */
static const uint8_t limit_message[] = "\0\0\0\0\x0d\x0a\1d\x12\x08\x0a\x06\x0a\1k\x12\1v";

static void put_data(struct out *out, uint32_t id, uint8_t how, struct span *bytes)
{
    uint8_t flags = (how & 1) != 0 ? NGHTTP2_FLAG_END_STREAM : 0;
    if ((how & 2) != 0) {
        put_head(out, sizeof(limit_message) - 1, NGHTTP2_DATA, flags, id);
        put(out, limit_message, sizeof(limit_message) - 1);
        return;
    }
    size_t len = how >> 2 < bytes->len ? (size_t)(how >> 2) : bytes->len;
    put_head(out, len, NGHTTP2_DATA, flags, id);
    put(out, bytes->ptr, len);
    *bytes = span_of(bytes->ptr + len, bytes->len - len);
}

/* One frame; most are such as there are, some are anything. */
static void put_frame(struct out *out, struct span *bytes, uint32_t *next_id)
{
    uint8_t what = bytes_u8(bytes), how = bytes_u8(bytes), which = bytes_u8(bytes);
    uint32_t id = which == 0 ? *next_id - 2 : (2 * (uint32_t)which - 1);
    uint8_t number[8] = {0};
    switch (what % 10) {
    case 0:
    case 1:
        put_call(out, *next_id, which, how);
        *next_id += 2;
        break;
    case 2:
    case 3:
        put_data(out, id, how, bytes);
        break;
    case 4:
        put_head(out, 4, NGHTTP2_RST_STREAM, 0, id);
        put(out, number, 4);
        break;
    case 5:
        number[3] = how;
        put_head(out, 4, NGHTTP2_WINDOW_UPDATE, 0, which < 128 ? 0 : id);
        put(out, number, 4);
        break;
    case 6:
        number[1] = which & 7;
        number[5] = how;
        put_head(out, which == 0 ? 0 : 6, NGHTTP2_SETTINGS, which == 0 ? 1 : 0, 0);
        put(out, number, which == 0 ? 0 : 6);
        break;
    case 7:
        put_head(out, 8, NGHTTP2_PING, how & 1, 0);
        put(out, number, 8);
        break;
    case 8:
        put_call(out, *next_id, which, how);
        put_data(out, *next_id, 3, bytes);
        *next_id += 2;
        break;
    default:
        how = how < bytes->len ? how : (uint8_t)bytes->len;
        put_head(out, how, which & 15, which >> 4, bytes_u8(bytes) & 7);
        put(out, bytes->ptr, how < bytes->len ? how : bytes->len);
        break;
    }
}

static void begin(struct side *side)
{
    static struct out out;
    out.len = 0;
    put(&out, PREFACE, sizeof(PREFACE) - 1);
    put_head(&out, 0, NGHTTP2_SETTINGS, 0, 0);
    feed(side, span_of(out.bytes, out.len));
}

/* ---- Sessions -------------------------------------------------------------------------------- */

static void play(struct span bytes, const struct grpc_limits *limits)
{
    static struct out out;
    struct grpc_frontend *frontend = open_frontend(limits);
    struct side side = {.conn = grpc_conn_new(frontend, span_of(NULL, 0), now_ns)};
    size_t output_max = (limits != NULL ? limits->output_bytes : 262144) + OUTPUT_SLACK;
    uint32_t next_id = 1;
    MUST(side.conn != NULL);
    begin(&side);
    while (bytes.len > 0) {
        uint8_t what = bytes_u8(&bytes);
        out.len = 0;
        if (what < 0xc0) {
            for (int i = 0; i <= what % 16 && bytes.len > 0; i++)
                put_frame(&out, &bytes, &next_id);
            if (!side.conn->ops->is_backpressured(side.conn))
                feed(&side, span_of(out.bytes, out.len));
        } else if (what < 0xd8)
            step_time(&side, (uint64_t)bytes_u16(&bytes) * NS_PER_MS);
        else if (what < 0xdc)
            is_ready = !is_ready;
        else if (what < 0xde)
            grpc_frontend_drain(frontend);
        else if (what == 0xde)
            side.conn->ops->drain(side.conn, now_ns);
        else
            hear(&side, bytes_u8(&bytes) * (size_t)16);
        MUST(side.conn->ops->output(side.conn).len <= output_max);
    }
    end_side(&side);
    grpc_frontend_free(frontend);
}

/* Anything, with and without a preface. */
static void play_raw(struct span bytes)
{
    struct grpc_frontend *frontend = open_frontend(NULL);
    struct side side = {.conn = grpc_conn_new(frontend, span_of(NULL, 0), now_ns)};
    MUST(side.conn != NULL);
    if (bytes_u8(&bytes) % 2 == 0)
        begin(&side);
    feed(&side, bytes);
    end_side(&side);
    grpc_frontend_free(frontend);
}

static uint64_t decided(void)
{
    return metrics_decisions(metrics_worker(server_state_metrics(server_state), 0));
}

static uint64_t play_in_pieces(struct span bytes, size_t piece)
{
    struct grpc_frontend *frontend = open_frontend(NULL);
    struct side side = {.conn = grpc_conn_new(frontend, span_of(NULL, 0), now_ns)};
    uint64_t before = decided();
    MUST(side.conn != NULL);
    begin(&side);
    while (bytes.len > 0) {
        size_t len = piece < bytes.len ? piece : bytes.len;
        feed(&side, span_of(bytes.ptr, len));
        bytes = span_of(bytes.ptr + len, bytes.len - len);
    }
    end_side(&side);
    grpc_frontend_free(frontend);
    return decided() - before;
}

/*
 * In whatever pieces, the same is decided. In one piece it may be less: a stream is closed when its
 * answer is written, and until then it counts, and a frame behind its end is an error.
 */
static void check_pieces(struct span bytes)
{
    static struct out out;
    uint32_t next_id = 1;
    out.len = 0;
    while (bytes.len > 0 && out.len < 30000)
        put_frame(&out, &bytes, &next_id);
    uint64_t by_bytes = play_in_pieces(span_of(out.bytes, out.len), 1);
    MUST(play_in_pieces(span_of(out.bytes, out.len), 7) == by_bytes);
    MUST(play_in_pieces(span_of(out.bytes, out.len), SIZE_MAX) <= by_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct grpc_limits narrow = {.message_bytes = 100,
                                              .header_bytes = 300,
                                              .streams = 5,
                                              .output_bytes = 200,
                                              .idle_frames = 20,
                                              .age_ns = 20 * NS_PER_S,
                                              .age_grace_ns = NS_PER_S,
                                              .call_ns = 2 * NS_PER_S};
    struct span bytes = span_of(data, size);
    open_server();
    uint8_t kind = bytes_u8(&bytes);
    if (kind % 8 == 0)
        play_raw(bytes);
    else if (kind % 8 == 1)
        check_pieces(bytes);
    else
        play(bytes, kind % 2 == 0 ? &narrow : NULL);
    close_server();
    return 0;
}
