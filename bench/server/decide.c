/* SPDX-License-Identifier: MIT */
/*
 * Asks a service over one shared Redis, as a frontend of the server does, with no frontend between:
 * what is measured is deciding. Requests are as many as REQUESTS, over KEYS keys of one rule, one
 * key after the other; those that wait for the store are asked again once it has answered,
 * IN_FLIGHT at most at a time. The rules are read from FILE, and all of them are for that store.
 *
 *     decide PORT FILE DOMAIN ENTRY KEYS IN_FLIGHT REQUESTS
 *
 * The processor time of this process is told beside the time on the wall.
 */
#define _GNU_SOURCE
#include "asker.h"

#include "base/err.h"
#include "net/file.h"
#include "net/upstream/backends.h"
#include "rules/yaml/rules_load.h"
#include "service/access/access.h"
#include "service/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <uv.h>

#define IN_FLIGHT_MAX 65536
#define TURN 64 /* requests at one instant: as many as a frontend finds in one read */
#define FILE_MAX 65536
#define KEYS_MAX 1024
#define VALUE_SIZE 16
#define TIMEOUT_NS (5 * NS_PER_S) /* thousands wait for the one script at a time */

struct load;

/* A request on its way; what it points to stays until it is answered. */
struct pending {
    struct pending *next_free;
    struct load *home;
    struct request request;
    struct descriptor descriptor;
    struct descriptor_entry entry;
};

struct load {
    uv_loop_t loop;
    struct stint_table *table;
    struct server_state *server_state;
    struct service *service;
    struct stores *stores;
    struct store_config config;
    struct pending *all, *free;
    struct span domain, entry;
    unsigned keys, in_flight;
    uint64_t wanted, asked, decided, allowed;
    bool is_drained;
    char values[KEYS_MAX][VALUE_SIZE];
};

