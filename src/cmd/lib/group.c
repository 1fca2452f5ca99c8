/* SPDX-License-Identifier: MIT */
/* Chooses the subcommand of a group, or lists the subcommands. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"

#include "cmd/lib/args.h"
#include "cmd/lib/print.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define COMMANDS_MAX 16

static int list_subcommands(const struct cmd_group *group)
{
    printf("stint %s: %s\n\nUsage: stint %s SUBCOMMAND [OPTION...]\n\n", group->name,
           group->summary, group->name);
    for (const struct cmd *cmd = group->commands; cmd->name != NULL; cmd++)
        printf("  %-12s %s\n", cmd->name, cmd->summary);
    printf("\n"
           "`stint help %s SUBCOMMAND` lists the options of one.\n"
           "Exit codes: 0 done, 1 %s, 2 bad usage.\n",
           group->name, group->bad_input);
    return CMD_DONE;
}

static int unknown(const struct cmd_group *group, const char *word)
{
    const char *names[COMMANDS_MAX + 1] = {NULL};
    struct args_hint hint;
    for (size_t i = 0; group->commands[i].name != NULL; i++) {
        assert(i < COMMANDS_MAX);
        names[i] = group->commands[i].name;
    }
    print_message("there is no command '%s %s'; %s", group->name, word,
                  args_hint(&hint, "", word, names));
    return CMD_BAD_USAGE;
}

int cmd_group_run(const struct cmd_group *group, int argc, char **argv)
{
    if (argc < 2) {
        print_message("expected a subcommand; `stint help %s` lists them all", group->name);
        return CMD_BAD_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0)
        return list_subcommands(group);
    for (const struct cmd *cmd = group->commands; cmd->name != NULL; cmd++) {
        if (strcmp(cmd->name, argv[1]) != 0)
            continue;
        char full_name[48];
        snprintf(full_name, sizeof(full_name), "stint %s %s", group->name, cmd->name);
        argv[1] = full_name;
        return cmd->run(argc - 1, argv + 1);
    }
    return unknown(group, argv[1]);
}
