/* SPDX-License-Identifier: MIT */
/*
 * What the front does after a failover. Writes that a master had answered and not yet replicated
 * are lost, and their keys may look never used. So until a period has passed, keys are peeked
 * first, and those that look unused are denied, or half charged before the request.
 *
 * Two or three round trips instead of one, and only then. If another node uses the key between peek
 * and take, it is no longer unused, and is treated as any other. If two nodes see it unused at
 * once, both charge it, which denies more, never less.
 */
#include "backend/front/front_parts.h"

#include "base/limits.h"
#include "base/wide_int.h"

#include <stdlib.h>

enum step { STEP_LOOK, STEP_CHARGE, STEP_ASK };

/* A copy of a request; only its rules are borrowed, until the caller cancels it. */
struct front_failover_work {
    enum step step;
    struct backend_request asked, step_asked;
    struct backend_item *items, *unused;
    size_t n_unused;
    uint8_t id[BACKEND_ID_LEN];
};

/* How long lost units may be missing: until no window can hold them any more. */
static uint64_t missed_for(const struct stint_quota *quota)
{
    switch (quota->algorithm) {
    case STINT_GCRA:
        return quota->limit > 0 ? max_u64(quota->period_ns,
                                          mul_div_up(quota->period_ns, quota->burst, quota->limit))
                                : 0;
    case STINT_FIXED_WINDOW:
        return quota->period_ns + (quota->align >= STINT_ALIGN_MONTH ? 3 * NS_PER_DAY : 0);
    case STINT_CONCURRENCY:
        return quota->lease_ns;
    default:
        return quota->period_ns;
    }
}

static uint64_t until_of(const struct front *front, const struct stint_quota *quota)
{
    return add_sat(front->failed_over_ns, missed_for(quota));
}

bool front_is_in_failover(const struct front *front, const struct backend_request *asked)
{
    enum failover_policy failover_policy = front->options.failover_policy;
    bool is_taking = asked->verb == BACKEND_TAKE || asked->verb == BACKEND_TAKE_UPTO ||
                     asked->verb == BACKEND_CHARGE || asked->verb == BACKEND_BOOK;
    if (failover_policy == FAILOVER_TRUSTS || front->failed_over_ns == 0 || asked->is_virtual ||
        !(is_taking || (asked->verb == BACKEND_PEEK && failover_policy == FAILOVER_FULL)))
        return false;
    for (size_t i = 0; i < asked->n_items; i++)
        if (asked->now_ns < until_of(front, asked->items[i].quota))
            return true;
    return false;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static struct span copy_span(uint8_t **at, struct span from)
{
    struct span copy = span_of(*at, from.len);
    if (from.len > 0)
        memcpy(*at, from.ptr, from.len);
    *at += from.len;
    return copy;
}

/* In one block of memory: twice as many items, their quotas, then names and keys. */
static struct front_failover_work *copy_of(const struct backend_request *asked)
{
    size_t n = asked->n_items;
    size_t size = sizeof(struct front_failover_work) +
                  n * (2 * sizeof(struct backend_item) + sizeof(struct stint_quota));
    for (size_t i = 0; i < n; i++)
        size += asked->items[i].name.len + asked->items[i].key.len;
    struct front_failover_work *copy = malloc(size);
    if (copy == NULL)
        return NULL;
    *copy = (struct front_failover_work){.asked = *asked};
    copy->items = (void *)(copy + 1);
    copy->unused = copy->items + n;
    struct stint_quota *quotas = (void *)(copy->unused + n);
    uint8_t *bytes = (void *)(quotas + n);
    for (size_t i = 0; i < n; i++) {
        copy->items[i] = asked->items[i];
        quotas[i] = *asked->items[i].quota;
        copy->items[i].quota = &quotas[i];
        copy->items[i].name = copy_span(&bytes, asked->items[i].name);
        copy->items[i].key = copy_span(&bytes, asked->items[i].key);
    }
    copy->asked.items = copy->items;
    if (asked->id != NULL) {
        memcpy(copy->id, asked->id, BACKEND_ID_LEN);
        copy->asked.id = copy->id;
    }
    return copy;
}

void front_end_failover(struct front_ask *ask)
{
    free(ask->cautious);
    ask->cautious = NULL;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static bool are_equal(const struct backend_item *a, const struct backend_item *b)
{
    return a->name.len == b->name.len && a->key.len == b->key.len &&
           (a->name.len == 0 || memcmp(a->name.ptr, b->name.ptr, a->name.len) == 0) &&
           (a->key.len == 0 || memcmp(a->key.ptr, b->key.ptr, a->key.len) == 0) &&
           memcmp(a->quota->derived.params_hash, b->quota->derived.params_hash,
                  sizeof(a->quota->derived.params_hash)) == 0;
}

/*
 * A peek returns what a take would leave: of an unused key, all but its cost. The costs of equal
 * keys may have been added up.
 */
static bool is_unused(const struct front_ask *ask, size_t i, uint64_t now_ns)
{
    const struct backend_item *items = ask->cautious->items;
    const struct stint_decision *seen = &ask->each[i];
    uint32_t capacity = front_capacity(items[i].quota);
    uint64_t all_costs = 0;
    for (size_t j = 0; j < ask->n_items; j++)
        all_costs += are_equal(&items[i], &items[j]) ? items[j].cost : 0;
    return items[i].cost > 0 && seen->outcome == STINT_ALLOW &&
           ((uint64_t)seen->remaining + items[i].cost == capacity ||
            seen->remaining + all_costs == capacity) &&
           now_ns < until_of(ask->front, items[i].quota);
}

/* Holders of slots are known by their deadlines: lost ones cannot be replaced. */
static bool is_to_deny(const struct front_ask *ask, const struct backend_item *item)
{
    return ask->verb != BACKEND_CHARGE && (ask->front->options.failover_policy == FAILOVER_FULL ||
                                           item->quota->algorithm == STINT_CONCURRENCY);
}

static void deny(const struct front_ask *ask, struct stint_decision *seen,
                 const struct backend_item *item, uint64_t now_ns)
{
    uint64_t wait_ns = until_of(ask->front, item->quota) - now_ns;
    *seen = (struct stint_decision){.outcome = STINT_DENY,
                                    .stored = 1,
                                    .limit = front_capacity(item->quota),
                                    .retry_after_ns = wait_ns,
                                    .reset_after_ns = wait_ns};
}

/* Denies what looks unused, and counts what is to be charged first. True: something is denied. */
static bool look(struct front_ask *ask, uint64_t now_ns)
{
    struct front_failover_work *cautious = ask->cautious;
    bool is_denied = false;
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct backend_item *item = &cautious->items[i];
        struct stint_decision *seen = &ask->each[i];
        if (!is_unused(ask, i, now_ns))
            continue;
        if (is_to_deny(ask, item)) {
            deny(ask, seen, item, now_ns);
            is_denied = true;
            continue;
        }
        uint32_t capacity = front_capacity(item->quota);
        bool is_half = ask->front->options.failover_policy == FAILOVER_HALF;
        cautious->unused[cautious->n_unused] = *item;
        cautious->unused[cautious->n_unused++].cost =
            is_half ? capacity / 2 + capacity % 2 : capacity;
    }
    return is_denied;
}

/* In a list that is denied, nothing was taken of the others either. */
static void untake(struct front_ask *ask)
{
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct backend_item *item = &ask->cautious->items[i];
        struct stint_decision *seen = &ask->each[i];
        if (seen->outcome != STINT_ALLOW)
            continue;
        uint64_t remaining = (uint64_t)seen->remaining + item->cost;
        seen->remaining = (uint32_t)min_u64(remaining, front_capacity(item->quota));
        seen->granted = 0;
    }
}

