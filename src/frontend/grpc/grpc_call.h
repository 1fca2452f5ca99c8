/* SPDX-License-Identifier: MIT */
/*
 * The state of a frontend, of its connections, and of their calls: memory, output, and the limits
 * of what a peer can cause.
 *
 * nghttp2 identifies a call by its stream; the call is made when the stream's fields begin, and
 * freed when the stream is closed. A connection has lists of its open calls: those with a time
 * limit, the oldest first; those that watch health; and those whose streams are about to be closed.
 */
#ifndef STINT_FRONTEND_GRPC_GRPC_CALL_H
#define STINT_FRONTEND_GRPC_GRPC_CALL_H

#include "base/byte_queue.h"
#include "base/ns.h"
#include "frontend/grpc/grpc_conn.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/reflection.h"
#include "service/metrics/metrics.h"
#include "service/traces.h"

#include <nghttp2/nghttp2.h>

struct grpc_call;

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
#define GRPC_SILENCE_NS (60 * NS_PER_S) /* of a peer that watches, until it must answer a PING */
#define GRPC_FREE_CALLS 4096            /* kept by a frontend for reuse */
#define GRPC_SECRET_MAX 128             /* bytes of a secret that a connection remembers */

struct grpc_frontend {
    struct grpc_frontend_options options;
    const struct grpc_method *methods; /* the last has no path */
    struct server_clock *clock;
    struct grpc_limits limits;
    struct metrics_worker *metrics; /* NULL: not counted */
    struct tracer *tracer;          /* NULL: there are no traces */
    struct access *tokens;          /* the set in force at the last check; NULL: none */
    uint64_t generation;            /* of tokens */
    struct rls_call *rls;
    struct grpc_zip *zip; /* NULL until a message is compressed */
    uint8_t *reflection;  /* memory for answers; NULL until one is asked for */
    struct reply reply;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options_of_session;
    struct grpc_call *free_calls;
    size_t n_free_calls;
    uint64_t n_opened;
    size_t held_bytes; /* by all connections, for messages and answers */
    bool is_drained;
};

enum grpc_list { GRPC_TIMED, GRPC_WATCHING, GRPC_CLOSING, GRPC_LISTS };

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
    struct byte_queue out;
    struct byte_queue rest;    /* of the fed bytes: for the next turn */
    struct grpc_call *current; /* whose fields are being read; NULL: none, or an ignored call */
    struct grpc_call *recent;  /* found last; NULL: none */
    struct grpc_call *lender;  /* whose message lies in the fed bytes; NULL: none */
    struct grpc_call *first[GRPC_LISTS], *last[GRPC_LISTS];
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
    uint64_t n_answered;                                        /* calls, since idle_seen_ns */
    uint64_t age_at_ns, grace_at_ns, notice_at_ns, watch_at_ns; /* STINT_NEVER_NS: not set */
    struct http2_frames frames;                                 /* of the bytes fed so far */
    uint64_t frame_since_ns;                                    /* when the open frame began */
    uint64_t waits_end_ns; /* the earliest end of a call that waits for a store; STINT_NEVER_NS */
    uint8_t leaving;       /* enum grpc_leaving */
    bool answers_early;    /* has answered an incomplete request */
    bool is_pinged;        /* a PING was sent after a long silence */
    bool is_fed;           /* in this turn, and its output was not fetched yet */
    bool asks_wait;        /* reflection has messages for the next turn */
    bool has_begun;        /* HTTP/2 was spoken: a frame followed the preface */
    bool is_left;          /* the peer makes no more calls */
    bool is_broken;        /* nghttp2 has failed: the session must not be used */
    bool is_over;
};

/* ---- Memory and output ----------------------------------------------------------------------- */

/* Counts memory, of the connection and of its frontend. `more` may be a negative number. */
static inline void grpc_count_held(struct grpc_conn *conn, size_t *held, size_t more)
{
    *held += more;
    conn->frontend->held_bytes += more;
}

