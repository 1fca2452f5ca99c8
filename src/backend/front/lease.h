/* SPDX-License-Identifier: MIT */
/*
 * Leases: a worker takes units of a key at once and hands them out itself, under rules that say
 * `lease: strict` or `lease: fast`. It is a store before a store; asks about other rules pass
 * through. What each mode promises, and why, is in docs/decisions/0039-leases.md.
 *
 * One lease at most is asked for at a time of one key, and asks that it is to serve wait for it in
 * their order; but one that leaves what all of them want is served at once. Memory is bounded: keys
 * by `keys`, asks by `waiting`. One thread.
 */
#ifndef STINT_BACKEND_FRONT_LEASE_H
#define STINT_BACKEND_FRONT_LEASE_H

#include "decide/backend.h"
#include "decide/backend_metrics.h"

/* Zero is the default, but for the first two. */
struct lease_options {
    struct backend *inner; /* freed with it */
    /*
     * The clock of struct backend_request. A lease holds by it, so it never steps, and goes on
     * while the machine sleeps; its rate and that of the store's differ by less than one in a
     * hundred.
     */
    uint64_t (*now)(void *arg);
    void (*hurry)(void *arg); /* lease_deadline() was never, and is not now. NULL: nobody cares */
    void *arg;
    uint64_t secret[2];     /* so that nobody can choose keys that are slow to find: random */
    size_t keys;            /* of which there may be leases at once. Default 4,096 */
    size_t waiting;         /* asks that may wait at once. Default 4,096 */
    uint64_t denied_max_ns; /* how long a denial may be told again. Default 1 s */
    struct backend_metrics *metrics; /* lease_units is written here; NULL: nowhere */
};

/* NULL: no memory; inner is still the caller's. */
struct backend *lease_new(const struct lease_options *options);

/*
 * When to call wake() next: it gives back what is not used. STINT_NEVER_NS: nothing is held. Late
 * calls lose units for the others, and never a bound.
 */
uint64_t lease_deadline(const struct backend *store);
void lease_wake(struct backend *store, uint64_t now_ns);

#endif
