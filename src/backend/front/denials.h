/* SPDX-License-Identifier: MIT */
/*
 * Keys that were denied lately, with their state: enough to deny them again without a store
 * request. The size is fixed; a key without a free slot replaces the one that would expire first.
 * Keys are identified by a keyed hash of 128 bits that outsiders cannot aim at. One thread.
 */
#ifndef STINT_BACKEND_FRONT_DENIALS_H
#define STINT_BACKEND_FRONT_DENIALS_H

#include "base/siphash.h"
#include "decide/backend.h"

struct denials;

/* The state of a key. Times are those of struct backend_request. */
struct denial {
    uint64_t ends_ns;  /* all of this expires at this time */
    uint64_t retry_ns; /* `cost` and all above are denied until then */
    uint64_t reset_ns;
    uint32_t cost; /* 0: no denial is known */
    uint32_t remaining;
};

/* A key and its quota, and how often its set had been dropped at the lookup. */
struct denial_name {
    struct hash128 hash;
    size_t set;
    uint32_t drops;
};

/* Rounded up to whole sets. NULL: no memory. */
struct denials *denials_new(size_t entries, const uint64_t secret[2]);
void denials_free(struct denials *denials); /* NULL is fine */

struct denial_name denials_name(const struct denials *denials, const struct backend_item *item);
static inline bool denials_same(const struct denial_name *a, const struct denial_name *b)
{
    return a->hash.lo == b->hash.lo && a->hash.hi == b->hash.hi;
}

/* NULL: nothing is known. Valid until the next put or drop. */
struct denial *denials_find(const struct denials *denials, const struct denial_name *name,
                            uint64_t now_ns);
/* Ignored if a key of its set was dropped since `name` was made: the answer may be older. */
void denials_put(struct denials *denials, const struct denial_name *name,
                 const struct denial *denial, uint64_t now_ns);
void denials_drop(struct denials *denials, const struct denial_name *name);

#endif
