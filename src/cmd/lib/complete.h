/* SPDX-License-Identifier: MIT */
/* Completes command lines for shells: contrib/completion. */
#ifndef STINT_CMD_LIB_COMPLETE_H
#define STINT_CMD_LIB_COMPLETE_H

#include "cmd/lib/cmd.h"

/*
 * Prints the words that can replace the last of the words, which follow "stint" on a command line
 * and may be in part: one on each line, with its description after a tab. After `--option=` they
 * are values alone. The line `:file` stands for the names of files. Returns an enum cmd_exit, or
 * exits.
 */
int complete_words(const struct cmd *commands, int n_words, char **words);

#endif
