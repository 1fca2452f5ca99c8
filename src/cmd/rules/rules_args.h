/* SPDX-License-Identifier: MIT */
/* The command line that `stint rules check` and `show` share: PATH... and how to read it. */
#ifndef STINT_CMD_RULES_RULES_ARGS_H
#define STINT_CMD_RULES_RULES_ARGS_H

#include "cmd/rules/rules_files.h"

#include <argp.h>
#include <stdio.h>

struct rules_args {
    const char **paths; /* words of the command line */
    size_t n_paths;
    struct rules_load_options load; /* without --store any store may be named */
    const char *stores[RULES_STORES_MAX];
    bool json;
    bool must_limit;   /* refuses rules without a limit, as a server does, */
    bool may_be_empty; /* unless an option allows it */
};

/* Exits with CMD_BAD_USAGE where the command line is wrong. `args` needs rules_args_free(). */
void rules_args_read(struct rules_args *args, const char *doc, int argc, char **argv);
void rules_args_free(struct rules_args *args);

/* Sets the value of --default-algorithm; exits if that is no algorithm for limits. */
void rules_args_algorithm(struct argp_state *state, void *args, char *name);

/* A set of rules out of the files that a command line names, or their diagnostics. */
struct rules_loaded {
    struct rules_files files;
    struct rules *rules; /* NULL if there are errors */
    struct rules_diagnostics diagnostics;
};

/* False if a file cannot be read or has no rules, which is reported: then free nothing. */
bool rules_args_load(const struct rules_args *args, struct rules_loaded *loaded);
void rules_loaded_free(struct rules_loaded *loaded);

/* Prints "FILE:LINE:COLUMN: message", and the number of errors that were not kept. */
void rules_print_faults(FILE *out, const struct rules_diagnostics *diagnostics);
/* Prints "FILE:LINE:COLUMN: warning: message". */
void rules_print_warnings(FILE *out, const struct rules_diagnostics *diagnostics);

#endif
