/* SPDX-License-Identifier: MIT */
/* Reads a server's files: before it starts, and on a reload. */
#ifndef STINT_CMD_SERVE_SERVE_LOAD_H
#define STINT_CMD_SERVE_SERVE_LOAD_H

#include "cmd/serve/serve_options.h"

/* Rules and tokens, each with a reference; NULL if no file is given. */
struct serve_loaded {
    struct rules *rules;
    struct access *access;
};

/*
 * STINT_E_SYNTAX, STINT_E_SYSTEM or STINT_E_MISMATCH (no limit anywhere) with the first error: then
 * there is nothing to free. Warnings are logged. Rules may name the stores that the server was
 * `started` with.
 */
int serve_load(const struct serve_settings *settings, const struct serve_settings *started,
               struct log *log, struct serve_loaded *loaded, struct stint_error *error);
/* The same for the tokens alone. */
int serve_load_tokens(const struct serve_settings *settings, struct serve_loaded *loaded,
                      struct stint_error *error);

enum log_level serve_log_level(const struct serve_settings *settings);
enum log_format serve_log_format(const struct serve_settings *settings);

#endif
