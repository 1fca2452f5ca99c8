/* SPDX-License-Identifier: MIT */
/* A bounded FIFO of callers that wait for units. Time is an argument; nothing sleeps here. */
#include "table/table.h"

#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX

struct waiter {
    uint64_t deadline_ns;
    uint32_t cost;
    uint32_t before, after; /* in the line, or in the list of free entries */
    uint32_t turn;          /* counted up at each use, so that an old id matches no waiter */
    bool waits;
};

struct stint_waiters {
    uint32_t first, last, free_list;
    uint64_t earliest_ns; /* no deadline is earlier */
    size_t max;
    struct waiter line[];
};

struct stint_waiters *stint_waiters_new(size_t waiters_max)
{
    struct stint_waiters *waiters;
    if (waiters_max == 0 || waiters_max >= NONE ||
        waiters_max > (SIZE_MAX - sizeof(*waiters)) / sizeof(waiters->line[0]))
        return NULL;
    waiters = calloc(1, sizeof(*waiters) + waiters_max * sizeof(waiters->line[0]));
    if (waiters == NULL)
        return NULL;
    waiters->first = waiters->last = NONE;
    waiters->earliest_ns = STINT_NEVER_NS;
    waiters->max = waiters_max;
    for (size_t i = 0; i < waiters_max; i++)
        waiters->line[i].after = i + 1 < waiters_max ? (uint32_t)i + 1 : NONE;
    return waiters;
}

void stint_waiters_free(struct stint_waiters *waiters)
{
    free(waiters);
}

/* The line has both ends or none, and no deadline in it is before the earliest. */
static __attribute__((unused)) bool waiters_is_valid(const struct stint_waiters *waiters)
{
    bool is_empty = waiters->first == NONE;
    return is_empty == (waiters->last == NONE) && waiters->max > 0 &&
           (is_empty ? waiters->earliest_ns == STINT_NEVER_NS
                     : waiters->first < waiters->max && waiters->last < waiters->max &&
                           waiters->line[waiters->first].before == NONE &&
                           waiters->line[waiters->last].after == NONE) &&
           (waiters->free_list == NONE || !waiters->line[waiters->free_list].waits);
}

static uint64_t id_of(const struct stint_waiters *waiters, uint32_t at)
{
    assert(at < waiters->max);
    return ((uint64_t)waiters->line[at].turn << 32) | (at + 1u);
}

int stint_waiters_add(struct stint_waiters *waiters, uint32_t cost, uint64_t deadline_ns,
                      uint64_t *id)
{
    assert(waiters_is_valid(waiters));
    uint32_t at = waiters->free_list;
    if (at == NONE)
        return STINT_E_FULL;
    struct waiter *waiter = &waiters->line[at];
    waiters->free_list = waiter->after;
    *waiter = (struct waiter){.deadline_ns = deadline_ns,
                              .cost = cost,
                              .before = waiters->last,
                              .after = NONE,
                              .turn = waiter->turn + 1,
                              .waits = true};
    if (waiters->last != NONE)
        waiters->line[waiters->last].after = at;
    else
        waiters->first = at;
    waiters->last = at;
    waiters->earliest_ns = min_u64(waiters->earliest_ns, deadline_ns);
    assert(waiters_is_valid(waiters));
    *id = id_of(waiters, at);
    return 0;
}

static void take_out(struct stint_waiters *waiters, uint32_t at)
{
    assert(waiters_is_valid(waiters));
    assert(at < waiters->max && waiters->line[at].waits);
    struct waiter *waiter = &waiters->line[at];
    if (waiter->before != NONE)
        waiters->line[waiter->before].after = waiter->after;
    else
        waiters->first = waiter->after;
    if (waiter->after != NONE)
        waiters->line[waiter->after].before = waiter->before;
    else
        waiters->last = waiter->before;
    waiter->waits = false;
    waiter->after = waiters->free_list;
    waiters->free_list = at;
    if (waiters->first == NONE)
        waiters->earliest_ns = STINT_NEVER_NS;
    assert(waiters_is_valid(waiters));
}

int stint_waiters_cancel(struct stint_waiters *waiters, uint64_t id)
{
    assert(waiters_is_valid(waiters));
    uint64_t at = (id & UINT32_MAX) - 1;
    if (at >= waiters->max || !waiters->line[at].waits || id_of(waiters, (uint32_t)at) != id)
        return STINT_E_GONE;
    take_out(waiters, (uint32_t)at);
    return 0;
}

/* The first in line whose deadline has passed; also recomputes the earliest deadline. */
static uint32_t find_expired(struct stint_waiters *waiters, uint64_t now_ns)
{
    assert(waiters_is_valid(waiters));
    uint64_t earliest_ns = STINT_NEVER_NS;
    if (waiters->earliest_ns > now_ns)
        return NONE;
    for (uint32_t at = waiters->first; at != NONE; at = waiters->line[at].after) {
        if (waiters->line[at].deadline_ns <= now_ns)
            return at;
        earliest_ns = min_u64(earliest_ns, waiters->line[at].deadline_ns);
    }
    waiters->earliest_ns = earliest_ns;
    return NONE;
}

struct stint_wake stint_waiters_wake(struct stint_waiters *waiters, struct stint_table *table,
                                     const struct stint_quota *quota, const void *key,
                                     size_t key_len, uint64_t now_ns)
{
    assert(waiters_is_valid(waiters));
    struct stint_wake wake = {.next_ns = STINT_NEVER_NS};
    uint32_t expired = find_expired(waiters, now_ns);
    if (expired != NONE) {
        wake.id = id_of(waiters, expired);
        wake.expired = true;
        wake.next_ns = now_ns;
        take_out(waiters, expired);
        return wake;
    }
    uint32_t head = waiters->first;
    if (head == NONE)
        return wake;
    wake.decision = stint_take(table, quota, key, key_len, waiters->line[head].cost, now_ns);
    if (wake.decision.outcome == STINT_DENY) {
        wake.next_ns = min_u64(add_sat(now_ns, wake.decision.retry_after_ns), waiters->earliest_ns);
        return wake;
    }
    /* Granted, or a cost that never fits: in both cases its wait is over. */
    wake.id = id_of(waiters, head);
    wake.next_ns = now_ns;
    take_out(waiters, head);
    return wake;
}
