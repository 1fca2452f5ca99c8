/* SPDX-License-Identifier: MIT */
/*
 * Requests are read directly from the fed bytes. Bytes that cannot be read yet (an earlier request
 * waits, the output is full, or the turn is over) are kept, and no more are fed meanwhile. A
 * request that is read or waits has memory of its own; an idle connection has none.
 */
#include "frontend/http/http.h"

#include "base/byte_queue.h"
#include "base/wide_int.h"
#include "frontend/http/http_exchange.h"
#include "proto/http/http_reader.h"

#include <llhttp/llhttp.h>
#include <stdlib.h>

#define PEER_SIZE 46   /* an IPv6 address as text */
#define SIZE_KEPT 1024 /* bytes of memory that an empty queue keeps */
#define REQUEST_SIZE_KEPT 4096
#define REQUESTS_KEPT 8         /* by a worker, for the next requests */
#define WAITING_INPUT_MAX 16384 /* bytes after a request that waits; then no more are read */

struct http_conn {
    struct conn conn;
    struct http_frontend *frontend;
    struct http_reader reader;
    struct http_request *request; /* being read, or waiting. NULL: none */
    struct byte_queue input;      /* bytes that were not read yet */
    struct byte_queue out;
    struct pending *pending; /* of a request that waits for a store; NULL: none */
    /* By the time of decisions. */
    uint64_t asked_ns; /* time of the first call for the request that waits */
    uint64_t again_ns; /* time of the next; STINT_NEVER_NS: no set time */
    uint64_t look_ns;  /* the same by the time of I/O */
    bool was_asked;    /* asked_ns is set */
    bool is_draining, is_over;
    uint8_t peer_len;
    char peer[PEER_SIZE];
};

/* ---- Memory of requests ---------------------------------------------------------------------- */

static bool take_request(struct http_conn *conn)
{
    struct http_frontend *frontend = conn->frontend;
    conn->request = frontend->requests;
    if (conn->request == NULL)
        conn->request = calloc(1, sizeof(*conn->request));
    else {
        frontend->requests = conn->request->next;
        frontend->n_requests--;
    }
    conn->reader.request = conn->request;
    return conn->request != NULL;
}

static void drop_request(struct http_conn *conn)
{
    struct http_frontend *frontend = conn->frontend;
    struct http_request *request = conn->request;
    conn->request = conn->reader.request = NULL;
    conn->was_asked = false;
    if (request == NULL)
        return;
    if (frontend->n_requests >= REQUESTS_KEPT) {
        http_request_deinit(request);
        free(request);
        return;
    }
    http_request_clear(request, REQUEST_SIZE_KEPT);
    request->next = frontend->requests;
    frontend->requests = request;
    frontend->n_requests++;
}

/* ---- Answering ------------------------------------------------------------------------------- */

static bool waits(const struct http_conn *conn)
{
    return conn->pending != NULL || conn->again_ns != STINT_NEVER_NS ||
           conn->look_ns != STINT_NEVER_NS;
}

static bool is_full(const struct http_conn *conn)
{
    return byte_queue_len(&conn->out) > conn->frontend->options.limits.output_bytes;
}

static void send_answer(struct http_conn *conn, const struct http_answer *answer)
{
    const struct http_request *request = conn->request;
    bool is_1_0 = request == NULL || request->minor == 0;
    bool ends = answer->ends_connection || request == NULL || !request->keeps_alive;
    struct http_framing framing = {
        .date = conn->frontend->date[0] != '\0' ? conn->frontend->date : NULL,
        .is_head = request != NULL && request->method == HTTP_HEAD,
        .ends_connection = ends,
        .names_keep_alive = is_1_0 && !ends,
    };
    if (!http_writer_answer(&conn->out, answer, &framing) || ends)
        conn->is_over = true;
    drop_request(conn);
}

/* The answer to input that is no valid request, or that took too long to come. */
static void refuse(struct http_conn *conn, unsigned status, const char *detail)
{
    struct http_answer answer;
    http_frontend_refuse(conn->frontend, status, detail, &answer);
    send_answer(conn, &answer);
}

static void on_answers(void *arg, uint64_t now_ns);

/* False: there is no answer yet. A request that may not wait any more is decided at once. */
static bool ask(struct http_conn *conn, struct http_message *message, uint64_t now_ns,
                struct http_answer *answer)
{
    for (;;) {
        http_frontend_ask(conn->frontend, message, conn->asked_ns, now_ns, answer);
        if (answer->pending != NULL) {
            conn->pending = answer->pending;
            service_on_answers(answer->pending, on_answers, conn);
            return false;
        }
        if (answer->again_at_ns == 0 && answer->look_at_ns == 0)
            return true;
        if (!conn->is_draining) {
            conn->again_ns = answer->again_at_ns > 0 ? answer->again_at_ns : STINT_NEVER_NS;
            conn->look_ns = answer->look_at_ns > 0 ? answer->look_at_ns : STINT_NEVER_NS;
            return false;
        }
        message->is_urgent = true;
    }
}

