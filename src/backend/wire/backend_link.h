/* SPDX-License-Identifier: MIT */
/*
 * A connection to a store whose commands do not wait for each other's replies: its states, its
 * times, the bytes to be sent, and the commands without a reply. The code that moves the bytes sees
 * when it wants a socket, what to send, and when to wake it. A codec knows the protocol. First
 * member of every kind of connection. It outlives its sockets. One thread.
 */
#ifndef STINT_BACKEND_WIRE_BACKEND_LINK_H
#define STINT_BACKEND_WIRE_BACKEND_LINK_H

#include "base/err.h"
#include "base/ns.h"
#include "base/number.h"
#include "base/span.h"
#include "base/splitmix.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

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

/* ---- Commands -------------------------------------------------------------------------------- */

/* What becomes of a command. */
enum link_outcome {
    LINK_DONE,    /* the reply is the result */
    LINK_REFUSED, /* the reply is an error; nothing was done */
    LINK_UNSENT,  /* no reply: no server has it, so nothing was done */
    LINK_LATE,    /* no reply in time: it may have been done */
    LINK_LOST,    /* no reply, the connection has ended: it may have been done */
};

/* A command without a reply. A position counts the bytes of all commands since the beginning. */
struct link_pending {
    void (*answered)(void); /* the codec knows its type */
    void *arg;
    uint64_t deadline_ns;
    uint64_t begin, end; /* of its bytes. begin UINT64_MAX: they are not kept once they are sent */
    /* The codec's. */
    struct span script;
    unsigned skips; /* replies before its own: of SCRIPT LOAD and ASKING */
    bool is_asking;
    bool is_retried; /* its script was loaded for it */
    bool is_over;    /* to be removed */
    uint8_t verb;
};

/* ---- Connections ----------------------------------------------------------------------------- */

#define LINK_CONNECT_NS (250 * NS_PER_MS)
#define LINK_REPLY_NS (50 * NS_PER_MS)

/* Of an option: 0 is its default. */
static inline void link_set_default(uint64_t *option, uint64_t standard)
{
    if (*option == 0)
        *option = standard;
}

/* Zero is the default. Strings are borrowed. */
struct link_options {
    const char *user; /* NULL or "": the default one, or none */
    const char *password;
    uint64_t connect_ns;       /* until the server has greeted. Default LINK_CONNECT_NS */
    uint64_t reply_ns;         /* from the command to the answer. Default LINK_REPLY_NS */
    uint64_t backoff_first_ns; /* before connecting again. Default 10 ms, doubled each time */
    uint64_t backoff_max_ns;   /* Default 500 ms */
    size_t commands_max;       /* commands that wait for an answer. Default 4,096 */
    size_t bytes_max;          /* of them. Default 1 MiB */
    uint64_t seed;             /* of the jitter of the back-off */
};

enum link_state {
    LINK_UNAVAILABLE, /* until the back-off ends */
    LINK_DUE,         /* wants a socket */
    LINK_DIALLING,    /* has one that is not connected yet */
    LINK_GREETING,    /* sends its greeting, and waits for the replies */
    LINK_READY,       /* takes commands */
    LINK_GIVEN_UP,    /* wants its socket closed */
};

struct link;

struct link_codec {
    const char *server; /* in messages */
    /* A socket is connected: writes the greeting. False: no memory. */
    bool (*begin)(struct link *link);
    /* Reads replies while it is greeting or ready; a code gives the connection up. */
    int (*read)(struct link *link, struct span bytes, uint64_t now_ns);
    /* Answers a command that has no reply. */
    void (*end)(const struct link_pending *pending, enum link_outcome outcome, uint64_t now_ns);
    /* earliest_ns has passed. */
    void (*be_late)(struct link *link, uint64_t now_ns);
    /* Frees what the codec has. */
    void (*free)(struct link *link);
};

