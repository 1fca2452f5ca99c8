/* SPDX-License-Identifier: MIT */
/* Prints the tables of commands and options as JSON. */
#define _GNU_SOURCE
#include "cmd/lib/describe.h"

#include "cmd/lib/args.h"
#include "cmd/lib/print.h"

#include <stdlib.h>
#include <string.h>

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

static int print(json_t *object)
{
    return json_text_print(object, true) == 0 ? CMD_DONE : CMD_BAD_INPUT;
}

int describe_commands(const struct cmd *commands)
{
    return print(json_pack("{s:o}", "commands", list_of(commands)));
}

static void add_option(const struct args_option *option, void *list)
{
    json_t *row =
        json_pack("{s:s, s:s?, s:b, s:s}", "name", option->name, "argument", option->argument,
                  "is_optional", option->is_optional, "help", option->help);
    const char *const *words = option->value.words;
    json_t *values = words != NULL ? json_array() : NULL;
    for (; words != NULL && *words != NULL; words++)
        json_array_append_new(values, json_string(*words));
    if (values != NULL)
        json_object_set_new(row, "values", values);
    json_array_append_new(list, row);
}

static const char *summary; /* of the command that is described */

static void describe(const struct args_command *command, int argc, char **argv)
{
    const char *doc = command->doc, *after = strchr(doc, '\v');
    json_t *options = json_array();
    (void)argc;
    args_each_option(command, add_option, options);
    exit(print(json_pack("{s:s, s:s, s:s, s:s%, s:s, s:o}", "name", argv[0], "summary", summary,
                         "arguments", command->arguments != NULL ? command->arguments : "", "doc",
                         doc, after != NULL ? (size_t)(after - doc) : strlen(doc), "notes",
                         after != NULL ? after + 1 : "", "options", options)));
}

int describe_command(const struct cmd *cmd, const struct cmd *subcommand)
{
    const struct cmd *described = subcommand != NULL ? subcommand : cmd;
    char name[48], subname[32];
    char *words[] = {name, subname, NULL};
    if (described->commands != NULL)
        return print(json_pack("{s:s+, s:s, s:s, s:o}", "name", "stint ", described->name,
                               "summary", described->summary, "bad_input", described->bad_input,
                               "commands", list_of(described->commands)));
    snprintf(name, sizeof(name), "%s", cmd->name);
    snprintf(subname, sizeof(subname), "%s", described->name);
    summary = described->summary;
    args_inspect(describe);
    return cmd_run(cmd, subcommand != NULL ? 2 : 1, words);
}
