/* SPDX-License-Identifier: MIT */
/* COMMAND and its subcommands: the table of commands, in the format of Redis 7. */
#ifndef STINT_PROTO_RESP_RESP_ABOUT_H
#define STINT_PROTO_RESP_RESP_ABOUT_H

#include "proto/resp/resp_request.h"
#include "proto/resp/resp_writer.h"

/*
 * Replies to COMMAND with any arguments, also to errors. `lists` is for GETKEYS, which parses its
 * command.
 */
void resp_about_commands(struct resp_writer *writer, const struct span *args, size_t n_args,
                         struct resp_lists *lists);

/* "ERR unknown command 'FOO'" and similar messages. */
void resp_about_unknown(struct resp_writer *writer, struct span name);
void resp_about_arity(struct resp_writer *writer, const struct resp_command *command);
/* For a command whose second argument is a subcommand. */
void resp_about_subcommand(struct resp_writer *writer, const struct resp_command *command,
                           struct span word);

#endif
