/* SPDX-License-Identifier: MIT */
/* Chooses the subcommand; about.c has the table of them. */
#include "cmd/cmd.h"
#include "cmd/say.h"

#include <string.h>

int main(int argc, char **argv)
{
    if (argc < 2) {
        say("expected a command; `stint help` lists them all");
        return CMD_BAD_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct cmd *cmd = cmd_find(name);
    return cmd != NULL ? cmd_run(cmd, argc - 1, argv + 1) : cmd_unknown(name);
}
