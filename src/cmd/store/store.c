/* SPDX-License-Identifier: MIT */
/* `stint store`: a table of its own subcommands, one file each. */
#include "cmd/lib/group.h"

#include <stddef.h>

static const struct cmd commands[] = {
    {"check", "check whether a Redis, Valkey or memcached can be the store of several servers",
     store_check_main},
    {"script", "print the Lua scripts of stores, for redis-cli", store_script_main},
    {NULL, NULL, NULL},
};

int store_main(int argc, char **argv)
{
    static const struct cmd_group group = {
        .name = "store",
        .summary = "Redis, Valkey and memcached, as stores that servers share",
        .bad_input = "the store did not answer",
        .commands = commands,
    };
    return cmd_group_run(&group, argc, argv);
}
