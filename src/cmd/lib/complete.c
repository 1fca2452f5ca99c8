/* SPDX-License-Identifier: MIT */
/* Candidates for the last word of a command line, from the tables of commands and options. */
#define _GNU_SOURCE
#include "cmd/lib/complete.h"

#include "cmd/lib/args.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        for (int i = STINT_WINDOW; stint_algorithm_name(i) != NULL; i++)
            print_candidate("", stint_algorithm_name(i), typed, "");
    if (strstr(name, "FILE") != NULL || strstr(name, "PATH") != NULL)
        puts(":file");
}

static void print_option(const struct args_option *option, void *typed)
{
    print_candidate("--", option->name, typed, option->help);
}

static void complete(const struct args_command *command, int n_words, char **words)
{
    const struct args_option *open = NULL; /* the next word is its value */
    bool has_ended = false;                /* by `--` */
    for (int i = 1; i + 1 < n_words; i++) {
        const struct args_option *option =
            strncmp(words[i], "--", 2) == 0 ? args_find_option(command, words[i] + 2) : NULL;
        bool takes_next = !has_ended && open == NULL && option != NULL &&
                          option->argument != NULL && !option->is_optional &&
                          strchr(words[i], '=') == NULL;
        has_ended = has_ended || (open == NULL && strcmp(words[i], "--") == 0);
        open = takes_next ? option : NULL;
    }
    char *typed = words[n_words - 1], *value = strchr(typed, '=');
    bool is_option = !has_ended && open == NULL && typed[0] == '-';
    if (is_option && value != NULL)
        open = args_find_option(command, typed + strspn(typed, "-"));
    if (open != NULL)
        print_values(open->argument, open->value.words, is_option ? value + 1 : typed);
    else if (is_option) {
        args_each_option(command, print_option, typed);
        print_candidate("--", "help", typed, "Give this help list");
    } else
        print_values(command->arguments != NULL ? command->arguments : "", command->words, typed);
}

int complete_words(const struct cmd *commands, int n_words, char **words)
{
    const char *typed = words[n_words - 1];
    const struct cmd *cmd = n_words > 1 ? cmd_find(commands, words[0]) : NULL;
    bool is_help = cmd != NULL && strcmp(cmd->name, "help") == 0;
    if (is_help && n_words > 2)
        cmd = cmd_find(commands, words[1]);
    if (n_words == 1 || (is_help && n_words == 2 && typed[0] != '-'))
        print_commands(commands, typed);
    else if (cmd != NULL && cmd->commands != NULL && n_words == 2 + is_help)
        print_commands(cmd->commands, typed);
    else if (cmd != NULL && (!is_help || n_words == 2)) {
        args_inspect(complete);
        return cmd_run(cmd, n_words, words);
    }
    return CMD_DONE;
}
