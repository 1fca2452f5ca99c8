/* SPDX-License-Identifier: MIT */
/*
 * Keys that were denied lately, and how they stood: enough to deny them again without asking their
 * store. Of a fixed size; a key that finds no place takes that of the one that would go first. Keys
 * are known by a keyed hash of 128 bits that outsiders cannot aim at. One thread.
 */
#ifndef STINT_BACKEND_FRONT_DENIALS_H
#define STINT_BACKEND_FRONT_DENIALS_H

#include "base/siphash.h"
#include "decide/backend.h"

struct denials;

/* How a key stood. Every instant is one of struct backend_request. */
struct denial {
    uint64_t ends_ns;  /* nothing of this is known from then on */
    uint64_t retry_ns; /* `cost`, and all above it, are denied until then */
    uint64_t reset_ns;
    uint32_t cost; /* 0: nothing is known to be denied */
    uint32_t remaining;
};

/* A key and its quota, and how often it was forgotten when it was looked for. */
struct denial_name {
    struct hash128 hash;
    uint32_t drops;
};

/* Rounded up to whole sets. NULL: no memory. */
struct denials *denials_new(size_t entries, const uint64_t secret[2]);
void denials_free(struct denials *denials); /* NULL is fine */

struct denial_name denials_name(const struct denials *denials, const struct backend_item *item);
bool denials_same(const struct denial_name *a, const struct denial_name *b);

/* NULL: nothing is known. Valid until the next put or drop. */
struct denial *denials_find(const struct denials *denials, const struct denial_name *name,
                            uint64_t now_ns);
/* Not where a key of its set was dropped since `name` was made: what it says may be from before. */
void denials_put(struct denials *denials, const struct denial_name *name,
                 const struct denial *denial, uint64_t now_ns);
void denials_drop(struct denials *denials, const struct denial_name *name);

#endif
