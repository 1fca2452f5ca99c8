/* SPDX-License-Identifier: MIT */
/* Reads --rules PATH, which may be given several times. */
#define _GNU_SOURCE
#include "cmd/rules/rules_given.h"

#include "cmd/lib/print.h"

#include <stdlib.h>

enum { OPTION_RULES = 512, OPTION_ALGORITHM, OPTION_MERGE };

static const struct argp_option options_known[] = {
    {"rules", OPTION_RULES, "PATH", 0,
     "A file of rules, or a folder of them (its *.yaml and *.yml); several may be given", 1},
    {"default-algorithm", OPTION_ALGORITHM, "NAME", 0,
     "Algorithm of limits that name none (default window)", 1},
    {"merge-domains", OPTION_MERGE, NULL, 0, "Allow one domain in several files", 1},
    {0},
};

static void add_path(struct argp_state *state, struct rules_args *args, const char *path)
{
    const char **paths = realloc(args->paths, (args->n_paths + 1) * sizeof(*paths));
    if (paths == NULL)
        argp_failure(state, 1, 0, "out of memory");
    args->paths = paths;
    args->paths[args->n_paths++] = path;
}

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    struct rules_args *args = state->input;
    switch (option) {
    case ARGP_KEY_INIT:
        args->load.any_store = true; /* all is decided by a table here */
        return 0;
    case OPTION_RULES:
        add_path(state, args, value);
        return 0;
    case OPTION_ALGORITHM:
        rules_args_algorithm(args, value, state);
        return 0;
    case OPTION_MERGE:
        args->load.merge_domains = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp rules_given_argp = {.options = options_known, .parser = parse_option};

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
