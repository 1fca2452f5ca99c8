/* SPDX-License-Identifier: MIT */
/*
 * A whole session: two connections at one frontend, bytes in pieces, steps of time, waits, replies
 * read late, a drain at the end. Whatever comes, what goes out is whole replies of RESP, a
 * connection that is not over takes more, and the same bytes in one piece give the same replies.
 */
#include "bytes.h"

#include "base/ns.h"
#include "frontend/resp/resp_conn.h"
#include "rules/yaml/rules_load.h"
#include "service/pools/pools.h"

#define CONNS 2
#define REPLY_DEPTH_MAX 8

static struct stint_table *table;
static struct server_state *server_state;
static struct service *service;
static struct access_now *tokens;
static uint64_t now_ns;

static const char yaml[] = "domain: d\n"
                           "descriptors:\n"
                           "  - key: k\n"
                           "    rate_limit: {unit: second, requests_per_unit: 3}\n"
                           "  - key: k\n"
                           "    value: free\n"
                           "    rate_limit: {unlimited: true}\n";

/* Anew for each input, so that a finding is one wherever it is tried. */
static void open_server(void)
{
    const struct stint_table_options options = {.keys = 256,
                                                .keys16 = 256,
                                                .keys_wide = 64,
                                                .wide_size = 1024,
                                                .tickets = 64,
                                                .blocks = 64,
                                                .quotas = 256,
                                                .requests = 256,
                                                .hash_key = {1, 2},
                                                .clock = STINT_CLOCK_VIRTUAL};
    now_ns = 1000 * NS_PER_S;
    struct rules_diagnostics diagnostics;
    const struct rules_file file = {.path = "fuzz.yaml", .text = span_of_text(yaml)};
    struct rules *rules = rules_load(&file, 1, NULL, &diagnostics);
    MUST(rules != NULL);
    rules_diagnostics_free(&diagnostics);
    MUST(stint_table_open(&table, &options, NULL) == 0);
    const struct server_state_options server_state_options = {
        .table = table, .rules = rules, .workers = 1};
    MUST(server_state_open(&server_state, &server_state_options, NULL) == 0);
    rules_unref(rules);
    service = service_new(server_state, 0);
    tokens = access_now_new(NULL);
    MUST(service != NULL && tokens != NULL);
    const struct span spec = span_of_text("gcra 2/1s");
    const struct pools_key key = {.name = span_of_text("k"), .quotas = &spec, .n_quotas = 1};
    const struct pools_definition pool = {.name = span_of_text("p"), .keys = &key, .n_keys = 1};
    MUST(pools_define(server_state_pools(server_state), &pool, now_ns, NULL) == 0);
}

static void close_server(void)
{
    access_now_free(tokens);
    service_free(service);
    server_state_close(server_state);
    stint_table_close(table);
}

/* ---- What goes out --------------------------------------------------------------------------- */

struct scan {
    const uint8_t *at, *end;
};

/* The number of a line behind its type; the line must be there, and end with CR LF. */
static long scan_line(struct scan *scan)
{
    long number = 0;
    bool is_number = scan->at < scan->end;
    for (; scan->at < scan->end && *scan->at != '\r'; scan->at++) {
        MUST(*scan->at != '\n');
        is_number = is_number && *scan->at >= '0' && *scan->at <= '9' && number < 1 << 30;
        number = is_number ? number * 10 + (*scan->at - '0') : -1;
    }
    MUST(scan->end - scan->at >= 2 && scan->at[0] == '\r' && scan->at[1] == '\n');
    scan->at += 2;
    return number;
}

static void scan_reply(struct scan *scan, int depth)
{
    MUST(scan->at < scan->end && depth < REPLY_DEPTH_MAX);
    uint8_t type = *scan->at++;
    long n = scan_line(scan);
    switch (type) {
    case '*':
    case '%':
        MUST(n >= 0);
        for (long i = 0; i < (type == '%' ? 2 * n : n); i++)
            scan_reply(scan, depth + 1);
        break;
    case '$':
    case '=':
        if (n < 0)
            break; /* null */
        MUST(scan->end - scan->at >= n + 2);
        scan->at += n;
        MUST(scan->at[0] == '\r' && scan->at[1] == '\n');
        scan->at += 2;
        break;
    default:
        MUST(strchr("+-:,_", type) != NULL);
    }
}

static void check_replies(const uint8_t *bytes, size_t len)
{
    struct scan scan = {bytes, bytes + len};
    while (scan.at < scan.end)
        scan_reply(&scan, 0);
}

/* ---- A session ------------------------------------------------------------------------------- */

struct side {
    struct conn *conn;
    uint8_t *heard;
    size_t heard_len, heard_size;
};

