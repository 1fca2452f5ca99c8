/* SPDX-License-Identifier: MIT */
/*
 * What the files of a gRPC connection share.
 *
 * A connection holds its open calls in lists: those that have to end in time, the oldest first;
 * those that watch health; and those whose streams are about to be closed. nghttp2 knows a call by
 * its stream; it is made when the stream's fields begin, and goes when the stream is closed.
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

#define GRPC_WATCH_NS (500 * NS_PER_MS) /* between two looks at a health that is watched */
#define GRPC_NOTICE_NS NS_PER_S         /* for the answer to the first GOAWAY, at most */
#define GRPC_ABUSE_NS (10 * NS_PER_S)   /* in which the bucket of idle frames fills again */
#define GRPC_WINDOW (1 << 20)           /* bytes of requests on their way, of one connection */
#define GRPC_HELD_MESSAGES 4            /* of full size: what unfinished ones may hold in all */
#define GRPC_HELD_TOTAL 64              /* the same, of all connections of a frontend */
#define GRPC_SCARCE_OUTPUT 16384        /* of a connection, while a frontend holds more than that */
#define GRPC_SMALL_MESSAGE 16384        /* of a call that needs no token; kept of it: twice that */
#define GRPC_ENDLESS_CALLS 16           /* Watch and reflection, of one connection */
#define GRPC_SLICE 1024                 /* bytes that are read before what they caused is written */
#define GRPC_TURN 500                   /* units of work, 1 µs or so, before others have theirs */
#define GRPC_SILENCE_NS                                                                            \
    (60 * NS_PER_S)           /* of a peer that watches, until it has to answer a PING             \
                               */
#define GRPC_FREE_CALLS 4096  /* kept by a frontend for those to come */
#define GRPC_ANSWER_SPACE 120 /* an answer of that size needs no memory of its own */
#define GRPC_SECRET_MAX 128   /* bytes of a secret that a connection remembers */

