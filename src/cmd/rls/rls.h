/* SPDX-License-Identifier: MIT */
/* The parts of `stint rls`, a client of Envoy's rate limit service, and their options. */
#ifndef STINT_CMD_RLS_RLS_H
#define STINT_CMD_RLS_RLS_H

#include "cmd/rls/rls_link.h"
#include "cmd/rls/rls_message.h"
#include "cmd/rls/rls_session.h"
#include "cmd/serve/token_file.h"

enum rls_mode { RLS_ASK = 0, RLS_LOAD, RLS_HEALTH };

struct rls_options {
    enum rls_mode mode;
    struct rls_link_options link;
    struct rls_evaluation evaluation;
    const char *token_file; /* NULL: no token is shown */
    const char *service;    /* of health; "" is the whole server */
    uint64_t timeout_ns;    /* of a call, told to the server */
    bool json;
    /* Of load. */
    uint64_t rate, duration_ns, keys, seed;
    unsigned connections;
};

/* Exits where the command line is wrong. Words of descriptors are cut up. */
void rls_options_parse(struct rls_options *options, enum rls_mode mode, int argc, char **argv);

/* A link and a session on it. */
struct rls_client {
    struct rls_link *link;
    struct rls_session *session;
};

/* As the options say; answers go to `answered`. */
int rls_client_open(struct rls_client *client, const struct rls_options *options, const char *token,
                    void (*answered)(void *arg, const struct rls_answer *answer), void *arg,
                    struct stint_error *error);
void rls_client_close(struct rls_client *client);
/* Sends what waits and feeds what came, without blocking. */
int rls_client_move(struct rls_client *client, struct stint_error *error);
/* What a poll() of it is to wait for. */
short rls_client_events(struct rls_client *client);

#endif
