/* SPDX-License-Identifier: MIT */
/*
 * SPECs that were parsed before: callers who bring their quotas along bring the same few. Found by
 * their text, byte by byte. A service has one; what is new takes the place of what it falls upon.
 */
#ifndef STINT_SERVICE_SPEC_CACHE_H
#define STINT_SERVICE_SPEC_CACHE_H

#include "base/span.h"
#include "stint.h"

#define SPEC_CACHE_SIZE 256
#define SPEC_TEXT_MAX 200 /* bytes: no SPEC that says everything once is longer */

struct spec_entry {
    size_t text_len; /* 0: empty */
    char text[SPEC_TEXT_MAX + 1];
    struct stint_quota quota;
};

struct spec_cache {
    uint64_t secret[2]; /* who chooses texts shall not choose where they fall */
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
