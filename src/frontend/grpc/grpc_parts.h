/* SPDX-License-Identifier: MIT */
/*
 * What the files of a gRPC connection share.
 *
 * A connection has lists of its open calls: those with a time limit, the oldest first; those that
 * watch health; and those whose streams are about to be closed. nghttp2 identifies a call by its
 * stream; the call is made when the stream's fields begin, and freed when the stream is closed.
 */
#ifndef STINT_FRONTEND_GRPC_GRPC_PARTS_H
#define STINT_FRONTEND_GRPC_GRPC_PARTS_H

#include "base/err.h"
#include "base/ns.h"
#include "frontend/grpc/grpc_conn.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/health.h"
#include "proto/grpc/http2_frames.h"
#include "proto/grpc/reflection.h"
#include "service/metrics/metrics.h"
#include "service/server_clock.h"

#include <nghttp2/nghttp2.h>

#define GRPC_WATCH_NS (500 * NS_PER_MS) /* between two checks of a watched health */
#define GRPC_NOTICE_NS NS_PER_S         /* longest wait for the answer to the first GOAWAY */
#define GRPC_ABUSE_NS (10 * NS_PER_S)   /* in which the bucket of idle frames refills */
#define GRPC_WINDOW (1 << 20)           /* bytes of unread requests, of one connection */
#define GRPC_HELD_MESSAGES 4            /* of full size: limit of incomplete ones */
#define GRPC_HELD_TOTAL 64              /* the same, of all connections of a frontend */
#define GRPC_SCARCE_OUTPUT 16384        /* of a connection, while a frontend holds more */
#define GRPC_SMALL_MESSAGE 16384        /* of a call that needs no token */
#define GRPC_ENDLESS_CALLS 16           /* Watch and reflection, of one connection */
#define GRPC_SLICE 1024                 /* bytes read before their output is written */
#define GRPC_TURN 500                   /* units of work, about 1 µs each, in one turn */
#define GRPC_SILENCE_NS                                                                            \
    (60 * NS_PER_S)           /* of a peer that watches, until it has to answer a PING             \
                               */
#define GRPC_FREE_CALLS 4096  /* kept by a frontend for reuse */
#define GRPC_ANSWER_SPACE 120 /* an answer up to this size needs no memory of its own */
#define GRPC_SECRET_MAX 128   /* bytes of a secret that a connection remembers */

struct grpc_frontend {
    struct grpc_frontend_options options;
    struct server_clock *clock;
    struct grpc_limits limits;
    struct metrics_worker *metrics; /* NULL: not counted */
    struct access *tokens;          /* the set in force at the last check; NULL: none */
    uint64_t generation;            /* of tokens */
    struct rls_call *rls;
    struct grpc_zip *zip; /* NULL until a message is compressed */
    struct reflection_space reflection;
    struct reply reply;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options_of_session;
    struct grpc_call *free_calls;
    size_t n_free_calls;
    struct grpc_conn *watching; /* connections with calls that watch health */
    uint64_t n_opened;
    size_t held_bytes; /* by all connections, for messages and answers */
    bool is_drained;
};

/* Bytes in memory that grows. */
struct grpc_bytes {
    uint8_t *ptr;
    size_t len, size;
};

enum grpc_list { GRPC_TIMED, GRPC_WATCHING, GRPC_CLOSING, GRPC_LISTS };

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
    bool is_endless;  /* Watch or reflection: any number of messages */
    bool wants_gzip;
    bool watches_known;    /* the service is known */
    int8_t told;           /* the last enum health_status sent to a watcher; -1: none */
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
    size_t input_at;         /* bytes of it that are answered. Reflection only */
    struct grpc_bytes answer;
    size_t answer_sent;
    uint8_t space[GRPC_ANSWER_SPACE];
};

enum grpc_leaving {
    GRPC_STAYS,
    GRPC_NOTICED, /* the peer knows that it ends; calls in transit are accepted */
    GRPC_LEAVES,  /* no further call is accepted */
};

/* The last caller, so that not every call has to hash its secret. */
struct grpc_identity {
    struct access *tokens; /* with a reference; NULL: none yet */
    const struct access_token *token;
    size_t len;
    uint8_t secret[GRPC_SECRET_MAX];
};

