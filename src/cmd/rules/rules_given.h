/* SPDX-License-Identifier: MIT */
/* --rules and its options, for commands whose arguments are something else. */
#ifndef STINT_CMD_RULES_RULES_GIVEN_H
#define STINT_CMD_RULES_RULES_GIVEN_H

#include "cmd/lib/args.h"
#include "cmd/rules/rules_args.h"

/* A child of a command; its input is a struct rules_args. */
extern const struct args_set rules_given_set;

/* Frees the list of paths. */
void rules_given_free(struct rules_args *args);

/* Loads the files, and prints their diagnostics. False: there are no rules. */
bool rules_given_load(const struct rules_args *args, struct rules_loaded *loaded);

#endif
