/* SPDX-License-Identifier: MIT */
/*
 * What the workers share. Rules change hands under a lock that no request waits for: a service
 * keeps a reference of its own, and looks at one number to know that others are in force. To free
 * 100,000 rules takes milliseconds: the last reference to rules is the hub's, never a worker's.
 */
#include "service/hub.h"

#include "base/err.h"
#include "base/ns.h"
#include "decide/question.h"

#include <stdlib.h>

#define ID_LIFETIME_DEFAULT_NS (10 * NS_PER_MIN)

/* ---- Rules ----------------------------------------------------------------------------------- */

static int store_accepts_rule(const struct hub *hub, const struct rule *rule,
                              struct stint_error *error)
{
    if (rule->store.at == 0 || rule->unlimited || hub->store_accepts == NULL)
        return 0;
    int code = hub->store_accepts(hub->store_arg, rule->store.at, rule, &rule->quota, error);
    if (code == 0 && rule->has_shadow)
        code = hub->store_accepts(hub->store_arg, rule->store.at, rule, &rule->shadow, error);
    return code;
}

/* Whether the stores that rules name can keep states of their quotas; else the first that cannot.
 */
static int stores_accept(const struct hub *hub, const struct rules *rules,
                         struct stint_error *error)
{
    struct stint_error why;
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        int code = store_accepts_rule(hub, rule, &why);
        if (code != 0)
            return err_set(error, code, "%s:%u: %s", rule->file, rule->line, why.sentence);
    }
    return 0;
}

static struct ruleset *ruleset_new(struct hub *hub, struct rules *rules, struct stint_error *error)
{
    if (rules != NULL &&
        (question_accepts(hub->table, rules, error) != 0 || stores_accept(hub, rules, error) != 0))
        return NULL;
    err_set(error, STINT_E_SYSTEM, "no memory to put rules in force");
    struct ruleset *ruleset = calloc(1, sizeof(*ruleset));
    if (ruleset == NULL)
        return NULL;
    ruleset->refs = 1;
    if (rules == NULL)
        return ruleset;
    ruleset->rules = rules_ref(rules);
    ruleset->bound = metrics_bind(hub->metrics, rules);
    if (ruleset->bound != NULL)
        return ruleset;
    ruleset_unref(ruleset);
    return NULL;
}

struct ruleset *ruleset_ref(struct ruleset *ruleset)
{
    if (ruleset != NULL) /* relaxed: whoever has one keeps it alive */
        __atomic_add_fetch(&ruleset->refs, 1, __ATOMIC_RELAXED);
    return ruleset;
}

