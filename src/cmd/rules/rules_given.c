/* SPDX-License-Identifier: MIT */
/* Reads --rules PATH, which may be given several times. */
#define _GNU_SOURCE
#include "cmd/rules/rules_given.h"

#include "cmd/lib/print.h"

#include <stdlib.h>

static void add_path(struct argp_state *state, void *input, char *path)
{
    struct rules_args *args = input;
    const char **paths = realloc(args->paths, (args->n_paths + 1) * sizeof(*paths));
    if (paths == NULL)
        argp_failure(state, 1, 0, "out of memory");
    args->paths = paths;
    args->paths[args->n_paths++] = path;
}

static void begin(void *args)
{
    ((struct rules_args *)args)->load.any_store = true; /* all is decided by a table here */
}

static const struct args_option options_known[] = {
    {"rules", "PATH", 1,
     "A file of rules, or a folder of them (its *.yaml and *.yml); several may be given",
     ARGS_OWN(add_path)},
    {"default-algorithm", "NAME", 1, "Algorithm of limits that name none (default window)",
     ARGS_OWN(rules_args_algorithm)},
    {"merge-domains", NULL, 1, "Allow one domain in several files",
     ARGS_FLAG(struct rules_args, load.merge_domains)},
    {0},
};

const struct args_set rules_given_set = {options_known, .begin = begin};

void rules_given_free(struct rules_args *args)
{
    free(args->paths);
    args->paths = NULL;
    args->n_paths = 0;
}

bool rules_given_load(const struct rules_args *args, struct rules_loaded *loaded)
{
    if (!rules_args_load(args, loaded))
        return false;
    if (loaded->rules != NULL)
        return true;
    rules_print_faults(stderr, &loaded->diagnostics);
    rules_loaded_free(loaded);
    return false;
}
