/* SPDX-License-Identifier: MIT */
/*
 * One connection to each server, the identity of the server at its end, and which server is master:
 * one that never changes, one that sentinels name, or many by a map of slots. After a loss or a
 * refusal that is checked at once and then ever more slowly, and from time to time without
 * problems.
 */
#include "backend/redis/router_parts.h"
#include "backend/redis/sentinel.h"

#include <assert.h>
#include <stdlib.h>

#define UNWANTED_KEPT_NS (1 * NS_PER_S) /* slots that move send commands there again and again */
#define WORDS_MAX 8
#define BITS_MAX 64
#define VAIN_DOUBLINGS 2 /* part of the time between two checks */

static redis_answered on_pushed;

static bool is_ready(const struct server *server)
{
    return server != NULL && server->state == SERVER_READY;
}

static bool is_connected(const struct server *server)
{
    return link_is_ready(redis_conn_link(server->dialled.conn));
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static struct redis_conn_options conn_options(struct server *server)
{
    const struct router_options *options = &server->router->options;
    bool is_store = server->use == SERVER_STORE;
    return (struct redis_conn_options){
        .link =
            {
                .user = options->url->user,
                .password = options->url->password,
                .connect_ns = options->connect_ns,
                .reply_ns = options->reply_ns,
                .backoff_max_ns = options->backoff_max_ns,
                .commands_max = is_store ? options->asks_max + WORDS_MAX : WORDS_MAX,
                .bytes_max = is_store ? 2 * options->bytes_max : 0,
                .seed = splitmix_next(&server->router->random),
            },
        .name = "stint",
        .database = is_store ? options->url->database : 0,
        .pushed = server->use == SERVER_CHANNEL ? on_pushed : NULL,
        .arg = server,
    };
}

static bool is_bit_used(const struct router *router, unsigned bit)
{
    for (const struct server *server = router->servers; server != NULL; server = server->next)
        if (server->bit == bit)
            return true;
    return false;
}

/* The bit that was freed longest ago: what is known of its last server is outdated by then. */
static unsigned new_bit(struct router *router)
{
    for (unsigned tries = 1; tries < BITS_MAX; tries++) {
        router->last_bit = router->last_bit % (BITS_MAX - 1) + 1;
        if (!is_bit_used(router, router->last_bit))
            break;
    }
    return router->last_bit;
}

static struct server *server_open(struct router *router, const struct store_host *host,
                                  enum server_use use, uint64_t now_ns)
{
    struct dialer *dialer = router->options.dialer;
    if (router->n_servers == SERVERS_MAX || router->is_ending)
        return NULL;
    struct server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return NULL;
    *server = (struct server){.router = router, .host = *host, .use = use, .opened_ns = now_ns};
    const struct redis_conn_options options = conn_options(server);
    bool is_socket = host->name[0] == '\0';
    if (!dialer->ops->open(dialer, is_socket ? NULL : &server->host,
                           is_socket ? router->options.url->path : NULL, &options, server,
                           &server->dialled)) {
        free(server);
        return NULL;
    }
    if (router->cluster != NULL && use == SERVER_STORE)
        server->bit = new_bit(router);
    server->next = router->servers;
    router->servers = server;
    router->n_servers++;
    return server;
}

static void servers_count(struct router *router, uint64_t now_ns)
{
    bool is_any_ready = false;
    for (const struct server *server = router->servers; server != NULL; server = server->next)
        is_any_ready |= server->use == SERVER_STORE && server->state == SERVER_READY;
    /* Without a map no server is known. */
    if (is_any_ready && (router->cluster == NULL || router->has_map))
        router->unavailable_since_ns = 0;
    else if (router->unavailable_since_ns == 0)
        router->unavailable_since_ns = now_ns > 0 ? now_ns : 1;
}

static void forget_place(struct router *router, const struct server *server)
{
    if (router->master == server)
        router->master = NULL;
    if (router->sentinel == server)
        router->sentinel = NULL;
    if (router->channel == server)
        router->channel = NULL;
    for (unsigned i = 0; router->cluster != NULL && i < router->cluster->n_masters; i++)
        if (router->of_master[i] == server)
            router->of_master[i] = NULL;
}

static void server_end(struct server *server, uint64_t now_ns)
{
    if (server->state == SERVER_ENDED)
        return;
    server->state = SERVER_ENDED;
    server->is_wanted = false;
    forget_place(server->router, server);
    server->router->commands->unbind(server->router, server);
    servers_count(server->router, now_ns);
    router_hurry(server->router, now_ns);
}

/* A callback may open other servers: they come to the front of the list. */
static void close_server(struct server **at)
{
    struct server *server = *at;
    struct router *router = server->router;
    struct dialer *dialer = router->options.dialer;
    *at = server->next;
    router->n_servers--;
    server->state = SERVER_ENDED;
    forget_place(router, server);
    dialer->ops->close(dialer, &server->dialled); /* answers its commands */
    router->commands->unbind(router, server);
    assert(server->n_asks == 0);
    free(server);
}

/* Its commands are waited for: a connection that does not answer closes by itself. */
static bool is_over(const struct server *server, uint64_t now_ns)
{
    bool is_idle = redis_conn_link(server->dialled.conn)->n_pending == 0;
    if (server->state == SERVER_ENDED)
        return is_idle || !is_connected(server);
    return server->use == SERVER_STORE && !server->is_wanted && is_idle && server->n_asks == 0 &&
           server != server->router->refresher && now_ns >= server->opened_ns + UNWANTED_KEPT_NS;
}

/* Closes what has ended, and servers unused for a while. */
static void sweep(struct router *router, uint64_t now_ns)
{
    for (struct server **at = &router->servers; *at != NULL;) {
        const struct server *server = *at;
        if (is_over(server, now_ns)) {
            close_server(at);
            servers_count(router, now_ns);
            continue;
        }
        if (server->state == SERVER_ENDED)
            router_hurry(router, now_ns + router->options.reply_ns);
        else if (server->use == SERVER_STORE && !server->is_wanted)
            router_hurry(router, now_ns + UNWANTED_KEPT_NS);
        at = &(*at)->next;
    }
}

void servers_free(struct router *router)
{
    while (router->servers != NULL)
        close_server(&router->servers);
}

/* ---- Finding --------------------------------------------------------------------------------- */

static struct server *server_find(const struct router *router, const struct store_host *host)
{
    for (struct server *server = router->servers; server != NULL; server = server->next)
        if (server->use == SERVER_STORE && server->state != SERVER_ENDED &&
            store_host_is_same(&server->host, host))
            return server;
    return NULL;
}

struct server *server_of_host(struct router *router, const struct store_host *host, uint64_t now_ns)
{
    struct server *server = server_find(router, host);
    return server != NULL ? server : server_open(router, host, SERVER_STORE, now_ns);
}

struct server *server_of_slot(struct router *router, unsigned slot, uint64_t now_ns)
{
    if (router->cluster == NULL)
        return router->master;
    unsigned place = router->cluster->of_slot[slot];
    if (place == 0)
        return NULL;
    struct server **found = &router->of_master[place - 1];
    if (*found == NULL)
        *found = server_of_host(router, &router->cluster->masters[place - 1], now_ns);
    if (*found != NULL)
        (*found)->is_wanted = true;
    return *found;
}

uint64_t router_server_bit(struct router *router, unsigned slot, uint64_t now_ns)
{
    if (router->cluster == NULL)
        return 1;
    const struct server *server = server_of_slot(router, slot, now_ns);
    return UINT64_C(1) << (server != NULL ? server->bit : 0);
}

static bool server_ask(struct server *server, const char *const *words, size_t n_words,
                       redis_answered *answered, uint64_t now_ns)
{
    struct span spans[WORDS_MAX];
    struct dialer *dialer = server->router->options.dialer;
    assert(n_words <= WORDS_MAX);
    for (size_t i = 0; i < n_words; i++)
        spans[i] = span_of_text(words[i]);
    const struct redis_command command = {
        .words = spans, .n_words = n_words, .answered = answered, .arg = server};
    if (!redis_conn_ask(server->dialled.conn, &command, now_ns))
        return false;
    dialer->ops->asked(dialer, &server->dialled);
    return true;
}

/* ---- When the topology is checked --------------------------------------------------------------
 */

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

static void ask_slots(struct server *server, uint64_t now_ns);

void topology_doubt(struct router *router, struct server *newer, uint64_t now_ns)
{
    if (newer != NULL && router->refresher != NULL)
        return;
    if (newer != NULL && is_ready(newer) &&
        now_ns >= router->refreshed_ns + router->options.hurry_ns / 2) {
        ask_slots(newer, now_ns);
        return;
    }
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

static unsigned masters_missing(const struct cluster *from, const struct cluster *in)
{
    unsigned n_missing = 0;
    for (unsigned i = 0; i < from->n_masters; i++)
        n_missing += !cluster_has_master(in, &from->masters[i]);
    return n_missing;
}

static bool same_map(const struct cluster *a, const struct cluster *b)
{
    if (a->n_masters != b->n_masters || memcmp(a->of_slot, b->of_slot, sizeof(a->of_slot)) != 0)
        return false;
    for (unsigned i = 0; i < a->n_masters; i++)
        if (!store_host_is_same(&a->masters[i], &b->masters[i]))
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
        server->is_wanted = cluster_has_master(router->cluster, &server->host);
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
    router->commands->dispatch(router, now_ns);
}

static void on_slots(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                     uint64_t now_ns)
{
    struct server *server = arg;
    struct router *router = server->router;
    router->refresher = NULL;
    if (router->is_ending)
        return;
    if (outcome == LINK_REFUSED)
        err_set(&router->fault, STINT_E_GONE, "the store refuses CLUSTER SLOTS: %.*s",
                (int)reply->text.len, (const char *)reply->text.ptr);
    bool is_read = outcome == LINK_DONE &&
                   cluster_read(router->spare, reply, &server->host, &router->fault) == 0;
    if (is_read && router->spare->n_slots_served > 0)
        take_map(router, now_ns);
    else
        topology_doubt(router, NULL, now_ns);
}

static void ask_slots(struct server *server, uint64_t now_ns)
{
    static const char *const words[] = {"CLUSTER", "SLOTS"};
    begin_refresh(server->router, now_ns);
    server->router->refresher = server;
    if (!server_ask(server, words, 2, on_slots, now_ns))
        server->router->refresher = NULL;
}

/* A random ready one, so that not all nodes query the same server. */
static struct server *any_ready(struct router *router)
{
    uint64_t n_ready = 0;
    struct server *found = NULL;
    for (struct server *server = router->servers; server != NULL; server = server->next)
        if (server->use == SERVER_STORE && is_ready(server) &&
            splitmix_next(&router->random) % ++n_ready == 0)
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
    (void)server_of_host(router, host, now_ns);
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

static void open_master(struct router *router, const struct store_host *host, uint64_t now_ns)
{
    router->master = server_open(router, host, SERVER_STORE, now_ns);
    if (router->master != NULL)
        router->master->is_wanted = true;
}

static void set_master(struct router *router, const struct store_host *host, uint64_t now_ns)
{
    if (router->master != NULL && store_host_is_same(&router->master->host, host))
        return;
    if (router->master != NULL)
        server_end(router->master, now_ns);
    open_master(router, host, now_ns);
    if (router->master == NULL)
        topology_doubt(router, NULL, now_ns);
}

static void on_master(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                      uint64_t now_ns)
{
    struct server *server = arg;
    struct router *router = server->router;
    struct store_host host;
    if (router->refresher == server)
        router->refresher = NULL;
    if (server != router->sentinel || router->is_ending ||
        (outcome != LINK_DONE && outcome != LINK_REFUSED))
        return; /* its loss will be reported */
    if (outcome == LINK_REFUSED) {
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

static void subscribe(struct server *channel, uint64_t now_ns)
{
    static const char *const words[] = {"SUBSCRIBE", SENTINEL_CHANNEL};
    (void)server_ask(channel, words, 2, redis_skip_reply, now_ns);
    /* A switch before the subscription needs a query. */
    topology_doubt(channel->router, NULL, now_ns);
}

static void on_pushed(void *arg, enum link_outcome outcome, const struct redis_reply *message,
                      uint64_t now_ns)
{
    struct server *server = arg;
    struct router *router = server->router;
    struct store_host host;
    (void)outcome;
    if (server->state != SERVER_ENDED &&
        sentinel_read_switch(&host, router->options.url->master, message))
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
    open_master(router, url->n_hosts == 0 ? &socket : &url->hosts[router->host_at++ % url->n_hosts],
                now_ns);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void topology_ready(struct server *server, uint64_t now_ns)
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

static void topology_lost(struct server *server, uint64_t now_ns)
{
    struct router *router = server->router;
    if (server->use == SERVER_SENTINEL)
        next_sentinel(router, now_ns);
    else if (server->use == SERVER_STORE) {
        router->commands->unbind(router, server);
        /* The next of several names of a single server. */
        if (router->options.url->kind == STORE_REDIS && router->options.url->n_hosts > 1)
            server_end(server, now_ns);
        topology_doubt(router, NULL, now_ns);
    }
}

void topology_refuse_replica(struct server *server, uint64_t now_ns)
{
    struct router *router = server->router;
    if (router->cluster == NULL) {
        err_set(&router->fault, STINT_E_GONE, "the store is a replica: it takes no writes");
        server_end(server, now_ns);
    }
    topology_doubt(router, NULL, now_ns);
}

/* ---- Identity -------------------------------------------------------------------------------- */

/* The word after "run_id:" at the beginning of a line of INFO. */
static void read_run_id(const struct redis_reply *reply, char run_id[RUN_ID_SIZE])
{
    static const char name[] = "run_id:";
    const struct span text = reply->text;
    size_t len = 0, name_len = sizeof(name) - 1;
    run_id[0] = '\0';
    if (reply->type != REDIS_TEXT)
        return;
    for (size_t at = 0; at + name_len <= text.len; at++)
        if ((at == 0 || text.ptr[at - 1] == '\n') && memcmp(text.ptr + at, name, name_len) == 0) {
            at += name_len;
            while (at < text.len && text.ptr[at] > ' ' && len + 1 < RUN_ID_SIZE)
                run_id[len++] = (char)text.ptr[at++];
            run_id[len] = '\0';
            return;
        }
}

/* For a single master the router keeps it, since the next may be at another address. */
static void compare_run_id(struct server *server, const char *run_id)
{
    struct router *router = server->router;
    char *known = router->cluster != NULL ? server->run_id : router->run_id;
    bool is_known = known[0] != '\0' && run_id[0] != '\0';
    bool is_other_host = router->cluster == NULL && router->master_host.port != 0 &&
                         !store_host_is_same(&router->master_host, &server->host);
    if (is_known ? strcmp(known, run_id) != 0 : is_other_host)
        metric_add(&router->metrics.failovers, 1);
    memcpy(known, run_id, strlen(run_id) + 1);
    if (router->cluster == NULL)
        router->master_host = server->host;
}

static void ask_who(struct server *server, uint64_t now_ns);

static void on_info(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                    uint64_t now_ns)
{
    struct server *server = arg;
    struct router *router = server->router;
    char run_id[RUN_ID_SIZE] = "";
    if (server->state != SERVER_CHECKING)
        return; /* it has ended */
    if (outcome == LINK_LATE && is_connected(server)) {
        ask_who(server, now_ns); /* it sends bytes, and so is not lost */
        return;
    }
    if (outcome != LINK_DONE && outcome != LINK_REFUSED)
        return; /* its loss will be reported */
    if (outcome == LINK_DONE)
        read_run_id(reply, run_id);
    compare_run_id(server, run_id);
    server->state = SERVER_READY;
    servers_count(router, now_ns);
    topology_ready(server, now_ns);
    router->commands->dispatch(router, now_ns);
}

static void ask_who(struct server *server, uint64_t now_ns)
{
    static const char *const info[] = {"INFO", "server"};
    server->state = SERVER_CHECKING;
    if (!server_ask(server, info, 2, on_info, now_ns))
        server_end(server, now_ns);
}

static void check(struct server *server, uint64_t now_ns)
{
    bool is_only = server->router->cluster == NULL;
    if (server->use == SERVER_STORE && is_only &&
        redis_conn_server(server->dialled.conn)->is_replica) {
        topology_refuse_replica(server, now_ns);
        return;
    }
    if (server->use != SERVER_STORE) {
        server->state = SERVER_READY;
        topology_ready(server, now_ns);
        return;
    }
    ask_who(server, now_ns);
}

void router_changed(void *arg, uint64_t now_ns)
{
    struct server *server = arg;
    struct router *router = server->router;
    bool is_ready = is_connected(server);
    if (server->state == SERVER_ENDED || router->is_ending)
        return;
    if (is_ready && server->state == SERVER_UNAVAILABLE)
        check(server, now_ns);
    if (is_ready)
        return;
    const char *why = link_fault(redis_conn_link(server->dialled.conn));
    if (why[0] != '\0')
        err_set(&router->fault, STINT_E_GONE, "%s", why);
    server->state = SERVER_UNAVAILABLE;
    servers_count(router, now_ns);
    topology_lost(server, now_ns);
}

/* ---- Time ------------------------------------------------------------------------------------ */

void servers_wake(struct router *router, uint64_t now_ns)
{
    enum store_kind kind = router->options.url->kind;
    sweep(router, now_ns);
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