struct grpc_conn {
    struct conn conn;
    struct grpc_frontend *frontend;
    nghttp2_session *session;
    uint64_t now_ns;
    struct grpc_bytes out;
    size_t sent;               /* bytes of out that are sent */
    struct grpc_bytes rest;    /* of the fed bytes: for the next turn */
    size_t rest_at;            /* bytes of rest that were read */
    struct grpc_call *current; /* whose fields are being read; NULL: none, or an ignored call */
    struct grpc_call *recent;  /* found last; NULL: none */
    struct grpc_call *lender;  /* whose message lies in the fed bytes; NULL: none */
    struct grpc_call *first[GRPC_LISTS], *last[GRPC_LISTS];
    struct grpc_conn *next_watching, *prev_watching;
    struct grpc_identity identity;
    uint8_t peer_len;
    char peer[ACCESS_PEER_MAX]; /* its address; empty: a Unix socket */
    size_t n_calls, n_endless;
    size_t field_bytes;  /* of the fields being read */
    size_t held_bytes;   /* of unfinished messages */
    size_t answer_bytes; /* of answers that do not fit the peer's windows */
    size_t buffer_bytes; /* of out and rest */
    size_t work;         /* of this turn, in units of about a microsecond */
    uint64_t heard_ns;   /* when the last bytes came */
    uint64_t idle_debt_ns, idle_seen_ns;
    uint64_t age_at_ns, grace_at_ns, notice_at_ns, watch_at_ns; /* STINT_NEVER_NS: not set */
    struct http2_frames frames;                                 /* of the bytes fed so far */
    uint64_t frame_since_ns;                                    /* when the open frame began */
    uint64_t waits_end_ns; /* the earliest end of a call that waits for a store; STINT_NEVER_NS */
    uint8_t leaving;       /* enum grpc_leaving */
    bool answers_early;    /* has answered an incomplete request */
    bool is_heard;         /* bytes came */
    bool is_pinged;        /* a PING was sent after a long silence */
    bool is_fed;           /* in this turn, and its output was not fetched yet */
    bool asks_wait;        /* reflection has messages for the next turn */
    bool has_begun;        /* HTTP/2 was spoken: a frame followed the preface */
    bool is_left;          /* the peer makes no more calls */
    bool is_broken;        /* nghttp2 has failed: the session must not be used */
    bool is_over;
};

/* ---- grpc_conn.c ----------------------------------------------------------------------------- */

/*
 * Memory for `more` bytes after the end; false: no memory. The size is counted in *held, of the
 * connection, and of its frontend.
 */
bool grpc_bytes_reserve(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held,
                        size_t more);
void grpc_bytes_release(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held);
/* Removes all but the bytes after the first `at`. */
static inline struct span grpc_bytes_from(const struct grpc_bytes *bytes, size_t at)
{
    return bytes->len > at ? span_of(bytes->ptr + at, bytes->len - at) : span_of(NULL, 0);
}

/* Whether the work of this turn is done: the rest waits for the next. */
bool grpc_conn_turn_is_over(const struct grpc_conn *conn);
/* Whether so much output is unread that no further call is answered. */
bool grpc_conn_is_full(const struct grpc_conn *conn);
/* Writes the session's output, up to limits.output_bytes, and checks whether it is over. */
void grpc_conn_settle(struct grpc_conn *conn);
void grpc_count_malformed(const struct grpc_frontend *frontend);

/* ---- grpc_session.c: frames ------------------------------------------------------------------ */

bool grpc_session_prepare(struct grpc_frontend *frontend); /* false: no memory */
bool grpc_session_open(struct grpc_conn *conn);
void grpc_session_feed(struct grpc_conn *conn, struct span bytes);

/* ---- grpc_leave.c: the end of a connection -------------------------------------------------- */

void grpc_leave_begin(struct grpc_conn *conn);
/* The peer has answered the first GOAWAY, or its time is over. */
void grpc_leave_now(struct grpc_conn *conn);
uint64_t grpc_leave_age(struct grpc_frontend *frontend, uint64_t now_ns);

/* ---- grpc_abuse.c ---------------------------------------------------------------------------- */

/* Counts a frame that costs its sender little. */
void grpc_abuse_count(struct grpc_conn *conn);
/* A call was answered: one such frame is no longer counted. */
void grpc_abuse_forgive(struct grpc_conn *conn);
/* Ends the connection. */
void grpc_abuse_end(struct grpc_conn *conn);

