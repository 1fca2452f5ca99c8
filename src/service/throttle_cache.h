/* SPDX-License-Identifier: MIT */
/*
 * The quotas of CL.THROTTLE: three numbers, and what they come to, so that a request divides
 * nothing. A service has one; a set of numbers that is new to it takes the place of another.
 */
#ifndef STINT_SERVICE_THROTTLE_CACHE_H
#define STINT_SERVICE_THROTTLE_CACHE_H

#include "decide/request.h"

#define THROTTLE_CACHE_SIZE 256

/* Whose states they all are: a key has one, whatever numbers it is asked under. */
#define THROTTLE_RULE UINT64_C(0x656c74746f726874)

struct throttle_entry {
    struct request_throttle throttle; /* period_s of 0: empty */
    struct stint_quota quota;
    uint64_t excess_ns; /* what its times are too long by at most: a unit's time is rounded up */
};

struct throttle_cache {
    struct throttle_entry entries[THROTTLE_CACHE_SIZE];
};

/*
 * The entry of a set of numbers, valid until the next call; NULL, with a message: STINT_E_RANGE
 * for numbers that cannot be meant or kept, STINT_E_FULL where the table holds too many quotas. Of
 * max_burst -1 the quota is that of 0: a state tells when it ends under any quota.
 */
const struct throttle_entry *throttle_cache_find(struct throttle_cache *cache,
                                                 struct stint_table *table,
                                                 const struct request_throttle *throttle,
                                                 struct stint_error *error);

/* A quota under the same rule, for asking after a key whatever it was asked under. */
const struct stint_quota *throttle_any_quota(void);

#endif
