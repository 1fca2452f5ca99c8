/* SPDX-License-Identifier: MIT */
/* One connection to each server, and the identity of the server at its end. */
#include "backend/redis/router_parts.h"

#include <assert.h>
#include <stdlib.h>

#define UNWANTED_KEPT_NS (1 * NS_PER_S) /* slots that move send commands there again and again */
#define WORDS_MAX 8
#define BITS_MAX 64

static bool same_host(const struct store_host *a, const struct store_host *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static void on_pushed(void *arg, enum redis_outcome outcome, const struct redis_reply *reply,
                      uint64_t now_ns)
{
    struct server *server = arg;
    (void)outcome;
    if (server->state != SERVER_ENDED)
        topology_pushed(server, reply, now_ns);
}

static struct redis_conn_options conn_options(struct server *server)
{
    const struct router_options *options = &server->router->options;
    bool is_store = server->use == SERVER_STORE;
    return (struct redis_conn_options){
        .user = options->url->user,
        .password = options->url->password,
        .name = "stint",
        .database = is_store ? options->url->database : 0,
        .connect_ns = options->connect_ns,
        .reply_ns = options->reply_ns,
        .backoff_max_ns = options->backoff_max_ns,
        .commands_max = is_store ? options->asks_max + WORDS_MAX : WORDS_MAX,
        .bytes_max = is_store ? 2 * options->bytes_max : 0,
        .seed = router_random(server->router),
        .keeps_nothing = true,
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

struct server *server_open(struct router *router, const struct store_host *host,
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

void servers_count(struct router *router, uint64_t now_ns)
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

void server_end(struct server *server, uint64_t now_ns)
{
    if (server->state == SERVER_ENDED)
        return;
    server->state = SERVER_ENDED;
    server->is_wanted = false;
    forget_place(server->router, server);
    router_unbind(server->router, server);
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
    router_unbind(router, server);
    assert(server->n_asks == 0);
    free(server);
}

/* Its commands are waited for: a connection that does not answer closes by itself. */
static bool is_over(const struct server *server, uint64_t now_ns)
{
    bool is_idle = redis_conn_pending(server->dialled.conn) == 0;
    if (server->state == SERVER_ENDED)
        return is_idle || !redis_conn_is_ready(server->dialled.conn);
    return server->use == SERVER_STORE && !server->is_wanted && is_idle && server->n_asks == 0 &&
           server != server->router->refresher && now_ns >= server->opened_ns + UNWANTED_KEPT_NS;
}

void servers_sweep(struct router *router, uint64_t now_ns)
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

struct server *server_find(const struct router *router, const struct store_host *host)
{
    for (struct server *server = router->servers; server != NULL; server = server->next)
        if (server->use == SERVER_STORE && server->state != SERVER_ENDED &&
            same_host(&server->host, host))
            return server;
    return NULL;
}

struct server *server_of_slot(struct router *router, unsigned slot, uint64_t now_ns)
{
    if (router->cluster == NULL)
        return router->master;
    unsigned place = router->cluster->of_slot[slot];
    if (place == 0)
        return NULL;
    struct server **found = &router->of_master[place - 1];
    const struct store_host *host = &router->cluster->masters[place - 1];
    if (*found == NULL)
        *found = server_find(router, host);
    if (*found == NULL)
        *found = server_open(router, host, SERVER_STORE, now_ns);
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

/* ---- Identity -------------------------------------------------------------------------------- */

bool server_ask(struct server *server, const char *const *words, size_t n_words,
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
                         !same_host(&router->master_host, &server->host);
    if (is_known ? strcmp(known, run_id) != 0 : is_other_host)
        metric_add(&router->metrics.failovers, 1);
    memcpy(known, run_id, strlen(run_id) + 1);
    if (router->cluster == NULL)
        router->master_host = server->host;
}

static void ask_who(struct server *server, uint64_t now_ns);

static void on_info(void *arg, enum redis_outcome outcome, const struct redis_reply *reply,
                    uint64_t now_ns)
{
    struct server *server = arg;
    struct router *router = server->router;
    char run_id[RUN_ID_SIZE] = "";
    if (server->state != SERVER_CHECKING)
        return; /* it has ended */
    if (outcome == REDIS_LATE && redis_conn_is_ready(server->dialled.conn)) {
        ask_who(server, now_ns); /* it sends bytes, and so is not lost */
        return;
    }
    if (outcome != REDIS_DONE && outcome != REDIS_REFUSED)
        return; /* its loss will be reported */
    if (outcome == REDIS_DONE)
        read_run_id(reply, run_id);
    compare_run_id(server, run_id);
    server->state = SERVER_READY;
    servers_count(router, now_ns);
    topology_ready(server, now_ns);
    router_dispatch(router, now_ns);
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
        topology_refuse_master(server, "the store is a replica: it takes no writes", now_ns);
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
    bool is_ready = redis_conn_is_ready(server->dialled.conn);
    if (server->state == SERVER_ENDED || router->is_ending)
        return;
    if (is_ready && server->state == SERVER_UNAVAILABLE)
        check(server, now_ns);
    if (is_ready)
        return;
    const char *why = redis_conn_error(server->dialled.conn);
    if (why[0] != '\0')
        err_set(&router->fault, STINT_E_GONE, "%s", why);
    server->state = SERVER_UNAVAILABLE;
    servers_count(router, now_ns);
    topology_lost(server, now_ns);
}
