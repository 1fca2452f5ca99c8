/* SPDX-License-Identifier: MIT */
/*
 * The server process: opens the sockets, starts the workers, and then handles signals, reloads, the
 * watchdog and handovers, until it is to end. The workers' services make the decisions; the caller
 * makes the server state, the table and the tokens.
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
#include "net/process/handover.h"
#include "net/process/sandbox.h"
#include "net/stream.h"
#include "net/tls.h"
#include "net/upstream/backends.h"
#include "net/upstream/control_planes.h"
#include "service/access/access.h"

struct server_options {
    struct server_state *server_state;
    struct access_now *access;
    unsigned auth_guesses; /* wrong secrets of one address a minute; 0: no limit */
    bool has_tokens;       /* otherwise only this machine may connect, unless is_insecure */
    bool is_insecure;
    bool needs_rules; /* ready only while there are rules */
    const struct http_config *http_config;
    unsigned workers;
    const struct endpoint *endpoints[PORTS];
    size_t n_endpoints[PORTS];
    const struct tls_paths *tls; /* NULL: none; needed for a port with TLS */
    struct connection_limits connection_limits;
    struct stream_limits stream_limits; /* of RESP and gRPC */
    struct stream_limits http_stream_limits;
    size_t memory_most; /* held by all connections for their peers; 0: no limit */
    struct resp_limits resp_limits;
    struct http_limits http_limits;
    struct grpc_limits grpc_limits;
    struct rls_form grpc_form;                /* of gRPC responses */
    const struct store_config *store_configs; /* stores that rules may name, in their order */
    size_t n_store_configs;
    struct evaluation_stores evaluation_stores; /* of the workers, except the stores themselves */
    uint64_t drain_ns;   /* time limit for connections, once the server is to end */
    const char *control; /* path of the control socket for successors. NULL: none */
    bool replaces;       /* takes over from the process at `control`, if there is one */
    struct respawn_helper *respawn_helper; /* starts a successor on SIGUSR2. NULL: no successor */
    enum sandbox_mode sandbox;
    /* Files and folders; where one changes, load() is called. */
    const char *const *watched;
    size_t n_watched;
    uint64_t watch_ns; /* interval of checks, beside kernel events; 0: not watched at all */
    /*
     * load() reads all files again, and puts nothing in force. It sets the options that follow from
     * them in `next`: only tls, limits of connections and streams, drain_ns and what is watched are
     * used; their pointers must stay valid until the load() that follows a use(). use() puts the
     * last result in force. Both run in one thread beside the server's, one after the other.
     */
    int (*load)(void *arg, struct server_options *next, struct stint_error *error);
    int (*use)(void *arg, struct stint_error *error);
    /* Control planes that send rules. Borrowed. */
    const struct control_plane_config *control_planes;
    size_t n_control_planes;
    /*
     * offer() puts the rules of a control plane's response in force, all of them or none, and keeps
     * them for the next start. In the same thread as load() and use().
     */
    int (*offer)(void *arg, size_t control_plane, struct span response, struct stint_error *error);
    void *arg;
    struct log *log;
};

/*
 * Serves until SIGTERM or SIGINT, or until another process has taken over. 0, or the reason why it
 * could not start: STINT_E_BUSY for an address in use, STINT_E_MISMATCH for one that needs tokens,
 * STINT_E_SYSTEM, STINT_E_SYNTAX.
 */
int server_run(const struct server_options *options, struct stint_error *error);

#endif
