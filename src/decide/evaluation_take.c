/* SPDX-License-Identifier: MIT */
/* Take and peek: the live quotas all or none; those in quota_mode may be excluded. */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"

#include <assert.h>

/* A shadow or a candidate charged by a reservation: the ticket covers these units, too. */
static struct stint_decision take_reserved(struct evaluation *evaluation,
                                           const struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask)
{
    bool holds = quota->algorithm == STINT_CONCURRENCY;
    uint64_t holder = 0;
    struct undo undo;
    struct stint_decision decision = table_ask(evaluation->table, quota, target->key.ptr,
                                               target->key.len, ask, &undo, holds ? &holder : NULL);
    if (decision.outcome == STINT_ALLOW)
        reservation_add_shadow(
            evaluation->reservation, quota,
            table_hash(evaluation->table, quota, target->key.ptr, target->key.len), ask->cost,
            evaluation_kept(evaluation, target), holder != 0 ? holder : undo.entered_ns);
    return decision;
}

struct stint_decision evaluation_ask_table(struct evaluation *evaluation,
                                           const struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask)
{
    bool is_new;
    union pending_result space, *note;
    if (evaluation->reservation != NULL && ask->verb == STINT_TAKE)
        return take_reserved(evaluation, target, quota, ask);
    note = evaluation_note(evaluation, PENDING_DECISION, 1, &space, &is_new);
    if (note == NULL) /* the pending request is lost: its caller gets an error */
        return (struct stint_decision){.outcome = STINT_DENY};
    if (is_new)
        note->decision =
            table_ask(evaluation->table, quota, target->key.ptr, target->key.len, ask, NULL, NULL);
    return note->decision;
}

struct stint_decision evaluation_ask_one(struct evaluation *evaluation, struct target *target,
                                         const struct stint_quota *quota,
                                         const struct stint_ask *ask)
{
    return target->store != 0 ? evaluation_ask_store(evaluation, target, quota, ask)
                              : evaluation_ask_table(evaluation, target, quota, ask);
}

bool evaluation_gather(struct evaluation *evaluation)
{
    evaluation->n_items = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        bool is_local = target->fallback == FALLBACK_LOCAL;
        if (!target_takes(target) || (target->store != 0 && !is_local))
            continue;
        evaluation->target_of[evaluation->n_items] = (uint8_t)i;
        evaluation->items[evaluation->n_items++] = (struct stint_item){
            .quota = is_local ? &evaluation->locals[i] : target->quota,
            .key = target->key.ptr,
            .key_len = target->key.len,
            .cost = target->cost,
        };
    }
    return evaluation->n_items > 0;
}

bool evaluation_list(struct evaluation *evaluation)
{
    if (list_init(&evaluation->list, evaluation->table, evaluation->items, evaluation->n_items,
                  evaluation->now_ns))
        return true;
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        target->decision = algorithm_never(0);
        target->over = true;
    }
    return false;
}

/* Equal targets share a slot, and so the decision over all of their units together. */
void evaluation_hand_out(struct evaluation *evaluation)
{
    const struct list *list = &evaluation->list;
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        struct stint_decision *decision = &target->decision;
        *decision = list->parts[list->part_of[i]].decision;
        decision->granted = (uint32_t)min_u64(decision->granted, target->cost);
        target->over = decision->outcome != STINT_ALLOW;
    }
}

/* ---- What denies ----------------------------------------------------------------------------- */

/*
 * As long as anything in quota mode passes, what is over in it denies nothing. A limit in shadow
 * mode and a descriptor without a limit also pass, where all are in quota mode. An unlimited one
 * does not count.
 */
static bool passes_in_quota_mode(const struct target *target)
{
    bool is_unlimited = target->quota == NULL && target->rule != NULL && target->rule->unlimited;
    return target->is_quota_mode && !target->is_refund && !is_unlimited &&
           (!target_asks(target) || !target->over);
}

bool evaluation_is_denied(const struct evaluation *evaluation, size_t except)
{
    size_t quota_modes_over = 0;
    bool any_passes = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (i == except)
            continue;
        if (target_asks(target) && target->over && !target->is_quota_mode)
            return true;
        quota_modes_over += target_asks(target) && target->is_quota_mode && target->over;
        any_passes |= passes_in_quota_mode(target);
    }
    return quota_modes_over > 0 && !any_passes;
}

bool evaluation_would_be_denied(const struct evaluation *evaluation)
{
    bool any_over = false, any_passes = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        bool is_over = target->part == TARGET_SHADOW && target->is_all_shadow && target->over;
        if (is_over && !target->is_quota_mode)
            return true;
        any_over |= is_over;
        any_passes |= !is_over && passes_in_quota_mode(target);
    }
    return any_over && !any_passes;
}

bool evaluation_exclude(struct evaluation *evaluation)
{
    bool did = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (!target_asks(target) || !target->is_quota_mode || !target->over || target->excluded)
            continue;
        target->excluded = true;
        did = true;
    }
    return did;
}

/* ---- The decision of the request ------------------------------------------------------------- */

