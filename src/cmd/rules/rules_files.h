/* SPDX-License-Identifier: MIT */
/* Reads the files of rules that a command line names, for every command that has --rules. */
#ifndef STINT_CMD_RULES_RULES_FILES_H
#define STINT_CMD_RULES_RULES_FILES_H

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

#endif
