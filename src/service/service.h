/* SPDX-License-Identifier: MIT */
/*
 * Where a request becomes a reply: rules, table, bans, overrides, ids and figures joined.
 *
 * One `struct server_state` is shared by all workers; each worker has a `struct service` of its
 * own, which holds what must not be shared to be fast (parsed SPECs, scratch for keys and statuses,
 * its part of the figures). A service belongs to one thread.
 */
#ifndef STINT_SERVICE_SERVICE_H
#define STINT_SERVICE_SERVICE_H

#include "decide/evaluation.h"
#include "decide/reply.h"
#include "decide/request.h"

struct access;   /* service/access/access.h: who may ask for what; NULL: everybody for everything */
struct metrics;  /* service/metrics/metrics.h */
struct top_keys; /* service/top_keys.h: keys asked and denied most */
struct unmatched; /* service/unmatched.h: what no rule limits, for the log */
struct pools;     /* service/pools.h: key pools by name */
struct pools_caller;
struct server_clock; /* service/server_clock.h: the time of I/O and that of decisions */

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
    uint64_t top_keys_half_life_ns; /* of their scores. Default 1 min */
    bool without_top_keys;
    bool has_virtual_clock;       /* decisions go by the table's time, which callers move */
    bool shadow_mode;             /* every rule is in shadow mode */
    bool quota_mode;              /* every rule is in quota mode */
    bool charges_hits;            /* Envoy's hits are charged where their rule does not say */
    bool checks_debt;             /* a check passes until more than the limit is used */
    unsigned metrics_names;       /* bits of enum metrics_names. Default METRICS_NAMES_STINT */
    unsigned near_thousandths;    /* metrics_count_hits() */
    store_accepts *store_accepts; /* asked with all rules that name stores. NULL: there are none */
    void *store_arg;
};

struct server_state;

int server_state_open(struct server_state **server_state,
                      const struct server_state_options *options, struct stint_error *error);
void server_state_close(struct server_state *server_state); /* after all services; NULL is fine */

/*
 * Puts other rules in the place of those in force, from any thread: each service goes by them from
 * its next request on. States of rules whose identity is the same go on. The server state takes a
 * reference. Else the old rules stay in force: STINT_E_FULL or STINT_E_MISMATCH where the table
 * cannot hold states of all their quotas, STINT_E_SYSTEM without memory.
 */
int server_state_set_rules(struct server_state *server_state, struct rules *rules,
                           struct stint_error *error);
/*
 * Frees rules that are no longer in force and that no service uses; takes its time with many, so it
 * is for a thread that serves nobody.
 */
void server_state_free_retired(struct server_state *server_state);
struct rules *server_state_rules(
    struct server_state *server_state); /* with a reference of the caller's; NULL: none */
uint64_t server_state_generation(
    const struct server_state *server_state); /* counts server_state_set_rules() */
uint64_t server_state_loads(
    const struct server_state *server_state); /* the same, and the rules that it began with */

struct stint_table *server_state_table(const struct server_state *server_state);
struct server_clock *server_state_clock(struct server_state *server_state);
struct metrics *server_state_metrics(struct server_state *server_state);
struct top_keys *server_state_top_keys(struct server_state *server_state);
struct pools *server_state_pools(struct server_state *server_state);
struct unmatched *server_state_unmatched(struct server_state *server_state);
/*
 * Whether what decides is there, for every frontend that tells its health: `is_ready` of the server
 * (NULL: it is), and each store that is needed.
 */
bool server_state_is_ready(const struct server_state *server_state, bool (*is_ready)(void *arg),
                           void *arg);

/* What a request is done on behalf of. */
struct caller {
    const char *name; /* of the token; "" where nobody is asked who he is */
    unsigned roles;   /* bits of enum access_role: service/access/access.h */
    uint8_t frontend; /* enum metrics_frontend: which port it came through */
};

struct service;

struct service *service_new(struct server_state *server_state,
                            unsigned worker); /* NULL: no memory */
void service_free(struct service *service);
struct server_state *service_server_state(const struct service *service);
unsigned service_worker(const struct service *service);
/* As its next request would: lets rules go that are no longer in force, where nobody asks. */
void service_renew_rules(struct service *service);

/* Answers at once. `wait_ns` is not looked at here: see service_retry_at(). */
void service_ask(struct service *service, const struct request *request,
                 const struct caller *caller, uint64_t now_ns, struct reply *reply);

/* Before the first request; without it everything is in the table. The stores outlive it. */
void service_set_stores(struct service *service, const struct evaluation_stores *stores);

/*
 * A request that was answered REPLY_WAITS has a pending request on its way. Whoever asked keeps all
 * that the request points to, says what is to be called once the answers have come (never from
 * within service_ask()), and then asks the same request again with request->pending. Or he drops
 * it: units may have been charged then.
 */
void service_on_answers(struct pending *pending, void (*done)(void *arg, uint64_t now_ns),
                        void *arg);
void service_drop(struct service *service, struct pending *pending); /* NULL is fine */

/*
 * To be called now and then: closes reservations in stores that were never settled, and of which
 * something is to come back. Those that are left at the end stay charged as estimated, unless some
 * server is asked to settle them; stop before the stores are closed.
 */
void service_expire(struct service *service, uint64_t now_ns);
void service_stop_expiring(struct service *service);

/* What a pool is asked with on behalf of this service. NULL: no pending request, it is asked first.
 */
void service_pools_caller(struct service *service, struct pending *pending,
                          struct pools_caller *caller);

/*
 * For a request that may wait, first asked at asked_ns and answered with `reply` at now: when to
 * ask again, or 0 if the reply stands (allowed, never, or not before the caller's patience ends).
 */
uint64_t service_retry_at(const struct request *request, const struct reply *reply,
                          uint64_t asked_ns, uint64_t now_ns);

#endif
