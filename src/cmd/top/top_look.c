/* SPDX-License-Identifier: MIT */
/* Samples of servers: of one, and the sums of several, each with a connection of its own. */
#define _GNU_SOURCE
#include "cmd/top/top.h"

#include "base/ns.h"
#include "cmd/lib/print.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- A sample of one server ------------------------------------------------------------------ */

/* A server's message if it returns no metrics, without its control characters. */
static int refused(const struct client_answer *answer, const char *path, struct stint_error *error)
{
    if (answer->status == 401 || answer->status == 403)
        return err_set(error, STINT_E_MISMATCH,
                       "the server wants a token with the role metrics: --token-file (it answered "
                       "%s with %d)",
                       path, answer->status);
    return err_set(error, STINT_E_MISMATCH,
                   "the server answered %s with status %d; is it a stint server?", path,
                   answer->status);
}

static json_t *ask_server(struct client *client, const char *path, struct stint_error *error)
{
    struct client_answer answer;
    if (client_get(client, path, &answer, error) != 0)
        return NULL;
    if (answer.status != 200) {
        refused(&answer, path, error);
        return NULL;
    }
    json_t *object =
        json_loadb((const char *)answer.body.ptr, answer.body.len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        err_set(error, STINT_E_SYNTAX, "the server's answer to %s is not a JSON object", path);
        return NULL;
    }
    return object;
}

void top_forget(struct top_look *look)
{
    json_decref(look->stats);
    json_decref(look->keys);
    json_decref(look->servers);
    *look = (struct top_look){NULL, NULL, NULL};
}

/* 0, or a code: no answer, or one that is not from a stint server. */
static int top_look(struct client *client, const struct top_options *options, struct top_look *look,
                    struct stint_error *error)
{
    char path[64];
    /* A key of several servers may be far down in the list of each. */
    size_t n_keys = options->n_servers > 1 ? TOP_KEYS_MAX : options->keys;
    snprintf(path, sizeof(path), "/v1/top?order=%s&n=%zu",
             options->order == TOP_ASKED ? "asked" : "denied", n_keys);
    *look = (struct top_look){.stats = ask_server(client, "/v1/stats", error)};
    if (look->stats != NULL)
        look->keys = ask_server(client, path, error);
    if (look->keys != NULL)
        return 0;
    top_forget(look);
    return error->code != 0 ? error->code : STINT_E_SYSTEM;
}

/* ---- Several servers ------------------------------------------------------------------------- */

/* One server, queried in a thread of its own. */
struct query {
    struct client *client;
    const struct top_options *options;
    struct top_look look;
    struct stint_error why;
    int code;
    pthread_t thread;
    bool has_thread;
};

struct top_group {
    size_t n_servers;
    const char *urls[TOP_SERVERS_MAX]; /* NULL: the default one */
    struct client *clients[TOP_SERVERS_MAX];
    struct query queries[TOP_SERVERS_MAX];
};

int top_group_open(struct top_group **group, const struct top_options *options,
                   struct stint_error *error)
{
    struct top_group *made = calloc(1, sizeof(*made));
    struct client_options client = options->client;
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    made->n_servers = options->n_servers > 0 ? options->n_servers : 1;
    for (size_t i = 0; i < made->n_servers; i++) {
        if (options->n_servers > 0)
            client.server = options->servers[i];
        made->urls[i] = client.server;
        int code = client_open(&made->clients[i], &client, error);
        if (code != 0) {
            top_group_close(made);
            return code;
        }
    }
    *group = made;
    return 0;
}

void top_group_close(struct top_group *group)
{
    if (group == NULL)
        return;
    for (size_t i = 0; i < group->n_servers; i++)
        client_close(group->clients[i]);
    free(group);
}

/* ---- Metrics --------------------------------------------------------------------------------- */

static json_t *number_of(double number, bool is_whole)
{
    return is_whole ? json_integer((json_int_t)number) : json_real(number);
}

