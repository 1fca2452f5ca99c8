/* SPDX-License-Identifier: MIT */
/*
 * What stands before a shared store, and is one: spares askers a store that is away, and the store
 * asks whose answer is known.
 *
 *   breakers  After some failures in a row asks of a server fail at once, until a probe of it has
 *             gone well.
 *   denials   A key that was denied is denied here for a while, as long as its algorithm would.
 *   caution   After a failover that may have lost writes, keys that look as never used are taken
 *             for used, for a period of their quota.
 *
 * docs/decisions/0038 and 0045 say why each may do what it does. One thread, but for the figures.
 */
#ifndef STINT_BACKEND_FRONT_FRONT_H
#define STINT_BACKEND_FRONT_FRONT_H

#include "backend/breaker.h"
#include "decide/backend_metrics.h"
#include "decide/backend_pool.h"

/* What a key that looks as never used is taken for after a failover. */
enum failover_policy {
    FAILOVER_TRUSTS = 0,
    FAILOVER_HALF, /* half of its units are charged, then it is asked */
    FAILOVER_FULL, /* it is denied */
};

/* Zero is the default, but for the first. */
struct front_options {
    struct backend *inner; /* freed with the front */
    struct breaker_options breaker;
    size_t denials;             /* how many are kept. 0: none, every ask goes to the store */
    uint64_t deny_cache_max_ns; /* what others give back is seen so much later. Default 1 s */
    uint64_t secret[2];         /* so that nobody can choose keys that push others out: random */
    enum failover_policy failover_policy;
    uint64_t (*failovers)(void *arg); /* how many there were. NULL: nobody counts them */
    void *arg;
    struct backend_metrics *metrics; /* written here; NULL: nowhere */
};

/* NULL: no memory; inner is still the caller's. */
struct backend *front_new(const struct front_options *options);

/*
 * Pools in the store that the front stands before: they pass its breakers, and are counted with its
 * asks. As long as the front.
 */
struct backend_pools *front_pools(struct backend *front, struct backend_pools *inner);

/*
 * About once a second, so that figures and failovers are those of now where nobody asks. The store
 * does without it.
 */
void front_tick(struct backend *store, uint64_t now_ns);

#endif
