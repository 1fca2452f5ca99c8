/* SPDX-License-Identifier: MIT */
/*
 * What is decided here and what goes on to the store, how many units are requested, and when unused
 * units go back; docs/decisions/0039-leases.md says why.
 */
#include "backend/front/lease.h"

#include "backend/front/lease_waiter.h"
#include "backend/script/script.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>

#define KEYS_DEFAULT 4096
#define WAITING_DEFAULT 4096
#define TICK_NS (5 * NS_PER_MS)
#define LOOKED_AT_MAX 8   /* of the oldest keys, to find a removable one */
#define WOKEN_MAX 1024    /* keys looked at in one wake() */
#define IDLE_PARTS 4      /* part of the term: unused for this long, the rest goes back, ... */
#define IDLE_PARTS_LOW 16 /* ... and this, where little is left for all */
#define LOW_PARTS 8       /* part of the limit that counts as little */
#define FORGOTTEN_NS NS_PER_S
#define DIRECT_PARTS 4 /* part of the term: pause after no lease was available, and ... */
#define QUIET_PARTS 8  /* ... pause of prefetches after the store had no free units */
#define GROWTH 4       /* from one lease to the next */
#define RETURN_NS NS_PER_S

static uint64_t term_of(const struct lease_key *key)
{
    return key->store.lease_term_ns;
}

/* ---- What is held ---------------------------------------------------------------------------- */

static size_t end(struct lease_key *key, bool all, uint64_t now_ns,
                  struct backend_lease ended[LEASE_HELD_MAX])
{
    size_t n_ended = 0;
    uint64_t soon_ns = now_ns + term_of(key) / LEASE_SOON_PARTS;
    for (size_t i = 0; i < key->n_held;) {
        const struct lease_held *held = &key->held[i];
        if (held->lease.ends_ns != 0 &&
            (all || held->lease.left == 0 || held->until_ns <= soon_ns)) {
            ended[n_ended++] = held->lease;
            lease_drop(key, i);
        } else {
            i++;
        }
    }
    return n_ended;
}

static void hold(struct lease_key *key, const struct backend_answer *answer, uint64_t until_ns)
{
    struct lease *lease = key->home;
    uint32_t units = answer->sum.granted;
    lease_count(lease, units);
    struct lease_held *newest = &key->held[LEASE_HELD_MAX - 1];
    if (key->n_held == LEASE_HELD_MAX && newest->lease.ends_ns == 0 && answer->lease_ends_ns == 0) {
        /* Leases charged at once are merged; refunds name the earlier time. */
        newest->lease.units += units;
        newest->lease.left += units;
        newest->until_ns = until_ns;
        return;
    }
    if (key->n_held == LEASE_HELD_MAX) /* the rule has changed; it stays charged */
        lease_drop(key, 0);
    lease->salt = lease->salt * UINT64_C(6364136223846793005) + 1442695040888963407;
    key->held[key->n_held++] = (struct lease_held){
        .lease = {.ends_ns = answer->lease_ends_ns, .units = units, .left = units},
        .until_ns = until_ns,
        .at_ns = answer->at_ns - answer->at_ns % NS_PER_US + 1 + (lease->salt >> 32) % 999,
    };
}

/* ---- Requests for leases --------------------------------------------------------------------- */

static void lease_answered(struct backend_op *op, uint64_t now_ns);

/* Leaves the outcome in key->op; WAITS: lease_answered() will be called. */
static void send(struct lease_key *key, uint32_t cost, const struct backend_request *about,
                 uint64_t now_ns)
{
    struct backend_request asked = *about;
    struct backend_item item = *key->item;
    item.cost = cost;
    asked.items = &item;
    asked.n_items = 1;
    asked.now_ns = now_ns;
    key->asking = asked.verb;
    key->sent_ns = now_ns;
    key->is_outdated = false;
    key->op =
        (struct backend_op){.answer = {.each = &key->each}, .answered = lease_answered, .arg = key};
    key->home->inner->ops->ask(key->home->inner, &asked, &key->op);
}

