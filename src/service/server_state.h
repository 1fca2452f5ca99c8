/* SPDX-License-Identifier: MIT */
/* The server state as services see it: the rules in force and what all services count in. */
#ifndef STINT_SERVICE_SERVER_STATE_H
#define STINT_SERVICE_SERVER_STATE_H

#include "rules/rules.h"
#include "service/metrics/metrics.h"
#include "service/pools/pools.h"
#include "service/server_clock.h"
#include "service/service.h"
#include "service/top_keys.h"
#include "service/traces.h"

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
    struct traces *traces; /* NULL: none */
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

/* ---- Unmatched names ------------------------------------------------------------------------- */

/*
 * Descriptors that no rule limits, by name, so that the log reports each once: mistyped domains and
 * keys allow everything, and nothing else shows it. Keeps the first UNMATCHED_MAX names of each
 * kind, until other rules are in force, so that no client can fill a log, or memory, with names.
 * Values are not kept. Any thread.
 */

#define UNMATCHED_MAX 16       /* of each kind */
#define UNMATCHED_TEXT_MAX 128 /* bytes of a name */

enum unmatched_kind { UNMATCHED_DOMAIN, UNMATCHED_DESCRIPTOR, UNMATCHED_KINDS };

struct unmatched_name {
    uint64_t id;
    uint8_t kind;
    bool is_last;                        /* further ones of the kind are not reported */
    char domain[UNMATCHED_TEXT_MAX + 1]; /* bytes of a request, as they came */
    char keys[UNMATCHED_TEXT_MAX + 1];   /* "tenant.path"; of UNMATCHED_DESCRIPTOR */
};

struct unmatched;

struct unmatched *unmatched_new(void);            /* NULL: no memory */
void unmatched_free(struct unmatched *unmatched); /* NULL is fine */

/* A descriptor matched no rule; costs a few comparisons where its name is recorded already. */
void unmatched_note(struct unmatched *unmatched, enum unmatched_kind kind, struct span domain,
                    const struct descriptor *descriptor);
/* The next name that was not reported yet; false: there is none. For rules of `generation`. */
bool unmatched_next(struct unmatched *unmatched, uint64_t generation, struct unmatched_name *name);

#endif
