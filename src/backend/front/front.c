/* SPDX-License-Identifier: MIT */
/* The front as a backend: which requests pass, what answers come back, what the breakers learn. */
#include "backend/front/front_parts.h"

#include "base/wide_int.h"
#include "limiter/list.h"

#include <stdlib.h>

#define NO_MEMORY "no memory for a request to the store"

static struct front *front_of(const struct backend *store)
{
    return (struct front *)(uintptr_t)store;
}

struct stint_decision front_sum(const struct stint_decision *each, size_t n)
{
    size_t binding = 0;
    uint64_t retry_after_ns = each[0].retry_after_ns;
    for (size_t i = 1; i < n; i++) {
        bool is_worse = each[i].outcome > each[binding].outcome;
        bool is_alike = each[i].outcome == each[binding].outcome;
        if (is_worse || (is_alike && list_has_less(&each[i], &each[binding])))
            binding = i;
        retry_after_ns = max_u64(retry_after_ns, each[i].retry_after_ns);
    }
    struct stint_decision sum = each[binding];
    sum.binding = (uint8_t)binding;
    sum.retry_after_ns = sum.outcome == STINT_ALLOW ? 0 : retry_after_ns;
    sum.granted = sum.outcome == STINT_ALLOW ? sum.granted : 0;
    return sum;
}

/* ---- Memory of requests ---------------------------------------------------------------------- */

static struct front_ask *ask_new(struct front *front, size_t n_items)
{
    struct front_ask *ask = front->free_asks;
    if (ask != NULL)
        front->free_asks = ask->next;
    else
        ask = malloc(sizeof(*ask));
    if (ask == NULL)
        return NULL;
    memset(ask, 0, offsetof(struct front_ask, few_items));
    ask->front = front;
    ask->n_items = n_items;
    ask->items = ask->few_items;
    ask->each = ask->few_each;
    if (n_items <= FRONT_ITEMS_FEW)
        return ask;
    ask->many = malloc(n_items * (sizeof(*ask->items) + sizeof(*ask->each)));
    ask->items = ask->many;
    ask->each = ask->many != NULL ? (void *)(ask->items + n_items) : NULL;
    if (ask->many != NULL)
        return ask;
    ask->next = front->free_asks;
    front->free_asks = ask;
    return NULL;
}

static void ask_free(struct front_ask *ask)
{
    front_end_failover(ask);
    free(ask->many);
    ask->next = ask->front->free_asks;
    ask->front->free_asks = ask;
}

/* ---- Input of the breakers ------------------------------------------------------------------- */

static uint64_t unavailable_since(const struct front *front, uint64_t now_ns)
{
    uint64_t inner_ns = front->options.inner->ops->unavailable_since_ns(front->options.inner);
    uint64_t own_ns = breakers_failing_since(&front->breakers, now_ns);
    if (own_ns == 0 || inner_ns == 0)
        return own_ns + inner_ns;
    return min_u64(own_ns, inner_ns);
}

static uint64_t front_unavailable_since(const struct backend *store)
{
    return unavailable_since(front_of(store), 0);
}

static void show_state(struct front *front)
{
    static const uint8_t shown[] = {[BREAKER_CLOSED] = STORE_ASKED,
                                    [BREAKER_HALF_OPEN] = STORE_PROBED,
                                    [BREAKER_OPEN] = STORE_STOPPED};
    backend_metric_set(&front->metrics->state, shown[breakers_state(&front->breakers)]);
    backend_metric_set(&front->metrics->unavailable_since_ns, unavailable_since(front, 0));
}

/*
 * What an answer shows about the store's health. A lease shows nothing, nor does a refusal from
 * within ask(). Too many requests in progress, or a key that others change at the same time, is no
 * failure of the store, or a burst would shut it off.
 */
