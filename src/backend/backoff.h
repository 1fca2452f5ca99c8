/* SPDX-License-Identifier: MIT */
/* How long to wait before a server is tried again: longer each time, and never all at once. */
#ifndef STINT_BACKEND_BACKOFF_H
#define STINT_BACKEND_BACKOFF_H

#include "base/splitmix.h"
#include "base/wide_int.h"

struct backoff {
    uint64_t next_ns; /* the next wait at most */
    uint64_t random;  /* seeded by whoever makes it */
};

/* Half of it at least, so that many who wait for the same do not come back together. */
static inline uint64_t backoff_jitter(uint64_t *random, uint64_t length_ns)
{
    return length_ns / 2 + splitmix_next(random) % (length_ns / 2 + 1);
}

static inline uint64_t backoff_wait_ns(struct backoff *backoff, uint64_t max_ns)
{
    uint64_t wait_ns = backoff_jitter(&backoff->random, backoff->next_ns);
    backoff->next_ns = min_u64(2 * backoff->next_ns, max_ns);
    return wait_ns;
}

#endif
