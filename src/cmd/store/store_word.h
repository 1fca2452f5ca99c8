/* SPDX-License-Identifier: MIT */
/* A store as written in a setting, [NAME=]URL or [NAME=]@FILE, before any file is read. */
#ifndef STINT_CMD_STORE_STORE_WORD_H
#define STINT_CMD_STORE_STORE_WORD_H

#include "backend/url.h"
#include "base/err.h"
#include "base/span.h"
#include "cmd/lib/args.h"
#include "net/upstream/upstream.h"

#include <stdbool.h>

#define STORE_WORD_NAME_MAX 32

struct store_word {
    struct span name; /* `default` if there is none */
    const char *text; /* the URL, or the path of its file */
    bool is_file;
};

/* STINT_E_SYNTAX or STINT_E_RANGE with a message that quotes no password. */
int store_word_read(struct store_word *word, const char *text, struct stint_error *error);

/* The URL in the first line of a file. The message names the file, and quotes no password. */
int store_word_file(struct store_url *url, const char *path, struct stint_error *error);
/* URL or @FILE. */
int store_word_url(struct store_url *url, const char *text, struct stint_error *error);

/* A word with *** instead of the password, for messages; NULL: no memory. To be freed. */
char *store_word_shown(const char *text);

/* Overwrites the password in the words of the command line, which other users can see. */
void store_word_hide(char *text);

/* ---- --store URL and its options, for commands whose arguments are something else ---- */

struct store_given {
    const char *text; /* the URL; NULL: no store was given */
    struct store_url url;
    struct upstream_tls_paths paths;
    uint64_t timeout_ns; /* of connecting, and of each answer */
};

/* A child of a command; its input is a struct store_given. */
extern const struct args_set store_given_set;

/* *tls is NULL if the URL is without TLS. */
int store_given_tls(const struct store_given *given, struct upstream_tls **tls,
                    struct stint_error *error);

#endif
