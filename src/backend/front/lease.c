/* SPDX-License-Identifier: MIT */
/* What is decided here and what goes on to the store; docs/decisions/0039-leases.md says why. */
#include "backend/front/lease.h"

#include "backend/front/lease_parts.h"
#include "backend/script/script.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <stdlib.h>

#define KEYS_DEFAULT 4096
#define WAITING_DEFAULT 4096
#define DENIED_MAX_DEFAULT NS_PER_S
#define TICK_NS (5 * NS_PER_MS)
#define WOKEN_MAX 1024    /* keys looked at in one wake() */
#define IDLE_PARTS 4      /* part of the term: unused for this long, the rest goes back, ... */
#define IDLE_PARTS_LOW 16 /* ... and this, where little is left for all */
#define LOW_PARTS 8       /* part of the limit that counts as little */
#define FORGOTTEN_NS NS_PER_S

static struct lease *of(struct backend *store)
{
    return (struct lease *)store;
}

/* ---- Waiting requests ------------------------------------------------------------------------ */

struct lease_waiter *lease_new_waiter(struct lease *lease, enum lease_waiting kind,
                                      struct backend_op *op)
{
    struct lease_waiter *waiter = lease->free_waiters;
    if (waiter == NULL) {
        op->answer.outcome = BACKEND_FAILED;
        op->answer.fault = BACKEND_ERROR_OVERLOAD;
        op->answer.error = "too many requests wait for leases";
        return NULL;
    }
    lease->free_waiters = waiter->next;
    *waiter = (struct lease_waiter){.home = lease, .kind = kind, .op = op, .turn = ++lease->turns};
    op->answer.outcome = BACKEND_WAITS;
    op->at_work = waiter;
    return waiter;
}

static bool is_waiter(const struct lease *lease, const void *at_work)
{
    uintptr_t begin = (uintptr_t)lease->waiters, place = (uintptr_t)at_work;
    return place - begin < lease->options.waiting * sizeof(struct lease_waiter);
}

static void enqueue(struct lease_key *key, struct lease_waiter *waiter)
{
    waiter->key = key;
    waiter->previous = key->last;
    *(key->last != NULL ? &key->last->next : &key->first) = waiter;
    key->last = waiter;
    key->waiting += waiter->cost;
}

void lease_free_waiter(struct lease_waiter *waiter)
{
    struct lease *lease = waiter->home;
    struct lease_key *key = waiter->key;
    if (waiter->kind == LEASE_WAITS) {
        *(waiter->previous != NULL ? &waiter->previous->next : &key->first) = waiter->next;
        *(waiter->next != NULL ? &waiter->next->previous : &key->last) = waiter->previous;
        key->waiting -= waiter->cost;
    }
    if (waiter->op != NULL)
        waiter->op->at_work = NULL;
    waiter->next = lease->free_waiters;
    lease->free_waiters = waiter;
}

static void fill(struct backend_op *op, const struct backend_answer *answer)
{
    struct stint_decision *each = op->answer.each;
    op->answer = *answer;
    op->answer.each = each;
    if (answer->outcome == BACKEND_DECIDED)
        each[0] = answer->sum;
}

void lease_deliver(struct lease_waiter *waiter, const struct backend_answer *answer,
                   uint64_t now_ns)
{
    struct backend_op *op = waiter->op;
    bool is_new = waiter->is_new;
    lease_free_waiter(waiter);
    fill(op, answer);
    if (!is_new)
        op->answered(op, now_ns);
}

/* ---- Deciding here --------------------------------------------------------------------------- */

/* Takes units from held leases, the oldest first; returns the time of the grant. */
static uint64_t hand_out(struct lease_key *key, uint32_t units)
{
    uint64_t at_ns = 0;
    key->used += units;
    lease_count(key->home, -(int64_t)units);
    for (size_t i = 0; i < key->n_held && units > 0; i++) {
        struct lease_held *held = &key->held[i];
        uint32_t taken = units < held->lease.left ? units : held->lease.left;
        if (taken == 0)
            continue;
        held->lease.left -= taken;
        units -= taken;
        /* Of several leases: the earlier one, in whole microseconds, which names none. */
        at_ns = at_ns == 0 && units == 0 ? held->at_ns
                : at_ns == 0             ? held->at_ns - held->at_ns % NS_PER_US
                                         : at_ns;
    }
    return at_ns;
}

static struct stint_decision decision_of(const struct lease_key *key, uint32_t left,
                                         uint64_t now_ns)
{
    uint64_t remaining = min_u64((uint64_t)key->remaining + left, key->limit);
    return (struct stint_decision){
        .stored = 1,
        .limit = key->limit,
        .remaining = (uint32_t)remaining,
        .reset_after_ns = sub_floor(key->reset_ns, now_ns),
    };
}

