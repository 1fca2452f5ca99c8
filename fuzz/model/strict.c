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

static size_t n_dead(const struct model *model, uint64_t at_ns)
{
    size_t n = 0;
    while (n < model->n_groups && model->law->group_end(model, &model->groups[n]) <= at_ns)
        n++;
    return n;
}

static uint64_t room(const struct model *model, uint64_t now_ns)
{
    uint64_t free = model->capacity;
    size_t alive = n_dead(model, own_time(model, now_ns));
    for (size_t i = alive; i < model->n_groups; i++) {
        MUST(model->groups[i].units <= free);
        free -= model->groups[i].units;
    }
    return alive < model->n_groups ? free + model->unused : free;
}

/* Tries the end of each group in turn. */
static uint64_t wait(const struct model *model, uint64_t now_ns, uint64_t cost)
{
    for (size_t i = 0; i < model->n_groups; i++) {
        uint64_t end_ns = model->law->group_end(model, &model->groups[i]);
        if (end_ns > now_ns && room(model, end_ns) >= cost)
            return end_ns - now_ns;
    }
    MUST(cost > model->capacity); /* else it fits once all groups are back */
    return 0;
}

static uint64_t dies_at(const struct model *model, uint64_t now_ns)
{
    (void)now_ns;
    if (model->n_groups == 0)
        return model->begin_ns;
    return model->law->group_end(model, &model->groups[model->n_groups - 1]);
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
    model_forget(model, n_dead(model, at_ns));
    if (model->n_groups == 0)
        model->unused = 0;
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

const struct model_law model_window = {
    .room = room,
    .wait = wait,
    .spend = window_spend,
    .dies_at = dies_at,
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
    model_forget(model, n_dead(model, at_ns));
    for (; units > 0; units--) {
        struct model_group *newest =
            model->n_groups > 0 ? &model->groups[model->n_groups - 1] : NULL;
        bool timed_out = newest != NULL && quota->time_slack_ns > 0 &&
                         at_ns >= newest->first_ns + quota->time_slack_ns;
        bool is_full =
            newest != NULL && quota->count_slack > 0 && newest->units >= quota->count_slack;
        if (newest == NULL || timed_out || is_full)
            newest = open_group(model, (struct model_group){.first_ns = at_ns});
        newest->last_ns = at_ns;
        /* One at a time is the law; many at once is the same, as long as the bucket is not full. */
        uint64_t more = quota->count_slack > 0 ? quota->count_slack - newest->units : units;
        more = more < units ? more : units;
        newest->units += more;
        units -= more - 1;
    }
    MUST(model->n_groups <= quota->derived.max_buckets);
}

const struct model_law model_buckets = {
    .room = room,
    .wait = wait,
    .spend = buckets_spend,
    .dies_at = dies_at,
    .group_end = period_later,
};

/* ---- log ------------------------------------------------------------------------------------- */

static void log_spend(struct model *model, uint64_t now_ns, uint64_t units)
{
    uint64_t at_ns = own_time(model, now_ns);
    model_forget(model, n_dead(model, at_ns));
    struct model_group use = {.last_ns = at_ns, .units = units};
    if (model->n_groups > 0 && model->groups[model->n_groups - 1].last_ns == at_ns)
        model->groups[model->n_groups - 1].units += units;
    else
        open_group(model, use);
    model->begin_ns = at_ns;
}

/* Exact entries; or, for a grant just now, the newest. */
static uint64_t log_refund(struct model *model, const struct stint_ask *ask)
{
    uint64_t at_ns = own_time(model, ask->now_ns), left = ask->cost;
    size_t first = n_dead(model, at_ns);
    for (size_t i = model->n_groups; i > first && left > 0; i--) {
        struct model_group *group = &model->groups[i - 1];
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

const struct model_law model_log = {
    .room = room,
    .wait = wait,
    .spend = log_spend,
    .dies_at = dies_at,
    .refund = log_refund,
    .group_end = period_later,
};
