/* SPDX-License-Identifier: MIT */
/* The guard as a store: what passes it, what comes back, and what the breakers learn from it. */
#include "backend/front/guard_parts.h"

#include "base/wide_int.h"
#include "limiter/list.h"

#include <stdlib.h>

#define NO_MEMORY "no memory to ask the store"

static struct guard *guard_of(const struct shared_store *store)
{
    return (struct guard *)(uintptr_t)store;
}

struct stint_decision guard_sum(const struct stint_decision *each, size_t n)
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

/* ---- Memory of asks -------------------------------------------------------------------------- */

static struct guard_ask *ask_new(struct guard *guard, size_t n_items)
{
    struct guard_ask *ask = guard->free_asks;
    if (ask != NULL)
        guard->free_asks = ask->next;
    else
        ask = malloc(sizeof(*ask));
    if (ask == NULL)
        return NULL;
    memset(ask, 0, offsetof(struct guard_ask, few_items));
    ask->guard = guard;
    ask->n_items = n_items;
    ask->items = ask->few_items;
    ask->each = ask->few_each;
    if (n_items <= GUARD_ITEMS_FEW)
        return ask;
    ask->many = malloc(n_items * (sizeof(*ask->items) + sizeof(*ask->each)));
    ask->items = ask->many;
    ask->each = ask->many != NULL ? (void *)(ask->items + n_items) : NULL;
    if (ask->many != NULL)
        return ask;
    ask->next = guard->free_asks;
    guard->free_asks = ask;
    return NULL;
}

static void ask_free(struct guard_ask *ask)
{
    guard_end_cautious(ask);
    free(ask->many);
    ask->next = ask->guard->free_asks;
    ask->guard->free_asks = ask;
}

/* ---- What the breakers learn ----------------------------------------------------------------- */

static uint64_t away_since(const struct guard *guard, uint64_t now_ns)
{
    uint64_t inner_ns = guard->options.inner->ops->away_since_ns(guard->options.inner);
    uint64_t own_ns = breakers_failing_since(&guard->breakers, now_ns);
    if (own_ns == 0 || inner_ns == 0)
        return own_ns + inner_ns;
    return min_u64(own_ns, inner_ns);
}

static uint64_t guard_away_since(const struct shared_store *store)
{
    return away_since(guard_of(store), 0);
}

static void show_state(struct guard *guard)
{
    static const uint8_t shown[] = {[BREAKER_CLOSED] = STORE_ASKED,
                                    [BREAKER_HALF_OPEN] = STORE_PROBED,
                                    [BREAKER_OPEN] = STORE_STOPPED};
    store_figure_set(&guard->figures->state, shown[breakers_state(&guard->breakers)]);
    store_figure_set(&guard->figures->away_since_ns, away_since(guard, 0));
}

/*
 * What an answer says about the store being there. A lease is no sign of it, nor is a refusal from
 * within ask(); and to have too much on its way, or a key that others change at the same time, is
 * no failure of the store, or a burst would shut it off.
 */
void guard_settle(struct guard *guard, const struct breakers_pass *pass,
                  const struct guard_outcome *told)
{
    bool has_failed = told->outcome == SHARED_FAILED;
    if (has_failed)
        store_figure_up(&guard->figures->faults[told->fault]);
    if (told->outcome == SHARED_REFUSED)
        store_figure_up(&guard->figures->refused);
    if (!told->at_once)
        store_figures_took(guard->figures, sub_floor(told->now_ns, told->asked_ns));
    bool says_nothing =
        has_failed ? told->fault == SHARED_FAULT_OVERLOAD || told->fault == SHARED_FAULT_BUSY ||
                         told->fault == SHARED_FAULT_STATE
                   : told->is_local || (told->at_once && told->outcome != SHARED_DECIDED);
    if (says_nothing) {
        breakers_drop(&guard->breakers, pass);
        return;
    }
    uint64_t failed = has_failed && told->failed == 0 ? pass->servers : told->failed;
    breakers_tell(&guard->breakers, pass, failed, told->now_ns);
    show_state(guard);
}

