/* SPDX-License-Identifier: MIT */
/* window, buckets and log: lists of groups of units that come back together. */
#include "model/model.h"

#include "bytes.h"

/* What has been written is not forgotten by a late clock. */
static uint64_t own_time(const struct model *model, uint64_t now_ns)
{
    uint64_t latest_ns = model->begin_ns;
    if (model->n_groups > 0 && model->groups[model->n_groups - 1].last_ns > latest_ns)
        latest_ns = model->groups[model->n_groups - 1].last_ns;
    return now_ns > latest_ns ? now_ns : latest_ns;
}

static size_t n_expired(const struct model *model, uint64_t at_ns)
{
    size_t n = 0;
    while (n < model->n_groups && model->algorithm->group_end(model, &model->groups[n]) <= at_ns)
        n++;
    return n;
}

static uint64_t space(const struct model *model, uint64_t now_ns)
{
    uint64_t free = model->capacity;
    size_t alive = n_expired(model, own_time(model, now_ns));
    for (size_t i = alive; i < model->n_groups; i++) {
        MUST(model->groups[i].units <= free);
        free -= model->groups[i].units;
    }
    free += alive < model->n_groups ? model->unused : 0;
    uint64_t displaced = alive == 0 ? model->displaced : 0;
    return free > displaced ? free - displaced : 0;
}

/* Forgets the groups that are dead at this time, and with the first of them what was displaced. */
static void forget_expired(struct model *model, uint64_t at_ns)
{
    size_t expired = n_expired(model, at_ns);
    model_forget(model, expired);
    if (expired > 0)
        model->displaced = 0;
    if (model->n_groups == 0)
        model->unused = 0;
}

/* Units for which no group stands. */
static uint64_t vacant(const struct model *model)
{
    uint64_t units = model->capacity + model->unused;
    for (size_t i = 0; i < model->n_groups; i++)
        units -= model->groups[i].units;
    return units;
}

/* Of a charge, what the groups can hold; its rest, and what they held before, is displaced. */
static uint64_t make_space(struct model *model, uint64_t units)
{
    uint64_t kept = units < model->capacity ? units : model->capacity, free = vacant(model);
    uint64_t over = kept > free ? kept - free : 0;
    model->displaced += units - kept + over;
    while (over > 0) {
        struct model_group *oldest = &model->groups[0];
        uint64_t taken = over < oldest->units ? over : oldest->units;
        oldest->units -= taken;
        over -= taken;
        if (oldest->units == 0)
            model_forget(model, 1);
    }
    return kept;
}

/* Tries the end of each group in turn. */
static uint64_t wait(const struct model *model, uint64_t now_ns, uint64_t cost)
{
    for (size_t i = 0; i < model->n_groups; i++) {
        uint64_t end_ns = model->algorithm->group_end(model, &model->groups[i]);
        if (end_ns > now_ns && space(model, end_ns) >= cost)
            return end_ns - now_ns;
    }
    MUST(cost > model->capacity); /* else it fits once all groups are back */
    return 0;
}

static uint64_t expires_at(const struct model *model, uint64_t now_ns)
{
    (void)now_ns;
    if (model->n_groups == 0)
        return model->begin_ns;
    return model->algorithm->group_end(model, &model->groups[model->n_groups - 1]);
}

static struct model_group *open_group(struct model *model, struct model_group group)
{
    MUST(model->n_groups < MODEL_GROUPS_MAX);
    model->groups[model->n_groups] = group;
    return &model->groups[model->n_groups++];
}

/* ---- window ---------------------------------------------------------------------------------- */

static uint64_t slot_of(const struct model *model, uint64_t at_ns)
{
    unsigned __int128 product = (unsigned __int128)at_ns * model->quota->resolution;
    return (uint64_t)(product / model->quota->period_ns);
}

static uint64_t slot_begin(const struct model *model, uint64_t slot)
{
    unsigned __int128 product = (unsigned __int128)slot * model->quota->period_ns;
    unsigned resolution = model->quota->resolution;
    return (uint64_t)((product + resolution - 1) / resolution);
}

static uint64_t bunch_end(const struct model *model, const struct model_group *bunch)
{
    return slot_begin(model, bunch->slot + model->quota->resolution + 1);
}

static void move_bunch(const struct model *model, struct model_group *bunch, uint64_t slot)
{
    bunch->slot = slot;
    bunch->last_ns = slot_begin(model, slot);
}

/* Full bunches first, then the short one, of which at most one is alive. */
static uint64_t next_bunch(const struct model *model)
{
    uint64_t slots = model->quota->resolution;
    uint64_t size = (model->capacity + slots - 1) / slots, n_full = 0;
    for (size_t i = 0; i < model->n_groups; i++)
        n_full += model->groups[i].units == size;
    return n_full < model->capacity / size ? size : model->capacity % size;
}

static void window_spend(struct model *model, uint64_t now_ns, uint64_t units)
{
    uint64_t at_ns = own_time(model, now_ns), slot = slot_of(model, at_ns);
    forget_expired(model, at_ns);
    for (;;) {
        if (model->unused > 0)
            move_bunch(model, &model->groups[model->n_groups - 1], slot);
        uint64_t used = units < model->unused ? units : model->unused;
        model->unused -= used;
        units -= used;
        if (units == 0)
            return;
        uint64_t size = next_bunch(model);
        MUST(size > 0);
        move_bunch(model, open_group(model, (struct model_group){.units = size}), slot);
        model->unused = size;
    }
}

