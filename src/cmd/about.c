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
    {"serve", "run a rate limit server for RESP, HTTP and gRPC", serve_main},
    {"top", "show a server's metrics in the terminal", top_main},
    {"token", "create a token for a client of a server", token_main},
    {"replay", "apply quotas or rules to a log, and report what would be limited", replay_main},
    {"plan", "propose limits from an access log", plan_main},
    {"sim", "simulate quotas, reproducibly from a seed", sim_main},
    {"explain", "print the guarantees of a quota", explain_main},
    {"try", "try a quota: each line of input is a request", try_main},
    {"rules", "check, show and explain files of rules", rules_main},
    {"pace", "release lines of input at a quota", pace_main},
    {"pool", "choose the key of a pool that may be used now", pool_main},
    {"take", "take units from a server, for scripts", take_main},
    {"peek", "ask a server for the result of take, without taking", peek_main},
    {"reset", "reset a key on a server", reset_main},
    {"rls", "call Envoy's rate limit service, once or as a load test", rls_main},
    {"store", "check whether a Redis, Valkey or memcached can be shared", store_main},
    {"table", "show the content of a table file", table_main},
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
    puts("\n"
         "`stint help COMMAND` lists the options of one.\n"
         "A SPEC is a quota in one string, [ALGORITHM] LIMIT/PERIOD [name=value ...], for "
         "example\n"
         "'100/60s' or 'gcra 100/1m burst=20'; stint-spec(7) has them all.\n"
         "Exit codes: 0 done, 1 bad input, 2 bad usage; 3 denied, where a command asks for "
         "units.");
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