static void hear(struct side *side, size_t most)
{
    struct span output = side->conn->ops->output(side->conn);
    size_t len = output.len < most ? output.len : most;
    if (side->heard_size - side->heard_len < len) {
        side->heard_size = 2 * (side->heard_size + len);
        side->heard = realloc(side->heard, side->heard_size);
        MUST(side->heard != NULL);
    }
    if (len > 0)
        memcpy(side->heard + side->heard_len, output.ptr, len);
    side->heard_len += len;
    side->conn->ops->sent(side->conn, len, now_ns);
}

static void hear_all(struct side *side)
{
    while (side->conn->ops->output(side->conn).len > 0)
        hear(side, SIZE_MAX);
}

static void step_time(struct side *sides, uint64_t step_ns)
{
    now_ns += step_ns;
    if (now_ns > STINT_NOW_MAX / 2)
        now_ns = STINT_NOW_MAX / 2;
    stint_table_set_now(table, now_ns);
    for (int i = 0; i < CONNS; i++)
        if (sides[i].conn->ops->deadline(sides[i].conn) <= now_ns)
            sides[i].conn->ops->wake(sides[i].conn, now_ns);
}

static void feed(struct side *side, struct span *rest, size_t len)
{
    len = len < rest->len ? len : rest->len;
    if (side->conn->ops->is_backpressured(side->conn)) {
        hear(side, 1 + len * 16);
        return;
    }
    uint8_t *copy = bytes_copy(span_of(rest->ptr, len));
    side->conn->ops->feed(side->conn, span_of(copy, len), now_ns);
    free(copy);
    *rest = span_of(rest->ptr + len, rest->len - len);
}

static void end_side(struct side *side)
{
    side->conn->ops->drain(side->conn, now_ns);
    hear_all(side);
    MUST(side->conn->ops->is_over(side->conn));
    MUST(side->conn->ops->deadline(side->conn) == STINT_NEVER_NS);
    MUST(!side->conn->ops->is_busy(side->conn));
    if (side->heard_len > 0)
        check_replies(side->heard, side->heard_len);
    side->conn->ops->free(side->conn);
    free(side->heard);
}

static void play(struct span bytes, const struct resp_limits *limits)
{
    struct resp_frontend *frontend = resp_frontend_new(service, tokens, limits);
    struct side sides[CONNS] = {{0}};
    MUST(frontend != NULL);
    for (int i = 0; i < CONNS; i++) {
        sides[i].conn = resp_conn_new(frontend, span_of(NULL, 0));
        MUST(sides[i].conn != NULL);
    }
    while (bytes.len > 0) {
        uint8_t what = bytes_u8(&bytes);
        struct side *side = &sides[what & 1];
        if (what < 0xc0)
            feed(side, &bytes, 1 + (what >> 1) * (size_t)(what >> 2));
        else if (what < 0xe0)
            step_time(sides, (uint64_t)bytes_u16(&bytes) * NS_PER_MS / 16);
        else
            hear(side, bytes_u8(&bytes));
    }
    for (int i = 0; i < CONNS; i++)
        end_side(&sides[i]);
    resp_frontend_free(frontend);
}

/*
 * The same bytes whole, and one at a time: figures may differ, as units are gone, but not how many
 * bytes were taken for commands, nor whether they were refused as no RESP.
 */
static void check_pieces(struct span bytes)
{
    struct side whole = {0}, pieces = {0};
    struct resp_frontend *frontend = resp_frontend_new(service, tokens, NULL);
    MUST(frontend != NULL);
    whole.conn = resp_conn_new(frontend, span_of(NULL, 0));
    pieces.conn = resp_conn_new(frontend, span_of(NULL, 0));
    MUST(whole.conn != NULL && pieces.conn != NULL);
    struct span rest = bytes;
    while (rest.len > 0 && !whole.conn->ops->is_backpressured(whole.conn))
        feed(&whole, &rest, rest.len);
    rest = bytes;
    while (rest.len > 0 && !pieces.conn->ops->is_backpressured(pieces.conn))
        feed(&pieces, &rest, 1);
    bool waits = whole.conn->ops->deadline(whole.conn) != STINT_NEVER_NS ||
                 pieces.conn->ops->deadline(pieces.conn) != STINT_NEVER_NS ||
                 whole.conn->ops->is_backpressured(whole.conn) ||
                 pieces.conn->ops->is_backpressured(pieces.conn);
    if (!waits) {
        MUST(whole.conn->ops->is_over(whole.conn) == pieces.conn->ops->is_over(pieces.conn));
        MUST(whole.conn->ops->is_busy(whole.conn) == pieces.conn->ops->is_busy(pieces.conn));
    }
    end_side(&whole);
    end_side(&pieces);
    resp_frontend_free(frontend);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct resp_limits narrow = {
        .request_bytes = 512, .argument_bytes = 128, .arguments = 24, .output_bytes = 64};
    struct span bytes = span_of(data, size);
    open_server();
    uint8_t kind = bytes_u8(&bytes);
    if (kind % 4 == 0)
        check_pieces(bytes);
    else
        play(bytes, kind % 4 == 1 ? &narrow : NULL);
    close_server();
    return 0;
}
