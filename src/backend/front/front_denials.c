/* SPDX-License-Identifier: MIT */
/*
 * The front's denial cache: which requests it may answer, how, and what it learns from answers.
 *
 * A denial with retry_after r at t means: no take of that cost or more is allowed before t + r,
 * whatever other clients take meanwhile, since taking only delays that time. It holds for all
 * algorithms but concurrency, whose holders may leave early; and as long as no caller refunds,
 * resets the key or changes its quota. tests/unit/backend/test_denials.c checks the algorithms.
 *
 * The store decided after the request was sent, so the time counts from the sending.
 */
#include "backend/front/front_parts.h"

#include "algorithm/gcra.h"
#include "base/wide_int.h"

/* A refused take that would change something must reach the store. */
static bool is_cacheable_item(const struct backend_item *item)
{
    const struct stint_quota *quota = item->quota;
    return quota->algorithm != STINT_CONCURRENCY && !quota->count_denied &&
           (item->rule == NULL || item->rule->store.lease == RULE_LEASE_NONE) &&
           item->cost <= front_capacity(quota);
}

/* An id that was allowed before must be allowed again: only the store knows it. */
static bool is_cacheable(const struct backend_request *asked)
{
    if (asked->id != NULL || asked->is_virtual ||
        (asked->verb != BACKEND_TAKE && asked->verb != BACKEND_TAKE_UPTO &&
         asked->verb != BACKEND_PEEK))
        return false;
    for (size_t i = 0; i < asked->n_items; i++)
        if (!is_cacheable_item(&asked->items[i]))
            return false;
    return true;
}

/* After these verbs all that is known about their keys is invalid. */
static bool is_dropping(const struct backend_request *asked)
{
    return !asked->is_virtual && (asked->verb == BACKEND_CHARGE || asked->verb == BACKEND_REFUND ||
                                  asked->verb == BACKEND_RESET || asked->verb == BACKEND_SETTLE ||
                                  asked->verb == BACKEND_CANCEL || asked->verb == BACKEND_EXPIRE);
}

/* The least that a request has to get of each item not to be denied. */
static uint32_t least_of(uint8_t verb, uint32_t cost)
{
    return verb == BACKEND_TAKE_UPTO && cost > 1 ? 1 : cost;
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
    bool is_allowed = least <= denial->remaining && denial->remaining > 0 && verb != BACKEND_PEEK;
    if (!is_denied && !is_allowed)
        return false;
    *decision = (struct stint_decision){
        .outcome = is_denied ? STINT_DENY : STINT_ALLOW,
        .stored = 1,
        .limit = front_capacity(item->quota),
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
bool front_denies(struct front_ask *ask, const struct backend_request *asked)
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
                                                    .sum = front_sum(ask->each, ask->n_items)};
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
    const struct stint_decision *told = &ask->each[i];
    uint64_t ends_ns = add_sat(ask->asked_ns, front->options.deny_cache_max_ns);
    const struct denial *known = denials_find(front->denials, &item->name, ask->asked_ns);
    struct denial denial = {.ends_ns = ends_ns};
    if (in_denied && told->outcome == STINT_DENY) {
        denial.cost = least_of(ask->verb, item->cost);
        denial.retry_ns = add_sat(ask->asked_ns, told->retry_after_ns);
        denial.ends_ns = min_u64(ends_ns, denial.retry_ns);
    } else if (told->outcome != STINT_ALLOW || ask->verb == BACKEND_PEEK ||
               (!in_denied && known == NULL)) {
        return;
    } else if (known != NULL && known->cost > 0) {
        denial = *known; /* the cost that was denied */
    }
    denial.remaining = told->remaining;
    denial.reset_ns = add_sat(ask->asked_ns, told->reset_after_ns);
    denials_put(front->denials, &item->name, &denial, ask->asked_ns);
}

void front_learns(struct front_ask *ask, const struct backend_answer *answer)
{
    if (ask->is_dropping)
        drop_all(ask);
    if (!ask->is_cached || answer->outcome != BACKEND_DECIDED || answer->is_local ||
        answer->is_replayed)
        return;
    for (size_t i = 0; i < ask->n_items; i++)
        learn_item(ask, i, answer->sum.outcome == STINT_DENY);
}