void ruleset_unref(struct ruleset *ruleset)
{
    /* acq_rel: who frees it comes after everybody who used it. */
    if (ruleset == NULL || __atomic_sub_fetch(&ruleset->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    metrics_unbind(ruleset->bound);
    rules_unref(ruleset->rules);
    free(ruleset);
}

struct ruleset *hub_ruleset(struct hub *hub, uint64_t *generation)
{
    pthread_mutex_lock(&hub->lock);
    struct ruleset *ruleset = hub->ruleset;
    __atomic_add_fetch(&ruleset->refs, 1, __ATOMIC_RELAXED); /* relaxed: the lock keeps it alive */
    *generation = hub_generation(hub);
    pthread_mutex_unlock(&hub->lock);
    return ruleset;
}

uint64_t hub_loads(const struct hub *hub)
{
    return hub_generation(hub) + hub->began_with_rules;
}

int hub_set_rules(struct hub *hub, struct rules *rules, struct stint_error *error)
{
    struct stint_error why;
    struct ruleset *ruleset = ruleset_new(hub, rules, &why);
    if (ruleset == NULL)
        return err_set(error, why.code, "%s", why.sentence);
    pthread_mutex_lock(&hub->lock);
    hub->ruleset->next = hub->retired;
    hub->retired = hub->ruleset;
    hub->ruleset = ruleset;
    /* release: whoever sees the number finds these rules, or later ones. */
    __atomic_add_fetch(&hub->generation, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&hub->lock);
    hub_free_retired(hub);
    return 0;
}

void hub_free_retired(struct hub *hub)
{
    struct ruleset *unused = NULL;
    pthread_mutex_lock(&hub->lock);
    for (struct ruleset **at = &hub->retired; *at != NULL;) {
        struct ruleset *ruleset = *at;
        /* acquire: it is freed after all that workers did with it. Only who has a reference to what
         * is no longer in force takes another. */
        if (__atomic_load_n(&ruleset->refs, __ATOMIC_ACQUIRE) > 1) {
            at = &ruleset->next;
            continue;
        }
        *at = ruleset->next;
        ruleset->next = unused;
        unused = ruleset;
    }
    pthread_mutex_unlock(&hub->lock);
    while (unused != NULL) {
        struct ruleset *next = unused->next;
        ruleset_unref(unused);
        unused = next;
    }
}

struct rules *hub_rules(struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    struct rules *rules = hub->ruleset->rules != NULL ? rules_ref(hub->ruleset->rules) : NULL;
    pthread_mutex_unlock(&hub->lock);
    return rules;
}

uint64_t hub_generation(const struct hub *hub)
{
    return __atomic_load_n(&hub->generation, __ATOMIC_ACQUIRE); /* acquire: see hub_set_rules() */
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static bool open_parts(struct hub *hub, const struct hub_options *options,
                       struct stint_error *error)
{
    err_set(error, STINT_E_SYSTEM, "no memory for the figures of %u workers", options->workers);
    hub->metrics = metrics_new(options->workers);
    hub->pools = pools_new(options->table);
    hub->unmatched = unmatched_new();
    if (!options->without_popular)
        hub->popular =
            popular_new(options->workers, options->popular_keys, options->popular_half_life_ns);
    if (hub->metrics == NULL || hub->pools == NULL || hub->unmatched == NULL ||
        (hub->popular == NULL && !options->without_popular))
        return false;
    if (options->metrics_names != 0)
        metrics_count_hits(hub->metrics, options->metrics_names, options->near_thousandths);
    hub->ruleset = ruleset_new(hub, options->rules, error);
    return hub->ruleset != NULL;
}

int hub_open(struct hub **hub, const struct hub_options *options, struct stint_error *error)
{
    if (options->workers < 1 || options->workers > WORKERS_MAX)
        return err_set(error, STINT_E_RANGE, "a server has 1 to %d workers", WORKERS_MAX);
    struct hub *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a server");
    made->table = options->table;
    made->store_accepts = options->store_accepts;
    made->store_arg = options->store_arg;
    made->workers = options->workers;
    made->shadow_mode = options->shadow_mode;
    made->quota_mode = options->quota_mode;
    made->charges_hits = options->charges_hits;
    made->checks_debt = options->checks_debt;
    made->began_with_rules = options->rules != NULL;
    made->id_lifetime_ns =
        options->id_lifetime_ns > 0 ? options->id_lifetime_ns : ID_LIFETIME_DEFAULT_NS;
    pthread_mutex_init(&made->lock, NULL);
    server_clock_init(&made->clock, options->table, options->has_virtual_clock);
    struct stint_error why;
    if (!open_parts(made, options, &why)) {
        hub_close(made);
        return err_set(error, why.code, "%s", why.sentence);
    }
    *hub = made;
    return 0;
}

void hub_close(struct hub *hub)
{
    if (hub == NULL)
        return;
    hub_free_retired(hub);
    ruleset_unref(hub->ruleset);
    pools_free(hub->pools);
    unmatched_free(hub->unmatched);
    popular_free(hub->popular);
    metrics_free(hub->metrics);
    pthread_mutex_destroy(&hub->lock);
    server_clock_deinit(&hub->clock);
    free(hub);
}

struct stint_table *hub_table(const struct hub *hub)
{
    return hub->table;
}

struct server_clock *hub_clock(struct hub *hub)
{
    return &hub->clock;
}

struct metrics *hub_metrics(struct hub *hub)
{
    return hub->metrics;
}

bool hub_is_ready(const struct hub *hub, bool (*is_ready)(void *arg), void *arg)
{
    return (hub->metrics == NULL || metrics_has_stores(hub->metrics)) &&
           (is_ready == NULL || is_ready(arg));
}

struct popular *hub_popular(struct hub *hub)
{
    return hub->popular;
}

struct pools *hub_pools(struct hub *hub)
{
    return hub->pools;
}

struct unmatched *hub_unmatched(struct hub *hub)
{
    return hub->unmatched;
}
