/* SPDX-License-Identifier: MIT */
/* Opens the table of a pool with capacity for its keys, and adds these with their quotas. */
#define _GNU_SOURCE
#include "base/limits.h"
#include "base/wide_int.h"
#include "cmd/lib/args.h"
#include "cmd/lib/print.h"
#include "cmd/pool/pool.h"

#include <stdlib.h>
#include <string.h>

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

uint64_t pool_session_now(const struct pool_session *session)
{
    return stint_now(session->table);
}

/* ---- The pool ---- */

static int add_key(struct pool_session *session, const char *name, size_t index,
                   struct stint_error *error)
{
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    struct stint_error why;
    struct stint_pool_key key = {.name = name, .quotas = quotas, .weight = session->weights[index]};
    int code = pool_own_quotas(session, index, quotas, &key.n_quotas, error);
    if (code != 0)
        return code;
    code = stint_pool_add(session->pool, &key, pool_session_now(session), &why);
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

struct search {
    const char *name;
    struct stint_pool_status *status;
    bool found;
};

/* A callback of stint_pool_each(). */
static bool compare(const struct stint_pool_status *status, void *arg)
{
    struct search *search = arg;
    search->found = strcmp(status->name, search->name) == 0;
    if (search->found) {
        *search->status = *status;
        search->status->name = search->name; /* valid only during the callback */
    }
    return !search->found;
}

bool pool_session_status(const struct pool_session *session, const char *name,
                         struct stint_pool_status *status)
{
    struct search search = {.name = name, .status = status};
    stint_pool_each(session->pool, pool_session_now(session), compare, &search);
    return search.found;
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
        code = pool_own_read(session, error);
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