/*
 * What denies: all that are over; where all are in quota_mode, the one whose capacity returns
 * first. With it the request passes again, and the others are excluded.
 */
static const struct target *first_to_return(const struct evaluation *evaluation)
{
    const struct target *first = NULL;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (passes_in_quota_mode(target))
            return NULL;
        if (!target_asks(target) || !target->is_quota_mode)
            continue;
        if (first == NULL || target->decision.retry_after_ns < first->decision.retry_after_ns)
            first = target;
    }
    return first;
}

static bool binds_more(const struct target *a, const struct target *b)
{
    if (b == NULL || a->decision.outcome != b->decision.outcome)
        return b == NULL || a->decision.outcome > b->decision.outcome;
    return list_has_less(&a->decision, &b->decision);
}

static struct stint_decision sum_denied(const struct evaluation *evaluation)
{
    const struct target *first = first_to_return(evaluation), *binding = NULL;
    uint64_t retry_after_ns = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (!target_asks(target) || !target->over || (target->is_quota_mode && target != first))
            continue;
        retry_after_ns = max_u64(retry_after_ns, target->decision.retry_after_ns);
        if (binds_more(target, binding))
            binding = target;
    }
    assert(binding != NULL); /* only needed because another one denies */
    struct stint_decision sum = binding->decision;
    sum.binding = (uint8_t)(binding - evaluation->targets);
    sum.retry_after_ns = retry_after_ns;
    sum.granted = 0;
    return sum;
}

/* Where no live quota decides, the numbers are those of a shadow one: this gives at least some. */
static struct stint_decision sum_allowed(const struct evaluation *evaluation)
{
    static const uint8_t parts[] = {TARGET_LIVE, TARGET_SHADOW, TARGET_FREE};
    const struct target *binding = NULL;
    for (size_t part = 0; binding == NULL && part < sizeof(parts); part++)
        for (size_t i = 0; i < evaluation->n_targets; i++) {
            const struct target *target = &evaluation->targets[i];
            if (target->part == parts[part] && !target->is_refund && !target->excluded &&
                binds_more(target, binding))
                binding = target;
        }
    for (size_t i = 0; binding == NULL && i < evaluation->n_targets; i++)
        binding = &evaluation->targets[i];
    struct stint_decision sum = binding->decision;
    sum.binding = (uint8_t)(binding - evaluation->targets);
    return sum;
}

static struct stint_decision sum(const struct evaluation *evaluation, bool is_denied)
{
    return is_denied ? sum_denied(evaluation) : sum_allowed(evaluation);
}

struct stint_decision evaluation_sum(const struct evaluation *evaluation)
{
    return sum(evaluation, evaluation_is_denied(evaluation, NO_TARGET));
}

/* ---- take and peek --------------------------------------------------------------------------- */

struct stint_decision evaluation_stands(struct evaluation *evaluation, struct target *target)
{
    const struct stint_ask ask = {.now_ns = evaluation->now_ns, .verb = STINT_PEEK};
    struct stint_decision decision = evaluation_ask_one(evaluation, target, target->quota, &ask);
    decision.outcome = STINT_ALLOW;
    decision.retry_after_ns = 0;
    return decision;
}

void evaluation_look_again(struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target_asks(target) && !target->over && !target->is_settled)
            target->decision = evaluation_stands(evaluation, target);
    }
}

/* Those that distinguish units of different times. */
static bool keeps_times(const struct stint_quota *quota)
{
    return quota != NULL && (quota->algorithm == STINT_LOG || quota->algorithm == STINT_BUCKETS);
}

/* The latest time at which a state in the table was charged, or now. */
static uint64_t latest_entered(const struct evaluation *evaluation)
{
    const struct stint_ask ask = {.now_ns = evaluation->now_ns, .verb = STINT_PEEK};
    uint64_t latest_ns = evaluation->now_ns;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        struct undo undo;
        if (target->part == TARGET_FREE || target->store != 0 || !keeps_times(target->quota))
            continue;
        table_ask(evaluation->table, target->quota, target->key.ptr, target->key.len, &ask, &undo,
                  NULL);
        latest_ns = max_u64(latest_ns, undo.entered_ns);
    }
    return latest_ns;
}

void evaluation_go_on(struct evaluation *evaluation)
{
    bool is_new;
    union pending_result space, *note;
    if (!evaluation_asks_table(evaluation))
        return;
    note = evaluation_note(evaluation, PENDING_CLOCK, 1, &space, &is_new);
    if (note == NULL)
        return;
    if (is_new)
        note->clock_ns = latest_entered(evaluation);
    evaluation->now_ns = evaluation->at_ns = note->clock_ns;
}

/* Of a key and a quota as stint_take() accepts them, and no key is blocked. */
static bool may_hash(const struct evaluation *evaluation, const struct stint_item *item)
{
    return item->key_len <= STINT_KEY_MAX && item->quota->derived.checked == 1 &&
           !item->quota->initial_set && !table_has_blocks(evaluation->table, evaluation->now_ns);
}

