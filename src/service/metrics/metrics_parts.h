/* SPDX-License-Identifier: MIT */
/* The data structures of the metrics, for the files that count and those that write only. */
#ifndef STINT_SERVICE_METRICS_METRICS_PARTS_H
#define STINT_SERVICE_METRICS_METRICS_PARTS_H

#include "base/ns.h"
#include "base/wide_int.h"
#include "decide/request.h"
#include "rules/yaml/rules_load.h"
#include "service/metrics/metrics.h"

#include <pthread.h>

/* Durations up to METRICS_BUCKET_NS << i are in bucket i, longer ones in the last. */
#define METRICS_BUCKET_NS 128
#define METRICS_BUCKETS 20 /* the last but one: 33 ms */
#define METRICS_ERRORS (REPLY_UNAVAILABLE + 1)
#define METRICS_CHUNK 64        /* series whose counters are allocated together */
#define METRICS_CHUNKS_MAX 4096 /* of a worker */
#define METRICS_SERIES_MAX (METRICS_CHUNK * METRICS_CHUNKS_MAX)
#define METRICS_DETAIL_SLOTS 65536 /* slots of the hashed list of details; half are used */

/* One series of each worker: a cache line. */
struct series_metrics {
    _Alignas(64) uint64_t outcomes[METRICS_OUTCOMES];
    uint64_t units, candidate_over;
};

/* Units as envoyproxy/ratelimit counts them. Allocated apart: most servers do not use them. */
enum metrics_hit { HITS_TOTAL, HITS_OVER, HITS_NEAR, HITS_WITHIN, HITS_SHADOW, METRICS_HITS };
struct hit_metrics {
    uint64_t units[METRICS_HITS];
};

struct frontend_metrics {
    uint64_t verbs[REQUEST_VERBS], errors[METRICS_ERRORS], refused[METRICS_REFUSALS];
    uint64_t counters[METRICS_COUNTERS];
};

/* Sums over all rules and frontends, sampled each second. */
struct total_metrics {
    uint64_t outcomes[METRICS_OUTCOMES], units;
    uint64_t events[METRICS_EVENTS];
    uint64_t buckets[METRICS_BUCKETS], duration_ns;
};

/*
 * Written by its worker only, so without a locked instruction; relaxed, since no counter implies
 * anything about another.
 */
struct metrics_worker {
    _Alignas(128) struct metrics *metrics;
    struct total_metrics total;
    struct frontend_metrics frontends[METRICS_FRONTENDS];
    struct series_metrics spare; /* used where there is no memory; never shown */
    struct series_metrics *chunks[METRICS_CHUNKS_MAX]; /* by a series' number; NULL: all are 0 */
    struct hit_metrics *hits[METRICS_CHUNKS_MAX];      /* the same */
};

enum {
    SERIES_NO_RULE = 0, /* quotas that callers bring along */
    SERIES_OTHER = 1,   /* rules past METRICS_SERIES_MAX */
};

/* The subject of a series: a rule, or one value of a rule that shows values. */
struct series {
    uint64_t id;
    uint32_t number;
    uint32_t n_details;          /* of a rule */
    uint64_t in_force;           /* number of the latest binding that has it */
    char *domain, *rule, *value; /* value: NULL for a rule */
    char *entries;               /* of a rule, as rule.metric; NULL for a value, and without one */
    uint32_t of;                 /* of a value: the number of its rule */
    bool is_domain;              /* `units` are descriptors in it that matched no rule */
};

struct metrics_bound {
    size_t n, n_domains;
    uint32_t numbers[]; /* of series, by rule->index, followed by those by domain */
};

struct metrics_sample {
    uint64_t at_ns; /* 0: none yet */
    struct total_metrics total;
};

struct metrics_store {
    char *name;
    bool is_needed;
    struct backend_metrics *workers; /* of each */
};

#define METRICS_VERSION_SIZE 65

struct metrics_control_plane {
    const char *url;
    uint64_t answers[2]; /* refused, accepted */
    uint64_t updated_ns; /* 0: nothing was accepted */
    char version[METRICS_VERSION_SIZE];
    bool is_connected;
};

struct metrics {
    pthread_mutex_t lock; /* of all that follows, except what is marked atomic */
    unsigned n_workers, names, near_thousandths; /* written before any worker counts */
    struct metrics_worker *workers;
    struct metrics_store stores[RULES_STORES_MAX]; /* written before any worker counts */
    size_t n_stores;
    struct series **series;
    size_t n_series, series_space;
    uint32_t *by_id; /* hashed list of the numbers + 1 of rules */
    size_t by_id_space;
    uint64_t bindings;       /* the last finished one; the next has a number greater by one */
    struct series **details; /* hashed list, its entries atomic; NULL until a rule shows values */
    size_t n_details;
    struct metrics_control_plane control_planes[METRICS_CONTROL_PLANES_MAX];
    size_t n_control_planes;
    uint64_t reloads[2]; /* failed, succeeded */
    uint64_t reloaded_at_ns;
    char reload_error[STINT_ERROR_MAX]; /* "" where the last one succeeded */
    uint64_t started_ns;
    struct metrics_sample samples[METRICS_HISTORY];
    size_t n_samples; /* in all; the latest is at (n_samples - 1) % METRICS_HISTORY */
};

/* What does not change while workers count. */
static inline bool metrics_is_valid(const struct metrics *metrics)
{
    return metrics->n_workers > 0 && metrics->workers != NULL && metrics->names != 0 &&
           metrics->n_stores <= RULES_STORES_MAX;
}

static inline void count_up(uint64_t *metric, uint64_t by)
{
    __atomic_store_n(metric, __atomic_load_n(metric, __ATOMIC_RELAXED) + by, __ATOMIC_RELAXED);
}

/* The counters of a series, summed over the workers. The lock is held. */
struct series_metrics metrics_sum_series(const struct metrics *metrics, uint32_t number);
struct frontend_metrics metrics_sum_frontend(const struct metrics *metrics, unsigned frontend);
/* With the expired tickets of memcached that were closed by other requests. */
struct total_metrics metrics_sum_total(const struct metrics *metrics);
/* The state is that of the worker with the worst state. No lock is needed. */
struct backend_metrics metrics_sum_store(const struct metrics *metrics, size_t store);
static inline double metrics_unavailable_s(const struct backend_metrics *sum, uint64_t now_ns)
{
    return sum->unavailable_since_ns > 0
               ? (double)sub_floor(now_ns, sum->unavailable_since_ns) / (double)NS_PER_S
               : 0;
}

/* Appends the metrics under the names of envoyproxy/ratelimit. The lock is held. */
void metrics_write_envoy(const struct metrics *metrics, const struct metrics_facts *facts,
                         enum metrics_format format, struct page *page);

/* "allow", …: the values of labels. */
extern const char *const metrics_outcome_names[METRICS_OUTCOMES];
extern const char *const metrics_refusal_names[METRICS_REFUSALS];
extern const char *const metrics_error_names[METRICS_ERRORS];
extern const char *const metrics_store_error_names[BACKEND_ERRORS];
extern const char *const metrics_store_state_names[STORE_STATES];

/* How many sets of each class are sampled for the live keys of a table: about 100 us. */
#define METRICS_SETS_LOOKED_AT 512

#endif