void front_settle(struct front *front, const struct breakers_pass *pass,
                  const struct front_outcome *told)
{
    bool has_failed = told->outcome == BACKEND_FAILED;
    if (has_failed)
        backend_metric_up(&front->metrics->diagnostics[told->fault]);
    if (told->outcome == BACKEND_REFUSED)
        backend_metric_up(&front->metrics->refused);
    if (!told->at_once)
        backend_metrics_took(front->metrics, sub_floor(told->now_ns, told->asked_ns));
    bool says_nothing =
        has_failed ? told->fault == BACKEND_ERROR_OVERLOAD || told->fault == BACKEND_ERROR_BUSY ||
                         told->fault == BACKEND_ERROR_STATE
                   : told->is_local || (told->at_once && told->outcome != BACKEND_DECIDED);
    if (says_nothing) {
        breakers_drop(&front->breakers, pass);
        return;
    }
    uint64_t failed = has_failed && told->failed == 0 ? pass->servers : told->failed;
    breakers_tell(&front->breakers, pass, failed, told->now_ns);
    show_state(front);
}

static void settle(const struct front_ask *ask, bool at_once, uint64_t now_ns)
{
    const struct backend_answer *answer = &ask->inner.answer;
    front_settle(ask->front, &ask->pass,
                 &(struct front_outcome){
                     .outcome = answer->outcome,
                     .fault = answer->fault,
                     .is_local = answer->is_local,
                     .at_once = at_once,
                     .failed = answer->failed,
                     .asked_ns = ask->asked_ns,
                     .now_ns = now_ns,
                 });
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void fail(struct backend_answer *answer, enum backend_error fault, const char *error)
{
    answer->outcome = BACKEND_FAILED;
    answer->fault = (uint8_t)fault;
    answer->error = error;
}

/* The caller gets its answer; from within, it may free its op and send new requests. */
static void hand_over(struct front_ask *ask, struct backend_op *op)
{
    struct stint_decision *each = op->answer.each;
    if (ask->inner.answer.outcome == BACKEND_DECIDED)
        memcpy(each, ask->each, ask->n_items * sizeof(*each));
    op->answer = ask->inner.answer;
    op->answer.each = each;
    op->at_work = NULL;
    ask_free(ask);
}

static void inner_answered(struct backend_op *inner, uint64_t now_ns)
{
    struct front_ask *ask = inner->arg;
    settle(ask, false, now_ns);
    if (front_go_on(ask, now_ns))
        return;
    front_learns(ask, &inner->answer);
    struct backend_op *op = ask->op;
    if (op == NULL) {
        ask_free(ask);
        return;
    }
    hand_over(ask, op);
    op->answered(op, now_ns);
}

bool front_send(struct front_ask *ask, const struct backend_request *asked)
{
    struct front *front = ask->front;
    struct backend_answer *answer = &ask->inner.answer;
    struct backend_request told = *asked;
    ask->inner =
        (struct backend_op){.answer = {.each = ask->each}, .answered = inner_answered, .arg = ask};
    ask->asked_ns = asked->now_ns;
    told.stopped = breakers_stopped(&front->breakers, asked->now_ns);
    front->options.inner->ops->ask(front->options.inner, &told, &ask->inner);
    bool is_stopped = answer->outcome == BACKEND_FAILED && answer->fault == BACKEND_ERROR_STOPPED;
    uint64_t servers = answer->servers != 0 ? answer->servers : 1;
    ask->pass = breakers_ask(&front->breakers, is_stopped ? 0 : servers, asked->now_ns);
    if (answer->outcome == BACKEND_WAITS)
        return true;
    if (is_stopped)
        answer->error = FRONT_STOPPED;
    settle(ask, true, asked->now_ns);
    return false;
}

static void notice_failover(struct front *front, uint64_t now_ns)
{
    if (front->options.failovers == NULL)
        return;
    uint64_t failovers = front->options.failovers(front->options.arg);
    if (failovers == front->failovers)
        return;
    front->failovers = failovers;
    front->failed_over_ns = max_u64(now_ns, 1);
}

/* True: it waits. */
static bool begin(struct front_ask *ask, const struct backend_request *asked)
{
    if (front_denies(ask, asked)) {
        if (asked->is_ahead)
            ask->inner.answer.outcome = BACKEND_AHEAD;
        else
            backend_metric_up(&ask->front->metrics->denials_hit);
        return false;
    }
    bool waits = front_is_in_failover(ask->front, asked) ? front_begin_failover(ask, asked)
                                                         : front_send(ask, asked);
    if (!waits)
        front_learns(ask, &ask->inner.answer);
    return waits;
}

static void front_take_ask(struct backend *store, const struct backend_request *asked,
                           struct backend_op *op)
{
    struct front *front = front_of(store);
    struct front_ask *ask = ask_new(front, asked->n_items);
    if (ask == NULL) {
        fail(&op->answer, BACKEND_ERROR_OTHER, NO_MEMORY);
        return;
    }
    ask->op = op;
    ask->verb = asked->verb;
    notice_failover(front, asked->now_ns);
    if (begin(ask, asked)) {
        op->answer.outcome = BACKEND_WAITS;
        op->at_work = ask;
    } else {
        hand_over(ask, op);
    }
    if (op->answer.outcome != BACKEND_AHEAD)
        backend_metric_up(&front->metrics->asks);
}

static void front_forget(struct backend *store, struct backend_op *op)
{
    (void)store;
    struct front_ask *ask = op->at_work;
    ask->op = NULL;
}

/* ---- Other operations ------------------------------------------------------------------------ */

static int front_accepts(const struct backend *store, const struct stint_quota *quota,
                         struct stint_error *error)
{
    const struct backend *inner = front_of(store)->options.inner;
    return inner->ops->accepts(inner, quota, error);
}

static bool front_refuses_ids(const struct backend *store)
{
    const struct backend *inner = front_of(store)->options.inner;
    return inner->ops->refuses_ids != NULL && inner->ops->refuses_ids(inner);
}

static void front_drain(struct backend *store, uint64_t deadline_ns, void (*done)(void *arg),
                        void *arg)
{
    struct backend *inner = front_of(store)->options.inner;
    inner->ops->drain(inner, deadline_ns, done, arg);
}

static void front_free(struct backend *store)
{
    struct front *front = front_of(store);
    front->options.inner->ops->free(front->options.inner);
    while (front->free_asks != NULL) {
        struct front_ask *ask = front->free_asks;
        front->free_asks = ask->next;
        free(ask);
    }
    denials_free(front->denials);
    free(front);
}

struct backend *front_new(const struct front_options *options)
{
    static const struct backend_ops ops = {
        .ask = front_take_ask,
        .forget = front_forget,
        .accepts = front_accepts,
        .unavailable_since_ns = front_unavailable_since,
        .drain = front_drain,
        .free = front_free,
        .refuses_ids = front_refuses_ids,
    };
    struct front *front = calloc(1, sizeof(*front));
    if (front == NULL)
        return NULL;
    front->store.ops = &ops;
    front->options = *options;
    if (front->options.deny_cache_max_ns == 0)
        front->options.deny_cache_max_ns = NS_PER_S;
    front->metrics = options->metrics != NULL ? options->metrics : &front->own_metrics;
    breakers_init(&front->breakers, &options->breaker);
    if (options->failovers != NULL)
        front->failovers = options->failovers(options->arg);
    if (options->denials > 0)
        front->denials = denials_new(options->denials, options->secret);
    if (options->denials > 0 && front->denials == NULL) {
        free(front);
        return NULL;
    }
    return &front->store;
}

/*
 * An open breaker learns only from requests that its server is back. Once its time is over and no
 * requests come, the store's own state is shown; else a server that gets no requests because it is
 * not ready would never be.
 */
void front_tick(struct backend *store, uint64_t now_ns)
{
    struct front *front = front_of(store);
    notice_failover(front, now_ns);
    breakers_rest(&front->breakers, now_ns);
    show_state(front);
    backend_metric_set(&front->metrics->unavailable_since_ns, unavailable_since(front, now_ns));
}
