/* SPDX-License-Identifier: MIT */
/*
 * One command as the functions that answer commands see it: its arguments, the state of its
 * connection, and how it is refused or waits. The connection itself is above them, in resp_conn.c.
 */
#ifndef STINT_FRONTEND_RESP_RESP_CALL_H
#define STINT_FRONTEND_RESP_RESP_CALL_H

#include "base/err.h"
#include "decide/pending.h"
#include "frontend/resp/resp_conn.h"
#include "proto/resp/resp_command.h"
#include "proto/resp/resp_reader.h"
#include "proto/resp/resp_reply.h"
#include "proto/resp/resp_request.h"
#include "service/access/access.h"
#include "service/metrics/metrics.h"
#include "service/server_clock.h"

#define RESP_NAME_MAX 64     /* bytes of a connection's name */
#define RESP_PENDING_MAX 256 /* a power of two */

struct resp_frontend {
    struct service *service;
    struct server_clock *clock;
    struct metrics_worker *metrics; /* NULL: not counted */
    struct access_now *access;      /* NULL: no token is needed */
    struct access *tokens;          /* the set in force at the last check; NULL: none */
    uint64_t generation;            /* of tokens */
    struct resp_bounds bounds, unauthenticated_bounds;
    size_t output_bytes;
    uint64_t n_opened;
    struct resp_argv argv; /* of the current command */
    struct resp_lists lists;
    struct request throttle; /* CL.THROTTLE, except its arguments */
    struct reply reply;
    /* A store has answered: the connection of this state continues. */
    void (*on_answers)(void *state, uint64_t now_ns);
};

/*
 * Pending requests of the commands at the head of the input, one for each, in their order: the
 * first command waits for its store, and the store requests of the next ones are already sent.
 * docs/decisions/0036.
 */
struct resp_pending_requests {
    struct pending **ring; /* of RESP_PENDING_MAX; NULL until one is needed */
    unsigned first, n;
    bool lacks_first; /* the command at the head waits for a time, not for a store */
};

/* What commands read and change of their connection. */
struct resp_state {
    struct resp_frontend *frontend;
    struct resp_writer out;
    const struct resp_bounds *bounds; /* until the client is authenticated */
    struct access *tokens;            /* the set in which `token` was found, with a reference */
    const struct access_token *token;
    struct caller caller;
    uint64_t id;
    struct resp_pending_requests pending_requests;
    size_t keys_done; /* of the command at the head, if it handles its keys one after another */
    int64_t keys_found;
    /* By the time of decisions. */
    uint64_t asked_ns;    /* time of the first call for the command at the head of the input */
    uint64_t retry_at_ns; /* time of the next; STINT_NEVER_NS: it is not waiting */
    bool was_asked;       /* asked_ns is set */
    bool is_known;        /* authenticated; otherwise only commands with RESP_FLAG_NO_AUTH */
    bool is_draining, is_over;
    uint8_t name_len, peer_len;
    char name[RESP_NAME_MAX];
    char peer[ACCESS_PEER_MAX]; /* its address; empty: a Unix socket */
};

struct resp_call {
    struct resp_state *state;
    const struct resp_command *command;
    const struct span *args; /* args[0] is the command's name */
    size_t n_args;
    uint64_t now_ns; /* of decisions */
    uint64_t io_now_ns;
    struct pending *pending; /* of the command; the function that uses it sets NULL */
    bool is_ahead;           /* earlier ones wait: only a store request may be sent, and no reply */
    bool has_waited;         /* it now waits for a store */
};

/* ---- The command table, resp_commands.c ------------------------------------------------------ */

/* Writes the reply to a command. */
extern void (*const resp_answers[RESP_COMMANDS])(struct resp_call *call);

void resp_pool(struct resp_call *call); /* STINT.POOL */

/* ---- Rights ---------------------------------------------------------------------------------- */

/*
 * token NULL: not authenticated, as at the beginning of a connection: the anonymous roles where
 * there are no tokens, and otherwise none.
 */
static inline void resp_state_become(struct resp_state *state, const struct access_token *token)
{
    struct resp_frontend *frontend = state->frontend;
    struct access *tokens = frontend->tokens;
    if (state->tokens != tokens) {
        access_unref(state->tokens);
        state->tokens = tokens != NULL ? access_ref(tokens) : NULL;
    }
    state->token = token;
    state->is_known = token != NULL || tokens == NULL;
    state->bounds = state->is_known ? &frontend->bounds : &frontend->unauthenticated_bounds;
    state->caller.name = token != NULL ? token->name : "";
    unsigned anonymous = tokens == NULL ? access_now_anonymous(frontend->access) : 0;
    state->caller.roles = token != NULL ? token->roles : anonymous;
}
/* Whether the caller has one of these roles; otherwise an error was replied. */
static inline bool resp_call_may(struct resp_call *call, unsigned roles)
{
    if ((call->state->caller.roles & roles) != 0)
        return true;
    resp_write_error(&call->state->out, "NOPERM", "the client's roles do not allow this");
    return false;
}

/* An error whose word follows from its code. */
static inline void resp_call_refuse(struct resp_call *call, const struct stint_error *error)
{
    const char *word = error->code == STINT_E_GONE       ? "GONE"
                       : error->code == STINT_E_MISMATCH ? "CONFLICT"
                       : error->code == STINT_E_FULL     ? "FULL"
                       : error->code == STINT_E_SYSTEM   ? "UNAVAILABLE"
                                                         : "ERR";
    resp_write_error(&call->state->out, word, error->message);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static inline struct pending **resp_pending_at(struct resp_pending_requests *pending_requests,
                                               unsigned i)
{
    return &pending_requests->ring[(pending_requests->first + i) % RESP_PENDING_MAX];
}

/* Whether the command at the head waits for its store. */
static inline bool resp_state_waits(const struct resp_state *state)
{
    const struct resp_pending_requests *pending_requests = &state->pending_requests;
    return pending_requests->n > 0 && !pending_requests->lacks_first &&
           pending_requests->ring[pending_requests->first]->n_waiting > 0;
}

/* Or for a time. */
static inline bool resp_state_is_suspended(const struct resp_state *state)
{
    return state->retry_at_ns != STINT_NEVER_NS || resp_state_waits(state);
}

/* For a command that may wait: records the time of the first call. */
static inline void resp_call_begin(struct resp_call *call)
{
    if (!call->state->was_asked)
        call->state->asked_ns = call->now_ns;
    call->state->was_asked = true;
}

/* Instead of a reply: decides the command again then. False where it may not wait any more. */
static inline bool resp_call_park(struct resp_call *call, uint64_t retry_at_ns)
{
    struct resp_state *state = call->state;
    if (retry_at_ns == 0 || state->is_draining || call->is_ahead)
        return false;
    state->retry_at_ns = retry_at_ns;
    state->pending_requests.lacks_first = true;
    return true;
}

/* The command waits for a pending request that it has begun in its turn. */
void resp_call_await(struct resp_call *call, struct pending *pending);

#endif
