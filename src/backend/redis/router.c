/* SPDX-License-Identifier: MIT */
/*
 * The life of a command: the effect of each kind of refusal, loss and redirect. Also start, end and
 * time of a router; router_servers.c finds and connects the servers.
 */
#include "backend/redis/router.h"

#include "backend/redis/router_parts.h"

#include <assert.h>
#include <stdlib.h>

#define PAUSE_FIRST_NS (1 * NS_PER_MS) /* before a second attempt; doubled with each */
#define PAUSE_DOUBLINGS 4
#define REDIRECTS_AT_ONCE 4 /* then with pauses: nodes disagree, and need time */
#define KEPT_SIZE 4096      /* memory of a command that is kept for the next */

/* One command, in one list at a time: it waits here, or a connection has it. */
struct router_ask {
    struct router_ask *next, *previous;
    struct ask_list *list;
    struct router *router;
    struct server *at; /* the one that has it, or that it waits for. NULL: the master of the slot */
    redis_answered *answered; /* NULL: cancelled */
    void *arg;
    uint8_t *memory; /* its words, then their bytes */
    size_t size, n_words, n_bytes;
    struct span script;
    uint64_t deadline_ns, retry_ns; /* retry_ns: not to be sent before */
    unsigned slot, redirects, tries;
    bool is_repeatable, is_asking;
    bool is_sent; /* a connection has it, and will answer */
};

/* ---- Lists ----------------------------------------------------------------------------------- */

static void ask_list_add(struct ask_list *list, struct router_ask *ask)
{
    ask->list = list;
    ask->next = NULL;
    ask->previous = list->last;
    *(list->last != NULL ? &list->last->next : &list->first) = ask;
    list->last = ask;
}

static void ask_list_remove(struct router_ask *ask)
{
    struct ask_list *list = ask->list;
    if (list == NULL)
        return;
    *(ask->previous != NULL ? &ask->previous->next : &list->first) = ask->next;
    *(ask->next != NULL ? &ask->next->previous : &list->last) = ask->previous;
    ask->list = NULL;
}

static void ask_move(struct router_ask *ask, struct ask_list *list)
{
    ask_list_remove(ask);
    ask_list_add(list, ask);
}

static void ask_bind(struct router_ask *ask, struct server *server)
{
    if (ask->at != NULL)
        ask->at->n_asks--;
    ask->at = server;
    if (server != NULL)
        server->n_asks++;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static bool keep_words(struct router_ask *ask, const struct router_command *command, size_t n_bytes)
{
    size_t size = command->n_words * sizeof(struct span) + n_bytes;
    if (size > ask->size) {
        uint8_t *memory = realloc(ask->memory, size);
        if (memory == NULL)
            return false;
        ask->memory = memory;
        ask->size = size;
    }
    struct span *words = (struct span *)(void *)ask->memory;
    uint8_t *bytes = ask->memory + command->n_words * sizeof(struct span);
    for (size_t i = 0; i < command->n_words; i++) {
        words[i] = (struct span){bytes, command->words[i].len};
        if (words[i].len > 0)
            memcpy(bytes, command->words[i].ptr, words[i].len);
        bytes += words[i].len;
    }
    ask->n_words = command->n_words;
    ask->n_bytes = n_bytes;
    return true;
}

static struct router_ask *new_ask(struct router *router, const struct router_command *command)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < command->n_words; i++)
        n_bytes += command->words[i].len;
    if (router->is_ending || router->n_asks == router->options.asks_max ||
        n_bytes > router->options.bytes_max - router->n_bytes)
        return NULL;
    struct router_ask *ask = router->free_asks;
    if (ask == NULL)
        ask = calloc(1, sizeof(*ask));
    else
        router->free_asks = ask->next;
    if (ask == NULL)
        return NULL;
    if (!keep_words(ask, command, n_bytes)) {
        ask->next = router->free_asks;
        router->free_asks = ask;
        return NULL;
    }
    router->n_bytes += n_bytes;
    router->n_asks++;
    return ask;
}

