/* SPDX-License-Identifier: MIT */
/*
 * Metrics of one worker and one shared store. The worker writes, any thread reads. Each is one
 * word, and no two words are consistent with each other.
 */
#ifndef STINT_DECIDE_BACKEND_METRICS_H
#define STINT_DECIDE_BACKEND_METRICS_H

#include "decide/backend.h"

#include "base/wide_int.h"

/*
 * Answers that took up to STORE_BUCKET_NS << i are in bucket i, longer ones in the last. Decisions
 * have the same bounds in metrics, from 16 us on: no store answers sooner.
 */
#define STORE_BUCKET_NS 16384
#define STORE_BUCKETS 17 /* the last but one: 537 ms */

enum store_state { STORE_ASKED, STORE_PROBED, STORE_STOPPED, STORE_STATES };

struct backend_metrics {
    _Alignas(64) uint64_t asks; /* all requests, with any answer */
    uint64_t errors[BACKEND_ERRORS];
    uint64_t refused; /* requests that the store can never do */
    uint64_t buckets[STORE_BUCKETS], duration_ns;
    uint64_t denials_hit;          /* requests denied by the denial cache */
    uint64_t cautious;             /* requests denied, or keys charged, after a failover */
    uint64_t lease_units;          /* held now and not used yet */
    uint64_t state;                /* enum store_state */
    uint64_t unavailable_since_ns; /* 0: available, as far as is known */
    /* Copied once a second from the end of the chain, which counts them. */
    uint64_t failovers; /* a server that restarted empty, or another one in its slot */
    uint64_t conflicts; /* memcached: states that another server changed in between */
    uint64_t busy;      /* memcached: requests that lost every race with other servers */
    uint64_t damaged;   /* memcached: damaged states that were replaced */
    /* memcached: ended tickets that another request closed; and those closed for lack of space */
    uint64_t expired_floor, expired_release, expiry_kept_units, tickets_dropped;
    uint64_t clock_skew_ns; /* memcached: the most that another node's clock was fast */
};

/* Only the worker writes, so no locked instruction is needed. */
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

static inline void backend_metrics_took(struct backend_metrics *metrics, uint64_t duration_ns)
{
    /* The least i with duration_ns <= STORE_BUCKET_NS << i. */
    unsigned bucket = bit_length((duration_ns > 0 ? duration_ns - 1 : 0) / STORE_BUCKET_NS);
    bucket = bucket < STORE_BUCKETS ? bucket : STORE_BUCKETS - 1;
    backend_metric_up(&metrics->buckets[bucket]);
    backend_metric_set(&metrics->duration_ns, backend_metric(&metrics->duration_ns) + duration_ns);
}

#endif
