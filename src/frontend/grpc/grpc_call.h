/* SPDX-License-Identifier: MIT */
/*
 * A call: its header fields and its caller, its messages, its response. nghttp2 identifies a call
 * by its stream; the call is made when the stream's fields begin, and freed when the stream is
 * closed.
 */
#ifndef STINT_FRONTEND_GRPC_GRPC_CALL_H
#define STINT_FRONTEND_GRPC_GRPC_CALL_H

#include "frontend/grpc/grpc_output.h"
#include "proto/grpc/grpc.h"

#define GRPC_ANSWER_SPACE 120 /* an answer up to this size needs no memory of its own */

/* Header fields of a call seen so far. */
enum grpc_said {
    GRPC_SAID_POST = 1,
    GRPC_SAID_GRPC = 2, /* content-type */
    GRPC_SAID_ACCEPTS_GZIP = 4,
    GRPC_SAID_SECRET = 8,      /* authorization, with the scheme Bearer */
    GRPC_SAID_TOO_MUCH = 16,   /* more than limits.header_bytes */
    GRPC_SAID_NO_TIMEOUT = 32, /* an invalid grpc-timeout */
    GRPC_SAID_TOO_OFTEN = 64,  /* a secret, after too many wrong ones */
};

struct grpc_call {
    struct grpc_conn *conn;
    struct grpc_call *next, *prev;
    int32_t id; /* of the stream */
    uint8_t list;
    uint8_t said;
    uint8_t method;   /* enum grpc_method */
    uint8_t encoding; /* enum grpc_encoding: of its messages */
    bool is_at_end;   /* the peer sends no more */
    bool is_begun;    /* the fields of an answer were submitted */
    bool is_ended;    /* the response is complete: further input is ignored */
    bool is_endless;  /* counted as one: of a method without a time limit */
    bool wants_gzip;
    bool watches_known;    /* the service is known */
    int8_t last_sent;      /* enum health_status, to a watcher; -1: none */
    uint8_t status;        /* of the trailers */
    char *message;         /* of the trailers; the call's. NULL: none */
    uint64_t begun_ns;     /* reflection: or when all its answers were read; a watcher: or when
                            * its unread message was made */
    uint64_t ends_ns;      /* grpc-timeout; STINT_NEVER_NS: none */
    struct access *tokens; /* in which `token` was found, with a reference; NULL: none */
    const struct access_token *token;
    struct pending *pending; /* of a pending store request; NULL: none */
    struct span borrowed;    /* of the message, where it was read: until feed() returns */
    struct grpc_bytes input; /* the part of an incomplete message that has come */
    struct grpc_bytes answer;
    uint8_t space[GRPC_ANSWER_SPACE];
};

/* What a method does with its calls. */
struct grpc_handler {
    /*
     * Answers a message. If the call has a pending request afterwards, there is no answer yet: asks
     * again with the same message when the store has answered.
     */
    void (*ask)(struct grpc_call *call, struct span message);
    void (*on_read)(struct grpc_call *call); /* the peer has read all so far. NULL: nothing more */
    bool needs_token;
    bool is_endless; /* several answers, without a time limit */
    bool takes_many; /* messages. Each is answered when the answer before it is read */
};

/* ---- Input ----------------------------------------------------------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_conn *conn, int32_t id); /* NULL: no memory */
void grpc_call_free(struct grpc_call *call);
void grpc_call_enlist(struct grpc_call *call, enum grpc_list list);
/* Ends a call whose answer is not read in time: resets its stream. */
void grpc_call_cut(struct grpc_call *call);

void grpc_call_take_field(struct grpc_call *call, struct span name, struct span value);
/* All fields are read: rejects the call if one of them is invalid. */
void grpc_call_end_fields(struct grpc_call *call);
void grpc_call_take_data(struct grpc_call *call, struct span bytes, bool is_last);
/* Copies input that lies in the caller's memory. */
void grpc_call_keep_borrowed(struct grpc_call *call);
void grpc_call_end(struct grpc_call *call);

/* ---- All calls of a connection --------------------------------------------------------------- */

/* When the oldest one exceeds its time limit; STINT_NEVER_NS: there is none. */
static inline uint64_t grpc_calls_end_ns(const struct grpc_conn *conn)
{
    const struct grpc_call *oldest = conn->first[GRPC_TIMED];
    return oldest != NULL ? oldest->begun_ns + conn->frontend->limits.call_ns : STINT_NEVER_NS;
}

/* Ends those that have exceeded it, or whose own time limit a store has not met. */
void grpc_calls_end_late(struct grpc_conn *conn);
/* Continues with the messages left when the turn was over. */
void grpc_calls_go_on(struct grpc_conn *conn);

/* ---- The response ---------------------------------------------------------------------------- */

/* One message, and the end. */
void grpc_answer_once(struct grpc_call *call, struct span message);
/* One of several messages; false: no memory. */
bool grpc_answer_add(struct grpc_call *call, struct span message);
/* Ends the response after its messages. From then on the call has a time limit. */
void grpc_answer_end(struct grpc_call *call, enum grpc_status status, const char *message);
/* Ends the call with an error, instead of an answer or after the answers so far. */
void grpc_answer_fail(struct grpc_call *call, enum grpc_status status, const char *message);
/* The same for an error of the caller, which is counted. */
void grpc_answer_refuse(struct grpc_call *call, enum grpc_status status, const char *message);

/* ---- grpc_methods.c -------------------------------------------------------------------------- */

extern const struct grpc_handler grpc_methods[]; /* by enum grpc_method */

/* Sends changed health to the watchers of a connection, and checks that they are there. */
void grpc_methods_look(struct grpc_conn *conn);
/* The connection ends: ends the calls that have no end of their own. */
void grpc_methods_leave(struct grpc_conn *conn);

#endif
