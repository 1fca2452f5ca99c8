/* SPDX-License-Identifier: MIT */
/*
 * What a server has done, in figures: counted by each worker for itself, summed when somebody
 * reads. Written out for Prometheus and OpenMetrics, and as JSON for the dashboard.
 *
 * A worker's calls (struct metrics_worker) are for its thread alone and cost a few nanoseconds;
 * everything else is for any thread. Figures only grow, also over reloads: those of a rule are
 * found by its identity. There is no label with a key in it; values of descriptors only where the
 * rule asks for them, and then METRICS_DETAILS_MAX of them.
 */
#ifndef STINT_SERVICE_METRICS_METRICS_H
#define STINT_SERVICE_METRICS_METRICS_H

#include "base/span.h"
#include "decide/backend_metrics.h"
#include "decide/reply.h"
#include "proto/page.h"
#include "rules/rules.h"

/* Through which port somebody came. */
enum metrics_frontend { METRICS_RESP, METRICS_HTTP, METRICS_GRPC, METRICS_FRONTENDS };

/* What became of one descriptor or item; each is counted once. */
enum metrics_outcome {
    METRICS_ALLOW,
    METRICS_DENY,
    METRICS_NEVER,
    METRICS_BANNED,   /* denied by a block of its key */
    METRICS_SHADOW,   /* over, and allowed, since its rule is in shadow mode */
    METRICS_REPLACED, /* another rule of the request was the fallback its place */
    METRICS_OUTCOMES,
};

/* The rest that happens to requests. */
enum metrics_event {
    METRICS_UNMATCHED,      /* descriptors that met no rule: metrics_unmatched() */
    METRICS_DOMAIN_UNKNOWN, /* of these, such as are in a domain that has no rules */
    METRICS_REPLAYED,       /* answers given again to a request with the same id */
    METRICS_BANS,           /* keys blocked for repeated denials */
    METRICS_ALL_SHADOW,     /* requests that were allowed, since every rule is in shadow mode */
    METRICS_BANS_LOST,      /* such as were not, for want of room among the blocks of the table */
    /* Reservations in stores that were not settled by their deadline. */
    METRICS_EXPIRED_FLOOR,
    METRICS_EXPIRED_RELEASE,
    METRICS_EXPIRY_KEPT_UNITS, /* of these, that could not be given back */
    METRICS_EXPIRIES_LOST,     /* that no worker closes: too many were open */
    METRICS_EVENTS,
};

enum metrics_refusal {
    METRICS_REFUSED_TOTAL,   /* too many connections */
    METRICS_REFUSED_ADDRESS, /* too many of one address */
    METRICS_REFUSED_IDLE,    /* idle, or too slow to read or write, for too long */
    METRICS_REFUSED_TLS,     /* the handshake failed */
    METRICS_REFUSED_MEMORY,  /* connections held more memory together than they may */
    METRICS_REFUSALS,
};

#define METRICS_DETAILS_MAX 1000 /* values of one rule; the rest are "other" */
#define METRICS_VALUE_END '\x1f' /* between the values of several entries */

struct metrics;
struct metrics_worker;

struct metrics *metrics_new(unsigned workers); /* NULL: no memory */
void metrics_free(struct metrics *metrics);    /* after the last worker's call; NULL is fine */

/*
 * Under which names the page of figures has them, and from which share of its limit on a rule's
 * units are near it. Before any worker counts; METRICS_NAMES_STINT where it is not called.
 */
enum metrics_names { METRICS_NAMES_STINT = 1, METRICS_NAMES_ENVOY = 2 }; /* bits */
void metrics_count_hits(struct metrics *metrics, unsigned names, unsigned near_thousandths);

/*
 * The figures of a shared store, in the order of calls: before any worker counts. The name stands
 * in labels, and is copied. is_needed: without it the server is not ready. False: no memory, or
 * RULES_STORES_MAX of them.
 */
bool metrics_add_store(struct metrics *metrics, const char *name, bool is_needed);
/* For the thread of that worker to write; NULL: there is no such store. */
struct backend_metrics *metrics_store(struct metrics *metrics, size_t store, unsigned worker);
bool metrics_has_stores(const struct metrics *metrics); /* false: one that is needed is away */
/* Appends a line for each that is away. */
void metrics_tell_stores(const struct metrics *metrics, uint64_t now_ns, struct page *page);
/* A section of INFO. */
void metrics_info_stores(const struct metrics *metrics, uint64_t now_ns, struct page *page);

/*
 * Where the figures of these rules stand, by rule->index. Made at each reload; the figures of a
 * rule that is gone are kept, and found again should it come back. NULL: no memory.
 */
struct metrics_bound;
struct metrics_bound *metrics_bind(struct metrics *metrics, const struct rules *rules);
void metrics_unbind(struct metrics_bound *bound); /* no worker uses it any more; NULL is fine */

/* ---- A worker counts ------------------------------------------------------------------------- */

struct metrics_worker *metrics_worker(struct metrics *metrics, unsigned worker);

