/* SPDX-License-Identifier: MIT */
/*
 * One connection to memcached as its socket sees it: a link (remote/link.h) that speaks the meta
 * commands. It outlives its sockets: what is asked while there is none waits, bounded in number,
 * bytes and time. Answers come in the order of the asks; a late one ends the connection, and
 * nothing is sent twice. One thread.
 */
#ifndef STINT_REMOTE_MEMCACHED_CONN_H
#define STINT_REMOTE_MEMCACHED_CONN_H

#include "remote/link.h"
#include "remote/memcached_reply.h"

struct memcached_conn;

enum memcached_outcome {
    MEMCACHED_DONE,    /* the reply is one of those that the command has */
    MEMCACHED_REFUSED, /* the reply is an error; nothing was done */
    MEMCACHED_UNSENT,  /* no reply: the server never had it */
    MEMCACHED_LATE,    /* no reply in time: it may have been done */
    MEMCACHED_LOST,    /* no reply, the connection has ended: it may have been done */
};

/* `reply` is NULL but for DONE and REFUSED, and valid during the call. May ask, may not feed. */
typedef void memcached_answered(void *arg, enum memcached_outcome outcome,
                                const struct memcached_reply *reply, uint64_t now_ns);

/* Zero is the default. Strings are borrowed. */
struct memcached_conn_options {
    const char *user; /* and password: of a server with --auth-file. NULL or "": none */
    const char *password;
    uint64_t connect_ns;       /* until the server has greeted. Default 250 ms */
    uint64_t reply_ns;         /* from asking to the answer. Default 50 ms */
    uint64_t backoff_first_ns; /* before connecting again. Default 10 ms, doubled each time */
    uint64_t backoff_max_ns;   /* Default 500 ms */
    size_t commands_max;       /* that wait for an answer. Default 4,096 */
    size_t bytes_max;          /* of them. Default 1 MiB */
    uint64_t seed;             /* of the jitter in backing off */
};

enum memcached_verb {
    MEMCACHED_GET,    /* the value and its number */
    MEMCACHED_ADD,    /* NOT_STORED where there is one */
    MEMCACHED_SWAP,   /* EXISTS where the number is another one, NOT_FOUND where there is none */
    MEMCACHED_DELETE, /* NOT_FOUND where there is none */
    MEMCACHED_STATS,  /* a reply for each figure, then END; `key` is what of, "" for all */
};

#define MEMCACHED_KEY_MAX 250

struct memcached_command {
    enum memcached_verb verb;
    struct span key;   /* without blanks and control characters, at most MEMCACHED_KEY_MAX */
    struct span value; /* of ADD and SWAP */
    uint64_t number;   /* SWAP: that the value must have */
    uint64_t ttl_s;    /* ADD and SWAP: as memcached takes it; 0: none */
    /*
     * Numbers are a server's own, and begin anew with it: a SWAP is never kept for another socket.
     */
    memcached_answered *answered;
    void *arg;
};

/* Wants its first socket at once. NULL: no memory. */
struct memcached_conn *memcached_conn_new(const struct memcached_conn_options *options);
/* For whoever has the socket. Freed by link_free(). */
struct link *memcached_conn_link(struct memcached_conn *conn);

/* False: too much waits already; `answered` is not called. */
bool memcached_conn_ask(struct memcached_conn *conn, const struct memcached_command *command,
                        uint64_t now_ns);
size_t memcached_conn_pending(const struct memcached_conn *conn);
/* As it has greeted; "" before. */
const char *memcached_conn_version(const struct memcached_conn *conn);
/* Since when it was not ready; 0: it is. It counts from the first wake if it never was. */
uint64_t memcached_conn_away_since(const struct memcached_conn *conn);

#endif
