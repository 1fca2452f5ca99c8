/* SPDX-License-Identifier: MIT */
/* The front as a backend: which requests pass, what answers come back, what the breakers learn. */
#include "backend/front/front.h"

#include "algorithm/algorithm.h"
#include "algorithm/gcra.h"
#include "backend/front/denials.h"
#include "backend/item_copy.h"
#include "backend/script/script.h"
#include "base/limits.h"
#include "base/wide_int.h"

#include <stdlib.h>

#define NO_MEMORY "no memory for a request to the store"
#define ITEMS_FEW 4
#define STOPPED "the store failed several times in a row; requests to it are stopped for a while"

struct front {
    struct backend_metrics own_metrics; /* an answer that no caller waits for */
    struct backend store;
    uint64_t failed_over_ns; /* when it was noticed; 0: never */
    uint64_t failovers;      /* the servers concerned */
    uint64_t answered_ns;    /* the last answer of any server */
    const char *error;       /* the last failure of a server; NULL: none */
    struct denials *denials; /* NULL: none */
    struct front_ask *free_asks;
    struct backend_metrics *metrics;
    /* Pools in the same store; NULL: not in use. */
    struct backend_pools pools, *inner_pools;
    struct backend_pools_ops pools_ops;
    struct front_options options;
    struct breakers breakers;
};

/* The known state of an item when its request was sent. */
struct front_item {
    struct denial_name name;
    uint32_t cost;
};

/*
 * One request in progress. The front gets the answer even if the caller has cancelled: else a store
 * slower than its callers' timeouts would never count as unavailable.
 */
struct front_ask {
    struct front *front;
    struct front_ask *next;
    struct backend_op inner;
    struct backend_op *op; /* the caller's; NULL: cancelled */
    struct breakers_pass pass;
    uint64_t asked_ns;
    uint8_t verb;
    bool is_cached, is_dropping;    /* what its answer does to the denials */
    struct failover_work *failover; /* where it takes several steps */
    size_t n_items;
    struct front_item *items;
    struct stint_decision *each;
    void *many; /* memory for both, if there are many items */
    struct front_item few_items[ITEMS_FEW];
    struct stint_decision few_each[ITEMS_FEW];
};

enum step { STEP_LOOK, STEP_CHARGE, STEP_ASK };

/* A copy of a request. */
struct failover_work {
    enum step step;
    struct backend_request asked, step_asked;
    struct backend_item *items;
    struct backend_item *step_items; /* of STEP_LOOK, and of STEP_CHARGE: what looks unused */
    size_t n_unused;
    uint8_t id[BACKEND_ID_LEN];
};

static struct front *front_of(const struct backend *store)
{
    return (struct front *)(void *)((uint8_t *)(uintptr_t)store - offsetof(struct front, store));
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
    if (n_items <= ITEMS_FEW)
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
    if (ask->failover != NULL) {
        free(ask->failover->items);
        free(ask->failover->step_items);
        free(ask->failover);
    }
    free(ask->many);
    ask->next = ask->front->free_asks;
    ask->front->free_asks = ask;
}

/* ---- Input of the breakers ------------------------------------------------------------------- */

/*
 * Not before the last answer, whatever the breakers think of the store then: what it admitted until
 * that time counts for a period in the share of a node.
 */
