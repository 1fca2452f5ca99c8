/* SPDX-License-Identifier: MIT */
/* Commands of memcached, their outcomes, and their bytes: the meta commands. */
#ifndef STINT_BACKEND_WIRE_MEMCACHED_COMMAND_H
#define STINT_BACKEND_WIRE_MEMCACHED_COMMAND_H

#include "backend/wire/memcached_reply.h"
#include "backend/wire/redis_command.h"

enum memcached_outcome {
    MEMCACHED_DONE,    /* the reply is one of the command's own */
    MEMCACHED_REFUSED, /* the reply is an error; nothing was done */
    MEMCACHED_UNSENT,  /* no reply: the server never had it */
    MEMCACHED_LATE,    /* no reply in time: it may have been done */
    MEMCACHED_LOST,    /* no reply, the connection has ended: it may have been done */
};

/* `reply` is NULL but for DONE and REFUSED, and valid during the call. May send, must not feed. */
typedef void memcached_answered(void *arg, enum memcached_outcome outcome,
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

#define MEMCACHED_WORDS_MAX 96 /* all of a command but key and value */

/* At least as many bytes as it takes. */
static inline size_t memcached_command_len(const struct memcached_command *command)
{
    return MEMCACHED_WORDS_MAX + command->key.len + command->value.len;
}

/* Appends it; the space must be there. */
void memcached_command_write(struct redis_bytes *bytes, const struct memcached_command *command);

/* The same for parts of one. */
void memcached_add_span(struct redis_bytes *bytes, struct span span);
void memcached_add_text(struct redis_bytes *bytes, const char *text);
void memcached_add_number(struct redis_bytes *bytes, const char *before, uint64_t number);

#endif
