/* SPDX-License-Identifier: MIT */
/* Replies of memcached from bytes: one line, and after "VA" a value with the length in the line. */
#ifndef STINT_BACKEND_WIRE_MEMCACHED_REPLY_H
#define STINT_BACKEND_WIRE_MEMCACHED_REPLY_H

#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

#define MEMCACHED_LINE_MAX 2048     /* of one line, its end included */
#define MEMCACHED_VALUE_MAX 1048576 /* of one value */

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
};

/*
 * Reads the reply that `bytes` begin with: its length with all that belongs to it; 0: more bytes
 * are needed; STINT_E_SYNTAX for what is no reply of memcached, STINT_E_RANGE for one that is too
 * long.
 */
int memcached_reply_read(struct memcached_reply *reply, struct span bytes,
                         struct stint_error *error);

#endif
