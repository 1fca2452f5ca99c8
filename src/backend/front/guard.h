/* SPDX-License-Identifier: MIT */
/*
 * What stands before a shared store, and is one: spares askers a store that is away, and the store
 * asks whose answer is known.
 *
 *   breakers  After some failures in a row asks of a server fail at once, until a probe of it has
 *             gone well.
 *   denials   A key that was denied is denied here for a while, as long as its law would.
 *   caution   After a failover that may have lost writes, keys that look as never used are taken
 *             for used, for a period of their quota.
 *
 * docs/decisions/0038 and 0045 say why each may do what it does. One thread, but for the figures.
 */
#ifndef STINT_BACKEND_FRONT_GUARD_H
#define STINT_BACKEND_FRONT_GUARD_H

#include "backend/breaker.h"
#include "decide/shared_pool.h"
#include "decide/store_figures.h"

#define GUARD_DENIALS_DEFAULT 65536 /* 40 bytes each */

/* What a key that looks as never used is taken for after a failover. */
enum guard_caution {
    GUARD_TRUSTS = 0,
    GUARD_HALF, /* half of its units are charged, then it is asked */
    GUARD_FULL, /* it is denied */
};

/* Zero is the default, but for the first. */
struct guard_options {
    struct shared_store *inner; /* freed with the guard */
    struct breaker_options breaker;
    size_t denials;             /* how many are kept. 0: none, every ask goes to the store */
    uint64_t deny_cache_max_ns; /* what others give back is seen so much later. Default 1 s */
    uint64_t secret[2];         /* so that nobody can choose keys that push others out: random */
    enum guard_caution caution;
    uint64_t (*failovers)(void *arg); /* how many there were. NULL: nobody counts them */
    void *arg;
    struct store_figures *figures; /* written here; NULL: nowhere */
};

/* NULL: no memory; inner is still the caller's. */
struct shared_store *guard_new(const struct guard_options *options);

/*
 * Pools in the store that the guard stands before: they pass its breakers, and are counted with its
 * asks. As long as the guard.
 */
struct shared_pools *guard_pools(struct shared_store *guard, struct shared_pools *inner);

/*
 * About once a second, so that figures and failovers are those of now where nobody asks. The store
 * does without it.
 */
void guard_tick(struct shared_store *store, uint64_t now_ns);

#endif
