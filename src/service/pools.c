/* SPDX-License-Identifier: MIT */
/*
 * Pools by name. Pools are only ever added, so a lookup needs no lock; one thread at a time changes
 * definitions.
 * The keys of a pool in a store are a roster, which is replaced as a whole; a pending request keeps
 * its roster until the answer has been used. After a store's reply that no key is free, it gets no
 * request before one is free, at most for a second: that reply costs the store most.
 */
#include "service/pools.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/siphash.h"
#include "base/wide_int.h"
#include "limiter/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX_DEFAULT 1024
#define SPEC_SIZE 256
#define DENIAL_MAX_NS NS_PER_S

/* A copy of a name: the library takes a terminated text. */
struct pools_name {
    char text[STINT_POOL_NAME_MAX + 1];
};

/* A key with parsed SPECs. */
struct parsed_key {
    struct pools_name name;
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    struct stint_pool_key key; /* points to the name and the quotas */
};

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

struct named_pool {
    struct pools_name name;
    struct hash128 defined;    /* the last definition; under the lock of the pools */
    struct stint_pool *stands; /* in the table. NULL: the pool is in a store */
    const struct pools_stores *stores;
    size_t store;
    uint64_t results[POOLS_RESULTS]; /* relaxed: counters */
    uint8_t order;                   /* in a store */
    pthread_mutex_t lock;            /* of all below, held briefly */
    struct roster *roster;
    struct denial denial;
};

