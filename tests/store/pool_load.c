/* SPDX-License-Identifier: MIT */
/*
 * Asks a pool on a store as a worker does, for test_store_pools.py: `next` so many at once, until
 * stdin ends. Each answer is a line on stdout,
 *     KEY AT_NS | - WAIT_NS | ! SENTENCE
 * Then, if there was one at once, a unit is given back, a key put out and let in again, one named
 * that there is not, and an ask forgotten: a line for each.
 *
 *     store_pool_load URL ORDER KEYS SPEC AT_ONCE
 */
#define _GNU_SOURCE
#include "store_loop.h"

#include "base/ns.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 16
#define AT_ONCE_MAX 64
#define TIMEOUT_NS (2 * NS_PER_S)

struct load;

struct ask {
    struct backend_pool_op op;
    struct load *home;
};

struct load {
    struct store_loop store_loop;
    struct backend_pools *pools;
    struct backend_pool_list *list;
    struct ask asks[AT_ONCE_MAX];
    struct stint_pool_status statuses[KEYS_MAX];
    unsigned at_once, n_waiting, stage;
    char key[STINT_POOL_NAME_MAX + 1]; /* that was given last */
    uint64_t at_ns;
};

static void go_on(struct store_loop *store_loop);

static void print(struct load *load, const struct backend_pool_answer *answer)
{
    const struct stint_pool_answer *next = &answer->next;
    if (answer->outcome != BACKEND_DECIDED) {
        printf("! %s\n", answer->error);
    } else if (next->name == NULL) {
        printf("- %" PRIu64 "\n", next->wait_ns);
    } else {
        printf("%s %" PRIu64 "\n", next->name, next->granted_at_ns);
        memcpy(load->key, next->name, strlen(next->name) + 1);
        load->at_ns = next->granted_at_ns;
    }
}

static void answered(struct backend_pool_op *op, uint64_t now_ns)
{
    struct ask *ask = op->arg;
    struct load *load = ask->home;
    (void)now_ns;
    load->n_waiting--;
    if (load->stage == 0)
        print(load, &op->answer);
    go_on(&load->store_loop);
}

static void ask(struct load *load, struct ask *ask, struct backend_pool_request asked)
{
    uint64_t now_ns = uv_hrtime();
    asked.list = load->list;
    asked.now_ns = now_ns;
    asked.deadline_ns = now_ns + TIMEOUT_NS;
    ask->home = load;
    ask->op = (struct backend_pool_op){
        .answered = answered, .arg = ask, .answer = {.statuses = load->statuses}};
    load->n_waiting++;
    load->pools->ops->ask(load->pools, &asked, &ask->op);
    if (ask->op.answer.outcome != BACKEND_WAITS)
        load->n_waiting--;
}

static void free_list(struct store_loop *store_loop)
{
    const struct load *load = (struct load *)store_loop;
    load->pools->ops->list_free(load->list);
}

/* What is done once all is quiet: one step after the other. */
static void step(struct load *load)
{
    struct ask *one = &load->asks[0];
    const struct backend_pool_answer *answer = &one->op.answer;
    const struct stint_pool_status *status = &load->statuses[0];
    struct span key = span_of_text(load->key);
    if (load->stage > 1 && answer->outcome != BACKEND_DECIDED && answer->outcome != BACKEND_REFUSED)
        printf("! %s\n", answer->error);
    switch (load->stage++) {
    case 1:
        ask(load, one,
            (struct backend_pool_request){
                .verb = BACKEND_POOL_GIVE_BACK, .key = key, .cost = 1, .at_ns = load->at_ns});
        break;
    case 2:
        printf("given_back %" PRIu32 "\n", answer->given_back);
        ask(load, one,
            (struct backend_pool_request){
                .verb = BACKEND_POOL_REPORT, .key = span_of_text("k0"), .outcome = STINT_POOL_OUT});
        break;
    case 3:
    case 5:
        ask(load, one, (struct backend_pool_request){.verb = BACKEND_POOL_STATUS});
        break;
    case 4:
        printf("status %s %u\n", status->name, status->standing);
        ask(load, one,
            (struct backend_pool_request){.verb = BACKEND_POOL_LET_IN, .key = span_of_text("k0")});
        break;
    case 6:
        printf("status %s %u\n", status->name, status->standing);
        ask(load, one,
            (struct backend_pool_request){
                .verb = BACKEND_POOL_REPORT, .key = span_of_text("nobody"), .outcome = 0});
        printf("refused %d %s\n", answer->outcome == BACKEND_REFUSED, answer->error);
        ask(load, one, (struct backend_pool_request){.verb = BACKEND_POOL_STATUS});
        printf("forgotten %d\n", answer->outcome == BACKEND_WAITS);
        load->pools->ops->forget(load->pools, &one->op);
        load->n_waiting--;
        store_loop_close(&load->store_loop);
        break;
    default:
        break;
    }
    if (load->n_waiting == 0 && load->stage < 7) /* it was answered at once */
        step(load);
}

static void go_on(struct store_loop *store_loop)
{
    struct load *load = (struct load *)store_loop;
    if (!store_loop->is_ending || load->n_waiting > 0)
        return;
    if (load->at_once > 1) { /* others may take what is given back, and nobody could tell */
        store_loop_close(store_loop);
        return;
    }
    if (load->stage == 0)
        load->stage = 1;
    step(load);
}

static void ask_next(struct store_loop *store_loop)
{
    struct load *load = (struct load *)store_loop;
    for (unsigned i = 0; i < load->at_once; i++)
        if (load->asks[i].op.at_work == NULL) {
            ask(load, &load->asks[i],
                (struct backend_pool_request){.verb = BACKEND_POOL_NEXT, .cost = 1});
            if (load->asks[i].op.answer.outcome != BACKEND_WAITS)
                print(load, &load->asks[i].op.answer);
        }
}

static int make_list(struct load *load, char **argv, struct stint_error *error)
{
    static char names[KEYS_MAX][8];
    struct stint_quota quota;
    struct stint_pool_key keys[KEYS_MAX];
    struct backend_pool_definition given = {.name = span_of_text("load"),
                                            .order = (uint8_t)strtoul(argv[2], NULL, 10),
                                            .keys = keys,
                                            .n_keys = strtoul(argv[3], NULL, 10)};
    int code = stint_quota_parse(&quota, argv[4], error);
    for (size_t i = 0; i < given.n_keys && i < KEYS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "k%zu", i);
        keys[i] = (struct stint_pool_key){.name = names[i], .quotas = &quota, .n_quotas = 1};
    }
    return code != 0 ? code : load->pools->ops->list_new(load->pools, &given, &load->list, error);
}

int main(int argc, char **argv)
{
    static struct load load = {
        .store_loop = {
            .turn = ask_next, .ended = go_on, .closing = free_list, .config.reply_ns = TIMEOUT_NS}};
    struct stint_error error = {0};
    if (argc != 6)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    load.at_once = (unsigned)strtoul(argv[5], NULL, 10);
    if (!store_loop_open(&load.store_loop, argv[1]))
        return 1;
    load.pools = stores_pools(load.store_loop.stores, 0);
    if (load.pools == NULL || make_list(&load, argv, &error) != 0) {
        fprintf(stderr, "pool_load: %s\n", error.message);
        return 1;
    }
    return store_loop_run(&load.store_loop);
}