static bool is_denied(const struct lease_key *key, uint8_t verb, uint32_t cost, uint64_t now_ns)
{
    uint32_t least = verb == BACKEND_TAKE_UPTO ? 1 : cost;
    return key->denied_cost > 0 && least >= key->denied_cost && cost <= key->limit &&
           now_ns < key->denied_until_ns;
}

/* A peek of more than is held here goes to the store, and a cost of 0 only returns numbers. */
bool lease_serve(struct lease_key *key, uint8_t verb, uint32_t cost, uint64_t now_ns,
                 struct backend_answer *answer)
{
    uint32_t left = lease_left(key);
    bool fits = left > 0 && cost <= left;
    if (!fits && cost > 0 && is_denied(key, verb, cost, now_ns)) {
        answer->sum = decision_of(key, left, now_ns);
        answer->sum.outcome = STINT_DENY;
        answer->sum.retry_after_ns = key->retry_ns - now_ns;
    } else if (fits) {
        bool is_peek = verb == BACKEND_PEEK;
        answer->at_ns = key->held[0].at_ns;
        if (!is_peek && cost > 0)
            answer->at_ns = hand_out(key, cost);
        answer->sum = decision_of(key, left - cost, now_ns);
        answer->sum.granted = cost;
    } else {
        return false;
    }
    answer->outcome = BACKEND_DECIDED;
    answer->is_local = true;
    return true;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void pass_on(struct lease *lease, const struct backend_request *ask, struct backend_op *op)
{
    lease->inner->ops->ask(lease->inner, ask, op);
}

/* The store does not count what is held here as free. */
static void on_peeked(struct backend_op *inner, uint64_t now_ns)
{
    struct lease_waiter *waiter = inner->arg;
    struct backend_answer answer = inner->answer;
    struct lease_key *key = waiter->key;
    key->pins--;
    lease_drop_ended(key, now_ns);
    uint32_t left = lease_left(key);
    if (answer.outcome == BACKEND_DECIDED && left > 0) {
        uint64_t remaining = min_u64((uint64_t)answer.sum.remaining + left, answer.sum.limit);
        answer.sum.remaining = (uint32_t)remaining;
        if (answer.sum.outcome == STINT_DENY && waiter->cost <= remaining) {
            answer.sum.outcome = STINT_ALLOW;
            answer.sum.granted = waiter->cost;
            answer.sum.retry_after_ns = 0;
        }
    }
    lease_deliver(waiter, &answer, now_ns);
}

static void ask_peek(struct lease_key *key, const struct backend_request *ask,
                     struct backend_op *op)
{
    struct lease *lease = key->home;
    struct lease_waiter *waiter = lease_new_waiter(lease, LEASE_PEEKS, op);
    if (waiter == NULL)
        return;
    waiter->key = key;
    waiter->cost = ask->items[0].cost;
    waiter->inner = (struct backend_op){
        .answer = {.each = &waiter->each}, .answered = on_peeked, .arg = waiter};
    key->pins++;
    pass_on(lease, ask, &waiter->inner);
    if (waiter->inner.answer.outcome == BACKEND_WAITS)
        return;
    waiter->is_new = true;
    on_peeked(&waiter->inner, ask->now_ns);
}

static void wait_for_lease(struct lease_key *key, const struct backend_request *ask,
                           struct backend_op *op, uint64_t now_ns)
{
    struct lease *lease = key->home;
    struct lease_waiter *waiter = lease_new_waiter(lease, LEASE_WAITS, op);
    if (waiter == NULL)
        return;
    waiter->verb = ask->verb;
    waiter->cost = ask->items[0].cost;
    waiter->deadline_ns = ask->deadline_ns;
    enqueue(key, waiter);
    waiter->is_new = true;
    lease_pump(key, now_ns);
    if (op->answer.outcome == BACKEND_WAITS && op->at_work == waiter)
        waiter->is_new = false;
}

/* Units of this worker's lease, not used after all: no other node ever counted them as used. */
static bool refund_here(struct lease_key *key, const struct backend_request *ask, uint64_t now_ns,
                        struct backend_answer *answer)
{
    uint32_t cost = ask->items[0].cost;
    if (ask->at_ns == STINT_NEVER_NS || ask->at_ns % NS_PER_US == 0)
        return false;
    for (size_t i = 0; i < key->n_held; i++) {
        struct lease_held *held = &key->held[i];
        if (held->at_ns != ask->at_ns || held->lease.units - held->lease.left < cost)
            continue;
        held->lease.left += cost;
        lease_count(key->home, cost);
        *answer = (struct backend_answer){
            .outcome = BACKEND_DECIDED,
            .is_local = true,
            .at_ns = ask->at_ns,
            .sum = decision_of(key, lease_left(key), now_ns),
        };
        answer->sum.granted = cost;
        return true;
    }
    return false;
}

/* What is held here is reset with the state. Other nodes may still use their leases, which stay. */
static void reset(struct lease_key *key, const struct backend_request *ask, struct backend_op *op,
                  uint64_t now_ns)
{
    struct backend_lease ended[LEASE_HELD_MAX];
    struct backend_request asked = *ask;
    asked.ended = ended;
    asked.n_ended = lease_end(key, true, now_ns, ended);
    key->remaining = 0;
    pass_on(key->home, &asked, op);
}

static bool takes(const struct backend_request *ask)
{
    return ask->verb == BACKEND_TAKE || ask->verb == BACKEND_TAKE_UPTO;
}

/* True: answered here and now. */
static bool answer_here(struct lease_key *key, const struct backend_request *ask, uint64_t now_ns,
                        struct backend_answer *answer)
{
    uint32_t cost = ask->items[0].cost;
    if (ask->verb == BACKEND_REFUND)
        return refund_here(key, ask, now_ns, answer);
    if (ask->verb == BACKEND_RESET)
        return false;
    if (ask->verb == BACKEND_CHARGE)
        return cost > 0 && lease_left(key) >= cost &&
               lease_serve(key, BACKEND_TAKE, cost, now_ns, answer);
    /* First come, first served, except for requests that take nothing the first one waits for. */
    if (key->first != NULL && takes(ask) && cost > 0 && lease_left(key) < key->waiting + cost)
        return false;
    return lease_serve(key, ask->verb, cost, now_ns, answer);
}

/*
 * Whether answer_here() would answer, or probably will by its turn, as a lease in progress is large
 * enough for all waiting requests; changes nothing.
 */
static bool is_ahead_of_time(const struct lease_key *key, const struct backend_request *ask,
                             uint64_t now_ns)
{
    uint32_t cost = ask->items[0].cost;
    if (!ask->is_ahead || ask->verb == BACKEND_RESET)
        return false;
    bool is_coming = key->asking == BACKEND_LEASE && key->coming >= key->waiting + cost;
    return lease_left(key) >= cost || (is_coming && takes(ask)) ||
           is_denied(key, ask->verb, cost, now_ns) || ask->verb == BACKEND_REFUND;
}

void lease_ask_item(struct lease *lease, const struct backend_request *ask, struct backend_op *op)
{
    uint64_t now_ns = lease_now(lease);
    bool goes_on = ask->is_virtual || ask->id != NULL || ask->verb > BACKEND_RESET;
    struct lease_key *key = NULL;
    struct backend_answer answer = {.outcome = BACKEND_WAITS};
    lease->turns++;
    if (!goes_on)
        key = takes(ask) && ask->items[0].cost > 0 ? lease_key_of(lease, &ask->items[0])
                                                   : lease_find(lease, &ask->items[0]);
    if (key == NULL) {
        pass_on(lease, ask, op);
        return;
    }
    lease_touch(key, now_ns);
    lease_drop_ended(key, now_ns);
    if (ask->verb > BACKEND_PEEK)
        key->denied_cost = 0;
    if (is_ahead_of_time(key, ask, now_ns)) {
        op->answer.outcome = BACKEND_AHEAD;
        return;
    }
    if (answer_here(key, ask, now_ns, &answer)) {
        fill(op, &answer);
        if (takes(ask))
            lease_prefetch(key, ask->deadline_ns, now_ns);
    } else if (ask->verb == BACKEND_RESET) {
        reset(key, ask, op, now_ns);
    } else if (ask->verb == BACKEND_PEEK && lease_left(key) > 0) {
        ask_peek(key, ask, op);
    } else if (takes(ask) && ask->items[0].cost > 0 && now_ns >= key->direct_until_ns &&
               !lease->is_draining) {
        wait_for_lease(key, ask, op, now_ns);
    } else {
        pass_on(lease, ask, op);
    }
}

static void op_ask(struct backend *store, const struct backend_request *ask, struct backend_op *op)
{
    struct lease *lease = of(store);
    bool any_is_leased = false;
    for (size_t i = 0; i < ask->n_items && !any_is_leased; i++)
        any_is_leased = script_is_leased(&ask->items[i]);
    if (!any_is_leased)
        pass_on(lease, ask, op);
    else if (ask->n_items == 1)
        lease_ask_item(lease, ask, op);
    else
        lease_ask_list(lease, ask, op);
}

static void op_forget(struct backend *store, struct backend_op *op)
{
    struct lease *lease = of(store);
    struct lease_waiter *waiter = op->at_work;
    lease->turns++;
    if (!is_waiter(lease, waiter)) {
        lease->inner->ops->forget(lease->inner, op);
        return;
    }
    if (waiter->kind == LEASE_LISTS) {
        lease_forget_list(waiter);
        return;
    }
    if (waiter->kind == LEASE_PEEKS) {
        lease->inner->ops->forget(lease->inner, &waiter->inner);
        waiter->key->pins--;
    }
    lease_free_waiter(waiter);
}

/* ---- The other operations -------------------------------------------------------------------- */

static int op_accepts(const struct backend *store, const struct stint_quota *quota,
                      struct stint_error *error)
{
    const struct backend *inner = ((const struct lease *)store)->inner;
    return inner->ops->accepts(inner, quota, error);
}

static uint64_t op_unavailable_since_ns(const struct backend *store)
{
    const struct backend *inner = ((const struct lease *)store)->inner;
    return inner->ops->unavailable_since_ns(inner);
}

/* The backend behind waits for requests in progress; units that they then bring go back as well. */
static void op_drain(struct backend *store, uint64_t deadline_ns, void (*done)(void *arg),
                     void *arg)
{
    struct lease *lease = of(store);
    uint64_t now_ns = lease_now(lease);
    lease->is_draining = true;
    for (struct lease_key *key = lease->oldest; key != NULL; key = key->newer)
        lease_give_back(key, now_ns);
    lease->inner->ops->drain(lease->inner, deadline_ns, done, arg);
}

static void op_free(struct backend *store)
{
    struct lease *lease = of(store);
    lease->is_ending = true;
    lease->inner->ops->free(lease->inner);
    while (lease->oldest != NULL) {
        lease->oldest->n_held = 0;
        lease_remove(lease->oldest);
    }
    while (lease->free_keys != NULL) {
        struct lease_key *key = lease->free_keys;
        lease->free_keys = key->next;
        free(key);
    }
    free(lease->buckets);
    free(lease->waiters);
    free(lease);
}

static const struct backend_ops ops = {
    .ask = op_ask,
    .forget = op_forget,
    .accepts = op_accepts,
    .unavailable_since_ns = op_unavailable_since_ns,
    .drain = op_drain,
    .free = op_free,
};

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t lease_deadline(const struct backend *store)
{
    const struct lease *lease = (const struct lease *)store;
    return lease->n_keys == 0 ? STINT_NEVER_NS : lease->woken_ns + TICK_NS;
}

static uint64_t idle_ns(const struct lease_key *key)
{
    bool is_low = key->remaining < key->limit / LOW_PARTS;
    return key->rule.store.lease_term_ns / (is_low ? IDLE_PARTS_LOW : IDLE_PARTS);
}

static void look_after(struct lease_key *key, uint64_t now_ns)
{
    uint64_t unused_ns = sub_floor(now_ns, key->asked_ns);
    if (lease_is_busy(key))
        return;
    lease_drop_ended(key, now_ns);
    if (lease_left(key) > 0) {
        if (unused_ns >= idle_ns(key))
            lease_give_back(key, now_ns);
    } else if (key->n_held == 0 && unused_ns >= FORGOTTEN_NS) {
        lease_remove(key);
    }
}

void lease_wake(struct backend *store, uint64_t now_ns)
{
    struct lease *lease = of(store);
    struct lease_key *key = lease->oldest, *newer;
    lease->woken_ns = now_ns;
    for (unsigned i = 0; i < WOKEN_MAX && key != NULL; i++, key = newer) {
        newer = key->newer;
        look_after(key, now_ns);
    }
}

/* ---- Start and end --------------------------------------------------------------------------- */

struct backend *lease_new(const struct lease_options *options)
{
    struct lease *lease = calloc(1, sizeof(*lease));
    if (lease == NULL)
        return NULL;
    lease->store.ops = &ops;
    lease->options = *options;
    lease->inner = options->inner;
    if (options->keys == 0)
        lease->options.keys = KEYS_DEFAULT;
    if (options->waiting == 0)
        lease->options.waiting = WAITING_DEFAULT;
    if (options->denied_max_ns == 0)
        lease->options.denied_max_ns = DENIED_MAX_DEFAULT;
    lease->salt = options->secret[0] ^ options->secret[1];
    lease->n_buckets = lease->options.keys;
    lease->buckets = calloc(lease->n_buckets, sizeof(struct lease_key *));
    lease->waiters = calloc(lease->options.waiting, sizeof(struct lease_waiter));
    if (lease->buckets == NULL || lease->waiters == NULL) {
        free(lease->buckets);
        free(lease->waiters);
        free(lease);
        return NULL;
    }
    for (size_t i = lease->options.waiting; i-- > 0;) {
        lease->waiters[i].next = lease->free_waiters;
        lease->free_waiters = &lease->waiters[i];
    }
    return &lease->store;
}
