/* SPDX-License-Identifier: MIT */
/*
 * Which server is master: one that never changes, one that sentinels name, or many by a map of
 * slots. After a loss or a refusal it is checked at once and then ever more slowly, and from time
 * to time without problems.
 */
#include "backend/redis/router_parts.h"
#include "backend/redis/sentinel.h"

#include <assert.h>

#define VAIN_DOUBLINGS 2 /* part of the time between two checks */

static bool same_host(const struct store_host *a, const struct store_host *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

static bool is_ready(const struct server *server)
{
    return server != NULL && server->state == SERVER_READY;
}

static bool is_in_trouble(const struct router *router)
{
    enum store_kind kind = router->options.url->kind;
    if (kind == STORE_REDIS)
        return router->master == NULL;
    if (kind == STORE_REDIS_SENTINEL)
        return !is_ready(router->master) || !is_ready(router->sentinel);
    for (const struct server *server = router->servers; server != NULL; server = server->next)
        if (server->is_wanted && !is_ready(server))
            return true;
    return !router->has_map;
}

/* ---- When ------------------------------------------------------------------------------------ */

static uint64_t hurry_ns(struct router *router)
{
    unsigned doublings =
        router->vain_refreshes < VAIN_DOUBLINGS ? router->vain_refreshes : VAIN_DOUBLINGS;
    return router_jitter(router, router->options.hurry_ns << doublings);
}

static void refresh_at(struct router *router, uint64_t at_ns)
{
    router->is_refresh_wanted = true;
    if (at_ns < router->refresh_ns)
        router->refresh_ns = at_ns;
    router_hurry(router, router->refresh_ns);
}

void topology_doubt(struct router *router, uint64_t now_ns)
{
    uint64_t at_ns = router->refreshed_ns + hurry_ns(router);
    if (!router->is_refresh_wanted)
        refresh_at(router, at_ns > now_ns ? at_ns : now_ns);
}

static void begin_refresh(struct router *router, uint64_t now_ns)
{
    router->vain_refreshes = is_in_trouble(router) ? router->vain_refreshes + 1 : 0;
    router->is_refresh_wanted = false;
    router->refreshed_ns = now_ns;
    router->refresh_ns = now_ns + hurry_ns(router);
}

/* ---- A cluster ------------------------------------------------------------------------------- */

static bool has_master(const struct cluster *cluster, const struct store_host *host)
{
    for (unsigned i = 0; i < cluster->n_masters; i++)
        if (same_host(&cluster->masters[i], host))
            return true;
    return false;
}

static unsigned masters_missing(const struct cluster *from, const struct cluster *in)
{
    unsigned n_missing = 0;
    for (unsigned i = 0; i < from->n_masters; i++)
        n_missing += !has_master(in, &from->masters[i]);
    return n_missing;
}

static bool same_map(const struct cluster *a, const struct cluster *b)
{
    if (a->n_masters != b->n_masters || memcmp(a->of_slot, b->of_slot, sizeof(a->of_slot)) != 0)
        return false;
    for (unsigned i = 0; i < a->n_masters; i++)
        if (!same_host(&a->masters[i], &b->masters[i]))
            return false;
    return true;
}

/* Marks which servers are a part of it; the others are closed once they are not needed. */
static void take_servers(struct router *router, uint64_t now_ns)
{
    memset(router->of_master, 0, CLUSTER_MASTERS_MAX * sizeof(struct server *));
    for (struct server *server = router->servers; server != NULL; server = server->next) {
        bool was_wanted = server->is_wanted;
        if (server->use != SERVER_STORE || server->state == SERVER_ENDED)
            continue;
        server->is_wanted = has_master(router->cluster, &server->host);
        if (server->is_wanted)
            continue;
        if (was_wanted)
            server->opened_ns = now_ns;
        router_hurry(router, now_ns);
    }
}

/*
 * One master gone and another new: a replica has taken over. A master that was replaced on purpose
 * looks the same, and is treated the same.
 */
static void take_map(struct router *router, uint64_t now_ns)
{
    struct cluster *old = router->cluster, *new = router->spare;
    if (router->has_map && same_map(old, new))
        return;
    if (router->has_map && masters_missing(old, new) > 0 && masters_missing(new, old) > 0)
        metric_add(&router->metrics.failovers, 1);
    router->cluster = new;
    router->spare = old;
    router->has_map = true;
    take_servers(router, now_ns);
    servers_count(router, now_ns);
    router_dispatch(router, now_ns);
}

static void on_slots(void *arg, enum redis_outcome outcome, const struct redis_reply *reply,
                     uint64_t now_ns)
{
    struct server *server = arg;
    struct router *router = server->router;
    router->refresher = NULL;
    if (router->is_ending)
        return;
    if (outcome == REDIS_REFUSED)
        err_set(&router->fault, STINT_E_GONE, "the store refuses CLUSTER SLOTS: %.*s",
                (int)reply->text.len, (const char *)reply->text.ptr);
    bool is_read = outcome == REDIS_DONE &&
                   cluster_read(router->spare, reply, &server->host, &router->fault) == 0;
    if (is_read && router->spare->n_slots_served > 0)
        take_map(router, now_ns);
    else
        topology_doubt(router, now_ns);
}

static void ask_slots(struct server *server, uint64_t now_ns)
{
    static const char *const words[] = {"CLUSTER", "SLOTS"};
    begin_refresh(server->router, now_ns);
    server->router->refresher = server;
    if (!server_ask(server, words, 2, on_slots, now_ns))
        server->router->refresher = NULL;
}

void topology_ask(struct server *server, uint64_t now_ns)
{
    struct router *router = server->router;
    if (router->refresher != NULL)
        return;
    if (is_ready(server) && now_ns >= router->refreshed_ns + router->options.hurry_ns / 2)
        ask_slots(server, now_ns);
    else
        topology_doubt(router, now_ns);
}

/* A random ready one, so that not all nodes query the same server. */
static struct server *any_ready(struct router *router)
{
    uint64_t n_ready = 0;
    struct server *found = NULL;
    for (struct server *server = router->servers; server != NULL; server = server->next)
        if (server->use == SERVER_STORE && is_ready(server) &&
            router_random(router) % ++n_ready == 0)
            found = server;
    return found;
}

static void refresh_cluster(struct router *router, uint64_t now_ns)
{
    const struct store_url *url = router->options.url;
    struct server *server = any_ready(router);
    if (router->refresher != NULL || server != NULL) {
        if (router->refresher == NULL)
            ask_slots(server, now_ns);
        else
            begin_refresh(router, now_ns);
        return;
    }
    /* Those of the URL and the known ones take turns: once ready, one gets the query. */
    unsigned at = router->host_at++ % (url->n_hosts + router->cluster->n_masters);
    const struct store_host *host =
        at < url->n_hosts ? &url->hosts[at] : &router->cluster->masters[at - url->n_hosts];
    begin_refresh(router, now_ns);
    router->is_refresh_wanted = true;
    if (server_find(router, host) == NULL)
        server_open(router, host, SERVER_STORE, now_ns);
}

/* ---- Sentinels ------------------------------------------------------------------------------- */

static void next_sentinel(struct router *router, uint64_t now_ns)
{
    unsigned n_hosts = router->options.url->n_hosts;
    if (router->sentinel != NULL)
        server_end(router->sentinel, now_ns);
    if (router->channel != NULL)
        server_end(router->channel, now_ns);
    router->host_at = (router->host_at + 1) % n_hosts;
    /* A pause once all were tried. */
    refresh_at(router, router->host_at == 0 ? now_ns + hurry_ns(router) : now_ns);
}

static void set_master(struct router *router, const struct store_host *host, uint64_t now_ns)
{
    if (router->master != NULL && same_host(&router->master->host, host))
        return;
    if (router->master != NULL)
        server_end(router->master, now_ns);
    router->master = server_open(router, host, SERVER_STORE, now_ns);
    if (router->master != NULL)
        router->master->is_wanted = true;
    else
        topology_doubt(router, now_ns);
}

static void on_master(void *arg, enum redis_outcome outcome, const struct redis_reply *reply,
                      uint64_t now_ns)
{
    struct server *server = arg;
    struct router *router = server->router;
    struct store_host host;
    if (router->refresher == server)
        router->refresher = NULL;
    if (server != router->sentinel || router->is_ending ||
        (outcome != REDIS_DONE && outcome != REDIS_REFUSED))
        return; /* its loss will be reported */
    if (outcome == REDIS_REFUSED) {
        err_set(&router->fault, STINT_E_GONE, "the sentinel refuses to name the master: %.*s",
                (int)reply->text.len, (const char *)reply->text.ptr);
        next_sentinel(router, now_ns);
    } else if (sentinel_read_master(&host, router->options.url->master, reply, &router->fault) == 0)
        set_master(router, &host, now_ns);
    else
        next_sentinel(router, now_ns);
}

static void ask_master(struct server *sentinel, uint64_t now_ns)
{
    struct router *router = sentinel->router;
    const char *const words[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME",
                                 router->options.url->master};
    begin_refresh(router, now_ns);
    if (router->refresher == NULL && server_ask(sentinel, words, 3, on_master, now_ns))
        router->refresher = sentinel;
}

/* Once it has greeted it gets the query; its channel reports later switches. */
static void refresh_sentinels(struct router *router, uint64_t now_ns)
{
    const struct store_host *host = &router->options.url->hosts[router->host_at];
    if (is_ready(router->sentinel)) {
        ask_master(router->sentinel, now_ns);
        return;
    }
    begin_refresh(router, now_ns);
    if (router->sentinel == NULL)
        router->sentinel = server_open(router, host, SERVER_SENTINEL, now_ns);
    if (router->channel == NULL)
        router->channel = server_open(router, host, SERVER_CHANNEL, now_ns);
}

static void on_subscribed(void *arg, enum redis_outcome outcome, const struct redis_reply *reply,
                          uint64_t now_ns)
{
    (void)arg;
    (void)outcome;
    (void)reply;
    (void)now_ns;
}

static void subscribe(struct server *channel, uint64_t now_ns)
{
    static const char *const words[] = {"SUBSCRIBE", SENTINEL_CHANNEL};
    (void)server_ask(channel, words, 2, on_subscribed, now_ns);
    /* A switch before the subscription needs a query. */
    topology_doubt(channel->router, now_ns);
}

void topology_pushed(struct server *server, const struct redis_reply *message, uint64_t now_ns)
{
    struct router *router = server->router;
    struct store_host host;
    if (sentinel_read_switch(&host, router->options.url->master, message))
        set_master(router, &host, now_ns);
}

/* ---- A single server ------------------------------------------------------------------------- */

static void refresh_single(struct router *router, uint64_t now_ns)
{
    static const struct store_host socket = {.name = ""};
    const struct store_url *url = router->options.url;
    begin_refresh(router, now_ns);
    if (router->master != NULL)
        return;
    const struct store_host *host =
        url->n_hosts == 0 ? &socket : &url->hosts[router->host_at++ % url->n_hosts];
    router->master = server_open(router, host, SERVER_STORE, now_ns);
    if (router->master != NULL)
        router->master->is_wanted = true;
}

/* ---- Events ---------------------------------------------------------------------------------- */

void topology_wake(struct router *router, uint64_t now_ns)
{
    enum store_kind kind = router->options.url->kind;
    if (now_ns < router->refresh_ns)
        return;
    uint64_t next_ns = router->refreshed_ns + router->options.refresh_ns;
    if (!router->is_refresh_wanted && !is_in_trouble(router) && now_ns < next_ns) {
        router->vain_refreshes = 0;
        router->refresh_ns = next_ns;
    } else if (kind == STORE_REDIS_CLUSTER)
        refresh_cluster(router, now_ns);
    else if (kind == STORE_REDIS_SENTINEL)
        refresh_sentinels(router, now_ns);
    else
        refresh_single(router, now_ns);
}

void topology_ready(struct server *server, uint64_t now_ns)
{
    struct router *router = server->router;
    if (server->use == SERVER_SENTINEL)
        ask_master(server, now_ns);
    else if (server->use == SERVER_CHANNEL)
        subscribe(server, now_ns);
    else if (router->cluster != NULL && router->refresher == NULL &&
             (!router->has_map || router->is_refresh_wanted))
        ask_slots(server, now_ns);
}

void topology_lost(struct server *server, uint64_t now_ns)
{
    struct router *router = server->router;
    if (server->use == SERVER_SENTINEL)
        next_sentinel(router, now_ns);
    else if (server->use == SERVER_STORE) {
        router_unbind(router, server);
        /* The next of several names of a single server. */
        if (router->options.url->kind == STORE_REDIS && router->options.url->n_hosts > 1)
            server_end(server, now_ns);
        topology_doubt(router, now_ns);
    }
}

void topology_refuse_master(struct server *server, const char *why, uint64_t now_ns)
{
    struct router *router = server->router;
    if (router->cluster == NULL) {
        err_set(&router->fault, STINT_E_GONE, "%s", why);
        server_end(server, now_ns);
    }
    topology_doubt(router, now_ns);
}
