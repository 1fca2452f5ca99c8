/* SPDX-License-Identifier: MIT */
/* Commands with a table of subcommands: `stint sim run`, `stint rules check`. */
#ifndef STINT_CMD_LIB_GROUP_H
#define STINT_CMD_LIB_GROUP_H

#include "cmd/lib/cmd.h"

struct cmd_group {
    const char *name;           /* "sim" */
    const char *summary;        /* "what a quota does, on virtual time" */
    const char *bad_input;      /* the meaning of exit code 1 */
    const struct cmd *commands; /* ends with a name of NULL */
};

/* Lists the subcommands, or runs the one that argv[1] names. Returns an enum cmd_exit. */
int cmd_group_run(const struct cmd_group *group, int argc, char **argv);

#endif
