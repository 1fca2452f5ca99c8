/* SPDX-License-Identifier: MIT */
/*
 * The quotas of CL.THROTTLE: three numbers and the quota they give, so that a request needs no
 * division. A service has one cache; a new set of numbers replaces another.
 */
#ifndef STINT_SERVICE_THROTTLE_CACHE_H
#define STINT_SERVICE_THROTTLE_CACHE_H

#include "decide/request.h"

#define THROTTLE_CACHE_SIZE 256

/* The identity of all these quotas: a key has one state, whatever numbers a request has. */
#define THROTTLE_RULE UINT64_C(0x656c74746f726874)

struct throttle_entry {
    struct request_throttle throttle; /* period_s of 0: empty */
    struct stint_quota quota;
    uint64_t excess_ns; /* the most by which its times are too long: a unit's time is rounded up */
};

struct throttle_cache {
    struct throttle_entry entries[THROTTLE_CACHE_SIZE];
};

/*
 * The entry of a set of numbers, valid until the next call; NULL, with a message: STINT_E_RANGE for
 * numbers that are invalid or cannot be kept, STINT_E_FULL where the table holds too many quotas.
 * For max_burst -1 the quota is that of 0: any quota gives the end of a state.
 */
const struct throttle_entry *throttle_cache_find(struct throttle_cache *cache,
                                                 struct stint_table *table,
                                                 const struct request_throttle *throttle,
                                                 struct stint_error *error);

/* A quota under the same identity, to look up a key whatever numbers it was charged under. */
const struct stint_quota *throttle_any_quota(void);

#endif
