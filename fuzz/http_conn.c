/* SPDX-License-Identifier: MIT */
/*
 * Bytes to an HTTP connection, twice: in one piece, and in pieces with turns that end at any
 * request and answers that are read late. Both must be answered with the same bytes, which must be
 * whole answers; a connection that is over sends no more, and what it holds is bounded.
 */
#include "bytes.h"

#include "base/ns.h"
#include "base/splitmix.h"
#include "frontend/http/http.h"
#include "rules/yaml/rules_load.h"

#define HEADER_BYTES 2048
#define BODY_BYTES 4096
#define OUTPUT_BYTES 4096
#define CONTINUE "HTTP/1.1 100 Continue\r\n\r\n"

static const char yaml[] = "domain: d\n"
                           "descriptors:\n"
                           "  - key: remote_address\n"
                           "    rate_limit: {unit: minute, requests_per_unit: 5}\n";

/* One side: a server of its own, and what its connection has sent. */
struct side {
    struct stint_table *table;
    struct server_state *server_state;
    struct http_config *config;
    struct service *service;
    struct http_frontend *frontend;
    struct conn *conn;
    uint8_t *heard;
    size_t heard_len, heard_size;
    uint64_t chance;
    bool has_turns;
};

static const uint64_t now_ns = 1000 * NS_PER_S;

static bool is_turn_over(void *owner)
{
    struct side *side = owner;
    return splitmix_next(&side->chance) % 3 == 0;
}

static void open_side(struct side *side, uint64_t chance, bool has_turns)
{
    const struct stint_table_options options = {.keys = 256,
                                                .keys16 = 256,
                                                .keys_wide = 64,
                                                .wide_size = 1024,
                                                .tickets = 64,
                                                .blocks = 64,
                                                .quotas = 256,
                                                .requests = 64,
                                                .hash_key = {1, 2},
                                                .clock = STINT_CLOCK_VIRTUAL};
    const struct rules_file file = {.path = "f.yaml", .text = span_of(yaml, sizeof(yaml) - 1)};
    struct rules_diagnostics diagnostics;
    *side = (struct side){.chance = chance, .has_turns = has_turns};
    struct rules *rules = rules_load(&file, 1, &(struct rules_load_options){0}, &diagnostics);
    MUST(rules != NULL);
    rules_diagnostics_free(&diagnostics);
    MUST(stint_table_open(&side->table, &options, NULL) == 0);
    stint_table_set_now(side->table, now_ns);
    MUST(server_state_open(
             &side->server_state,
             &(struct server_state_options){.table = side->table, .rules = rules, .workers = 1},
             NULL) == 0);
    rules_unref(rules);
    side->service = service_new(side->server_state, 0);
    MUST(side->service != NULL);
    MUST(http_config_new(&side->config, &(struct http_config_options){.domain = "d"}, NULL) == 0);
    side->frontend = http_frontend_new(&(struct http_frontend_options){
        .service = side->service,
        .config = side->config,
        .limits = {HEADER_BYTES, BODY_BYTES, OUTPUT_BYTES},
    });
    MUST(side->frontend != NULL);
    side->conn = http_conn_new(side->frontend, span_of_text("127.0.0.1"));
    MUST(side->conn != NULL);
    if (has_turns) {
        side->conn->owner = side;
        side->conn->turn_is_over = is_turn_over;
    }
}

static void close_side(struct side *side)
{
    side->conn->ops->free(side->conn);
    http_frontend_free(side->frontend);
    http_config_free(side->config);
    service_free(side->service);
    server_state_close(side->server_state);
    stint_table_close(side->table);
    free(side->heard);
}

static void hear(struct side *side, size_t most)
{
    struct span output = side->conn->ops->output(side->conn);
    size_t len = output.len < most ? output.len : most;
    if (len == 0)
        return;
    if (side->heard_size - side->heard_len < len) {
        side->heard_size = 2 * (side->heard_size + len);
        side->heard = realloc(side->heard, side->heard_size);
        MUST(side->heard != NULL);
    }
    memcpy(side->heard + side->heard_len, output.ptr, len);
    side->heard_len += len;
    side->conn->ops->sent(side->conn, len, now_ns);
}

/* Until it has no more to do and all is read. */
static void finish(struct side *side)
{
    const struct conn_ops *ops = side->conn->ops;
    for (;;) {
        hear(side, SIZE_MAX);
        if (ops->has_work(side->conn) || ops->deadline(side->conn) <= now_ns)
            ops->wake(side->conn, now_ns);
        else if (ops->output(side->conn).len == 0)
            break;
    }
}

static void feed(struct side *side, struct span bytes)
{
    const struct conn_ops *ops = side->conn->ops;
    while (bytes.len > 0 && !ops->is_over(side->conn)) {
        size_t len = bytes.len;
        if (side->has_turns) {
            size_t most = 1 + (size_t)(splitmix_next(&side->chance) % 64);
            len = len < most ? len : most;
        }
        while (ops->is_backpressured(side->conn) &&
               (ops->output(side->conn).len > 0 || ops->has_work(side->conn))) {
            hear(side, side->has_turns ? 1000 : SIZE_MAX);
            if (ops->has_work(side->conn))
                ops->wake(side->conn, now_ns);
        }
        if (ops->is_backpressured(side->conn))
            break; /* a request waits, for a time that does not come */
        uint8_t *copy = bytes_copy(span_of(bytes.ptr, len));
        ops->feed(side->conn, span_of(copy, len), now_ns);
        free(copy);
        bytes = span_of(bytes.ptr + len, bytes.len - len);
    }
    finish(side);
    MUST(ops->held(side->conn) <= 2 * (HEADER_BYTES + BODY_BYTES + 64 * 1024));
}

/* Interim answers depend on the pieces: they are left out. */
static void drop_continues(struct side *side)
{
    size_t len = sizeof(CONTINUE) - 1;
    for (size_t at = 0; at + len <= side->heard_len;)
        if (memcmp(side->heard + at, CONTINUE, len) == 0) {
            memmove(side->heard + at, side->heard + at + len, side->heard_len - at - len);
            side->heard_len -= len;
        } else {
            at++;
        }
}

static bool holds(const struct side *side, const char *text)
{
    size_t len = strlen(text);
    for (size_t at = 0; at + len <= side->heard_len; at++)
        if (memcmp(side->heard + at, text, len) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct side whole, pieces;
    struct span bytes = span_of(data, size);
    uint64_t chance = bytes_number(&bytes, 2);
    open_side(&whole, chance, false);
    open_side(&pieces, chance, true);
    feed(&whole, bytes);
    feed(&pieces, bytes);
    drop_continues(&whole);
    drop_continues(&pieces);
    MUST(whole.conn->ops->is_over(whole.conn) == pieces.conn->ops->is_over(pieces.conn));
    MUST(whole.conn->ops->is_busy(whole.conn) == pieces.conn->ops->is_busy(pieces.conn));
    MUST(whole.heard_len == 0 || memcmp(whole.heard, "HTTP/1.1 ", 9) == 0);
    /* The nonce of a ticket is drawn. */
    if (!holds(&whole, "\"ticket\"")) {
        MUST(whole.heard_len == pieces.heard_len);
        MUST(whole.heard_len == 0 || memcmp(whole.heard, pieces.heard, whole.heard_len) == 0);
    }
    close_side(&whole);
    close_side(&pieces);
    return 0;
}
