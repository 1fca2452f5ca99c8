/* SPDX-License-Identifier: MIT */
/* `stint rules`: a table of its own subcommands, one file each. */
#include "cmd/lib/group.h"

#include <stddef.h>

static const struct cmd commands[] = {
    {"check", "check files of rules; print every error with its line and column", rules_check_main},
    {"show", "print the rules as parsed, with their bounds", rules_show_main},
    {"explain", "which rules a request matches, and which would deny it", rules_explain_main},
    {NULL, NULL, NULL},
};

int rules_main(int argc, char **argv)
{
    static const struct cmd_group group = {
        .name = "rules",
        .summary = "check, show and explain files of rules",
        .bad_input = "bad input, or errors in files of rules",
        .commands = commands,
    };
    return cmd_group_run(&group, argc, argv);
}
