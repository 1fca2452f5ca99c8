/* SPDX-License-Identifier: MIT */
/*
 * Rules from YAML: envoyproxy/ratelimit's files, and stint's keys beside theirs. The caller opens
 * the files. All errors of all files are reported, not only the first. Another format needs only a
 * reader that makes the same tree.
 */
#ifndef STINT_RULES_YAML_RULES_LOAD_H
#define STINT_RULES_YAML_RULES_LOAD_H

#include "rules/rules.h"

struct rules_fault {
    const char *file;      /* the path that rules_load() was given */
    uint32_t line, column; /* from 1; 0: the file as a whole, or a format without lines */
    char message[STINT_ERROR_MAX];
};

struct rules_diagnostics {
    struct rules_fault *diagnostics; /* in the order of files and lines */
    size_t n_diagnostics;
    size_t n_more; /* past RULES_FAULTS_MAX; after 10,000 errors reading ends */
    /* Warnings: what loads, but may not be what was meant; also if there are errors. */
    struct rules_fault *warnings;
    size_t n_warnings; /* at most RULES_FAULTS_MAX; others are not kept */
};
#define RULES_FAULTS_MAX 200
#define RULES_TEXT_MAX (16 << 20) /* bytes in a file */

struct arena;
struct yaml_value;

struct rules_file {
    const char *path; /* for diagnostics and rule.file */
    struct span text;
    /* The tree of a text that is not YAML; NULL: yaml_read(), which it is like */
    const struct yaml_value *(*read)(struct arena *arena, const struct rules_file *file,
                                     struct rules_diagnostics *diagnostics);
};

struct rules_load_options {
    uint8_t default_algorithm; /* enum stint_algorithm, not concurrency; 0 = window */
    bool merge_domains;        /* a domain may be spread over several files */
    /* Stores that `store: NAME` may name; rule.store.at counts them from 1. Borrowed. */
    const char *const *stores;
    size_t n_stores;
    size_t default_store;     /* of rules that name none, from 1; 0: the table */
    bool any_store;           /* others may be named as well; then rule.store.at is 0 */
    uint8_t default_on_error; /* enum rule_on_store_error: of rules that set none */
};
#define RULES_STORES_MAX 16
#define RULES_STORE_DEFAULT "default" /* the name of the default store */

/*
 * The rules, with one reference, or NULL and at least one error. No files is no error: the set is
 * empty. Free faults either way. NULL options are the defaults. Files are needed during the call;
 * their paths also as long as the faults.
 */
struct rules *rules_load(const struct rules_file *files, size_t n_files,
                         const struct rules_load_options *options,
                         struct rules_diagnostics *diagnostics);
void rules_diagnostics_free(struct rules_diagnostics *diagnostics);

#endif
