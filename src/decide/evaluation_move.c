/* SPDX-License-Identifier: MIT */
/* The verbs that move units or forget them, and decide nothing: each target by itself. */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"
#include "rules/ban.h"

#include <assert.h>

/* ---- The time of a charge -------------------------------------------------------------------- */

/* The latest time at which a state in the table was charged, or now. */
static uint64_t latest_entered(const struct evaluation *evaluation)
{
    const struct stint_ask ask = {.now_ns = evaluation->now_ns, .verb = STINT_PEEK};
    uint64_t latest_ns = evaluation->now_ns;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        struct undo undo;
        if (target->part == TARGET_FREE || target->store != 0 || !quota_keeps_times(target->quota))
            continue;
        table_ask(evaluation->table, target->quota, target->key.ptr, target->key.len, &ask, &undo,
                  NULL);
        latest_ns = max_u64(latest_ns, undo.entered_ns);
    }
    return latest_ns;
}

void evaluation_go_on(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    bool is_new;
    union pending_result space, *note;
    if (!evaluation_asks(evaluation, false))
        return;
    note = evaluation_note(evaluation, PENDING_CLOCK, 1, &space, &is_new);
    if (note == NULL)
        return;
    if (is_new)
        note->clock_ns = latest_entered(evaluation);
    evaluation->now_ns = evaluation->at_ns = note->clock_ns;
}

/* ---- charge and refund ----------------------------------------------------------------------- */

static void end_move(struct evaluation *evaluation, const struct evaluation_step *step,
                     const struct stint_decision *decision, bool is_over)
{
    assert(step->target->part != TARGET_FREE);
    (void)evaluation;
    (void)is_over;
    if (step->quota == step->target->quota)
        step->target->decision = *decision;
}

/* A descriptor that gives its hits back does so whatever verb the others have. */
static struct stint_ask move_of(const struct evaluation *evaluation, const struct target *target,
                                uint8_t verb, uint64_t at_ns)
{
    return (struct stint_ask){.now_ns = evaluation->now_ns,
                              .at_ns = target->is_refund ? STINT_NEVER_NS : at_ns,
                              .cost = target->cost,
                              .verb = target->is_refund ? STINT_REFUND : verb};
}

/* Of the target's own quota and of its candidate. */
static size_t add_moves(const struct evaluation *evaluation, struct target *target, uint8_t verb,
                        uint64_t at_ns, struct evaluation_step *steps)
{
    const struct evaluation_step step = {
        .target = target, .quota = target->quota, .ask = move_of(evaluation, target, verb, at_ns)};
    assert(target->part != TARGET_FREE);
    steps[0] = steps[1] = step;
    steps[1].quota = target_candidate(target);
    return steps[1].quota != NULL ? 2 : 1;
}

/*
 * Moves units of every quota, the shadows' too; returns the least that any live one moved. Those of
 * the table move first: also where no store ever answers.
 */
static struct stint_decision move_all(struct evaluation *evaluation, uint8_t verb, uint64_t at_ns)
{
    uint32_t least = UINT32_MAX;
    struct evaluation_step steps[2 * TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target->part != TARGET_FREE)
            n += add_moves(evaluation, target, verb, at_ns, &steps[n]);
    }
    evaluation_run_steps(evaluation, steps, n, end_move);
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_FREE)
            continue;
        target->over = target->decision.outcome != STINT_ALLOW && target->part == TARGET_LIVE;
        if (target->part == TARGET_LIVE)
            least = (uint32_t)min_u64(least, target->decision.granted);
    }
    struct stint_decision sum =
        evaluation_sum(evaluation, evaluation_is_denied(evaluation, NO_TARGET));
    sum.granted = (uint32_t)min_u64(least, sum.granted);
    return sum;
}

struct stint_decision evaluation_charge(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    evaluation_go_on(evaluation);
    return move_all(evaluation, STINT_CHARGE, 0);
}

struct stint_decision evaluation_refund(struct evaluation *evaluation, uint64_t granted_at_ns)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    return move_all(evaluation, STINT_REFUND, granted_at_ns);
}

void evaluation_ask_refunds(struct evaluation *evaluation, bool charges)
{
    assert(evaluation_is_valid(evaluation));
    struct evaluation_step steps[2 * TARGETS_MAX];
    struct target *shown[TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (!target->is_refund || target->part == TARGET_FREE)
            continue;
        if (charges)
            n += add_moves(evaluation, target, STINT_REFUND, STINT_NEVER_NS, &steps[n]);
        else
            shown[n++] = target;
    }
    if (charges)
        evaluation_run_steps(evaluation, steps, n, end_move);
    else
        evaluation_look(evaluation, shown, n);
}

/* ---- reset ------------------------------------------------------------------------------- */

static void end_forget(struct evaluation *evaluation, const struct evaluation_step *step,
                       const struct stint_decision *decision, bool is_over)
{
    assert(step->ask.verb == REQUEST_RESET);
    (void)evaluation;
    (void)step;
    (void)decision;
    (void)is_over;
}

void evaluation_forget(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    struct evaluation_step steps[2 * TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        const struct stint_quota *quotas[] = {target->quota, target_candidate(target)};
        for (size_t j = 0; target->part != TARGET_FREE && target->store != 0 && j < 2; j++)
            if (quotas[j] != NULL)
                steps[n++] = (struct evaluation_step){
                    .target = target,
                    .quota = quotas[j],
                    .ask = {.now_ns = evaluation->now_ns, .verb = REQUEST_RESET}};
    }
    evaluation_run_steps(evaluation, steps, n, end_forget);
}

void evaluation_reset(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    evaluation_forget(evaluation);
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        const struct stint_quota *quotas[] = {target->quota, target_candidate(target)};
        for (size_t j = 0; target->part != TARGET_FREE && j < 2; j++)
            if (quotas[j] != NULL)
                stint_reset(evaluation->table, quotas[j], target->key.ptr, target->key.len,
                            evaluation->now_ns);
        if (target->part != TARGET_FREE && target_has_ban(target))
            ban_lift(evaluation->table, target->rule, target->key, evaluation->now_ns);
    }
}
