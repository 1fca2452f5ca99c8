/* SPDX-License-Identifier: MIT */
/*
 * Opens the table of a pool with capacity for its keys, and adds these with their quotas: those of
 * all, or of one by --quota-for and --weight.
 */
#define _GNU_SOURCE
#include "cmd/pool/pool.h"

#include "base/limits.h"
#include "base/wide_int.h"
#include "cmd/lib/args.h"
#include "cmd/lib/print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The quotas and weights of keys ---------------------------------------------------------- */

/* The name of the key of `add`; NULL for other verbs. */
static const char *new_name(const struct pool_session *session)
{
    return session->options->verb == POOL_ADD ? session->options->words[0] : NULL;
}

/*
 * The key of NAME=VALUE, and the text after the sign. A name may contain the sign itself: of the
 * names that fit, the longest is taken.
 */
static int find_owner(const struct pool_session *session, const char *setting, size_t *owner,
                      const char **value, struct stint_error *error)
{
    const struct pool_keys *keys = &session->keys;
    size_t longest = 0;
    for (size_t i = 0; i <= keys->n_keys; i++) {
        const char *name = i < keys->n_keys ? keys->keys[i].name : new_name(session);
        size_t len = name != NULL ? strlen(name) : 0;
        if (len <= longest || strncmp(setting, name, len) != 0 || setting[len] != '=')
            continue;
        longest = len;
        *owner = i;
        *value = setting + len + 1;
    }
    if (longest > 0)
        return 0;
    if (strchr(setting, '=') == NULL)
        return err_set(error, STINT_E_SYNTAX, "'%s' is not NAME=VALUE", setting);
    return err_set(error, STINT_E_GONE, "'%s' begins with the name of no key of the pool", setting);
}

static int read_weight(struct pool_session *session, const char *setting, struct stint_error *error)
{
    size_t owner = 0;
    const char *value = setting;
    int code = find_owner(session, setting, &owner, &value, error);
    if (code != 0)
        return code;
    char *end;
    unsigned long weight = strtoul(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || weight < 1 ||
        weight > STINT_POOL_WEIGHT_MAX)
        return err_set(error, STINT_E_SYNTAX, "--weight '%s': a weight is a number from 1 to %d",
                       setting, STINT_POOL_WEIGHT_MAX);
    session->weights[owner] = (uint32_t)weight;
    return 0;
}

static int read_own_quota(struct pool_session *session, const char *setting,
                          struct stint_error *error)
{
    struct pool_own_quota *own = &session->own[session->n_own];
    struct stint_error why;
    const char *value = setting;
    int code = find_owner(session, setting, &own->key, &value, error);
    if (code != 0)
        return code;
    code = stint_quota_parse(&own->quota, value, &why);
    if (code != 0)
        return err_set(error, code, "--quota-for '%s' is no quota: %s", setting, why.message);
    session->n_own++;
    return 0;
}

/* Writes the quotas of a key by its index, up to STINT_POOL_QUOTAS_MAX: its own, or all's. */
static int quotas_of(const struct pool_session *session, size_t key, struct stint_quota *quotas,
                     size_t *n_quotas, struct stint_error *error)
{
    *n_quotas = 0;
    for (size_t i = 0; i < session->n_own; i++) {
        if (session->own[i].key != key)
            continue;
        if (*n_quotas == STINT_POOL_QUOTAS_MAX)
            return err_set(error, STINT_E_RANGE, "a key has at most %d quotas",
                           STINT_POOL_QUOTAS_MAX);
        quotas[(*n_quotas)++] = session->own[i].quota;
    }
    if (*n_quotas > 0)
        return 0;
    *n_quotas = session->options->n_quotas;
    memcpy(quotas, session->options->quotas, *n_quotas * sizeof(*quotas));
    return 0;
}

