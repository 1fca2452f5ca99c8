/* SPDX-License-Identifier: MIT */
/*
 * Adversaries: each one uses the weak times of its algorithm. A plan is a list of steps; in each
 * the adversary requests single units from a time on, again at once when it is allowed, and at the
 * promised time if it is denied, until the step is over. Between two plans it idles for two periods
 * and more, so that every plan starts with a state that was never used.
 */
#include "sim/workload/workload_parts.h"

#include "algorithm/calendar.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>

#define CLOCK_STEP_ONE_IN 8
#define CLOCK_IDLE_ONE_IN 64

static void add_step(struct workload_plan *plan, struct workload_step step)
{
    assert(plan->n_steps < WORKLOAD_STEPS_MAX);
    plan->steps[plan->n_steps++] = step;
}

/* The first edge after a time at which a fixed window begins. */
static uint64_t edge_after(const struct stint_quota *quota, uint64_t at_ns)
{
    int64_t wall_ns = quota->epoch_ns + (int64_t)at_ns;
    if (quota->algorithm != STINT_FIXED_WINDOW || quota->align == STINT_ALIGN_FIRST_USE)
        return (at_ns / quota->period_ns + 1) * quota->period_ns;
    if (quota->align == STINT_ALIGN_EPOCH) {
        int64_t period_ns = (int64_t)quota->period_ns, since_ns = wall_ns % period_ns;
        return at_ns + (uint64_t)(period_ns - (since_ns < 0 ? since_ns + period_ns : since_ns));
    }
    struct calendar_window window =
        calendar_window_of((enum stint_align)quota->align, quota->utc_offset_s, wall_ns);
    return at_ns + (uint64_t)(window.end_ns - wall_ns);
}

/* The time slack of the quota, or a tenth of its period if it has none. */
static uint64_t slack_ns(const struct stint_quota *quota)
{
    if (quota->algorithm == STINT_WINDOW)
        return mul_div_up(quota->period_ns, 1, quota->resolution);
    if (quota->algorithm == STINT_BUCKETS && quota->time_slack_ns > 0)
        return quota->time_slack_ns;
    return quota->period_ns / 10 + 1;
}

/* All there is at the last time of a window, and on from the first of the next one. */
static void plan_edge(struct workload *workload, uint64_t from_ns)
{
    uint64_t edge_ns = edge_after(&workload->quota, from_ns);
    uint64_t period_ns = workload->quota.period_ns;
    add_step(&workload->plan, (struct workload_step){edge_ns - 1, edge_ns, 0});
    add_step(&workload->plan, (struct workload_step){edge_ns, edge_ns + 2 * period_ns, 0});
}

/*
 * One unit opens a bucket, the rest comes at the bucket's last time: an algorithm that frees a
 * bucket a period after it was opened frees the rest too early.
 */
static void plan_late_bucket(struct workload *workload, uint64_t from_ns)
{
    const struct stint_quota *quota = &workload->quota;
    uint64_t late_ns = from_ns + slack_ns(quota) - 1, period_ns = quota->period_ns;
    add_step(&workload->plan, (struct workload_step){from_ns, late_ns, 1});
    add_step(&workload->plan, (struct workload_step){late_ns, late_ns + 1, 0});
    add_step(&workload->plan,
             (struct workload_step){from_ns + period_ns, from_ns + 3 * period_ns, 0});
}

/* The same on the slots of `window`, and a request just before, at and after every edge. */
static void plan_slot_edge(struct workload *workload, uint64_t from_ns)
{
    const struct stint_quota *quota = &workload->quota;
    uint64_t slots = quota->algorithm == STINT_WINDOW ? quota->resolution : 10;
    uint64_t first = mul_div(from_ns, slots, quota->period_ns) + 1;
    uint64_t edge_ns = mul_div_up(first, quota->period_ns, slots);
    uint64_t last_ns = mul_div_up(first + 1, quota->period_ns, slots) - 1;
    add_step(&workload->plan, (struct workload_step){edge_ns, last_ns, 1});
    add_step(&workload->plan, (struct workload_step){last_ns, last_ns + 1, 0});
    for (uint64_t slot = first + 1; slot <= first + slots + 3; slot++) {
        uint64_t at_ns = mul_div_up(slot, quota->period_ns, slots);
        for (uint64_t ns = at_ns - 1; ns <= at_ns + 1; ns++)
            add_step(&workload->plan, (struct workload_step){ns, ns + 1, 0});
    }
}

