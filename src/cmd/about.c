/* SPDX-License-Identifier: MIT */
/* The list of commands, `help` and `version`. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "stint.h"

#include <stdio.h>
#include <string.h>

static int help_main(int argc, char **argv);
static int version_main(int argc, char **argv);

static const struct cmd cmd_all[] = {
    {"serve", "decide for others: a server that speaks RESP and HTTP", serve_main},
    {"top", "what a server does, live in the terminal", top_main},
    {"token", "make a token for a caller of a server", token_main},
    {"replay", "decide over yesterday's traffic: who would have been limited?", replay_main},
    {"plan", "which limits would have touched only the few? From a log", plan_main},
    {"sim", "what does a quota really do? Simulated, from a seed", sim_main},
    {"explain", "what a quota promises, in its own numbers", explain_main},
    {"try", "each Enter is a request, decided here", try_main},
    {"rules", "which limits do files of rules set, and is there a fault in them?", rules_main},
    {"pace", "release lines at a quota", pace_main},
    {"pool", "which of several keys may be used now, or when?", pool_main},
    {"take", "ask a server for units, for scripts", take_main},
    {"peek", "ask a server what take would be told", peek_main},
    {"reset", "let a server forget what a key has used", reset_main},
    {"rls", "ask Envoy's rate limit service: once, or as a load", rls_main},
    {"store", "is a Redis or Valkey fit to be shared by servers?", store_main},
    {"table", "what is inside a table file", table_main},
    {"help", "this list, or the options of one command", help_main},
    {"version", "the version of program and library", version_main},
    {NULL, NULL, NULL},
};

const struct cmd *cmd_find(const char *name)
{
    for (const struct cmd *cmd = cmd_all; cmd->name != NULL; cmd++)
        if (strcmp(cmd->name, name) == 0)
            return cmd;
    return NULL;
}

int cmd_run(const struct cmd *cmd, int argc, char **argv)
{
    char full_name[32];
    snprintf(full_name, sizeof(full_name), "stint %s", cmd->name);
    argv[0] = full_name;
    return cmd->run(argc, argv);
}

int cmd_unknown(const char *name)
{
    const char *names[sizeof(cmd_all) / sizeof(cmd_all[0])];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        names[i] = cmd_all[i].name;
    struct args_hint hint;
    print_message("there is no command '%s'; %s", name, args_hint(&hint, "", name, names));
    return CMD_BAD_USAGE;
}

static int list_commands(void)
{
    puts("stint: a strict rate limiter\n\nUsage: stint COMMAND [OPTION...]\n");
    for (const struct cmd *cmd = cmd_all; cmd->name != NULL; cmd++)
        printf("  %-9s %s\n", cmd->name, cmd->summary);
    puts("\n`stint help COMMAND` tells the options of one.\n"
         "A SPEC is a quota in one string, [ALGORITHM] LIMIT/PERIOD [name=value ...], for example\n"
         "'100/60s' or 'gcra 100/1m burst=20'; stint-spec(7) has them all.\n"
         "Exit codes: 0 done, 1 bad input, 2 bad usage; 3 denied, where a command asks for units.");
    return CMD_DONE;
}

/* Prints which argument is one too many. */
static int too_many(const char *name, const char *expected, const char *word)
{
    print_message("%s takes %s, found '%s'", name, expected, word);
    return CMD_BAD_USAGE;
}

static int help_main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0)
        return list_commands();
    const struct cmd *cmd = cmd_find(argv[1]);
    if (cmd == NULL)
        return cmd_unknown(argv[1]);
    bool is_group = cmd->run == sim_main || cmd->run == pool_main || cmd->run == rls_main ||
                    cmd->run == rules_main || cmd->run == store_main;
    bool has_subcommand = is_group && argc > 2;
    if (argc > 2 + has_subcommand)
        return too_many("help", "one COMMAND", argv[2 + has_subcommand]);
    if (cmd->run == help_main || cmd->run == version_main)
        return list_commands();
    char option[] = "--help";
    char *asks[] = {argv[1], has_subcommand ? argv[2] : option, option, NULL};
    asks[2 + has_subcommand] = NULL;
    return cmd_run(cmd, 2 + has_subcommand, asks);
}

static int version_main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return list_commands();
    if (argc > 1)
        return too_many("version", "no arguments", argv[1]);
    printf("stint %s\n", stint_version());
    return CMD_DONE;
}