/* The recent use per term, but no more than GROWTH times the last lease. */
static void adapt(struct lease_key *key, uint64_t waiting, uint64_t now_ns)
{
    uint64_t elapsed_ns = max_u64(sub_floor(now_ns, key->leased_ns), NS_PER_US),
             most = key->store.lease_units;
    uint64_t used = key->used + waiting, demand = used;
    if (key->leased_ns != 0 && elapsed_ns < term_of(key))
        demand = min_u64(mul_div(min_u64(used, most), term_of(key), elapsed_ns),
                         (uint64_t)GROWTH * key->units);
    key->units = (uint32_t)min_u64(max_u64(max_u64(demand, waiting), 1), max_u64(most, 1));
    key->used = 0;
    key->leased_ns = now_ns;
}

/* The least that serves the first waiting request. */
static uint32_t wanted(const struct lease_key *key)
{
    return key->first != NULL ? key->first->cost : 1;
}

/* A request that failed at once was not sent: what it was to give back is still held. */
static void keep(struct lease_key *key, const struct lease_held held[], size_t n_held)
{
    uint32_t left = lease_left(key);
    memcpy(key->held, held, n_held * sizeof(key->held[0]));
    key->n_held = n_held;
    lease_count(key->home, (int64_t)lease_left(key) - left);
}

