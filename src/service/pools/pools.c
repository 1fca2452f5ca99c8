/* SPDX-License-Identifier: MIT */
/*
 * Pools by name. Pools are only ever added, so a lookup needs no lock; one thread at a time changes
 * definitions.
 */
#include "service/pools/pools.h"

#include "base/err.h"
#include "limiter/pool.h"
#include "service/pools/store_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX_DEFAULT 1024

struct named_pool {
    struct pools_name name;
    struct hash128 defined;          /* the last definition; under the lock of the pools */
    struct stint_pool *in_table;     /* NULL: the pool is in a store */
    struct store_pool *in_store;     /* NULL: it is in the table */
    uint64_t results[POOLS_RESULTS]; /* relaxed: counters */
};

struct pools {
    struct stint_table *table;
    struct pools_stores stores;
    pthread_mutex_t lock; /* held while a pool is added, or the keys of one are changed */
    size_t n_pools;
    struct named_pool all[POOLS_MAX];
};

/* ---- Pools ----------------------------------------------------------------------------------- */

struct pools *pools_new(struct stint_table *table)
{
    assert(table != NULL);
    struct pools *pools = calloc(1, sizeof(*pools));
    if (pools == NULL)
        return NULL;
    pools->table = table;
    pthread_mutex_init(&pools->lock, NULL);
    return pools;
}

void pools_free(struct pools *pools)
{
    if (pools == NULL)
        return;
    for (size_t i = 0; i < pools->n_pools; i++) {
        stint_pool_close(pools->all[i].in_table);
        store_pool_free(pools->all[i].in_store);
    }
    pthread_mutex_destroy(&pools->lock);
    free(pools);
}

size_t pools_count(const struct pools *pools)
{
    /* acquire: a pool that is counted is complete. */
    return __atomic_load_n(&pools->n_pools, __ATOMIC_ACQUIRE);
}

/* For assertions. */
__attribute__((unused)) static bool pools_is_valid(const struct pools *pools)
{
    return pools->table != NULL && pools_count(pools) <= POOLS_MAX;
}

void pools_set_stores(struct pools *pools, const struct pools_stores *stores)
{
    assert(pools_is_valid(pools));
    assert(pools_count(pools) == 0);
    pools->stores = *stores;
}

const char *pools_name(const struct pools *pools, size_t index)
{
    assert(pools_is_valid(pools));
    return index < pools_count(pools) ? pools->all[index].name.text : NULL;
}

