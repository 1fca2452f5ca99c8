/* SPDX-License-Identifier: MIT */
/*
 * The metrics of a server: each worker counts for itself, a reader sums them up. They are written
 * for Prometheus and OpenMetrics, and as JSON for the dashboard.
 *
 * A worker's calls (struct metrics_worker) are for its thread only and cost a few nanoseconds;
 * everything else is for any thread. Counters only grow, also over reloads: those of a rule are
 * found by its identity. No label contains a key; values of descriptors are labels only where the
 * rule requests it, at most METRICS_DETAILS_MAX of them.
 */
#ifndef STINT_SERVICE_METRICS_METRICS_H
#define STINT_SERVICE_METRICS_METRICS_H

#include "base/span.h"
#include "decide/backend_metrics.h"
#include "decide/reply.h"
#include "proto/page.h"
#include "rules/rules.h"
#include "service/pools/pools.h"

/* The port through which a request came. */
enum metrics_frontend { METRICS_RESP, METRICS_HTTP, METRICS_GRPC, METRICS_FRONTENDS };
extern const char *const metrics_frontend_names[METRICS_FRONTENDS]; /* "resp", … */

/* The outcome of one descriptor or item; each is counted once. */
enum metrics_outcome {
    METRICS_ALLOW,
    METRICS_DENY,
    METRICS_NEVER,
    METRICS_BANNED,   /* denied by a block of its key */
    METRICS_SHADOW,   /* over the limit, and allowed, since its rule is in shadow mode */
    METRICS_REPLACED, /* another rule of the request replaced it (its fallback) */
    METRICS_OUTCOMES,
};

/* Other events of requests. */
enum metrics_event {
    METRICS_UNMATCHED,      /* descriptors that matched no rule: metrics_unmatched() */
    METRICS_DOMAIN_UNKNOWN, /* of these, those in a domain without rules */
    METRICS_REPLAYED,       /* replies repeated for a request with the same id */
    METRICS_BANS,           /* keys blocked for repeated denials */
    METRICS_ALL_SHADOW,     /* requests that were allowed, since every rule is in shadow mode */
    METRICS_BANS_LOST,      /* keys not blocked, as the table had no free space for it */
    /* Reservations in backends that were not settled by their deadline. */
    METRICS_EXPIRED_FLOOR,
    METRICS_EXPIRED_RELEASE,
    METRICS_EXPIRY_KEPT_UNITS, /* of these, units that could not be returned */
    METRICS_EXPIRIES_LOST, /* reservations that no worker closes: too many were open, or too late */
    METRICS_EVENTS,
};

enum metrics_refusal {
    METRICS_REFUSED_TOTAL,   /* too many connections */
    METRICS_REFUSED_ADDRESS, /* too many of one address */
    METRICS_REFUSED_IDLE,    /* idle, or too slow to read or write, for too long */
    METRICS_REFUSED_TLS,     /* the TLS handshake failed */
    METRICS_REFUSED_MEMORY,  /* all connections together held too much memory */
    METRICS_REFUSALS,
};

/* Other counters of a frontend. */
enum metrics_counter {
    METRICS_MALFORMED,     /* bytes that are no request: it replied with an error of its protocol */
    METRICS_WRONG_SECRETS, /* that match no token, or were not checked */
    METRICS_OPENED,
    METRICS_CLOSED,
    METRICS_BYTES_IN,
    METRICS_BYTES_OUT,
    METRICS_COUNTERS,
};

/* Spans of traces. */
enum metrics_span {
    METRICS_SPANS_SENT,    /* the collector has accepted them */
    METRICS_SPANS_DROPPED, /* no space to keep them until they are sent */
    METRICS_SPANS_REFUSED, /* by the collector */
    METRICS_SPANS_LOST,    /* not accepted, however often they were sent; or not sent at the end */
    METRICS_SPANS,
};

#define METRICS_DETAILS_MAX 1000 /* values of one rule; the rest are "other" */
#define METRICS_VALUE_END '\x1f' /* between the values of several entries */

struct metrics;
struct metrics_worker;

struct metrics *metrics_new(unsigned workers); /* NULL: no memory */
void metrics_free(struct metrics *metrics);    /* after the last worker's call; NULL is allowed */

/*
 * The names under which the metrics are written, and the share of its limit from which a rule's
 * units are near it. Call before any worker counts; METRICS_NAMES_STINT where it is not called.
 */
enum metrics_names { METRICS_NAMES_STINT = 1, METRICS_NAMES_ENVOY = 2 }; /* bits */
void metrics_count_hits(struct metrics *metrics, unsigned names, unsigned near_thousandths);

/*
 * Adds the metrics of a shared store, in the order of calls, before any worker counts. The name is
 * copied; it is used in labels. is_needed: without it the server is not ready. False: no memory, or
 * there are RULES_STORES_MAX of them.
 */
bool metrics_add_store(struct metrics *metrics, const char *name, bool is_needed);
/* For the thread of that worker to write; NULL: there is no such store. */
struct backend_metrics *metrics_store(struct metrics *metrics, size_t store, unsigned worker);
bool metrics_has_stores(const struct metrics *metrics); /* false: a needed store is unavailable */
/* Appends a line for each unavailable store. */
void metrics_tell_stores(const struct metrics *metrics, uint64_t now_ns, struct page *page);
/* A section of INFO. */
void metrics_info_stores(const struct metrics *metrics, uint64_t now_ns, struct page *page);

/*
 * Adds the metrics of a control plane, in the order of calls, before any worker counts. The URL is
 * borrowed, and is used in labels.
 */