/* The most units that any key can ever grant at once. */
static uint32_t capacity(const struct pool_session *session)
{
    uint32_t most = 0;
    for (size_t i = 0; i < session->keys.n_keys; i++) {
        struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
        size_t n_quotas = 0;
        uint32_t least = UINT32_MAX;
        if (quotas_of(session, i, quotas, &n_quotas, NULL) != 0)
            continue;
        for (size_t j = 0; j < n_quotas; j++) {
            uint32_t one = quotas[j].algorithm == STINT_GCRA ? quotas[j].burst : quotas[j].limit;
            least = one < least ? one : least;
        }
        most = least > most ? least : most;
    }
    return most;
}

static int check_quotas_of(const struct pool_session *session, size_t key, const char *name,
                           struct stint_error *error)
{
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    size_t n_quotas = 0;
    int code = quotas_of(session, key, quotas, &n_quotas, error);
    if (code == 0 && n_quotas == 0)
        code = err_set(error, STINT_E_MISMATCH,
                       "no quota for '%s'; expected --quota, or --quota-for '%s=SPEC'", name, name);
    for (size_t i = 0; code == 0 && i < n_quotas; i++)
        if (quotas[i].algorithm == STINT_CONCURRENCY)
            code = err_set(error, STINT_E_MISMATCH,
                           "a pool counts uses, not holders: concurrency is no quota for it");
    return code;
}

/* All keys, and the one of `add`. */
static int check_quotas(const struct pool_session *session, struct stint_error *error)
{
    const struct pool_keys *keys = &session->keys;
    int code = 0;
    for (size_t i = 0; code == 0 && i < keys->n_keys; i++)
        code = check_quotas_of(session, i, keys->keys[i].name, error);
    if (code == 0 && new_name(session) != NULL)
        code = check_quotas_of(session, keys->n_keys, new_name(session), error);
    return code;
}

