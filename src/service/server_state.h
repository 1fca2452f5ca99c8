/* SPDX-License-Identifier: MIT */
/* The server state as services see it: the rules in force and what all services count in. */
#ifndef STINT_SERVICE_SERVER_STATE_H
#define STINT_SERVICE_SERVER_STATE_H

#include "service/metrics/metrics.h"
#include "service/pools.h"
#include "service/server_clock.h"
#include "service/service.h"
#include "service/top_keys.h"
#include "service/unmatched.h"

#include <pthread.h>

/* Rules and the numbers of their metrics, exchanged together. */
struct ruleset {
    unsigned refs;
    struct ruleset *next;        /* of the retired */
    struct rules *rules;         /* NULL: none */
    struct metrics_bound *bound; /* NULL where there are no metrics */
};

struct server_state {
    struct stint_table *table;
    struct server_state_options options;
    struct metrics *metrics;
    struct top_keys *top_keys; /* NULL: not counted */
    struct pools *pools;
    struct unmatched *unmatched;
    struct server_clock clock;
    bool began_with_rules;
    pthread_mutex_t lock; /* of the rulesets, while they are exchanged */
    struct ruleset *ruleset;
    struct ruleset *retired; /* no longer in force; the server state has a reference to each */
    uint64_t generation;     /* raised after the ruleset is in force */
};

/* What does not change while it is open. */
static inline bool server_state_is_valid(const struct server_state *server_state)
{
    return server_state->table != NULL && server_state->options.workers > 0 &&
           server_state->options.workers <= WORKERS_MAX && server_state->pools != NULL &&
           server_state->unmatched != NULL;
}

/* The rules in force, with a reference; *generation is at most theirs. */
struct ruleset *server_state_ruleset(struct server_state *server_state, uint64_t *generation);
struct ruleset *ruleset_ref(struct ruleset *ruleset); /* NULL is allowed */
void ruleset_unref(struct ruleset *ruleset);

#endif
