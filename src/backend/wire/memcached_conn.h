/* SPDX-License-Identifier: MIT */
/*
 * One connection to memcached as its socket sees it, which speaks the meta commands. It takes
 * commands only while its server has greeted, bounded in number, bytes and time, and sends none of
 * them twice. Answers come in the order of the commands, and a late one ends the connection. One
 * thread.
 */
#ifndef STINT_BACKEND_WIRE_MEMCACHED_CONN_H
#define STINT_BACKEND_WIRE_MEMCACHED_CONN_H

#include "backend/wire/backend_link.h"
#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

/* ---- Replies --------------------------------------------------------------------------------- */

/* Replies of memcached from bytes: one line, and after "VA" a value with the length in the line. */

#define MEMCACHED_LINE_MAX 2048     /* of one line, its end included */
#define MEMCACHED_VALUE_MAX 1048576 /* of one value that is read */

enum memcached_code {
    MEMCACHED_STORED,     /* HD; STORED and DELETED of the older commands */
    MEMCACHED_VALUE,      /* VA */
    MEMCACHED_MISS,       /* EN: there is no value */
    MEMCACHED_NOT_STORED, /* NS */
    MEMCACHED_EXISTS,     /* EX */
    MEMCACHED_NOT_FOUND,  /* NF */
    MEMCACHED_STAT,       /* a statistic: `name` and `value` */
    MEMCACHED_END,        /* there are no more statistics */
    MEMCACHED_VERSION,    /* `value` */
    MEMCACHED_ERROR,      /* ERROR, CLIENT_ERROR, SERVER_ERROR: `value` is the line */
};

/* Spans point into what was read. */
struct memcached_reply {
    enum memcached_code code;
    struct span name, value;
    uint64_t number; /* that of a value: changes with every write. 0: not given */
    bool was_read;   /* another read came before, since it was written */
    uint64_t skips;  /* bytes after the reply: a value that is too long, which shows as empty */
};

/*
 * Reads the reply that `bytes` begin with: its length with all that belongs to it; 0: more bytes
 * are needed; STINT_E_SYNTAX for what is no reply of memcached, STINT_E_RANGE for a line that is
 * too long.
 */
int memcached_reply_read(struct memcached_reply *reply, struct span bytes,
                         struct stint_error *error);

/* ---- The connection -------------------------------------------------------------------------- */

struct memcached_conn;

/* ---- Commands -------------------------------------------------------------------------------- */

/* `reply` is NULL but for DONE and REFUSED, and valid during the call. May send, must not feed. */
typedef void memcached_answered(void *arg, enum link_outcome outcome,
                                const struct memcached_reply *reply, uint64_t now_ns);

enum memcached_verb {
    MEMCACHED_GET,    /* the value, its number, and whether it was read before */
    MEMCACHED_ADD,    /* NOT_STORED where there is one */
    MEMCACHED_SWAP,   /* EXISTS where the number is another one, NOT_FOUND where there is none */
    MEMCACHED_SET,    /* whatever the present value */
    MEMCACHED_DELETE, /* NOT_FOUND where there is none */
    MEMCACHED_STATS,  /* a reply for each statistic, then END; `key` is the group, "" for all */
};

#define MEMCACHED_KEY_MAX 250

struct memcached_command {
    enum memcached_verb verb;
    struct span key;   /* without blanks and control characters, at most MEMCACHED_KEY_MAX */
    struct span value; /* of ADD, SWAP and SET */
    uint64_t number;   /* SWAP: that the value must have */
    uint64_t ttl_s;    /* ADD, SWAP, SET: in memcached's form; 0: none */
    memcached_answered *answered;
    void *arg;
};

/* ---- Connections ----------------------------------------------------------------------------- */

/* Wants its first socket at once. NULL: no memory. */
struct memcached_conn *memcached_conn_new(const struct link_options *options);
/* For the owner of the socket: the first member. Freed by link_free(). */
static inline struct link *memcached_conn_link(struct memcached_conn *conn)
{
    return (struct link *)conn;
}

/* False: it is not ready, or too many commands wait; `answered` is not called. */
bool memcached_conn_ask(struct memcached_conn *conn, const struct memcached_command *command,
                        uint64_t now_ns);
/* From the greeting; "" before. */
const char *memcached_conn_version(const struct memcached_conn *conn);
/* Reconnects to a server that had restarted, or that does not report it. */
unsigned memcached_conn_restarts(const struct memcached_conn *conn);

#endif
