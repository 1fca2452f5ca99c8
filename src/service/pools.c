/* SPDX-License-Identifier: MIT */
/*
 * Pools by name. Pools are only ever added, so a lookup needs no lock; one thread at a time changes
 * definitions.
 */
#include "service/pools.h"

#include "base/err.h"
#include "base/siphash.h"
#include "limiter/pool.h"
#include "service/pool_in_store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX_DEFAULT 1024
#define SPEC_SIZE 256

struct pools {
    struct stint_table *table;
    struct pools_stores stores;
    pthread_mutex_t lock; /* held while a pool is added, or its keys are changed to a definition */
    size_t n_pools;
    struct stint_pool *pools[POOLS_MAX]; /* NULL: the pool is in a store */
    struct pool_in_store *in_store[POOLS_MAX];
    struct pools_name names[POOLS_MAX];
    struct hash128 defined[POOLS_MAX]; /* the last definition; under the lock */
};

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
        stint_pool_close(pools->pools[i]);
        pool_in_store_free(pools->in_store[i]);
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
    return index < pools_count(pools) ? pools->names[index].text : NULL;
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

static size_t find_index(const struct pools *pools, struct span name)
{
    size_t n = pools_count(pools), i = 0;
    while (i < n && !span_equals(name, pools->names[i].text))
        i++;
    return i;
}

/* The pool's index; STINT_E_GONE. */
static int find_pool(const struct pools *pools, struct span name, size_t *at,
                     struct stint_error *error)
{
    assert(pools_is_valid(pools));
    *at = find_index(pools, name);
    if (*at < pools_count(pools))
        return 0;
    int len = name.len < STINT_POOL_NAME_MAX ? (int)name.len : STINT_POOL_NAME_MAX;
    return err_set(error, STINT_E_GONE, "there is no pool `%.*s`", len, (const char *)name.ptr);
}

static int find_with_key(const struct pools *pools, struct span pool, struct span key, size_t *at,
                         struct pools_name *name, struct stint_error *error)
{
    int code = find_pool(pools, pool, at, error);
    return code != 0 ? code : copy_name(name, key, "key", error);
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

static int parse_key(struct parsed_key *parsed, const struct pools_key *from,
                     struct stint_error *error)
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
    return code;
}

/* ---- Definitions ----------------------------------------------------------------------------- */

/* Checks a quota for a key of a pool; each key has a state of its own. Whether a store can keep it
 * is checked with all keys. */
static int own_quota(const struct pools *pools, bool is_in_store, struct stint_quota *quota,
                     struct stint_error *error)
{
    if (quota->algorithm == STINT_CONCURRENCY)
        return err_set(error, STINT_E_MISMATCH, "concurrency is not for the keys of a pool");
    quota->when_full = STINT_FULL_INHERIT;
    int code = stint_quota_check(quota, error);
    return code != 0 || is_in_store ? code : stint_table_accepts(pools->table, quota, error);
}

static int check_key(const struct pools *pools, bool is_in_store, struct parsed_key *key,
                     struct stint_error *error)
{
    assert(key->key.n_quotas <= STINT_POOL_QUOTAS_MAX);
    for (size_t i = 0; i < key->key.n_quotas; i++) {
        int code = own_quota(pools, is_in_store, &key->quotas[i], error);
        if (code != 0)
            return code;
        for (size_t j = 0; j < i; j++)
            if (intern_same_params(&key->quotas[i], &key->quotas[j]))
                return err_set(error, STINT_E_MISMATCH, "quotas %zu and %zu of key %s are the same",
                               j + 1, i + 1, key->name.text);
    }
    return 0;
}

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
        int code = parse_key(&keys[i], &definition->keys[i], error);
        if (code == 0)
            code = check_key(pools, definition->store.len > 0, &keys[i], error);
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

static void count_one(struct pools *pools, const struct pools_name *name)
{
    assert(pools->n_pools < POOLS_MAX);
    pools->names[pools->n_pools] = *name;
    /* release: a thread that counts the pool finds it complete. */
    __atomic_store_n(&pools->n_pools, pools->n_pools + 1, __ATOMIC_RELEASE);
}

