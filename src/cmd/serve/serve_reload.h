/* SPDX-License-Identifier: MIT */
/*
 * What a server is made of: the options that follow from its settings, its rules and tokens. A
 * reload reads them and the pools again while it serves, and applies all together or nothing;
 * changes that need a restart are named in the log, and have no effect.
 */
#ifndef STINT_CMD_SERVE_SERVE_RELOAD_H
#define STINT_CMD_SERVE_SERVE_RELOAD_H

#include "cmd/serve/serve_settings.h"
#include "net/server.h"

/* ---- From settings, which are texts and numbers, to the options of a server ---- */

#define SERVE_ADDRESSES_MAX 16 /* addresses of one port */

/* Memory that server_options points to. */
struct serve_owned {
    struct endpoint endpoints[PORTS][SERVE_ADDRESSES_MAX];
    struct tls_paths tls;
    char *control; /* if it was derived from another setting */
    const char **watched;
    size_t n_watched;
};

/* The when_full of quotas that set none: enum stint_when_full. */
uint8_t serve_table_full(const struct serve_settings *settings);

int serve_http_config(const struct serve_settings *settings, struct http_config **config,
                      struct stint_error *error);
unsigned serve_workers(const struct serve_settings *settings);

/*
 * All options of the server that follow from settings alone. `owned` must outlive them, and is to
 * be freed with serve_owned_deinit(), after an error too.
 */
int serve_server_options(const struct serve_settings *settings, struct serve_owned *owned,
                         struct server_options *options, struct stint_error *error);
void serve_owned_deinit(struct serve_owned *owned);

/* ---- Rules and tokens ---- */

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

/* ---- Reloading ---- */

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