static void settle(const struct guard_ask *ask, bool at_once, uint64_t now_ns)
{
    const struct shared_answer *answer = &ask->inner.answer;
    guard_settle(ask->guard, &ask->pass,
                 &(struct guard_outcome){
                     .outcome = answer->outcome,
                     .fault = answer->fault,
                     .is_local = answer->is_local,
                     .at_once = at_once,
                     .failed = answer->failed,
                     .asked_ns = ask->asked_ns,
                     .now_ns = now_ns,
                 });
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static void fail(struct shared_answer *answer, enum shared_fault fault, const char *error)
{
    answer->outcome = SHARED_FAILED;
    answer->fault = (uint8_t)fault;
    answer->error = error;
}

/* The asker gets his answer; his op may be gone, and anything be asked anew, once he has it. */
static void hand_over(struct guard_ask *ask, struct shared_op *op)
{
    struct stint_decision *each = op->answer.each;
    if (ask->inner.answer.outcome == SHARED_DECIDED)
        memcpy(each, ask->each, ask->n_items * sizeof(*each));
    op->answer = ask->inner.answer;
    op->answer.each = each;
    op->at_work = NULL;
    ask_free(ask);
}

static void inner_answered(struct shared_op *inner, uint64_t now_ns)
{
    struct guard_ask *ask = inner->arg;
    settle(ask, false, now_ns);
    if (guard_go_on(ask, now_ns))
        return;
    guard_learns(ask, &inner->answer);
    struct shared_op *op = ask->op;
    if (op == NULL) {
        ask_free(ask);
        return;
    }
    hand_over(ask, op);
    op->answered(op, now_ns);
}

bool guard_send(struct guard_ask *ask, const struct shared_ask *asked)
{
    struct guard *guard = ask->guard;
    struct shared_answer *answer = &ask->inner.answer;
    struct shared_ask told = *asked;
    ask->inner =
        (struct shared_op){.answer = {.each = ask->each}, .answered = inner_answered, .arg = ask};
    ask->asked_ns = asked->now_ns;
    told.stopped = breakers_stopped(&guard->breakers, asked->now_ns);
    guard->options.inner->ops->ask(guard->options.inner, &told, &ask->inner);
    bool is_stopped = answer->outcome == SHARED_FAILED && answer->fault == SHARED_FAULT_STOPPED;
    uint64_t servers = answer->servers != 0 ? answer->servers : 1;
    ask->pass = breakers_ask(&guard->breakers, is_stopped ? 0 : servers, asked->now_ns);
    if (answer->outcome == SHARED_WAITS)
        return true;
    if (is_stopped)
        answer->error = GUARD_STOPPED;
    settle(ask, true, asked->now_ns);
    return false;
}

static void notice_failover(struct guard *guard, uint64_t now_ns)
{
    if (guard->options.failovers == NULL)
        return;
    uint64_t failovers = guard->options.failovers(guard->options.arg);
    if (failovers == guard->failovers)
        return;
    guard->failovers = failovers;
    guard->failed_over_ns = max_u64(now_ns, 1);
}

/* True: it waits. */
static bool begin(struct guard_ask *ask, const struct shared_ask *asked)
{
    if (guard_denies(ask, asked)) {
        if (asked->is_ahead)
            ask->inner.answer.outcome = SHARED_AHEAD;
        else
            store_figure_up(&ask->guard->figures->denials_hit);
        return false;
    }
    bool waits = guard_is_cautious(ask->guard, asked) ? guard_begin_cautious(ask, asked)
                                                      : guard_send(ask, asked);
    if (!waits)
        guard_learns(ask, &ask->inner.answer);
    return waits;
}

static void guard_take_ask(struct shared_store *store, const struct shared_ask *asked,
                           struct shared_op *op)
{
    struct guard *guard = guard_of(store);
    struct guard_ask *ask = ask_new(guard, asked->n_items);
    if (ask == NULL) {
        fail(&op->answer, SHARED_FAULT_OTHER, NO_MEMORY);
        return;
    }
    ask->op = op;
    ask->verb = asked->verb;
    notice_failover(guard, asked->now_ns);
    if (begin(ask, asked)) {
        op->answer.outcome = SHARED_WAITS;
        op->at_work = ask;
    } else {
        hand_over(ask, op);
    }
    if (op->answer.outcome != SHARED_AHEAD)
        store_figure_up(&guard->figures->asks);
}

static void guard_forget(struct shared_store *store, struct shared_op *op)
{
    (void)store;
    struct guard_ask *ask = op->at_work;
    ask->op = NULL;
}

/* ---- The rest of a store --------------------------------------------------------------------- */

static int guard_accepts(const struct shared_store *store, const struct stint_quota *quota,
                         struct stint_error *error)
{
    const struct shared_store *inner = guard_of(store)->options.inner;
    return inner->ops->accepts(inner, quota, error);
}

static bool guard_refuses_ids(const struct shared_store *store)
{
    const struct shared_store *inner = guard_of(store)->options.inner;
    return inner->ops->refuses_ids != NULL && inner->ops->refuses_ids(inner);
}

static void guard_drain(struct shared_store *store, uint64_t deadline_ns, void (*done)(void *arg),
                        void *arg)
{
    struct shared_store *inner = guard_of(store)->options.inner;
    inner->ops->drain(inner, deadline_ns, done, arg);
}

static void guard_free(struct shared_store *store)
{
    struct guard *guard = guard_of(store);
    guard->options.inner->ops->free(guard->options.inner);
    while (guard->free_asks != NULL) {
        struct guard_ask *ask = guard->free_asks;
        guard->free_asks = ask->next;
        free(ask);
    }
    denials_free(guard->denials);
    free(guard);
}

struct shared_store *guard_new(const struct guard_options *options)
{
    static const struct shared_store_ops ops = {
        .ask = guard_take_ask,
        .forget = guard_forget,
        .accepts = guard_accepts,
        .away_since_ns = guard_away_since,
        .drain = guard_drain,
        .free = guard_free,
        .refuses_ids = guard_refuses_ids,
    };
    struct guard *guard = calloc(1, sizeof(*guard));
    if (guard == NULL)
        return NULL;
    guard->store.ops = &ops;
    guard->options = *options;
    if (guard->options.deny_cache_max_ns == 0)
        guard->options.deny_cache_max_ns = NS_PER_S;
    guard->figures = options->figures != NULL ? options->figures : &guard->own_figures;
    breakers_init(&guard->breakers, &options->breaker);
    if (options->failovers != NULL)
        guard->failovers = options->failovers(options->arg);
    if (options->denials > 0)
        guard->denials = denials_new(options->denials, options->secret);
    if (options->denials > 0 && guard->denials == NULL) {
        free(guard);
        return NULL;
    }
    return &guard->store;
}

/*
 * An open breaker learns that its server is there again only from asks. Once its time is over and
 * nobody asks, what is shown is what the store itself knows, or a server that is not asked because
 * it is not ready would never be.
 */
void guard_tick(struct shared_store *store, uint64_t now_ns)
{
    struct guard *guard = guard_of(store);
    notice_failover(guard, now_ns);
    breakers_rest(&guard->breakers, now_ns);
    show_state(guard);
    store_figure_set(&guard->figures->away_since_ns, away_since(guard, now_ns));
}
