/* SPDX-License-Identifier: MIT */
/*
 * A pool whose states are in a store. Its keys are a roster, which is replaced as a whole; a
 * pending request keeps its roster until the answer has been used. After a store's reply that no
 * key is free, it gets no request before one is free, at most for a second: that reply costs the
 * store most.
 */
#include "service/pool_in_store.h"

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

struct pool_in_store {
    const struct pools_stores *stores;
    size_t store;
    uint8_t order;
    struct pools_name name;
    pthread_mutex_t lock; /* of all below, held briefly */
    struct roster *roster;
    struct denial denial;
};

/* One store request, with the memory of its answer. */
struct pool_pending {
    struct pending_extra extra;
    struct pending *pending;
    struct backend_pools *pools;
    struct roster *roster;
    struct backend_pool_op op;
    struct stint_pool_status statuses[];
};

/* ---- Rosters --------------------------------------------------------------------------------- */

static struct roster *roster_ref(struct roster *roster)
{
    assert(__atomic_load_n(&roster->refs, __ATOMIC_RELAXED) > 0);
    __atomic_add_fetch(&roster->refs, 1,
                       __ATOMIC_RELAXED); /* relaxed: the caller already has a reference */
    return roster;
}

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

/* Without a list, and with memory for as many keys. */
static struct roster *roster_new(const struct pools_stores *stores, size_t n_keys,
                                 struct stint_error *error)
{
    assert(stores != NULL);
    struct roster *roster = calloc(1, sizeof(*roster) + n_keys * sizeof(struct parsed_key));
    if (roster == NULL) {
        err_set(error, STINT_E_SYSTEM, "no memory for %zu keys", n_keys);
        return NULL;
    }
    roster->refs = 1;
    roster->stores = stores;
    return roster;
}

static void put_key(struct roster *roster, const struct parsed_key *from)
{
    assert(from->key.n_quotas <= STINT_POOL_QUOTAS_MAX);
    struct parsed_key *key = &roster->keys[roster->n_keys++];
    *key = *from;
    key->key.name = key->name.text;
    key->key.quotas = key->quotas;
}