uint64_t pools_results(const struct pools *pools, size_t index, enum pools_result result)
{
    assert(index < pools_count(pools) && result < POOLS_RESULTS);
    return __atomic_load_n(&pools->all[index].results[result], __ATOMIC_RELAXED);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static struct named_pool *find(struct pools *pools, struct span name)
{
    size_t n = pools_count(pools);
    for (size_t i = 0; i < n; i++)
        if (span_equals(name, pools->all[i].name.text))
            return &pools->all[i];
    return NULL;
}

static int find_pool(struct pools *pools, struct span name, struct named_pool **pool,
                     struct stint_error *error)
{
    assert(pools_is_valid(pools));
    *pool = find(pools, name);
    if (*pool != NULL)
        return 0;
    int len = name.len < STINT_POOL_NAME_MAX ? (int)name.len : STINT_POOL_NAME_MAX;
    return err_set(error, STINT_E_GONE, "there is no pool `%.*s`", len, (const char *)name.ptr);
}

int pools_in_table(struct pools *pools, struct span name, struct stint_pool **pool,
                   struct stint_error *error)
{
    struct named_pool *found;
    int code = find_pool(pools, name, &found, error);
    if (code != 0)
        return code;
    *pool = found->in_table;
    if (found->in_table != NULL)
        return 0;
    return err_set(error, STINT_E_SYNTAX, "pool %s is in a store: send no id", found->name.text);
}

static int find_with_key(struct pools *pools, struct span name, struct span key,
                         struct named_pool **pool, struct pools_name *key_name,
                         struct stint_error *error)
{
    int code = find_pool(pools, name, pool, error);
    return code != 0 ? code : pools_name_copy(key_name, key, "key", error);
}

/* The table that keeps the keys; NULL: a store keeps them. */
static struct stint_table *table_of(const struct pools *pools, bool is_in_store)
{
    return is_in_store ? NULL : pools->table;
}

/* ---- Definitions of pools in the table ------------------------------------------------------- */

/* The state that all steps of one definition share. */
struct definition {
    const struct pools_definition *given;
    struct parsed_keys keys;
    struct hash128 mark;
    uint64_t now_ns;
    struct pools_new *checked; /* it is only checked, beside these. NULL: it is made */
};

static bool is_same_key(const struct pool_key *stands, const struct stint_pool_key *wanted)
{
    assert(wanted->n_quotas <= STINT_POOL_QUOTAS_MAX);
    uint32_t weight = wanted->weight > 0 ? wanted->weight : 1;
    if (stands->weight != weight || stands->n_quotas != wanted->n_quotas)
        return false;
    for (size_t i = 0; i < wanted->n_quotas; i++)
        if (!intern_same_params(&stands->quotas[i], &wanted->quotas[i]))
            return false;
    return true;
}

/* The first key of a pool that differs from the definition; false if all are the same. */
static bool find_other(struct stint_pool *pool, const struct parsed_keys *keys,
                       struct pools_name *name)
{
    bool found = false;
    pool_lock_shared(pool);
    for (size_t i = 0; i < pool->n_keys && !found; i++) {
        const struct pool_key *stands = pool->by_name[i];
        const struct parsed_key *same = parsed_keys_find(keys, stands->name);
        found = same == NULL || !is_same_key(stands, &same->key);
        if (found)
            memcpy(name->text, stands->name, strlen(stands->name) + 1);
    }
    pool_unlock_shared(pool);
    return found;
}

static bool has_key(struct stint_pool *pool, const char *name)
{
    pool_lock_shared(pool);
    bool has = pool_find(pool, name, NULL) != NULL;
    pool_unlock_shared(pool);
    return has;
}

/* Other threads may add and remove keys meanwhile: their changes stay, and no thread waits. */
static int apply(struct stint_pool *pool, const struct parsed_keys *keys, uint64_t now_ns,
                 struct stint_error *error)
{
    struct pools_name name;
    int code = 0;
    while (find_other(pool, keys, &name))
        stint_pool_remove(pool, name.text, now_ns, NULL);
    for (size_t i = 0; i < keys->n && code == 0; i++)
        if (!has_key(pool, keys->all[i].name.text))
            code = stint_pool_add(pool, &keys->all[i].key, now_ns, error);
    return code;
}

static struct named_pool *add_pool(struct pools *pools, const struct named_pool *made)
{
    assert(pools->n_pools < POOLS_MAX);
    struct named_pool *pool = &pools->all[pools->n_pools];
    *pool = *made;
    /* release: a thread that counts the pool finds it complete. */
    __atomic_store_n(&pools->n_pools, pools->n_pools + 1, __ATOMIC_RELEASE);
    return pool;
}

/* Opens it, or only checks whether it could be opened. */
static int open_pool(struct pools *pools, const struct definition *definition,
                     struct named_pool **pool, struct stint_error *error)
{
    const struct pools_definition *given = definition->given;
    struct named_pool made = {.in_store = NULL};
    size_t least = given->n_keys > KEYS_MAX_DEFAULT ? given->n_keys : KEYS_MAX_DEFAULT;
    const struct stint_pool_options options = {
        .name = made.name.text,
        .order = given->order,
        .keys_max = given->keys_max > 0 ? given->keys_max : least,
    };
    int code = pools_name_copy(&made.name, given->name, "pool", error);
    if (code == 0 && definition->checked != NULL)
        return pool_check_new(pools->table, &options, &definition->checked->n_in_table, error);
    if (code == 0)
        code = stint_pool_open(&made.in_table, pools->table, &options, error);
    if (code == 0)
        *pool = add_pool(pools, &made);
    return code;
}

static int check_fits(const struct stint_pool *pool, const struct pools_definition *definition,
                      struct stint_error *error)
{
    assert(definition->store.len == 0);
    if (pool->order != definition->order)
        return err_set(error, STINT_E_MISMATCH,
                       "the order of pool %.*s cannot be changed while the server runs",
                       (int)pool->name_len, pool->name);
    if (definition->n_keys > pool->keys_max)
        return err_set(error, STINT_E_FULL, "pool %.*s was made for %zu keys; these are %zu",
                       (int)pool->name_len, pool->name, pool->keys_max, definition->n_keys);
    return 0;
}

static bool is_in_force(const struct named_pool *pool, const struct definition *definition)
{
    return pool != NULL && memcmp(&definition->mark, &pool->defined, sizeof(pool->defined)) == 0;
}

static int define_in_table(struct pools *pools, const struct definition *definition,
                           struct named_pool *pool, struct stint_error *error)
{
    int code = pool != NULL ? check_fits(pool->in_table, definition->given, error)
                            : open_pool(pools, definition, &pool, error);
    if (code != 0 || definition->checked != NULL || is_in_force(pool, definition))
        return code;
    code = apply(pool->in_table, &definition->keys, definition->now_ns, error);
    pool->defined = code == 0 ? definition->mark : (struct hash128){0, 0};
    return code;
}

/* ---- All definitions ------------------------------------------------------------------------- */

static int define_in_store(struct pools *pools, const struct definition *definition,
                           struct named_pool *pool, struct stint_error *error)
{
    const struct pools_definition *given = definition->given;
    struct named_pool made = {.defined = definition->mark};
    int code = pools_name_copy(&made.name, given->name, "pool", error);
    if (code == 0)
        code = store_pool_new(&made.in_store, &pools->stores, given, &definition->keys, error);
    if (code == 0 && pool != NULL)
        code = store_pool_check_fits(pool->in_store, made.in_store, error);
    if (code != 0 || definition->checked != NULL || is_in_force(pool, definition)) {
        store_pool_free(made.in_store);
    } else if (pool == NULL) {
        add_pool(pools, &made);
    } else {
        store_pool_replace_keys(pool->in_store, made.in_store);
        pool->defined = definition->mark;
    }
    return code;
}

static int define(struct pools *pools, const struct definition *definition,
                  struct stint_error *error)
{
    struct named_pool *pool = find(pools, definition->given->name);
    bool is_in_store = definition->given->store.len > 0;
    if (pool != NULL && is_in_store != (pool->in_store != NULL))
        return err_set(error, STINT_E_MISMATCH,
                       "the store of pool %s cannot be changed while the server runs",
                       pool->name.text);
    size_t n_pools = pools->n_pools;
    if (pool == NULL && definition->checked != NULL)
        n_pools += definition->checked->n++;
    if (pool == NULL && n_pools >= POOLS_MAX)
        return err_set(error, STINT_E_FULL, "a server has at most %d pools", POOLS_MAX);
    return is_in_store ? define_in_store(pools, definition, pool, error)
                       : define_in_table(pools, definition, pool, error);
}

static int check_or_define(struct pools *pools, struct definition *definition,
                           struct stint_error *error)
{
    assert(pools_is_valid(pools));
    const struct pools_definition *given = definition->given;
    int code =
        parsed_keys_read(&definition->keys, given, table_of(pools, given->store.len > 0), error);
    if (code != 0)
        return code;
    definition->mark = parsed_keys_mark(&definition->keys);
    pthread_mutex_lock(&pools->lock);
    code = define(pools, definition, error);
    pthread_mutex_unlock(&pools->lock);
    parsed_keys_free(&definition->keys);
    return code;
}

int pools_check(struct pools *pools, const struct pools_definition *definition,
                struct pools_new *new, struct stint_error *error)
{
    assert(new != NULL);
    struct definition checked = {.given = definition, .checked = new};
    return check_or_define(pools, &checked, error);
}

int pools_define(struct pools *pools, const struct pools_definition *definition, uint64_t now_ns,
                 struct stint_error *error)
{
    struct definition made = {.given = definition, .now_ns = now_ns};
    return check_or_define(pools, &made, error);
}

/* ---- Adding and removing keys ---------------------------------------------------------------- */

int pools_add(struct pools *pools, struct span pool, const struct pools_key *key, uint64_t now_ns,
              struct stint_error *error)
{
    struct parsed_key parsed;
    struct named_pool *found;
    int code = find_pool(pools, pool, &found, error);
    if (code != 0)
        return code;
    code = parsed_key_read(&parsed, key, table_of(pools, found->in_store != NULL), error);
    if (code != 0)
        return parsed_key_fault(code, error);
    if (found->in_table != NULL)
        return stint_pool_add(found->in_table, &parsed.key, now_ns, error);
    pthread_mutex_lock(&pools->lock);
    code = store_pool_add(found->in_store, &parsed, error);
    pthread_mutex_unlock(&pools->lock);
    return code;
}

int pools_remove(struct pools *pools, struct pools_caller *caller, struct span pool,
                 struct span key, uint64_t now_ns, struct stint_error *error)
{
    struct pools_name name;
    struct named_pool *found;
    const struct backend_pool_answer *answer;
    int code = find_with_key(pools, pool, key, &found, &name, error);
    if (code != 0)
        return code;
    if (found->in_table != NULL)
        return stint_pool_remove(found->in_table, name.text, now_ns, error);
    /* Ends the key's cooldown first: if the store does not answer, the key stays. */
    struct backend_pool_request ask = {
        .verb = BACKEND_POOL_LET_IN, .key = span_of_text(name.text), .now_ns = now_ns};
    code = store_pool_ask(found->in_store, caller, &ask, &answer, error);
    if (code != 0)
        return code;
    pthread_mutex_lock(&pools->lock);
    code = store_pool_remove(found->in_store, name.text, error);
    pthread_mutex_unlock(&pools->lock);
    return code;
}

/* ---- Calls: the table answers at once, a store through a pending request --------------------- */

int pools_next(struct pools *pools, struct pools_caller *caller, struct span pool,
               const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
               struct stint_error *error)
{
    struct named_pool *found;
    int code = find_pool(pools, pool, &found, error);
    if (code != 0)
        return code;
    if (found->in_table == NULL)
        code = store_pool_next(found->in_store, caller, ask, answer, error);
    else
        *answer = stint_pool_next(found->in_table, ask);
    if (code != POOLS_WAITS)
        __atomic_fetch_add(&found->results[pools_result_of(code, answer)], 1, __ATOMIC_RELAXED);
    return code;
}

int pools_give_back(struct pools *pools, struct pools_caller *caller, struct span pool,
                    const struct pools_return *back, uint64_t now_ns, uint32_t *given_back,
                    struct stint_error *error)
{
    struct pools_name name;
    struct named_pool *found;
    const struct backend_pool_answer *answer;
    int code = find_with_key(pools, pool, back->key, &found, &name, error);
    if (code == 0 && found->in_table == NULL) {
        struct backend_pool_request ask = {.verb = BACKEND_POOL_GIVE_BACK,
                                           .key = back->key,
                                           .cost = back->cost,
                                           .at_ns = back->granted_at_ns,
                                           .now_ns = now_ns};
        code = store_pool_ask(found->in_store, caller, &ask, &answer, error);
        if (code == 0)
            *given_back = answer->given_back;
        return code;
    }
    if (code != 0)
        return code;
    if (back->granted_at_ns > STINT_NOW_MAX && back->granted_at_ns != STINT_NEVER_NS)
        return err_set(error, STINT_E_RANGE, "at is later than any time of this pool");
    code = stint_pool_give_back(found->in_table, name.text, back->cost, back->granted_at_ns, now_ns,
                                given_back);
    if (code == STINT_E_GONE)
        err_set(error, code, "the pool has no key %s", name.text);
    else if (code != 0)
        err_set(error, code, "now is later than the largest time");
    return code;
}

int pools_report(struct pools *pools, struct pools_caller *caller, struct span pool,
                 const struct pools_report *report, uint64_t now_ns, struct stint_error *error)
{
    struct pools_name name;
    struct named_pool *found;
    const struct backend_pool_answer *answer;
    int code = find_with_key(pools, pool, report->key, &found, &name, error);
    if (code != 0)
        return code;
    if (found->in_table != NULL)
        return stint_pool_report(found->in_table, name.text, report->outcome, report->cooldown_ns,
                                 now_ns, error);
    struct backend_pool_request ask = {.verb = BACKEND_POOL_REPORT,
                                       .key = report->key,
                                       .outcome = (uint8_t)report->outcome,
                                       .cooldown_ns = report->cooldown_ns,
                                       .now_ns = now_ns};
    code = pool_check_report(report->outcome, report->cooldown_ns, now_ns, error);
    return code != 0 ? code : store_pool_ask(found->in_store, caller, &ask, &answer, error);
}

int pools_each(struct pools *pools, struct pools_caller *caller, struct span pool, uint64_t now_ns,
               bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
               struct stint_error *error)
{
    assert(visit != NULL);
    struct named_pool *found;
    int code = find_pool(pools, pool, &found, error);
    if (code != 0)
        return code;
    if (found->in_store != NULL)
        return store_pool_each(found->in_store, caller, now_ns, visit, arg, error);
    stint_pool_each(found->in_table, now_ns, visit, arg);
    return 0;
}
