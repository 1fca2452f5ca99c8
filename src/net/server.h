/* SPDX-License-Identifier: MIT */
/*
 * The server as a process: opens the sockets, starts the workers, and stays with signals, reloads,
 * the watchdog and the handing over of sockets, until it is told to end. Decisions are made by the
 * workers' services; what the server state, the table and the tokens are, the caller has made.
 */
#ifndef STINT_NET_SERVER_H
#define STINT_NET_SERVER_H

#include "frontend/grpc/grpc_conn.h"
#include "frontend/http/http.h"
#include "frontend/resp/resp_conn.h"
#include "net/listen/connection_limiter.h"
#include "net/listen/endpoint.h"
#include "net/listen/listener.h"
#include "net/log/log.h"
#include "net/process/respawn_helper.h"
#include "net/process/sandbox.h"
#include "net/stream.h"
#include "net/tls.h"
#include "net/upstream/backends.h"
#include "service/access/access.h"

struct server_options {
    struct server_state *server_state;
    struct access_now *access;
    unsigned auth_guesses; /* wrong secrets of one address a minute; 0: no limit */
    bool has_tokens; /* else nobody but this machine may reach the server, unless is_insecure */
    bool is_insecure;
    bool needs_rules; /* is ready only while there are rules */
    const struct http_config *site;
    unsigned workers;
    const struct endpoint *endpoints[PORTS];
    size_t n_endpoints[PORTS];
    const struct tls_paths *tls; /* NULL: none; needed where a port with TLS is wanted */
    struct connection_limits connection_limits;
    struct stream_limits stream_limits; /* of RESP and gRPC */
    struct stream_limits http_stream_limits;
    size_t memory_most; /* that connections hold for their peers, in all; 0: no limit */
    struct resp_limits resp_limits;
    struct http_limits http_limits;
    struct grpc_limits grpc_limits;
    struct rls_form grpc_form;                /* of what gRPC is answered with */
    const struct store_config *store_configs; /* that rules may name, in their order */
    size_t n_store_configs;
    struct evaluation_stores evaluation_stores; /* of the workers, but for the stores themselves */
    uint64_t drain_ns;   /* how long connections have to end, once the server is to */
    const char *control; /* path of the socket by which another process takes over. NULL: none */
    bool replaces;       /* takes over from the process at `control`, if there is one */
    struct respawn_helper *respawn_helper; /* what SIGUSR2 asks for a successor. NULL: nobody */
    enum sandbox_mode sandbox;
    /* Files and folders; where one changes, load() is called. */
    const char *const *watched;
    size_t n_watched;
    uint64_t watch_ns; /* how often they are looked at, beside being told; 0: not watched at all */
    /*
     * Reads anew whatever files say, and puts nothing in force yet. What follows from it of these
     * options goes to `next`: tls, limits of connections and streams, drain_ns and what is watched
     * are looked at; what they point to is to last until load() is called after a use(). use() puts
     * in force what was read last. Both in one thread beside the server's, one after the other.
     */
    int (*load)(void *arg, struct server_options *next, struct stint_error *error);
    int (*use)(void *arg, struct stint_error *error);
    void *arg;
    struct log *log;
};

/*
 * Serves until SIGTERM or SIGINT, or until another process has taken over. 0, or why it could not
 * begin: STINT_E_BUSY for an address in use, STINT_E_MISMATCH for one that needs tokens,
 * STINT_E_SYSTEM, STINT_E_SYNTAX.
 */
int server_run(const struct server_options *options, struct stint_error *error);

#endif