static void plan_idle_burst(struct workload *workload, uint64_t from_ns)
{
    uint64_t until_ns = from_ns + 2 * workload->quota.period_ns;
    add_step(&workload->plan, (struct workload_step){from_ns, until_ns, 0});
}

/* Requests without pause; what changes is the clock of the caller. */
static void plan_clock_steps(struct workload *workload, uint64_t from_ns)
{
    /* Not so early that the clock would be before 0. */
    from_ns = max_u64(from_ns, workload->spec.step_ns);
    uint64_t until_ns = from_ns + 20 * workload->quota.period_ns;
    add_step(&workload->plan, (struct workload_step){from_ns, until_ns, 0});
}

static void make_plan(struct workload *workload)
{
    struct workload_plan *plan = &workload->plan;
    uint64_t period_ns = workload->quota.period_ns;
    uint64_t from_ns =
        plan->ask_ns + 2 * period_ns + random_below(&workload->clients, 2 * period_ns);
    plan->n_steps = plan->step = 0;
    switch (workload->spec.kind) {
    case WORKLOAD_EDGE:
        plan_edge(workload, from_ns);
        break;
    case WORKLOAD_LATE_BUCKET:
        plan_late_bucket(workload, from_ns);
        break;
    case WORKLOAD_SLOT_EDGE:
        plan_slot_edge(workload, from_ns);
        break;
    case WORKLOAD_IDLE_BURST:
        plan_idle_burst(workload, from_ns);
        break;
    default:
        plan_clock_steps(workload, from_ns);
    }
    plan->ask_ns = plan->steps[0].from_ns;
    plan->admitted = 0;
    plan->as_told = false;
}

static void next_step(struct workload *workload)
{
    struct workload_plan *plan = &workload->plan;
    plan->admitted = 0;
    plan->as_told = false;
    if (++plan->step == plan->n_steps)
        make_plan(workload);
    else
        plan->ask_ns = max_u64(plan->ask_ns, plan->steps[plan->step].from_ns);
}

void workload_plan_begin(struct workload *workload, int64_t epoch_ns)
{
    workload->quota.epoch_ns = epoch_ns;
    make_plan(workload);
}

/* The offset of the caller's clock, ahead (or behind, modulo 2^64). */
static uint64_t clock_error_ns(struct workload *workload)
{
    if (workload->spec.kind != WORKLOAD_CLOCK_STEPS)
        return 0;
    if (random_below(&workload->clients, CLOCK_STEP_ONE_IN) == 0) {
        uint64_t step_ns = workload->spec.step_ns;
        workload->plan.clock_error_ns = random_below(&workload->clients, 2 * step_ns + 1) - step_ns;
        workload->plan.as_told = false;
    }
    return workload->plan.clock_error_ns;
}

bool workload_plan_next(struct workload *workload, struct sim_event *event)
{
    struct workload_plan *plan = &workload->plan;
    if (plan->ask_ns >= workload->end_ns)
        return false;
    uint64_t at_ns = min_u64(plan->ask_ns + clock_error_ns(workload), STINT_NOW_MAX);
    *event = (struct sim_event){
        .at_ns = at_ns, .cost = 1, .stamp = plan->stamp, .as_told = plan->as_told};
    return true;
}

void workload_plan_tell(struct workload *workload, const struct sim_event *event,
                        const struct stint_decision *decision)
{
    struct workload_plan *plan = &workload->plan;
    const struct workload_step *step = &plan->steps[plan->step];
    plan->stamp = event->stamp;
    plan->as_told = false;
    if (decision->outcome == STINT_ALLOW) {
        if (++plan->admitted == step->units)
            next_step(workload);
        return;
    }
    plan->ask_ns = add_sat(plan->ask_ns, decision->retry_after_ns);
    plan->as_told = true;
    bool idles = workload->spec.kind == WORKLOAD_CLOCK_STEPS &&
                 random_below(&workload->clients, CLOCK_IDLE_ONE_IN) == 0;
    if (idles) {
        plan->ask_ns += random_below(&workload->clients, 2 * workload->quota.period_ns);
        plan->as_told = false;
    }
    if (plan->ask_ns < step->until_ns)
        return;
    plan->ask_ns = min_u64(plan->ask_ns, max_u64(step->until_ns, step->from_ns));
    next_step(workload);
}