static void free_ask(struct router_ask *ask)
{
    struct router *router = ask->router;
    ask_bind(ask, NULL);
    ask_list_remove(ask);
    router->n_bytes -= ask->n_bytes;
    router->n_asks--;
    if (ask->size > KEPT_SIZE) {
        free(ask->memory);
        ask->memory = NULL;
        ask->size = 0;
    }
    ask->next = router->free_asks;
    router->free_asks = ask;
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void ask_finish(struct router_ask *ask, enum link_outcome outcome,
                       const struct redis_reply *reply, uint64_t now_ns)
{
    redis_answered *answered = ask->answered;
    void *arg = ask->arg;
    free_ask(ask);
    if (answered != NULL)
        answered(arg, outcome, reply, now_ns);
}

static void ask_wait_until(struct router_ask *ask, uint64_t retry_ns)
{
    ask_move(ask, &ask->router->waiting);
    ask->retry_ns = retry_ns;
    uint64_t at_ns = ask->deadline_ns < retry_ns ? ask->deadline_ns : retry_ns;
    router_hurry(ask->router, at_ns);
}

/* Nothing was done: again, after a short while. */
static void ask_retry(struct router_ask *ask, uint64_t now_ns)
{
    unsigned doublings = ask->tries < PAUSE_DOUBLINGS ? ask->tries : PAUSE_DOUBLINGS;
    if (ask->answered == NULL || ask->router->is_ending) {
        ask_finish(ask, LINK_UNSENT, NULL, now_ns);
        return;
    }
    ask->tries++;
    ask->is_asking = false;
    ask_bind(ask, NULL);
    metric_add(&ask->router->metrics.retries, 1);
    ask_wait_until(ask, now_ns + router_jitter(ask->router, PAUSE_FIRST_NS << doublings));
}

static void ask_send(struct router_ask *ask, uint64_t now_ns);

/* The node does not have the slot: the command goes to the one that it names, but not for ever. */
static void ask_follow(struct router_ask *ask, struct server *server, bool is_asking,
                       uint64_t now_ns)
{
    if (server == NULL || ask->answered == NULL || ++ask->redirects > REDIRECTS_AT_ONCE) {
        ask_retry(ask, now_ns);
        return;
    }
    ask_move(ask, &ask->router->waiting);
    ask_bind(ask, is_asking ? server : NULL); /* else the map may have changed before it is sent */
    ask->is_asking = is_asking;
    ask->retry_ns = 0;
    ask_send(ask, now_ns);
}

/* The server of a redirect. False: it is invalid. */
static bool read_redirect(const struct redis_reply *reply, const struct server *said,
                          struct redis_redirect *redirect, struct store_host *host)
{
    return redis_redirect_parse(reply->text, redirect) &&
           cluster_host(host, redirect->host, redirect->port, &said->host);
}

/*
 * The slot has moved for good. A master that is not in the map may have taken over from one that
 * failed: it gets commands only once the map has it, so that the failover is counted first.
 */
static void on_moved(struct router_ask *ask, struct server *said, const struct redis_reply *reply,
                     uint64_t now_ns)
{
    struct router *router = ask->router;
    struct redis_redirect redirect;
    struct store_host host;
    metric_add(&router->metrics.redirects, 1);
    if (!read_redirect(reply, said, &redirect, &host)) {
        ask_retry(ask, now_ns);
        return;
    }
    topology_doubt(router, said, now_ns);
    if (!cluster_has_master(router->cluster, &host) ||
        !cluster_move(router->cluster, &redirect, &said->host)) {
        ask_retry(ask, now_ns);
        return;
    }
    ask_follow(ask, server_of_slot(router, ask->slot, now_ns), false, now_ns);
}

static void on_ask(struct router_ask *ask, struct server *said, const struct redis_reply *reply,
                   uint64_t now_ns)
{
    struct router *router = ask->router;
    struct redis_redirect redirect;
    struct store_host host;
    struct server *server = NULL;
    metric_add(&router->metrics.redirects, 1);
    if (read_redirect(reply, said, &redirect, &host))
        server = server_of_host(router, &host, now_ns);
    ask_follow(ask, server, true, now_ns);
}

/* Errors of a server that did nothing, and that may go away soon; false: the error is final. */
static bool take_refusal(struct router_ask *ask, struct server *said,
                         const struct redis_reply *reply, uint64_t now_ns)
{
    bool has_slots = router_has_slots(ask->router);
    switch (redis_error_of(reply->text)) {
    case REDIS_ERROR_MOVED:
        if (has_slots)
            on_moved(ask, said, reply, now_ns);
        return has_slots;
    case REDIS_ERROR_ASK:
        if (has_slots)
            on_ask(ask, said, reply, now_ns);
        return has_slots;
    case REDIS_ERROR_CLUSTERDOWN:
        topology_doubt(ask->router, NULL, now_ns);
        ask_retry(ask, now_ns);
        return true;
    case REDIS_ERROR_READONLY:
    case REDIS_ERROR_MASTERDOWN:
        ask_retry(ask, now_ns);
        topology_refuse_replica(said, now_ns);
        return true;
    case REDIS_ERROR_TRYAGAIN:
    case REDIS_ERROR_LOADING:
    case REDIS_ERROR_BUSY:
    case REDIS_ERROR_NOSCRIPT:
        ask->redirects = 0; /* the node does not disagree */
        ask_retry(ask, now_ns);
        return true;
    default:
        return false;
    }
}

static void on_answer(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                      uint64_t now_ns)
{
    struct router_ask *ask = arg;
    struct server *said = ask->at;
    ask->is_sent = false;
    if (outcome == LINK_DONE)
        ask_finish(ask, outcome, reply, now_ns);
    else if (outcome == LINK_REFUSED) {
        bool is_wanted = ask->answered != NULL && !ask->router->is_ending;
        if (!is_wanted || !take_refusal(ask, said, reply, now_ns))
            ask_finish(ask, outcome, reply, now_ns);
    } else if (outcome == LINK_UNSENT || (ask->is_repeatable && !ask->router->is_ending))
        ask_retry(ask, now_ns);
    else
        ask_finish(ask, outcome, NULL, now_ns);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static void ask_send(struct router_ask *ask, uint64_t now_ns)
{
    struct router *router = ask->router;
    if (ask->retry_ns > now_ns)
        return;
    ask->retry_ns = 0;
    struct server *server = ask->at != NULL ? ask->at : server_of_slot(router, ask->slot, now_ns);
    if (server == NULL) {
        topology_doubt(router, NULL, now_ns);
        return;
    }
    if (server->state != SERVER_READY || !link_is_ready(redis_conn_link(server->dialled.conn)))
        return;
    const struct redis_command command = {
        .words = (const struct span *)(void *)ask->memory,
        .n_words = ask->n_words,
        .script = ask->script,
        .is_asking = ask->is_asking,
        .answered = on_answer,
        .arg = ask,
    };
    if (!redis_conn_ask(server->dialled.conn, &command, now_ns)) {
        ask_wait_until(ask, now_ns + router_jitter(router, PAUSE_FIRST_NS));
        return;
    }
    ask_bind(ask, server);
    ask_move(ask, &router->sent);
    ask->is_sent = true;
    router->options.dialer->ops->asked(router->options.dialer, &server->dialled);
}

static void dispatch(struct router *router, uint64_t now_ns)
{
    for (struct router_ask *ask = router->waiting.first, *next; ask != NULL; ask = next) {
        next = ask->next;
        ask_send(ask, now_ns);
    }
}

static void unbind(struct router *router, struct server *server)
{
    for (struct router_ask *ask = router->waiting.first; ask != NULL; ask = ask->next)
        if (ask->at == server) {
            ask_bind(ask, NULL);
            ask->is_asking = false;
        }
}

/* ---- New commands ---------------------------------------------------------------------------- */

struct router_ask *router_ask(struct router *router, const struct router_command *command,
                              uint64_t now_ns)
{
    assert(command->slot < CLUSTER_SLOTS && command->answered != NULL);
    struct router_ask *ask = new_ask(router, command);
    if (ask == NULL)
        return NULL;
    ask->router = router;
    ask->at = NULL;
    ask->answered = command->answered;
    ask->arg = command->arg;
    ask->script = command->script;
    ask->deadline_ns = command->deadline_ns;
    ask->retry_ns = 0;
    ask->slot = command->slot;
    ask->redirects = ask->tries = 0;
    ask->is_repeatable = command->is_repeatable;
    ask->is_asking = ask->is_sent = false;
    ask->list = NULL;
    ask_send(ask, now_ns);
    if (ask->list == NULL)
        ask_list_add(&router->waiting, ask);
    router_hurry(router, ask->deadline_ns < router->ends_ns ? ask->deadline_ns : router->ends_ns);
    return ask;
}

void router_forget(struct router_ask *ask)
{
    ask->answered = NULL;
    if (!ask->is_sent) /* else its connection will report it */
        free_ask(ask);
}

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t router_deadline(const struct router *router)
{
    return router->earliest_ns;
}

/* A callback may add or cancel commands, so expired ones are collected before any callback. */
static void end_late(struct router *router, struct ask_list *list, enum link_outcome outcome,
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
        if (outcome == LINK_UNSENT) {
            ask_finish(ask, outcome, NULL, now_ns);
            continue;
        }
        /* The connection still has it, and will report it. */
        redis_answered *answered = ask->answered;
        ask->answered = NULL;
        ask_list_remove(ask);
        ask_list_add(&router->sent, ask);
        if (answered != NULL)
            answered(ask->arg, outcome, NULL, now_ns);
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
    end_late(router, &router->waiting, LINK_UNSENT, now_ns);
    end_late(router, &router->sent, LINK_LATE, now_ns);
    router->earliest_ns = STINT_NEVER_NS;
    servers_wake(router, now_ns);
    dispatch(router, now_ns);
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

/* ---- Start and end --------------------------------------------------------------------------- */

static void set_defaults(struct router_options *options)
{
    link_set_default(&options->reply_ns, LINK_REPLY_NS);
    link_set_default(&options->refresh_ns, 10 * NS_PER_S);
    link_set_default(&options->hurry_ns, 100 * NS_PER_MS);
    if (options->asks_max == 0)
        options->asks_max = 4096;
    if (options->bytes_max == 0)
        options->bytes_max = 4u << 20;
}

static void free_memory(struct router *router)
{
    free(router->cluster);
    free(router->spare);
    free(router->of_master);
    free(router);
}

static const struct router_commands commands = {.dispatch = dispatch, .unbind = unbind};

struct router *router_new(const struct router_options *options)
{
    struct router *router = calloc(1, sizeof(*router));
    if (router == NULL)
        return NULL;
    router->options = *options;
    router->commands = &commands;
    set_defaults(&router->options);
    router->random = options->seed;
    router->ends_ns = STINT_NEVER_NS;
    uint64_t now_ns = options->dialer->ops->now(options->dialer);
    router->unavailable_since_ns = now_ns > 0 ? now_ns : 1;
    router->earliest_ns = router->refresh_ns = now_ns; /* begins to connect */
    router->is_refresh_wanted = true;
    if (options->url->kind != STORE_REDIS_CLUSTER)
        return router;
    router->cluster = calloc(1, sizeof(*router->cluster));
    router->spare = calloc(1, sizeof(*router->spare));
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
        ask_finish(router->waiting.first, LINK_UNSENT, NULL, now_ns);
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
