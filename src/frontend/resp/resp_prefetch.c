/* SPDX-License-Identifier: MIT */
/*
 * Commands that wait for stores. Replies are sent in the order of the commands, but the commands of
 * a pipeline do not wait for each other's stores: while the first waits, those after it are begun
 * if they need stores as well. Each is read and decided again when it is the first.
 */
#include "frontend/resp/resp_parts.h"

#include "decide/pending.h"

#include <stdlib.h>

static struct pending **pending_at(struct resp_pending_requests *pending_requests, unsigned i)
{
    return &pending_requests->ring[(pending_requests->first + i) % RESP_PENDING_MAX];
}

bool resp_prefetch_waits(const struct resp_conn *conn)
{
    const struct resp_pending_requests *pending_requests = &conn->pending_requests;
    return pending_requests->n > 0 && !pending_requests->lacks_first &&
           pending_requests->ring[pending_requests->first]->n_waiting > 0;
}

static void on_answers(void *arg, uint64_t now_ns)
{
    struct resp_conn *conn = arg;
    if (!resp_conn_is_suspended(conn))
        resp_conn_go_on(conn, now_ns);
}

void resp_call_prepare(struct resp_call *call, struct request *request)
{
    request->pending = call->pending;
    request->is_ahead = call->is_ahead;
    call->pending = NULL;
}

/* The command at the head uses the first entry, even if later commands were begun before it. */
static void add(struct resp_call *call, struct pending *pending)
{
    struct resp_pending_requests *pending_requests = &call->conn->pending_requests;
    if (call->is_ahead) {
        *pending_at(pending_requests, pending_requests->n) = pending;
    } else {
        pending_requests->first =
            (pending_requests->first + RESP_PENDING_MAX - 1) % RESP_PENDING_MAX;
        pending_requests->ring[pending_requests->first] = pending;
    }
    pending_requests->n++;
}

void resp_call_await(struct resp_call *call, struct pending *pending)
{
    struct resp_conn *conn = call->conn;
    struct resp_pending_requests *pending_requests = &conn->pending_requests;
    if (pending_requests->ring == NULL)
        pending_requests->ring = calloc(RESP_PENDING_MAX, sizeof(struct pending *));
    if (pending_requests->ring == NULL) {
        service_drop(conn->frontend->service, pending);
        conn->is_over = true;
        return;
    }
    add(call, pending);
    call->has_waited = true;
    service_on_answers(pending, on_answers, conn);
}

bool resp_call_waits(struct resp_call *call, const struct reply *reply)
{
    if (reply->error != REPLY_WAITS)
        return call->is_ahead; /* its reply is written in its turn */
    resp_call_await(call, reply->pending);
    return true;
}

struct pending *resp_prefetch_take(struct resp_conn *conn, size_t command_len)
{
    struct resp_pending_requests *pending_requests = &conn->pending_requests;
    bool lacks_first = pending_requests->lacks_first;
    pending_requests->lacks_first = false;
    if (pending_requests->n == 0 || lacks_first)
        return NULL;
    struct pending *pending = pending_requests->ring[pending_requests->first];
    pending_requests->first = (pending_requests->first + 1) % RESP_PENDING_MAX;
    pending_requests->n--;
    pending_requests->bytes -= command_len;
    if (pending_requests->n == 0)
        pending_requests->reader = (struct resp_reader){0};
    return pending;
}

void resp_prefetch_free(struct resp_conn *conn)
{
    struct resp_pending_requests *pending_requests = &conn->pending_requests;
    for (unsigned i = 0; i < pending_requests->n; i++)
        service_drop(conn->frontend->service, *pending_at(pending_requests, i));
    free(pending_requests->ring);
    pending_requests->ring = NULL;
    pending_requests->n = 0;
}

/* ---- Prefetching ----------------------------------------------------------------------------- */

static bool may_begin(const struct resp_conn *conn, const struct resp_command *command,
                      size_t n_args)
{
    return command != NULL && resp_command_takes(command, n_args) && conn->is_known &&
           resp_is_request(command);
}

/* False: the command is handled when it is the first. */
static bool begin(struct resp_conn *conn, uint64_t now_ns)
{
    struct resp_argv *argv = &conn->frontend->argv;
    const struct resp_command *command = argv->n > 0 ? resp_command_find(argv->args[0]) : NULL;
    struct resp_call call = {.conn = conn,
                             .command = command,
                             .args = argv->args,
                             .n_args = argv->n,
                             .now_ns = server_clock_now(conn->frontend->clock, now_ns),
                             .io_now_ns = now_ns,
                             .is_ahead = true};
    if (!may_begin(conn, command, argv->n))
        return false;
    resp_answer_request(&call);
    return call.has_waited;
}

void resp_prefetch_look(struct resp_conn *conn, uint64_t now_ns)
{
    struct resp_pending_requests *pending_requests = &conn->pending_requests;
    const struct byte_queue *input = &conn->input;
    while (resp_prefetch_waits(conn) && !conn->is_over && pending_requests->n < RESP_PENDING_MAX) {
        size_t at = input->start + pending_requests->bytes;
        if (at >= input->end)
            return;
        long len =
            resp_reader_next(&pending_requests->reader, span_of(input->bytes + at, input->end - at),
                             conn->bounds, &conn->frontend->argv);
        if (len < 0)
            pending_requests->reader = (struct resp_reader){0}; /* the error is replied later */
        if (len <= 0 || !begin(conn, now_ns))
            return;
        pending_requests->bytes += (size_t)len;
    }
}
