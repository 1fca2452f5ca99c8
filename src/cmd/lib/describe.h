/* SPDX-License-Identifier: MIT */
/* Commands as JSON: their man pages are made of it. */
#ifndef STINT_CMD_LIB_DESCRIBE_H
#define STINT_CMD_LIB_DESCRIBE_H

#include "cmd/lib/cmd.h"

/* Names and summaries. Returns an enum cmd_exit. */
int describe_commands(const struct cmd *commands);
/* One command, or a group or one of its subcommands; NULL for none. With options: exits. */
int describe_command(const struct cmd *cmd, const struct cmd *subcommand);

#endif