/* Reads --quota-for and --weight; refuses keys without a quota, and a cost above all quotas. */
static int read_settings(struct pool_session *session, struct stint_error *error)
{
    const struct pool_options *options = session->options;
    session->weights = calloc(session->keys.n_keys + 1, sizeof(*session->weights));
    session->own = calloc(options->n_quota_for + 1, sizeof(*session->own));
    if (session->weights == NULL || session->own == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    session->bad_usage = true;
    int code = 0;
    for (size_t i = 0; code == 0 && i < options->n_weight; i++)
        code = read_weight(session, options->weight[i], error);
    for (size_t i = 0; code == 0 && i < options->n_quota_for; i++)
        code = read_own_quota(session, options->quota_for[i], error);
    if (code == 0)
        code = check_quotas(session, error);
    uint32_t most = code == 0 ? capacity(session) : 0;
    if (code == 0 && options->verb == POOL_NEXT && options->cost > most)
        code =
            err_set(error, STINT_E_RANGE,
                    "--cost %" PRIu32 " can never fit: no key gives more than %" PRIu32 " at once",
                    options->cost, most);
    session->bad_usage = code != 0;
    return code;
}

/* ---- The session ----------------------------------------------------------------------------- */

#define SPACE_LEAST 256  /* keys */
#define SPACE_TIMES 4    /* for keys added later, or removed with units still in use */
#define QUOTAS_LEAST 256 /* a state for all keys together, for each number of keys */

/* ---- The table ---- */

static void widen(struct stint_table_options *table, const struct stint_quota *quota)
{
    size_t size = stint_state_size(quota);
    if (size > 16 && size > table->wide_size)
        table->wide_size = (uint32_t)size;
}

/* Capacity for the states of all keys under each of their quotas, whatever their width. */
static void size_table(struct stint_table_options *table, const struct pool_session *session)
{
    const struct pool_options *options = session->options;
    uint64_t times = options->n_quotas > 0 ? options->n_quotas : 1;
    uint64_t space = options->space;
    if (session->n_own > 0)
        times = STINT_POOL_QUOTAS_MAX;
    if (space == 0)
        space = max_u64(SPACE_LEAST, SPACE_TIMES * session->keys.n_keys);
    for (size_t i = 0; i < options->n_quotas; i++)
        widen(table, &options->quotas[i]);
    for (size_t i = 0; i < session->n_own; i++)
        widen(table, &session->own[i].quota);
    table->keys = table->keys16 = space * times;
    table->keys_wide = table->wide_size > 0 ? space * times : 0;
    table->tickets = 1;
    table->blocks = (uint32_t)space;
    table->quotas = (uint32_t)min_u64(QUOTAS_LEAST + 2 * session->n_own, TABLE_QUOTAS_MAX);
}

static int open_table(struct pool_session *session, struct stint_error *error)
{
    const struct pool_options *options = session->options;
    bool makes = options->verb != POOL_STATUS && options->verb != POOL_GIVE_BACK;
    struct stint_table_options table = {
        .path = options->state,
        .clock = options->has_now ? STINT_CLOCK_VIRTUAL : STINT_CLOCK_REAL,
        .skew_max_ns = options->has_now ? 1 : 0, /* in virtual time all clocks agree */
        .must_exist = !makes,
        .overrides = 1, /* pools use none, and the file is to be small */
    };
    struct stint_error why;
    size_table(&table, session);
    int code = stint_table_open(&session->table, &table, &why);
    if (code == STINT_E_MISMATCH)
        return err_set(error, code, "%s; %s, or name another FILE", why.message,
                       options->has_now ? "leave --now out" : "say --now");
    if (code != 0)
        return err_set(error, code, "%s", why.message);
    if (options->has_now)
        stint_table_set_now(session->table, options->now_ns);
    return 0;
}

/* ---- The pool ---- */

static int add_key(struct pool_session *session, const char *name, size_t index,
                   struct stint_error *error)
{
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    struct stint_error why;
    struct stint_pool_key key = {.name = name, .quotas = quotas, .weight = session->weights[index]};
    int code = quotas_of(session, index, quotas, &key.n_quotas, error);
    if (code != 0)
        return code;
    code = stint_pool_add(session->pool, &key, stint_now(session->table), &why);
    return code == 0 ? 0 : err_set(error, code, "the key '%s': %s", name, why.message);
}

int pool_session_add(struct pool_session *session, const char *name, struct stint_error *error)
{
    return add_key(session, name, session->keys.n_keys, error);
}

static int open_pool(struct pool_session *session, struct stint_error *error)
{
    const struct stint_pool_options options = {
        .name = session->options->pool,
        .keys_max = session->keys.n_keys + (session->options->verb == POOL_ADD),
        .order = (uint8_t)session->options->order,
    };
    int code = stint_pool_open(&session->pool, session->table, &options, error);
    for (size_t i = 0; code == 0 && i < session->keys.n_keys; i++)
        code = add_key(session, session->keys.keys[i].name, i, error);
    return code;
}

static int read_keys(struct pool_session *session, struct stint_error *error)
{
    int code = pool_keys_read(&session->keys, session->options->keys, error);
    session->bad_usage = code != 0 && session->keys.path == NULL;
    if (code == 0 && session->keys.holds_secrets && session->keys.seen_by_others)
        print_message("%s holds secrets and others may read it: chmod 600 %s", session->keys.path,
                      session->keys.path);
    return code;
}

int pool_session_open(struct pool_session *session, const struct pool_options *options,
                      struct stint_error *error)
{
    *session = (struct pool_session){.options = options};
    int code = read_keys(session, error);
    if (code == 0)
        code = read_settings(session, error);
    if (code == 0)
        code = open_table(session, error);
    return code != 0 ? code : open_pool(session, error);
}

void pool_session_close(struct pool_session *session)
{
    stint_pool_close(session->pool);
    stint_table_close(session->table);
    free(session->own);
    free(session->weights);
    pool_keys_deinit(&session->keys);
}
