/* SPDX-License-Identifier: MIT */
/*
 * ShouldRateLimit of one descriptor as a connection answers it: 100 calls in one feed, their
 * answers in one output, against the smallest server that nghttp2 can be: it reads the same calls,
 * and answers each with a body of ten bytes. What a socket costs is in neither. Then ten
 * descriptors of two entries in each call, against one descriptor of one entry.
 */
#include "load.h"
#include "traced.h"

#include "base/ns.h"
#include "frontend/grpc/grpc_call.h"
#include "rules/yaml/rules_load.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 100
#define SEQUENCE_LEN ((size_t)1 << 20)
#define STEP_NS 500 /* between two calls */
#define WINDOW (1u << 30)
#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define PATH "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

#define DIGITS 7

/* The descriptors of a call, which are alike but for the DIGITS digits at the end of each. */
struct question {
    const char *descriptor; /* protobuf, with its head */
    size_t len;
    size_t n;
};
#define QUESTION(times, text)                                                                      \
    {                                                                                              \
        .descriptor = (text), .len = sizeof(text) - 1, .n = (times)                                \
    }

static const struct question one_key = QUESTION(1, "\x12\x10\x0a\x0e\x0a\3key\x12\7"
                                                   "0000000");
static const struct question one_user = QUESTION(1, "\x12\x11\x0a\x0f\x0a\4user\x12\7"
                                                    "0000000");
static const struct question ten_users = QUESTION(10, "\x12\x21\x0a\x0e\x0a\6tenant\x12\4acme"
                                                      "\x0a\x0f\x0a\4user\x12\7"
                                                      "0000000");

static const char yaml[] = "domain: bench\n"
                           "descriptors:\n"
                           "  - key: key\n"
                           "    rate_limit: {unit: minute, requests_per_unit: 100}\n"
                           "  - key: user\n"
                           "    rate_limit: {unit: second, requests_per_unit: 1000000,\n"
                           "                 algorithm: gcra}\n"
                           "  - key: tenant\n"
                           "    descriptors:\n"
                           "      - key: user\n"
                           "        rate_limit: {unit: second, requests_per_unit: 1000000,\n"
                           "                     algorithm: gcra}\n";

struct bytes {
    uint8_t bytes[1 << 16];
    size_t len;
};

/* One side's connection: what is fed next, and the id of its next stream. */
struct session {
    const struct question *question;
    struct bytes feed;
    uint32_t next_id;
    uint32_t data_len; /* of the answers to one feed: given back to the server's window */
};

struct serving {
    struct stint_table *table;
    struct server_state *server_state;
    struct service *service;
    struct grpc_frontend *frontend;
    struct conn *conn;
    nghttp2_session *plain;
    struct bytes plain_out;
    struct session sessions[2];
    struct sequence sequence;
    uint64_t ops, now_ns;
};

static void die(const char *message)
{
    fprintf(stderr, "bench_grpc: %s\n", message);
    exit(1);
}

/* ---- What the client says -------------------------------------------------------------------- */

static void put(struct bytes *to, const void *bytes, size_t len)
{
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
}

static void put_number(struct bytes *to, uint32_t number)
{
    const uint8_t bytes[4] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16),
                              (uint8_t)(number >> 8), (uint8_t)number};
    put(to, bytes, sizeof(bytes));
}

static void put_head(struct bytes *to, size_t len, uint8_t type, uint8_t flags, uint32_t id)
{
    const uint8_t head[5] = {0, (uint8_t)(len >> 8), (uint8_t)len, type, flags};
    put(to, head, sizeof(head));
    put_number(to, id);
}

