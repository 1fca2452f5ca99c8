/* SPDX-License-Identifier: MIT */
/* How long to wait before the next attempt at a server: longer each time, with jitter. */
#ifndef STINT_BACKEND_BACKOFF_H
#define STINT_BACKEND_BACKOFF_H

#include "base/splitmix.h"
#include "base/wide_int.h"

struct backoff {
    uint64_t next_ns; /* upper bound of the next wait */
    uint64_t random;  /* seeded by the owner */
};

/* At least half of it, so that many waiting clients do not come back together. */
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
