/* SPDX-License-Identifier: MIT */
/*
 * Asks of pools through the guard: stopped by the breakers of the store, and counted with its other
 * asks. Nothing else of the guard is for them: what a pool denies is kept with the pool.
 */
#include "backend/front/guard_parts.h"

#include <stdlib.h>

struct guard_pool_ask {
    struct guard *guard;
    struct shared_pool_op inner;
    struct shared_pool_op *op; /* the asker's */
    struct breakers_pass pass;
    uint64_t asked_ns;
};

static struct guard *guard_of(const struct shared_pools *pools)
{
    return (struct guard *)(void *)((uint8_t *)(uintptr_t)pools - offsetof(struct guard, pools));
}

static void settle(const struct guard_pool_ask *ask, bool at_once, uint64_t now_ns)
{
    const struct shared_pool_answer *answer = &ask->inner.answer;
    guard_settle(ask->guard, &ask->pass,
                 &(struct guard_outcome){
                     .outcome = answer->outcome,
                     .fault = answer->fault,
                     .at_once = at_once,
                     .asked_ns = ask->asked_ns,
                     .now_ns = now_ns,
                 });
}

static void inner_answered(struct shared_pool_op *inner, uint64_t now_ns)
{
    struct guard_pool_ask *ask = inner->arg;
    struct shared_pool_op *op = ask->op;
    settle(ask, false, now_ns);
    op->answer = inner->answer;
    op->at_work = NULL;
    free(ask);
    op->answered(op, now_ns);
}

static void pools_ask(struct shared_pools *pools, const struct shared_pool_ask *asked,
                      struct shared_pool_op *op)
{
    struct guard *guard = guard_of(pools);
    struct guard_pool_ask *ask = malloc(sizeof(*ask));
    struct shared_pool_ask told = *asked;
    store_figure_up(&guard->figures->asks);
    if (ask == NULL) {
        op->answer.outcome = SHARED_FAILED;
        op->answer.error = "no memory to ask the store";
        return;
    }
    *ask =
        (struct guard_pool_ask){.guard = guard, .op = op, .asked_ns = asked->now_ns, .inner = *op};
    ask->inner.answered = inner_answered;
    ask->inner.arg = ask;
    told.stopped = breakers_stopped(&guard->breakers, asked->now_ns);
    guard->inner_pools->ops->ask(guard->inner_pools, &told, &ask->inner);
    ask->pass = breakers_ask(&guard->breakers, ask->inner.answer.servers, asked->now_ns);
    if (ask->inner.answer.outcome == SHARED_WAITS) {
        op->answer.outcome = SHARED_WAITS;
        op->at_work = ask;
        return;
    }
    settle(ask, true, asked->now_ns);
    op->answer = ask->inner.answer;
    if (op->answer.outcome == SHARED_FAILED && op->answer.fault == SHARED_FAULT_STOPPED)
        op->answer.error = GUARD_STOPPED;
    free(ask);
}

/* The list goes with the asker, so nobody listens in his place: he has not waited to the end. */
static void pools_forget(struct shared_pools *pools, struct shared_pool_op *op)
{
    struct guard *guard = guard_of(pools);
    struct guard_pool_ask *ask = op->at_work;
    op->at_work = NULL;
    guard->inner_pools->ops->forget(guard->inner_pools, &ask->inner);
    breakers_drop(&guard->breakers, &ask->pass);
    free(ask);
}

static int pools_list_new(const struct shared_pools *pools,
                          const struct shared_pool_definition *given,
                          struct shared_pool_list **list, struct stint_error *error)
{
    const struct shared_pools *inner = guard_of(pools)->inner_pools;
    return inner->ops->list_new(inner, given, list, error);
}

struct shared_pools *guard_pools(struct shared_store *store, struct shared_pools *inner)
{
    struct guard *guard = (struct guard *)store;
    guard->inner_pools = inner;
    guard->pools_ops = *inner->ops;
    guard->pools_ops.list_new = pools_list_new;
    guard->pools_ops.ask = pools_ask;
    guard->pools_ops.forget = pools_forget;
    guard->pools.ops = &guard->pools_ops;
    return &guard->pools;
}