struct pools {
    struct stint_table *table;
    struct pools_stores stores;
    pthread_mutex_t lock; /* held while a pool is added, or its keys are changed to a definition */
    size_t n_pools;
    struct named_pool all[POOLS_MAX];
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

static void put_key(struct roster *roster, const struct parsed_key *from)
{
    assert(from->key.n_quotas <= STINT_POOL_QUOTAS_MAX);
    struct parsed_key *key = &roster->keys[roster->n_keys++];
    *key = *from;
    key->key.name = key->name.text;
    key->key.quotas = key->quotas;
}

/* Copies the keys, without `but` and with `more` if given, if the store can keep them. */
static int roster_new(struct roster **made, const struct named_pool *pool,
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
            put_key(roster, &keys[i]);
    if (more != NULL)
        put_key(roster, more);
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
static void put_in_force(struct named_pool *pool, struct roster *roster)
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
        stint_pool_close(pools->all[i].stands);
        roster_unref(pools->all[i].roster);
        pthread_mutex_destroy(&pools->all[i].lock);
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

/* The checks of a name that the library does not make. `whose` is "pool" or "key". */
static int copy_name(struct pools_name *name, struct span from, const char *whose,
                     struct stint_error *error)
{
    assert(whose != NULL);
    if (from.len < 1 || from.len > STINT_POOL_NAME_MAX)
        return err_set(error, STINT_E_RANGE, "the name of a %s has 1 to %d bytes", whose,
                       STINT_POOL_NAME_MAX);
    for (size_t i = 0; i < from.len; i++)
        if (from.ptr[i] <= ' ' || from.ptr[i] == 0x7f)
            return err_set(error, STINT_E_SYNTAX,
                           "the name of a %s is printable and without blanks: byte %zu is 0x%02x",
                           whose, i + 1, from.ptr[i]);
    memcpy(name->text, from.ptr, from.len);
    name->text[from.len] = '\0';
    return 0;
}

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
    if (code != 0 || (*pool = found->stands) != NULL)
        return code;
    return err_set(error, STINT_E_SYNTAX, "pool %s is in a store: send no id", found->name.text);
}

static int find_with_key(struct pools *pools, struct span name, struct span key,
                         struct named_pool **pool, struct pools_name *key_name,
                         struct stint_error *error)
{
    int code = find_pool(pools, name, pool, error);
    return code != 0 ? code : copy_name(key_name, key, "key", error);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static int parse_quota(struct stint_quota *quota, struct span spec, struct stint_error *error)
{
    char text[SPEC_SIZE];
    if (spec.len >= sizeof(text) || memchr(spec.ptr, '\0', spec.len) != NULL)
        return err_set(error, STINT_E_SYNTAX, "a quota is text of at most %zu bytes",
                       sizeof(text) - 1);
    memcpy(text, spec.ptr, spec.len);
    text[spec.len] = '\0';
    return stint_quota_parse(quota, text, error);
}

/* Each key has a state of its own. Whether a store can keep it is checked with all keys. */
static int check_key(const struct pools *pools, bool is_in_store, struct parsed_key *key,
                     struct stint_error *error)
{
    assert(key->key.n_quotas <= STINT_POOL_QUOTAS_MAX);
    for (size_t i = 0; i < key->key.n_quotas; i++) {
        struct stint_quota *quota = &key->quotas[i];
        if (quota->algorithm == STINT_CONCURRENCY)
            return err_set(error, STINT_E_MISMATCH, "concurrency is not for the keys of a pool");
        quota->when_full = STINT_FULL_INHERIT;
        int code = stint_quota_check(quota, error);
        if (code == 0 && !is_in_store)
            code = stint_table_accepts(pools->table, quota, error);
        if (code != 0)
            return code;
        for (size_t j = 0; j < i; j++)
            if (intern_same_params(quota, &key->quotas[j]))
                return err_set(error, STINT_E_MISMATCH, "quotas %zu and %zu of key %s are the same",
                               j + 1, i + 1, key->name.text);
    }
    return 0;
}

static int parse_key(const struct pools *pools, bool is_in_store, struct parsed_key *parsed,
                     const struct pools_key *from, struct stint_error *error)
{
    int code = copy_name(&parsed->name, from->name, "key", error);
    if (code == 0 && (from->n_quotas < 1 || from->n_quotas > STINT_POOL_QUOTAS_MAX))
        code = err_set(error, STINT_E_RANGE, "key %s has %zu quotas; 1 to %d are needed",
                       parsed->name.text, from->n_quotas, STINT_POOL_QUOTAS_MAX);
    if (code == 0 && from->weight > STINT_POOL_WEIGHT_MAX)
        code = err_set(error, STINT_E_RANGE, "key %s has weight %u; at most %d is allowed",
                       parsed->name.text, from->weight, STINT_POOL_WEIGHT_MAX);
    for (size_t i = 0; code == 0 && i < from->n_quotas; i++)
        code = parse_quota(&parsed->quotas[i], from->quotas[i], error);
    parsed->key = (struct stint_pool_key){.name = parsed->name.text,
                                          .quotas = parsed->quotas,
                                          .n_quotas = from->n_quotas,
                                          .weight = from->weight};
    return code == 0 ? check_key(pools, is_in_store, parsed, error) : code;
}

/* ---- Definitions ----------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const struct parsed_key *const *left = a, *const *right = b;
    return strcmp((*left)->name.text, (*right)->name.text);
}

/* All checks of a definition that are possible before the first key is touched. */
static int parse_definition(const struct pools *pools, const struct pools_definition *definition,
                            struct parsed_key *keys, struct parsed_key **by_name,
                            struct stint_error *error)
{
    for (size_t i = 0; i < definition->n_keys; i++) {
        int code =
            parse_key(pools, definition->store.len > 0, &keys[i], &definition->keys[i], error);
        if (code != 0)
            return code;
        by_name[i] = &keys[i];
    }
    qsort(by_name, definition->n_keys, sizeof(struct parsed_key *), compare_names);
    for (size_t i = 1; i < definition->n_keys; i++)
        if (compare_names(&by_name[i - 1], &by_name[i]) == 0)
            return err_set(error, STINT_E_MISMATCH, "key %s is in the pool twice",
                           by_name[i]->name.text);
    return 0;
}

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
static bool find_other(struct stint_pool *pool, struct parsed_key **by_name, size_t n_keys,
                       struct pools_name *name)
{
    bool found = false;
    pool_lock_shared(pool);
    for (size_t i = 0; i < pool->n_keys && !found; i++) {
        const struct pool_key *stands = pool->by_name[i];
        struct parsed_key wanted, *at = &wanted;
        memcpy(wanted.name.text, stands->name, strlen(stands->name) + 1);
        struct parsed_key **same =
            bsearch(&at, by_name, n_keys, sizeof(struct parsed_key *), compare_names);
        found = same == NULL || !is_same_key(stands, &(*same)->key);
        if (found)
            *name = wanted.name;
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
static int apply(struct stint_pool *pool, const struct parsed_key *keys,
                 struct parsed_key **by_name, size_t n_keys, uint64_t now_ns,
                 struct stint_error *error)
{
    struct pools_name name;
    int code = 0;
    while (find_other(pool, by_name, n_keys, &name))
        stint_pool_remove(pool, name.text, now_ns, NULL);
    for (size_t i = 0; i < n_keys && code == 0; i++)
        if (!has_key(pool, keys[i].name.text))
            code = stint_pool_add(pool, &keys[i].key, now_ns, error);
    return code;
}

static struct named_pool *add_pool(struct pools *pools, const struct named_pool *made)
{
    assert(pools->n_pools < POOLS_MAX);
    struct named_pool *pool = &pools->all[pools->n_pools];
    *pool = *made;
    pthread_mutex_init(&pool->lock, NULL);
    /* release: a thread that counts the pool finds it complete. */
    __atomic_store_n(&pools->n_pools, pools->n_pools + 1, __ATOMIC_RELEASE);
    return pool;
}

static int open_pool(struct pools *pools, const struct pools_definition *definition,
                     struct named_pool **pool, struct stint_error *error)
{
    struct named_pool made = {.stands = NULL};
    size_t least = definition->n_keys > KEYS_MAX_DEFAULT ? definition->n_keys : KEYS_MAX_DEFAULT;
    const struct stint_pool_options options = {
        .name = made.name.text,
        .order = definition->order,
        .keys_max = definition->keys_max > 0 ? definition->keys_max : least,
    };
    int code = copy_name(&made.name, definition->name, "pool", error);
    if (code == 0)
        code = stint_pool_open(&made.stands, pools->table, &options, error);
    if (code == 0)
        *pool = add_pool(pools, &made);
    return code;
}

/* A hash of the keys of a definition, with their quotas and weights. */
static struct hash128 mark_of(struct parsed_key **by_name, size_t n_keys)
{
    struct hash128 mark = {n_keys, 0};
    for (size_t i = 0; i < n_keys; i++) {
        const struct parsed_key *key = by_name[i];
        const uint64_t secret[2] = {mark.lo, mark.hi};
        mark = siphash13_128(secret, key->key.weight, key->name.text, strlen(key->name.text));
        for (size_t j = 0; j < key->key.n_quotas; j++) {
            const uint64_t so_far[2] = {mark.lo, mark.hi};
            mark = siphash13_128(so_far, j, key->quotas[j].derived.params_hash,
                                 sizeof(key->quotas[j].derived.params_hash));
        }
    }
    return mark;
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

/* The state that all steps of one definition share. */
struct definition {
    const struct pools_definition *given;
    struct parsed_key *keys, **by_name;
    uint64_t now_ns;
    bool is_made; /* false: the definition is only checked */
};

static int define_in_table(struct pools *pools, const struct definition *definition,
                           struct named_pool *pool, struct stint_error *error)
{
    const struct pools_definition *given = definition->given;
    int code = pool != NULL ? check_fits(pool->stands, given, error) : 0;
    if (code != 0 || !definition->is_made)
        return code;
    struct hash128 mark = mark_of(definition->by_name, given->n_keys);
    if (pool != NULL && memcmp(&mark, &pool->defined, sizeof(mark)) == 0)
        return 0;
    if (pool == NULL)
        code = open_pool(pools, given, &pool, error);
    if (code == 0)
        code = apply(pool->stands, definition->keys, definition->by_name, given->n_keys,
                     definition->now_ns, error);
    if (pool != NULL)
        pool->defined = code == 0 ? mark : (struct hash128){0, 0};
    return code;
}

/* ---- Definitions of pools in stores ---------------------------------------------------------- */

static int find_store(const struct pools *pools, struct span name, size_t *store,
                      struct stint_error *error)
{
    assert(name.len > 0);
    const struct pools_stores *stores = &pools->stores;
    for (*store = 0; *store < stores->n_names; ++*store)
        if (span_equals(name, stores->names[*store]))
            return 0;
    int len = name.len < STINT_POOL_NAME_MAX ? (int)name.len : STINT_POOL_NAME_MAX;
    return err_set(error, STINT_E_MISMATCH,
                   "there is no store `%.*s`: expected the name of one of `store`; a store without "
                   "a name is called `default`",
                   len, (const char *)name.ptr);
}

/* A new pool like the definition, which no other thread can see yet. */
static int new_in_store(const struct pools *pools, const struct definition *definition,
                        struct named_pool *made, struct stint_error *error)
{
    const struct pools_definition *given = definition->given;
    *made = (struct named_pool){.stores = &pools->stores, .order = given->order};
    int code = copy_name(&made->name, given->name, "pool", error);
    if (code == 0)
        code = find_store(pools, given->store, &made->store, error);
    if (code == 0 && given->order > STINT_LEAST_USED)
        code = err_set(error, STINT_E_RANGE, "unknown order of a pool");
    made->defined = mark_of(definition->by_name, given->n_keys);
    return code != 0 ? code
                     : roster_new(&made->roster, made, definition->keys, given->n_keys, NULL, NULL,
                                  error);
}

static int define_in_store(struct pools *pools, const struct definition *definition,
                           struct named_pool *pool, struct stint_error *error)
{
    struct named_pool made;
    int code = new_in_store(pools, definition, &made, error);
    if (code != 0)
        return code;
    if (pool != NULL && (pool->store != made.store || pool->order != made.order))
        code = err_set(error, STINT_E_MISMATCH,
                       "the order and the store of pool %s cannot be changed while the server runs",
                       pool->name.text);
    if (code != 0 || !definition->is_made ||
        (pool != NULL && memcmp(&made.defined, &pool->defined, sizeof(made.defined)) == 0)) {
        roster_unref(made.roster);
    } else if (pool == NULL) {
        add_pool(pools, &made);
    } else {
        put_in_force(pool, made.roster);
        pool->defined = made.defined;
    }
    return code;
}

static int define(struct pools *pools, const struct definition *definition,
                  struct stint_error *error)
{
    const struct pools_definition *given = definition->given;
    struct named_pool *pool = find(pools, given->name);
    bool is_in_store = given->store.len > 0;
    int code = parse_definition(pools, given, definition->keys, definition->by_name, error);
    if (code != 0)
        return code;
    if (pool != NULL && is_in_store != (pool->stands == NULL))
        return err_set(error, STINT_E_MISMATCH,
                       "the store of pool %s cannot be changed while the server runs",
                       pool->name.text);
    if (pool == NULL && pools->n_pools == POOLS_MAX)
        return err_set(error, STINT_E_FULL, "a server has at most %d pools", POOLS_MAX);
    return is_in_store ? define_in_store(pools, definition, pool, error)
                       : define_in_table(pools, definition, pool, error);
}

static int check_or_define(struct pools *pools, struct definition *definition,
                           struct stint_error *error)
{
    assert(pools_is_valid(pools) && definition->keys == NULL);
    size_t n_keys = definition->given->n_keys;
    if (n_keys > STINT_POOL_KEYS_MAX)
        return err_set(error, STINT_E_RANGE, "a pool has at most %d keys", STINT_POOL_KEYS_MAX);
    /* One more than the count, as a pool may have no keys. */
    definition->keys = calloc(n_keys + 1, sizeof(*definition->keys));
    definition->by_name = calloc(n_keys + 1, sizeof(struct parsed_key *));
    pthread_mutex_lock(&pools->lock);
    int code = definition->keys == NULL || definition->by_name == NULL
                   ? err_set(error, STINT_E_SYSTEM, "no memory for %zu keys", n_keys)
                   : define(pools, definition, error);
    pthread_mutex_unlock(&pools->lock);
    free(definition->keys);
    free(definition->by_name);
    return code;
}

int pools_check(struct pools *pools, const struct pools_definition *definition,
                struct stint_error *error)
{
    return check_or_define(pools, &(struct definition){.given = definition}, error);
}

int pools_define(struct pools *pools, const struct pools_definition *definition, uint64_t now_ns,
                 struct stint_error *error)
{
    struct definition made = {.given = definition, .now_ns = now_ns, .is_made = true};
    return check_or_define(pools, &made, error);
}

/* ---- Store requests -------------------------------------------------------------------------- */

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
    pending_answered(((struct pool_pending *)op->arg)->pending, now_ns);
}

/* The pending request owns a reference to the roster. */
static int send(struct named_pool *pool, struct pools_caller *caller,
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
static void keep_denial(struct named_pool *pool, const struct roster *of,
                        const struct denial *denial)
{
    pthread_mutex_lock(&pool->lock);
    if (of == NULL || of == pool->roster)
        pool->denial = *denial;
    pthread_mutex_unlock(&pool->lock);
}

/* 0: *answer is valid as long as the caller's pending request. */
static int ask_store(struct named_pool *pool, struct pools_caller *caller,
                     struct backend_pool_request *ask, const struct backend_pool_answer **answer,
                     struct stint_error *error)
{
    assert(pool->stands == NULL && caller != NULL);
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

static bool is_denied(struct named_pool *pool, const struct stint_pool_ask *ask,
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

static int next_in_store(struct named_pool *pool, struct pools_caller *caller,
                         const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
                         struct stint_error *error)
{
    assert(caller != NULL);
    if (caller->pending == NULL && is_denied(pool, ask, answer))
        return 0;
    struct backend_pool_request asked = {
        .verb = BACKEND_POOL_NEXT, .cost = ask->cost, .probe = ask->probe, .now_ns = ask->now_ns};
    const struct backend_pool_answer *from = NULL;
    int code = ask_store(pool, caller, &asked, &from, error);
    if (code != 0)
        return code;
    *answer = from->next;
    if (answer->name != NULL)
        return 0;
    uint64_t until_ns = add_sat(ask->now_ns, min_u64(answer->wait_ns, DENIAL_MAX_NS));
    const struct denial denial = {ask->cost, ask->probe, ask->now_ns, until_ns, *answer};
    keep_denial(pool, pool_pending_of(caller->pending->extra)->roster, &denial);
    return 0;
}

/* ---- Adding and removing keys ---------------------------------------------------------------- */

/* A quota that cannot be used is not in conflict with what the pool has. */
static int not_a_conflict(int code, struct stint_error *error)
{
    return code == STINT_E_MISMATCH ? (error->code = STINT_E_SYNTAX) : code;
}

/* Adds the key, or removes that of the name: more is NULL. */
static int change_key(struct pools *pools, struct named_pool *pool, const char *name,
                      const struct parsed_key *more, struct stint_error *error)
{
    assert(pool->stands == NULL);
    struct roster *made = NULL;
    int code;
    pthread_mutex_lock(&pools->lock);
    const struct roster *old = pool->roster;
    const struct parsed_key *key = find_key(old, name);
    if (more != NULL && key != NULL)
        code = err_set(error, STINT_E_MISMATCH, "key %s is in the pool already", name);
    else if (more == NULL && key == NULL)
        code = err_set(error, STINT_E_GONE, "the pool has no key %s", name);
    else
        code = not_a_conflict(roster_new(&made, pool, old->keys, old->n_keys, key, more, error),
                              error);
    if (code == 0)
        put_in_force(pool, made);
    pthread_mutex_unlock(&pools->lock);
    return code;
}

int pools_add(struct pools *pools, struct span pool, const struct pools_key *key, uint64_t now_ns,
              struct stint_error *error)
{
    struct parsed_key parsed;
    struct named_pool *found;
    int code = find_pool(pools, pool, &found, error);
    if (code == 0)
        code = parse_key(pools, found->stands == NULL, &parsed, key, error);
    if (code != 0)
        return not_a_conflict(code, error);
    return found->stands == NULL ? change_key(pools, found, parsed.name.text, &parsed, error)
                                 : stint_pool_add(found->stands, &parsed.key, now_ns, error);
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
    if (found->stands != NULL)
        return stint_pool_remove(found->stands, name.text, now_ns, error);
    /* Ends the key's cooldown first: if the store does not answer, the key stays. */
    struct backend_pool_request ask = {
        .verb = BACKEND_POOL_LET_IN, .key = span_of_text(name.text), .now_ns = now_ns};
    code = ask_store(found, caller, &ask, &answer, error);
    return code != 0 ? code : change_key(pools, found, name.text, NULL, error);
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
    if (found->stands == NULL)
        code = next_in_store(found, caller, ask, answer, error);
    else
        *answer = stint_pool_next(found->stands, ask);
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
    if (code == 0 && found->stands == NULL) {
        struct backend_pool_request ask = {.verb = BACKEND_POOL_GIVE_BACK,
                                           .key = back->key,
                                           .cost = back->cost,
                                           .at_ns = back->granted_at_ns,
                                           .now_ns = now_ns};
        code = ask_store(found, caller, &ask, &answer, error);
        if (code == 0)
            *given_back = answer->given_back;
        return code;
    }
    if (code != 0)
        return code;
    if (back->granted_at_ns > STINT_NOW_MAX && back->granted_at_ns != STINT_NEVER_NS)
        return err_set(error, STINT_E_RANGE, "at is later than any time of this pool");
    code = stint_pool_give_back(found->stands, name.text, back->cost, back->granted_at_ns, now_ns,
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
    if (found->stands != NULL)
        return stint_pool_report(found->stands, name.text, report->outcome, report->cooldown_ns,
                                 now_ns, error);
    struct backend_pool_request ask = {.verb = BACKEND_POOL_REPORT,
                                       .key = report->key,
                                       .outcome = (uint8_t)report->outcome,
                                       .cooldown_ns = report->cooldown_ns,
                                       .now_ns = now_ns};
    code = pool_check_report(report->outcome, report->cooldown_ns, now_ns, error);
    return code != 0 ? code : ask_store(found, caller, &ask, &answer, error);
}

int pools_each(struct pools *pools, struct pools_caller *caller, struct span pool, uint64_t now_ns,
               bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
               struct stint_error *error)
{
    assert(visit != NULL);
    struct named_pool *found;
    const struct backend_pool_answer *answer;
    struct backend_pool_request ask = {.verb = BACKEND_POOL_STATUS, .now_ns = now_ns};
    int code = find_pool(pools, pool, &found, error);
    if (code == 0 && found->stands != NULL)
        stint_pool_each(found->stands, now_ns, visit, arg);
    if (code != 0 || found->stands != NULL)
        return code;
    code = ask_store(found, caller, &ask, &answer, error);
    if (code != 0)
        return code;
    size_t n_keys = pool_pending_of(caller->pending->extra)->roster->n_keys, i = 0;
    while (i < n_keys && visit(&answer->statuses[i], arg))
        i++;
    return 0;
}
