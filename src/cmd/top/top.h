/* SPDX-License-Identifier: MIT */
/* The data of `stint top`, of servers or of a table, and how they are drawn: reading, comparing and
 * writing are separate. */
#ifndef STINT_CMD_TOP_TOP_H
#define STINT_CMD_TOP_TOP_H

#include "cmd/client/client.h"

#include <jansson.h>
#include <stdio.h>

enum top_order { TOP_DENIED, TOP_ASKED };

#define TOP_SERVERS_MAX 64
#define TOP_KEYS_MAX 1000 /* that a server returns */

struct top_options {
    struct client_options client;
    const char *servers[TOP_SERVERS_MAX]; /* from the arguments; none: that of `client` */
    size_t n_servers;
    const char *state; /* the file of a table to show, instead of servers; or NULL */
    bool once, json;
    size_t keys; /* how many to list */
    enum top_order order;
    uint64_t interval_ns;
};

/* One sample of a server: the content of /v1/stats and /v1/top. Or one of a table in a file. */
struct top_look {
    json_t *stats, *keys;
    json_t *servers; /* of several: an array of {url, error}, error null if it answered */
    json_t *table;   /* as `stint table --json` prints it; then the others are NULL */
};

/* Where to draw. */
struct top_screen {
    FILE *out;
    unsigned rows, columns; /* rows 0: no limit */
    bool is_terminal;       /* colours are allowed */
};

/*
 * Draws a sample; rates of rules are what was counted since `before`, which may be empty. `look` of
 * NULL: the keys of the keyboard, and what the numbers mean.
 */
void top_draw(const struct top_screen *screen, const struct top_options *options,
              const struct top_look *before, const struct top_look *look);

#endif