static _Noreturn void refuse(const char *message)
{
    fprintf(stderr, "decide: %s\n", message);
    exit(1);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static void answered(void *arg, uint64_t now_ns);

/* Where it waits, answered() asks it again. */
static void ask(struct pending *pending, uint64_t now_ns)
{
    static const struct caller caller = {.name = "", .roles = ACCESS_ALL};
    static struct reply reply;
    struct load *load = pending->home;
    service_ask(load->service, &pending->request, &caller, now_ns, &reply);
    if (reply.error == REPLY_WAITS) {
        pending->request.pending = reply.pending;
        service_on_answers(reply.pending, answered, pending);
        return;
    }
    if (reply.error != REPLY_DECIDED)
        refuse(reply.message);
    pending->request.pending = NULL;
    pending->next_free = load->free;
    load->free = pending;
    load->decided++;
    load->allowed += reply.decision.outcome == STINT_ALLOW;
}

static void answered(void *arg, uint64_t now_ns)
{
    ask(arg, now_ns);
}

static void ask_next(struct load *load, uint64_t now_ns)
{
    struct pending *pending = load->free;
    unsigned key = (unsigned)(load->asked++ % load->keys);
    load->free = pending->next_free;
    pending->entry = (struct descriptor_entry){load->entry, span_of_text(load->values[key])};
    ask(pending, now_ns);
}

static void run(struct load *load)
{
    while (load->decided < load->wanted) {
        uint64_t now_ns = stint_now(load->table);
        for (unsigned i = 0; i < TURN && load->free != NULL && load->asked < load->wanted; i++)
            ask_next(load, now_ns);
        bool is_full = load->free == NULL || load->asked == load->wanted;
        uv_run(&load->loop, is_full && load->decided < load->wanted ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    }
}

/* ---- What is asked --------------------------------------------------------------------------- */

static uint64_t now_for_stores(void *arg)
{
    return stint_now(((const struct load *)arg)->table);
}

static int accepts(void *arg, size_t store, const struct rule *rule,
                   const struct stint_quota *quota, struct stint_error *error)
{
    (void)store;
    return stores_accept(&((const struct load *)arg)->config, rule, quota, error);
}

static void open_service(struct load *load, const char *path)
{
    static const char *const names[] = {RULES_STORE_DEFAULT};
    const struct stint_table_options table = {.keys = 1024};
    const struct rules_load_options how = {.stores = names, .n_stores = 1, .default_store = 1};
    struct stint_error error;
    struct rules_diagnostics diagnostics;
    char *text;
    if (stint_table_open(&load->table, &table, &error) != 0 ||
        file_text_read(path, FILE_MAX, &text, &error) != 0)
        refuse(error.message);
    const struct rules_file file = {.path = path, .text = span_of_text(text)};
    struct rules *rules = rules_load(&file, 1, &how, &diagnostics);
    if (rules == NULL)
        refuse(diagnostics.diagnostics[0].message);
    const struct server_state_options options = {.table = load->table,
                                                 .rules = rules,
                                                 .workers = 1,
                                                 .store_accepts = accepts,
                                                 .store_arg = load};
    if (server_state_open(&load->server_state, &options, &error) != 0)
        refuse(error.message);
    rules_unref(rules);
    rules_diagnostics_free(&diagnostics);
    free(text);
    load->service = service_new(load->server_state, 0);
    if (load->service == NULL)
        refuse("no memory for a service");
}

static void open_stores(struct load *load, const char *port)
{
    struct stint_error error;
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%s", port);
    load->config = (struct store_config){.reply_ns = TIMEOUT_NS, .asks_max = IN_FLIGHT_MAX};
    uv_loop_init(&load->loop);
    const struct stores_options options = {.loop = &load->loop,
                                           .configs = &load->config,
                                           .n_configs = 1,
                                           .now = now_for_stores,
                                           .now_arg = load,
                                           .seed = 1,
                                           .secret = {1, 2}};
    if (store_url_parse(&load->config.url, url, &error) != 0 ||
        stores_open(&load->stores, &options, &error) != 0)
        refuse(error.message);
    const struct evaluation_stores stores = {.stores = stores_all(load->stores),
                                             .n_stores = 1,
                                             .items = 1,
                                             .throttle = 1,
                                             .timeout_ns = TIMEOUT_NS,
                                             .items_on_error = RULE_STORE_ERROR_ERROR};
    service_set_stores(load->service, &stores);
}

static void make_pending(struct load *load)
{
    for (unsigned key = 0; key < load->keys; key++)
        snprintf(load->values[key], VALUE_SIZE, "%u", key);
    load->all = calloc(load->in_flight, sizeof(*load->all));
    if (load->all == NULL)
        asker_die("memory");
    for (unsigned i = 0; i < load->in_flight; i++) {
        struct pending *pending = &load->all[i];
        pending->home = load;
        pending->descriptor = (struct descriptor){.entries = &pending->entry, .n_entries = 1};
        pending->request = (struct request){.verb = REQUEST_TAKE,
                                            .cost = 1,
                                            .domain = load->domain,
                                            .descriptors = &pending->descriptor,
                                            .n_descriptors = 1};
        pending->next_free = load->free;
        load->free = pending;
    }
}

/* ---- All of it ------------------------------------------------------------------------------- */

static double cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void on_drained(void *arg)
{
    ((struct load *)arg)->is_drained = true;
}

static void close_load(struct load *load)
{
    stores_drain(load->stores, stint_now(load->table) + NS_PER_S, on_drained, load);
    while (!load->is_drained)
        uv_run(&load->loop, UV_RUN_ONCE);
    stores_close(load->stores);
    uv_run(&load->loop, UV_RUN_DEFAULT);
    uv_loop_close(&load->loop);
    service_free(load->service);
    server_state_close(load->server_state);
    stint_table_close(load->table);
    free(load->all);
}

int main(int argc, char **argv)
{
    static struct load load;
    if (argc != 8) {
        fprintf(stderr, "usage: %s PORT FILE DOMAIN ENTRY KEYS IN_FLIGHT REQUESTS\n", argv[0]);
        return 2;
    }
    load.domain = span_of_text(argv[3]);
    load.entry = span_of_text(argv[4]);
    load.keys = (unsigned)atoi(argv[5]);
    load.in_flight = (unsigned)atoi(argv[6]);
    load.wanted = strtoull(argv[7], NULL, 10);
    if (load.keys < 1 || load.keys > KEYS_MAX || load.in_flight < 1 ||
        load.in_flight > IN_FLIGHT_MAX || load.wanted < 1)
        refuse("a number is out of its range");
    open_service(&load, argv[2]);
    open_stores(&load, argv[1]);
    make_pending(&load);
    const uint64_t begun_ns = asker_now_ns();
    const double begun_cpu_s = cpu_s();
    run(&load);
    const double seconds = (double)(asker_now_ns() - begun_ns) / NS_PER_S;
    printf("{\"answered\": %" PRIu64 ", \"allowed\": %" PRIu64
           ", \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n",
           load.decided, load.allowed, seconds, cpu_s() - begun_cpu_s);
    close_load(&load);
    return 0;
}
