/* SPDX-License-Identifier: MIT */
/* `stint sim`: a table of its own subcommands, one file each. */
#define _GNU_SOURCE
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/say.h"

#include <stdio.h>
#include <string.h>

static const struct cmd sim_all[] = {
    {"run", "one workload against one quota, or a list of them", sim_run_main},
    {"compare", "one workload through several quotas, side by side", sim_compare_main},
    {"worst", "the requests that a quota admits the most of, and its bound", sim_worst_main},
    {"utilisation", "how much of a limit its callers get to use, for which slack",
     sim_utilisation_main},
    {NULL, NULL, NULL},
};

static int list_subcommands(void)
{
    puts("stint sim: what a quota does, on virtual time\n\n"
         "Usage: stint sim SUBCOMMAND [OPTION...]\n");
    for (const struct cmd *cmd = sim_all; cmd->name != NULL; cmd++)
        printf("  %-12s %s\n", cmd->name, cmd->summary);
    puts("\n`stint help sim SUBCOMMAND` tells the options of one.\n"
         "Exit codes: 0 done, 1 bad input or a stated bound that did not hold, 2 bad usage.");
    return CMD_DONE;
}

static int unknown(const char *name)
{
    const char *names[sizeof(sim_all) / sizeof(sim_all[0])];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        names[i] = sim_all[i].name;
    struct args_hint hint;
    say("there is no command 'sim %s'; %s", name, args_hint(&hint, "", name, names));
    return CMD_BAD_USAGE;
}

int sim_main(int argc, char **argv)
{
    if (argc < 2) {
        say("expected a subcommand; `stint help sim` lists them all");
        return CMD_BAD_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0)
        return list_subcommands();
    for (const struct cmd *cmd = sim_all; cmd->name != NULL; cmd++) {
        if (strcmp(cmd->name, argv[1]) != 0)
            continue;
        char full_name[32];
        snprintf(full_name, sizeof(full_name), "stint sim %s", cmd->name);
        argv[1] = full_name;
        return cmd->run(argc - 1, argv + 1);
    }
    return unknown(argv[1]);
}
