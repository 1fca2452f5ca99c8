/* SPDX-License-Identifier: MIT */
/*
 * The front of a shared store, itself a backend. It stops requests to an unavailable store, and
 * answers those whose result is known.
 *
 *   breakers  After some failures in a row requests to a server fail at once, until a probe
 *             succeeds.
 *   denials   A key that was denied is denied here for a while, as long as its algorithm would.
 *   failover  After a failover that may have lost writes, keys that look never used are treated
 *             as used, for a period of their quota.
 *
 * docs/decisions/0038 and 0045 give the reasons. One thread, except for the metrics.
 */
#ifndef STINT_BACKEND_FRONT_FRONT_H
#define STINT_BACKEND_FRONT_FRONT_H

#include "backend/breakers.h"
#include "decide/backend_metrics.h"
#include "decide/backend_pool.h"

/* How a key that looks never used is treated after a failover. */
enum failover_policy {
    FAILOVER_TRUSTS = 0,
    FAILOVER_HALF, /* half of its units are charged before the request */
    FAILOVER_FULL, /* it is denied */
};

/* Zero is the default, but for the first. */
struct front_options {
    struct backend *inner; /* freed with the front */
    struct breaker_options breaker;
    size_t denials;             /* how many are kept. 0: none, every request goes to the store */
    uint64_t deny_cache_max_ns; /* other nodes' returns are seen so much later. Default 1 s */
    uint64_t secret[2];         /* random, so that no client can choose keys that evict others */
    enum failover_policy failover_policy;
    uint64_t (*failovers)(void *arg); /* the number of failovers. NULL: not counted */
    void *arg;
    struct backend_metrics *metrics; /* written here; NULL: nowhere */
};

/* NULL: no memory; inner is still the caller's. */
struct backend *front_new(const struct front_options *options);

/*
 * Pools in the same store: they pass the breakers and count in the metrics of the front. They live
 * as long as the front.
 */
struct backend_pools *front_pools(struct backend *front, struct backend_pools *inner);

/*
 * About once a second, so that metrics and failovers are current when no requests come. The store
 * works without it.
 */
void front_tick(struct backend *store, uint64_t now_ns);

/* The message of the last request that a server failed; NULL: none has. */
const char *front_error(const struct backend *store);

#endif