/* The next request; NULL: the last answer is final. */
static const struct backend_request *next_step(struct front_ask *ask, uint64_t now_ns)
{
    struct front_failover_work *cautious = ask->cautious;
    struct backend_answer *answer = &ask->inner.answer;
    if (answer->outcome != BACKEND_DECIDED || cautious->step == STEP_ASK || ask->op == NULL)
        return NULL;
    if (cautious->step == STEP_LOOK) {
        bool is_denied = look(ask, now_ns);
        if (is_denied || cautious->n_unused > 0)
            backend_metric_up(&ask->front->metrics->cautious);
        if (is_denied && ask->verb != BACKEND_PEEK)
            untake(ask);
        if (is_denied) {
            answer->sum = front_sum(ask->each, ask->n_items);
            ask->is_cached = false; /* the algorithm does not deny it */
        }
        if (is_denied || ask->verb == BACKEND_PEEK)
            return NULL;
    }
    bool is_charging = cautious->step == STEP_LOOK && cautious->n_unused > 0;
    cautious->step = is_charging ? STEP_CHARGE : STEP_ASK;
    cautious->step_asked = cautious->asked;
    cautious->step_asked.now_ns = now_ns;
    cautious->step_asked.is_ahead = false;
    if (is_charging) {
        cautious->step_asked.verb = BACKEND_CHARGE;
        cautious->step_asked.id = NULL;
        cautious->step_asked.is_ticket = false;
        cautious->step_asked.items = cautious->unused;
        cautious->step_asked.n_items = cautious->n_unused;
    }
    return &cautious->step_asked;
}

bool front_go_on(struct front_ask *ask, uint64_t now_ns)
{
    const struct backend_request *next = NULL;
    while (ask->cautious != NULL && (next = next_step(ask, now_ns)) != NULL)
        if (front_send(ask, next))
            return true;
    return false;
}

bool front_begin_failover(struct front_ask *ask, const struct backend_request *asked)
{
    struct front_failover_work *cautious = ask->cautious = copy_of(asked);
    if (cautious == NULL) {
        ask->inner.answer = (struct backend_answer){
            .outcome = BACKEND_FAILED, .error = "no memory for a request to the store"};
        return false;
    }
    cautious->step_asked = cautious->asked;
    cautious->step_asked.verb = BACKEND_PEEK;
    cautious->step_asked.id = NULL;
    cautious->step_asked.is_ticket = false;
    return front_send(ask, &cautious->step_asked) || front_go_on(ask, asked->now_ns);
}
