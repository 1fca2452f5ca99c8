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
    const struct pool_backend *list;
    struct router_ask *ask;
    uint64_t offset_ns; /* from the router's clock to the caller's */
    uint8_t verb;
};

static struct redis_backend *of(const struct backend_pools *pools)
{
    return (struct redis_backend *)(void *)((uint8_t *)(uintptr_t)pools -
                                            offsetof(struct redis_backend, pools));
}

static const struct pool_backend *list_of(const struct backend_pool_list *list)
{
    return (const struct pool_backend *)(const void *)list;
}

/* ---- Lists ----------------------------------------------------------------------------------- */

int redis_backend_pool_list(const char *prefix, const struct backend_pool_definition *given,
                            struct backend_pool_list **list, struct stint_error *error)
{
    struct pool_backend *made;
    const struct pool_backend_options options = {
        .prefix = span_of_text(prefix != NULL ? prefix : REDIS_STORE_PREFIX_DEFAULT),
        .name = given->name,
        .order = given->order,
        .keys = given->keys,
        .n_keys = given->n_keys,
    };
    int code = pool_backend_new(&made, &options, error);
    if (code == 0)
        *list = (struct backend_pool_list *)(void *)made;
    return code;
}

void redis_backend_pool_list_free(struct backend_pool_list *list)
{
    pool_backend_free((struct pool_backend *)(void *)list);
}

static int op_list_new(const struct backend_pools *pools,
                       const struct backend_pool_definition *given, struct backend_pool_list **list,
                       struct stint_error *error)
{
    return redis_backend_pool_list(of(pools)->plain_prefix, given, list, error);
}

static size_t op_list_len(const struct backend_pool_list *list)
{
    return pool_backend_n_keys(list_of(list));
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* False: the script gives no such reply. */
static bool read_values(const struct pool_job *job, const int64_t *values, size_t n_values)
{
    struct backend_pool_answer *answer = &job->op->answer;
    switch (job->verb) {
    case BACKEND_POOL_NEXT:
        return pool_backend_read_next(job->list, values, n_values, &answer->next);
    case BACKEND_POOL_STATUS:
        return pool_backend_read_status(job->list, values, n_values, answer->statuses);
    case BACKEND_POOL_GIVE_BACK:
        return pool_backend_read_given_back(values, n_values, &answer->given_back);
    default:
        return n_values == 1 && values[0] == 0;
    }
}

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
        is_read = read_values(job, values != NULL ? values : &none, n);
    free(values);
    return is_read;
}

static void answered(void *arg, enum router_outcome outcome, const struct redis_reply *reply,
                     uint64_t now_ns)
{
    struct pool_job *job = arg;
    struct redis_backend *store = job->store;
    struct backend_pool_op *op = job->op;
    struct backend_pool_answer *answer = &op->answer;
    uint64_t offset_ns = job->offset_ns;
    if (outcome == ROUTER_DONE && take_reply(job, reply)) {
        answer->outcome = BACKEND_DECIDED;
    } else {
        answer->outcome = BACKEND_FAILED;
        answer->fault = (uint8_t)redis_backend_error_of(outcome);
        answer->error = redis_backend_reason(store, outcome, reply);
    }
    op->at_work = NULL;
    free(job);
    store->n_pending--;
    op->answered(op, now_ns + offset_ns);
    redis_backend_settle(store);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static bool make_words(struct redis_backend *store, const struct backend_pool_request *ask)
{
    struct pool_command *command = &store->pool_command;
    const struct pool_backend *list = list_of(ask->list);
    const struct pool_time time = {0};
    switch (ask->verb) {
    case BACKEND_POOL_NEXT:
        return pool_command_next(command, list, ask->cost, ask->probe, time);
    case BACKEND_POOL_STATUS:
        return pool_command_status(command, list, time);
    case BACKEND_POOL_GIVE_BACK:
        return pool_command_give_back(command, list, ask->key, ask->cost, ask->at_ns, time);
    case BACKEND_POOL_REPORT:
        return pool_command_report(command, list, ask->key, ask->outcome, ask->cooldown_ns, time);
    default:
        return pool_command_let_in(command, list, ask->key, time);
    }
}

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
                             .list = list_of(ask->list),
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
    if (!make_words(store, ask)) {
        bool has_key = ask->verb != BACKEND_POOL_NEXT && ask->verb != BACKEND_POOL_STATUS;
        answer->outcome = has_key ? BACKEND_REFUSED : BACKEND_FAILED;
        answer->error =
            has_key ? "the pool has no such key" : "no memory for a request to the store";
        return;
    }
    bool has_slots = router_has_slots(store->router);
    unsigned slot = has_slots ? cluster_slot_of(pool_backend_key(list_of(ask->list))) : 0;
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
    .list_free = redis_backend_pool_list_free,
    .list_len = op_list_len,
    .ask = op_ask,
    .forget = op_forget,
};

struct backend_pools *redis_backend_pools(struct backend *store)
{
    struct backend_pools *pools = &((struct redis_backend *)store)->pools;
    pools->ops = &pools_ops;
    return pools;
}