/* deadline_ns: of a request that no caller waits for. */
static void ask_lease(struct lease_key *key, uint64_t deadline_ns, uint64_t now_ns)
{
    struct backend_lease ended[LEASE_HELD_MAX];
    struct lease_held held[LEASE_HELD_MAX];
    size_t n_held = key->n_held;
    memcpy(held, key->held, sizeof(held));
    bool is_fast = key->store.lease == RULE_LEASE_FAST;
    uint32_t least = wanted(key);
    adapt(key, key->waiting, now_ns);
    uint32_t units = key->units;
    struct backend_request asked = {.verb = REQUEST_LEASE, .ended = ended};
    asked.n_ended = end(key, key->first != NULL, now_ns, ended);
    key->least = least;
    if (is_fast) {
        /* Units held and unused are never more than one lease. */
        uint32_t left = lease_left(key), most = key->store.lease_units;
        uint32_t more = most > left ? most - left : 1;
        least = least > left ? least - left : 1;
        units = units < more ? units : more;
    }
    asked.least = least;
    asked.term_ns = is_fast ? 0 : term_of(key) - term_of(key) % NS_PER_US;
    asked.deadline_ns = lease_waiters_latest(key, deadline_ns);
    key->sent_term_ns = term_of(key);
    key->granted = 0;
    key->coming = units > least ? units : least;
    send(key, key->coming, &asked, now_ns);
    uint8_t outcome = key->op.answer.outcome;
    if (outcome != BACKEND_WAITS && outcome != BACKEND_DECIDED)
        keep(key, held, n_held);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void take_metrics(struct lease_key *key, const struct stint_decision *sum, uint64_t now_ns)
{
    key->limit = sum->limit;
    key->remaining = sum->remaining;
    key->reset_ns = add_sat(now_ns, sum->reset_after_ns);
}

/*
 * Requests of this cost or more are denied. If no other node holds a lease, no units come back, and
 * the denial holds as long as its algorithm gives: it may be repeated.
 */
static void deny(struct lease_key *key, const struct backend_answer *answer, uint64_t now_ns)
{
    const struct stint_decision *sum = &answer->sum;
    if (sum->outcome == STINT_DENY && answer->leases == 0 && !key->is_outdated) {
        key->denied_cost = key->least;
        key->retry_ns = add_sat(key->sent_ns, sum->retry_after_ns);
        key->denied_until_ns =
            min_u64(key->retry_ns, add_sat(now_ns, key->home->options.denied_max_ns));
    }
    key->quiet_until_ns = add_sat(now_ns, min_u64(sum->retry_after_ns, term_of(key) / QUIET_PARTS));
    key->units = 1;
    lease_waiters_tell(key, key->least, answer, now_ns);
}

/*
 * The term counts from the request, which is before the store's grant. One part in a hundred is for
 * clocks of different rates, and a microsecond for the store's, which rounds times down.
 */
static void take_lease(struct lease_key *key, const struct backend_answer *answer, uint64_t now_ns)
{
    uint64_t until_ns =
        key->sent_ns + sub_floor(key->sent_term_ns / 100 * CLOCK_RATES_PERCENT, NS_PER_US);
    if (answer->outcome != BACKEND_DECIDED) {
        key->units = 1;
        key->quiet_until_ns = add_sat(now_ns, term_of(key) / QUIET_PARTS);
        lease_waiters_tell(key, 0, answer, now_ns);
        return;
    }
    take_metrics(key, &answer->sum, now_ns);
    if (answer->sum.outcome != STINT_ALLOW) {
        deny(key, answer, now_ns);
        return;
    }
    key->granted = answer->sum.granted;
    if (answer->sum.granted > 0)
        hold(key, answer, until_ns);
    if (answer->sum.granted == 0 || until_ns <= now_ns)
        key->direct_until_ns = now_ns + term_of(key) / DIRECT_PARTS;
}

static void take_answer(struct lease_key *key, uint64_t now_ns)
{
    const struct backend_answer answer = key->op.answer;
    uint8_t verb = key->asking;
    key->asking = 0;
    if (verb == REQUEST_LEASE)
        take_lease(key, &answer, now_ns);
    else if (answer.outcome == BACKEND_DECIDED)
        take_metrics(key, &answer.sum, now_ns);
}

/* ---- Serving them ---------------------------------------------------------------------------- */

/* Each of them goes to the store itself: no lease is available. */
static void ask_directly(struct lease_waiter *waiter, uint64_t now_ns)
{
    struct lease_key *key = waiter->key;
    struct lease *lease = key->home;
    struct backend_op *op = waiter->op;
    bool is_new = waiter->is_new;
    struct backend_item item = *key->item;
    item.cost = waiter->cost;
    const struct backend_request asked = {
        .verb = waiter->verb,
        .items = &item,
        .n_items = 1,
        .now_ns = now_ns,
        .deadline_ns = waiter->deadline_ns,
    };
    lease_waiter_free(waiter);
    lease->inner->ops->ask(lease->inner, &asked, op);
    if (op->answer.outcome != BACKEND_WAITS && !is_new)
        op->answered(op, now_ns);
}

static void serve_waiting(struct lease_key *key, uint64_t now_ns)
{
    while (key->first != NULL) {
        if (lease_waiter_serve(key->first, now_ns))
            continue;
        if (key->asking != 0 || (now_ns >= key->direct_until_ns && !key->home->is_draining))
            return;
        ask_directly(key->first, now_ns);
    }
}

static void pump(struct lease_key *key, uint64_t now_ns)
{
    static const struct backend_answer ending = {.outcome = BACKEND_FAILED,
                                                 .error = "the server ends"};
    assert(!key->is_pumping);
    key->pins++;
    key->is_pumping = true;
    for (;;) {
        if (key->home->is_ending)
            lease_waiters_tell(key, 0, &ending, now_ns);
        serve_waiting(key, now_ns);
        if (key->asking != 0 || key->first == NULL)
            break;
        ask_lease(key, 0, now_ns);
        if (key->op.answer.outcome == BACKEND_WAITS)
            break;
        take_answer(key, now_ns);
    }
    key->is_pumping = false;
    key->pins--;
}

/* ---- Prefetch and return --------------------------------------------------------------------- */

static void finish(struct lease_key *key, uint64_t now_ns)
{
    if (key->op.answer.outcome != BACKEND_WAITS)
        take_answer(key, now_ns);
}

static bool ends_soon(const struct lease_key *key, uint64_t now_ns)
{
    for (size_t i = 0; i < key->n_held; i++)
        if (key->held[i].until_ns <= now_ns + term_of(key) / LEASE_SOON_PARTS)
            return true;
    return false;
}

/* Not while others wait: it would give back what they are about to get, and answer them at once. */
static void prefetch(struct lease_key *key, uint64_t deadline_ns, uint64_t now_ns)
{
    const struct lease *lease = key->home;
    if (key->asking != 0 || key->first != NULL || key->granted < 2 ||
        now_ns < key->quiet_until_ns || now_ns < key->direct_until_ns || lease->is_draining ||
        lease->is_ending || key->n_held == LEASE_HELD_MAX)
        return;
    if (lease_left(key) > key->granted / 2 && !ends_soon(key, now_ns))
        return;
    ask_lease(key, deadline_ns, now_ns);
    finish(key, now_ns);
}

/* Of those charged at once, one at a time. */
static bool refund_one(struct lease_key *key, uint64_t now_ns)
{
    for (size_t i = 0; i < key->n_held; i++) {
        const struct lease_held held = key->held[i];
        if (held.lease.ends_ns != 0)
            continue;
        lease_drop(key, i--);
        if (held.lease.left == 0)
            continue;
        struct backend_request asked = {.verb = REQUEST_REFUND,
                                        .at_ns = held.at_ns - held.at_ns % NS_PER_US,
                                        .deadline_ns = now_ns + RETURN_NS};
        send(key, held.lease.left, &asked, now_ns);
        return true;
    }
    return false;
}

static void give_back(struct lease_key *key, uint64_t now_ns)
{
    struct backend_lease ended[LEASE_HELD_MAX];
    if (key->asking != 0 || key->home->is_ending)
        return;
    key->pins++;
    key->units = 1;
    struct backend_request asked = {
        .verb = REQUEST_RETURN, .ended = ended, .deadline_ns = now_ns + RETURN_NS};
    asked.n_ended = end(key, true, now_ns, ended);
    if (asked.n_ended > 0) {
        send(key, 0, &asked, now_ns);
        finish(key, now_ns);
    } else {
        while (key->asking == 0 && refund_one(key, now_ns))
            finish(key, now_ns);
    }
    key->pins--;
}

static void lease_answered(struct backend_op *op, uint64_t now_ns)
{
    struct lease_key *key = op->arg;
    key->pins++;
    key->is_pumping = true;
    take_answer(key, now_ns);
    key->is_pumping = false;
    pump(key, now_ns);
    if (key->home->is_draining && key->first == NULL)
        give_back(key, now_ns);
    key->pins--;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static bool is_busy(const struct lease_key *key)
{
    return key->pins > 0 || key->asking != 0 || key->first != NULL;
}

/* Whether there is space now. If all of the oldest hold something, one gives it back. */
static bool make_space(struct lease *lease, uint64_t now_ns)
{
    if (lease->n_keys < lease->options.keys)
        return true;
    struct lease_key *key = lease->oldest, *holding = NULL;
    for (unsigned i = 0; i < LOOKED_AT_MAX && key != NULL; i++, key = key->newer) {
        if (is_busy(key))
            continue;
        lease_drop_ended(key, now_ns);
        if (lease_left(key) == 0) {
            lease_remove(key);
            return true;
        }
        if (holding == NULL)
            holding = key;
    }
    if (holding != NULL)
        give_back(holding, now_ns);
    return false;
}

/* The same key as before, or a new one. NULL: there is no space; another one gives back units. */
static struct lease_key *key_of(struct lease *lease, const struct backend_item *item,
                                uint64_t now_ns)
{
    struct lease_key *key = lease_find(lease, item, now_ns);
    if (key == NULL)
        return !lease->is_draining && make_space(lease, now_ns) ? lease_new_key(lease, item, now_ns)
                                                                : NULL;
    key->store = item->rule->store;
    return key;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void pass_on(struct lease *lease, const struct backend_request *ask, struct backend_op *op)
{
    lease->inner->ops->ask(lease->inner, ask, op);
}

/* The store does not count what is held here as free. */
static void add_held(struct backend_answer *answer, const struct lease_waiter *waiter)
{
    uint32_t left = lease_left(waiter->key);
    if (answer->outcome != BACKEND_DECIDED || left == 0)
        return;
    uint64_t remaining = min_u64((uint64_t)answer->sum.remaining + left, answer->sum.limit);
    answer->sum.remaining = (uint32_t)remaining;
    if (answer->sum.outcome == STINT_DENY && waiter->cost <= remaining) {
        answer->sum.outcome = STINT_ALLOW;
        answer->sum.granted = waiter->cost;
        answer->sum.retry_after_ns = 0;
    }
}

static void on_passed(struct backend_op *inner, uint64_t now_ns)
{
    struct lease_waiter *waiter = inner->arg;
    struct backend_answer answer = inner->answer;
    struct lease_key *key = waiter->key;
    key->pins--;
    lease_drop_ended(key, now_ns);
    if (waiter->verb == REQUEST_PEEK)
        add_held(&answer, waiter);
    else
        lease_add_upto(key, waiter->cost, &answer);
    lease_waiter_tell(waiter, &answer, now_ns);
}

/* `cost` is what the store decides on. */
static void pass_with_held(struct lease_key *key, const struct backend_request *ask, uint32_t cost,
                           struct backend_op *op)
{
    struct lease *lease = key->home;
    struct lease_waiter *waiter = lease_waiter_new(lease, LEASE_PASSES, op);
    if (waiter == NULL)
        return;
    struct backend_request asked = *ask;
    struct backend_item item = ask->items[0];
    waiter->key = key;
    waiter->verb = ask->verb;
    waiter->cost = item.cost;
    waiter->inner = (struct backend_op){
        .answer = {.each = &waiter->each}, .answered = on_passed, .arg = waiter};
    item.cost = cost;
    asked.items = &item;
    key->pins++;
    pass_on(lease, &asked, &waiter->inner);
    if (waiter->inner.answer.outcome == BACKEND_WAITS)
        return;
    waiter->is_new = true;
    on_passed(&waiter->inner, ask->now_ns);
}

static void wait_for_lease(struct lease_key *key, const struct backend_request *ask,
                           struct backend_op *op, uint64_t now_ns)
{
    struct lease *lease = key->home;
    struct lease_waiter *waiter = lease_waiter_new(lease, LEASE_WAITS, op);
    if (waiter == NULL)
        return;
    waiter->verb = ask->verb;
    waiter->cost = ask->items[0].cost;
    waiter->deadline_ns = ask->deadline_ns;
    lease_waiter_enqueue(key, waiter);
    if (key->asking != 0 || key->is_pumping)
        return; /* others may be in the queue, who must not be answered from within this ask */
    assert(key->first == waiter);
    waiter->is_new = true;
    pump(key, now_ns);
    if (op->answer.outcome == BACKEND_WAITS && op->at_work == waiter)
        waiter->is_new = false;
}

/* What is held here is reset with the state. Other nodes may still use their leases, which stay. */
static void reset(struct lease_key *key, const struct backend_request *ask, struct backend_op *op,
                  uint64_t now_ns)
{
    struct backend_lease ended[LEASE_HELD_MAX];
    struct backend_request asked = *ask;
    asked.ended = ended;
    asked.n_ended = end(key, true, now_ns, ended);
    while (key->n_held > 0) /* charged at once: the state forgets them */
        lease_drop(key, 0);
    key->remaining = 0;
    pass_on(key->home, &asked, op);
}

/* Not while units go back: that may take longer than the caller has, and brings it none. */
static bool may_wait(const struct lease_key *key, uint64_t now_ns)
{
    return (key->asking == 0 || key->asking == REQUEST_LEASE) && now_ns >= key->direct_until_ns &&
           !key->home->is_draining;
}

static bool takes(const struct backend_request *ask)
{
    return ask->verb == REQUEST_TAKE || ask->verb == REQUEST_TAKE_UPTO;
}

/* True: answered here and now. */
static bool answer_here(struct lease_key *key, const struct backend_request *ask, uint64_t now_ns,
                        struct backend_answer *answer)
{
    uint32_t cost = ask->items[0].cost;
    if (ask->verb == REQUEST_REFUND)
        return lease_refund(key, ask, now_ns, answer);
    if (ask->verb == REQUEST_RESET)
        return false;
    if (ask->verb == REQUEST_CHARGE)
        return cost > 0 && lease_left(key) >= cost &&
               lease_serve(key, REQUEST_TAKE, cost, now_ns, answer);
    /* First come, first served, except for requests that take nothing the first one waits for. */
    if (key->first != NULL && takes(ask) && cost > 0 && lease_spare(key) < cost)
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
    if (!ask->is_ahead || ask->verb == REQUEST_RESET)
        return false;
    bool is_coming = key->asking == REQUEST_LEASE && key->coming >= key->waiting + cost;
    return lease_left(key) >= cost || (is_coming && takes(ask)) ||
           lease_denies(key, ask->verb, cost, now_ns) || ask->verb == REQUEST_REFUND;
}

/* Units may come back, or the state may go. A denial that is on its way may be of before that. */
static void forget_denial(struct lease *lease, const struct backend_item *item, uint64_t now_ns)
{
    struct lease_key *key = lease_find(lease, item, now_ns);
    if (key == NULL)
        return;
    key->denied_cost = 0;
    key->is_outdated = true;
}

static void ask_item(struct lease *lease, const struct backend_request *ask, struct backend_op *op)
{
    uint64_t now_ns = lease_now(lease);
    uint32_t cost = ask->items[0].cost;
    bool goes_on = ask->is_virtual || ask->id != NULL || ask->verb > REQUEST_RESET;
    struct lease_key *key = NULL;
    struct backend_answer answer = {.outcome = BACKEND_WAITS};
    lease->turns++;
    if (ask->verb > REQUEST_PEEK && !ask->is_virtual)
        forget_denial(lease, &ask->items[0], now_ns);
    if (!goes_on)
        key = ask->verb == REQUEST_TAKE && cost > 0 ? key_of(lease, &ask->items[0], now_ns)
                                                    : lease_find(lease, &ask->items[0], now_ns);
    if (key == NULL) {
        pass_on(lease, ask, op);
        return;
    }
    lease_drop_ended(key, now_ns);
    if (is_ahead_of_time(key, ask, now_ns)) {
        op->answer.outcome = BACKEND_AHEAD;
        return;
    }
    if (answer_here(key, ask, now_ns, &answer)) {
        lease_fill(op, &answer);
        if (takes(ask))
            prefetch(key, ask->deadline_ns, now_ns);
    } else if (ask->verb == REQUEST_RESET) {
        reset(key, ask, op, now_ns);
    } else if (ask->verb == REQUEST_PEEK && lease_left(key) > 0) {
        pass_with_held(key, ask, cost, op);
    } else if (ask->verb == REQUEST_TAKE_UPTO && lease_spare(key) > 0 && cost > lease_spare(key)) {
        pass_with_held(key, ask, cost - lease_spare(key), op);
    } else if (ask->verb == REQUEST_TAKE && cost > 0 && may_wait(key, now_ns)) {
        wait_for_lease(key, ask, op, now_ns);
    } else {
        pass_on(lease, ask, op);
    }
}

static void on_listed(struct backend_op *inner, uint64_t now_ns)
{
    struct lease_waiter *waiter = inner->arg;
    struct backend_op *op = waiter->op;
    bool is_new = waiter->is_new;
    if (op != NULL)
        op->answer = inner->answer;
    lease_waiter_free(waiter);
    if (op != NULL && !is_new)
        op->answered(op, now_ns);
}

/* A list is one waiting request, however many steps it has. */
static void ask_list(struct lease *lease, const struct backend_request *ask, struct backend_op *op)
{
    if (ask->is_ahead) { /* it may be answered at once */
        op->answer.outcome = BACKEND_AHEAD;
        return;
    }
    struct lease_waiter *waiter = lease_waiter_new(lease, LEASE_LISTS, op);
    if (waiter == NULL)
        return;
    waiter->inner = (struct backend_op){
        .answer = {.each = op->answer.each}, .answered = on_listed, .arg = waiter};
    waiter->is_new = true;
    waiter->list = lease_list_ask(&lease->store, lease->inner, ask, &waiter->inner);
    if (waiter->inner.answer.outcome != BACKEND_WAITS)
        on_listed(&waiter->inner, ask->now_ns);
    else
        waiter->is_new = false;
}

static void op_ask(struct backend *store, const struct backend_request *ask, struct backend_op *op)
{
    struct lease *lease = (struct lease *)store;
    bool any_is_leased = false;
    for (size_t i = 0; i < ask->n_items && !any_is_leased; i++)
        any_is_leased = script_is_leased(&ask->items[i]);
    if (!any_is_leased)
        pass_on(lease, ask, op);
    else if (ask->n_items == 1)
        ask_item(lease, ask, op);
    else
        ask_list(lease, ask, op);
}

static void op_forget(struct backend *store, struct backend_op *op)
{
    struct lease *lease = (struct lease *)store;
    struct lease_waiter *waiter = op->at_work;
    lease->turns++;
    if (!lease_is_waiter(lease, waiter)) {
        lease->inner->ops->forget(lease->inner, op);
        return;
    }
    if (waiter->kind == LEASE_LISTS) {
        waiter->op = op->at_work = NULL;
        lease_list_forget(waiter->list);
        return;
    }
    if (waiter->kind == LEASE_PASSES) {
        lease->inner->ops->forget(lease->inner, &waiter->inner);
        waiter->key->pins--;
    }
    lease_waiter_free(waiter);
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
    struct lease *lease = (struct lease *)store;
    uint64_t now_ns = lease_now(lease);
    lease->is_draining = true;
    for (struct lease_key *key = lease->oldest; key != NULL; key = key->newer)
        give_back(key, now_ns);
    lease->inner->ops->drain(lease->inner, deadline_ns, done, arg);
}

static void op_free(struct backend *store)
{
    struct lease *lease = (struct lease *)store;
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
    return lease->n_keys == 0 ? STINT_NEVER_NS
                              : min_u64(lease->earliest_ns, lease->woken_ns + TICK_NS);
}

static uint64_t idle_ns(const struct lease_key *key)
{
    bool is_low = key->remaining < key->limit / LOW_PARTS;
    return key->store.lease_term_ns / (is_low ? IDLE_PARTS_LOW : IDLE_PARTS);
}

static void look_after(struct lease_key *key, uint64_t now_ns)
{
    uint64_t unused_ns = sub_floor(now_ns, key->asked_ns);
    if (is_busy(key))
        return;
    lease_drop_ended(key, now_ns);
    if (lease_left(key) > 0) {
        if (unused_ns >= idle_ns(key))
            give_back(key, now_ns);
    } else if (key->n_held == 0 && unused_ns >= FORGOTTEN_NS) {
        lease_remove(key);
    }
}

void lease_wake(struct backend *store, uint64_t now_ns)
{
    struct lease *lease = (struct lease *)store;
    lease->woken_ns = now_ns;
    lease_waiters_expire(lease, now_ns);
    struct lease_key *key = lease->oldest, *newer;
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
    lease->salt = options->secret[0] ^ options->secret[1];
    lease->earliest_ns = STINT_NEVER_NS;
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