static int open_pool(struct pools *pools, const struct pools_definition *definition,
                     struct stint_pool **made, struct stint_error *error)
{
    struct pools_name name;
    size_t least = definition->n_keys > KEYS_MAX_DEFAULT ? definition->n_keys : KEYS_MAX_DEFAULT;
    const struct stint_pool_options options = {
        .name = name.text,
        .order = definition->order,
        .keys_max = definition->keys_max > 0 ? definition->keys_max : least,
    };
    int code = copy_name(&name, definition->name, "pool", error);
    if (code == 0 && pools->n_pools == POOLS_MAX)
        code = err_set(error, STINT_E_FULL, "a server has at most %d pools", POOLS_MAX);
    if (code == 0)
        code = stint_pool_open(made, pools->table, &options, error);
    if (code != 0)
        return code;
    pools->pools[pools->n_pools] = *made;
    count_one(pools, &name);
    return 0;
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

static bool is_same_mark(struct hash128 a, struct hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

static int define_in_table(struct pools *pools, const struct definition *definition, size_t at,
                           struct stint_error *error)
{
    assert(at <= pools->n_pools);
    const struct pools_definition *given = definition->given;
    struct stint_pool *pool = at < pools->n_pools ? pools->pools[at] : NULL;
    int code = pool != NULL ? check_fits(pool, given, error) : 0;
    if (code != 0 || !definition->is_made)
        return code;
    struct hash128 mark = mark_of(definition->by_name, given->n_keys), *last = &pools->defined[at];
    if (pool != NULL && is_same_mark(mark, *last))
        return 0;
    if (pool == NULL)
        code = open_pool(pools, given, &pool, error);
    if (code == 0)
        code = apply(pool, definition->keys, definition->by_name, given->n_keys, definition->now_ns,
                     error);
    if (pool != NULL)
        *last = code == 0 ? mark : (struct hash128){0, 0};
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
                        struct pool_in_store **made, struct stint_error *error)
{
    const struct pools_definition *given = definition->given;
    struct pools_name name;
    size_t store;
    int code = copy_name(&name, given->name, "pool", error);
    if (code == 0)
        code = find_store(pools, given->store, &store, error);
    if (code != 0)
        return code;
    if (given->order > STINT_LEAST_USED)
        return err_set(error, STINT_E_RANGE, "unknown order of a pool");
    *made = pool_in_store_new(&pools->stores, store, &name, given->order);
    if (*made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool");
    code = pool_in_store_set(*made, definition->keys, given->n_keys, error);
    if (code != 0) {
        pool_in_store_free(*made);
        *made = NULL;
    }
    return code;
}

static int check_same_store(const struct pool_in_store *stands, const struct pool_in_store *wanted,
                            const char *name, struct stint_error *error)
{
    if (pool_in_store_at(stands) != pool_in_store_at(wanted) ||
        pool_in_store_order(stands) != pool_in_store_order(wanted))
        return err_set(error, STINT_E_MISMATCH,
                       "the order and the store of pool %s cannot be changed while the server runs",
                       name);
    return 0;
}

static int define_in_store(struct pools *pools, const struct definition *definition, size_t at,
                           struct stint_error *error)
{
    assert(at <= pools->n_pools);
    const struct pools_definition *given = definition->given;
    struct pools_name name;
    struct pool_in_store *made = NULL;
    int code = new_in_store(pools, definition, &made, error);
    if (made == NULL)
        return code;
    bool is_there = at < pools->n_pools;
    struct hash128 mark = mark_of(definition->by_name, given->n_keys);
    if (is_there)
        code = check_same_store(pools->in_store[at], made, pools->names[at].text, error);
    else if (at == POOLS_MAX)
        code = err_set(error, STINT_E_FULL, "a server has at most %d pools", POOLS_MAX);
    if (code == 0 && definition->is_made && !is_there) {
        code = copy_name(&name, given->name, "pool", error);
        pools->in_store[at] = made;
        pools->defined[at] = mark;
        count_one(pools, &name);
        return code;
    }
    if (code == 0 && definition->is_made && !is_same_mark(mark, pools->defined[at])) {
        code = pool_in_store_set(pools->in_store[at], definition->keys, given->n_keys, error);
        if (code == 0)
            pools->defined[at] = mark;
    }
    pool_in_store_free(made);
    return code;
}

static int define(struct pools *pools, const struct definition *definition,
                  struct stint_error *error)
{
    const struct pools_definition *given = definition->given;
    size_t at = find_index(pools, given->name);
    bool is_in_store = given->store.len > 0;
    int code = parse_definition(pools, given, definition->keys, definition->by_name, error);
    if (code != 0)
        return code;
    if (at < pools->n_pools && is_in_store != (pools->in_store[at] != NULL))
        return err_set(error, STINT_E_MISMATCH,
                       "the store of pool %s cannot be changed while the server runs",
                       pools->names[at].text);
    return is_in_store ? define_in_store(pools, definition, at, error)
                       : define_in_table(pools, definition, at, error);
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
    int code = STINT_E_SYSTEM;
    if (definition->keys == NULL || definition->by_name == NULL) {
        err_set(error, code, "no memory for %zu keys", n_keys);
    } else {
        pthread_mutex_lock(&pools->lock);
        code = define(pools, definition, error);
        pthread_mutex_unlock(&pools->lock);
    }
    free(definition->keys);
    free(definition->by_name);
    return code;
}

int pools_check(struct pools *pools, const struct pools_definition *definition,
                struct stint_error *error)
{
    struct definition checked = {.given = definition};
    return check_or_define(pools, &checked, error);
}

int pools_define(struct pools *pools, const struct pools_definition *definition, uint64_t now_ns,
                 struct stint_error *error)
{
    struct definition made = {.given = definition, .now_ns = now_ns, .is_made = true};
    return check_or_define(pools, &made, error);
}

/* ---- Adding and removing keys ---------------------------------------------------------------- */

static int add_in_store(struct pools *pools, size_t at, struct parsed_key *key,
                        struct stint_error *error)
{
    assert(pools->in_store[at] != NULL);
    int code = check_key(pools, true, key, error);
    if (code != 0)
        return code;
    pthread_mutex_lock(&pools->lock);
    code = pool_in_store_add(pools->in_store[at], key, error);
    pthread_mutex_unlock(&pools->lock);
    return code;
}

int pools_add(struct pools *pools, struct span pool, const struct pools_key *key, uint64_t now_ns,
              struct stint_error *error)
{
    assert(pools_is_valid(pools));
    struct parsed_key parsed;
    size_t at;
    int code = find_pool(pools, pool, &at, error);
    if (code == 0)
        code = parse_key(&parsed, key, error);
    if (code != 0)
        return code;
    return pools->in_store[at] != NULL
               ? add_in_store(pools, at, &parsed, error)
               : stint_pool_add(pools->pools[at], &parsed.key, now_ns, error);
}

/* Ends the key's cooldown first: if the store does not answer, the key stays. */
static int remove_in_store(struct pools *pools, struct pools_caller *caller, size_t at,
                           const struct pools_name *key, uint64_t now_ns, struct stint_error *error)
{
    assert(pools->in_store[at] != NULL && caller != NULL);
    const struct backend_pool_answer *answer;
    struct backend_pool_request ask = {
        .verb = BACKEND_POOL_LET_IN, .key = span_of_text(key->text), .now_ns = now_ns};
    int code = pool_in_store_ask(pools->in_store[at], caller, &ask, &answer, error);
    if (code != 0)
        return code;
    pthread_mutex_lock(&pools->lock);
    code = pool_in_store_take_out(pools->in_store[at], key, error);
    pthread_mutex_unlock(&pools->lock);
    return code;
}

int pools_remove(struct pools *pools, struct pools_caller *caller, struct span pool,
                 struct span key, uint64_t now_ns, struct stint_error *error)
{
    assert(pools_is_valid(pools));
    struct pools_name name;
    size_t at;
    int code = find_with_key(pools, pool, key, &at, &name, error);
    if (code != 0)
        return code;
    return pools->in_store[at] != NULL
               ? remove_in_store(pools, caller, at, &name, now_ns, error)
               : stint_pool_remove(pools->pools[at], name.text, now_ns, error);
}

/* ---- Calls: the table answers at once, a store through a pending request --------------------- */

int pools_next(struct pools *pools, struct pools_caller *caller, struct span pool,
               const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
               struct stint_error *error)
{
    assert(pools_is_valid(pools));
    size_t at;
    int code = find_pool(pools, pool, &at, error);
    if (code != 0)
        return code;
    if (pools->in_store[at] != NULL)
        return pool_in_store_next(pools->in_store[at], caller, ask, answer, error);
    *answer = stint_pool_next(pools->pools[at], ask);
    return 0;
}

static int give_back_in_store(struct pool_in_store *pool, struct pools_caller *caller,
                              const struct pools_return *back, uint64_t now_ns,
                              uint32_t *given_back, struct stint_error *error)
{
    assert(caller != NULL);
    const struct backend_pool_answer *answer;
    struct backend_pool_request ask = {.verb = BACKEND_POOL_GIVE_BACK,
                                       .key = back->key,
                                       .cost = back->cost,
                                       .at_ns = back->granted_at_ns,
                                       .now_ns = now_ns};
    int code = pool_in_store_ask(pool, caller, &ask, &answer, error);
    if (code == 0)
        *given_back = answer->given_back;
    return code;
}

int pools_give_back(struct pools *pools, struct pools_caller *caller, struct span pool,
                    const struct pools_return *back, uint64_t now_ns, uint32_t *given_back,
                    struct stint_error *error)
{
    assert(pools_is_valid(pools));
    struct pools_name name;
    size_t at;
    int code = find_with_key(pools, pool, back->key, &at, &name, error);
    if (code != 0)
        return code;
    if (pools->in_store[at] != NULL)
        return give_back_in_store(pools->in_store[at], caller, back, now_ns, given_back, error);
    if (back->granted_at_ns > STINT_NOW_MAX && back->granted_at_ns != STINT_NEVER_NS)
        return err_set(error, STINT_E_RANGE, "at is later than any time of this pool");
    code = stint_pool_give_back(pools->pools[at], name.text, back->cost, back->granted_at_ns,
                                now_ns, given_back);
    if (code == STINT_E_GONE)
        err_set(error, code, "the pool has no key %s", name.text);
    else if (code != 0)
        err_set(error, code, "now is later than the largest time");
    return code;
}

static int report_in_store(struct pool_in_store *pool, struct pools_caller *caller,
                           const struct pools_report *report, uint64_t now_ns,
                           struct stint_error *error)
{
    assert(caller != NULL);
    const struct backend_pool_answer *answer;
    struct backend_pool_request ask = {.verb = BACKEND_POOL_REPORT,
                                       .key = report->key,
                                       .outcome = (uint8_t)report->outcome,
                                       .cooldown_ns = report->cooldown_ns,
                                       .now_ns = now_ns};
    int code = pool_check_report(report->outcome, report->cooldown_ns, now_ns, error);
    return code != 0 ? code : pool_in_store_ask(pool, caller, &ask, &answer, error);
}

int pools_report(struct pools *pools, struct pools_caller *caller, struct span pool,
                 const struct pools_report *report, uint64_t now_ns, struct stint_error *error)
{
    assert(pools_is_valid(pools));
    struct pools_name name;
    size_t at;
    int code = find_with_key(pools, pool, report->key, &at, &name, error);
    if (code != 0)
        return code;
    return pools->in_store[at] != NULL
               ? report_in_store(pools->in_store[at], caller, report, now_ns, error)
               : stint_pool_report(pools->pools[at], name.text, report->outcome,
                                   report->cooldown_ns, now_ns, error);
}

int pools_each(struct pools *pools, struct pools_caller *caller, struct span pool, uint64_t now_ns,
               bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
               struct stint_error *error)
{
    assert(pools_is_valid(pools) && visit != NULL);
    size_t at;
    const struct backend_pool_answer *answer;
    struct backend_pool_request ask = {.verb = BACKEND_POOL_STATUS, .now_ns = now_ns};
    int code = find_pool(pools, pool, &at, error);
    if (code == 0 && pools->in_store[at] == NULL)
        stint_pool_each(pools->pools[at], now_ns, visit, arg);
    if (code != 0 || pools->in_store[at] == NULL)
        return code;
    code = pool_in_store_ask(pools->in_store[at], caller, &ask, &answer, error);
    for (size_t i = 0; code == 0 && i < pool_in_store_count(caller); i++)
        if (!visit(&answer->statuses[i], arg))
            break;
    return code;
}
