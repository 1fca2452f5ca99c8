/* SPDX-License-Identifier: MIT */
/* Parses the section `pools` of the config file; every error has its line and column. */
#include "cmd/serve/serve_pools.h"

#include "cmd/pool/pool_keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading the section --------------------------------------------------------------------- */

struct reader {
    struct arena *arena;
    const struct source *source;
};

enum {
    POOL_NAME,
    POOL_ORDER,
    POOL_QUOTA,
    POOL_QUOTAS,
    POOL_KEYS,
    POOL_KEYS_FILE,
    POOL_STORE,
    POOL_FIELDS
};
enum { KEY_NAME, KEY_QUOTA, KEY_QUOTAS, KEY_WEIGHT, KEY_FIELDS };

static const char *const pool_fields[POOL_FIELDS] = {
    [POOL_NAME] = "name",     [POOL_ORDER] = "order", [POOL_QUOTA] = "quota",
    [POOL_QUOTAS] = "quotas", [POOL_KEYS] = "keys",   [POOL_KEYS_FILE] = "keys_file",
    [POOL_STORE] = "store",
};
static const char *const key_fields[KEY_FIELDS] = {
    [KEY_NAME] = "name",
    [KEY_QUOTA] = "quota",
    [KEY_QUOTAS] = "quotas",
    [KEY_WEIGHT] = "weight",
};
static const struct shape pool_shape = {"pool", "a pool", pool_fields, POOL_FIELDS};
static const struct shape key_shape = {"key", "NAME or {name: NAME}", key_fields, KEY_FIELDS};

const char *const configured_pool_orders[] = {
    [STINT_ROUND_ROBIN] = "round_robin",
    [STINT_FILL_FIRST] = "fill_first",
    [STINT_LEAST_USED] = "least_used",
};
#define N_ORDERS (sizeof(configured_pool_orders) / sizeof(configured_pool_orders[0]))

static void fault(const struct reader *reader, struct source_position position, const char *message)
{
    diagnostics_add(reader->source, position, "%s", message);
}

static void *take(const struct reader *reader, size_t n, size_t size)
{
    void *space = arena_take(reader->arena, n * size);
    if (space == NULL)
        fault(reader, (struct source_position){0}, "out of memory");
    return space;
}

static size_t count_parts(const struct yaml_value *list)
{
    size_t n = 0;
    for (const struct yaml_part *part = list->parts; part != NULL; part = part->next)
        n++;
    return n;
}

/* ---- Names and quotas ------------------------------------------------------------------------ */

static void read_name(const struct reader *reader, struct source_position position,
                      struct span name)
{
    struct stint_error why;
    if (name.len == 0)
        fault(reader, position, "expected a name, found an empty text");
    else if (pool_keys_check_name(name, &why) != 0)
        fault(reader, position, why.message);
}

static void read_name_field(const struct reader *reader, const struct fields *fields, int field,
                            struct span *name)
{
    if (schema_value(fields, field) == NULL)
        schema_error(fields, field, "expected a name, found none");
    else if (schema_text(fields, field, name))
        read_name(reader, schema_position(fields, field), *name);
}

static void read_spec(const struct reader *reader, const struct yaml_value *value,
                      struct configured_quotas *quotas)
{
    struct stint_quota quota;
    struct stint_error why;
    const char *text = value->kind == YAML_TEXT ? arena_text(reader->arena, value->text) : NULL;
    if (text == NULL || yaml_is_null(value) || strlen(text) != value->text.len)
        diagnostics_add(reader->source, value->position,
                        "expected a quota such as 100/1m, found %s", schema_found(value).text);
    else if (stint_quota_parse(&quota, text, &why) != 0)
        fault(reader, value->position, why.message);
    else
        quotas->specs[quotas->n_specs++] = value->text;
}

static void read_specs(const struct reader *reader, const struct fields *fields, int field,
                       struct configured_quotas *quotas)
{
    const struct yaml_value *list = schema_value(fields, field);
    size_t n = list->kind == YAML_LIST ? count_parts(list) : 0;
    if (n < 1 || n > STINT_POOL_QUOTAS_MAX) {
        schema_error(fields, field, "expected a list of 1 to %d quotas", STINT_POOL_QUOTAS_MAX);
        return;
    }
    for (const struct yaml_part *part = list->parts; part != NULL; part = part->next)
        read_spec(reader, part->value, quotas);
}

