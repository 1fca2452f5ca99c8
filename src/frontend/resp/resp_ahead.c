/* SPDX-License-Identifier: MIT */
/*
 * Commands that wait for stores. Answers go out in the order of the commands, but the commands of a
 * pipeline are not to wait for each other: while the first waits, those behind it are begun as far
 * as they ask stores as well. Each is read and asked again when it is the first.
 */
#include "frontend/resp/resp_parts.h"

#include "decide/errand.h"

#include <stdlib.h>

static struct errand **errand_at(struct resp_errands *errands, unsigned i)
{
    return &errands->ring[(errands->first + i) % RESP_ERRANDS_MAX];
}

bool resp_ahead_waits(const struct resp_conn *conn)
{
    const struct resp_errands *errands = &conn->errands;
    return errands->n > 0 && !errands->lacks_first && errands->ring[errands->first]->n_waiting > 0;
}

static void on_answers(void *arg, uint64_t now_ns)
{
    struct resp_conn *conn = arg;
    if (!resp_conn_is_parked(conn))
        resp_conn_go_on(conn, now_ns);
}

void resp_call_prepare(struct resp_call *call, struct request *request)
{
    request->errand = call->errand;
    request->is_ahead = call->is_ahead;
    call->errand = NULL;
}

/* The command at the head has the first place, whatever was begun behind it. */
static void add(struct resp_call *call, struct errand *errand)
{
    struct resp_errands *errands = &call->conn->errands;
    if (call->is_ahead) {
        *errand_at(errands, errands->n) = errand;
    } else {
        errands->first = (errands->first + RESP_ERRANDS_MAX - 1) % RESP_ERRANDS_MAX;
        errands->ring[errands->first] = errand;
    }
    errands->n++;
}

void resp_call_await(struct resp_call *call, struct errand *errand)
{
    struct resp_conn *conn = call->conn;
    struct resp_errands *errands = &conn->errands;
    if (errands->ring == NULL)
        errands->ring = calloc(RESP_ERRANDS_MAX, sizeof(struct errand *));
    if (errands->ring == NULL) {
        service_drop(conn->door->service, errand);
        conn->is_over = true;
        return;
    }
    add(call, errand);
    call->has_waited = true;
    service_on_answers(errand, on_answers, conn);
}

bool resp_call_waits(struct resp_call *call, const struct reply *reply)
{
    if (reply->error != REPLY_WAITS)
        return call->is_ahead; /* whatever it would be answered, it is told in its turn */
    resp_call_await(call, reply->errand);
    return true;
}

struct errand *resp_ahead_take(struct resp_conn *conn, size_t command_len)
{
    struct resp_errands *errands = &conn->errands;
    bool lacks_first = errands->lacks_first;
    errands->lacks_first = false;
    if (errands->n == 0 || lacks_first)
        return NULL;
    struct errand *errand = errands->ring[errands->first];
    errands->first = (errands->first + 1) % RESP_ERRANDS_MAX;
    errands->n--;
    errands->bytes -= command_len;
    if (errands->n == 0)
        errands->reader = (struct resp_reader){0};
    return errand;
}

void resp_ahead_free(struct resp_conn *conn)
{
    struct resp_errands *errands = &conn->errands;
    for (unsigned i = 0; i < errands->n; i++)
        service_drop(conn->door->service, *errand_at(errands, i));
    free(errands->ring);
    errands->ring = NULL;
    errands->n = 0;
}

/* ---- Looking ahead --------------------------------------------------------------------------- */

static bool may_begin(const struct resp_conn *conn, const struct resp_command *command,
                      size_t n_args)
{
    return command != NULL && resp_command_takes(command, n_args) && conn->is_known &&
           resp_is_request(command);
}

/* False: the command stays for when it is the first. */
static bool begin(struct resp_conn *conn, uint64_t now_ns)
{
    struct resp_argv *argv = &conn->door->argv;
    const struct resp_command *command = argv->n > 0 ? resp_command_find(argv->args[0]) : NULL;
    struct resp_call call = {.conn = conn,
                             .command = command,
                             .args = argv->args,
                             .n_args = argv->n,
                             .now_ns = server_clock_now(conn->door->clock, now_ns),
                             .io_now_ns = now_ns,
                             .is_ahead = true};
    if (!may_begin(conn, command, argv->n))
        return false;
    resp_answer_request(&call);
    return call.has_waited;
}

void resp_ahead_look(struct resp_conn *conn, uint64_t now_ns)
{
    struct resp_errands *errands = &conn->errands;
    const struct byte_queue *input = &conn->input;
    while (resp_ahead_waits(conn) && !conn->is_over && errands->n < RESP_ERRANDS_MAX) {
        size_t at = input->start + errands->bytes;
        if (at >= input->end)
            return;
        long len = resp_reader_next(&errands->reader, span_of(input->bytes + at, input->end - at),
                                    conn->bounds, &conn->door->argv);
        if (len < 0)
            errands->reader = (struct resp_reader){0}; /* told when it is the first */
        if (len <= 0 || !begin(conn, now_ns))
            return;
        errands->bytes += (size_t)len;
    }
}
