/* SPDX-License-Identifier: MIT */
/*
 * One connection to memcached as its socket sees it: a link (backend/wire/backend_link.h) that
 * speaks the meta commands. It takes commands only while its server has greeted, bounded in number,
 * bytes and time, and sends none of them twice. Answers come in the order of the commands, and a
 * late one ends the connection. One thread.
 */
#ifndef STINT_BACKEND_WIRE_MEMCACHED_CONN_H
#define STINT_BACKEND_WIRE_MEMCACHED_CONN_H

#include "backend/wire/backend_link.h"
#include "backend/wire/memcached_command.h"
#include "backend/wire/memcached_reply.h"

struct memcached_conn;

/* Zero is the default. Strings are borrowed. */
struct memcached_conn_options {
    const char *user; /* and password: of a server with --auth-file. NULL or "": none */
    const char *password;
    uint64_t connect_ns;       /* until the server has greeted. Default 250 ms */
    uint64_t reply_ns;         /* from the command to the answer. Default 50 ms */
    uint64_t backoff_first_ns; /* before connecting again. Default 10 ms, doubled each time */
    uint64_t backoff_max_ns;   /* Default 500 ms */
    size_t commands_max;       /* commands that wait for an answer. Default 4,096 */
    size_t bytes_max;          /* of them. Default 1 MiB */
    uint64_t seed;             /* of the jitter of the back-off */
};

/* Wants its first socket at once. NULL: no memory. */
struct memcached_conn *memcached_conn_new(const struct memcached_conn_options *options);
/* For the owner of the socket. Freed by link_free(). */
struct link *memcached_conn_link(struct memcached_conn *conn);

/* False: it is not ready, or too many commands wait; `answered` is not called. */
bool memcached_conn_ask(struct memcached_conn *conn, const struct memcached_command *command,
                        uint64_t now_ns);
/* From the greeting; "" before. */
const char *memcached_conn_version(const struct memcached_conn *conn);
/* Reconnects to a server that had restarted, or that does not report it. */
unsigned memcached_conn_restarts(const struct memcached_conn *conn);
/* Since when it is not ready; 0: it is, or has not begun to connect. */
uint64_t memcached_conn_unavailable_since(const struct memcached_conn *conn);

#endif
