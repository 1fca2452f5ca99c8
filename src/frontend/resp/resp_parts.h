/* SPDX-License-Identifier: MIT */
/* Shared by the files of a RESP connection. */
#ifndef STINT_FRONTEND_RESP_RESP_PARTS_H
#define STINT_FRONTEND_RESP_RESP_PARTS_H

#include "base/buf.h"
#include "base/byte_queue.h"
#include "base/err.h"
#include "frontend/resp/resp_conn.h"
#include "proto/resp/resp_command.h"
#include "proto/resp/resp_reader.h"
#include "proto/resp/resp_request.h"
#include "proto/resp/resp_writer.h"
#include "service/access/access.h"
#include "service/metrics/metrics.h"
#include "service/server_clock.h"

#define RESP_NAME_MAX 64 /* bytes of a connection's name */

struct resp_frontend {
    struct service *service;
    struct server_clock *clock;
    struct access_now *access; /* NULL: no token is needed */
    struct access *tokens;     /* the set in force at the last check; NULL: none */
    uint64_t generation;       /* of tokens */
    struct resp_bounds bounds, unauthenticated_bounds;
    size_t output_bytes;
    uint64_t n_opened;
    struct resp_argv argv; /* of the current command */
    struct resp_lists lists;
    struct request throttle; /* CL.THROTTLE, except its arguments */
    struct reply reply;
};

/*
 * Pending requests of the commands at the head of the input, one for each, in their order: the
 * first command waits for its store, and the store requests of the next ones are already sent.
 * docs/decisions/0036.
 */
struct resp_pending_requests {
    struct pending **ring; /* of RESP_PENDING_MAX; NULL until one is needed */
    unsigned first, n;
    bool lacks_first;          /* the command at the head waits for a time, not for a store */
    size_t bytes;              /* of their commands */
    struct resp_reader reader; /* of the command after them */
};

#define RESP_PENDING_MAX 256 /* a power of two */

struct resp_conn {
    struct conn conn;
    struct resp_frontend *frontend;
    struct resp_reader reader;
    struct byte_queue input; /* an incomplete command, or complete ones that wait */
    struct resp_writer out;
    size_t sent;                      /* bytes of out that are sent */
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
    bool has_yielded;     /* its turn was over with complete commands left */
    bool is_known;        /* authenticated; otherwise only commands with RESP_FLAG_NO_AUTH */
    bool is_draining, is_over;
    uint8_t name_len, peer_len;
    char name[RESP_NAME_MAX];
    char peer[ACCESS_PEER_MAX]; /* its address; empty: a Unix socket */
};

/* One command and its context. */
struct resp_call {
    struct resp_conn *conn;
    const struct resp_command *command;
    const struct span *args; /* args[0] is the command's name */
    size_t n_args;
    uint64_t now_ns; /* of decisions */
    uint64_t io_now_ns;
    struct pending *pending; /* of the command; the function that uses it sets NULL */
    bool is_ahead;           /* earlier ones wait: only a store request may be sent, and no reply */
    bool has_waited;         /* it now waits for a store */
};

/* Whether the command at the head waits for its store. */
bool resp_prefetch_waits(const struct resp_conn *conn);

static inline bool resp_conn_is_suspended(const struct resp_conn *conn)
{
    return conn->retry_at_ns != STINT_NEVER_NS || resp_prefetch_waits(conn);
}

/* For a command that may wait: records the time of the first call. */
static inline void resp_call_begin(struct resp_call *call)
{
    if (!call->conn->was_asked)
        call->conn->asked_ns = call->now_ns;
    call->conn->was_asked = true;
}

/* Instead of a reply: decides the command again then. False where it may not wait any more. */
bool resp_call_park(struct resp_call *call, uint64_t retry_at_ns);
/* ---- resp_prefetch.c: commands that wait for stores ---------------------------------------------
 */

/* The caller for a request of this command. */
void resp_call_prepare(struct resp_call *call, struct request *request);
/* Whether there is no reply: a store request was sent, or the command has to wait for its turn. */
bool resp_call_waits(struct resp_call *call, const struct reply *reply);
/* The command waits for a pending request that it has begun in its turn. */
void resp_call_await(struct resp_call *call, struct pending *pending);
/* The pending request of the command at the head, which can continue; NULL: it has none. */
struct pending *resp_prefetch_take(struct resp_conn *conn, size_t command_len);
/* Begins those commands after a waiting one that can be prefetched. */
void resp_prefetch_look(struct resp_conn *conn, uint64_t now_ns);
void resp_prefetch_free(struct resp_conn *conn);
/* resp_conn.c */
void resp_conn_go_on(struct resp_conn *conn, uint64_t now_ns);

/* An error whose word follows from its code. */
void resp_call_refuse(struct resp_call *call, const struct stint_error *error);
/* Whether the caller has one of these roles; otherwise an error was replied. */
bool resp_call_may(struct resp_call *call, unsigned roles);

/* Checks whether the tokens in force still include the caller's token. */
void resp_caller_renew(struct resp_conn *conn);
/* Removes the authentication, as at the beginning of a connection. */
void resp_caller_forget(struct resp_conn *conn);

/* ---- Commands, by the file that answers them ------------------------------------------------- */

/* resp_caller.c */
void resp_auth(struct resp_call *call);
void resp_hello(struct resp_call *call);

/* resp_session.c */
void resp_echo(struct resp_call *call);
void resp_ping(struct resp_call *call);
void resp_quit(struct resp_call *call);
void resp_reset(struct resp_call *call);
void resp_select(struct resp_call *call);
void resp_client(struct resp_call *call);

/* resp_info.c */
void resp_info(struct resp_call *call);
void resp_config(struct resp_call *call);

/* resp_ask.c */
/* Whether it is one of resp_throttle() and resp_verb(); answers it. */
bool resp_is_request(const struct resp_command *command);
void resp_answer_request(struct resp_call *call);
void resp_throttle(struct resp_call *call);
void resp_verb(struct resp_call *call);
void resp_forget_keys(struct resp_call *call);
void resp_count_keys(struct resp_call *call);
void resp_key_time(struct resp_call *call);

/* resp_clock.c, resp_pool.c, resp_top.c */
void resp_clock(struct resp_call *call);
void resp_pool(struct resp_call *call);
void resp_top(struct resp_call *call);

#endif
