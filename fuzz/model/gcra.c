/* SPDX-License-Identifier: MIT */
/* gcra: the algorithm as stated, in 1/32 ns, with numbers that cannot overflow. */
#include "model/model.h"

typedef unsigned __int128 ticks;

static ticks interval(const struct model *model)
{
    uint64_t limit = model->quota->limit;
    return ((ticks)model->quota->period_ns * 32 + limit - 1) / limit;
}

static ticks ahead(const struct model *model, uint64_t now_ns)
{
    ticks now = (ticks)now_ns * 32;
    return model->tat > now ? model->tat - now : 0;
}

static uint64_t space(const struct model *model, uint64_t now_ns)
{
    ticks capacity = model->capacity * interval(model), debt = ahead(model, now_ns);
    return debt < capacity ? (uint64_t)((capacity - debt) / interval(model)) : 0;
}

static bool in_debt(const struct model *model, uint64_t now_ns)
{
    return ahead(model, now_ns) > model->capacity * interval(model);
}

static uint64_t wait(const struct model *model, uint64_t now_ns, uint64_t cost)
{
    ticks missing =
        ahead(model, now_ns) + cost * interval(model) - model->capacity * interval(model);
    return (uint64_t)((missing + 31) / 32);
}

static void spend(struct model *model, uint64_t now_ns, uint64_t units)
{
    ticks now = (ticks)now_ns * 32;
    model->tat = (model->tat > now ? model->tat : now) + units * interval(model);
}

/* Down to one capacity below zero, or as deep as a TAT in one word can say. */
static uint64_t chargeable(const struct model *model, uint64_t now_ns)
{
    ticks deepest = 2 * model->capacity * interval(model), debt = ahead(model, now_ns);
    ticks word = UINT64_MAX - (ticks)now_ns * 32;
    deepest = deepest < word ? deepest : word;
    return debt < deepest ? (uint64_t)((deepest - debt) / interval(model)) : 0;
}

static uint64_t expires_at(const struct model *model, uint64_t now_ns)
{
    (void)now_ns;
    return (uint64_t)((model->tat + 31) / 32);
}

/* What is in debt gives nothing back: it may be a place that was booked and has not begun. */
static uint64_t refund(struct model *model, const struct stint_ask *ask)
{
    ticks back = ask->cost * interval(model), debt = ahead(model, ask->now_ns);
    ticks flowed = ask->now_ns > ask->at_ns ? (ticks)(ask->now_ns - ask->at_ns) * 32 : 0;
    back = back > flowed ? back - flowed : 0;
    back = back < debt ? back : debt;
    if (debt > model->capacity * interval(model))
        back = 0;
    model->tat -= back;
    uint64_t units = (uint64_t)(back / interval(model));
    return units < ask->cost ? units : ask->cost;
}

const struct model_algorithm model_gcra = {
    .space = space,
    .in_debt = in_debt,
    .wait = wait,
    .spend = spend,
    .chargeable = chargeable,
    .expires_at = expires_at,
    .refund = refund,
};
