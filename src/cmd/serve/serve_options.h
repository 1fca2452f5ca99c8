/* SPDX-License-Identifier: MIT */
/* From settings, which are texts and numbers, to the options of a server's parts. */
#ifndef STINT_CMD_SERVE_SERVE_OPTIONS_H
#define STINT_CMD_SERVE_SERVE_OPTIONS_H

#include "cmd/serve/serve_settings.h"
#include "net/server.h"

#define SERVE_PLACES_MAX 16 /* addresses of one port */

/* Memory that server_options points to. */
struct serve_places {
    struct endpoint endpoints[PORTS][SERVE_PLACES_MAX];
    struct tls_paths tls;
    char *control; /* if it was derived from another setting */
    const char **watched;
    size_t n_watched;
};

/* Whether decisions use a clock that clients set. */
bool serve_has_virtual_clock(const struct serve_settings *settings);
/* STINT_E_MISMATCH if such a clock is combined with shared stores. */
int serve_clock_check(const struct serve_settings *settings, struct stint_error *error);

/* The when_full of quotas that set none: enum stint_when_full. */
uint8_t serve_table_full(const struct serve_settings *settings);

/* Bits of enum metrics_names. */
unsigned serve_metrics_names(const struct serve_settings *settings);
struct stint_table_options serve_table_options(const struct serve_settings *settings);
int serve_site(const struct serve_settings *settings, struct http_config **site,
               struct stint_error *error);
unsigned serve_workers(const struct serve_settings *settings);

/*
 * All options of the server that follow from settings alone. `places` must outlive them, and is to
 * be freed with serve_places_deinit(), after an error too.
 */
int serve_server_options(const struct serve_settings *settings, struct serve_places *places,
                         struct server_options *options, struct stint_error *error);
void serve_places_deinit(struct serve_places *places);

#endif
