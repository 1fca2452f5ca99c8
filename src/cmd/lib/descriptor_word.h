/* SPDX-License-Identifier: MIT */
/* A descriptor as written on a command line: NAME=VALUE[,NAME=VALUE...]. */
#ifndef STINT_CMD_LIB_DESCRIPTOR_WORD_H
#define STINT_CMD_LIB_DESCRIPTOR_WORD_H

#include "base/err.h"
#include "rules/rules.h"

/*
 * Cuts a word into entries, which point into it. A backslash escapes a comma, an equals sign or a
 * backslash. STINT_E_SYNTAX or STINT_E_RANGE with what was expected.
 */
int descriptor_word_cut(char *word, struct descriptor_entry entries[ENTRIES_MAX], size_t *n_entries,
                        struct stint_error *error);

#endif
