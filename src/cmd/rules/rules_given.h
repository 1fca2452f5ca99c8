/* SPDX-License-Identifier: MIT */
/* --rules and its options, for commands whose arguments are something else. */
#ifndef STINT_CMD_RULES_RULES_GIVEN_H
#define STINT_CMD_RULES_RULES_GIVEN_H

#include "cmd/rules/rules_args.h"

#include <argp.h>

/* As a child of a command's parser; its input is a struct rules_args. */
extern const struct argp rules_given_argp;

/* Frees the list of paths. */
void rules_given_free(struct rules_args *args);

/* Loads the files, and prints their diagnostics. False: there are no rules. */
bool rules_given_load(const struct rules_args *args, struct rules_loaded *loaded);

#endif
