/* SPDX-License-Identifier: MIT */
/* The tables of commands and options, as JSON for man pages and as candidates for shells. */
#define _GNU_SOURCE
#include "cmd/lib/describe.h"

#include "cmd/lib/args.h"
#include "cmd/lib/print.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int describe_commands(const struct cmd *commands)
{
    return json_text_print(json_pack("{s:o}", "commands", list_of(commands)), true);
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

int describe_command(const struct cmd *cmd, const struct cmd *subcommand)
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
        for (int i = STINT_WINDOW; stint_algorithm_name(i) != NULL; i++)
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
