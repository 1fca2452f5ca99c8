/* SPDX-License-Identifier: MIT */
/* Start, end and time of a router; the other files send commands and find servers. */
#include "backend/redis/router.h"

#include "backend/backoff.h"
#include "backend/redis/router_parts.h"

#include <assert.h>
#include <stdlib.h>

static void set_default(uint64_t *value, uint64_t standard)
{
    if (*value == 0)
        *value = standard;
}

static void set_defaults(struct router_options *options)
{
    set_default(&options->reply_ns, 50 * NS_PER_MS);
    set_default(&options->connect_ns, 250 * NS_PER_MS);
    set_default(&options->backoff_max_ns, 500 * NS_PER_MS);
    set_default(&options->refresh_ns, 10 * NS_PER_S);
    set_default(&options->hurry_ns, 100 * NS_PER_MS);
    if (options->asks_max == 0)
        options->asks_max = 4096;
    if (options->bytes_max == 0)
        options->bytes_max = 4u << 20;
}

static void free_memory(struct router *router)
{
    cluster_free(router->cluster);
    cluster_free(router->spare);
    free(router->of_master);
    free(router);
}

struct router *router_new(const struct router_options *options)
{
    struct router *router = calloc(1, sizeof(*router));
    if (router == NULL)
        return NULL;
    router->options = *options;
    set_defaults(&router->options);
    router->random = options->seed;
    router->ends_ns = STINT_NEVER_NS;
    uint64_t now_ns = options->dialer->ops->now(options->dialer);
    router->unavailable_since_ns = now_ns > 0 ? now_ns : 1;
    router->earliest_ns = router->refresh_ns = now_ns; /* begins to connect */
    router->is_refresh_wanted = true;
    if (options->url->kind != STORE_REDIS_CLUSTER)
        return router;
    router->cluster = cluster_new();
    router->spare = cluster_new();
    router->of_master = calloc(CLUSTER_MASTERS_MAX, sizeof(struct server *));
    if (router->cluster != NULL && router->spare != NULL && router->of_master != NULL)
        return router;
    free_memory(router);
    return NULL;
}

void router_free(struct router *router)
{
    if (router == NULL)
        return;
    uint64_t now_ns = router->options.dialer->ops->now(router->options.dialer);
    router->is_ending = true;
    while (router->waiting.first != NULL)
        ask_finish(router->waiting.first, ROUTER_FAILED, NULL, now_ns);
    servers_free(router); /* answers what was sent */
    assert(router->sent.first == NULL && router->n_asks == 0);
    while (router->free_asks != NULL) {
        struct router_ask *ask = router->free_asks;
        router->free_asks = ask->next;
        free(ask->memory);
        free(ask);
    }
    struct dialer *dialer = router->options.dialer;
    free_memory(router);
    dialer->ops->free(dialer);
}

/* ---- Random numbers -------------------------------------------------------------------------- */

uint64_t router_random(struct router *router)
{
    return splitmix_next(&router->random);
}

uint64_t router_jitter(struct router *router, uint64_t length_ns)
{
    return backoff_jitter(&router->random, length_ns);
}

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t router_deadline(const struct router *router)
{
    return router->earliest_ns;
}

void router_hurry(struct router *router, uint64_t at_ns)
{
    if (at_ns >= router->earliest_ns || router->is_ending)
        return;
    router->earliest_ns = at_ns;
    router->options.dialer->ops->hurry(router->options.dialer);
}

/* A callback may add or cancel commands, so expired ones are collected before any callback. */
static void end_late(struct router *router, struct ask_list *list, enum router_outcome outcome,
                     uint64_t now_ns)
{
    struct ask_list late = {NULL, NULL};
    for (struct router_ask *ask = list->first, *next; ask != NULL; ask = next) {
        next = ask->next;
        uint64_t ends_ns = ask->deadline_ns < router->ends_ns ? ask->deadline_ns : router->ends_ns;
        if (ends_ns > now_ns || (list == &router->sent && ask->answered == NULL))
            continue;
        ask_list_remove(ask);
        ask_list_add(&late, ask);
    }
    while (late.first != NULL) {
        struct router_ask *ask = late.first;
        if (outcome == ROUTER_FAILED) {
            ask_finish(ask, outcome, NULL, now_ns);
            continue;
        }
        /* The connection still has it, and will report it. */
        router_answered *answered = ask->answered;
        ask->answered = NULL;
        ask_list_remove(ask);
        ask_list_add(&router->sent, ask);
        if (answered != NULL) {
            answered(ask->arg, outcome, NULL, now_ns);
        }
    }
}

static void set_earliest(struct router *router)
{
    uint64_t earliest_ns = router->refresh_ns;
    const struct ask_list *lists[] = {&router->waiting, &router->sent};
    for (size_t i = 0; i < 2; i++)
        for (const struct router_ask *ask = lists[i]->first; ask != NULL; ask = ask->next) {
            uint64_t at_ns =
                ask->deadline_ns < router->ends_ns ? ask->deadline_ns : router->ends_ns;
            if (i == 1 && ask->answered == NULL)
                continue;
            if (i == 0 && ask->retry_ns > 0 && ask->retry_ns < at_ns)
                at_ns = ask->retry_ns;
            if (at_ns < earliest_ns)
                earliest_ns = at_ns;
        }
    router->earliest_ns = earliest_ns;
}

void router_wake(struct router *router, uint64_t now_ns)
{
    end_late(router, &router->waiting, ROUTER_FAILED, now_ns);
    end_late(router, &router->sent, ROUTER_LATE, now_ns);
    router->earliest_ns = STINT_NEVER_NS;
    servers_sweep(router, now_ns);
    topology_wake(router, now_ns);
    router_dispatch(router, now_ns);
    uint64_t hurried_ns = router->earliest_ns;
    set_earliest(router);
    if (hurried_ns < router->earliest_ns)
        router->earliest_ns = hurried_ns;
}

void router_end_by(struct router *router, uint64_t deadline_ns)
{
    router->ends_ns = deadline_ns;
    router_hurry(router, deadline_ns);
}

/* ---- State ----------------------------------------------------------------------------------- */

uint64_t router_unavailable_since(const struct router *router)
{
    return router->unavailable_since_ns;
}

const char *router_error(const struct router *router)
{
    return router->fault.message;
}

bool router_has_slots(const struct router *router)
{
    return router->options.url->kind == STORE_REDIS_CLUSTER;
}

const struct router_metrics *router_metrics(const struct router *router)
{
    return &router->metrics;
}
