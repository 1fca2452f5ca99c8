/* SPDX-License-Identifier: MIT */
/* The tables of commands: as JSON, of which man pages are made, and for contrib/completion. */
#ifndef STINT_CMD_LIB_DESCRIBE_H
#define STINT_CMD_LIB_DESCRIBE_H

#include "cmd/lib/cmd.h"

/* Names and summaries. Returns an enum cmd_exit. */
int describe_commands(const struct cmd *commands);
/* One command, or a group or one of its subcommands; NULL for none. With options: exits. */
int describe_command(const struct cmd *cmd, const struct cmd *subcommand);

/*
 * Prints the words that can replace the last of the words, which follow "stint" on a command line
 * and may be in part: one on each line, with its description after a tab. After `--option=` they
 * are values alone. The line `:file` stands for the names of files. Returns an enum cmd_exit, or
 * exits.
 */
int complete_words(const struct cmd *commands, int n_words, char **words);

#endif
