/* SPDX-License-Identifier: MIT */
/* The parts of `stint rls`, a client of Envoy's rate limit service, and their options. */
#ifndef STINT_CMD_RLS_RLS_H
#define STINT_CMD_RLS_RLS_H

#include "cmd/client/client.h"
#include "cmd/rls/rls_message.h"

#define RLS_URL_SIZE 512

enum rls_mode { RLS_ASK = 0, RLS_HEALTH };

struct rls_options {
    enum rls_mode mode;
    const char *server; /* HOST:PORT or unix:/PATH, as it was given */
    char url[RLS_URL_SIZE];
    struct client_options client; /* .server is the URL */
    struct rls_evaluation evaluation;
    const char *service; /* of health; "" is the whole server */
    bool json;
};

/* Exits where the command line is wrong. Words of descriptors are cut up. */
void rls_options_parse(struct rls_options *options, enum rls_mode mode, int argc, char **argv);

/* What a call ended with. */
struct rls_answer {
    int grpc_status;              /* -1: there was none */
    char reason[STINT_ERROR_MAX]; /* grpc-message, or what was wrong with the answer; may be "" */
    struct span message;          /* of GRPC_OK */
    struct client *client;        /* holds the message */
};

/*
 * One call of `path`; `request` is a message behind its prefix. Below 0 where no answer came:
 * STINT_E_SYNTAX for a server that cannot be meant, STINT_E_MISMATCH where a token would go
 * unencrypted to another host, else as client_post() has it. Release the answer in any case.
 */
int rls_client_call(const struct rls_options *options, const char *path, struct span request,
                    struct rls_answer *answer, struct stint_error *error);
void rls_client_release(struct rls_answer *answer);

#endif
