/* SPDX-License-Identifier: MIT */
/*
 * Asks a stint server over HTTP, and waits for its answer: for scripts and for `stint top`.
 *
 * A client keeps its connection from one question to the next. It follows no redirect, uses no
 * proxy, and belongs to one thread at a time.
 */
#ifndef STINT_CMD_CLIENT_CLIENT_H
#define STINT_CMD_CLIENT_CLIENT_H

#include "base/err.h"
#include "base/span.h"
#include "cmd/lib/args.h"

#define CLIENT_SERVER_DEFAULT "http://127.0.0.1:8080"
#define CLIENT_TIMEOUT_NS_DEFAULT UINT64_C(5000000000)
#define CLIENT_ANSWER_MAX (16u << 20) /* bytes of one answer */

/* Zero every field for the defaults. Strings are borrowed until client_close(). */
struct client_options {
    const char *server;     /* http://HOST[:PORT], https://…, or unix:/PATH. Default: the above */
    const char *token_file; /* its first line is sent as a bearer token. NULL: none is sent */
    const char *ca_file;    /* who may sign the server's certificate. NULL: the system's list */
    const char *cert_file;  /* PEM, to show who we are. NULL: no certificate */
    const char *key_file;   /* PEM, of cert_file. NULL: it is in cert_file */
    uint64_t timeout_ns;    /* for a whole answer, a wait that was asked for apart. 0 = 5 s */
    bool insecure; /* send a token unencrypted to other hosts too, believe any certificate */
    /* For protocols over HTTP/2; these are no options of a command line. */
    bool is_http2;             /* HTTP/2 alone: by ALPN in TLS, else with prior knowledge */
    bool is_tls;               /* of a Unix socket; a URL says it itself */
    const char *server_choice; /* where the server is named. NULL: --server, STINT_URL */
    const char *const *fields; /* sent with a body, up to a NULL. NULL: those of JSON */
    /*
     * Called with every field of an answer and of its trailers, and with an empty name at the end
     * of the head. False ends the answer there, as an error. NULL: not called.
     */
    bool (*on_field)(void *arg, struct span name, struct span value);
    void *on_field_arg;
};

/*
 * The options of a command line that choose the server: --server, --token-file, --ca-file,
 * --cert-file, --key-file, --timeout and --insecure; a child of a command, as CLIENT_CHILD writes
 * it. STINT_URL and STINT_TOKEN_FILE of the environment replace options that are not given. The
 * second set lacks --server: it is for a command that sets options->client.server itself.
 */
extern const struct args_set client_set;
extern const struct args_set client_set_without_server;
#define CLIENT_CHILD(set, offset)                                                                  \
    {                                                                                              \
        &(set), (offset), "Server:", 8                                                             \
    }

struct client;

/*
 * Connects with the first question. STINT_E_SYNTAX for a server, STINT_E_SYSTEM or
 * STINT_E_RANGE for a file, that cannot be used. *client is set only on success.
 */
int client_open(struct client **client, const struct client_options *options,
                struct stint_error *error);
void client_close(struct client *client); /* NULL is fine */

/* Lives until the next question. */
struct client_answer {
    int status;       /* of HTTP: 100 … 599 */
    const char *type; /* media type without parameters, "application/json"; "" without one */
    struct span body; /* at most CLIENT_ANSWER_MAX bytes */
};

/*
 * A GET, or a POST of the body. `path` begins with a slash and is sent as it is; wait_ns is how
 * long the server was told that it may wait: added to the timeout. 0 whatever the status;
 * STINT_E_SYSTEM where no answer came (refused, timed out, broken off, no certificate to believe),
 * or one that is not HTTP/2 where only that is meant, STINT_E_RANGE where it was too long,
 * STINT_E_MISMATCH where the token would have gone unencrypted to another host.
 */
int client_ask(struct client *client, const char *path, const struct span *body, uint64_t wait_ns,
               struct client_answer *answer, struct stint_error *error);

#endif
