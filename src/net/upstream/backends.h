/* SPDX-License-Identifier: MIT */
/*
 * The shared stores of one worker: for each configured store, the chain of layers that rules use
 * (leases, front, backend), with connections of its own in the worker's loop. The thread of the
 * loop.
 */
#ifndef STINT_NET_UPSTREAM_BACKENDS_H
#define STINT_NET_UPSTREAM_BACKENDS_H

#include "backend/front/front.h"
#include "backend/memcached/memcached_backend.h"
#include "backend/redis/router.h"
#include "backend/url.h"
#include "decide/backend_pool.h"
#include "net/upstream/upstream.h"

#include <uv.h>

#define STORES_MAX 16

/* One configured store: the same for all workers. Borrowed until stores_close(). */
struct store_config {
    struct store_url url;
    struct upstream_tls *tls; /* where url.is_tls: upstream_tls_load(), shared by all workers */
    const char *name;         /* for logs and messages. NULL: none */
    const char *prefix;       /* of its keys. NULL: "stint:" */
    uint64_t reply_ns;        /* 0: LINK_REPLY_NS */
    uint64_t connect_ns;      /* 0: LINK_CONNECT_NS */
    size_t asks_max;          /* pending at once, of one worker. 0: 4,096 */
    bool without_front;       /* for replays: no breaker and no denial cache */
    struct breaker_options breaker;
    size_t denials;             /* cached, of one worker. 0: none */
    uint64_t deny_cache_max_ns; /* 0: 1 s */
    enum failover_policy failover_policy;
    size_t lease_keys; /* keys with leases at once, of one worker. 0: 4,096 */
};

struct stores_options {
    uv_loop_t *loop;
    const struct store_config *configs;
    size_t n_configs;           /* at most STORES_MAX */
    uint64_t (*now)(void *arg); /* the clock of struct backend_request. NULL: uv_hrtime() */
    void *now_arg;
    uint64_t (*wall)(void); /* of memcached, since 1970. NULL: the system's */
    uint64_t seed;          /* of the jitter; different for each worker */
    uint64_t secret[2];     /* random: so that clients cannot choose keys that collide */
    struct backend_metrics *metrics[STORES_MAX]; /* of each, written here. NULL: not counted */
    /* The clock of a node of a memcached store is so far ahead of ours. May be NULL */
    void (*skewed)(void *arg, uint64_t skew_ns);
    void (*damaged)(void *arg, uint64_t states); /* memcached: so many states were damaged */
    void *skewed_arg;                            /* of both */
    /* A store was unavailable for a second, and why; NULL: it is available again. May be NULL */
    void (*unavailable)(void *arg, size_t index, const char *why);
    void *unavailable_arg;
};

/*
 * 0 if a store of that kind can keep states of a rule's quota (or of its candidate); otherwise the
 * reason, as stint_table_accepts(). Sends no request.
 */
int stores_accept(const struct store_config *config, const struct rule *rule,
                  const struct stint_quota *quota, struct stint_error *error);

/* The same for the keys of a pool: as backend_pools_ops.list_new. pool_backend_free() frees it. */
int stores_pool_list(const struct store_config *config, const struct backend_pool_definition *given,
                     struct backend_pool_list **list, struct stint_error *error);

/* The hash that shortens the names of memcached; `arg` is not used. */
void stores_digest(void *arg, struct span bytes, uint8_t out[MEMCACHED_DIGEST_LEN]);

struct stores;

/* Nothing is connected yet: that begins in the first turn of the loop, and cannot fail here. */
int stores_open(struct stores **stores, const struct stores_options *options,
                struct stint_error *error);
/* One for each config, in their order; valid until stores_close(). */
struct backend *const *stores_all(const struct stores *stores);
/* Key pools in a store. NULL: it is over memcached, and keeps none. */
struct backend_pools *stores_pools(const struct stores *stores, size_t index);
/* Of the connections at the end of the chain, for any thread. NULL: it is over memcached. */
const struct router_metrics *backends_router_metrics(const struct stores *stores, size_t index);

/*
 * Returns leased units. `done` is called once, from within or later, at the latest at the deadline,
 * a time of stores_options.now.
 */
void stores_drain(struct stores *stores, uint64_t deadline_ns, void (*done)(void *arg), void *arg);
/*
 * Ends pending requests with BACKEND_FAILED and frees the chains; the handles are freed in the next
 * turns of the loop, which has to run to its end. Not from within an answer. NULL is allowed.
 */
void stores_close(struct stores *stores);

#endif