/* Answers the request, or lets it wait. */
static void answer(struct http_conn *conn, uint64_t now_ns)
{
    struct http_answer answer;
    struct http_message message = {
        .peer = span_of(conn->peer, conn->peer_len),
        .is_urgent = conn->is_draining,
        .pending = conn->pending,
    };
    if (!conn->was_asked)
        conn->asked_ns = server_clock_now(conn->frontend->clock, now_ns);
    conn->was_asked = true;
    conn->pending = NULL;
    conn->again_ns = conn->look_ns = STINT_NEVER_NS;
    http_request_message(conn->request, &message);
    if (ask(conn, &message, now_ns, &answer))
        send_answer(conn, &answer);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool may_read(const struct http_conn *conn)
{
    return !conn->is_over && !waits(conn) && !is_full(conn);
}

/* Handles the reader's event; `is_last`: no byte follows it. */
static void handle(struct http_conn *conn, enum http_event event, bool is_last, uint64_t now_ns)
{
    switch (event) {
    case HTTP_EVENT_NONE:
        break;
    case HTTP_EVENT_HEAD:
        /* The client sends the body without waiting for 100 Continue. */
        if (conn->request->wants_continue && is_last && !http_writer_continue(&conn->out))
            conn->is_over = true;
        break;
    case HTTP_EVENT_MESSAGE:
        answer(conn, now_ns);
        break;
    case HTTP_EVENT_REFUSED:
        refuse(conn, conn->reader.status, conn->reader.detail);
        break;
    }
}

/* Reads and answers these bytes as far as possible; returns how many it used. */
static size_t serve(struct http_conn *conn, struct span bytes, uint64_t now_ns)
{
    size_t done = 0;
    while (done < bytes.len && may_read(conn) && !(done > 0 && conn_turn_is_over(&conn->conn))) {
        size_t used;
        if (conn->request == NULL && !take_request(conn)) {
            conn->is_over = true;
            break;
        }
        enum http_event event =
            http_reader_read(&conn->reader, span_of(bytes.ptr + done, bytes.len - done), &used);
        done += used;
        handle(conn, event, done == bytes.len, now_ns);
    }
    return done;
}

/* After every step: checks whether the connection is over, and frees memory. */
static void settle(struct http_conn *conn)
{
    /* A connection that drains has now answered all requests that it may. */
    if (conn->is_draining && byte_queue_len(&conn->input) == 0 && !waits(conn))
        conn->is_over = true;
    if (conn->is_over)
        byte_queue_clear(&conn->input, 0);
    if (conn->request != NULL && !waits(conn) && !http_reader_is_within(&conn->reader))
        drop_request(conn);
}

static void serve_input(struct http_conn *conn, uint64_t now_ns)
{
    size_t done = serve(conn, byte_queue_span(&conn->input), now_ns);
    byte_queue_take(&conn->input, done, SIZE_KEPT);
    settle(conn);
}

/* A store has answered. */
static void on_answers(void *arg, uint64_t now_ns)
{
    struct http_conn *conn = arg;
    answer(conn, now_ns);
    serve_input(conn, now_ns);
    conn_wake(&conn->conn, now_ns);
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void feed(struct conn *base, struct span bytes, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    if (conn->is_over)
        return;
    size_t done = byte_queue_len(&conn->input) == 0 ? serve(conn, bytes, now_ns) : 0;
    if (!conn->is_over &&
        !byte_queue_append(&conn->input, span_of(bytes.ptr + done, bytes.len - done)))
        conn->is_over = true;
    settle(conn);
}

static struct span output(struct conn *base)
{
    const struct http_conn *conn = (void *)base;
    return byte_queue_span(&conn->out);
}

static void sent(struct conn *base, size_t len, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    byte_queue_take(&conn->out, len, SIZE_KEPT);
    if (byte_queue_len(&conn->input) > 0 && !conn_turn_is_over(base))
        serve_input(conn, now_ns);
}

static bool has_work(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return byte_queue_len(&conn->input) > 0 && may_read(conn);
}

/* While a request waits, bytes are still read, up to a limit, to notice that the client closes. */
static bool is_backpressured(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return is_full(conn) || byte_queue_len(&conn->input) > (waits(conn) ? WAITING_INPUT_MAX : 0);
}

static uint64_t deadline(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return min_u64(server_clock_io_deadline(conn->frontend->clock, conn->again_ns), conn->look_ns);
}

static void wake(struct conn *base, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    if (deadline(base) <= now_ns)
        answer(conn, now_ns);
    serve_input(conn, now_ns);
}

static void expire(struct conn *base, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    (void)now_ns;
    if (!conn->is_over && !waits(conn))
        refuse(conn, 408, "the request did not arrive within http_request_time");
    conn->is_over = true;
}

static bool is_over(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return conn->is_over;
}

static void drain(struct conn *base, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    conn->is_draining = true;
    if (conn->again_ns != STINT_NEVER_NS || conn->look_ns != STINT_NEVER_NS)
        answer(conn, now_ns);
    serve_input(conn, now_ns);
}

static bool is_busy(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return waits(conn) || byte_queue_len(&conn->input) > 0 || http_reader_is_within(&conn->reader);
}

static size_t held(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return conn->input.size + conn->out.size +
           (conn->request != NULL ? conn->request->text.size : 0);
}

static void free_conn(struct conn *base)
{
    struct http_conn *conn = (void *)base;
    service_drop(conn->frontend->options.service, conn->pending);
    drop_request(conn);
    byte_queue_deinit(&conn->input);
    byte_queue_deinit(&conn->out);
    free(conn);
}

static const struct conn_ops ops = {
    .feed = feed,
    .output = output,
    .sent = sent,
    .has_work = has_work,
    .is_backpressured = is_backpressured,
    .deadline = deadline,
    .wake = wake,
    .expire = expire,
    .is_over = is_over,
    .drain = drain,
    .is_busy = is_busy,
    .held = held,
    .free = free_conn,
};

struct conn *http_conn_new(struct http_frontend *frontend, struct span peer)
{
    struct http_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->conn.ops = &ops;
    conn->frontend = frontend;
    conn->again_ns = conn->look_ns = STINT_NEVER_NS;
    conn->peer_len = (uint8_t)(peer.len < PEER_SIZE ? peer.len : PEER_SIZE);
    if (conn->peer_len > 0)
        memcpy(conn->peer, peer.ptr, conn->peer_len);
    http_reader_init(&conn->reader, &frontend->reader_limits);
    return &conn->conn;
}
