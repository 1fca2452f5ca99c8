/* SPDX-License-Identifier: MIT */
/*
 * Quotas that requests bring along, parsed once for as long as requests use them. A service has one
 * cache of each kind; a new quota replaces the one in its slot.
 */
#ifndef STINT_SERVICE_QUOTA_CACHES_H
#define STINT_SERVICE_QUOTA_CACHES_H

#include "decide/request.h"

/* ---- SPECs: callers use the same few. Found by their text, byte by byte ---------------------- */

#define SPEC_CACHE_SIZE 256
#define SPEC_TEXT_MAX 200 /* bytes: no SPEC with each setting once is longer */

struct spec_entry {
    size_t text_len; /* 0: empty */
    char text[SPEC_TEXT_MAX + 1];
    struct stint_quota quota;
};

struct spec_cache {
    uint64_t secret[2]; /* so that clients that choose texts cannot choose their slots */
    size_t last;        /* the entry that was found last */
    struct spec_entry entries[SPEC_CACHE_SIZE];
};

/*
 * The quota of a SPEC, which the table accepts; valid until the next call. NULL, with a message:
 * STINT_E_FULL where the table holds too many quotas, else what is wrong with the SPEC.
 */
const struct stint_quota *spec_cache_find(struct spec_cache *cache, struct stint_table *table,
                                          struct span text, struct stint_error *error);

/* ---- CL.THROTTLE: three numbers and their quota, so that a request needs no division ----------
 */

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
