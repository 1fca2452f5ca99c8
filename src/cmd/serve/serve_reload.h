/* SPDX-License-Identifier: MIT */
/*
 * A server's settings, rules, tokens and pools, read again while it serves, and applied all
 * together or not at all. Changes that need a restart are named in the log, and have no effect.
 */
#ifndef STINT_CMD_SERVE_SERVE_RELOAD_H
#define STINT_CMD_SERVE_SERVE_RELOAD_H

#include "cmd/serve/serve_load.h"

struct serve_reload;

struct serve_reload_options {
    const struct serve_settings *started; /* of the server's start */
    /* Gathers them again, as at the start; 0, or an enum cmd_exit. */
    int (*gather)(struct settings *settings, const void *arg, struct stint_error *error);
    const void *arg;
    struct server_state *server_state;
    struct access_now *access;
    struct log *log;
};

struct serve_reload *serve_reload_new(const struct serve_reload_options *options);
void serve_reload_free(struct serve_reload *reload); /* NULL is fine */

/* server_options.load and .use: `arg` is a struct serve_reload. */
int serve_reload_read(void *arg, struct server_options *next, struct stint_error *error);
int serve_reload_use(void *arg, struct stint_error *error);

#endif