struct link {
    const struct link_codec *codec;
    struct link_options options;
    enum link_state state;
    struct stint_error fault;
    struct wire_bytes greeting; /* what may be a password is cleared */
    size_t greeting_sent;
    struct wire_bytes bytes;       /* of commands; dropped ones stay until space is needed */
    uint64_t base;                 /* position of the first byte */
    uint64_t sent;                 /* up to where */
    struct link_pending *pending;  /* a ring */
    size_t first, n_pending;       /* in it */
    uint64_t state_ends_ns;        /* of UNAVAILABLE, or of DIALLING and GREETING together */
    uint64_t earliest_ns;          /* no command's deadline is earlier */
    uint64_t unavailable_since_ns; /* 0: it is ready, or has not begun to connect */
    uint64_t backoff_ns;           /* upper bound of the next wait before it connects */
    uint64_t random;
};

/* ---- For the owner of the socket ------------------------------------------------------------- */

enum link_wants {
    LINK_WANTS_NOTHING,
    LINK_WANTS_SOCKET, /* to be opened: dialling(), then connected() or lost() */
    LINK_WANTS_CLOSE,  /* the socket is to be closed, then lost() */
};
enum link_wants link_wants(const struct link *link);
void link_dialling(struct link *link, uint64_t now_ns);
/* In TLS: after the handshake. */
void link_connected(struct link *link, uint64_t now_ns);
/* The socket is closed, or could not be opened. `why` NULL: the connection knows. */
void link_lost(struct link *link, const char *why, uint64_t now_ns);

void link_feed(struct link *link, struct span bytes, uint64_t now_ns);
/* Valid until the next call. */
struct span link_output(const struct link *link);
void link_sent(struct link *link, size_t len);
/* When to call wake() at the latest; STINT_NEVER_NS: nothing is waited for. */
uint64_t link_deadline(const struct link *link);
void link_wake(struct link *link, uint64_t now_ns);

/* Whether it has greeted, and takes commands now. */
static inline bool link_is_ready(const struct link *link)
{
    return link->state == LINK_READY;
}

/* Whether it has a socket to a server that may reply. */
static inline bool link_reads(const struct link *link)
{
    return link->state == LINK_GREETING || link->state == LINK_READY;
}

/* Why it was not ready the last time; "" if it always was. */
static inline const char *link_fault(const struct link *link)
{
    return link->fault.message;
}

/* Answers what waits. */
void link_free(struct link *link, uint64_t now_ns);

/* ---- For codecs ------------------------------------------------------------------------------ */

/* Zeroed before. Wants its first socket at once. False: no memory. */
bool link_init(struct link *link, const struct link_codec *codec,
               const struct link_options *options);
/* All of the greeting was answered. */
void link_be_ready(struct link *link);
/* Wants its socket closed: the server cannot be used. */
void link_give_up(struct link *link);
/* The same, because a command is late; ends all commands. */
void link_give_up_late(struct link *link, uint64_t now_ns);

static inline uint64_t link_end(const struct link *link)
{
    return link->base + link->bytes.len;
}

/* By its place among those without a reply. */
static inline struct link_pending *link_at(const struct link *link, size_t index)
{
    return &link->pending[(link->first + index) % link->options.commands_max];
}

/* Space for one more command of so many bytes. False: it is not ready, or too many wait. */
bool link_reserve(struct link *link, size_t len);
/* The next command, whose bytes have been written. */
void link_append(struct link *link, const struct link_pending *pending);
/* Whether the first command was sent, so that a reply may be its own. */
static inline bool link_expects_reply(const struct link *link)
{
    return link->n_pending > 0 && link_at(link, 0)->end <= link->sent;
}
/* Appends bytes that are no command. False: it is not ready, or too many are unsent. */
bool link_write(struct link *link, struct span bytes);
/* Removes the first command, which has its reply. */
struct link_pending link_take_first(struct link *link);

/* At least half of it, so that many waiting clients do not come back together. */
static inline uint64_t link_jitter(uint64_t *random, uint64_t length_ns)
{
    return length_ns / 2 + splitmix_next(random) % (length_ns / 2 + 1);
}

#endif
