/* SPDX-License-Identifier: MIT */
/* Reads what files say for a server: before it begins, and anew while it serves. */
#ifndef STINT_CMD_SERVE_SERVE_LOAD_H
#define STINT_CMD_SERVE_SERVE_LOAD_H

#include "cmd/serve/serve_options.h"

/* What rules and tokens say, each with a reference; NULL where no file is named. */
struct serve_loaded {
    struct rules *rules;
    struct access *access;
};

/*
 * STINT_E_SYNTAX, STINT_E_SYSTEM or STINT_E_MISMATCH (no limit anywhere) with the first fault: then
 * there is nothing to free. Warnings go to the log. Rules may name the stores that the server was
 * `started` with.
 */
int serve_load(const struct serve_settings *settings, const struct serve_settings *started,
               struct log *log, struct serve_loaded *loaded, struct stint_error *error);
/* The same of the tokens alone. */
int serve_load_tokens(const struct serve_settings *settings, struct serve_loaded *loaded,
                      struct stint_error *error);

enum log_level serve_log_level(const struct serve_settings *settings);
enum log_format serve_log_format(const struct serve_settings *settings);

#endif
