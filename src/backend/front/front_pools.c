/* SPDX-License-Identifier: MIT */
/*
 * Pool requests through the front: the store's breakers stop them, and they count in its metrics.
 * The rest of the front does not apply: the pool itself stores what it denies.
 */
#include "backend/front/front_parts.h"

#include <stdlib.h>

struct front_pool_ask {
    struct front *front;
    struct backend_pool_op inner;
    struct backend_pool_op *op; /* the caller's */
    struct breakers_pass pass;
    uint64_t asked_ns;
};

static struct front *front_of(const struct backend_pools *pools)
{
    return (struct front *)(void *)((uint8_t *)(uintptr_t)pools - offsetof(struct front, pools));
}

static void settle(const struct front_pool_ask *ask, bool at_once, uint64_t now_ns)
{
    const struct backend_pool_answer *answer = &ask->inner.answer;
    front_settle(ask->front, &ask->pass,
                 &(struct front_outcome){
                     .outcome = answer->outcome,
                     .fault = answer->fault,
                     .at_once = at_once,
                     .asked_ns = ask->asked_ns,
                     .now_ns = now_ns,
                 });
}

static void inner_answered(struct backend_pool_op *inner, uint64_t now_ns)
{
    struct front_pool_ask *ask = inner->arg;
    struct backend_pool_op *op = ask->op;
    settle(ask, false, now_ns);
    op->answer = inner->answer;
    op->at_work = NULL;
    free(ask);
    op->answered(op, now_ns);
}

static void pools_ask(struct backend_pools *pools, const struct backend_pool_request *asked,
                      struct backend_pool_op *op)
{
    struct front *front = front_of(pools);
    struct front_pool_ask *ask = malloc(sizeof(*ask));
    struct backend_pool_request forwarded = *asked;
    backend_metric_up(&front->metrics->asks);
    if (ask == NULL) {
        op->answer.outcome = BACKEND_FAILED;
        op->answer.error = "no memory for a request to the store";
        return;
    }
    *ask =
        (struct front_pool_ask){.front = front, .op = op, .asked_ns = asked->now_ns, .inner = *op};
    ask->inner.answered = inner_answered;
    ask->inner.arg = ask;
    forwarded.stopped = breakers_stopped(&front->breakers, asked->now_ns);
    front->inner_pools->ops->ask(front->inner_pools, &forwarded, &ask->inner);
    ask->pass = breakers_ask(&front->breakers, ask->inner.answer.servers, asked->now_ns);
    if (ask->inner.answer.outcome == BACKEND_WAITS) {
        op->answer.outcome = BACKEND_WAITS;
        op->at_work = ask;
        return;
    }
    settle(ask, true, asked->now_ns);
    op->answer = ask->inner.answer;
    if (op->answer.outcome == BACKEND_FAILED && op->answer.fault == BACKEND_ERROR_STOPPED)
        op->answer.error = FRONT_STOPPED;
    free(ask);
}

/* The list goes with the caller, so the answer is not kept: the wait was not to the end. */
static void pools_forget(struct backend_pools *pools, struct backend_pool_op *op)
{
    struct front *front = front_of(pools);
    struct front_pool_ask *ask = op->at_work;
    op->at_work = NULL;
    front->inner_pools->ops->forget(front->inner_pools, &ask->inner);
    breakers_drop(&front->breakers, &ask->pass);
    free(ask);
}

static int pools_list_new(const struct backend_pools *pools,
                          const struct backend_pool_definition *given,
                          struct backend_pool_list **list, struct stint_error *error)
{
    const struct backend_pools *inner = front_of(pools)->inner_pools;
    return inner->ops->list_new(inner, given, list, error);
}

struct backend_pools *front_pools(struct backend *store, struct backend_pools *inner)
{
    struct front *front = (struct front *)store;
    front->inner_pools = inner;
    front->pools_ops = *inner->ops;
    front->pools_ops.list_new = pools_list_new;
    front->pools_ops.ask = pools_ask;
    front->pools_ops.forget = pools_forget;
    front->pools.ops = &front->pools_ops;
    return &front->pools;
}
