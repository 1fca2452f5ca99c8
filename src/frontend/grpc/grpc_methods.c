/* SPDX-License-Identifier: MIT */
/* What each method does with its one message. */
#include "frontend/grpc/grpc_parts.h"
#include "proto/grpc/kuadrant.h"

#define RESERVATION_GONE                                                                           \
    "the reservation was committed, has ended, or never was; nothing was charged. To record use "  \
    "that no reservation covers, leave reservation_id empty"

static enum grpc_status status_of(enum reply_error error)
{
    switch (error) {
    case REPLY_BAD_REQUEST:
        return GRPC_INVALID_ARGUMENT;
    case REPLY_FORBIDDEN:
        return GRPC_PERMISSION_DENIED;
    case REPLY_GONE:
        return GRPC_NOT_FOUND;
    case REPLY_CONFLICT:
        return GRPC_ABORTED;
    case REPLY_FULL:
        return GRPC_RESOURCE_EXHAUSTED;
    case REPLY_UNAVAILABLE:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_OK;
    }
}

/* ---- Methods of the limiter ------------------------------------------------------------------ */

static int read_request(struct grpc_call *call, struct span message, const struct request **request,
                        struct stint_error *error)
{
    struct rls_call *rls = call->conn->frontend->rls;
    switch (call->method) {
    case GRPC_CHECK_RATE_LIMIT:
        return kuadrant_read_check(rls, message, request, error);
    case GRPC_REPORT:
        return kuadrant_read_report(rls, message, request, error);
    case GRPC_RESERVE:
        return kuadrant_read_reserve(rls, message, request, error);
    case GRPC_COMMIT:
        return kuadrant_read_commit(rls, message, request, error);
    default:
        return rls_read(rls, message, request, error);
    }
}

static struct span write_response(const struct grpc_call *call, const struct request *request)
{
    struct grpc_frontend *frontend = call->conn->frontend;
    switch (call->method) {
    case GRPC_RESERVE:
        return kuadrant_write_reserve(frontend->rls, request, &frontend->reply);
    case GRPC_COMMIT:
        return kuadrant_write_commit(frontend->rls, request);
    default:
        return rls_write(frontend->rls, frontend->options.form, request, &frontend->reply);
    }
}

static void answer(struct grpc_call *call, const struct request *request)
{
    const struct reply *reply = &call->conn->frontend->reply;
    if (reply->error != REPLY_DECIDED) {
        const char *message = reply->message;
        if (call->method == GRPC_COMMIT && reply->error == REPLY_GONE)
            message = RESERVATION_GONE;
        grpc_answer_fail(call, status_of((enum reply_error)reply->error), message);
        return;
    }
    struct span response = write_response(call, request);
    if (response.ptr == NULL)
        grpc_answer_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the answer");
    else
        grpc_answer_once(call, response);
}

static void ask_limiter(struct grpc_call *call, struct span message)
{
    struct grpc_conn *conn = call->conn;
    struct grpc_frontend *frontend = conn->frontend;
    const struct request *request;
    struct stint_error error;
    if (!grpc_caller_admit(call))
        return;
    int code = read_request(call, message, &request, &error);
    if (code < 0) {
        grpc_answer_refuse(call,
                           code == STINT_E_SYSTEM ? GRPC_RESOURCE_EXHAUSTED : GRPC_INVALID_ARGUMENT,
                           error.message);
        return;
    }
    struct caller caller = grpc_caller_of(call);
    struct request again;
    if (call->pending != NULL) {
        again = *request;
        again.pending = call->pending;
        call->pending = NULL;
        request = &again;
    }
    service_ask(frontend->options.service, request, &caller,
                server_clock_now(frontend->clock, conn->now_ns), &frontend->reply);
    if (frontend->reply.error == REPLY_WAITS) {
        call->pending = frontend->reply.pending;
        return;
    }
    grpc_abuse_forgive(conn);
    answer(call, request);
}

/* ---- Health ---------------------------------------------------------------------------------- */

static void check_health(struct grpc_call *call, struct span message)
{
    uint8_t response[HEALTH_MESSAGE_MAX], name[HEALTH_NAME_MAX];
    struct span service;
    struct stint_error error;
    if (health_read(message, name, &service, &error) < 0)
        grpc_answer_refuse(call, GRPC_INVALID_ARGUMENT, error.message);
    else if (call->method == GRPC_HEALTH_WATCH)
        grpc_watch_begin(call, health_knows(service));
    else if (!health_knows(service))
        grpc_answer_fail(call, GRPC_NOT_FOUND, "no such service");
    else
        grpc_answer_once(
            call, span_of(response, health_write(response, grpc_health(call->conn->frontend))));
}

static void list_health(struct grpc_call *call)
{
    uint8_t response[HEALTH_MESSAGE_MAX];
    size_t len = health_write_list(response, grpc_health(call->conn->frontend));
    grpc_answer_once(call, span_of(response, len));
}

void grpc_method_ask(struct grpc_call *call, struct span message)
{
    bool asks = grpc_method_asks(call->method);
    if (asks)
        ask_limiter(call, message);
    else if (call->method == GRPC_HEALTH_LIST)
        list_health(call);
    else
        check_health(call, message);
    if (!asks)
        grpc_abuse_forgive(call->conn);
}
