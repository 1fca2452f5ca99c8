/* SPDX-License-Identifier: MIT */
/* Commands that are requests: what the service answers, or the wait for it. */
#include "conn/resp_parts.h"

#include "base/ns.h"
#include "proto/resp_reply.h"

static const char *word_of(int code)
{
    switch (code) {
    case STINT_E_GONE:
        return "GONE";
    case STINT_E_MISMATCH:
        return "CONFLICT";
    case STINT_E_FULL:
        return "FULL";
    default:
        return "ERR";
    }
}

void resp_call_refuse(struct resp_call *call, const struct stint_error *error)
{
    resp_write_error(&call->conn->out, word_of(error->code), error->sentence);
}

bool resp_call_may(struct resp_call *call, unsigned roles)
{
    if ((call->conn->caller.roles & roles) != 0)
        return true;
    resp_write_error(&call->conn->out, "NOPERM", "the token's roles do not allow this");
    return false;
}

static void ask(struct resp_call *call, const struct request *request, struct reply *reply)
{
    struct resp_conn *conn = call->conn;
    service_ask(conn->door->service, request, &conn->caller, call->now_ns, reply);
}

void resp_throttle(struct resp_call *call)
{
    struct resp_door *door = call->conn->door;
    struct stint_error error;
    if (resp_request_throttle(call->args, call->n_args, &door->throttle, &error) != 0) {
        resp_call_refuse(call, &error);
        return;
    }
    ask(call, &door->throttle, &door->reply);
    resp_reply_throttle(&call->conn->out, &door->reply);
}

void resp_verb(struct resp_call *call)
{
    struct resp_conn *conn = call->conn;
    struct request request;
    struct stint_error error;
    struct reply *reply = &conn->door->reply;
    if (resp_request_read(call->command, call->args, call->n_args, &conn->door->lists, &request,
                          &error) != 0) {
        resp_call_refuse(call, &error);
        return;
    }
    resp_call_begin(call);
    ask(call, &request, reply);
    uint64_t retry_at_ns = service_retry_at(&request, reply, conn->asked_ns, call->now_ns);
    if (!resp_call_park(call, retry_at_ns))
        resp_reply_verb(&conn->out, &request, reply);
}

/* ---- The keys of CL.THROTTLE ----------------------------------------------------------------- */

/* How many of the keys had a state; -1 if that was refused, and answered. */
static int64_t count_found(struct resp_call *call, enum request_verb verb)
{
    struct request request;
    struct reply *reply = &call->conn->door->reply;
    int64_t n_found = 0;
    for (size_t i = 1; i < call->n_args; i++) {
        resp_request_key(&request, verb, call->args[i]);
        ask(call, &request, reply);
        if (reply->error != REPLY_DECIDED) {
            resp_reply_error(&call->conn->out, reply->error, reply->sentence);
            return -1;
        }
        n_found += reply->found;
    }
    return n_found;
}

static void say_count(struct resp_call *call, enum request_verb verb)
{
    int64_t n_found = count_found(call, verb);
    if (n_found >= 0)
        resp_write_integer(&call->conn->out, n_found);
}

void resp_forget_keys(struct resp_call *call)
{
    say_count(call, REQUEST_FORGET);
}

void resp_count_keys(struct resp_call *call)
{
    say_count(call, REQUEST_FIND);
}

void resp_key_time(struct resp_call *call)
{
    int64_t n_found = count_found(call, REQUEST_FIND);
    uint64_t left_ns = call->conn->door->reply.dies_after_ns;
    uint64_t unit_ns = resp_command_id(call->command) == RESP_TTL ? NS_PER_S : NS_PER_MS;
    if (n_found > 0)
        resp_write_integer(&call->conn->out,
                           (int64_t)(left_ns / unit_ns + (left_ns % unit_ns != 0)));
    else if (n_found == 0)
        resp_write_integer(&call->conn->out, -2);
}