/* Appends to a queue whose memory is counted in *held; false: no memory. */
static inline bool grpc_keep(struct grpc_conn *conn, struct byte_queue *queue, size_t *held,
                             struct span more)
{
    size_t size = queue->size;
    bool is_kept = byte_queue_append(queue, more);
    grpc_count_held(conn, held, queue->size - size);
    return is_kept;
}

static inline void grpc_release(struct grpc_conn *conn, struct byte_queue *queue, size_t *held)
{
    grpc_count_held(conn, held, 0 - queue->size);
    byte_queue_deinit(queue);
}

/* The limit of unsent or unread bytes; low where all connections together hold much memory. */
static inline size_t grpc_output_max(const struct grpc_conn *conn)
{
    const struct grpc_frontend *frontend = conn->frontend;
    size_t max = frontend->limits.output_bytes;
    bool is_scarce = frontend->held_bytes > GRPC_HELD_TOTAL * frontend->limits.message_bytes;
    return is_scarce && max > GRPC_SCARCE_OUTPUT ? GRPC_SCARCE_OUTPUT : max;
}

static inline bool grpc_output_is_unread(const struct grpc_conn *conn)
{
    return byte_queue_len(&conn->out) > grpc_output_max(conn);
}

/* Writes the session's frames, and checks whether the connection is over. */
void grpc_output_settle(struct grpc_conn *conn);

/* ---- Limits ---------------------------------------------------------------------------------- */

/* Whether the work of this turn is done: the rest waits for the next. */
static inline bool grpc_turn_is_over(const struct grpc_conn *conn)
{
    return conn->work >= GRPC_TURN || conn_turn_is_over(&conn->conn);
}

static inline void grpc_count_malformed(const struct grpc_frontend *frontend)
{
    if (frontend->metrics != NULL)
        metrics_count(frontend->metrics, METRICS_GRPC, METRICS_MALFORMED, 1);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

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
    const struct grpc_method *method; /* without a path: there is none */
    struct grpc_call *next, *prev;
    int32_t id; /* of the stream */
    uint8_t list;
    uint8_t said;
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
    struct pending *pending;       /* of a pending store request; NULL: none */
    struct trace_context *context; /* the caller's span; NULL: no field of it came */
    struct span borrowed;          /* of the message, where it was read: until feed() returns */
    struct byte_queue input;       /* the part of an incomplete message that has come */
    struct byte_queue answer;
    uint8_t space[GRPC_ANSWER_SPACE];
};

/* A method, and what it does with its calls. */
struct grpc_method {
    const char *path;
    /*
     * Answers a message. If the call has a pending request afterwards, there is no answer yet: asks
     * again with the same message when the store has answered.
     */
    void (*ask)(struct grpc_call *call, struct span message);
    void (*on_read)(struct grpc_call *call); /* the peer has read all so far. NULL: nothing more */
    bool needs_token;
    bool is_endless; /* several answers, without a time limit */
    bool takes_many; /* messages. Each is answered when the answer before it is read */
    /* Of a method of the limiter. */
    int (*read)(struct rls_call *call, struct span message, const struct request **request,
                struct stint_error *error);
    struct span (*write)(struct rls_call *call, const struct rls_form *form,
                         const struct request *request, const struct reply *reply);
    const char *gone; /* message for REPLY_GONE. NULL: the reply's */
};

/* ---- Input ----------------------------------------------------------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_conn *conn, int32_t id); /* NULL: no memory */
void grpc_call_free(struct grpc_call *call);
void grpc_call_enlist(struct grpc_call *call, enum grpc_list list);
/* Ends a call whose answer is not read in time: resets its stream. */
static inline void grpc_call_cut(struct grpc_call *call)
{
    /* The call waits for nothing more, even if its stream stays open until all is sent. */
    grpc_call_enlist(call, GRPC_CLOSING);
    nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
}

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
static inline void grpc_answer_refuse(struct grpc_call *call, enum grpc_status status,
                                      const char *message)
{
    grpc_count_malformed(call->conn->frontend);
    grpc_answer_fail(call, status, message);
}

#endif