/* Fields that Envoy sends. The first time they go into the table of the connection. */
static const char *const fields[][2] = {
    {":path", PATH},
    {":authority", "ratelimit"},
    {"content-type", "application/grpc"},
    {"te", "trailers"},
    {"grpc-timeout", "20m"},
    {"x-envoy-internal", "true"},
    {"x-forwarded-for", "10.0.0.1"},
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* A message behind its prefix of five bytes. */
static void put_message(struct bytes *to, const struct question *question)
{
    static const char domain[] = "\x0a\5bench";
    const size_t len = sizeof(domain) - 1 + question->n * question->len;
    put(to, "\0", 1);
    put_number(to, (uint32_t)len);
    put(to, domain, sizeof(domain) - 1);
    for (size_t i = 0; i < question->n; i++)
        put(to, question->descriptor, question->len);
}

static void put_call(struct session *session, bool is_first)
{
    struct bytes *feed = &session->feed;
    static struct bytes block;
    block.len = 0;
    put(&block, "\x83\x86", 2); /* POST, http */
    for (size_t i = 0; i < FIELDS; i++) {
        uint8_t lens[2] = {(uint8_t)strlen(fields[i][0]), (uint8_t)strlen(fields[i][1])};
        uint8_t index = (uint8_t)(0x80 | (62 + FIELDS - 1 - i));
        if (!is_first) {
            put(&block, &index, 1);
            continue;
        }
        put(&block, "\x40", 1);
        put(&block, &lens[0], 1);
        put(&block, fields[i][0], lens[0]);
        put(&block, &lens[1], 1);
        put(&block, fields[i][1], lens[1]);
    }
    put_head(feed, block.len, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, session->next_id);
    put(feed, block.bytes, block.len);
    const size_t head_at = feed->len;
    put_head(feed, 0, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, session->next_id);
    const size_t message_at = feed->len;
    put_message(feed, session->question);
    feed->bytes[head_at + 1] = (uint8_t)((feed->len - message_at) >> 8);
    feed->bytes[head_at + 2] = (uint8_t)(feed->len - message_at);
    session->next_id += 2;
}

static void put_preface(struct session *session)
{
    struct bytes *feed = &session->feed;
    session->next_id = 1;
    put(feed, PREFACE, sizeof(PREFACE) - 1);
    put_head(feed, 0, NGHTTP2_SETTINGS, 0, 0);
    put_head(feed, 4, NGHTTP2_WINDOW_UPDATE, 0, 0);
    put_number(feed, WINDOW);
    put_call(session, true);
}

static uint32_t sequence_at(const struct serving *serving, uint64_t at)
{
    return serving->sequence.index[at & (serving->sequence.len - 1)];
}

static void put_digits(uint8_t *end, uint32_t number)
{
    for (unsigned i = 0; i < DIGITS; i++, number /= 10)
        *--end = (uint8_t)('0' + number % 10);
}

/* The next calls, for the subject and its baseline alike. */
static void next_feed(struct serving *serving, struct session *session, uint64_t at)
{
    struct bytes *feed = &session->feed;
    feed->len = 0;
    if (session->data_len > 0) {
        put_head(feed, 4, NGHTTP2_WINDOW_UPDATE, 0, 0);
        put_number(feed, session->data_len);
    }
    for (size_t i = 0; i < CALLS; i++) {
        put_call(session, false);
        for (size_t key = 0; key < session->question->n; key++)
            put_digits(feed->bytes + feed->len - key * session->question->len,
                       sequence_at(serving, (at + i) * session->question->n + key));
    }
    serving->now_ns += CALLS * STEP_NS;
}

/* ---- The smallest server --------------------------------------------------------------------- */

static ssize_t read_ten(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t size,
                        uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    (void)session, (void)id, (void)size, (void)source, (void)arg;
    memcpy(bytes, "ten bytes.", 10);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    return 10;
}

static int take_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                      size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                      void *arg)
{
    (void)session, (void)frame, (void)name, (void)value, (void)flags, (void)arg;
    keep(name_len + value_len);
    return 0;
}

