/* SPDX-License-Identifier: MIT */
/* Replies in the format of docs/protocol.md: decisions, and what is said about a command. */
#ifndef STINT_PROTO_RESP_RESP_REPLY_H
#define STINT_PROTO_RESP_RESP_REPLY_H

#include "base/byte_queue.h"
#include "decide/reply.h"
#include "decide/request.h"
#include "proto/resp/resp_request.h"

#include <stdbool.h>

/* ---- The types of RESP ----------------------------------------------------------------------- */

/*
 * The types of RESP, appended to a queue. Without memory the writer fails permanently, and writes
 * no more: half a reply must not be followed by another.
 */

/* Zeroed, except the version, it is empty. */
struct resp_writer {
    struct byte_queue queue;
    uint8_t version; /* 2 or 3 */
    bool failed;
};

/* n bytes at the end of the queue, as byte_queue_reserve() gives them; NULL: no memory. */
static inline uint8_t *resp_writer_space(struct resp_writer *writer, size_t n)
{
    uint8_t *space = writer->failed ? NULL : byte_queue_reserve(&writer->queue, n);
    writer->failed = space == NULL;
    return space;
}

void resp_write_array(struct resp_writer *writer, size_t n);
/* n pairs; in RESP2 an array of twice as many. */
void resp_write_map(struct resp_writer *writer, size_t n);
void resp_write_integer(struct resp_writer *writer, int64_t number);
void resp_write_digits(struct resp_writer *writer, uint64_t number); /* as a bulk string */
void resp_write_bulk(struct resp_writer *writer, struct span bytes);
void resp_write_text(struct resp_writer *writer, const char *text);   /* the same */
void resp_write_simple(struct resp_writer *writer, const char *text); /* +OK; no CR, no LF */
void resp_write_null(struct resp_writer *writer);
/* A double in RESP3, its text in RESP2; three decimals. */
void resp_write_double(struct resp_writer *writer, double number);
/* A text for people to read: verbatim in RESP3. */
void resp_write_verbatim(struct resp_writer *writer, struct span text);
/* "-WORD message"; control characters of the message become spaces. */
void resp_write_error(struct resp_writer *writer, const char *word, const char *message);

/* A name and its value in a map; text NULL: null. */
static inline void resp_pair_text(struct resp_writer *writer, const char *name, const char *text)
{
    resp_write_text(writer, name);
    if (text != NULL)
        resp_write_text(writer, text);
    else
        resp_write_null(writer);
}

static inline void resp_pair_integer(struct resp_writer *writer, const char *name, int64_t number)
{
    resp_write_text(writer, name);
    resp_write_integer(writer, number);
}

/* ns as whole ms, rounded up. */
static inline uint64_t resp_ms_of(uint64_t ns)
{
    return ns / 1000000 + (ns % 1000000 != 0);
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* CL.THROTTLE: five integers, or the error. */
void resp_reply_throttle(struct resp_writer *writer, const struct reply *reply);
/* Every STINT verb. */
void resp_reply_verb(struct resp_writer *writer, const struct request *request,
                     const struct reply *reply);
void resp_reply_error(struct resp_writer *writer, enum reply_error error, const char *message);

/* Milliseconds rounded up, -1 for STINT_NEVER_NS. */
int64_t resp_reply_ms(uint64_t ns);

/*
 * COMMAND with any arguments: the table of commands, in the format of Redis 7, or an error. `lists`
 * is for GETKEYS, which parses its command.
 */
void resp_reply_commands(struct resp_writer *writer, const struct span *args, size_t n_args,
                         struct resp_lists *lists);

/* "ERR unknown command 'FOO'" and similar messages. */
void resp_reply_unknown(struct resp_writer *writer, struct span name);
void resp_reply_arity(struct resp_writer *writer, const struct resp_command *command);
/* For a command whose second argument is a subcommand. */
void resp_reply_subcommand(struct resp_writer *writer, const struct resp_command *command,
                           struct span word);

#endif
