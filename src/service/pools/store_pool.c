/* SPDX-License-Identifier: MIT */
#include "service/pools/store_pool.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DENIAL_MAX_NS NS_PER_S

struct roster {
    unsigned refs;
    const struct pools_stores *stores;
    struct backend_pool_list *list;
    size_t n_keys;
    struct parsed_key keys[];
};

/* The store's last reply to next, for all callers with the same request. */
struct denial {
    uint32_t cost;
    bool probe;
    uint64_t from_ns, until_ns; /* equal: there is no such reply */
    struct stint_pool_answer answer;
};

struct store_pool {
    struct pools_name name;
    const struct pools_stores *stores;
    size_t store;
    uint8_t order;
    pthread_mutex_t lock; /* of all below, held briefly */
    struct roster *roster;
    struct denial denial;
};

/* ---- Rosters --------------------------------------------------------------------------------- */

static void roster_unref(struct roster *roster)
{
    assert(roster == NULL || __atomic_load_n(&roster->refs, __ATOMIC_RELAXED) > 0);
    /* acq_rel: all uses of the roster come before it is freed. */
    if (roster == NULL || __atomic_sub_fetch(&roster->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (roster->list != NULL)
        roster->stores->list_free(roster->list);
    free(roster);
}

/* Copies the keys, without `but` and with `more` if given, if the store can keep them. */
static int roster_new(struct roster **made, const struct store_pool *pool,
                      const struct parsed_key *keys, size_t n_keys, const struct parsed_key *but,
                      const struct parsed_key *more, struct stint_error *error)
{
    size_t most = n_keys + (more != NULL);
    struct roster *roster = calloc(1, sizeof(*roster) + most * sizeof(struct parsed_key));
    struct stint_pool_key *listed = calloc(most + 1, sizeof(*listed));
    if (roster == NULL || listed == NULL) {
        free(roster);
        free(listed);
        return err_set(error, STINT_E_SYSTEM, "no memory for %zu keys", most);
    }
    roster->refs = 1;
    roster->stores = pool->stores;
    for (size_t i = 0; i < n_keys; i++)
        if (&keys[i] != but)
            parsed_key_copy(&roster->keys[roster->n_keys++], &keys[i]);
    if (more != NULL)
        parsed_key_copy(&roster->keys[roster->n_keys++], more);
    for (size_t i = 0; i < roster->n_keys; i++)
        listed[i] = roster->keys[i].key;
    const struct backend_pool_definition given = {span_of_text(pool->name.text), pool->order,
                                                  listed, roster->n_keys};
    int code = pool->stores->list_new(pool->stores->arg, pool->store, &given, &roster->list, error);
    free(listed);
    if (code == 0)
        *made = roster;
    else
        roster_unref(roster);
    return code;
}

/* Replaces the current roster. */
static void put_in_force(struct store_pool *pool, struct roster *roster)
{
    pthread_mutex_lock(&pool->lock);
    struct roster *old = pool->roster;
    pool->roster = roster;
    pool->denial = (struct denial){0};
    pthread_mutex_unlock(&pool->lock);
    roster_unref(old);
}

static const struct parsed_key *find_key(const struct roster *roster, const char *name)
{
    for (size_t i = 0; i < roster->n_keys; i++)
        if (strcmp(roster->keys[i].name.text, name) == 0)
            return &roster->keys[i];
    return NULL;
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static int find_store(const struct pools_stores *stores, struct span name, size_t *store,
                      struct stint_error *error)
{
    assert(name.len > 0);
    for (*store = 0; *store < stores->n_names; ++*store)
        if (span_equals(name, stores->names[*store]))
            return 0;
    int len = name.len < STINT_POOL_NAME_MAX ? (int)name.len : STINT_POOL_NAME_MAX;
    return err_set(error, STINT_E_MISMATCH,
                   "there is no store `%.*s`: expected the name of one of `store`; a store without "
                   "a name is called `default`",
                   len, (const char *)name.ptr);
}

int store_pool_new(struct store_pool **made, const struct pools_stores *stores,
                   const struct pools_definition *given, const struct parsed_keys *keys,
                   struct stint_error *error)
{
    struct store_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool");
    pool->stores = stores;
    pool->order = given->order;
    pthread_mutex_init(&pool->lock, NULL);
    int code = pools_name_copy(&pool->name, given->name, "pool", error);
    if (code == 0)
        code = find_store(stores, given->store, &pool->store, error);
    if (code == 0 && given->order > STINT_LEAST_USED)
        code = err_set(error, STINT_E_RANGE, "unknown order of a pool");
    if (code == 0)
        code = roster_new(&pool->roster, pool, keys->all, keys->n, NULL, NULL, error);
    if (code == 0)
        *made = pool;
    else
        store_pool_free(pool);
    return code;
}

void store_pool_free(struct store_pool *pool)
{
    if (pool == NULL)
        return;
    roster_unref(pool->roster);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

int store_pool_check_fits(const struct store_pool *pool, const struct store_pool *other,
                          struct stint_error *error)
{
    if (pool->store == other->store && pool->order == other->order)
        return 0;
    return err_set(error, STINT_E_MISMATCH,
                   "the order and the store of pool %s cannot be changed while the server runs",
                   pool->name.text);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

void store_pool_replace_keys(struct store_pool *pool, struct store_pool *from)
{
    assert(pool->store == from->store && pool->order == from->order);
    put_in_force(pool, from->roster);
    from->roster = NULL;
    store_pool_free(from);
}

/* Without `but` and with `more` if given. */
static int change_keys(struct store_pool *pool, const struct parsed_key *but,
                       const struct parsed_key *more, struct stint_error *error)
{
    const struct roster *old = pool->roster;
    struct roster *made = NULL;
    int code = roster_new(&made, pool, old->keys, old->n_keys, but, more, error);
    if (code == 0)
        put_in_force(pool, made);
    return code;
}

int store_pool_add(struct store_pool *pool, const struct parsed_key *key, struct stint_error *error)
{
    if (find_key(pool->roster, key->name.text) != NULL)
        return err_set(error, STINT_E_MISMATCH, "key %s is in the pool already", key->name.text);
    return parsed_key_fault(change_keys(pool, NULL, key, error), error);
}

int store_pool_remove(struct store_pool *pool, const char *name, struct stint_error *error)
{
    const struct parsed_key *key = find_key(pool->roster, name);
    if (key == NULL)
        return err_set(error, STINT_E_GONE, "the pool has no key %s", name);
    return change_keys(pool, key, NULL, error);
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* One store request, with the memory of its answer. */
struct pool_pending {
    struct pending_extra extra;
    struct pending *pending;
    struct backend_pools *pools;
    struct roster *roster;
    struct backend_pool_op op;
    struct stint_pool_status statuses[];
};

static struct pool_pending *pool_pending_of(struct pending_extra *extra)
{
    return (struct pool_pending *)(void *)extra;
}

static void free_pool_pending(struct pending_extra *extra)
{
    struct pool_pending *asked = pool_pending_of(extra);
    if (asked->op.answer.outcome == BACKEND_WAITS)
        asked->pools->ops->forget(asked->pools, &asked->op);
    roster_unref(asked->roster);
    free(asked);
}

static void take_answer(struct backend_pool_op *op, uint64_t now_ns)
{
    assert(op->arg != NULL);
    struct pending *pending = ((struct pool_pending *)op->arg)->pending;
    op->answer.error = pending_keep(pending, op->answer.error);
    pending_answered(pending, now_ns);
}

/* The pending request owns a reference to the roster. */
static int send(struct store_pool *pool, struct pools_caller *caller,
                struct backend_pool_request *ask, struct stint_error *error)
{
    struct backend_pools *pools = caller->stores != NULL ? caller->stores[pool->store] : NULL;
    if (pools == NULL)
        return err_set(error, STINT_E_SYSTEM, "the store of the pool is not available here");
    pthread_mutex_lock(&pool->lock);
    struct roster *roster = pool->roster;
    __atomic_add_fetch(&roster->refs, 1, __ATOMIC_RELAXED); /* relaxed: the pool has a reference */
    pthread_mutex_unlock(&pool->lock);
    struct pool_pending *asked =
        calloc(1, sizeof(*asked) + roster->n_keys * sizeof(struct stint_pool_status));
    struct pending *pending =
        pending_new(caller->pending_requests, ask->now_ns, caller->timeout_ns);
    if (asked == NULL || pending == NULL) {
        pending_free(pending);
        free(asked);
        roster_unref(roster);
        return err_set(error, STINT_E_SYSTEM, "no memory for a store request");
    }
    *asked = (struct pool_pending){.extra.free = free_pool_pending,
                                   .pending = pending,
                                   .pools = pools,
                                   .roster = roster,
                                   .op = {.answered = take_answer, .arg = asked}};
    asked->op.answer.statuses = asked->statuses;
    asked->op.answer.outcome = BACKEND_FAILED;
    pending->extra = &asked->extra;
    caller->pending = pending;
    ask->list = roster->list;
    ask->deadline_ns = pending->deadline_ns;
    pools->ops->ask(pools, ask, &asked->op);
    pending->n_waiting = asked->op.answer.outcome == BACKEND_WAITS;
    return 0;
}

/* A reply for a roster that is no longer in force is not valid for the current one. NULL: none. */
static void keep_denial(struct store_pool *pool, const struct roster *of,
                        const struct denial *denial)
{
    pthread_mutex_lock(&pool->lock);
    if (of == NULL || of == pool->roster)
        pool->denial = *denial;
    pthread_mutex_unlock(&pool->lock);
}

int store_pool_ask(struct store_pool *pool, struct pools_caller *caller,
                   struct backend_pool_request *ask, const struct backend_pool_answer **answer,
                   struct stint_error *error)
{
    assert(caller != NULL);
    int code = caller->pending == NULL ? send(pool, caller, ask, error) : 0;
    if (code != 0)
        return code;
    struct pending_extra *extra = caller->pending->extra;
    if (extra == NULL || extra->free != free_pool_pending)
        return err_set(error, STINT_E_SYSTEM, "the request differs from the pending one");
    *answer = &pool_pending_of(extra)->op.answer;
    switch ((*answer)->outcome) {
    case BACKEND_WAITS:
        return POOLS_WAITS;
    case BACKEND_DECIDED:
        if (ask->verb != BACKEND_POOL_NEXT && ask->verb != BACKEND_POOL_STATUS)
            keep_denial(pool, NULL, &(struct denial){0});
        return 0;
    case BACKEND_REFUSED:
        return err_set(error, STINT_E_GONE, "%s", (*answer)->error);
    default:
        return err_set(error, STINT_E_SYSTEM, "%s", (*answer)->error);
    }
}

static bool is_denied(struct store_pool *pool, const struct stint_pool_ask *ask,
                      struct stint_pool_answer *answer)
{
    pthread_mutex_lock(&pool->lock);
    const struct denial *denial = &pool->denial;
    bool is_known = denial->cost == ask->cost && denial->probe == ask->probe &&
                    denial->from_ns <= ask->now_ns && ask->now_ns < denial->until_ns;
    if (is_known) {
        uint64_t since_ns = ask->now_ns - denial->from_ns;
        *answer = denial->answer;
        answer->granted_at_ns = add_sat(answer->granted_at_ns, since_ns);
        if (answer->wait_ns != STINT_NEVER_NS)
            answer->wait_ns -= since_ns;
    }
    pthread_mutex_unlock(&pool->lock);
    return is_known;
}

int store_pool_next(struct store_pool *pool, struct pools_caller *caller,
                    const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
                    struct stint_error *error)
{
    assert(caller != NULL);
    if (caller->pending == NULL && is_denied(pool, ask, answer))
        return 0;
    struct backend_pool_request asked = {
        .verb = BACKEND_POOL_NEXT, .cost = ask->cost, .probe = ask->probe, .now_ns = ask->now_ns};
    const struct backend_pool_answer *from = NULL;
    int code = store_pool_ask(pool, caller, &asked, &from, error);
    if (code != 0)
        return code;
    *answer = from->next;
    if (answer->name != NULL)
        return 0;
    /* The store decided after it was asked, so the time counts from then. */
    uint64_t from_ns = caller->pending->now_ns;
    uint64_t until_ns = add_sat(from_ns, min_u64(answer->wait_ns, DENIAL_MAX_NS));
    const struct denial denial = {ask->cost, ask->probe, from_ns, until_ns, *answer};
    keep_denial(pool, pool_pending_of(caller->pending->extra)->roster, &denial);
    return 0;
}

int store_pool_each(struct store_pool *pool, struct pools_caller *caller, uint64_t now_ns,
                    bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
                    struct stint_error *error)
{
    assert(visit != NULL);
    struct backend_pool_request ask = {.verb = BACKEND_POOL_STATUS, .now_ns = now_ns};
    const struct backend_pool_answer *answer;
    int code = store_pool_ask(pool, caller, &ask, &answer, error);
    if (code != 0)
        return code;
    size_t n_keys = pool_pending_of(caller->pending->extra)->roster->n_keys, i = 0;
    while (i < n_keys && visit(&answer->statuses[i], arg))
        i++;
    return 0;
}
