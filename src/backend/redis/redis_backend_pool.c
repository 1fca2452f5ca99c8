/* SPDX-License-Identifier: MIT */
/*
 * Key pools over the router of a backend: one script on one key, so nothing has to be given back.
 * If the answer is lost, a key may be charged, but no caller uses it, and no limit is passed.
 */
#include "backend/redis/cluster.h"
#include "backend/redis/pool_backend.h"
#include "backend/redis/redis_backend_parts.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>

struct pool_job {
    struct redis_backend *store;
    struct backend_pool_op *op;
    const struct backend_pool_list *list;
    struct router_ask *ask;
    uint64_t offset_ns; /* from the router's clock to the caller's */
    uint8_t verb;
};

static struct redis_backend *of(const struct backend_pools *pools)
{
    return (struct redis_backend *)(void *)((uint8_t *)(uintptr_t)pools -
                                            offsetof(struct redis_backend, pools));
}

/* ---- Lists ----------------------------------------------------------------------------------- */

int redis_backend_pool_list(const char *prefix, const struct backend_pool_definition *given,
                            struct backend_pool_list **list, struct stint_error *error)
{
    const char *text = prefix != NULL ? prefix : REDIS_STORE_PREFIX_DEFAULT;
    return pool_backend_new(list, span_of_text(text), given, error);
}

static int op_list_new(const struct backend_pools *pools,
                       const struct backend_pool_definition *given, struct backend_pool_list **list,
                       struct stint_error *error)
{
    return redis_backend_pool_list(of(pools)->plain_prefix, given, list, error);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static bool take_reply(const struct pool_job *job, const struct redis_reply *reply)
{
    static const int64_t none;
    bool is_read = false;
    if (reply->type != REDIS_ARRAY)
        return false;
    int64_t *values = reply->n_items > 0 ? malloc(reply->n_items * sizeof(*values)) : NULL;
    if (values == NULL && reply->n_items > 0)
        return false;
    size_t n = 0;
    for (; n < reply->n_items && reply->items[n].type == REDIS_INTEGER; n++)
        values[n] = reply->items[n].number;
    if (n == reply->n_items)
        is_read = pool_backend_read(job->list, job->verb, values != NULL ? values : &none, n,
                                    &job->op->answer);
    free(values);
    return is_read;
}

static void answered(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                     uint64_t now_ns)
{
    struct pool_job *job = arg;
    struct redis_backend *store = job->store;
    struct backend_pool_op *op = job->op;
    struct backend_pool_answer *answer = &op->answer;
    uint64_t offset_ns = job->offset_ns;
    if (outcome == LINK_DONE && take_reply(job, reply)) {
        answer->outcome = BACKEND_DECIDED;
    } else {
        answer->outcome = BACKEND_FAILED;
        answer->error = redis_backend_reason(store, outcome, reply, &answer->fault);
    }
    op->at_work = NULL;
    free(job);
    store->n_pending--;
    op->answered(op, now_ns + offset_ns);
    redis_backend_settle(store);
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* A verb that moves no unit may be sent twice. */
static bool is_repeatable(const struct backend_pool_request *ask)
{
    return ask->verb == BACKEND_POOL_STATUS || (ask->verb == BACKEND_POOL_NEXT && ask->cost == 0) ||
           ask->verb == BACKEND_POOL_LET_IN;
}

static struct pool_job *begin(struct redis_backend *store, const struct backend_pool_request *ask,
                              struct backend_pool_op *op, unsigned slot)
{
    struct pool_job *job = malloc(sizeof(*job));
    if (job == NULL)
        return NULL;
    uint64_t now_ns = store->dialer->ops->now(store->dialer);
    uint64_t left_ns = sub_floor(ask->deadline_ns, ask->now_ns);
    *job = (struct pool_job){.store = store,
                             .op = op,
                             .list = ask->list,
                             .offset_ns = ask->now_ns - now_ns,
                             .verb = ask->verb};
    const struct router_command command = {
        .slot = slot,
        .words = store->pool_command.words,
        .n_words = store->pool_command.n_words,
        .script = store->pool_command.script->text,
        .deadline_ns = add_sat(now_ns, left_ns),
        .is_repeatable = is_repeatable(ask),
        .answered = answered,
        .arg = job,
    };
    job->ask = store->is_ending ? NULL : router_ask(store->router, &command, now_ns);
    if (job->ask != NULL)
        return job;
    free(job);
    return NULL;
}

static void op_ask(struct backend_pools *pools, const struct backend_pool_request *ask,
                   struct backend_pool_op *op)
{
    struct redis_backend *store = of(pools);
    struct backend_pool_answer *answer = &op->answer;
    if (!pool_command_make(&store->pool_command, ask, (struct pool_time){0})) {
        bool has_key = ask->verb != BACKEND_POOL_NEXT && ask->verb != BACKEND_POOL_STATUS;
        answer->outcome = has_key ? BACKEND_REFUSED : BACKEND_FAILED;
        answer->error =
            has_key ? "the pool has no such key" : "no memory for a request to the store";
        return;
    }
    bool has_slots = router_has_slots(store->router);
    unsigned slot = has_slots ? cluster_slot_of(pool_backend_key(ask->list)) : 0;
    uint64_t now_ns = store->dialer->ops->now(store->dialer);
    uint64_t server = router_server_bit(store->router, slot, now_ns);
    if ((server & ask->stopped) != 0) {
        answer->outcome = BACKEND_FAILED;
        answer->fault = BACKEND_ERROR_STOPPED;
        answer->error = "requests to the server of the pool are stopped now";
        return;
    }
    struct pool_job *job = begin(store, ask, op, slot);
    if (job == NULL) {
        answer->outcome = BACKEND_FAILED;
        answer->fault = BACKEND_ERROR_OVERLOAD;
        answer->error = "too many requests wait for the store";
        return;
    }
    store->n_pending++;
    op->at_work = job;
    answer->servers = server;
    answer->outcome = BACKEND_WAITS;
}

static void op_forget(struct backend_pools *pools, struct backend_pool_op *op)
{
    struct redis_backend *store = of(pools);
    struct pool_job *job = op->at_work;
    assert(job != NULL && job->op == op);
    op->at_work = NULL;
    router_forget(job->ask);
    free(job);
    store->n_pending--;
    redis_backend_settle(store);
}

static const struct backend_pools_ops pools_ops = {
    .list_new = op_list_new,
    .list_free = pool_backend_free,
    .list_len = pool_backend_n_keys,
    .ask = op_ask,
    .forget = op_forget,
};

struct backend_pools *redis_backend_pools(struct backend *store)
{
    struct backend_pools *pools = &((struct redis_backend *)store)->pools;
    pools->ops = &pools_ops;
    return pools;
}
