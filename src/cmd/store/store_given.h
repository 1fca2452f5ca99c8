/* SPDX-License-Identifier: MIT */
/* --store URL and its options, for commands whose arguments are something else. */
#ifndef STINT_CMD_STORE_STORE_GIVEN_H
#define STINT_CMD_STORE_STORE_GIVEN_H

#include "backend/url.h"
#include "cmd/lib/args.h"
#include "net/upstream/upstream_tls.h"

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