/* Each of the oldest bunches is opened once more, in this slot, until the charge is in. */
static void window_charge(struct model *model, uint64_t now_ns, uint64_t units)
{
    uint64_t at_ns = own_time(model, now_ns);
    forget_expired(model, at_ns);
    uint64_t free = vacant(model), fitting = units < free ? units : free;
    if (fitting > 0)
        window_spend(model, now_ns, fitting);
    units -= fitting;
    for (size_t turns = model->n_groups; turns > 0 && units > 0; turns--) {
        struct model_group bunch = model->groups[0];
        model_forget(model, 1);
        move_bunch(model, open_group(model, bunch), slot_of(model, at_ns));
        uint64_t used = units < bunch.units ? units : bunch.units;
        model->unused = bunch.units - used;
        model->displaced += bunch.units;
        units -= used;
    }
    model->displaced += units;
}

const struct model_algorithm model_window = {
    .space = space,
    .charge = window_charge,
    .wait = wait,
    .spend = window_spend,
    .expires_at = expires_at,
    .group_end = bunch_end,
};

/* ---- buckets --------------------------------------------------------------------------------- */

static uint64_t period_later(const struct model *model, const struct model_group *group)
{
    return group->last_ns + model->quota->period_ns;
}

static void buckets_spend(struct model *model, uint64_t now_ns, uint64_t units)
{
    const struct stint_quota *quota = model->quota;
    uint64_t at_ns = own_time(model, now_ns);
    forget_expired(model, at_ns);
    for (; units > 0; units--) {
        struct model_group *newest =
            model->n_groups > 0 ? &model->groups[model->n_groups - 1] : NULL;
        bool timed_out = newest != NULL && quota->time_slack_ns > 0 &&
                         at_ns >= newest->first_ns + quota->time_slack_ns;
        bool is_full =
            newest != NULL && quota->count_slack > 0 && newest->units >= quota->count_slack;
        bool opens = newest == NULL || timed_out || is_full;
        if (opens && model->n_groups == quota->derived.max_buckets) {
            model->displaced += model->groups[0].units;
            model_forget(model, 1);
        }
        if (opens)
            newest = open_group(model, (struct model_group){.first_ns = at_ns});
        newest->last_ns = at_ns;
        /* One at a time is the algorithm; many at once is the same, as long as the bucket is not
         * full. */
        uint64_t more = quota->count_slack > 0 ? quota->count_slack - newest->units : units;
        more = more < units ? more : units;
        newest->units += more;
        units -= more - 1;
    }
    MUST(model->n_groups <= quota->derived.max_buckets);
}

static void buckets_charge(struct model *model, uint64_t now_ns, uint64_t units)
{
    uint64_t at_ns = own_time(model, now_ns);
    forget_expired(model, at_ns);
    buckets_spend(model, at_ns, make_space(model, units));
}

const struct model_algorithm model_buckets = {
    .space = space,
    .charge = buckets_charge,
    .wait = wait,
    .spend = buckets_spend,
    .expires_at = expires_at,
    .group_end = period_later,
};

/* ---- log ------------------------------------------------------------------------------------- */

static void log_spend(struct model *model, uint64_t now_ns, uint64_t units)
{
    uint64_t at_ns = own_time(model, now_ns);
    forget_expired(model, at_ns);
    struct model_group use = {.last_ns = at_ns, .units = units};
    if (model->n_groups > 0 && model->groups[model->n_groups - 1].last_ns == at_ns)
        model->groups[model->n_groups - 1].units += units;
    else
        open_group(model, use);
    model->begin_ns = at_ns;
}

static void log_charge(struct model *model, uint64_t now_ns, uint64_t units)
{
    uint64_t at_ns = own_time(model, now_ns);
    forget_expired(model, at_ns);
    log_spend(model, at_ns, make_space(model, units));
}

/* Units that were displaced are as old as the oldest, or older. */
static void give_back_displaced(struct model *model, uint64_t granted_ns, uint64_t *left)
{
    if (granted_ns > model->groups[0].last_ns)
        return;
    uint64_t back = *left < model->displaced ? *left : model->displaced;
    model->displaced -= back;
    *left -= back;
}

/* Exact entries; or, for a grant just now, the newest. */
static uint64_t log_refund(struct model *model, const struct stint_ask *ask)
{
    uint64_t at_ns = own_time(model, ask->now_ns), left = ask->cost;
    size_t first = n_expired(model, at_ns);
    bool is_dated = ask->at_ns != STINT_NEVER_NS;
    bool is_alive = is_dated && ask->at_ns <= at_ns && ask->at_ns + model->quota->period_ns > at_ns;
    if (is_alive && first == 0 && model->n_groups > 0)
        give_back_displaced(model, ask->at_ns, &left);
    for (size_t i = model->n_groups; i > first && left > 0; i--) {
        struct model_group *group = &model->groups[i - 1];
        if (!is_dated && first == 0)
            give_back_displaced(model, group->last_ns, &left);
        if (ask->at_ns != STINT_NEVER_NS && ask->at_ns != group->last_ns)
            continue;
        uint64_t taken = group->units < left ? group->units : left;
        group->units -= taken;
        left -= taken;
    }
    size_t kept = 0;
    for (size_t i = 0; i < model->n_groups; i++)
        if (model->groups[i].units > 0)
            model->groups[kept++] = model->groups[i];
    model->n_groups = kept;
    return ask->cost - left;
}

const struct model_algorithm model_log = {
    .space = space,
    .wait = wait,
    .spend = log_spend,
    .charge = log_charge,
    .expires_at = expires_at,
    .refund = log_refund,
    .group_end = period_later,
};
