/* SPDX-License-Identifier: MIT */
#include "service/pools/parsed_keys.h"

#include "base/err.h"
#include "limiter/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SPEC_SIZE 256

/* ---- One key --------------------------------------------------------------------------------- */

int pools_name_copy(struct pools_name *name, struct span from, const char *whose,
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

/* Each key has a state of its own. */
static int check_key(struct parsed_key *key, struct stint_table *table, struct stint_error *error)
{
    assert(key->key.n_quotas <= STINT_POOL_QUOTAS_MAX);
    for (size_t i = 0; i < key->key.n_quotas; i++) {
        struct stint_quota *quota = &key->quotas[i];
        int code = pool_check_quota(quota, error);
        quota->when_full = STINT_FULL_INHERIT;
        if (code == 0)
            code = stint_quota_check(quota, error);
        if (code == 0 && table != NULL)
            code = stint_table_accepts(table, quota, error);
        if (code != 0)
            return code;
        for (size_t j = 0; j < i; j++)
            if (intern_same_params(quota, &key->quotas[j]))
                return err_set(error, STINT_E_MISMATCH, "quotas %zu and %zu of key %s are the same",
                               j + 1, i + 1, key->name.text);
    }
    return 0;
}

int parsed_key_read(struct parsed_key *parsed, const struct pools_key *from,
                    struct stint_table *table, struct stint_error *error)
{
    int code = pools_name_copy(&parsed->name, from->name, "key", error);
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
    return code == 0 ? check_key(parsed, table, error) : code;
}

void parsed_key_copy(struct parsed_key *to, const struct parsed_key *from)
{
    assert(from->key.n_quotas <= STINT_POOL_QUOTAS_MAX);
    *to = *from;
    to->key.name = to->name.text;
    to->key.quotas = to->quotas;
}

int parsed_key_fault(int code, struct stint_error *error)
{
    if (code != STINT_E_MISMATCH)
        return code;
    if (error != NULL)
        error->code = STINT_E_SYNTAX;
    return STINT_E_SYNTAX;
}

/* ---- All keys of a definition ---------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const struct parsed_key *const *left = a, *const *right = b;
    return strcmp((*left)->name.text, (*right)->name.text);
}

static int read_all(struct parsed_keys *keys, const struct pools_definition *definition,
                    struct stint_table *table, struct stint_error *error)
{
    for (; keys->n < definition->n_keys; keys->n++) {
        struct parsed_key *key = &keys->all[keys->n];
        int code = parsed_key_read(key, &definition->keys[keys->n], table, error);
        if (code != 0)
            return code;
        keys->by_name[keys->n] = key;
    }
    qsort(keys->by_name, keys->n, sizeof(struct parsed_key *), compare_names);
    for (size_t i = 1; i < keys->n; i++)
        if (compare_names(&keys->by_name[i - 1], &keys->by_name[i]) == 0)
            return err_set(error, STINT_E_MISMATCH, "key %s is in the pool twice",
                           keys->by_name[i]->name.text);
    return 0;
}

int parsed_keys_read(struct parsed_keys *keys, const struct pools_definition *definition,
                     struct stint_table *table, struct stint_error *error)
{
    size_t n = definition->n_keys;
    if (n > STINT_POOL_KEYS_MAX)
        return err_set(error, STINT_E_RANGE, "a pool has at most %d keys", STINT_POOL_KEYS_MAX);
    /* One more than the count, as a pool may have no keys. */
    *keys = (struct parsed_keys){.all = calloc(n + 1, sizeof(*keys->all)),
                                 .by_name = calloc(n + 1, sizeof(struct parsed_key *))};
    int code = keys->all == NULL || keys->by_name == NULL
                   ? err_set(error, STINT_E_SYSTEM, "no memory for %zu keys", n)
                   : read_all(keys, definition, table, error);
    if (code != 0)
        parsed_keys_free(keys);
    return code;
}

void parsed_keys_free(struct parsed_keys *keys)
{
    free(keys->all);
    free(keys->by_name);
    *keys = (struct parsed_keys){.n = 0};
}

static int compare_to_name(const void *name, const void *key)
{
    const struct parsed_key *const *with = key;
    return strcmp(name, (*with)->name.text);
}

const struct parsed_key *parsed_keys_find(const struct parsed_keys *keys, const char *name)
{
    struct parsed_key **found =
        bsearch(name, keys->by_name, keys->n, sizeof(struct parsed_key *), compare_to_name);
    return found != NULL ? *found : NULL;
}

struct hash128 parsed_keys_mark(const struct parsed_keys *keys)
{
    struct hash128 mark = {keys->n, 0};
    for (size_t i = 0; i < keys->n; i++) {
        const struct parsed_key *key = keys->by_name[i];
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
