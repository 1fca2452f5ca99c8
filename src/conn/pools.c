/* SPDX-License-Identifier: MIT */
/*
 * Pools by name. They are only ever added, so whoever looks one up needs no lock; definitions are
 * changed by one thread at a time.
 */
#include "conn/pools.h"

#include "base/err.h"
#include "base/siphash.h"
#include "limiter/pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX_DEFAULT 1024
#define SPEC_SIZE 256

/* A name as the pools of the library want it. */
struct name {
    char text[STINT_POOL_NAME_MAX + 1];
};

struct pools {
    struct stint_table *table;
    pthread_mutex_t lock; /* for who adds a pool, or changes the keys of one to a definition */
    size_t n_pools;
    struct stint_pool *pools[POOLS_MAX];
    struct name names[POOLS_MAX];
    struct hash128 defined[POOLS_MAX]; /* as defined last; under the lock */
};

/* A key whose SPECs were read. */
struct parsed_key {
    struct name name;
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    struct stint_pool_key key;
};

struct pools *pools_new(struct stint_table *table)
{
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
    for (size_t i = 0; i < pools->n_pools; i++)
        stint_pool_close(pools->pools[i]);
    pthread_mutex_destroy(&pools->lock);
    free(pools);
}

size_t pools_count(const struct pools *pools)
{
    /* acquire: a pool that is counted is there. */
    return __atomic_load_n(&pools->n_pools, __ATOMIC_ACQUIRE);
}

