/* SPDX-License-Identifier: MIT */
/* `stint store script`: the scripts that servers load into a store, as text for redis-cli. */
#define _GNU_SOURCE
#include "backend/script/lua_script.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <stdio.h>
#include <string.h>

static void set_name(struct argp_state *state, void *input, char *word)
{
    const char **name = input;
    if (*name != NULL)
        argp_error(state, "expected one NAME, and found another word");
    *name = word;
}

static const struct lua_script *find(const char *name)
{
    const struct lua_script *const *script = lua_scripts;
    while (*script != NULL && strcmp((*script)->name, name) != 0)
        script++;
    return *script;
}

static void list(FILE *out)
{
    for (const struct lua_script *const *script = lua_scripts; *script != NULL; script++)
        fprintf(out, "%s\n", (*script)->name);
}

int store_script_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {.word = set_name},
        .arguments = "[NAME]",
        .doc =
            "Prints the Lua script NAME as servers load it, such as rolling_window for "
            "redis-cli; without NAME, the names of all scripts.\vstint store script "
            "rolling_window > rolling_window.lua\n"
            "redis-cli --eval rolling_window.lua mail:alice , 100 10 60000000 5000000 0\n\n"
            "Exit codes: 0 done, 1 the output cannot be written, 2 bad usage. See stint-store(1)."};
    const char *name = NULL;
    args_parse(&command, argc, argv, &name);
    if (name == NULL) {
        list(stdout);
        return CMD_DONE;
    }
    const struct lua_script *script = find(name);
    if (script == NULL) {
        print_message("there is no script '%s'; expected one of:", name);
        list(stderr);
        return CMD_BAD_USAGE;
    }
    fwrite(script->text.ptr, 1, script->text.len, stdout);
    return CMD_DONE;
}
