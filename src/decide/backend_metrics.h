/* SPDX-License-Identifier: MIT */
/*
 * What one worker and one shared store have come to, in figures. The worker writes, whoever asks
 * for figures reads: each is one word, and says nothing about another.
 */
#ifndef STINT_DECIDE_BACKEND_METRICS_H
#define STINT_DECIDE_BACKEND_METRICS_H

#include "decide/backend.h"

/*
 * Answers that took up to STORE_BUCKET_NS << i stand in bucket i, longer ones in the last. The
 * bounds are such as decisions have in metrics, from 16 us on: no store answers sooner.
 */
#define STORE_BUCKET_NS 16384
#define STORE_BUCKETS 17 /* the last but one: 537 ms */

enum store_state { STORE_ASKED, STORE_PROBED, STORE_STOPPED, STORE_STATES };

struct backend_metrics {
    _Alignas(64) uint64_t asks; /* all that came, however they were answered */
    uint64_t diagnostics[BACKEND_ERRORS];
    uint64_t refused; /* asks that the store can never be asked */
    uint64_t buckets[STORE_BUCKETS], duration_ns;
    uint64_t denials_hit;          /* asks denied out of the cache of denials */
    uint64_t cautious;             /* asks denied, or keys charged, after a failover */
    uint64_t lease_units;          /* held now, and not used yet */
    uint64_t state;                /* enum store_state */
    uint64_t unavailable_since_ns; /* 0: it is not away, as far as is known */
    /* As the end of the chain counts them, copied once a second. */
    uint64_t failovers; /* a server that has begun anew, or another in its place */
    uint64_t conflicts; /* memcached: states that another changed in between */
    uint64_t busy;      /* memcached: asks that others were faster than to the end */
    uint64_t damaged;   /* memcached: damaged states that were replaced */
    /* memcached: tickets that had ended, closed by asks for something else; and for want of room */
    uint64_t expired_floor, expired_release, expiry_kept_units, tickets_dropped;
    uint64_t clock_skew_ns; /* memcached: another node's clock was ahead by so much at the most */
};

/* For the worker alone, and so without a locked instruction. */
static inline void backend_metric_set(uint64_t *metric, uint64_t value)
{
    __atomic_store_n(metric, value, __ATOMIC_RELAXED);
}

static inline uint64_t backend_metric(const uint64_t *metric)
{
    return __atomic_load_n(metric, __ATOMIC_RELAXED);
}

static inline void backend_metric_up(uint64_t *metric)
{
    backend_metric_set(metric, backend_metric(metric) + 1);
}

void backend_metrics_took(struct backend_metrics *metrics, uint64_t duration_ns);

#endif
