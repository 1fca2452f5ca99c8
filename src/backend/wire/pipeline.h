/* SPDX-License-Identifier: MIT */
/*
 * A connection to a store whose commands do not wait for each other's replies: its states, its
 * times, and the bytes to be sent. A codec knows the protocol. First member of every kind of
 * connection, and a link (backend/wire/backend_link.h) for the owner of the socket. It outlives its
 * sockets. One thread.
 */
#ifndef STINT_BACKEND_WIRE_PIPELINE_H
#define STINT_BACKEND_WIRE_PIPELINE_H

#include "backend/wire/backend_link.h"
#include "base/err.h"
#include "base/number.h"
#include "base/splitmix.h"
#include "base/wide_int.h"

#include <assert.h>

/* ---- Bytes ----------------------------------------------------------------------------------- */

struct wire_bytes {
    uint8_t *ptr;
    size_t len, size;
};

/* Makes space for so many more; false: no memory, or more than `max` in all. */
bool wire_bytes_reserve(struct wire_bytes *bytes, size_t more, size_t max);
/* These append; the space must be there. */
static inline void wire_bytes_add(struct wire_bytes *bytes, struct span span)
{
    assert(bytes->len + span.len <= bytes->size);
    if (span.len > 0)
        memcpy(bytes->ptr + bytes->len, span.ptr, span.len);
    bytes->len += span.len;
}

static inline void wire_bytes_add_text(struct wire_bytes *bytes, const char *text)
{
    wire_bytes_add(bytes, span_of_text(text));
}

static inline void wire_bytes_add_number(struct wire_bytes *bytes, const char *before,
                                         uint64_t number)
{
    wire_bytes_add_text(bytes, before);
    assert(bytes->len + resp_number_len(number) <= bytes->size);
    bytes->len = (size_t)(resp_number_write(bytes->ptr + bytes->len, number) - bytes->ptr);
}

/* ---- Back-off -------------------------------------------------------------------------------- */

/* How long to wait before the next attempt at a server: longer each time, with jitter. */
struct backoff {
    uint64_t next_ns; /* upper bound of the next wait */
    uint64_t random;  /* seeded by the owner */
};

/* At least half of it, so that many waiting clients do not come back together. */
static inline uint64_t backoff_jitter(uint64_t *random, uint64_t length_ns)
{
    return length_ns / 2 + splitmix_next(random) % (length_ns / 2 + 1);
}

static inline uint64_t backoff_wait_ns(struct backoff *backoff, uint64_t max_ns)
{
    uint64_t wait_ns = backoff_jitter(&backoff->random, backoff->next_ns);
    backoff->next_ns = min_u64(2 * backoff->next_ns, max_ns);
    return wait_ns;
}

/* ---- Connections ----------------------------------------------------------------------------- */

/* Zero is the default. Strings are borrowed. */
struct pipeline_options {
    const char *user; /* NULL or "": the default one, or none */
    const char *password;
    uint64_t connect_ns;       /* until the server has greeted. Default 250 ms */
    uint64_t reply_ns;         /* from the command to the answer. Default 50 ms */
    uint64_t backoff_first_ns; /* before connecting again. Default 10 ms, doubled each time */
    uint64_t backoff_max_ns;   /* Default 500 ms */
    size_t commands_max;       /* commands that wait for an answer. Default 4,096 */
    size_t bytes_max;          /* of them. Default 1 MiB */
    uint64_t seed;             /* of the jitter of the back-off */
};

enum pipeline_state {
    PIPELINE_UNAVAILABLE, /* until the back-off ends */
    PIPELINE_DUE,         /* wants a socket */
    PIPELINE_DIALLING,    /* has one that is not connected yet */
    PIPELINE_GREETING,    /* sends its greeting, and waits for the replies */
    PIPELINE_READY,
    PIPELINE_GIVEN_UP, /* wants its socket closed */
};

struct pipeline;

struct pipeline_codec {
    const char *server; /* in messages */
    /* A socket is connected: writes the greeting. False: no memory. */
    bool (*begin)(struct pipeline *pipe);
    /* Reads replies while it is greeting or ready; a code gives the connection up. */
    int (*read)(struct pipeline *pipe, struct span bytes, uint64_t now_ns);
    /* The connection is lost: ends commands that were sent. */
    void (*end_sent)(struct pipeline *pipe, uint64_t now_ns);
    /* earliest_ns has passed. */
    void (*be_late)(struct pipeline *pipe, uint64_t now_ns);
    /* Ends all commands, and frees what the codec has. */
    void (*free)(struct pipeline *pipe, uint64_t now_ns);
};

/* A position counts the bytes of all commands since the beginning. */
struct pipeline {
    struct link link;
    const struct pipeline_codec *codec;
    struct pipeline_options options;
    enum pipeline_state state;
    struct stint_error fault;
    struct wire_bytes greeting; /* what may be a password is cleared */
    size_t greeting_sent;
    struct wire_bytes bytes;       /* of commands; dropped ones stay until space is needed */
    uint64_t base;                 /* position of the first byte */
    uint64_t sent;                 /* up to where */
    uint64_t state_ends_ns;        /* of UNAVAILABLE, or of DIALLING and GREETING together */
    uint64_t earliest_ns;          /* no command's deadline is earlier */
    uint64_t unavailable_since_ns; /* 0: it is ready, or has not begun to connect */
    struct backoff backoff;
};

/* ---- For codecs ------------------------------------------------------------------------------ */

/* Zeroed before. Wants its first socket at once. */
void pipeline_init(struct pipeline *pipe, const struct pipeline_codec *codec,
                   const struct pipeline_options *options);
/* All of the greeting was answered. */
void pipeline_be_ready(struct pipeline *pipe);
void pipeline_give_up(struct pipeline *pipe);
/* The same, because a command is late. */
void pipeline_give_up_late(struct pipeline *pipe);
/* Bytes before this position are no longer needed, unless they are to be sent. */
void pipeline_drop(struct pipeline *pipe, uint64_t kept);

static inline uint64_t pipeline_end(const struct pipeline *pipe)
{
    return pipe->base + pipe->bytes.len;
}

#endif
