/* SPDX-License-Identifier: MIT */
/* COMMAND and its kin: the table of commands, told to clients in the shapes of Redis 7. */
#ifndef STINT_PROTO_RESP_RESP_ABOUT_H
#define STINT_PROTO_RESP_RESP_ABOUT_H

#include "proto/resp/resp_request.h"
#include "proto/resp/resp_writer.h"

/*
 * Answers COMMAND with whatever stands behind it, errors too. `lists` is for GETKEYS, which reads
 * the command it is asked about.
 */
void resp_about_commands(struct resp_writer *writer, const struct span *args, size_t n_args,
                         struct resp_lists *lists);

/* "ERR unknown command 'FOO'" and the like. */
void resp_about_unknown(struct resp_writer *writer, struct span name);
void resp_about_arity(struct resp_writer *writer, const struct resp_command *command);
/* Of a command whose second argument is a word of its own. */
void resp_about_subcommand(struct resp_writer *writer, const struct resp_command *command,
                           struct span word);

#endif
