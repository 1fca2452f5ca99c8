/* SPDX-License-Identifier: MIT */
/*
 * Parsed SPECs: callers that send quotas with their requests use the same few. Found by their text,
 * byte by byte. A service has one cache; a new SPEC replaces the one in its slot.
 */
#ifndef STINT_SERVICE_SPEC_CACHE_H
#define STINT_SERVICE_SPEC_CACHE_H

#include "base/span.h"
#include "stint.h"

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

#endif
