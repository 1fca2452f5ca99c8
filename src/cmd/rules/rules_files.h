/* SPDX-License-Identifier: MIT */
/* Reads the files of rules that a command line names, for every command that has --rules. */
#ifndef STINT_CMD_RULES_RULES_FILES_H
#define STINT_CMD_RULES_RULES_FILES_H

#include "cmd/lib/args.h"
#include "rules/yaml/rules_load.h"

/* Paths and texts are owned, and the diagnostics of rules_load() point to these paths. */
struct rules_files {
    struct rules_file *files;
    size_t n_files;
    size_t empty; /* of the paths: the first that is a folder without files, from 1; 0: none */
};

/*
 * Each path is a file, a folder, or "-" for standard input. Of a folder, the files *.yaml and *.yml
 * are read in the order of their names. Names that begin with a dot are skipped, and so are
 * subfolders: a mounted ConfigMap of Kubernetes is read once. A folder without such files gives no
 * files.
 *
 * 0; or STINT_E_SYSTEM or STINT_E_RANGE (a file is too large) with the name of the first file that
 * cannot be read: then there is nothing to free.
 */
int rules_files_read(const char *const *paths, size_t n_paths, struct rules_files *files,
                     struct stint_error *error);
/*
 * Rules that lift every limit, because a folder is empty or no file has a limit, are mostly a
 * mistake: STINT_E_MISMATCH with the path that has none, also if one folder of several has no file.
 */
int rules_files_check(const char *const *paths, size_t n_paths, const struct rules_files *files,
                      const struct rules *rules, struct stint_error *error);
void rules_files_free(struct rules_files *files);

/* ---- What a command line names ---- */

struct rules_args {
    const char **paths; /* words of the command line */
    size_t n_paths;
    struct rules_load_options load; /* without --store any store may be named */
    const char *stores[RULES_STORES_MAX];
    bool json;
    bool must_limit;   /* refuses rules without a limit, as a server does, */
    bool may_be_empty; /* unless an option allows it */
};

void rules_args_free(struct rules_args *args); /* the list of paths */

/* A set of rules out of the files that a command line names, or their diagnostics. */
struct rules_loaded {
    struct rules_files files;
    struct rules *rules; /* NULL if there are errors */
    struct rules_diagnostics diagnostics;
};

void rules_loaded_free(struct rules_loaded *loaded);

/* ---- --rules and its options, for commands whose arguments are something else ---- */

/* A child of a command; its input is a struct rules_args. */
extern const struct args_set rules_given_set;

/* Loads the files, and prints their diagnostics. False: there are no rules. */
bool rules_given_load(const struct rules_args *args, struct rules_loaded *loaded);

#endif
