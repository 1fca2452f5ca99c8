/* SPDX-License-Identifier: MIT */
/* Shared by the command lines of all subcommands. argp reads them; this adds hints. */
#ifndef STINT_CMD_LIB_ARGS_H
#define STINT_CMD_LIB_ARGS_H

#include "stint.h"

#include <argp.h>

struct args_hint {
    char text[256];
};

/*
 * A hint for an unknown word: the closest of the names (a list that ends with NULL), or all names
 * if none is close. `prefix` is printed before each. Returns hint->text.
 */
const char *args_hint(struct args_hint *hint, const char *prefix, const char *word,
                      const char *const *names);

/*
 * Like argp_parse(), but an unknown option is reported with the closest one. Exits with
 * CMD_BAD_USAGE if the command line is wrong, and with CMD_DONE after --help.
 */
void args_parse(const struct argp *argp, int argc, char **argv, void *input);

/* The index of a word in a list that ends with NULL; else an argp_error with a hint. */
int args_choice(struct argp_state *state, const char *option, const char *word,
                const char *const *names);

/* Reads a duration such as 200ms, or a number from 1 to `max`; else an argp_error. */
uint64_t args_duration(struct argp_state *state, const char *option, const char *text);
uint64_t args_number(struct argp_state *state, const char *option, const char *text, uint64_t max);

/* Parses one --quota and appends it to a list of up to STINT_ITEMS_MAX; else an argp_error. */
void args_add_quota(struct argp_state *state, struct stint_quota *quotas, size_t *n_quotas,
                    const char *spec);

/* Sets the one FILE of a command; an argp_error if it is already set. */
void args_file(struct argp_state *state, const char **path, const char *word);

struct args_spec {
    char text[512];
    struct stint_quota quota;
};

/*
 * What an argp parser returns for the keys that are no option of its own, if the arguments are the
 * words of one SPEC: joins the words that the shell has split, and parses them after the last one.
 */
error_t args_spec(struct args_spec *spec, struct argp_state *state, int key, const char *word);

#endif