const char *pools_name(const struct pools *pools, size_t index)
{
    return index < pools_count(pools) ? pools->names[index].text : NULL;
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* What else a name must be, the library checks. */
static int copy_name(struct name *name, struct span from, const char *whose,
                     struct stint_error *error)
{
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

static struct stint_pool *find(const struct pools *pools, struct span name,
                               struct stint_error *error)
{
    size_t i = find_index(pools, name);
    if (i < pools_count(pools))
        return pools->pools[i];
    int len = name.len < STINT_POOL_NAME_MAX ? (int)name.len : STINT_POOL_NAME_MAX;
    err_set(error, STINT_E_GONE, "there is no pool `%.*s`", len, (const char *)name.ptr);
    return NULL;
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

int pools_add(struct pools *pools, struct span pool, const struct pools_key *key, uint64_t now_ns,
              struct stint_error *error)
{
    struct parsed_key parsed;
    struct stint_pool *found = find(pools, pool, error);
    if (found == NULL)
        return STINT_E_GONE;
    int code = parse_key(&parsed, key, error);
    return code != 0 ? code : stint_pool_add(found, &parsed.key, now_ns, error);
}

int pools_remove(struct pools *pools, struct span pool, struct span key, uint64_t now_ns,
                 struct stint_error *error)
{
    struct name name;
    struct stint_pool *found = find(pools, pool, error);
    if (found == NULL)
        return STINT_E_GONE;
    int code = copy_name(&name, key, "key", error);
    return code != 0 ? code : stint_pool_remove(found, name.text, now_ns, error);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

int pools_next(struct pools *pools, struct span pool, const struct stint_pool_ask *ask,
               struct stint_pool_answer *answer, struct stint_error *error)
{
    struct stint_pool *found = find(pools, pool, error);
    if (found == NULL)
        return STINT_E_GONE;
    *answer = stint_pool_next(found, ask);
    return 0;
}

int pools_give_back(struct pools *pools, struct span pool, const struct pools_return *back,
                    uint64_t now_ns, uint32_t *given_back, struct stint_error *error)
{
    struct name name;
    struct stint_pool *found = find(pools, pool, error);
    if (found == NULL)
        return STINT_E_GONE;
    int code = copy_name(&name, back->key, "key", error);
    if (code != 0)
        return code;
    code =
        stint_pool_give_back(found, name.text, back->cost, back->granted_at_ns, now_ns, given_back);
    if (code == STINT_E_GONE)
        err_set(error, code, "the pool has no key %s", name.text);
    else if (code != 0)
        err_set(error, code, "now is later than there is");
    return code;
}

int pools_report(struct pools *pools, struct span pool, const struct pools_report *report,
                 uint64_t now_ns, struct stint_error *error)
{
    struct name name;
    struct stint_pool *found = find(pools, pool, error);
    if (found == NULL)
        return STINT_E_GONE;
    int code = copy_name(&name, report->key, "key", error);
    return code != 0 ? code
                     : stint_pool_report(found, name.text, report->outcome, report->cooldown_ns,
                                         now_ns, error);
}

int pools_each(struct pools *pools, struct span pool, uint64_t now_ns,
               bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
               struct stint_error *error)
{
    struct stint_pool *found = find(pools, pool, error);
    if (found == NULL)
        return STINT_E_GONE;
    stint_pool_each(found, now_ns, visit, arg);
    return 0;
}

/* ---- Definitions ----------------------------------------------------------------------------- */

/* A quota as it stands in a pool: nobody's state goes for another's. */
static int own_quota(const struct pools *pools, struct stint_quota *quota,
                     struct stint_error *error)
{
    if (quota->algorithm == STINT_CONCURRENCY)
        return err_set(error, STINT_E_MISMATCH, "concurrency is not for the keys of a pool");
    quota->when_full = STINT_FULL_INHERIT;
    int code = stint_quota_check(quota, error);
    return code != 0 ? code : stint_table_accepts(pools->table, quota, error);
}

static int check_key(const struct pools *pools, struct parsed_key *key, struct stint_error *error)
{
    for (size_t i = 0; i < key->key.n_quotas; i++) {
        int code = own_quota(pools, &key->quotas[i], error);
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

/* Everything that can be known of a definition before the first key is touched. */
static int parse_definition(const struct pools *pools, const struct pools_definition *definition,
                            struct parsed_key *keys, struct parsed_key **by_name,
                            struct stint_error *error)
{
    for (size_t i = 0; i < definition->n_keys; i++) {
        int code = parse_key(&keys[i], &definition->keys[i], error);
        if (code == 0)
            code = check_key(pools, &keys[i], error);
        if (code != 0)
            return code;
        keys[i].key.name = keys[i].name.text;
        keys[i].key.quotas = keys[i].quotas;
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
    uint32_t weight = wanted->weight > 0 ? wanted->weight : 1;
    if (stands->weight != weight || stands->n_quotas != wanted->n_quotas)
        return false;
    for (size_t i = 0; i < wanted->n_quotas; i++)
        if (!intern_same_params(&stands->quotas[i], &wanted->quotas[i]))
            return false;
    return true;
}

/* The first key of a pool that the definition does not have so; false if all are. */
static bool find_other(struct stint_pool *pool, struct parsed_key **by_name, size_t n_keys,
                       struct name *name)
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

/* Others may add and remove keys meanwhile: what they do is not undone, and nothing waits. */
static int apply(struct stint_pool *pool, const struct parsed_key *keys,
                 struct parsed_key **by_name, size_t n_keys, uint64_t now_ns,
                 struct stint_error *error)
{
    struct name name;
    int code = 0;
    while (find_other(pool, by_name, n_keys, &name))
        stint_pool_remove(pool, name.text, now_ns, NULL);
    for (size_t i = 0; i < n_keys && code == 0; i++)
        if (!has_key(pool, keys[i].name.text))
            code = stint_pool_add(pool, &keys[i].key, now_ns, error);
    return code;
}

static int open_pool(struct pools *pools, const struct pools_definition *definition,
                     struct stint_pool **made, struct stint_error *error)
{
    struct name name;
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
    pools->names[pools->n_pools] = name;
    pools->pools[pools->n_pools] = *made;
    /* release: whoever counts it finds it. */
    __atomic_store_n(&pools->n_pools, pools->n_pools + 1, __ATOMIC_RELEASE);
    return 0;
}

/* Which keys a definition has, with which quotas and weights. */
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
    if (pool->order != definition->order)
        return err_set(error, STINT_E_MISMATCH,
                       "the order of pool %.*s cannot be changed while the server runs",
                       (int)pool->name_len, pool->name);
    if (definition->n_keys > pool->keys_max)
        return err_set(error, STINT_E_FULL, "pool %.*s was made for %zu keys; these are %zu",
                       (int)pool->name_len, pool->name, pool->keys_max, definition->n_keys);
    return 0;
}

/* What all that is asked of a definition is done with. */
struct definition {
    const struct pools_definition *given;
    struct parsed_key *keys, **by_name;
    uint64_t now_ns;
    bool is_made; /* else looked at alone */
};

static int define(struct pools *pools, const struct definition *definition,
                  struct stint_error *error)
{
    struct stint_pool *pool = NULL;
    const struct pools_definition *given = definition->given;
    size_t at = find_index(pools, given->name);
    int code = parse_definition(pools, given, definition->keys, definition->by_name, error);
    if (code == 0 && at < pools->n_pools)
        code = check_fits(pool = pools->pools[at], given, error);
    if (code != 0 || !definition->is_made)
        return code;
    struct hash128 mark = mark_of(definition->by_name, given->n_keys), *last = &pools->defined[at];
    if (pool != NULL && mark.lo == last->lo && mark.hi == last->hi)
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

static int check_or_define(struct pools *pools, struct definition *definition,
                           struct stint_error *error)
{
    size_t n_keys = definition->given->n_keys;
    if (n_keys > STINT_POOL_KEYS_MAX)
        return err_set(error, STINT_E_RANGE, "a pool has at most %d keys", STINT_POOL_KEYS_MAX);
    /* One more than there are: no keys at all is a pool, too. */
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