static uint64_t unavailable_since(const struct front *front, uint64_t now_ns)
{
    uint64_t inner_ns = front->options.inner->ops->unavailable_since_ns(front->options.inner);
    uint64_t own_ns = breakers_failing_since(&front->breakers, now_ns);
    bool is_one = own_ns == 0 || inner_ns == 0;
    uint64_t since_ns = is_one ? own_ns + inner_ns : min_u64(own_ns, inner_ns);
    return since_ns == 0 ? 0 : max_u64(since_ns, front->answered_ns);
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

/* A server has answered without a decision: others were faster, or its state is of another time. */
static bool is_undecided(const struct backend_answer *answer)
{
    return answer->fault == BACKEND_ERROR_BUSY || answer->fault == BACKEND_ERROR_STATE;
}

/* Whether a server has answered. Of a list it is enough that one has. */
static bool is_from_store(const struct breakers_pass *pass, const struct backend_answer *answer)
{
    return answer->outcome != BACKEND_FAILED || is_undecided(answer) ||
           (answer->failed != 0 && (pass->servers & ~answer->failed) != 0);
}

/*
 * Counts a result, and tells the breakers what it shows about the store's health. A refusal from
 * within ask() shows nothing. Too many requests in progress, or a key that others change at the
 * same time, is no failure of the store, or a burst would shut it off. asked_ns NULL: it was
 * answered from within ask().
 */
static void settle(struct front *front, const struct breakers_pass *pass,
                   const struct backend_answer *answer, const uint64_t *asked_ns, uint64_t now_ns)
{
    bool has_failed = answer->outcome == BACKEND_FAILED;
    if (has_failed)
        backend_metric_up(&front->metrics->errors[answer->fault]);
    if (answer->outcome == BACKEND_REFUSED)
        backend_metric_up(&front->metrics->refused);
    if (asked_ns != NULL)
        backend_metrics_took(front->metrics, sub_floor(now_ns, *asked_ns));
    bool is_sent = asked_ns != NULL || answer->outcome == BACKEND_DECIDED;
    if (is_sent && is_from_store(pass, answer))
        front->answered_ns = max_u64(front->answered_ns, now_ns);
    bool says_nothing =
        has_failed ? answer->fault == BACKEND_ERROR_OVERLOAD || is_undecided(answer) : !is_sent;
    if (says_nothing) {
        breakers_drop(&front->breakers, pass);
        return;
    }
    uint64_t failed = has_failed && answer->failed == 0 ? pass->servers : answer->failed;
    if (has_failed && failed != 0)
        front->error = answer->error;
    breakers_tell(&front->breakers, pass, failed, now_ns);
    if (failed != 0 || backend_metric(&front->metrics->state) != STORE_ASKED ||
        backend_metric(&front->metrics->unavailable_since_ns) != 0)
        show_state(front);
}

/* ---- The denial cache ------------------------------------------------------------------------ */

/*
 * A denial with retry_after r at t means: no take of that cost or more is allowed before t + r,
 * whatever other clients take meanwhile, since taking only delays that time. It holds for all
 * algorithms but concurrency, whose holders may leave early; and as long as no caller refunds,
 * resets the key or changes its quota. tests/unit/backend/test_denials.c checks the algorithms.
 *
 * The store decided after the request was sent, so the time counts from the sending.
 */

/* A refused take that would change something must reach the store. */
static bool is_cacheable_item(const struct backend_item *item)
{
    const struct stint_quota *quota = item->quota;
    return quota->algorithm != STINT_CONCURRENCY && quota->algorithm != STINT_COUNTER &&
           !quota->count_denied &&
           (item->rule == NULL || item->rule->store.lease == RULE_LEASE_NONE) &&
           item->cost <= most_units(quota);
}

/* An id that was allowed before must be allowed again: only the store knows it. */
static bool is_cacheable(const struct backend_request *asked)
{
    if (asked->id != NULL || asked->is_virtual ||
        (asked->verb != REQUEST_TAKE && asked->verb != REQUEST_TAKE_UPTO &&
         asked->verb != REQUEST_PEEK))
        return false;
    for (size_t i = 0; i < asked->n_items; i++)
        if (!is_cacheable_item(&asked->items[i]))
            return false;
    return true;
}

/* After these verbs all that is known about their keys is invalid. */
static bool is_dropping(const struct backend_request *asked)
{
    return !asked->is_virtual && (asked->verb == REQUEST_CHARGE || asked->verb == REQUEST_REFUND ||
                                  asked->verb == REQUEST_RESET || asked->verb == REQUEST_SETTLE ||
                                  asked->verb == REQUEST_CANCEL || asked->verb == REQUEST_EXPIRE);
}

/* The least that a request has to get of each item not to be denied. */
static uint32_t least_of(uint8_t verb, uint32_t cost)
{
    return verb == REQUEST_TAKE_UPTO && cost > 1 ? 1 : cost;
}

/*
 * The wait of a denied cost: at least that of the least cost known to be denied. Units taken since
 * make it longer, and so does a larger cost; under gcra the reset gives by how much.
 */
static uint64_t wait_ns(const struct denial *denial, const struct stint_quota *quota, uint32_t cost,
                        uint64_t now_ns)
{
    uint64_t known_ns = denial->retry_ns - now_ns;
    if (quota->algorithm != STINT_GCRA)
        return known_ns;
    uint64_t full_ns = gcra_ns_up(quota->derived.capacity_ticks);
    uint64_t cost_ns = gcra_ns_up(cost * quota->derived.interval_ticks);
    uint64_t reset_ns = sub_floor(denial->reset_ns, now_ns);
    return max_u64(known_ns, sub_floor(add_sat(reset_ns, cost_ns), full_ns));
}

/* The state of an item by itself, as far as is known. False: it needs a store request. */
static bool read(const struct denial *denial, const struct backend_item *item, uint8_t verb,
                 uint64_t now_ns, struct stint_decision *decision)
{
    uint32_t least = least_of(verb, item->cost);
    bool is_denied = denial->cost > 0 && least >= denial->cost;
    /*
     * An allowed peek returns the numbers as after a take. Nothing left may mean debt, in which a
     * cost of 0 is denied, too.
     */
    bool is_allowed = least <= denial->remaining && denial->remaining > 0 && verb != REQUEST_PEEK;
    if (!is_denied && !is_allowed)
        return false;
    *decision = (struct stint_decision){
        .outcome = is_denied ? STINT_DENY : STINT_ALLOW,
        .stored = 1,
        .limit = most_units(item->quota),
        .remaining = denial->remaining,
        .retry_after_ns = is_denied ? wait_ns(denial, item->quota, least, now_ns) : 0,
        .reset_after_ns = sub_floor(denial->reset_ns, now_ns),
    };
    return true;
}

/* Names all items; costs of equal keys add up in the store, so such a list goes to the store. */
static bool name_items(struct front_ask *ask, const struct backend_request *asked)
{
    bool are_different = true;
    for (size_t i = 0; i < asked->n_items; i++) {
        ask->items[i].name = denials_name(ask->front->denials, &asked->items[i]);
        ask->items[i].cost = asked->items[i].cost;
        for (size_t j = 0; j < i; j++)
            are_different &= !denials_same(&ask->items[i].name, &ask->items[j].name);
    }
    return are_different;
}

static void drop_all(struct front_ask *ask)
{
    for (size_t i = 0; i < ask->n_items; i++)
        denials_drop(ask->front->denials, &ask->items[i].name);
}

/* All numbers are known, and one of them denies: a partial list would return unknown numbers. */
static bool denies(struct front_ask *ask, const struct backend_request *asked)
{
    const struct denials *denials = ask->front->denials;
    if (denials == NULL)
        return false;
    ask->is_dropping = is_dropping(asked);
    ask->is_cached = is_cacheable(asked);
    if (!ask->is_dropping && !ask->is_cached)
        return false;
    ask->is_cached &= name_items(ask, asked);
    if (ask->is_dropping)
        drop_all(ask);
    bool is_denied = false;
    for (size_t i = 0; i < asked->n_items; i++) {
        const struct denial *denial =
            ask->is_cached ? denials_find(denials, &ask->items[i].name, asked->now_ns) : NULL;
        if (denial == NULL ||
            !read(denial, &asked->items[i], asked->verb, asked->now_ns, &ask->each[i]))
            return false;
        is_denied |= ask->each[i].outcome == STINT_DENY;
    }
    if (is_denied)
        ask->inner.answer = (struct backend_answer){.outcome = BACKEND_DECIDED,
                                                    .is_local = true,
                                                    .each = ask->each,
                                                    .sum = script_sum(ask->each, ask->n_items)};
    return is_denied;
}

/*
 * For a denied item, until when. For others, their state: if the list is denied, or if something is
 * cached already, so that it stays correct.
 */
static void learn_item(struct front_ask *ask, size_t i, bool in_denied)
{
    struct front *front = ask->front;
    const struct front_item *item = &ask->items[i];
    const struct stint_decision *decision = &ask->each[i];
    uint64_t ends_ns = add_sat(ask->asked_ns, front->options.deny_cache_max_ns);
    const struct denial *known = denials_find(front->denials, &item->name, ask->asked_ns);
    struct denial denial = {.ends_ns = ends_ns};
    if (in_denied && decision->outcome == STINT_DENY) {
        denial.cost = least_of(ask->verb, item->cost);
        denial.retry_ns = add_sat(ask->asked_ns, decision->retry_after_ns);
        denial.ends_ns = min_u64(ends_ns, denial.retry_ns);
    } else if (decision->outcome != STINT_ALLOW || ask->verb == REQUEST_PEEK ||
               (!in_denied && known == NULL)) {
        return;
    } else if (known != NULL && known->cost > 0) {
        denial = *known; /* the cost that was denied */
    }
    denial.remaining = decision->remaining;
    denial.reset_ns = add_sat(ask->asked_ns, decision->reset_after_ns);
    denials_put(front->denials, &item->name, &denial, ask->asked_ns);
}

/* Learns from an answer about the keys. */
static void learns(struct front_ask *ask, const struct backend_answer *answer)
{
    if (ask->is_dropping)
        drop_all(ask);
    if (!ask->is_cached || answer->outcome != BACKEND_DECIDED || is_undecided(answer) ||
        answer->is_replayed)
        return;
    for (size_t i = 0; i < ask->n_items; i++)
        learn_item(ask, i, answer->sum.outcome == STINT_DENY);
}

/* ---- After a failover ------------------------------------------------------------------------ */

/*
 * Writes that a master had answered and not yet replicated are lost, and their keys may look never
 * used. So until a period has passed, keys are peeked first, and those that look unused are denied,
 * or half charged before the request.
 *
 * Two or three round trips instead of one, and only then. If another node uses the key between peek
 * and take, it is no longer unused, and is treated as any other. If two nodes see it unused at
 * once, both charge it, which denies more, never less.
 */

/* How long lost units may be missing: until no window can hold them any more. */
static uint64_t until_of(const struct front *front, const struct stint_quota *quota)
{
    bool has_months = quota->algorithm == STINT_FIXED_WINDOW && quota->align >= STINT_ALIGN_MONTH;
    uint64_t missed_ns = rule_counts_for_ns(quota) + (has_months ? 3 * NS_PER_DAY : 0);
    if (quota->algorithm == STINT_GCRA)
        missed_ns = max_u64(missed_ns, quota->period_ns);
    return add_sat(front->failed_over_ns, missed_ns);
}

/* Whether a failover is so recent that keys of this request are to be peeked first. */
static bool is_in_failover(const struct front *front, const struct backend_request *asked)
{
    enum failover_policy failover_policy = front->options.failover_policy;
    bool is_taking = asked->verb == REQUEST_TAKE || asked->verb == REQUEST_TAKE_UPTO ||
                     asked->verb == REQUEST_CHARGE || asked->verb == REQUEST_BOOK;
    if (failover_policy == FAILOVER_TRUSTS || front->failed_over_ns == 0 || asked->is_virtual ||
        !(is_taking || (asked->verb == REQUEST_PEEK && failover_policy == FAILOVER_FULL)))
        return false;
    for (size_t i = 0; i < asked->n_items; i++)
        if (asked->items[i].quota->algorithm != STINT_COUNTER && /* no use of it can be assumed */
            asked->now_ns < until_of(front, asked->items[i].quota))
            return true;
    return false;
}

/* NULL: no memory. */
static struct failover_work *copy_of(const struct backend_request *asked)
{
    struct failover_work *copy = malloc(sizeof(*copy));
    struct backend_item *items = item_copy(asked->items, asked->n_items);
    struct backend_item *step_items = calloc(asked->n_items, sizeof(*step_items));
    if (copy == NULL || items == NULL || step_items == NULL) {
        free(copy);
        free(items);
        free(step_items);
        return NULL;
    }
    *copy = (struct failover_work){.asked = *asked, .items = items, .step_items = step_items};
    copy->asked.items = items;
    if (asked->id != NULL)
        copy->asked.id = memcpy(copy->id, asked->id, BACKEND_ID_LEN);
    return copy;
}

/* Of take_upto 1: a larger cost may not fit, and yet be granted in part. */
static uint32_t looked_cost(const struct front_ask *ask, size_t i)
{
    return least_of(ask->verb, ask->failover->items[i].cost);
}

/*
 * A peek returns what a take would leave: of an unused key, all but its cost. The costs of equal
 * keys may have been added up.
 */
static bool is_unused(const struct front_ask *ask, size_t i, uint64_t now_ns)
{
    const struct backend_item *items = ask->failover->items;
    const struct stint_decision *seen = &ask->each[i];
    uint32_t capacity = most_units(items[i].quota), cost = looked_cost(ask, i);
    uint64_t all_costs = 0;
    for (size_t j = 0; j < ask->n_items; j++)
        all_costs += item_is_same(&items[i], &items[j]) ? looked_cost(ask, j) : 0;
    return cost > 0 && seen->outcome == STINT_ALLOW &&
           ((uint64_t)seen->remaining + cost == capacity ||
            seen->remaining + all_costs == capacity) &&
           now_ns < until_of(ask->front, items[i].quota);
}

/* Holders of slots are known by their deadlines: lost ones cannot be replaced. */
static bool is_to_deny(const struct front_ask *ask, const struct backend_item *item)
{
    return ask->verb != REQUEST_CHARGE && (ask->front->options.failover_policy == FAILOVER_FULL ||
                                           item->quota->algorithm == STINT_CONCURRENCY);
}

static void deny(const struct front_ask *ask, struct stint_decision *seen,
                 const struct backend_item *item, uint64_t now_ns)
{
    uint64_t wait_ns = until_of(ask->front, item->quota) - now_ns;
    *seen = (struct stint_decision){.outcome = STINT_DENY,
                                    .stored = 1,
                                    .limit = most_units(item->quota),
                                    .retry_after_ns = wait_ns,
                                    .reset_after_ns = wait_ns};
}

/* Denies what looks unused, and counts what is to be charged first. True: something is denied. */
static bool look(struct front_ask *ask, uint64_t now_ns)
{
    struct failover_work *failover = ask->failover;
    bool is_denied = false;
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct backend_item *item = &failover->items[i];
        struct stint_decision *seen = &ask->each[i];
        if (!is_unused(ask, i, now_ns))
            continue;
        if (is_to_deny(ask, item)) {
            deny(ask, seen, item, now_ns);
            is_denied = true;
            continue;
        }
        uint32_t capacity = most_units(item->quota);
        bool is_half = ask->front->options.failover_policy == FAILOVER_HALF;
        failover->step_items[failover->n_unused] = *item;
        failover->step_items[failover->n_unused++].cost =
            is_half ? capacity / 2 + capacity % 2 : capacity;
    }
    return is_denied;
}

