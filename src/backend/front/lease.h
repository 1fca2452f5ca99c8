/* SPDX-License-Identifier: MIT */
/*
 * Leases: a worker takes units of a key at once and grants them itself, under rules with `lease:
 * strict` or `lease: fast`. It is a backend in front of a backend; requests under other rules pass
 * through. docs/decisions/0039-leases.md describes what each mode promises, and why.
 *
 * Each key has at most one lease request in progress. Requests that need its units wait in order;
 * if the lease leaves enough for all of them, a new one is served at once. Memory is bounded: keys
 * by `keys`, requests by `waiting`. One thread.
 */
#ifndef STINT_BACKEND_FRONT_LEASE_H
#define STINT_BACKEND_FRONT_LEASE_H

#include "decide/backend.h"
#include "decide/backend_metrics.h"

/* Zero is the default, but for the first two. */
struct lease_options {
    struct backend *inner; /* freed with it */
    /*
     * The clock of struct backend_request. Leases expire by it, so it never steps, and runs while
     * the machine sleeps; its rate differs from the store's by less than one in a hundred.
     */
    uint64_t (*now)(void *arg);
    void (*hurry)(void *arg); /* lease_deadline() was never, and is not now. NULL: not reported */
    void *arg;
    uint64_t secret[2];     /* random, so that no client can choose keys that are slow to find */
    size_t keys;            /* keys with leases at once. Default 4,096 */
    size_t waiting;         /* requests that may wait at once. Default 4,096 */
    uint64_t denied_max_ns; /* how long a denial may be repeated; 0: it is not */
    struct backend_metrics *metrics; /* writes lease_units here; NULL: not counted */
};

/* NULL: no memory; inner is still the caller's. */
struct backend *lease_new(const struct lease_options *options);

/*
 * When to call wake() next: it gives back what is not used, and answers requests that have waited
 * for their time. STINT_NEVER_NS: nothing is held. Late calls keep units from other nodes, and
 * never break a bound.
 */
uint64_t lease_deadline(const struct backend *store);
void lease_wake(struct backend *store, uint64_t now_ns);

#endif
