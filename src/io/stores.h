/* SPDX-License-Identifier: MIT */
/*
 * The shared stores of one worker: for each that is configured, the chain of layers that rules ask
 * (guard, leases, the store itself), with connections of its own in the worker's loop. The thread
 * of the loop.
 */
#ifndef STINT_IO_STORES_H
#define STINT_IO_STORES_H

#include "io/upstream_tls.h"
#include "remote/router.h"
#include "remote/url.h"
#include "rules/shared.h"

#include <uv.h>

#define STORES_MAX 16

/* One store as it is configured: the same for all workers. Borrowed until stores_free(). */
struct store_config {
    struct store_url url;
    struct upstream_tls *tls; /* where url.is_tls: upstream_tls_load(), shared by all workers */
    const char *prefix;       /* of its keys. NULL: REDIS_STORE_PREFIX_DEFAULT */
    uint64_t reply_ns;        /* 0: 50 ms */
    uint64_t connect_ns;      /* 0: 250 ms */
    size_t asks_max;          /* that wait at once, of one worker. 0: 4,096 */
};

struct stores_options {
    uv_loop_t *loop;
    const struct store_config *configs;
    size_t n_configs;           /* at most STORES_MAX */
    uint64_t (*now)(void *arg); /* the clock of struct shared_ask. NULL: uv_hrtime() */
    void *now_arg;
    uint64_t seed; /* of the jitter; another one for each worker */
};

struct stores;

/* Nothing is connected yet: that begins with the first turn of the loop, and cannot fail here. */
int stores_open(struct stores **stores, const struct stores_options *options,
                struct stint_error *error);
/* One for each config, in their order; valid until stores_close(). */
struct shared_store *const *stores_all(const struct stores *stores);
size_t stores_count(const struct stores *stores);
/* Of the store over Redis at the end of the chain; NULL: it is over memcached. */
const struct router_figures *stores_figures(const struct stores *stores, size_t index);

/* Gives back what is held. `done` is called once, at the latest at the deadline, and maybe at once.
 */
void stores_drain(struct stores *stores, uint64_t deadline_ns, void (*done)(void *arg), void *arg);
/*
 * Answers what still waits with SHARED_FAILED and frees the chains; the handles go with the next
 * turns of the loop, which is to be run to its end. Not from within an answer. NULL is fine.
 */
void stores_close(struct stores *stores);

#endif
