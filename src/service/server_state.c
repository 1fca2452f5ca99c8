/* SPDX-License-Identifier: MIT */
/*
 * The state that workers share. Rules are exchanged under a lock that no request waits for: a
 * service keeps a reference of its own, and compares one number to detect new rules. Freeing
 * 100,000 rules takes milliseconds, so the server state holds the last reference, never a worker.
 */
#include "service/server_state.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "decide/evaluation.h"
#include "table/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define ID_LIFETIME_DEFAULT_NS (10 * NS_PER_MIN)

/* ---- Rules ----------------------------------------------------------------------------------- */

static int store_accepts_rule(const struct server_state *server_state, const struct rule *rule,
                              struct stint_error *error)
{
    if (rule->store.at == 0 || rule->unlimited || server_state->options.store_accepts == NULL)
        return 0;
    int code = server_state->options.store_accepts(server_state->options.store_arg, rule->store.at,
                                                   rule, &rule->quota, error);
    if (code == 0 && rule->has_shadow)
        code = server_state->options.store_accepts(server_state->options.store_arg, rule->store.at,
                                                   rule, &rule->shadow, error);
    return code;
}

/* Whether the stores that rules name can keep states of their quotas; otherwise reports the first
 * that cannot. */
static int stores_accept(const struct server_state *server_state, const struct rules *rules,
                         struct stint_error *error)
{
    assert(rules != NULL);
    struct stint_error why;
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        int code = store_accepts_rule(server_state, rule, &why);
        if (code != 0)
            return err_set(error, code, "%s: %s", rule_position(rule).text, why.message);
    }
    return 0;
}

static struct ruleset *ruleset_new(struct server_state *server_state, struct rules *rules,
                                   struct stint_error *error)
{
    if (rules != NULL && (evaluation_accepts(server_state->table, rules, error) != 0 ||
                          stores_accept(server_state, rules, error) != 0))
        return NULL;
    err_set(error, STINT_E_SYSTEM, "no memory to put rules in force");
    struct ruleset *ruleset = calloc(1, sizeof(*ruleset));
    if (ruleset == NULL)
        return NULL;
    ruleset->refs = 1;
    if (rules == NULL)
        return ruleset;
    ruleset->rules = rules_ref(rules);
    ruleset->bound = metrics_bind(server_state->metrics, rules);
    if (ruleset->bound != NULL)
        return ruleset;
    ruleset_unref(ruleset);
    return NULL;
}

struct ruleset *ruleset_ref(struct ruleset *ruleset)
{
    assert(ruleset == NULL || __atomic_load_n(&ruleset->refs, __ATOMIC_RELAXED) > 0);
    if (ruleset != NULL) /* relaxed: the caller already has a reference */
        __atomic_add_fetch(&ruleset->refs, 1, __ATOMIC_RELAXED);
    return ruleset;
}