static int take_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    const nghttp2_nv status = {(uint8_t *)":status", (uint8_t *)"200", 7, 3,
                               NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
    const nghttp2_data_provider provider = {.read_callback = read_ten};
    (void)arg;
    if (frame->hd.type == NGHTTP2_DATA && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
        nghttp2_submit_response(session, frame->hd.stream_id, &status, 1, &provider);
    return 0;
}

static void open_plain(struct serving *serving)
{
    nghttp2_session_callbacks *callbacks;
    const nghttp2_settings_entry streams = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1000};
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        die("no memory");
    nghttp2_session_callbacks_set_on_header_callback(callbacks, take_field);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, take_frame);
    if (nghttp2_session_server_new(&serving->plain, callbacks, NULL) != 0)
        die("no memory");
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(serving->plain, NGHTTP2_FLAG_NONE, &streams, 1);
}

static struct span feed_plain(struct serving *serving)
{
    const struct bytes *feed = &serving->sessions[0].feed;
    struct bytes *out = &serving->plain_out;
    const uint8_t *frame;
    ssize_t len = nghttp2_session_mem_recv(serving->plain, feed->bytes, feed->len);
    if (len != (ssize_t)feed->len)
        die("the baseline does not read what it is fed");
    out->len = 0;
    while ((len = nghttp2_session_mem_send(serving->plain, &frame)) > 0)
        put(out, frame, (size_t)len);
    return span_of(out->bytes, out->len);
}

/* ---- Both sides ------------------------------------------------------------------------------ */

static struct span feed_grpc(struct serving *serving)
{
    const struct bytes *feed = &serving->sessions[1].feed;
    struct conn *conn = serving->conn;
    conn->ops->feed(conn, span_of(feed->bytes, feed->len), serving->now_ns);
    while (conn->ops->has_work(conn)) /* more than one turn of a connection */
        conn->ops->wake(conn, serving->now_ns);
    return conn->ops->output(conn);
}

static void plain(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    uint64_t sent = 0;
    for (uint64_t done = 0; done < serving->ops; done += CALLS) {
        next_feed(serving, &serving->sessions[0], turn * serving->ops + done);
        sent += feed_plain(serving).len;
    }
    keep(sent);
}

static void asked(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    uint64_t sent = 0;
    for (uint64_t done = 0; done < serving->ops; done += CALLS) {
        next_feed(serving, &serving->sessions[1], turn * serving->ops + done);
        struct span output = feed_grpc(serving);
        sent += output.len;
        serving->conn->ops->sent(serving->conn, output.len, serving->now_ns);
    }
    keep(sent);
}

static void asked_untraced(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    serving->frontend->tracer = NULL;
    asked(serving, turn);
}

static void asked_traced(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    serving->frontend->tracer = service_tracer(serving->service);
    if (!traced_turn(serving->server_state, &serving->ops, asked, serving, turn))
        die("less than half of the spans were taken");
}

/* Bytes of DATA in an output that has an answer to each call; expires if it has not. */
static uint32_t check_answers(struct span output)
{
    uint32_t data_len = 0;
    unsigned n = 0;
    while (output.len >= 9) {
        uint32_t len = (uint32_t)output.ptr[1] << 8 | output.ptr[2];
        if (output.ptr[3] == NGHTTP2_DATA) {
            n++;
            data_len += len;
        }
        output = span_of(output.ptr + 9 + len, output.len - 9 - len);
    }
    if (n != CALLS)
        die("not every call is answered");
    return data_len;
}

/* From now on each feed gives back what the answers to such a feed take from the window. */
static void fit_window(struct serving *serving)
{
    struct session *session = &serving->sessions[1];
    next_feed(serving, session, 0);
    struct span output = feed_grpc(serving);
    session->data_len = check_answers(output);
    serving->conn->ops->sent(serving->conn, output.len, serving->now_ns);
}

static void begin(struct serving *serving)
{
    for (int i = 0; i < 2; i++) {
        serving->sessions[i].question = &one_key;
        put_preface(&serving->sessions[i]);
    }
    feed_plain(serving);
    serving->conn->ops->sent(serving->conn, feed_grpc(serving).len, serving->now_ns);
    next_feed(serving, &serving->sessions[0], 0);
    serving->sessions[0].data_len = check_answers(feed_plain(serving));
    fit_window(serving);
}

