/* SPDX-License-Identifier: MIT */
/*
 * The keys of `stint pool`: names, some with a secret, out of a list or a file.
 *
 * Secrets stay in this memory, which is wiped when it is given back; no message of this file holds
 * one, nor the bytes of a line that could not be read.
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
    size_t place;       /* the line of the file, or the place in the list; from 1 */
};

struct pool_keys {
    const char *path; /* the file; NULL: they came from a list */
    char *text;       /* what was read; the names and secrets are in here */
    size_t text_size;
    struct pool_key *keys;
    size_t n_keys, keys_size;
    bool holds_secrets;
    bool seen_by_others; /* the file may be read by its group or by everybody */
};

/* "@FILE" or "a,b,c". pool_keys_deinit() is due also where a code comes back. */
int pool_keys_read(struct pool_keys *keys, const char *word, struct stint_error *error);
int pool_keys_read_file(struct pool_keys *keys, const char *path, struct stint_error *error);

/* Takes `text` over, `len` bytes in memory of malloc() with room for one more. */
int pool_keys_parse_file(struct pool_keys *keys, char *text, size_t len, struct stint_error *error);
int pool_keys_parse_list(struct pool_keys *keys, char *text, struct stint_error *error);
void pool_keys_deinit(struct pool_keys *keys);

/* STINT_E_SYNTAX for what is no name of a key. */
int pool_keys_check_name(struct span name, struct stint_error *error);

/* Whether a line of a file, without its newline, holds a key; *name is that key's. */
bool pool_keys_name_of_line(struct span line, struct span *name);

/* The key of that name; NULL for none, and then *error says so, and which is the nearest. */
const struct pool_key *pool_keys_find(const struct pool_keys *keys, const char *name,
                                      struct stint_error *error);

#endif
