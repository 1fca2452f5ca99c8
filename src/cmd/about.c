/* SPDX-License-Identifier: MIT */
/* The table of commands, `help` and `version`. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/describe.h"
#include "cmd/lib/print.h"
#include "stint.h"

#include <stdio.h>
#include <string.h>

static int help_main(int argc, char **argv);
static int version_main(int argc, char **argv);

const struct cmd cmd_all[] = {
    {"serve", "run a rate limit server for RESP, HTTP and gRPC", .run = serve_main},
    {"top", "show a server's metrics in the terminal", .run = top_main},
    {"token", "create a token for a client of a server", .run = token_main},
    {"replay", "apply quotas or rules to a log, and report what would be limited",
     .run = replay_main},
    {"plan", "propose limits from an access log", .run = plan_main},
    {"sim", "simulate quotas, reproducibly from a seed", .commands = sim_commands,
     .bad_input = "bad input or a stated bound that did not hold"},
    {"explain", "print the guarantees of a quota", .run = explain_main},
    {"try", "try a quota: each line of input is a request", .run = try_main},
    {"rules", "check, show and explain files of rules", .commands = rules_commands,
     .bad_input = "bad input, or errors in files of rules"},
    {"pace", "release lines of input at a quota", .run = pace_main},
    {"pool", "choose the key of a pool that may be used now", .commands = pool_commands,
     .bad_input = "bad input"},
    {"take", "take units from a server, for scripts", .run = ask_main},
    {"peek", "ask a server for the result of take, without taking", .run = ask_main},
    {"reset", "reset a key on a server", .run = ask_main},
    {"rls", "call Envoy's rate limit service, once or as a load test", .commands = rls_commands,
     .bad_input = "no answer"},
    {"store", "check whether a Redis, Valkey or memcached can be shared",
     .commands = store_commands, .bad_input = "the store did not answer"},
    {"table", "show the content of a table file", .run = table_main},
    {"help", "this list, or the options of one command", .run = help_main},
    {"version", "the version of program and library", .run = version_main},
    {.name = NULL},
};

/* ---- stint help ------------------------------------------------------------------------------ */

#define HELP_WORDS_MAX 2

struct help_options {
    bool json;
    char *words[HELP_WORDS_MAX];
    int n_words;
};

static const struct args_option options_known[] = {
    {"json", NULL, 0, "Print the table of commands, or the options of one, as a JSON object",
     ARGS_FLAG(struct help_options, json)},
    {0},
};

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct help_options *options = input;
    if (options->n_words == HELP_WORDS_MAX)
        argp_error(state, "expected one COMMAND, found '%s' too", word);
    options->words[options->n_words++] = word;
}

static int list_commands(void)
{
    puts("stint: a strict rate limiter\n\nUsage: stint COMMAND [OPTION...]\n");
    for (const struct cmd *cmd = cmd_all; cmd->name != NULL; cmd++)
        printf("  %-9s %s\n", cmd->name, cmd->summary);
    puts("\n"
         "`stint help COMMAND` lists the options of one; its man page, such as stint-take(1), has "
         "more.\n"
         "A SPEC is a quota in one string, [ALGORITHM] LIMIT/PERIOD [name=value ...], for "
         "example\n"
         "'100/60s' or 'gcra 100/1m burst=20'; stint-spec(7) has them all.\n"
         "Exit codes: 0 done, 1 bad input, 2 bad usage; 3 denied, where a command asks for "
         "units.");
    return CMD_DONE;
}

static int help_on(const struct help_options *options)
{
    const struct cmd *cmd = cmd_find(cmd_all, options->words[0]), *subcommand = NULL;
    if (cmd == NULL)
        return cmd_unknown(cmd_all, NULL, options->words[0]);
    if (options->n_words > 1 && cmd->commands == NULL) {
        print_message("expected one COMMAND, found '%s' too", options->words[1]);
        return CMD_BAD_USAGE;
    }
    if (options->n_words > 1) {
        subcommand = cmd_find(cmd->commands, options->words[1]);
        if (subcommand == NULL)
            return cmd_unknown(cmd->commands, cmd->name, options->words[1]);
    }
    if (options->json)
        return describe_command(cmd, subcommand);
    char option[] = "--help";
    char *words[HELP_WORDS_MAX + 2] = {options->words[0], options->words[1]};
    words[options->n_words] = option;
    return cmd_run(cmd, options->n_words + 1, words);
}

static int help_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_word},
        .arguments = "[COMMAND [SUBCOMMAND]]",
        .doc = "Lists the commands, or the options of one.\v"
               "`stint help --complete WORD...` prints the words by which a shell can complete the "
               "last WORD of a command line.",
    };
    struct help_options options = {0};
    if (argc > 2 && strcmp(argv[1], "--complete") == 0)
        return complete_words(cmd_all, argc - 2, argv + 2);
    args_parse(&command, argc, argv, &options);
    if (options.n_words > 0)
        return help_on(&options);
    return options.json ? describe_commands(cmd_all) : list_commands();
}

/* ---- stint version --------------------------------------------------------------------------- */

const char *cmd_commit = "-";

static int version_main(int argc, char **argv)
{
    static const struct args_command command = {
        .doc = "Prints the version of the program and of its library; if it was built in a clone, "
               "with the commit.",
    };
    args_parse(&command, argc, argv, NULL);
    bool has_commit = strcmp(cmd_commit, "-") != 0;
    printf("stint %s%s%s%s\n", stint_version(), has_commit ? " (" : "", cmd_commit,
           has_commit ? ")" : "");
    return CMD_DONE;
}