/* Most requests have one limit: it uses the same take as the library. */
static void take_one(struct evaluation *evaluation)
{
    const struct stint_item *item = &evaluation->items[0];
    struct target *target = &evaluation->targets[evaluation->target_of[0]];
    if (evaluation->n_targets == 1 && keeps_times(item->quota)) {
        const struct stint_ask ask = {
            .now_ns = evaluation->now_ns, .cost = item->cost, .verb = STINT_TAKE};
        struct undo undo;
        target->decision =
            table_ask(evaluation->table, item->quota, item->key, item->key_len, &ask, &undo, NULL);
        evaluation->at_ns = undo.entered_ns;
    } else if (evaluation->n_targets == 1 && may_hash(evaluation, item)) {
        evaluation->is_taken_alone = true;
        evaluation->taken_hash =
            table_hash(evaluation->table, item->quota, item->key, item->key_len);
        target->decision = table_take_hash(evaluation->table, item->quota, evaluation->taken_hash,
                                           item->cost, evaluation->now_ns);
    } else {
        target->decision = stint_take(evaluation->table, item->quota, item->key, item->key_len,
                                      item->cost, evaluation->now_ns);
    }
    target->over = target->decision.outcome != STINT_ALLOW;
}

static void decide_gathered(struct evaluation *evaluation, bool charges)
{
    if (charges && evaluation->n_items == 1) {
        take_one(evaluation);
    } else if (evaluation_list(evaluation)) {
        if (charges)
            list_take(&evaluation->list);
        else
            list_ask(&evaluation->list, STINT_PEEK, 0);
        evaluation_hand_out(evaluation);
    }
}

/* The decisions of this run are kept for later ones, or those of an earlier run repeated. */
void evaluation_note_gathered(struct evaluation *evaluation, union pending_result *notes,
                              bool is_new)
{
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        if (is_new)
            notes[i].decision = target->decision;
        target->decision = notes[i].decision;
        target->over = target->decision.outcome != STINT_ALLOW;
    }
}

void evaluation_ask_gathered(struct evaluation *evaluation, bool charges)
{
    bool is_new;
    struct pending *pending = evaluation->pending;
    if (pending == NULL) {
        decide_gathered(evaluation, charges);
        return;
    }
    union pending_result *notes =
        pending_note(pending, PENDING_DECISION, evaluation->n_items, &is_new);
    union pending_result *clock = pending_note(pending, PENDING_CLOCK, 1, &is_new);
    if (clock == NULL)
        return;
    if (is_new) {
        decide_gathered(evaluation, charges);
        clock->clock_ns = evaluation->at_ns;
    }
    evaluation->at_ns = clock->clock_ns;
    evaluation_note_gathered(evaluation, notes, is_new);
}

bool evaluation_ask_live(struct evaluation *evaluation, bool charges)
{
    evaluation_find_blocks(evaluation);
    evaluation_ask_hits(evaluation, charges);
    if (evaluation_is_given_up(evaluation))
        return true;
    bool is_denied = evaluation_is_denied(evaluation, NO_TARGET);
    if (!is_denied)
        evaluation_exclude(evaluation); /* else the others would be evaluated, and charged, twice */
    for (;;) {
        if (evaluation->pending != NULL)
            evaluation_take_shared(evaluation, charges && !is_denied);
        else if (evaluation_gather(evaluation))
            evaluation_ask_gathered(evaluation, charges && !is_denied);
        if (evaluation_is_given_up(evaluation))
            return true;
        is_denied = evaluation_is_denied(evaluation, NO_TARGET);
        if (is_denied || !evaluation_exclude(evaluation))
            return is_denied;
    }
}

/* Units that come back with a request that is allowed. */
static void ask_refunds(struct evaluation *evaluation, bool charges)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (!target->is_refund || target->part == TARGET_FREE)
            continue;
        struct stint_ask ask = {.now_ns = evaluation->now_ns,
                                .at_ns = STINT_NEVER_NS,
                                .cost = target->cost,
                                .verb = STINT_REFUND};
        target->decision = charges ? evaluation_ask_one(evaluation, target, target->quota, &ask)
                                   : evaluation_stands(evaluation, target);
        if (charges && target->rule != NULL && target->rule->has_shadow)
            evaluation_ask_one(evaluation, target, &target->rule->shadow, &ask);
    }
}

static struct stint_decision take(struct evaluation *evaluation, bool charges)
{
    bool denied = evaluation_ask_live(evaluation, charges);
    if (evaluation_is_given_up(evaluation))
        return decision_unlimited(0);
    if (denied && charges) {
        evaluation_look_again(evaluation);
        evaluation_count_denials(evaluation);
    }
    charges = charges && !evaluation->is_replayed;
    evaluation_ask_shadows(evaluation, charges ? STINT_TAKE : STINT_PEEK, UINT32_MAX);
    ask_refunds(evaluation, charges && !denied);
    return sum(evaluation, denied);
}

struct stint_decision evaluation_take(struct evaluation *evaluation)
{
    if (evaluation->n_targets > 1)
        evaluation_go_on(evaluation);
    return take(evaluation, true);
}

struct stint_decision evaluation_peek(struct evaluation *evaluation)
{
    return take(evaluation, false);
}
