/* SPDX-License-Identifier: MIT */
/*
 * The keys of `stint pool`: names, some with a secret, out of a list or a file.
 *
 * Secrets stay in this memory, which is wiped before it is freed. No message of this module
 * contains a secret, or the bytes of a line that could not be read.
 */
#ifndef STINT_CMD_POOL_POOL_KEYS_H
#define STINT_CMD_POOL_POOL_KEYS_H

#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

#define POOL_KEYS_BYTES_MAX (UINT64_C(64) << 20) /* in a file of keys */

struct pool_key {
    const char *name;
    struct span secret; /* ptr of NULL: it has none */
    size_t position;    /* the line of the file, or the position in the list; from 1 */
};

struct pool_keys {
    const char *path; /* the file; NULL: they came from a list */
    char *text;       /* the text read; the names and secrets point into it */
    size_t text_size;
    struct pool_key *keys;
    size_t n_keys, keys_size;
    bool holds_secrets;
    bool seen_by_others; /* the file may be read by its group or by others */
};

/* By enum stint_pool_order, up to NULL. */
extern const char *const pool_orders[];

/* "@FILE" or "a,b,c". Call pool_keys_deinit() after an error, too. */
int pool_keys_read(struct pool_keys *keys, const char *word, struct stint_error *error);
int pool_keys_read_file(struct pool_keys *keys, const char *path, struct stint_error *error);

/* Takes ownership of `text`, `len` bytes from malloc() with space for one more. */
int pool_keys_parse_file(struct pool_keys *keys, char *text, size_t len, struct stint_error *error);
int pool_keys_parse_list(struct pool_keys *keys, char *text, struct stint_error *error);
void pool_keys_deinit(struct pool_keys *keys);

/* STINT_E_SYNTAX for an invalid name of a key. */
int pool_keys_check_name(struct span name, struct stint_error *error);

/* Whether a line of a file, without its newline, contains a key; *name is its name. */
bool pool_keys_name_of_line(struct span line, struct span *name);

/* The key of that name; NULL for none, and then *error names the closest one. */
const struct pool_key *pool_keys_find(const struct pool_keys *keys, const char *name,
                                      struct stint_error *error);

#endif