/* Adds every number of `other`, in objects within it too. */
static void add_numbers(json_t *sum, json_t *other)
{
    const char *name;
    json_t *value;
    json_object_foreach(other, name, value)
    {
        json_t *own = json_object_get(sum, name);
        if (json_is_object(own) && json_is_object(value))
            add_numbers(own, value);
        else if (json_is_number(own) && json_is_number(value))
            json_object_set_new(sum, name,
                                number_of(json_number_value(own) + json_number_value(value),
                                          json_is_integer(own) && json_is_integer(value)));
        else if (own == NULL || json_is_null(own))
            json_object_set(sum, name, value);
    }
}

/* Keeps the greater of two numbers; null is less than any. */
static void keep_greater(json_t *sum, json_t *other, const char *part, const char *name)
{
    json_t *own = part != NULL ? json_object_get(sum, part) : sum;
    json_t *value = json_object_get(part != NULL ? json_object_get(other, part) : other, name);
    json_t *known = json_object_get(own, name);
    if (json_is_number(value) &&
        (!json_is_number(known) || json_number_value(value) > json_number_value(known)))
        json_object_set(own, name, value);
}

static bool is_same_text(json_t *a, json_t *b, const char *name)
{
    json_t *x = json_object_get(a, name), *y = json_object_get(b, name);
    return json_equal(x, y) == 1;
}

static void add_rules(json_t *sum, json_t *other)
{
    size_t i, j;
    json_t *rule, *known;
    json_array_foreach(other, i, rule)
    {
        bool is_known = false;
        json_array_foreach(sum, j, known)
        {
            is_known = is_same_text(known, rule, "domain") && is_same_text(known, rule, "rule");
            if (is_known)
                break;
        }
        if (is_known)
            add_numbers(known, rule);
        else
            json_array_append(sum, rule);
    }
}

/* `sum` is the object of the first server. */
static void add_stats(json_t *sum, json_t *other)
{
    static const char *const parts[] = {"table", "totals", "rates", "frontends"};
    static const char *const longest[] = {"p50_ns", "p99_ns", "p999_ns", "mean_ns"};
    json_t *step = json_object_get(json_object_get(sum, "table"), "keys_step");
    double keys_step = json_number_value(step);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        json_t *own = json_object_get(sum, parts[i]), *value = json_object_get(other, parts[i]);
        if (json_is_object(own))
            add_numbers(own, value);
        else if (json_is_object(value))
            json_object_set(sum, parts[i], value);
    }
    if (step != NULL) { /* a step of a sample, not a count */
        json_object_set_new(json_object_get(sum, "table"), "keys_step",
                            json_integer((json_int_t)keys_step));
        keep_greater(sum, other, "table", "keys_step");
    }
    for (size_t i = 0; i < sizeof(longest) / sizeof(longest[0]); i++)
        keep_greater(sum, other, "durations", longest[i]);
    keep_greater(sum, other, "reloads", "generation");
    keep_greater(sum, other, "reloads", "rules");
    keep_greater(sum, other, NULL, "up_s");
    add_rules(json_object_get(sum, "rules"), json_object_get(other, "rules"));
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static int by_text(json_t *a, json_t *b, const char *name)
{
    json_t *x = json_object_get(a, name), *y = json_object_get(b, name);
    size_t x_len = json_string_length(x), y_len = json_string_length(y);
    size_t len = x_len < y_len ? x_len : y_len; /* zero bytes are bytes */
    int order = len > 0 ? memcmp(json_string_value(x), json_string_value(y), len) : 0;
    return order != 0 ? order : (x_len > y_len) - (x_len < y_len);
}

static int by_name(const void *a, const void *b)
{
    static const char *const names[] = {"key", "domain", "rule"};
    json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int order = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && order == 0; i++)
        order = by_text(x, y, names[i]);
    return order;
}

