/* SPDX-License-Identifier: MIT */
/*
 * Asks a store as a worker does, for test_store_router.py: so many takes a second, over so many
 * keys, whatever becomes of them. Each that is over is a line on stdout:
 *     SENT_NS ANSWERED_NS AT_NS OUTCOME FAULT VERDICT GRANTED KEY[,KEY]
 * times since 1970, OUTCOME as enum backend_outcome, FAULT as enum backend_error, VERDICT as enum
 * stint_outcome. Ends when stdin does, with a line of figures behind "figures".
 *
 *     store_load URL RATE KEYS KEYS_PER_ASK COST SPEC TIMEOUT_MS VERB [id]
 */
#define _GNU_SOURCE
#include "store_loop.h"

#include "base/ns.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KEY_SIZE 32
#define ITEMS_MAX 8

struct load;

struct ask {
    struct backend_op op;
    struct load *home;
    uint64_t sent_ns;
    char keys[ITEMS_MAX][KEY_SIZE];
    struct stint_decision each[ITEMS_MAX];
};

struct load {
    struct store_loop store_loop;
    struct backend *store;
    struct stint_quota quota;
    unsigned rate, keys, keys_per_ask, cost;
    uint64_t timeout_ns, begun_ns, n_asked, n_waiting, n_ids, n_named;
    uint8_t verb;
    bool has_ids;
};

static uint64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void print(const struct ask *ask)
{
    const struct backend_answer *answer = &ask->op.answer;
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %u %u %u %u ", ask->sent_ns, wall_ns(),
           answer->at_ns, answer->outcome, answer->fault, answer->sum.outcome, answer->sum.granted);
    for (unsigned i = 0; i < ask->home->keys_per_ask; i++)
        printf("%s%s", i > 0 ? "," : "", ask->keys[i]);
    printf("\n");
}

static void tell_metrics(struct store_loop *store_loop)
{
    const struct router_metrics *metrics = backends_router_metrics(store_loop->stores, 0);
    printf("figures redirects=%" PRIu64 " retries=%" PRIu64 " failovers=%" PRIu64 "\n",
           metrics->redirects, metrics->retries, metrics->failovers);
}

static void end(struct store_loop *store_loop)
{
    const struct load *load = (struct load *)store_loop;
    if (load->n_waiting == 0)
        store_loop_close(store_loop);
}

static void over(struct ask *ask)
{
    print(ask);
    free(ask);
}

static void answered(struct backend_op *op, uint64_t now_ns)
{
    struct ask *ask = op->arg;
    struct load *load = ask->home;
    (void)now_ns;
    load->n_waiting--;
    over(ask);
    if (load->store_loop.is_ending)
        end(&load->store_loop);
}

static void ask_once(struct load *load)
{
    struct backend_item items[ITEMS_MAX];
    struct ask *ask = calloc(1, sizeof(*ask));
    uint8_t id[BACKEND_ID_LEN] = {0};
    /* Each key in its turn, and in each round beside other neighbours. */
    uint64_t first = load->n_named + load->n_named / load->keys;
    load->n_named += load->keys_per_ask;
    for (unsigned i = 0; i < load->keys_per_ask; i++) {
        snprintf(ask->keys[i], KEY_SIZE, "k%u", (unsigned)((first + i) % load->keys));
        items[i] = (struct backend_item){
            .quota = &load->quota,
            .name = span_of_text("load"),
            .key = span_of_text(ask->keys[i]),
            .cost = load->cost,
        };
    }
    load->n_ids++;
    memcpy(id, &load->n_ids, sizeof(load->n_ids));
    uint64_t begun_ns = wall_ns();
    memcpy(id + 8, &begun_ns, sizeof(begun_ns));
    ask->home = load;
    ask->op = (struct backend_op){.answered = answered, .arg = ask, .answer = {.each = ask->each}};
    ask->sent_ns = wall_ns();
    uint64_t now_ns = uv_hrtime();
    const struct backend_request asked = {
        .verb = load->verb,
        .items = items,
        .n_items = load->keys_per_ask,
        .at_ns = STINT_NEVER_NS,
        .now_ns = now_ns,
        .deadline_ns = now_ns + load->timeout_ns,
        .id = load->has_ids ? id : NULL,
        .body = 1,
        .id_lifetime_ns = 10 * NS_PER_S,
    };
    load->n_waiting++;
    load->store->ops->ask(load->store, &asked, &ask->op);
    if (ask->op.answer.outcome != BACKEND_WAITS) {
        load->n_waiting--;
        over(ask);
    }
}

static void ask_those_due(struct store_loop *store_loop)
{
    struct load *load = (struct load *)store_loop;
    uint64_t timer = (uv_hrtime() - load->begun_ns) / NS_PER_MS * load->rate / 1000;
    /* Who was held up asks on from here, and not for all the time that he missed. */
    if (timer > load->n_asked + load->rate / 20)
        load->n_asked = timer - load->rate / 20;
    for (; load->n_asked < timer; load->n_asked++)
        ask_once(load);
}

int main(int argc, char **argv)
{
    static struct load load = {.store_loop = {.turn = ask_those_due,
                                              .ended = end,
                                              .closing = tell_metrics,
                                              .config.without_front = true}};
    struct stint_error error;
    if (argc < 9 || stint_quota_parse(&load.quota, argv[6], &error) != 0) {
        fprintf(stderr, "load: %s\n", argc < 9 ? "too few arguments" : error.message);
        return 2;
    }
    load.rate = (unsigned)strtoul(argv[2], NULL, 10);
    load.keys = (unsigned)strtoul(argv[3], NULL, 10);
    load.keys_per_ask = (unsigned)strtoul(argv[4], NULL, 10);
    load.cost = (unsigned)strtoul(argv[5], NULL, 10);
    load.timeout_ns = strtoull(argv[7], NULL, 10) * NS_PER_MS;
    load.verb = strcmp(argv[8], "take_upto") == 0 ? REQUEST_TAKE_UPTO : REQUEST_TAKE;
    load.has_ids = argc > 9;
    if (load.keys == 0 || load.keys_per_ask == 0 || load.keys_per_ask > ITEMS_MAX)
        return 2;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    if (!store_loop_open(&load.store_loop, argv[1]))
        return 1;
    load.store = stores_all(load.store_loop.stores)[0];
    load.begun_ns = uv_hrtime();
    return store_loop_run(&load.store_loop);
}
