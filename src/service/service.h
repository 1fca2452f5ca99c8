/* SPDX-License-Identifier: MIT */
/* From a request to a reply: joins rules, table, bans, overrides, ids and metrics. */
#ifndef STINT_SERVICE_SERVICE_H
#define STINT_SERVICE_SERVICE_H

#include "decide/evaluation.h"
#include "decide/reply.h"
#include "decide/request.h"

struct access;    /* service/access/access.h: tokens; NULL: no token is needed */
struct metrics;   /* service/metrics/metrics.h */
struct top_keys;  /* service/top_keys.h: keys requested and denied most */
struct unmatched; /* names that no rule limits, for the log */
struct pools;     /* service/pools.h: key pools by name */
struct pools_caller;
struct pools_return;
struct tracer;         /* service/traces.h: the spans of a worker's requests */
struct traces_options; /* the same */
struct server_clock;   /* service/server_clock.h: the times of I/O and of decisions */

#define WORKERS_MAX 64

/*
 * Whether a store (of those that the rules were loaded with, from 1) can keep states of a rule's
 * quota, or of its candidate: as stint_table_accepts().
 */
typedef int store_accepts(void *arg, size_t store, const struct rule *rule,
                          const struct stint_quota *quota, struct stint_error *error);

struct server_state_options {
    struct stint_table *table;      /* outlives the server state */
    struct rules *rules;            /* the server state takes a reference; NULL: none */
    unsigned workers;               /* 1 … WORKERS_MAX */
    uint64_t id_lifetime_ns;        /* how long an id is remembered. Default 10 min */
    size_t top_keys_max;            /* names kept by `top`. Default 1,024; 0 = default */
    uint64_t top_keys_half_life_ns; /* half-life of their scores. Default 1 min */
    bool without_top_keys;
    bool has_virtual_clock;    /* decisions use the table's time, which callers move */
    bool shadow_mode;          /* every rule is in shadow mode */
    bool quota_mode;           /* every rule is in quota mode */
    bool charges_hits;         /* Envoy's hits are charged where their rule has no setting */
    bool checks_debt;          /* a check passes until more than the limit is used */
    unsigned metrics_names;    /* bits of enum metrics_names. Default METRICS_NAMES_STINT */
    unsigned near_thousandths; /* metrics_count_hits() */
    const struct traces_options *traces; /* used by server_state_open() alone. NULL: none */
    store_accepts *store_accepts; /* checks all rules that name stores. NULL: there are none */
    void *store_arg;
};

struct server_state;

int server_state_open(struct server_state **server_state,
                      const struct server_state_options *options, struct stint_error *error);
void server_state_close(struct server_state *server_state); /* after all services; may be NULL */

/*
 * Replaces the rules in force, from any thread: each service uses the new ones from its next
 * request on. States of rules with the same identity continue. The server state takes a reference.
 * On error the old rules stay in force: STINT_E_FULL or STINT_E_MISMATCH where the table cannot
 * hold states of all quotas, STINT_E_SYSTEM without memory.
 */
int server_state_set_rules(struct server_state *server_state, struct rules *rules,
                           struct stint_error *error);
/*
 * Frees rules that are no longer in force and that no service uses. Slow with many rules, so call
 * it from a thread that serves no connections.
 */
void server_state_free_retired(struct server_state *server_state);
struct rules *server_state_rules(
    struct server_state *server_state); /* with a reference of the caller's; NULL: none */
uint64_t server_state_generation(
    const struct server_state *server_state); /* counts server_state_set_rules() */
uint64_t server_state_loads(
    const struct server_state *server_state); /* the same, and the rules that it began with */

struct stint_table *server_state_table(const struct server_state *server_state);
struct traces *server_state_traces(struct server_state *server_state); /* NULL: there are none */
struct server_clock *server_state_clock(struct server_state *server_state);
struct metrics *server_state_metrics(struct server_state *server_state);
struct top_keys *server_state_top_keys(struct server_state *server_state);
struct pools *server_state_pools(struct server_state *server_state);
struct unmatched *server_state_unmatched(struct server_state *server_state);
/*
 * Whether the server can decide, for every frontend that reports health: `is_ready` of the server
 * (NULL: true), and each needed store.
 */
