/* SPDX-License-Identifier: MIT */
/* Finds and runs commands, and the subcommands of groups. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define COMMANDS_MAX 32
#define NAME_SIZE 48

const struct cmd *cmd_find(const struct cmd *commands, const char *name)
{
    for (const struct cmd *cmd = commands; cmd->name != NULL; cmd++)
        if (strcmp(cmd->name, name) == 0)
            return cmd;
    return NULL;
}

size_t cmd_index(const struct cmd *commands, const char *argv0)
{
    return (size_t)(cmd_find(commands, strrchr(argv0, ' ') + 1) - commands);
}

int cmd_unknown(const struct cmd *commands, const char *group, const char *name)
{
    const char *names[COMMANDS_MAX + 1] = {NULL};
    struct args_hint hint;
    for (size_t i = 0; commands[i].name != NULL; i++) {
        assert(i < COMMANDS_MAX);
        names[i] = commands[i].name;
    }
    const char *space = group != NULL ? " " : "";
    args_hint(&hint, "", name, names);
    if (group == NULL)
        group = "";
    print_message("there is no command '%s%s%s'; %s%s `stint help%s%s` lists all", group, space,
                  name, hint.text, hint.end, space, group);
    return CMD_BAD_USAGE;
}

static int list_subcommands(const struct cmd *group, const char *name)
{
    printf("%s: %s\n\nUsage: %s SUBCOMMAND [OPTION...]\n\n", name, group->summary, name);
    for (const struct cmd *cmd = group->commands; cmd->name != NULL; cmd++)
        printf("  %-12s %s\n", cmd->name, cmd->summary);
    printf("\n"
           "`stint help %s SUBCOMMAND` lists the options of one.\n"
           "Exit codes: 0 done, 1 %s, 2 bad usage.\n",
           group->name, group->bad_input);
    return CMD_DONE;
}

static int run_as(const char *before, const struct cmd *cmd, int argc, char **argv)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "%s %s", before, cmd->name);
    argv[0] = name;
    if (cmd->commands == NULL)
        return cmd->run(argc, argv);
    if (argc < 2) {
        print_message("expected a subcommand; `stint help %s` lists them all", cmd->name);
        return CMD_BAD_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0)
        return list_subcommands(cmd, name);
    const struct cmd *subcommand = cmd_find(cmd->commands, argv[1]);
    return subcommand != NULL ? run_as(name, subcommand, argc - 1, argv + 1)
                              : cmd_unknown(cmd->commands, cmd->name, argv[1]);
}

int cmd_run(const struct cmd *cmd, int argc, char **argv)
{
    return run_as("stint", cmd, argc, argv);
}
