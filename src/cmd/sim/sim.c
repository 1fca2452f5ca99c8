/* SPDX-License-Identifier: MIT */
/* `stint sim`: a table of its own subcommands, one file each. */
#include "cmd/lib/group.h"

#include <stddef.h>

static const struct cmd commands[] = {
    {"run", "one workload against one quota, or a list of them", sim_run_main},
    {"compare", "one workload through several quotas, side by side", sim_compare_main},
    {"worst", "the requests that a quota admits the most of, and its bound", sim_worst_main},
    {NULL, NULL, NULL},
};

int sim_main(int argc, char **argv)
{
    static const struct cmd_group group = {
        .name = "sim",
        .summary = "what a quota does, on virtual time",
        .bad_input = "bad input or a stated bound that did not hold",
        .commands = commands,
    };
    return cmd_group_run(&group, argc, argv);
}
