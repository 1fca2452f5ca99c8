/* SPDX-License-Identifier: MIT */
/*
 * The state of a frontend and of its connections, as far as their calls need it: memory, output,
 * and the limits of what a peer can cause.
 *
 * A connection has lists of its open calls: those with a time limit, the oldest first; those that
 * watch health; and those whose streams are about to be closed.
 *
 * Files need only those before them: grpc_output.c, grpc_call.c, grpc_methods.c, grpc_conn.c. A
 * call reaches its method through the handlers of its frontend.
 */
#ifndef STINT_FRONTEND_GRPC_GRPC_OUTPUT_H
#define STINT_FRONTEND_GRPC_GRPC_OUTPUT_H

#include "base/ns.h"
#include "frontend/grpc/grpc_conn.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/reflection.h"
#include "service/metrics/metrics.h"

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
#define GRPC_SILENCE_NS (60 * NS_PER_S) /* of a peer that watches, until it must answer a PING */
#define GRPC_FREE_CALLS 4096            /* kept by a frontend for reuse */
#define GRPC_SECRET_MAX 128             /* bytes of a secret that a connection remembers */

struct grpc_frontend {
    struct grpc_frontend_options options;
    const struct grpc_handler *handlers; /* by enum grpc_method */
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

/* A queue of bytes in memory that grows. */
struct grpc_bytes {
    uint8_t *ptr;
    size_t at;        /* bytes that are used: sent, or read */
    size_t len, size; /* `len` with them */
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
    struct grpc_bytes out;
    struct grpc_bytes rest;    /* of the fed bytes: for the next turn */
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

/* ---- Memory ---------------------------------------------------------------------------------- */

/*
 * Memory for `more` bytes after the end; false: no memory. The size is counted in *held, of the
 * connection, and of its frontend.
 */
bool grpc_bytes_reserve(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held,
                        size_t more);
/* The same, and copies them; removes used bytes that are more than the others. */
bool grpc_bytes_add(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held,
                    struct span more);
void grpc_bytes_release(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held);
/* The bytes that are not used. */
static inline struct span grpc_bytes_left(const struct grpc_bytes *bytes)
{
    bool is_used = bytes->at == bytes->len;
    return is_used ? span_of(NULL, 0) : span_of(bytes->ptr + bytes->at, bytes->len - bytes->at);
}

/* ---- Output ---------------------------------------------------------------------------------- */

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
    return conn->out.len - conn->out.at > grpc_output_max(conn);
}

/* Writes the session's frames; false where it stopped at the limit, and has more. */
bool grpc_output_write(struct grpc_conn *conn);
/* Writes them, and checks whether the connection is over. */
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

#endif