struct grpc_frontend {
    struct grpc_frontend_options options;
    struct server_clock *clock;
    struct grpc_limits limits;
    struct metrics_worker *metrics; /* NULL: nobody counts */
    struct access *tokens;          /* the set in force when it was last looked at; NULL: none */
    uint64_t generation;            /* of tokens */
    struct rls_call *rls;
    struct grpc_zip *zip; /* NULL until somebody compresses */
    struct reflection_space reflection;
    struct reply reply;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options_of_session;
    struct grpc_call *free_calls;
    size_t n_free_calls;
    struct grpc_conn *watching; /* connections on which somebody watches health */
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

/* What the fields of a call have said so far. */
enum grpc_said {
    GRPC_SAID_POST = 1,
    GRPC_SAID_GRPC = 2, /* content-type */
    GRPC_SAID_ACCEPTS_GZIP = 4,
    GRPC_SAID_SECRET = 8,      /* authorization, and it was a Bearer's */
    GRPC_SAID_TOO_MUCH = 16,   /* more than limits.header_bytes */
    GRPC_SAID_NO_TIMEOUT = 32, /* a grpc-timeout that cannot be read */
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
    bool is_at_end;   /* nothing more is asked */
    bool is_begun;    /* the fields of an answer were submitted */
    bool is_ended;    /* all was said: what else is asked is not looked at */
    bool is_endless;  /* Watch or reflection: answered as often as the peer likes */
    bool wants_gzip;
    bool watches_known;    /* a service that there is */
    int8_t told;           /* enum health_status, to a watcher last; -1: nothing yet */
    uint8_t status;        /* of the trailers */
    char *message;         /* of the trailers; the call's. NULL: none */
    uint64_t begun_ns;     /* reflection: or when its answers were all read; a watcher: or when the
                              message that it has not read was made */
    uint64_t ends_ns;      /* grpc-timeout; STINT_NEVER_NS: none */
    struct access *tokens; /* in which `token` was found, with a reference; NULL: none */
    const struct access_token *token;
    struct pending *pending; /* of a store that was asked; NULL: none is waited for */
    struct span borrowed;    /* of the message, where it was read: until feed() returns */
    struct grpc_bytes input; /* what came of a message that is not whole */
    size_t input_at;         /* of it: what is answered. Reflection alone */
    struct grpc_bytes answer;
    size_t answer_sent;
    uint8_t space[GRPC_ANSWER_SPACE];
};

enum grpc_leaving {
    GRPC_STAYS,
    GRPC_NOTICED, /* the peer knows that it ends; calls that are on their way are taken */
    GRPC_LEAVES,  /* no further call is taken */
};

/* Who asked last, so that not every call costs a hash of its secret. */
struct grpc_identity {
    struct access *tokens; /* with a reference; NULL: nobody yet */
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
    size_t sent;               /* bytes of out that are gone */
    struct grpc_bytes rest;    /* of what was fed: the next turn's */
    size_t rest_at;            /* bytes of rest that are read */
    struct grpc_call *current; /* whose fields are read; NULL: nobody's who matters */
    struct grpc_call *recent;  /* found last; NULL: none */
    struct grpc_call *lender;  /* whose message lies in what is fed; NULL: none */
    struct grpc_call *first[GRPC_LISTS], *last[GRPC_LISTS];
    struct grpc_conn *next_watching, *prev_watching;
    struct grpc_identity identity;
    uint8_t peer_len;
    char peer[ACCESS_PEER_MAX]; /* its address; none: a Unix socket */
    size_t n_calls, n_endless;
    size_t field_bytes;  /* of the fields that are read */
    size_t held_bytes;   /* of unfinished messages */
    size_t answer_bytes; /* of answers that the peer's windows have no room for */
    size_t buffer_bytes; /* of out and rest */
    size_t work;         /* of this turn, in about so many microseconds */
    uint64_t heard_ns;   /* when bytes came last */
    uint64_t idle_debt_ns, idle_seen_ns;
    uint64_t age_at_ns, grace_at_ns, notice_at_ns, watch_at_ns; /* STINT_NEVER_NS: not */
    struct http2_frames frames;                                 /* of what was fed to the session */
    uint64_t frame_since_ns; /* when the frame that is open began */
    uint64_t waits_end_ns;   /* no call that waits for a store has to end before; STINT_NEVER_NS */
    uint8_t leaving;         /* enum grpc_leaving */
    bool answers_early;      /* has answered a request that had not ended */
    bool is_heard;           /* bytes came */
    bool is_pinged;          /* as nothing came for long */
    bool is_fed;             /* in this turn, whose output is not asked for yet */
    bool asks_wait;          /* reflection has messages for the next turn */
    bool has_begun;          /* it speaks HTTP/2: a frame came behind the preface */
    bool is_left;            /* the peer has said that it asks no more */
    bool is_broken;          /* nghttp2 has given up: the session is not to be touched */
    bool is_over;
};

/* ---- grpc_conn.c ----------------------------------------------------------------------------- */

/*
 * Room for `more` bytes behind the end; false: no memory. What is held by then is counted in
 * *held, of the connection, and of its frontend.
 */
bool grpc_bytes_reserve(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held,
                        size_t more);
void grpc_bytes_release(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held);
/* What follows its first `at` bytes. */
static inline struct span grpc_bytes_from(const struct grpc_bytes *bytes, size_t at)
{
    return bytes->len > at ? span_of(bytes->ptr + at, bytes->len - at) : span_of(NULL, 0);
}

/* Whether the work of this turn is done: the rest is the next one's. */
bool grpc_conn_turn_is_over(const struct grpc_conn *conn);
/* Whether so much is not read that no further call is answered. */
bool grpc_conn_is_full(const struct grpc_conn *conn);
/* Writes what the session has to say, up to limits.output_bytes, and looks whether it is over. */
void grpc_conn_settle(struct grpc_conn *conn);
void grpc_count_malformed(const struct grpc_frontend *frontend);

/* ---- grpc_session.c: frames ------------------------------------------------------------------ */

bool grpc_session_prepare(struct grpc_frontend *frontend); /* false: no memory */
bool grpc_session_open(struct grpc_conn *conn);
void grpc_session_feed(struct grpc_conn *conn, struct span bytes);

/* ---- grpc_leave.c: how a connection ends ----------------------------------------------------- */

void grpc_leave_begin(struct grpc_conn *conn);
/* The peer has answered the first GOAWAY, or does not. */
void grpc_leave_now(struct grpc_conn *conn);
uint64_t grpc_leave_age(struct grpc_frontend *frontend, uint64_t now_ns);

/* ---- grpc_abuse.c ---------------------------------------------------------------------------- */

/* A frame that costs its sender little. */
void grpc_abuse_count(struct grpc_conn *conn);
/* A call was answered: one such frame is forgiven. */
void grpc_abuse_forgive(struct grpc_conn *conn);
/* Sends the peer away. */
void grpc_abuse_end(struct grpc_conn *conn);

/* ---- grpc_fields.c, grpc_caller.c ------------------------------------------------------------ */

void grpc_fields_take(struct grpc_call *call, struct span name, struct span value);
/* All fields are read: refuses the call where one of them is not as it must be. */
void grpc_fields_end(struct grpc_call *call);

void grpc_caller_take(struct grpc_call *call, struct span authorization);
/* Whether somebody is known by now; else the call was refused. */
bool grpc_caller_admit(struct grpc_call *call);
struct caller grpc_caller_of(const struct grpc_call *call);

/* ---- grpc_call.c: what comes ----------------------------------------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_conn *conn, int32_t id); /* NULL: no memory */
void grpc_call_free(struct grpc_call *call);
void grpc_call_enlist(struct grpc_call *call, enum grpc_list list);
/* Ends a call whose answer is not read: its stream is reset. */
void grpc_call_cut(struct grpc_call *call);
void grpc_call_data(struct grpc_call *call, struct span bytes, bool is_last);
/* Keeps what lies in memory that is the feeder's. */
void grpc_call_keep_borrowed(struct grpc_call *call);
void grpc_call_end(struct grpc_call *call);
/* What a message holds, compressed or not; false: the call was refused. */
bool grpc_call_plain(struct grpc_call *call, const struct grpc_frame *frame, struct span *plain);
/* Reads the one message of a call that has ended, and answers it, or waits for a store. */
void grpc_call_ask(struct grpc_call *call, struct span bytes);
/* Bytes that a message of the call may have. */
size_t grpc_call_message_max(const struct grpc_call *call);
/* Keeps bytes until the call has ended; false: there is too much of them, and it was refused. */
bool grpc_call_keep(struct grpc_call *call, struct span bytes);
void grpc_call_drop_input(struct grpc_call *call);

/* ---- grpc_answer.c: what goes ---------------------------------------------------------------- */

/* One message, and the end. */
void grpc_answer_once(struct grpc_call *call, struct span message);
/* One of several; false: no memory. */
bool grpc_answer_add(struct grpc_call *call, struct span message);
/* Behind what was added. From then on the call is one of those that have to end in time. */
void grpc_answer_end(struct grpc_call *call, enum grpc_status status, const char *message);
/* What is not sent of it. */
void grpc_answer_drop(struct grpc_call *call);
/* Instead of an answer; or behind those that there are. */
void grpc_answer_fail(struct grpc_call *call, enum grpc_status status, const char *message);
/* The same, for what the caller did wrong: it is counted. */
void grpc_answer_refuse(struct grpc_call *call, enum grpc_status status, const char *message);
void grpc_answer_refuse_http(struct grpc_call *call, unsigned http_status);

/* ---- grpc_methods.c -------------------------------------------------------------------------- */

/* Where the call has a pending request after it, there is no answer yet. */
void grpc_method_ask(struct grpc_call *call, struct span message);

/* ---- grpc_wait.c: calls whose answer a store has -------------------------------------------- */

/* The call has a pending request: keeps its bytes, unless they are kept, and asks again when it
 * may. */
void grpc_wait_begin(struct grpc_call *call, struct span bytes);
/* Nobody waits for it any more. */
void grpc_wait_drop(struct grpc_call *call);
/* It has taken too long. */
void grpc_wait_fail(struct grpc_call *call);
/* Fails those whose grpc-timeout has passed. */
void grpc_wait_end_late(struct grpc_conn *conn);

/* ---- grpc_reflection.c ----------------------------------------------------------------------- */

/* Answers the next message that came whole, unless an answer waits to be read; ends with the last.
 */
void grpc_reflection_ask(struct grpc_call *call);
/* All that it was answered is read. */
void grpc_reflection_next(struct grpc_call *call);
/* Goes on with what was left when the turn was over. */
void grpc_reflection_go_on(struct grpc_conn *conn);

/* ---- grpc_watch.c ---------------------------------------------------------------------------- */

enum health_status grpc_health(const struct grpc_frontend *frontend);
void grpc_watch_begin(struct grpc_call *call, bool is_known);
/* Adds what has changed since it was told; false: nothing. */
bool grpc_watch_next(struct grpc_call *call);
void grpc_watch_look(struct grpc_conn *conn);
/* A watcher is gone. */
void grpc_watch_leave(struct grpc_conn *conn);

#endif
