/* SPDX-License-Identifier: MIT */
#include "backend/front/lease_waiter.h"

struct lease_waiter *lease_waiter_new(struct lease *lease, enum lease_waiting kind,
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

bool lease_is_waiter(const struct lease *lease, const void *at_work)
{
    uintptr_t begin = (uintptr_t)lease->waiters, place = (uintptr_t)at_work;
    return place - begin < lease->options.waiting * sizeof(struct lease_waiter);
}

void lease_waiter_enqueue(struct lease_key *key, struct lease_waiter *waiter)
{
    waiter->key = key;
    waiter->previous = key->last;
    *(key->last != NULL ? &key->last->next : &key->first) = waiter;
    key->last = waiter;
    key->waiting += waiter->cost;
    key->home->earliest_ns = min_u64(key->home->earliest_ns, waiter->deadline_ns);
}

void lease_waiter_free(struct lease_waiter *waiter)
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
    waiter->op = NULL;
    waiter->next = lease->free_waiters;
    lease->free_waiters = waiter;
}

void lease_fill(struct backend_op *op, const struct backend_answer *answer)
{
    struct stint_decision *each = op->answer.each;
    op->answer = *answer;
    op->answer.each = each;
    if (answer->outcome == BACKEND_DECIDED)
        each[0] = answer->sum;
}

void lease_waiter_tell(struct lease_waiter *waiter, const struct backend_answer *answer,
                       uint64_t now_ns)
{
    struct backend_op *op = waiter->op;
    bool is_new = waiter->is_new;
    lease_waiter_free(waiter);
    lease_fill(op, answer);
    if (!is_new)
        op->answered(op, now_ns);
}

uint64_t lease_waiters_latest(const struct lease_key *key, uint64_t deadline_ns)
{
    for (const struct lease_waiter *waiter = key->first; waiter != NULL; waiter = waiter->next)
        deadline_ns = max_u64(deadline_ns, waiter->deadline_ns);
    return deadline_ns;
}

bool lease_waiter_serve(struct lease_waiter *waiter, uint64_t now_ns)
{
    struct backend_answer answer = {.outcome = BACKEND_WAITS};
    uint64_t served_ns = lease_now(waiter->home);
    lease_drop_ended(waiter->key, served_ns);
    if (!lease_serve(waiter->key, waiter->verb, waiter->cost, served_ns, &answer))
        return false;
    lease_waiter_tell(waiter, &answer, now_ns);
    return true;
}

/* It is served where enough is held: an earlier one may have been too large. */
static void tell_or_serve(struct lease_waiter *waiter, const struct backend_answer *answer,
                          uint64_t now_ns)
{
    bool is_held = waiter->cost <= lease_left(waiter->key);
    if (!is_held || !lease_waiter_serve(waiter, now_ns))
        lease_waiter_tell(waiter, answer, now_ns);
}

void lease_waiters_tell(struct lease_key *key, uint32_t least, const struct backend_answer *answer,
                        uint64_t now_ns)
{
    struct lease *lease = key->home;
    const struct backend_answer given = *answer;
    uint64_t before = lease->turns;
    struct lease_waiter *waiter = key->first;
    while (waiter != NULL && waiter->turn <= before) {
        struct lease_waiter *next = waiter->next;
        uint64_t turn = lease->turns;
        if (waiter->cost >= least)
            tell_or_serve(waiter, &given, now_ns);
        waiter = lease->turns == turn ? next : key->first;
    }
}

static bool waits(const struct lease_waiter *waiter)
{
    return waiter->kind == LEASE_WAITS && waiter->op != NULL;
}

void lease_waiters_expire(struct lease *lease, uint64_t now_ns)
{
    static const struct backend_answer late = {.outcome = BACKEND_FAILED,
                                               .fault = BACKEND_ERROR_LATE,
                                               .error = "no lease has come in time"};
    if (now_ns < lease->earliest_ns)
        return;
    lease->earliest_ns = STINT_NEVER_NS;
    for (size_t i = 0; i < lease->options.waiting; i++) {
        struct lease_waiter *waiter = &lease->waiters[i];
        if (waits(waiter) && waiter->deadline_ns <= now_ns)
            tell_or_serve(waiter, &late, now_ns);
        if (waits(waiter))
            lease->earliest_ns = min_u64(lease->earliest_ns, waiter->deadline_ns);
    }
}