static void open_serving(struct serving *serving, uint32_t n_keys)
{
    struct stint_error error;
    struct rules_diagnostics diagnostics;
    const struct stint_table_options table = {
        .keys = 2 * n_keys, .keys16 = n_keys, .clock = STINT_CLOCK_VIRTUAL, .hash_key = {1, 2}};
    const struct rules_file file = {.path = "bench.yaml", .text = span_of_text(yaml)};
    serving->now_ns = NS_PER_HOUR;
    struct rules *rules = rules_load(&file, 1, NULL, &diagnostics);
    if (rules == NULL || stint_table_open(&serving->table, &table, &error) != 0)
        die("the table or its rules cannot be made");
    rules_diagnostics_free(&diagnostics);
    const struct server_state_options server_state = {
        .table = serving->table, .rules = rules, .workers = 1, .traces = &traced_one_percent};
    if (server_state_open(&serving->server_state, &server_state, &error) != 0)
        die(error.message);
    rules_unref(rules);
    serving->service = service_new(serving->server_state, 0);
    if (serving->service != NULL)
        serving->frontend =
            grpc_frontend_new(&(struct grpc_frontend_options){.service = serving->service});
    if (serving->frontend != NULL)
        serving->conn = grpc_conn_new(serving->frontend, span_of(NULL, 0), serving->now_ns);
    if (serving->conn == NULL)
        die("no memory for a connection");
    serving->frontend->tracer = NULL;
    open_plain(serving);
}

static void close_serving(struct serving *serving)
{
    serving->conn->ops->free(serving->conn);
    grpc_frontend_free(serving->frontend);
    nghttp2_session_del(serving->plain);
    service_free(serving->service);
    server_state_close(serving->server_state);
    stint_table_close(serving->table);
}

static void asked_with(struct serving *serving, const struct question *question, unsigned turn)
{
    serving->sessions[1].question = question;
    fit_window(serving);
    asked(serving, turn);
}

static void asked_one(void *arg, unsigned turn)
{
    asked_with(arg, &one_user, turn);
}

static void asked_ten(void *arg, unsigned turn)
{
    asked_with(arg, &ten_users, turn);
}

/* Of what there is once in a call, ten descriptors cost nothing more. */
static void run_ten(const struct bench_options *options, struct serving *serving)
{
    struct row row;
    const struct duel duel = {
        .what = "ten descriptors of two entries",
        .baseline_name = "one descriptor",
        .baseline = asked_one,
        .subject = asked_ten,
        .arg = serving,
        .ops = serving->ops /= 5,
    };
    serving->frontend->tracer = NULL;
    duel_run(options, &duel, &row);
    row_report(options, &row);
}

static void run_traced(const struct bench_options *options, struct serving *serving)
{
    struct row row;
    const struct duel duel = {
        .what = "the same, 1 % of them traced",
        .baseline_name = "without traces",
        .baseline = asked_untraced,
        .subject = asked_traced,
        .arg = serving,
        .ops = serving->ops,
        .goal = GOAL_AT_MOST,
        .reach = 1.03,
    };
    duel_run(options, &duel, &row);
    row_report(options, &row);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    uint32_t n_keys = options.keys > 0 ? (uint32_t)options.keys : options.quick ? 100000 : 1000000;
    static struct serving serving;
    struct row row;
    char what[64];
    open_serving(&serving, n_keys);
    serving.sequence = sequence_uniform(n_keys, SEQUENCE_LEN, 3);
    serving.ops = options.quick ? 100000 : 1000000;
    begin(&serving);
    asked(&serving, 0); /* most keys have a state before the first turn */
    snprintf(what, sizeof(what), "ShouldRateLimit, %d at a time, %u k keys", CALLS, n_keys / 1000);
    const struct duel duel = {
        .what = what,
        .baseline_name = "nghttp2 and ten bytes",
        .baseline = plain,
        .subject = asked,
        .arg = &serving,
        .ops = serving.ops,
    };
    duel_run(&options, &duel, &row);
    row_report(&options, &row);
    run_traced(&options, &serving);
    run_ten(&options, &serving);
    sequence_free(&serving.sequence);
    close_serving(&serving);
    return 0;
}