/* `quota` is short for a list of one. */
static void read_quotas(const struct reader *reader, const struct fields *fields, int one, int many,
                        struct configured_quotas *quotas)
{
    const struct yaml_value *single = schema_value(fields, one);
    bool has_list = schema_value(fields, many) != NULL;
    if (single == NULL && !has_list)
        return;
    quotas->specs = take(reader, STINT_POOL_QUOTAS_MAX, sizeof(*quotas->specs));
    if (single != NULL && has_list)
        schema_error(fields, many, "quota is there already: expected one of both");
    else if (quotas->specs != NULL && single != NULL)
        read_spec(reader, single, quotas);
    else if (quotas->specs != NULL)
        read_specs(reader, fields, many, quotas);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static void read_key(const struct reader *reader, const struct yaml_value *value,
                     struct configured_key *key)
{
    struct fields fields;
    key->position = value->position;
    key->weight = 1;
    if (value->kind == YAML_TEXT && !yaml_is_null(value)) {
        key->name = value->text;
        read_name(reader, value->position, key->name);
        return;
    }
    if (!schema_read(reader->source, &key_shape, value, &fields))
        return;
    read_name_field(reader, &fields, KEY_NAME, &key->name);
    read_quotas(reader, &fields, KEY_QUOTA, KEY_QUOTAS, &key->quotas);
    if (schema_number(&fields, KEY_WEIGHT, 1, &key->weight) && key->weight > STINT_POOL_WEIGHT_MAX)
        schema_error(&fields, KEY_WEIGHT, "expected at most %d, found %u", STINT_POOL_WEIGHT_MAX,
                     key->weight);
}

/* By name, and equal names by position. */
static int compare_keys(const void *a, const void *b)
{
    const struct configured_key *x = *(const struct configured_key *const *)a;
    const struct configured_key *y = *(const struct configured_key *const *)b;
    size_t len = x->name.len < y->name.len ? x->name.len : y->name.len;
    int order = len > 0 ? memcmp(x->name.ptr, y->name.ptr, len) : 0;
    if (order != 0)
        return order;
    if (x->name.len != y->name.len)
        return x->name.len < y->name.len ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool is_same_name(struct span a, struct span b)
{
    return a.len == b.len && a.len > 0 && memcmp(a.ptr, b.ptr, a.len) == 0;
}

static void tell_twice(const struct reader *reader, const char *what, struct span name,
                       struct source_position second, struct source_position first)
{
    diagnostics_add(reader->source, second, "the %s %s is there already, in line %u", what,
                    quoted_text(name).text, first.line);
}

static void refuse_twice(const struct reader *reader, const struct configured_pool *pool)
{
    const struct configured_key **sorted =
        take(reader, pool->n_keys + 1, sizeof(const struct configured_key *));
    if (sorted == NULL)
        return;
    for (size_t i = 0; i < pool->n_keys; i++)
        sorted[i] = &pool->keys[i];
    qsort(sorted, pool->n_keys, sizeof(const struct configured_key *), compare_keys);
    for (size_t i = 1; i < pool->n_keys; i++)
        if (is_same_name(sorted[i - 1]->name, sorted[i]->name))
            tell_twice(reader, "key", sorted[i]->name, sorted[i]->position,
                       sorted[i - 1]->position);
}

static void read_keys(const struct reader *reader, const struct fields *fields,
                      struct configured_pool *pool)
{
    const struct yaml_value *list = schema_value(fields, POOL_KEYS);
    if (list == NULL)
        return;
    if (list->kind != YAML_LIST) {
        schema_error(fields, POOL_KEYS, "expected a list of names, found %s",
                     schema_found(list).text);
        return;
    }
    pool->keys = take(reader, count_parts(list) + 1, sizeof(*pool->keys));
    for (const struct yaml_part *part = list->parts; pool->keys != NULL && part != NULL;
         part = part->next)
        read_key(reader, part->value, &pool->keys[pool->n_keys++]);
    refuse_twice(reader, pool);
}

static void read_keys_file(const struct reader *reader, const struct fields *fields,
                           struct configured_pool *pool)
{
    struct span path;
    if (!schema_text(fields, POOL_KEYS_FILE, &path))
        return;
    if (path.len == 0)
        schema_error(fields, POOL_KEYS_FILE, "expected a FILE, found nothing");
    pool->keys_file = arena_text(reader->arena, path);
    if (pool->keys_file == NULL)
        fault(reader, (struct source_position){0}, "out of memory");
}

/* ---- Pools ----------------------------------------------------------------------------------- */

/* A pool whose quotas have errors gets no further diagnostics. */
static void refuse_without_quota(const struct reader *reader, const struct fields *fields,
                                 const struct configured_pool *pool)
{
    static const char message[] = "expected a quota, of this key or of its pool; found none";
    if (pool->quotas.specs != NULL)
        return;
    for (size_t i = 0; i < pool->n_keys; i++)
        if (pool->keys[i].quotas.specs == NULL)
            fault(reader, pool->keys[i].position, message);
    if (pool->keys_file != NULL)
        schema_error(fields, POOL_KEYS_FILE,
                     "its keys have no quota: expected `quota` of the pool");
}

static void read_pool(const struct reader *reader, const struct yaml_value *value,
                      struct configured_pool *pool)
{
    struct fields fields;
    size_t order = STINT_ROUND_ROBIN;
    pool->position = value->position;
    if (!schema_read(reader->source, &pool_shape, value, &fields))
        return;
    read_name_field(reader, &fields, POOL_NAME, &pool->name);
    (void)schema_choice(&fields, POOL_ORDER, configured_pool_orders, N_ORDERS, &order);
    pool->order = (uint8_t)order;
    if (schema_text(&fields, POOL_STORE, &pool->store) && pool->store.len == 0)
        schema_error(&fields, POOL_STORE, "expected the name of a store, found an empty text");
    read_quotas(reader, &fields, POOL_QUOTA, POOL_QUOTAS, &pool->quotas);
    read_keys(reader, &fields, pool);
    read_keys_file(reader, &fields, pool);
    refuse_without_quota(reader, &fields, pool);
}

static void refuse_second(const struct reader *reader, const struct configured_pools *pools)
{
    const struct configured_pool *last = &pools->pools[pools->n_pools - 1];
    for (size_t i = 0; i + 1 < pools->n_pools; i++)
        if (is_same_name(pools->pools[i].name, last->name)) {
            tell_twice(reader, "pool", last->name, last->position, pools->pools[i].position);
            return;
        }
}

void configured_pools_read(struct configured_pools *pools, struct arena *arena,
                           const struct source *source, const struct yaml_value *section)
{
    const struct reader reader = {arena, source};
    *pools = (struct configured_pools){.path = source->path};
    if (yaml_is_null(section))
        return;
    if (section->kind != YAML_LIST) {
        diagnostics_add(
            source, section->position,
            "pools: expected a list of pools, found %s; how many there may be, pools_max "
            "says",
            schema_found(section).text);
        return;
    }
    size_t n = count_parts(section);
    if (n > POOLS_MAX) {
        diagnostics_add(source, section->position, "pools: expected at most %d, found %zu",
                        POOLS_MAX, n);
        return;
    }
    pools->pools = take(&reader, n + 1, sizeof(*pools->pools));
    for (const struct yaml_part *part = section->parts; pools->pools != NULL && part != NULL;
         part = part->next) {
        read_pool(&reader, part->value, &pools->pools[pools->n_pools++]);
        refuse_second(&reader, pools);
    }
}

/* ---- Creating the pools ---------------------------------------------------------------------- */

/* A secret in such a file is a mistake: the error names its line, and never quotes it. */
static int read_names_of_file(struct pool_keys *named, const char *path, struct stint_error *error)
{
    int code = pool_keys_read_file(named, path, error);
    for (size_t i = 0; code == 0 && i < named->n_keys; i++)
        if (named->keys[i].secret.ptr != NULL)
            code = err_set(error, STINT_E_SYNTAX,
                           "%s, line %zu: expected a NAME alone, found more behind it", path,
                           named->keys[i].position);
    return code;
}

static struct pools_key key_of(struct span name, const struct configured_quotas *quotas,
                               uint32_t weight)
{
    return (struct pools_key){
        .name = name, .quotas = quotas->specs, .n_quotas = quotas->n_specs, .weight = weight};
}

/* now_ns: NULL to check it only. */
static int define_pool(const struct configured_pool *pool, const struct pool_keys *named,
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
    int code = pool->keys_file != NULL ? read_names_of_file(&named, pool->keys_file, error) : 0;
    if (code == 0)
        code = define_pool(pool, &named, pools, now_ns, error);
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
                           pool->position.line, pool->position.column, why.message);
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
