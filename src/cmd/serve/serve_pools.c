/* SPDX-License-Identifier: MIT */
/* Creates the pools of the config file: their own keys, and those of their files. */
#include "cmd/serve/serve_pools.h"

#include "cmd/pool/pool_keys.h"

#include <inttypes.h>
#include <stdlib.h>

/* A secret in such a file is a mistake: the error names its line, and never quotes it. */
static int read_names(struct pool_keys *named, const char *path, struct stint_error *error)
{
    int code = pool_keys_read_file(named, path, error);
    for (size_t i = 0; code == 0 && i < named->n_keys; i++)
        if (named->keys[i].secret.ptr != NULL)
            code = err_set(error, STINT_E_SYNTAX,
                           "%s, line %zu: expected a NAME alone, found more behind it", path,
                           named->keys[i].place);
    return code;
}

static struct pools_key key_of(struct span name, const struct configured_quotas *quotas,
                               uint32_t weight)
{
    return (struct pools_key){
        .name = name, .quotas = quotas->specs, .n_quotas = quotas->n_specs, .weight = weight};
}

/* now_ns: NULL to check it only. */
static int define(const struct configured_pool *pool, const struct pool_keys *named,
                  struct pools *pools, const uint64_t *now_ns, struct stint_error *error)
{
    struct pools_key *keys = calloc(pool->n_keys + named->n_keys + 1, sizeof(*keys));
    size_t n_keys = 0;
    if (keys == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the keys");
    for (size_t i = 0; i < pool->n_keys; i++) {
        const struct configured_key *key = &pool->keys[i];
        keys[n_keys++] =
            key_of(key->name, key->quotas.n_specs > 0 ? &key->quotas : &pool->quotas, key->weight);
    }
    for (size_t i = 0; i < named->n_keys; i++)
        keys[n_keys++] = key_of(span_of_text(named->keys[i].name), &pool->quotas, 1);
    const struct pools_definition definition = {.name = pool->name,
                                                .store = pool->store,
                                                .order = pool->order,
                                                .keys = keys,
                                                .n_keys = n_keys};
    int code = now_ns == NULL ? pools_check(pools, &definition, error)
                              : pools_define(pools, &definition, *now_ns, error);
    free(keys);
    return code;
}

static int read_and_define(const struct configured_pool *pool, struct pools *pools,
                           const uint64_t *now_ns, struct stint_error *error)
{
    struct pool_keys named = {0};
    int code = pool->keys_file != NULL ? read_names(&named, pool->keys_file, error) : 0;
    if (code == 0)
        code = define(pool, &named, pools, now_ns, error);
    pool_keys_deinit(&named);
    return code;
}

static int for_all(const struct configured_pools *configured, struct pools *pools,
                   const uint64_t *now_ns, struct stint_error *error)
{
    for (size_t i = 0; i < configured->n_pools; i++) {
        const struct configured_pool *pool = &configured->pools[i];
        struct stint_error why;
        int code = read_and_define(pool, pools, now_ns, &why);
        if (code != 0)
            return err_set(error, code, "%s:%" PRIu32 ":%" PRIu32 ": %s", configured->path,
                           pool->place.line, pool->place.column, why.message);
    }
    return 0;
}

int configured_pools_check(const struct configured_pools *configured, struct pools *pools,
                           struct stint_error *error)
{
    return for_all(configured, pools, NULL, error);
}

int configured_pools_define(const struct configured_pools *configured, struct pools *pools,
                            uint64_t now_ns, struct stint_error *error)
{
    return for_all(configured, pools, &now_ns, error);
}

static bool is_configured(const struct configured_pools *configured, const char *name)
{
    for (size_t i = 0; i < configured->n_pools; i++)
        if (span_equals(configured->pools[i].name, name))
            return true;
    return false;
}

bool configured_pools_lack(const struct configured_pools *configured, const struct pools *pools)
{
    for (size_t i = 0; i < pools_count(pools); i++)
        if (!is_configured(configured, pools_name(pools, i)))
            return true;
    return false;
}
