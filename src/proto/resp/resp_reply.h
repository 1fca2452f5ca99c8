/* SPDX-License-Identifier: MIT */
/* Replies in the format of docs/protocol.md: decisions, and what is said about a command. */
#ifndef STINT_PROTO_RESP_RESP_REPLY_H
#define STINT_PROTO_RESP_RESP_REPLY_H

#include "decide/reply.h"
#include "decide/request.h"
#include "proto/resp/resp_request.h"
#include "proto/resp/resp_writer.h"

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
