/* SPDX-License-Identifier: MIT */
/* Commands that are requests: the service's reply, or the wait for it. */
#include "frontend/resp/resp_parts.h"

#include "base/ns.h"
#include "proto/resp/resp_reply.h"

static const char *word_of(int code)
{
    switch (code) {
    case STINT_E_GONE:
        return "GONE";
    case STINT_E_MISMATCH:
        return "CONFLICT";
    case STINT_E_FULL:
        return "FULL";
    case STINT_E_SYSTEM:
        return "UNAVAILABLE";
    default:
        return "ERR";
    }
}

void resp_call_refuse(struct resp_call *call, const struct stint_error *error)
{
    resp_write_error(&call->conn->out, word_of(error->code), error->message);
}

bool resp_call_may(struct resp_call *call, unsigned roles)
{
    if ((call->conn->caller.roles & roles) != 0)
        return true;
    resp_write_error(&call->conn->out, "NOPERM", "the token's roles do not allow this");
    return false;
}

/* False: there is no reply, or not yet. */
static bool ask(struct resp_call *call, struct request *request, struct reply *reply)
{
    struct resp_conn *conn = call->conn;
    resp_call_prepare(call, request);
    service_ask(conn->frontend->service, request, &conn->caller, call->now_ns, reply);
    return !resp_call_waits(call, reply);
}

/* Runs a prefetched command in its turn. */
static void refuse(struct resp_call *call, const struct stint_error *error)
{
    if (!call->is_ahead)
        resp_call_refuse(call, error);
}

void resp_throttle(struct resp_call *call)
{
    struct resp_frontend *frontend = call->conn->frontend;
    struct stint_error error;
    if (resp_request_throttle(call->args, call->n_args, &frontend->throttle, &error) != 0) {
        if (error.code == STINT_E_SYNTAX && !call->is_ahead)
            resp_write_error(&call->conn->out, "Cell", error.message);
        else
            refuse(call, &error);
        return;
    }
    if (ask(call, &frontend->throttle, &frontend->reply))
        resp_reply_throttle(&call->conn->out, &frontend->reply);
}

void resp_verb(struct resp_call *call)
{
    struct resp_conn *conn = call->conn;
    struct request request;
    struct stint_error error;
    struct reply *reply = &conn->frontend->reply;
    if (resp_request_read(call->command, call->args, call->n_args, &conn->frontend->lists, &request,
                          &error) != 0) {
        refuse(call, &error);
        return;
    }
    if (!call->is_ahead)
        resp_call_begin(call);
    if (!ask(call, &request, reply))
        return;
    uint64_t retry_at_ns = service_retry_at(&request, reply, conn->asked_ns, call->now_ns);
    if (!resp_call_park(call, retry_at_ns))
        resp_reply_verb(&conn->out, &request, reply);
}

bool resp_is_request(const struct resp_command *command)
{
    return command->verb < REQUEST_VERBS && request_verbs[command->verb].may_be_ahead;
}

void resp_answer_request(struct resp_call *call)
{
    if (resp_command_id(call->command) == RESP_THROTTLE)
        resp_throttle(call);
    else
        resp_verb(call);
}

/* ---- The keys of CL.THROTTLE ----------------------------------------------------------------- */

/*
 * How many of the keys had a state; -1 if there was an error, which was replied, or if the result
 * is not known yet. A suspended command continues at the key that it waited for.
 */
static int64_t count_found(struct resp_call *call, enum request_verb verb)
{
    struct request request;
    struct resp_conn *conn = call->conn;
    struct reply *reply = &conn->frontend->reply;
    for (; conn->keys_done + 1 < call->n_args; conn->keys_done++) {
        resp_request_key(&request, verb, call->args[conn->keys_done + 1]);
        if (!ask(call, &request, reply))
            return -1;
        if (reply->error != REPLY_DECIDED) {
            resp_reply_error(&conn->out, reply->error, reply->message);
            conn->keys_found = -1;
            break;
        }
        conn->keys_found += reply->found;
    }
    int64_t n_found = conn->keys_found;
    conn->keys_done = 0;
    conn->keys_found = 0;
    return n_found;
}

static void reply_count(struct resp_call *call, enum request_verb verb)
{
    int64_t n_found = count_found(call, verb);
    if (n_found >= 0)
        resp_write_integer(&call->conn->out, n_found);
}

void resp_forget_keys(struct resp_call *call)
{
    reply_count(call, REQUEST_FORGET);
}

void resp_count_keys(struct resp_call *call)
{
    reply_count(call, REQUEST_FIND);
}

void resp_key_time(struct resp_call *call)
{
    int64_t n_found = count_found(call, REQUEST_FIND);
    if (n_found < 0)
        return;
    uint64_t left_ns = call->conn->frontend->reply.expires_after_ns;
    uint64_t unit_ns = resp_command_id(call->command) == RESP_TTL ? NS_PER_S : NS_PER_MS;
    if (n_found > 0)
        resp_write_integer(&call->conn->out,
                           (int64_t)(left_ns / unit_ns + (left_ns % unit_ns != 0)));
    else
        resp_write_integer(&call->conn->out, -2);
}