void ruleset_unref(struct ruleset *ruleset)
{
    assert(ruleset == NULL || __atomic_load_n(&ruleset->refs, __ATOMIC_RELAXED) > 0);
    /* acq_rel: all uses of the rules come before they are freed. */
    if (ruleset == NULL || __atomic_sub_fetch(&ruleset->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    metrics_unbind(ruleset->bound);
    rules_unref(ruleset->rules);
    free(ruleset);
}

struct ruleset *server_state_ruleset(struct server_state *server_state, uint64_t *generation)
{
    assert(server_state_is_valid(server_state));
    pthread_mutex_lock(&server_state->lock);
    struct ruleset *ruleset = server_state->ruleset;
    __atomic_add_fetch(&ruleset->refs, 1, __ATOMIC_RELAXED); /* relaxed: the lock keeps it alive */
    *generation = server_state_generation(server_state);
    pthread_mutex_unlock(&server_state->lock);
    return ruleset;
}

uint64_t server_state_loads(const struct server_state *server_state)
{
    assert(server_state_is_valid(server_state));
    return server_state_generation(server_state) + server_state->began_with_rules;
}

int server_state_set_rules(struct server_state *server_state, struct rules *rules,
                           struct stint_error *error)
{
    assert(server_state_is_valid(server_state));
    struct stint_error why;
    struct ruleset *ruleset = ruleset_new(server_state, rules, &why);
    if (ruleset == NULL)
        return err_set(error, why.code, "%s", why.message);
    pthread_mutex_lock(&server_state->lock);
    server_state->ruleset->next = server_state->retired;
    server_state->retired = server_state->ruleset;
    server_state->ruleset = ruleset;
    /* release: a thread that sees the number finds these rules, or later ones. */
    __atomic_add_fetch(&server_state->generation, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&server_state->lock);
    server_state_free_retired(server_state);
    return 0;
}

void server_state_free_retired(struct server_state *server_state)
{
    struct ruleset *unused = NULL;
    pthread_mutex_lock(&server_state->lock);
    for (struct ruleset **at = &server_state->retired; *at != NULL;) {
        struct ruleset *ruleset = *at;
        /* acquire: all workers' uses come before it is freed. Only a thread that has a reference to
         * rules no longer in force takes another. */
        if (__atomic_load_n(&ruleset->refs, __ATOMIC_ACQUIRE) > 1) {
            at = &ruleset->next;
            continue;
        }
        *at = ruleset->next;
        ruleset->next = unused;
        unused = ruleset;
    }
    pthread_mutex_unlock(&server_state->lock);
    while (unused != NULL) {
        struct ruleset *next = unused->next;
        ruleset_unref(unused);
        unused = next;
    }
}

struct rules *server_state_rules(struct server_state *server_state)
{
    assert(server_state_is_valid(server_state));
    pthread_mutex_lock(&server_state->lock);
    struct rules *rules =
        server_state->ruleset->rules != NULL ? rules_ref(server_state->ruleset->rules) : NULL;
    pthread_mutex_unlock(&server_state->lock);
    return rules;
}

uint64_t server_state_generation(const struct server_state *server_state)
{
    return __atomic_load_n(&server_state->generation,
                           __ATOMIC_ACQUIRE); /* acquire: see server_state_set_rules() */
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static bool open_parts(struct server_state *server_state,
                       const struct server_state_options *options, struct stint_error *error)
{
    err_set(error, STINT_E_SYSTEM, "no memory for the metrics of %u workers", options->workers);
    server_state->metrics = metrics_new(options->workers);
    server_state->pools = pools_new(options->table);
    server_state->unmatched = unmatched_new();
    if (!options->without_top_keys)
        server_state->top_keys =
            top_keys_new(options->workers, options->top_keys_max, options->top_keys_half_life_ns);
    if (server_state->metrics == NULL || server_state->pools == NULL ||
        server_state->unmatched == NULL ||
        (server_state->top_keys == NULL && !options->without_top_keys))
        return false;
    if (options->metrics_names != 0)
        metrics_count_hits(server_state->metrics, options->metrics_names,
                           options->near_thousandths);
    server_state->ruleset = ruleset_new(server_state, options->rules, error);
    return server_state->ruleset != NULL;
}

int server_state_open(struct server_state **server_state,
                      const struct server_state_options *options, struct stint_error *error)
{
    assert(options->table != NULL);
    if (options->workers < 1 || options->workers > WORKERS_MAX)
        return err_set(error, STINT_E_RANGE, "a server has 1 to %d workers", WORKERS_MAX);
    struct server_state *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a server");
    made->table = options->table;
    made->options = *options;
    made->options.rules = NULL; /* may be freed before the server state */
    if (options->id_lifetime_ns == 0)
        made->options.id_lifetime_ns = ID_LIFETIME_DEFAULT_NS;
    made->began_with_rules = options->rules != NULL;
    pthread_mutex_init(&made->lock, NULL);
    server_clock_init(&made->clock, options->table, options->has_virtual_clock);
    struct stint_error why;
    if (!open_parts(made, options, &why)) {
        server_state_close(made);
        return err_set(error, why.code, "%s", why.message);
    }
    *server_state = made;
    return 0;
}

void server_state_close(struct server_state *server_state)
{
    if (server_state == NULL)
        return;
    server_state_free_retired(server_state);
    ruleset_unref(server_state->ruleset);
    pools_free(server_state->pools);
    unmatched_free(server_state->unmatched);
    top_keys_free(server_state->top_keys);
    metrics_free(server_state->metrics);
    pthread_mutex_destroy(&server_state->lock);
    server_clock_deinit(&server_state->clock);
    free(server_state);
}

struct stint_table *server_state_table(const struct server_state *server_state)
{
    assert(server_state_is_valid(server_state));
    return server_state->table;
}

struct server_clock *server_state_clock(struct server_state *server_state)
{
    assert(server_state_is_valid(server_state));
    return &server_state->clock;
}

struct metrics *server_state_metrics(struct server_state *server_state)
{
    assert(server_state_is_valid(server_state));
    return server_state->metrics;
}

bool server_state_is_ready(const struct server_state *server_state, bool (*is_ready)(void *arg),
                           void *arg)
{
    assert(server_state_is_valid(server_state));
    return (server_state->metrics == NULL || metrics_has_stores(server_state->metrics)) &&
           (is_ready == NULL || is_ready(arg));
}

struct top_keys *server_state_top_keys(struct server_state *server_state)
{
    assert(server_state_is_valid(server_state));
    return server_state->top_keys;
}

struct pools *server_state_pools(struct server_state *server_state)
{
    assert(server_state_is_valid(server_state));
    return server_state->pools;
}

struct unmatched *server_state_unmatched(struct server_state *server_state)
{
    assert(server_state_is_valid(server_state));
    return server_state->unmatched;
}

/* ---- The clock: a virtual time is in the table, so processes that have it open see it, too ----
 */

void server_clock_init(struct server_clock *clock, struct stint_table *table, bool is_virtual)
{
    assert(table != NULL);
    *clock = (struct server_clock){.table = table, .is_virtual = is_virtual};
    pthread_mutex_init(&clock->lock, NULL);
}

void server_clock_deinit(struct server_clock *clock)
{
    pthread_mutex_destroy(&clock->lock);
}

void server_clock_on_move(struct server_clock *clock, void (*moved)(void *arg), void *arg)
{
    assert(clock->table != NULL && moved != NULL);
    clock->moved = moved;
    clock->arg = arg;
}

uint64_t server_clock_io_now(const struct server_clock *clock)
{
    assert(clock->table != NULL);
    return clock->is_virtual ? clock_boot_ns() : stint_now(clock->table);
}

uint64_t server_clock_now(const struct server_clock *clock, uint64_t io_now_ns)
{
    assert(clock->table != NULL);
    return clock->is_virtual ? stint_now(clock->table) : io_now_ns;
}

uint64_t server_clock_io_deadline(const struct server_clock *clock, uint64_t at_ns)
{
    assert(clock->table != NULL);
    if (!clock->is_virtual || at_ns == STINT_NEVER_NS)
        return at_ns;
    return at_ns <= stint_now(clock->table) ? 0 : SERVER_CLOCK_STANDS;
}

/* The lock is held. */
static int try_move(struct server_clock *clock, uint64_t was_ns, uint64_t now_ns,
                    struct stint_error *error)
{
    assert(clock->is_virtual);
    if (now_ns < was_ns)
        return err_set(error, STINT_E_MISMATCH,
                       "the clock is at %" PRIu64 " ns and never goes back to %" PRIu64
                       "; start another server, with another state file, to begin anew",
                       was_ns, now_ns);
    if (now_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE,
                       "the clock is at %" PRIu64 " ns and ends at %" PRIu64
                       " ns, after 18 years; expected a time up to then",
                       was_ns, STINT_NOW_MAX);
    stint_table_set_now(clock->table, now_ns);
    /* The first call may only finish a pass that began before the move; after the second all
     * reservations that expired by now are closed. */
    stint_expire(clock->table, now_ns, UINT64_MAX);
    stint_expire(clock->table, now_ns, UINT64_MAX);
    return 0;
}

static int move(struct server_clock *clock, bool is_by, uint64_t ns, struct stint_error *error)
{
    assert(clock->table != NULL);
    if (!clock->is_virtual)
        return err_set(error, STINT_E_MISMATCH,
                       "the server's clock is real and cannot be moved; start the server with "
                       "--clock virtual to test with it");
    pthread_mutex_lock(&clock->lock);
    uint64_t was_ns = stint_now(clock->table);
    int code = try_move(clock, was_ns, is_by ? add_sat(was_ns, ns) : ns, error);
    pthread_mutex_unlock(&clock->lock);
    if (code == 0 && clock->moved != NULL)
        clock->moved(clock->arg);
    return code;
}

int server_clock_set(struct server_clock *clock, uint64_t now_ns, struct stint_error *error)
{
    return move(clock, false, now_ns, error);
}

int server_clock_advance(struct server_clock *clock, uint64_t by_ns, struct stint_error *error)
{
    return move(clock, true, by_ns, error);
}

void server_clock_expire(struct server_clock *clock, uint64_t slots_max)
{
    assert(clock->table != NULL);
    pthread_mutex_lock(&clock->lock);
    stint_expire(clock->table, stint_now(clock->table), slots_max);
    pthread_mutex_unlock(&clock->lock);
}