/* ---- grpc_fields.c, grpc_caller.c ------------------------------------------------------------ */

void grpc_fields_take(struct grpc_call *call, struct span name, struct span value);
/* All fields are read: rejects the call if one of them is invalid. */
void grpc_fields_end(struct grpc_call *call);

void grpc_caller_take(struct grpc_call *call, struct span authorization);
/* Whether the caller is authenticated; otherwise the call was rejected. */
bool grpc_caller_admit(struct grpc_call *call);
struct caller grpc_caller_of(const struct grpc_call *call);

/* ---- grpc_call.c: input ---------------------------------------------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_conn *conn, int32_t id); /* NULL: no memory */
void grpc_call_free(struct grpc_call *call);
void grpc_call_enlist(struct grpc_call *call, enum grpc_list list);
/* Ends a call whose answer is not read in time: resets its stream. */
void grpc_call_cut(struct grpc_call *call);
void grpc_call_data(struct grpc_call *call, struct span bytes, bool is_last);
/* Copies input that lies in the caller's memory. */
void grpc_call_keep_borrowed(struct grpc_call *call);
void grpc_call_end(struct grpc_call *call);
/* The content of a message, compressed or not; false: the call was rejected. */
bool grpc_call_plain(struct grpc_call *call, const struct grpc_frame *frame, struct span *plain);
/* Reads the only message of a call after its end, and answers it, or waits for a store. */
void grpc_call_ask(struct grpc_call *call, struct span bytes);
/* The largest message of the call, in bytes. */
size_t grpc_call_message_max(const struct grpc_call *call);
/* Keeps bytes until the call has ended; false: there are too many, and it was rejected. */
bool grpc_call_keep(struct grpc_call *call, struct span bytes);
void grpc_call_drop_input(struct grpc_call *call);

/* ---- grpc_answer.c: output ------------------------------------------------------------------- */

/* One message, and the end. */
void grpc_answer_once(struct grpc_call *call, struct span message);
/* One of several messages; false: no memory. */
bool grpc_answer_add(struct grpc_call *call, struct span message);
/* Ends the response after its messages. From then on the call has a time limit. */
void grpc_answer_end(struct grpc_call *call, enum grpc_status status, const char *message);
/* The bytes of it that are not sent. */
void grpc_answer_drop(struct grpc_call *call);
/* Ends the call with an error, instead of an answer or after the answers so far. */
void grpc_answer_fail(struct grpc_call *call, enum grpc_status status, const char *message);
/* The same for an error of the caller, which is counted. */
void grpc_answer_refuse(struct grpc_call *call, enum grpc_status status, const char *message);
void grpc_answer_refuse_http(struct grpc_call *call, unsigned http_status);

/* ---- grpc_methods.c -------------------------------------------------------------------------- */

/* If the call has a pending request afterwards, there is no answer yet. */
void grpc_method_ask(struct grpc_call *call, struct span message);

/* ---- grpc_wait.c: calls that wait for a store ------------------------------------------------ */

/* The call has a pending request: keeps its bytes, unless they are kept, and re-evaluates it when
 * it is ready. */
void grpc_wait_begin(struct grpc_call *call, struct span bytes);
/* Drops the pending request. */
void grpc_wait_drop(struct grpc_call *call);
/* The time limit is over. */
void grpc_wait_fail(struct grpc_call *call);
/* Fails the calls whose grpc-timeout has expired. */
void grpc_wait_end_late(struct grpc_conn *conn);

/* ---- grpc_reflection.c ----------------------------------------------------------------------- */

/* Answers the next complete message, unless an answer is still unread; ends with the last. */
void grpc_reflection_ask(struct grpc_call *call);
/* The peer has read all answers. */
void grpc_reflection_next(struct grpc_call *call);
/* Continues with the messages left when the turn was over. */
void grpc_reflection_go_on(struct grpc_conn *conn);

/* ---- grpc_watch.c ---------------------------------------------------------------------------- */

enum health_status grpc_health(const struct grpc_frontend *frontend);
void grpc_watch_begin(struct grpc_call *call, bool is_known);
/* Adds a message if the health has changed since the last one; false: it has not. */
bool grpc_watch_next(struct grpc_call *call);
void grpc_watch_look(struct grpc_conn *conn);
/* A watching call has ended. */
void grpc_watch_leave(struct grpc_conn *conn);

#endif