static int by_rate(const void *a, const void *b, const char *name)
{
    json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    double x_rate = json_number_value(json_object_get(x, name));
    double y_rate = json_number_value(json_object_get(y, name));
    return x_rate != y_rate ? (x_rate > y_rate ? -1 : 1) : by_name(a, b);
}

/* Rates instead of scores: servers may have different half-lives. */
static int by_asked(const void *a, const void *b)
{
    return by_rate(a, b, "asked_per_s");
}

static int by_denied(const void *a, const void *b)
{
    return by_rate(a, b, "denied_per_s");
}

/* Adds up equal names; returns how many there are then. */
static size_t merge(json_t **rows, size_t n)
{
    size_t merged = 0;
    qsort(rows, n, sizeof(json_t *), by_name);
    for (size_t i = 0; i < n; i++) {
        if (merged > 0 && by_name(&rows[merged - 1], &rows[i]) == 0)
            add_numbers(rows[merged - 1], rows[i]);
        else
            rows[merged++] = rows[i];
    }
    return merged;
}

/* The first of `keys`, an array of the keys of all servers, after equal ones are added up. */
static json_t *sum_of_keys(json_t *keys, const struct top_options *options)
{
    size_t n = json_array_size(keys), i;
    json_t *key, *first = json_array();
    json_t **rows = calloc(n + 1, sizeof(json_t *));
    if (rows == NULL || first == NULL) {
        free(rows);
        return first;
    }
    json_array_foreach(keys, i, key) rows[i] = key;
    n = merge(rows, n);
    qsort(rows, n, sizeof(json_t *), options->order == TOP_ASKED ? by_asked : by_denied);
    for (i = 0; i < n && i < options->keys; i++)
        json_array_append(first, rows[i]);
    free(rows);
    return first;
}

/* ---- Samples --------------------------------------------------------------------------------- */

/* Adds one server's sample, and takes ownership of it. */
static void add_look(struct top_look *sum, json_t *keys, struct top_look *look)
{
    json_array_extend(keys, json_object_get(look->keys, "keys"));
    if (sum->stats == NULL)
        sum->stats = json_incref(look->stats);
    else
        add_stats(sum->stats, look->stats);
    top_forget(look);
}

static void *query_server(void *arg)
{
    struct query *query = arg;
    query->code = top_look(query->client, query->options, &query->look, &query->why);
    return NULL;
}

/* All servers at the same time: one that does not answer costs its own timeout, once. */
static void query_all(struct top_group *group, const struct top_options *options)
{
    for (size_t i = 0; i < group->n_servers; i++) {
        struct query *query = &group->queries[i];
        *query = (struct query){.client = group->clients[i], .options = options};
        query->has_thread = pthread_create(&query->thread, NULL, query_server, query) == 0;
    }
    for (size_t i = 0; i < group->n_servers; i++) {
        struct query *query = &group->queries[i];
        if (query->has_thread)
            pthread_join(query->thread, NULL);
        else
            query_server(query);
    }
}

int top_group_look(struct top_group *group, const struct top_options *options,
                   struct top_look *look, struct stint_error *error)
{
    if (group->n_servers == 1)
        return top_look(group->clients[0], options, look, error);
    *look = (struct top_look){.servers = json_array()};
    json_t *keys = json_array();
    query_all(group, options);
    for (size_t i = 0; i < group->n_servers; i++) {
        struct query *query = &group->queries[i];
        const char *why = query->code != 0 ? query->why.message : NULL;
        json_array_append_new(look->servers,
                              json_pack("{s:s, s:s?}", "url", group->urls[i], "error", why));
        if (query->code == 0)
            add_look(look, keys, &query->look);
        else
            *error = query->why;
    }
    look->keys = json_pack("{s:o}", "keys", sum_of_keys(keys, options));
    json_decref(keys);
    if (look->stats != NULL && look->keys != NULL)
        return 0;
    top_forget(look);
    const struct stint_error last = *error;
    return err_set(error, STINT_E_SYSTEM, "none of %zu servers answers; the last: %.180s",
                   group->n_servers, last.message);
}
