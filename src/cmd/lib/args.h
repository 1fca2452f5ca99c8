/* SPDX-License-Identifier: MIT */
/* What the command lines of all subcommands have in common. argp reads them; this adds hints. */
#ifndef STINT_CMD_LIB_ARGS_H
#define STINT_CMD_LIB_ARGS_H

#include "stint.h"

#include <argp.h>

struct args_hint {
    char text[256];
};

/*
 * What a wrong word should have been: the nearest of the names (a list that ends with NULL), or all
 * of them where none is near. `prefix` is printed before each. Returns hint->text.
 */
const char *args_hint(struct args_hint *hint, const char *prefix, const char *word,
                      const char *const *names);

/*
 * Like argp_parse(), but an unknown option is answered with the nearest one. Exits with
 * CMD_BAD_USAGE where the command line is wrong, and with CMD_DONE after --help.
 */
void args_parse(const struct argp *argp, int argc, char **argv, void *input);

/* The place of a word in a list that ends with NULL; else an argp_error with a hint. */
int args_choice(struct argp_state *state, const char *option, const char *word,
                const char *const *names);

/* Reads a duration such as 200ms, or a number from 1 to `max`; else an argp_error. */
uint64_t args_duration(struct argp_state *state, const char *option, const char *text);
uint64_t args_number(struct argp_state *state, const char *option, const char *text, uint64_t max);

/* Appends what one --quota says to a list of up to STINT_ITEMS_MAX; else an argp_error. */
void args_add_quota(struct argp_state *state, struct stint_quota *quotas, size_t *n_quotas,
                    const char *spec);

/* Takes the one FILE of a command; an argp_error if there is one already. */
void args_file(struct argp_state *state, const char **path, const char *word);

struct args_spec {
    char text[512];
    struct stint_quota quota;
};

/*
 * What a parser of argp returns for the keys that are no option of its own, where the arguments are
 * the words of one SPEC: joins those that the shell has split, and reads them when all are there.
 */
error_t args_spec(struct args_spec *spec, struct argp_state *state, int key, const char *word);

#endif