bool server_state_is_ready(const struct server_state *server_state, bool (*is_ready)(void *arg),
                           void *arg);

/* The caller of a request. */
struct caller {
    const char *name; /* of the token; "" where no token is needed */
    unsigned roles;   /* bits of enum access_role: service/access/access.h */
    uint8_t frontend; /* enum metrics_frontend: which port it came through */
    /*
     * Of the request: requests to stores are spans below it. The caller ends it, unless the reply
     * is REPLY_WAITS: then the pending request has it until service_begin_span(). NULL: none.
     */
    struct trace_span *span;
};

struct service;
struct trace_operation;
struct trace_context;

struct service *service_new(struct server_state *server_state,
                            unsigned worker); /* NULL: no memory */
void service_free(struct service *service);
struct server_state *service_server_state(const struct service *service);
unsigned service_worker(const struct service *service);
struct tracer *service_tracer(const struct service *service); /* NULL: there are no traces */
/* As its next request would: releases rules that are no longer in force, while no request comes. */
void service_renew_rules(struct service *service);

/*
 * Answers at once. For a request with retry_until_ns, reply->again_at_ns may be set: then repeat
 * the same request at that time, or use the reply if the caller cannot wait any more.
 */
void service_ask(struct service *service, const struct request *request,
                 const struct caller *caller, uint64_t now_ns, struct reply *reply);

/* Call before the first request; otherwise all states are in the table. The stores outlive it. */
void service_set_stores(struct service *service, const struct evaluation_stores *stores);

/*
 * A request with the reply REPLY_WAITS has a pending request. The caller keeps everything that the
 * request points to, sets a callback for the time when all answers have come (never called from
 * within service_ask()), and then repeats the same request with request->pending. Or the caller
 * drops it: units may have been charged then.
 */
void service_on_answers(struct pending *pending, void (*done)(void *arg, uint64_t now_ns),
                        void *arg);
void service_drop(struct service *service, struct pending *pending); /* NULL is allowed */

/*
 * The span of a request that begins at this I/O time; of one with a pending request, the span that
 * it began with. NULL: it has none, or there are no traces. See service/traces.h.
 */
struct trace_span *service_begin_span(struct service *service, struct pending *pending,
                                      const struct trace_operation *operation,
                                      const struct trace_context *context, uint64_t begin_ns);

/*
 * Call periodically: closes reservations in stores that were never settled and have units to
 * return. Reservations left at the end stay charged as estimated, unless some server settles them
 * late. Stop before the stores are closed.
 */
void service_expire(struct service *service, uint64_t now_ns);
void service_stop_expiring(struct service *service);

/* The caller for calls on pools by this service. NULL: no pending request, the first call. */
void service_pools_caller(struct service *service, struct pending *pending,
                          struct pools_caller *caller);

/*
 * pools_next() and pools_give_back() for a call that may have an id: the same call with the same id
 * gets the same answer, and is charged once. A denied call may be repeated with its id. Also
 * STINT_E_MISMATCH: the id was used for another call, or that call is being answered;
 * STINT_E_SYNTAX: the pool is in a store, which keeps no answers of pools.
 */
struct service_pool_call {
    struct span pool, id; /* id empty: none */
    const char *caller;   /* as struct caller's name */
    struct pools_caller *context;
    bool replayed; /* set by the call: this is the answer to an earlier one */
};
int service_pool_next(struct service *service, struct service_pool_call *call,
                      const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
                      struct stint_error *error);
int service_pool_give_back(struct service *service, struct service_pool_call *call,
                           const struct pools_return *back, uint64_t now_ns, uint32_t *given_back,
                           struct stint_error *error);

#endif