/* rule: NULL for a quota that the caller brought along. units: granted. */
void metrics_decided(struct metrics_worker *worker, const struct metrics_bound *bound,
                     const struct rule *rule, enum metrics_outcome outcome, uint32_t units);
/* The candidate quota beside the rule's would have denied. */
void metrics_candidate_over(struct metrics_worker *worker, const struct metrics_bound *bound,
                            const struct rule *rule);
/*
 * For rules whose metrics show values (rule.shown), beside metrics_decided(): the same once more
 * with a label `value`, of which 128 bytes are kept: METRICS_VALUE_END stands between several.
 */
void metrics_detailed(struct metrics_worker *worker, const struct metrics_bound *bound,
                      const struct rule *rule, struct span value, enum metrics_outcome outcome,
                      uint32_t units);
/* verb: enum request_verb; error: enum reply_error, REPLY_DECIDED for none. */
void metrics_asked(struct metrics_worker *worker, enum metrics_frontend frontend, unsigned verb,
                   unsigned error);
/* Bytes that were no request: what the frontend answered with an error of its protocol. */
/* A secret that no token has, or that was not looked at. */
void metrics_wrong_secret(struct metrics_worker *worker, enum metrics_frontend frontend);
const char *metrics_frontend_name(enum metrics_frontend frontend);
void metrics_malformed(struct metrics_worker *worker, enum metrics_frontend frontend);
/*
 * Units asked of a rule, as envoyproxy/ratelimit counts them, beside metrics_decided(); only where
 * metrics_counts_hits() says so. A value as of metrics_detailed(), or NULL.
 */
struct metrics_hits {
    struct span value;
    uint32_t asked, limit, remaining; /* of the quota, after the decision */
    bool is_over, is_shadow;
    uint32_t fitted; /* of a charge that is over: those of its units that fit */
};
bool metrics_counts_hits(const struct metrics_worker *worker);
void metrics_hits(struct metrics_worker *worker, const struct metrics_bound *bound,
                  const struct rule *rule, const struct metrics_hits *hits);
/* Descriptors that met no rule in a domain of the rules, or, with SIZE_MAX, in one of none. */
void metrics_unmatched(struct metrics_worker *worker, const struct metrics_bound *bound,
                       size_t domain, uint64_t n);
void metrics_event(struct metrics_worker *worker, enum metrics_event event, uint64_t times);
void metrics_opened(struct metrics_worker *worker, enum metrics_frontend frontend);
void metrics_closed(struct metrics_worker *worker, enum metrics_frontend frontend);
void metrics_refused(struct metrics_worker *worker, enum metrics_frontend frontend,
                     enum metrics_refusal why);
void metrics_bytes(struct metrics_worker *worker, enum metrics_frontend frontend, uint64_t in,
                   uint64_t out);
/* How many descriptors and items were decided so far. */
uint64_t metrics_decisions(const struct metrics_worker *worker);
/*
 * How long decisions took, `times` of them in `duration_ns` altogether. Two readings of a clock
 * cost as much as a decision: time one batch in many, and say so; nothing is scaled up.
 */
void metrics_took(struct metrics_worker *worker, uint64_t duration_ns, uint32_t times);

/* ---- Of the server as a whole ---------------------------------------------------------------- */

/* The message of a reload that failed is kept for the dashboard until one succeeds. */
void metrics_reloaded(struct metrics *metrics, bool worked, const char *message, uint64_t now_ns);

/*
 * Once a second, by one thread: the totals of the last METRICS_HISTORY seconds are kept, so that a
 * page that is opened now has a past to show.
 */
#define METRICS_HISTORY 120
void metrics_tick(struct metrics *metrics, uint64_t now_ns);

/* What the metrics cannot know by themselves, given at each reading. */
struct metrics_facts {
    const struct stint_table *table; /* NULL: none */
    uint64_t table_now_ns;           /* the time of decisions */
    uint64_t now_ns;                 /* the time of I/O */
    uint64_t generation;             /* server_state_generation() */
    uint64_t loads;                  /* server_state_loads() */
    size_t rules;                    /* in force */
    bool has_virtual_clock;
};

enum metrics_format { METRICS_PROMETHEUS, METRICS_OPENMETRICS };
#define METRICS_PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Appends a page of figures; page->failed where there is no memory for it. */
void metrics_write(struct metrics *metrics, const struct metrics_facts *facts,
                   enum metrics_format format, struct page *page);

/* envoyproxy/ratelimit's /stats: one figure a line. Only with METRICS_NAMES_ENVOY. */
bool metrics_has_envoy_names(const struct metrics *metrics);
void metrics_envoy_stats(struct metrics *metrics, const struct metrics_facts *facts,
                         struct page *page);

/* The same for /v1/stats, as a JSON object; of the rules, those asked most. docs/openapi.json. */
#define METRICS_JSON_RULES 200
void metrics_json(struct metrics *metrics, const struct metrics_facts *facts, struct page *page);

#endif