static int make_list(const struct pool_in_store *pool, struct roster *roster,
                     struct stint_error *error)
{
    assert(roster->list == NULL);
    struct stint_pool_key *keys = calloc(roster->n_keys + 1, sizeof(*keys));
    if (keys == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for %zu keys", roster->n_keys);
    for (size_t i = 0; i < roster->n_keys; i++)
        keys[i] = roster->keys[i].key;
    const struct backend_pool_definition given = {
        .name = span_of_text(pool->name.text),
        .order = pool->order,
        .keys = keys,
        .n_keys = roster->n_keys,
    };
    const struct pools_stores *stores = pool->stores;
    int code = stores->list_new(stores->arg, pool->store, &given, &roster->list, error);
    free(keys);
    return code;
}

static void forget_denial(struct pool_in_store *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->denial = (struct denial){0};
    pthread_mutex_unlock(&pool->lock);
}

/* Replaces the current roster, if the store can keep the new one; otherwise frees the new one. */
static int put_in_force(struct pool_in_store *pool, struct roster *roster,
                        struct stint_error *error)
{
    int code = make_list(pool, roster, error);
    if (code == 0) {
        pthread_mutex_lock(&pool->lock);
        struct roster *old = pool->roster;
        pool->roster = roster;
        pool->denial = (struct denial){0};
        pthread_mutex_unlock(&pool->lock);
        roster = old;
    }
    roster_unref(roster);
    return code;
}

static size_t find_key(const struct roster *roster, const char *name)
{
    size_t i = 0;
    while (i < roster->n_keys && strcmp(roster->keys[i].name.text, name) != 0)
        i++;
    return i;
}

/* For assertions. */
__attribute__((unused)) static bool is_valid(const struct pool_in_store *pool)
{
    return pool->stores != NULL && pool->store < pool->stores->n_names &&
           pool->name.text[0] != '\0' && pool->order <= STINT_LEAST_USED;
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct pool_in_store *pool_in_store_new(const struct pools_stores *stores, size_t store,
                                        const struct pools_name *name, uint8_t order)
{
    assert(store < stores->n_names && order <= STINT_LEAST_USED);
    struct pool_in_store *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return NULL;
    pool->stores = stores;
    pool->store = store;
    pool->order = order;
    pool->name = *name;
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

void pool_in_store_free(struct pool_in_store *pool)
{
    if (pool == NULL)
        return;
    roster_unref(pool->roster);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

size_t pool_in_store_at(const struct pool_in_store *pool)
{
    assert(is_valid(pool));
    return pool->store;
}

uint8_t pool_in_store_order(const struct pool_in_store *pool)
{
    assert(is_valid(pool));
    return pool->order;
}

int pool_in_store_set(struct pool_in_store *pool, const struct parsed_key *keys, size_t n_keys,
                      struct stint_error *error)
{
    assert(is_valid(pool));
    struct roster *roster = roster_new(pool->stores, n_keys, error);
    if (roster == NULL)
        return STINT_E_SYSTEM;
    for (size_t i = 0; i < n_keys; i++)
        put_key(roster, &keys[i]);
    return put_in_force(pool, roster, error);
}

int pool_in_store_add(struct pool_in_store *pool, const struct parsed_key *key,
                      struct stint_error *error)
{
    assert(is_valid(pool) && pool->roster != NULL);
    const struct roster *old = pool->roster;
    if (find_key(old, key->name.text) < old->n_keys)
        return err_set(error, STINT_E_MISMATCH, "key %s is in the pool already", key->name.text);
    struct roster *roster = roster_new(pool->stores, old->n_keys + 1, error);
    if (roster == NULL)
        return STINT_E_SYSTEM;
    for (size_t i = 0; i < old->n_keys; i++)
        put_key(roster, &old->keys[i]);
    put_key(roster, key);
    return put_in_force(pool, roster, error);
}

int pool_in_store_take_out(struct pool_in_store *pool, const struct pools_name *key,
                           struct stint_error *error)
{
    assert(is_valid(pool) && pool->roster != NULL);
    const struct roster *old = pool->roster;
    size_t at = find_key(old, key->text);
    if (at == old->n_keys)
        return err_set(error, STINT_E_GONE, "the pool has no key %s", key->text);
    struct roster *roster = roster_new(pool->stores, old->n_keys, error);
    if (roster == NULL)
        return STINT_E_SYSTEM;
    for (size_t i = 0; i < old->n_keys; i++)
        if (i != at)
            put_key(roster, &old->keys[i]);
    return put_in_force(pool, roster, error);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

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
    pending_answered(((struct pool_pending *)op->arg)->pending, now_ns);
}

/* The pending request owns the roster. */
static struct pool_pending *begin(struct pools_caller *caller, struct backend_pools *pools,
                                  struct roster *roster, uint64_t now_ns)
{
    assert(caller->pending == NULL);
    struct pool_pending *asked =
        calloc(1, sizeof(*asked) + roster->n_keys * sizeof(struct stint_pool_status));
    struct pending *pending = pending_new(caller->pending_requests, now_ns, caller->timeout_ns);
    if (asked == NULL || pending == NULL) {
        pending_free(pending);
        free(asked);
        roster_unref(roster);
        return NULL;
    }
    asked->extra.free = free_pool_pending;
    asked->pending = pending;
    asked->pools = pools;
    asked->roster = roster;
    asked->op.answered = take_answer;
    asked->op.arg = asked;
    asked->op.answer.statuses = asked->statuses;
    asked->op.answer.outcome = BACKEND_FAILED;
    pending->extra = &asked->extra;
    caller->pending = pending;
    return asked;
}

static int send(struct pool_in_store *pool, struct pools_caller *caller,
                struct backend_pool_request *ask, struct stint_error *error)
{
    struct backend_pools *pools = caller->stores != NULL ? caller->stores[pool->store] : NULL;
    if (pools == NULL)
        return err_set(error, STINT_E_SYSTEM, "the store of the pool is not available here");
    pthread_mutex_lock(&pool->lock);
    struct roster *roster = roster_ref(pool->roster);
    pthread_mutex_unlock(&pool->lock);
    struct pool_pending *asked = begin(caller, pools, roster, ask->now_ns);
    if (asked == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a store request");
    ask->list = roster->list;
    ask->deadline_ns = asked->pending->deadline_ns;
    pools->ops->ask(pools, ask, &asked->op);
    asked->pending->n_waiting = asked->op.answer.outcome == BACKEND_WAITS;
    return 0;
}

int pool_in_store_ask(struct pool_in_store *pool, struct pools_caller *caller,
                      struct backend_pool_request *ask, const struct backend_pool_answer **answer,
                      struct stint_error *error)
{
    assert(is_valid(pool));
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
            forget_denial(pool);
        return 0;
    case BACKEND_REFUSED:
        return err_set(error, STINT_E_GONE, "%s", (*answer)->error);
    default:
        return err_set(error, STINT_E_SYSTEM, "%s", (*answer)->error);
    }
}

size_t pool_in_store_count(const struct pools_caller *caller)
{
    assert(caller->pending != NULL);
    return pool_pending_of(caller->pending->extra)->roster->n_keys;
}

/* ---- Next ------------------------------------------------------------------------------------ */

static bool is_denied(struct pool_in_store *pool, const struct stint_pool_ask *ask,
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

static void keep_denial(struct pool_in_store *pool, const struct stint_pool_ask *ask,
                        const struct stint_pool_answer *answer)
{
    assert(answer->name == NULL);
    uint64_t lasts_ns = answer->wait_ns < DENIAL_MAX_NS ? answer->wait_ns : DENIAL_MAX_NS;
    pthread_mutex_lock(&pool->lock);
    pool->denial = (struct denial){.cost = ask->cost,
                                   .probe = ask->probe,
                                   .from_ns = ask->now_ns,
                                   .until_ns = add_sat(ask->now_ns, lasts_ns),
                                   .answer = *answer};
    pthread_mutex_unlock(&pool->lock);
}

/* A reply for a roster that is no longer in force is not valid for the current one. */
static bool is_in_force(struct pool_in_store *pool, const struct pools_caller *caller)
{
    assert(caller->pending != NULL);
    pthread_mutex_lock(&pool->lock);
    bool is = pool_pending_of(caller->pending->extra)->roster == pool->roster;
    pthread_mutex_unlock(&pool->lock);
    return is;
}

int pool_in_store_next(struct pool_in_store *pool, struct pools_caller *caller,
                       const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
                       struct stint_error *error)
{
    assert(is_valid(pool));
    if (caller->pending == NULL && is_denied(pool, ask, answer))
        return 0;
    struct backend_pool_request asked = {
        .verb = BACKEND_POOL_NEXT, .cost = ask->cost, .probe = ask->probe, .now_ns = ask->now_ns};
    const struct backend_pool_answer *from = NULL;
    int code = pool_in_store_ask(pool, caller, &asked, &from, error);
    if (code != 0)
        return code;
    *answer = from->next;
    if (answer->name == NULL && is_in_force(pool, caller))
        keep_denial(pool, ask, answer);
    return 0;
}
