/* SPDX-License-Identifier: MIT */
/* The verbs, told by the questions that each algorithm answers. */
#include "model/model.h"

#include "bytes.h"

static const struct model_algorithm *const algorithms[] = {
    [STINT_WINDOW] = &model_window,
    [STINT_BUCKETS] = &model_buckets,
    [STINT_LOG] = &model_log,
    [STINT_GCRA] = &model_gcra,
    [STINT_FIXED_WINDOW] = &model_fixed_window,
    [STINT_SLIDING_COUNTER] = &model_sliding_counter,
};

void model_init(struct model *model, const struct stint_quota *quota)
{
    memset(model, 0, sizeof(*model));
    model->quota = quota;
    model->algorithm = algorithms[quota->algorithm];
    model->capacity = quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
}

void model_forget(struct model *model, size_t n_groups)
{
    MUST(n_groups <= model->n_groups);
    model->n_groups -= n_groups;
    memmove(model->groups, model->groups + n_groups, model->n_groups * sizeof(model->groups[0]));
}

uint64_t model_bound(const struct stint_quota *quota)
{
    uint64_t limit = quota->limit;
    if (limit == 0)
        return 0;
    if (quota->algorithm == STINT_FIXED_WINDOW)
        return 2 * limit;
    if (quota->algorithm == STINT_SLIDING_COUNTER)
        return 2 * limit - 1;
    if (quota->algorithm != STINT_GCRA)
        return limit;
    unsigned __int128 period = (unsigned __int128)quota->period_ns * 32;
    unsigned __int128 interval = (period + limit - 1) / limit;
    return quota->burst + (uint64_t)((period + interval - 1) / interval) - 1;
}

static uint64_t chargeable(const struct model *model, uint64_t now_ns)
{
    const struct model_algorithm *algorithm = model->algorithm;
    return algorithm->chargeable != NULL ? algorithm->chargeable(model, now_ns) : model->capacity;
}

static void spend(struct model *model, uint64_t now_ns, uint64_t units,
                  const struct stint_decision *real)
{
    if (units == 0)
        return;
    model->algorithm->spend(model, now_ns, units);
    if (model->quota->align != STINT_ALIGN_FIRST_USE || model->begin_ns != now_ns ||
        model->current != units)
        return;
    uint64_t real_end_ns = now_ns + real->reset_after_ns;
    MUST(real_end_ns >= model->end_ns);
    MUST(real_end_ns - model->end_ns < 2 * model->quota->derived.grain_ns);
    model->end_ns = real_end_ns;
}

static struct stint_decision answer(const struct model *model, uint8_t outcome, uint64_t granted,
                                    const struct stint_ask *ask)
{
    uint64_t expires_ns = model->algorithm->expires_at(model, ask->now_ns);
    return (struct stint_decision){
        .outcome = outcome,
        .granted = (uint32_t)granted,
        .limit = (uint32_t)model->capacity,
        .remaining = (uint32_t)model->algorithm->space(model, ask->now_ns),
        .reset_after_ns = expires_ns > ask->now_ns ? expires_ns - ask->now_ns : 0,
    };
}

static struct stint_decision take(struct model *model, const struct stint_ask *ask,
                                  const struct stint_decision *real)
{
    uint64_t now_ns = ask->now_ns;
    if (ask->cost > model->capacity) {
        struct stint_decision never = answer(model, STINT_NEVER, 0, ask);
        never.retry_after_ns = STINT_NEVER_NS;
        return never;
    }
    bool in_debt = model->algorithm->in_debt != NULL && model->algorithm->in_debt(model, now_ns);
    if (ask->cost <= model->algorithm->space(model, now_ns) && !in_debt) {
        spend(model, now_ns, ask->cost, real);
        return answer(model, STINT_ALLOW, ask->cost, ask);
    }
    if (model->quota->count_denied && ask->verb == STINT_TAKE) {
        uint64_t most = chargeable(model, now_ns);
        spend(model, now_ns, ask->cost < most ? ask->cost : most, real);
    }
    struct stint_decision deny = answer(model, STINT_DENY, 0, ask);
    deny.retry_after_ns = model->algorithm->wait(model, now_ns, ask->cost);
    return deny;
}

struct stint_decision model_ask(struct model *model, const struct stint_ask *ask,
                                const struct stint_decision *real)
{
    static struct model scratch;
    struct stint_ask less = *ask;
    uint64_t space = model->algorithm->space(model, ask->now_ns);
    switch (ask->verb) {
    case STINT_PEEK:
        scratch = *model;
        return take(&scratch, ask, real);
    case STINT_TAKE_UPTO:
        if (ask->cost > 0 && space == 0) {
            struct stint_decision deny = answer(model, STINT_DENY, 0, ask);
            deny.retry_after_ns = model->algorithm->wait(model, ask->now_ns, 1);
            return deny;
        }
        less.cost = ask->cost < space ? ask->cost : (uint32_t)space;
        return take(model, &less, real);
    case STINT_CHARGE: {
        uint64_t most = chargeable(model, ask->now_ns);
        uint64_t units = ask->cost < most ? ask->cost : most;
        if (model->algorithm->charge != NULL && ask->cost > 0)
            model->algorithm->charge(model, ask->now_ns, ask->cost);
        else
            spend(model, ask->now_ns, units, real);
        return answer(model, STINT_ALLOW, units, ask);
    }
    case STINT_REFUND: {
        uint64_t units = model->algorithm->refund(model, ask);
        return answer(model, STINT_ALLOW, units, ask);
    }
    default:
        MUST(ask->verb == STINT_TAKE);
        return take(model, ask, real);
    }
}
