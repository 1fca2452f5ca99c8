/* SPDX-License-Identifier: MIT */
/* Shared by the files of the router: router.c has the commands, router_servers.c the servers. */
#ifndef STINT_BACKEND_REDIS_ROUTER_PARTS_H
#define STINT_BACKEND_REDIS_ROUTER_PARTS_H

#include "backend/redis/cluster.h"
#include "backend/redis/router.h"
#include "base/ns.h"

#define RUN_ID_SIZE 64
#define SERVERS_MAX (CLUSTER_MASTERS_MAX + 64)

/* ---- Commands -------------------------------------------------------------------------------- */

struct server;

struct ask_list {
    struct router_ask *first, *last;
};

/* What the servers need of the commands. */
struct router_commands {
    /* Sends what waits and may be sent now. */
    void (*dispatch)(struct router *router, uint64_t now_ns);
    /* Commands that wait for an unavailable server go back to the master of the slot. */
    void (*unbind)(struct router *router, struct server *server);
};

/* ---- Servers --------------------------------------------------------------------------------- */

enum server_use { SERVER_STORE, SERVER_SENTINEL, SERVER_CHANNEL };

enum server_state {
    SERVER_UNAVAILABLE, /* connects, or waits until it may */
    SERVER_CHECKING,    /* has greeted, and must identify itself */
    SERVER_READY,
    SERVER_ENDED, /* is closed by the next wake() */
};

/* One server, with the one connection to it. */
struct server {
    struct server *next;
    struct router *router;
    struct dialled dialled;
    struct store_host host; /* a name of "": the Unix socket */
    enum server_use use;
    enum server_state state;
    char run_id[RUN_ID_SIZE]; /* "": unknown */
    bool is_wanted;           /* a part of the topology */
    unsigned bit;             /* of a cluster: 1 … 63, and another's only where all are in use */
    size_t n_asks;            /* commands whose `at` it is */
    uint64_t opened_ns;       /* or when it was last needed, for one that is not wanted */
};

/* ---- The router ------------------------------------------------------------------------------ */

struct router {
    struct router_options options;
    const struct router_commands *commands;
    struct router_metrics metrics;
    struct stint_error fault;
    uint64_t random;

    struct ask_list waiting, sent;
    struct router_ask *free_asks;
    size_t n_asks, n_bytes; /* that wait or are sent */
    uint64_t ends_ns;       /* no command's deadline is later */
    uint64_t earliest_ns;   /* nothing is due before */

    struct server *servers;
    size_t n_servers;
    uint64_t unavailable_since_ns;

    /* A single server, or the one that sentinels name. */
    struct server *master;
    struct store_host master_host; /* of the last that was known; "" of none */
    char run_id[RUN_ID_SIZE];
    /* A cluster. */
    struct cluster *cluster, *spare;
    struct server **of_master; /* by its index in cluster->masters; NULL: not connected yet */
    bool has_map;
    /* Sentinels. */
    struct server *sentinel, *channel;
    unsigned host_at;  /* which of the URL's is next */
    unsigned last_bit; /* that was given to a server of a cluster */

    struct server *refresher; /* the server of the present refresh */
    bool is_refresh_wanted;
    unsigned vain_refreshes; /* refreshes in a row that left problems */
    uint64_t refresh_ns, refreshed_ns;
    bool is_ending;
};

static inline void metric_add(_Atomic uint64_t *metric, uint64_t more)
{
    atomic_fetch_add_explicit(metric, more, memory_order_relaxed);
}

/* At least half of it, so that many waiting clients do not come back together. */
static inline uint64_t router_jitter(struct router *router, uint64_t length_ns)
{
    return link_jitter(&router->random, length_ns);
}

/* Something has to be done at that time. */
static inline void router_hurry(struct router *router, uint64_t at_ns)
{
    if (at_ns >= router->earliest_ns || router->is_ending)
        return;
    router->earliest_ns = at_ns;
    router->options.dialer->ops->hurry(router->options.dialer);
}

/* ---- router_servers.c ------------------------------------------------------------------------ */

/* The one that is open, or a new one. NULL: no memory, or too many. */
struct server *server_of_host(struct router *router, const struct store_host *host,
                              uint64_t now_ns);
/* NULL: the master is unknown. */
struct server *server_of_slot(struct router *router, unsigned slot, uint64_t now_ns);
/* Closes servers that are not needed, and checks the topology when it is time. */
void servers_wake(struct router *router, uint64_t now_ns);
void servers_free(struct router *router);

/* A problem with the known topology: check it soon, or at once at a server with newer data. */
void topology_doubt(struct router *router, struct server *newer, uint64_t now_ns);
/* A server takes no writes: find the master. */
void topology_refuse_replica(struct server *server, uint64_t now_ns);

#endif
