/* SPDX-License-Identifier: MIT */
/*
 * One connection to Redis or Valkey as its socket sees it: bytes go in, bytes come out, and there
 * is a time to wake it even if nothing came. It outlives its sockets: commands without a socket
 * wait, bounded in number, bytes and time.
 *
 * A command is sent at most once, for it may have charged a key: only after NOSCRIPT, which means
 * that nothing was done, is it sent again. Only the order identifies replies: a late one is waited
 * for and skipped, as long as the server sends anything at all; if it is silent for the time of an
 * answer, the connection is lost. One thread.
 */
#ifndef STINT_BACKEND_WIRE_REDIS_CONN_H
#define STINT_BACKEND_WIRE_REDIS_CONN_H

#include "backend/wire/pipeline.h"
#include "backend/wire/redis_reply.h"

struct redis_conn;

enum redis_outcome {
    REDIS_DONE,    /* the reply is the result */
    REDIS_REFUSED, /* the reply is an error, redis_error_of() */
    REDIS_UNSENT,  /* no reply: the server never had it, and it may go to another server */
    REDIS_LATE,    /* no reply in time: it may have been done */
    REDIS_LOST,    /* no reply, the connection has ended: it may have been done */
};

/* `reply` is NULL but for DONE and REFUSED, and valid during the call. May send, must not feed. */
typedef void redis_answered(void *arg, enum redis_outcome outcome, const struct redis_reply *reply,
                            uint64_t now_ns);

/* Zero is the default. Strings are borrowed. */
struct redis_conn_options {
    struct pipeline_options pipeline; /* backoff_max_ns: default 2 s */
    const char *name;                 /* for CLIENT LIST; without spaces. NULL: none */
    unsigned database;
    size_t reply_bytes_max; /* Default REDIS_REPLY_BYTES_DEFAULT */
    bool keeps_nothing;     /* commands not sent when a socket is lost end as UNSENT */
    redis_answered *pushed; /* unrequested messages, as of a channel. NULL: an error */
    void *arg;
};

/* What the server reports in its greeting. */
struct redis_server {
    char version[32];
    bool is_valkey, is_replica;
    char mode[16]; /* standalone, cluster, sentinel */
};

struct redis_command {
    const struct span *words;
    size_t n_words;
    /*
     * For an EVALSHA: its text, which is loaded if the server does not know it. Borrowed until the
     * answer. Empty: none.
     */
    struct span script;
    bool is_asking; /* follows an ASK: sent after ASKING */
    redis_answered *answered;
    void *arg;
};

/* Wants its first socket at once. NULL: no memory. */
struct redis_conn *redis_conn_new(const struct redis_conn_options *options);
/* Answers what waits. NULL is fine. */
void redis_conn_free(struct redis_conn *conn, uint64_t now_ns);

/* False: too many commands wait, or the command is too long; `answered` is not called. */
bool redis_conn_ask(struct redis_conn *conn, const struct redis_command *command, uint64_t now_ns);
size_t redis_conn_pending(const struct redis_conn *conn);

struct link *redis_conn_link(struct redis_conn *conn); /* for the owner of the socket */
const struct redis_server *redis_conn_server(const struct redis_conn *conn);

#endif