#define METRICS_CONTROL_PLANES_MAX 4
void metrics_add_control_plane(struct metrics *metrics, const char *url);
void metrics_control_plane_connected(struct metrics *metrics, size_t plane, bool is_connected);
/* A response was accepted, or refused. */
void metrics_control_plane_answered(struct metrics *metrics, size_t plane, bool is_accepted,
                                    const char *version, uint64_t now_ns);

/*
 * The numbers of these rules' series, by rule->index. Made at each reload. The metrics of a removed
 * rule are kept, and are found again if the rule returns. NULL: no memory.
 */
struct metrics_bound;
struct metrics_bound *metrics_bind(struct metrics *metrics, const struct rules *rules);
void metrics_unbind(struct metrics_bound *bound); /* after the last use by a worker; may be NULL */

/* ---- Counting by a worker -------------------------------------------------------------------- */

struct metrics_worker *metrics_worker(struct metrics *metrics, unsigned worker);

/* rule: NULL for a quota that the caller brought along. units: granted. */
void metrics_decided(struct metrics_worker *worker, const struct metrics_bound *bound,
                     const struct rule *rule, enum metrics_outcome outcome, uint32_t units);
/* The candidate quota would have denied. */
void metrics_candidate_over(struct metrics_worker *worker, const struct metrics_bound *bound,
                            const struct rule *rule);
/*
 * For rules whose metrics show values (rule.shown), beside metrics_decided(): counts again with a
 * label `value`, cut to 128 bytes. METRICS_VALUE_END separates several values.
 */
void metrics_detailed(struct metrics_worker *worker, const struct metrics_bound *bound,
                      const struct rule *rule, struct span value, enum metrics_outcome outcome,
                      uint32_t units);
/* verb: enum request_verb; error: enum reply_error, REPLY_DECIDED for none. */
void metrics_asked(struct metrics_worker *worker, enum metrics_frontend frontend, unsigned verb,
                   unsigned error);
/*
 * Requested units of a rule, as envoyproxy/ratelimit counts them, beside metrics_decided(); only
 * where metrics_counts_hits() is true. `value` as in metrics_detailed(), or NULL.
 */
struct metrics_hits {
    struct span value;
    uint32_t asked, limit, remaining; /* of the quota, after the decision */
    bool is_over, is_shadow;
    uint32_t fitted; /* units of a charge over the limit that fit */
};
bool metrics_counts_hits(const struct metrics_worker *worker);
void metrics_hits(struct metrics_worker *worker, const struct metrics_bound *bound,
                  const struct rule *rule, const struct metrics_hits *hits);
/* Descriptors that matched no rule in a known domain, or, with SIZE_MAX, in an unknown one. */
void metrics_unmatched(struct metrics_worker *worker, const struct metrics_bound *bound,
                       size_t domain, uint64_t n);
void metrics_event(struct metrics_worker *worker, enum metrics_event event, uint64_t times);
void metrics_count(struct metrics_worker *worker, enum metrics_frontend frontend,
                   enum metrics_counter counter, uint64_t n);
void metrics_refused(struct metrics_worker *worker, enum metrics_frontend frontend,
                     enum metrics_refusal why);
/* The number of descriptors and items decided so far. */
uint64_t metrics_decisions(const struct metrics_worker *worker);
/*
 * The duration of `times` decisions, `duration_ns` altogether. Two readings of a clock cost as much
 * as a decision: measure one batch of many, and pass the number measured; nothing is scaled up.
 */
void metrics_took(struct metrics_worker *worker, uint64_t duration_ns, uint32_t times);

/* ---- Metrics of the whole server ------------------------------------------------------------- */

/* Any thread. */
void metrics_spans(struct metrics *metrics, enum metrics_span outcome, uint64_t n);
/* Call before any worker counts: there are traces, so their metrics are written. */
void metrics_have_spans(struct metrics *metrics);

/* The message of a reload that failed is kept for the dashboard until one succeeds. */
void metrics_reloaded(struct metrics *metrics, bool worked, const char *message, uint64_t now_ns);

/*
 * Call once a second, from one thread. The totals of the last METRICS_HISTORY seconds are kept, so
 * that a page that is opened now can show them.
 */
#define METRICS_HISTORY 120
void metrics_tick(struct metrics *metrics, uint64_t now_ns);

/* Values that the metrics cannot know by themselves, passed at each reading. */
struct metrics_facts {
    const struct stint_table *table; /* NULL: none */
    uint64_t table_now_ns;           /* the time of decisions */
    uint64_t now_ns;                 /* the time of I/O */
    uint64_t generation;             /* server_state_generation() */
    uint64_t loads;                  /* server_state_loads() */
    size_t rules;                    /* in force */
    const struct pools *pools;       /* NULL: none */
    bool has_virtual_clock;
};

enum metrics_format { METRICS_PROMETHEUS, METRICS_OPENMETRICS };
#define METRICS_PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Appends the metrics; page->failed where there is no memory for them. */
void metrics_write(struct metrics *metrics, const struct metrics_facts *facts,
                   enum metrics_format format, struct page *page);

/* envoyproxy/ratelimit's /stats: one metric a line. Only with METRICS_NAMES_ENVOY. */
bool metrics_has_envoy_names(const struct metrics *metrics);
void metrics_envoy_stats(struct metrics *metrics, const struct metrics_facts *facts,
                         struct page *page);

/* The metrics for /v1/stats, as a JSON object, with the most requested rules. docs/openapi.json. */
#define METRICS_JSON_RULES 200
void metrics_json(struct metrics *metrics, const struct metrics_facts *facts, struct page *page);

#endif