/* In a list that is denied, nothing was taken of the others either. */
static void untake(struct front_ask *ask)
{
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct stint_quota *quota = ask->failover->items[i].quota;
        struct stint_decision *seen = &ask->each[i];
        if (seen->outcome != STINT_ALLOW)
            continue;
        uint64_t remaining = (uint64_t)seen->remaining + looked_cost(ask, i);
        seen->remaining = (uint32_t)min_u64(remaining, most_units(quota));
        seen->granted = 0;
    }
}

/* The next request; NULL: the last answer is final. */
static const struct backend_request *next_step(struct front_ask *ask, uint64_t now_ns)
{
    struct failover_work *failover = ask->failover;
    struct backend_answer *answer = &ask->inner.answer;
    if (answer->outcome != BACKEND_DECIDED || failover->step == STEP_ASK)
        return NULL;
    if (ask->op == NULL) {
        ask->is_cached = false; /* it is the answer to another request */
        return NULL;
    }
    if (failover->step == STEP_LOOK) {
        bool is_denied = look(ask, now_ns);
        if (is_denied || failover->n_unused > 0)
            backend_metric_up(&ask->front->metrics->cautious);
        if (is_denied && ask->verb != REQUEST_PEEK)
            untake(ask);
        if (is_denied) {
            answer->sum = script_sum(ask->each, ask->n_items);
            ask->is_cached = false; /* the algorithm does not deny it */
        }
        if (is_denied || ask->verb == REQUEST_PEEK)
            return NULL;
    }
    bool is_charging = failover->step == STEP_LOOK && failover->n_unused > 0;
    failover->step = is_charging ? STEP_CHARGE : STEP_ASK;
    failover->step_asked = failover->asked;
    failover->step_asked.now_ns = now_ns;
    failover->step_asked.is_ahead = false;
    if (is_charging) {
        failover->step_asked.verb = REQUEST_CHARGE;
        failover->step_asked.id = NULL;
        failover->step_asked.is_ticket = false;
        failover->step_asked.items = failover->step_items;
        failover->step_asked.n_items = failover->n_unused;
    }
    return &failover->step_asked;
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

static bool go_on(struct front_ask *ask, uint64_t now_ns);

static void inner_answered(struct backend_op *inner, uint64_t now_ns)
{
    struct front_ask *ask = inner->arg;
    settle(ask->front, &ask->pass, &inner->answer, &ask->asked_ns, now_ns);
    if (ask->failover != NULL && go_on(ask, now_ns))
        return;
    learns(ask, &inner->answer);
    struct backend_op *op = ask->op;
    if (op == NULL) {
        ask_free(ask);
        return;
    }
    hand_over(ask, op);
    op->answered(op, now_ns);
}

/*
 * Sends to the backend behind, if the breakers allow it. True: go_on() will be called; false:
 * it was answered at once, in ask->inner.answer.
 */
static bool send(struct front_ask *ask, const struct backend_request *asked)
{
    struct front *front = ask->front;
    struct backend_answer *answer = &ask->inner.answer;
    struct backend_request forwarded = *asked;
    ask->inner =
        (struct backend_op){.answer = {.each = ask->each}, .answered = inner_answered, .arg = ask};
    ask->asked_ns = asked->now_ns;
    forwarded.stopped = breakers_stopped(&front->breakers, asked->now_ns);
    front->options.inner->ops->ask(front->options.inner, &forwarded, &ask->inner);
    bool is_stopped = answer->outcome == BACKEND_FAILED && answer->fault == BACKEND_ERROR_STOPPED;
    uint64_t servers = answer->servers != 0 ? answer->servers : 1;
    ask->pass = breakers_ask(&front->breakers, is_stopped ? 0 : servers, asked->now_ns);
    if (answer->outcome == BACKEND_WAITS)
        return true;
    if (is_stopped)
        answer->error = STOPPED;
    settle(front, &ask->pass, answer, NULL, asked->now_ns);
    return false;
}

/* The next step, once one is answered. True: it waits for another one. */
static bool go_on(struct front_ask *ask, uint64_t now_ns)
{
    const struct backend_request *next = next_step(ask, now_ns);
    while (next != NULL && !send(ask, next))
        next = next_step(ask, now_ns);
    return next != NULL;
}

/* As send(), in steps. */
static bool begin_failover(struct front_ask *ask, const struct backend_request *asked)
{
    struct failover_work *failover = ask->failover = copy_of(asked);
    if (failover == NULL) {
        fail(&ask->inner.answer, BACKEND_ERROR_OTHER, NO_MEMORY);
        return false;
    }
    failover->step_asked = failover->asked;
    failover->step_asked.verb = REQUEST_PEEK;
    failover->step_asked.id = NULL;
    failover->step_asked.is_ticket = false;
    failover->step_asked.items = failover->step_items;
    for (size_t i = 0; i < asked->n_items; i++) {
        failover->step_items[i] = failover->items[i];
        failover->step_items[i].cost = looked_cost(ask, i);
    }
    return send(ask, &failover->step_asked) || go_on(ask, asked->now_ns);
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
    if (denies(ask, asked)) {
        if (asked->is_ahead)
            ask->inner.answer.outcome = BACKEND_AHEAD;
        else
            backend_metric_up(&ask->front->metrics->denials_hit);
        return false;
    }
    bool waits = is_in_failover(ask->front, asked) ? begin_failover(ask, asked) : send(ask, asked);
    if (!waits)
        learns(ask, &ask->inner.answer);
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

const char *front_error(const struct backend *store)
{
    return front_of(store)->error;
}

/* ---- Pools ----------------------------------------------------------------------------------- */

/*
 * Pool requests: the store's breakers stop them, and they count in its metrics. The rest of the
 * front does not apply: the pool itself stores what it denies.
 */
struct front_pool_ask {
    struct front *front;
    struct backend_pool_op inner;
    struct backend_pool_op *op; /* the caller's */
    struct breakers_pass pass;
    uint64_t asked_ns;
};

static struct front *front_of_pools(const struct backend_pools *pools)
{
    return (struct front *)(void *)((uint8_t *)(uintptr_t)pools - offsetof(struct front, pools));
}

static void settle_pool(const struct front_pool_ask *ask, const uint64_t *asked_ns, uint64_t now_ns)
{
    const struct backend_answer answer = {.outcome = ask->inner.answer.outcome,
                                          .fault = ask->inner.answer.fault,
                                          .error = ask->inner.answer.error};
    settle(ask->front, &ask->pass, &answer, asked_ns, now_ns);
}

static void pool_answered(struct backend_pool_op *inner, uint64_t now_ns)
{
    struct front_pool_ask *ask = inner->arg;
    struct backend_pool_op *op = ask->op;
    settle_pool(ask, &ask->asked_ns, now_ns);
    op->answer = inner->answer;
    op->at_work = NULL;
    free(ask);
    op->answered(op, now_ns);
}

static void pools_ask(struct backend_pools *pools, const struct backend_pool_request *asked,
                      struct backend_pool_op *op)
{
    struct front *front = front_of_pools(pools);
    struct front_pool_ask *ask = malloc(sizeof(*ask));
    struct backend_pool_request forwarded = *asked;
    backend_metric_up(&front->metrics->asks);
    if (ask == NULL) {
        op->answer.outcome = BACKEND_FAILED;
        op->answer.error = NO_MEMORY;
        return;
    }
    *ask =
        (struct front_pool_ask){.front = front, .op = op, .asked_ns = asked->now_ns, .inner = *op};
    ask->inner.answered = pool_answered;
    ask->inner.arg = ask;
    forwarded.stopped = breakers_stopped(&front->breakers, asked->now_ns);
    front->inner_pools->ops->ask(front->inner_pools, &forwarded, &ask->inner);
    ask->pass = breakers_ask(&front->breakers, ask->inner.answer.servers, asked->now_ns);
    if (ask->inner.answer.outcome == BACKEND_WAITS) {
        op->answer.outcome = BACKEND_WAITS;
        op->at_work = ask;
        return;
    }
    settle_pool(ask, NULL, asked->now_ns);
    op->answer = ask->inner.answer;
    if (op->answer.outcome == BACKEND_FAILED && op->answer.fault == BACKEND_ERROR_STOPPED)
        op->answer.error = STOPPED;
    free(ask);
}

/* The list goes with the caller, so the answer is not kept: the wait was not to the end. */
static void pools_forget(struct backend_pools *pools, struct backend_pool_op *op)
{
    struct front *front = front_of_pools(pools);
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
    const struct backend_pools *inner = front_of_pools(pools)->inner_pools;
    return inner->ops->list_new(inner, given, list, error);
}

struct backend_pools *front_pools(struct backend *store, struct backend_pools *inner)
{
    struct front *front = front_of(store);
    front->inner_pools = inner;
    front->pools_ops = *inner->ops;
    front->pools_ops.list_new = pools_list_new;
    front->pools_ops.ask = pools_ask;
    front->pools_ops.forget = pools_forget;
    front->pools.ops = &front->pools_ops;
    return &front->pools;
}
