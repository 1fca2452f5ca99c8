/* SPDX-License-Identifier: MIT */
/*
 * The table of commands, `help` and `version`; the tables of commands and options as JSON for man
 * pages, and as candidates for shells (contrib/completion).
 */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "stint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int help_main(int argc, char **argv);
static int version_main(int argc, char **argv);

const struct cmd cmd_all[] = {
    {"serve", "run a rate limit server for RESP, HTTP and gRPC", .run = serve_main},
    {"top", "show what a server, or a table in a file, does now", .run = top_main},
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
    {"rls", "call Envoy's rate limit service, or ask for its health", .commands = rls_commands,
     .bad_input = "no answer"},
    {"store", "check whether a Redis, Valkey or memcached can be shared",
     .commands = store_commands, .bad_input = "the store did not answer"},
    {"table", "show the content of a table file", .run = table_main},
    {"help", "this list, or the options of one command", .run = help_main},
    {"version", "the version of program and library", .run = version_main},
    {.name = NULL},
};

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *list_of(const struct cmd *commands)
{
    json_t *list = json_array();
    for (const struct cmd *cmd = commands; cmd->name != NULL; cmd++) {
        json_t *row = json_pack("{s:s, s:s}", "name", cmd->name, "summary", cmd->summary);
        if (cmd->commands != NULL)
            json_object_set_new(row, "commands", list_of(cmd->commands));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *option_json(const struct args_option *option)
{
    const char *const *words = option->value.words;
    json_t *values = words != NULL ? json_array() : NULL;
    for (; words != NULL && *words != NULL; words++)
        json_array_append_new(values, json_string(*words));
    return json_pack("{s:s, s:s?, s:b, s:s, s:o*}", "name", option->name, "argument",
                     option->argument, "is_optional", option->is_optional, "help", option->help,
                     "values", values);
}

static const char *summary; /* of the command that is described */

static void describe(const struct args_command *command, const struct args_option *const *rows,
                     int argc, char **argv)
{
    const char *doc = command->doc, *after = strchr(doc, '\v');
    json_t *options = json_array();
    (void)argc;
    for (; *rows != NULL; rows++)
        json_array_append_new(options, option_json(*rows));
    exit(json_text_print(json_pack("{s:s, s:s, s:s, s:s%, s:s, s:o}", "name", argv[0], "summary",
                                   summary, "arguments",
                                   command->arguments != NULL ? command->arguments : "", "doc", doc,
                                   after != NULL ? (size_t)(after - doc) : strlen(doc), "notes",
                                   after != NULL ? after + 1 : "", "options", options),
                         true));
}

/* One command, or a group or one of its subcommands; NULL for none. With options: exits. */
static int describe_command(const struct cmd *cmd, const struct cmd *subcommand)
{
    const struct cmd *described = subcommand != NULL ? subcommand : cmd;
    char name[48], subname[32];
    char *words[] = {name, subname, NULL};
    if (described->commands != NULL)
        return json_text_print(json_pack("{s:s+, s:s, s:s, s:o}", "name", "stint ", described->name,
                                         "summary", described->summary, "bad_input",
                                         described->bad_input, "commands",
                                         list_of(described->commands)),
                               true);
    snprintf(name, sizeof(name), "%s", cmd->name);
    snprintf(subname, sizeof(subname), "%s", described->name);
    summary = described->summary;
    args_inspect(describe);
    return cmd_run(cmd, subcommand != NULL ? 2 : 1, words);
}

/* ---- Candidates for the last word of a command line ------------------------------------------ */

static void print_candidate(const char *before, const char *word, const char *typed,
                            const char *description)
{
    size_t len = strlen(before);
    if (strncmp(before, typed, strnlen(typed, len)) == 0 &&
        (strlen(typed) <= len || strncmp(word, typed + len, strlen(typed) - len) == 0))
        printf("%s%s%s%s\n", before, word, description[0] != '\0' ? "\t" : "", description);
}

static void print_commands(const struct cmd *commands, const char *typed)
{
    for (const struct cmd *cmd = commands; cmd->name != NULL; cmd++)
        print_candidate("", cmd->name, typed, cmd->summary);
}

/* Candidates for an argument that --help calls `name`, such as FILE or SPEC. */
static void print_values(const char *name, const char *const *words, const char *typed)
{
    for (; words != NULL && *words != NULL; words++)
        print_candidate("", *words, typed, "");
    if (strstr(name, "SPEC") != NULL)
        for (int i = STINT_WINDOW; i < STINT_COUNTER; i++)
            print_candidate("", stint_algorithm_name(i), typed, "");
    if (strstr(name, "FILE") != NULL || strstr(name, "PATH") != NULL)
        puts(":file");
}

/* The option of that name, with or without a value behind `=`; NULL if there is none. */
static const struct args_option *find_option(const struct args_option *const *rows,
                                             const char *name)
{
    size_t len = strcspn(name, "=");
    while (*rows != NULL && (strncmp((*rows)->name, name, len) != 0 || (*rows)->name[len] != '\0'))
        rows++;
    return *rows;
}

static void complete(const struct args_command *command, const struct args_option *const *rows,
                     int n_words, char **words)
{
    const struct args_option *open = NULL; /* the next word is its value */
    bool has_ended = false;                /* by `--` */
    for (int i = 1; i + 1 < n_words; i++) {
        const struct args_option *option =
            strncmp(words[i], "--", 2) == 0 ? find_option(rows, words[i] + 2) : NULL;
        bool takes_next = !has_ended && open == NULL && option != NULL &&
                          option->argument != NULL && !option->is_optional &&
                          strchr(words[i], '=') == NULL;
        has_ended = has_ended || (open == NULL && strcmp(words[i], "--") == 0);
        open = takes_next ? option : NULL;
    }
    char *typed = words[n_words - 1], *value = strchr(typed, '=');
    bool is_option = !has_ended && open == NULL && typed[0] == '-';
    if (is_option && value != NULL)
        open = find_option(rows, typed + strspn(typed, "-"));
    if (open != NULL)
        print_values(open->argument, open->value.words, is_option ? value + 1 : typed);
    else if (is_option) {
        for (; *rows != NULL; rows++)
            print_candidate("--", (*rows)->name, typed, (*rows)->help);
        print_candidate("--", "help", typed, "Give this help list");
    } else
        print_values(command->arguments != NULL ? command->arguments : "", command->words, typed);
}

/*
 * Prints the words that can replace the last of the words, which follow "stint" on a command line
 * and may be in part: one on each line, with its description after a tab. After `--option=` they
 * are values alone. The line `:file` stands for the names of files. Returns an enum cmd_exit, or
 * exits.
 */
static int complete_words(int n_words, char **words)
{
    const char *typed = words[n_words - 1];
    const struct cmd *cmd = n_words > 1 ? cmd_find(cmd_all, words[0]) : NULL;
    bool is_help = cmd != NULL && strcmp(cmd->name, "help") == 0;
    if (is_help && n_words > 2)
        cmd = cmd_find(cmd_all, words[1]);
    if (n_words == 1 || (is_help && n_words == 2 && typed[0] != '-'))
        print_commands(cmd_all, typed);
    else if (cmd != NULL && cmd->commands != NULL && n_words == 2 + is_help)
        print_commands(cmd->commands, typed);
    else if (cmd != NULL && (!is_help || n_words == 2)) {
        args_inspect(complete);
        return cmd_run(cmd, n_words, words);
    }
    return CMD_DONE;
}

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
        return complete_words(argc - 2, argv + 2);
    args_parse(&command, argc, argv, &options);
    if (options.n_words > 0)
        return help_on(&options);
    return options.json ? json_text_print(json_pack("{s:o}", "commands", list_of(cmd_all)), true)
                        : list_commands();
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
