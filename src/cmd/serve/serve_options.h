/* SPDX-License-Identifier: MIT */
/* From settings, which are texts and numbers, to what the parts of a server are opened with. */
#ifndef STINT_CMD_SERVE_SERVE_OPTIONS_H
#define STINT_CMD_SERVE_SERVE_OPTIONS_H

#include "cmd/serve/serve_settings.h"
#include "net/server.h"

#define SERVE_PLACES_MAX 16 /* addresses of one port */

/* What server_options points to. */
struct serve_places {
    struct endpoint endpoints[PORTS][SERVE_PLACES_MAX];
    struct tls_paths tls;
    char *control; /* where it was made of another name */
    const char **watched;
    size_t n_watched;
};

/* Whether decisions go by a clock that callers move. */
bool serve_has_virtual_clock(const struct serve_settings *settings);
/* STINT_E_MISMATCH where such a clock was asked for beside shared stores. */
int serve_clock_check(const struct serve_settings *settings, struct stint_error *error);

/* What the table does under quotas that leave it open: enum stint_when_full. */
uint8_t serve_table_full(const struct serve_settings *settings);

/* Bits of enum metrics_names. */
unsigned serve_metrics_names(const struct serve_settings *settings);
struct stint_table_options serve_table_options(const struct serve_settings *settings);
int serve_site(const struct serve_settings *settings, struct http_config **site,
               struct stint_error *error);
unsigned serve_workers(const struct serve_settings *settings);

/*
 * Everything of the server's options that follows from settings alone. `places` must outlive them,
 * and is to be freed with serve_places_deinit() also where this fails.
 */
int serve_server_options(const struct serve_settings *settings, struct serve_places *places,
                         struct server_options *options, struct stint_error *error);
void serve_places_deinit(struct serve_places *places);

#endif
