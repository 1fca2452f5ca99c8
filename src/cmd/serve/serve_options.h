/* SPDX-License-Identifier: MIT */
/*
 * What a server is made of, at the start and at each reload: the options that follow from its
 * settings, its rules and tokens.
 */
#ifndef STINT_CMD_SERVE_SERVE_OPTIONS_H
#define STINT_CMD_SERVE_SERVE_OPTIONS_H

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

int serve_http_config(const struct serve_settings *settings, struct http_config **config,
                      struct stint_error *error);

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

#endif
