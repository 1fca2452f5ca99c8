/* SPDX-License-Identifier: MIT */
/* Taking and peeking: the live quotas all or none, those in quota_mode let go where they may be. */
#include "decide/question_parts.h"

#include "base/wide_int.h"

#include <assert.h>

/* A shadow or a candidate that is charged by a reservation: its ticket is of these units, too. */
static struct stint_decision take_reserved(struct question *question, const struct target *target,
                                           const struct stint_quota *quota,
                                           const struct stint_ask *ask)
{
    bool holds = quota->algorithm == STINT_CONCURRENCY;
    uint64_t holder = 0;
    struct undo undo;
    struct stint_decision decision = table_ask(question->table, quota, target->key.ptr,
                                               target->key.len, ask, &undo, holds ? &holder : NULL);
    if (decision.outcome == STINT_ALLOW)
        reservation_add_shadow(question->reservation, quota,
                               table_hash(question->table, quota, target->key.ptr, target->key.len),
                               ask->cost, question_kept(question, target),
                               holder != 0 ? holder : undo.entered_ns);
    return decision;
}

struct stint_decision question_ask_table(struct question *question, const struct target *target,
                                         const struct stint_quota *quota,
                                         const struct stint_ask *ask)
{
    bool is_new = true;
    struct stint_decision decision = {.outcome = STINT_DENY}, *note = &decision;
    if (question->reservation != NULL && ask->verb == STINT_TAKE)
        return take_reserved(question, target, quota, ask);
    if (question->errand != NULL)
        note = errand_note(question->errand, 1, &is_new);
    if (note == NULL)
        return decision; /* the errand is lost: nobody is told of it */
    if (is_new)
        *note =
            table_ask(question->table, quota, target->key.ptr, target->key.len, ask, NULL, NULL);
    return *note;
}

struct stint_decision question_ask_one(struct question *question, struct target *target,
                                       const struct stint_quota *quota, const struct stint_ask *ask)
{
    return target->store != 0 ? question_ask_store(question, target, quota, ask)
                              : question_ask_table(question, target, quota, ask);
}

bool question_gather(struct question *question)
{
    question->n_items = 0;
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        bool is_local = target->stand_in == STAND_IN_LOCAL;
        if (!target_takes(target) || (target->store != 0 && !is_local))
            continue;
        question->target_of[question->n_items] = (uint8_t)i;
        question->items[question->n_items++] = (struct stint_item){
            .quota = is_local ? &question->locals[i] : target->quota,
            .key = target->key.ptr,
            .key_len = target->key.len,
            .cost = target->cost,
        };
    }
    return question->n_items > 0;
}

bool question_list(struct question *question)
{
    if (list_init(&question->list, question->table, question->items, question->n_items,
                  question->now_ns))
        return true;
    for (size_t i = 0; i < question->n_items; i++) {
        struct target *target = &question->targets[question->target_of[i]];
        target->decision = law_never(0);
        target->over = true;
    }
    return false;
}

/* Equal targets share a part, and so what was decided over all of their units together. */
void question_hand_out(struct question *question)
{
    const struct list *list = &question->list;
    for (size_t i = 0; i < question->n_items; i++) {
        struct target *target = &question->targets[question->target_of[i]];
        struct stint_decision *decision = &target->decision;
        *decision = list->parts[list->part_of[i]].decision;
        decision->granted = (uint32_t)min_u64(decision->granted, target->cost);
        target->over = decision->outcome != STINT_ALLOW;
    }
}

/* ---- Who denies ------------------------------------------------------------------------------ */

/*
 * As long as anything in quota mode passes, what is over in it denies nothing: also a limit in
 * shadow mode, and a descriptor that nothing limits, where all are in quota mode. An unlimited one
 * has no say.
 */
static bool passes_in_quota_mode(const struct target *target)
{
    bool is_unlimited = target->quota == NULL && target->rule != NULL && target->rule->unlimited;
    return target->is_quota_mode && !target->is_refund && !is_unlimited &&
           (!target_asks(target) || !target->over);
}

bool question_is_denied(const struct question *question, size_t except)
{
    size_t quota_modes_over = 0;
    bool any_passes = false;
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        if (i == except)
            continue;
        if (target_asks(target) && target->over && !target->is_quota_mode)
            return true;
        quota_modes_over += target_asks(target) && target->is_quota_mode && target->over;
        any_passes |= passes_in_quota_mode(target);
    }
    return quota_modes_over > 0 && !any_passes;
}

bool question_would_be_denied(const struct question *question)
{
    bool any_over = false, any_passes = false;
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        bool is_over = target->part == TARGET_SHADOW && target->is_all_shadow && target->over;
        if (is_over && !target->is_quota_mode)
            return true;
        any_over |= is_over;
        any_passes |= !is_over && passes_in_quota_mode(target);
    }
    return any_over && !any_passes;
}

bool question_step_back(struct question *question)
{
    bool did = false;
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        if (!target_asks(target) || !target->is_quota_mode || !target->over || target->stepped_back)
            continue;
        target->stepped_back = true;
        did = true;
    }
    return did;
}

/* ---- The decision of the request ------------------------------------------------------------- */

/*
 * What denies: all that are over, but of those in quota_mode, where all are, the one that returns
 * first. With it the request passes again, and the others step back.
 */
static const struct target *first_to_return(const struct question *question)
{
    const struct target *first = NULL;
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
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

static struct stint_decision sum_denied(const struct question *question)
{
    const struct target *first = first_to_return(question), *binding = NULL;
    uint64_t retry_after_ns = 0;
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        if (!target_asks(target) || !target->over || (target->is_quota_mode && target != first))
            continue;
        retry_after_ns = max_u64(retry_after_ns, target->decision.retry_after_ns);
        if (binds_more(target, binding))
            binding = target;
    }
    assert(binding != NULL); /* it was asked only since somebody denies */
    struct stint_decision sum = binding->decision;
    sum.binding = (uint8_t)(binding - question->targets);
    sum.retry_after_ns = retry_after_ns;
    sum.granted = 0;
    return sum;
}

/* Where no live quota has a say, the figures are those of a shadow one: it has some at least. */
static struct stint_decision sum_allowed(const struct question *question)
{
    static const uint8_t parts[] = {TARGET_LIVE, TARGET_SHADOW, TARGET_FREE};
    const struct target *binding = NULL;
    for (size_t part = 0; binding == NULL && part < sizeof(parts); part++)
        for (size_t i = 0; i < question->n_targets; i++) {
            const struct target *target = &question->targets[i];
            if (target->part == parts[part] && !target->is_refund && !target->stepped_back &&
                binds_more(target, binding))
                binding = target;
        }
    for (size_t i = 0; binding == NULL && i < question->n_targets; i++)
        binding = &question->targets[i];
    struct stint_decision sum = binding->decision;
    sum.binding = (uint8_t)(binding - question->targets);
    return sum;
}

static struct stint_decision sum(const struct question *question, bool is_denied)
{
    return is_denied ? sum_denied(question) : sum_allowed(question);
}

struct stint_decision question_sum(const struct question *question)
{
    return sum(question, question_is_denied(question, NO_TARGET));
}

/* ---- take and peek --------------------------------------------------------------------------- */

struct stint_decision question_stands(struct question *question, struct target *target)
{
    const struct stint_ask ask = {.now_ns = question->now_ns, .verb = STINT_PEEK};
    struct stint_decision decision = question_ask_one(question, target, target->quota, &ask);
    decision.outcome = STINT_ALLOW;
    decision.retry_after_ns = 0;
    return decision;
}

void question_look_again(struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        if (target_asks(target) && !target->over && !target->is_settled)
            target->decision = question_stands(question, target);
    }
}

/* Those that tell the units of one time from those of another. */
static bool keeps_times(const struct stint_quota *quota)
{
    return quota != NULL && (quota->algorithm == STINT_LOG || quota->algorithm == STINT_BUCKETS);
}

static void go_on(struct question *question)
{
    const struct stint_ask ask = {.now_ns = question->now_ns, .verb = STINT_PEEK};
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct target *target = &question->targets[i];
        struct undo undo;
        if (target->part == TARGET_FREE || target->store != 0 || !keeps_times(target->quota))
            continue;
        table_ask(question->table, target->quota, target->key.ptr, target->key.len, &ask, &undo,
                  NULL);
        question->now_ns = max_u64(question->now_ns, undo.entered_ns);
    }
}

void question_go_on(struct question *question)
{
    bool is_new = true;
    struct stint_decision *note = NULL;
    if (question->errand != NULL && question_asks_table(question))
        note = errand_note(question->errand, 1, &is_new);
    if (is_new)
        go_on(question);
    if (note != NULL && is_new)
        note->retry_after_ns = question->now_ns;
    else if (note != NULL)
        question->now_ns = note->retry_after_ns;
    question->at_ns = question->now_ns;
}

/* One limit is what most requests meet: it is taken from as the library does for anybody. */
static void take_one(struct question *question)
{
    const struct stint_item *item = &question->items[0];
    struct target *target = &question->targets[question->target_of[0]];
    if (question->n_targets == 1 && keeps_times(item->quota)) {
        const struct stint_ask ask = {
            .now_ns = question->now_ns, .cost = item->cost, .verb = STINT_TAKE};
        struct undo undo;
        target->decision =
            table_ask(question->table, item->quota, item->key, item->key_len, &ask, &undo, NULL);
        question->at_ns = undo.entered_ns;
    } else {
        target->decision = stint_take(question->table, item->quota, item->key, item->key_len,
                                      item->cost, question->now_ns);
    }
    target->over = target->decision.outcome != STINT_ALLOW;
}

static void decide_gathered(struct question *question, bool charges)
{
    if (charges && question->n_items == 1) {
        take_one(question);
    } else if (question_list(question)) {
        if (charges)
            list_take(&question->list);
        else
            list_ask(&question->list, STINT_PEEK, 0);
        question_hand_out(question);
    }
}

/* What was decided in an earlier run of the request, again. */
static void recall_gathered(struct question *question, const struct stint_decision *notes)
{
    for (size_t i = 0; i < question->n_items; i++) {
        struct target *target = &question->targets[question->target_of[i]];
        target->decision = notes[i];
        target->over = notes[i].outcome != STINT_ALLOW;
    }
    question->at_ns = notes[question->n_items].retry_after_ns;
}

static void note_gathered(const struct question *question, struct stint_decision *notes)
{
    for (size_t i = 0; i < question->n_items; i++)
        notes[i] = question->targets[question->target_of[i]].decision;
    notes[question->n_items].retry_after_ns = question->at_ns;
}

void question_ask_gathered(struct question *question, bool charges)
{
    bool is_new;
    if (question->errand == NULL) {
        decide_gathered(question, charges);
        return;
    }
    struct stint_decision *notes = errand_note(question->errand, question->n_items + 1, &is_new);
    if (notes == NULL)
        return;
    if (is_new) {
        decide_gathered(question, charges);
        note_gathered(question, notes);
    } else {
        recall_gathered(question, notes);
    }
}

bool question_ask_live(struct question *question, bool charges)
{
    question_find_blocks(question);
    question_ask_hits(question, charges);
    if (question_is_given_up(question))
        return true;
    bool is_denied = question_is_denied(question, NO_TARGET);
    if (!is_denied)
        question_step_back(question); /* else the others would be asked, and charged, twice */
    for (;;) {
        if (question->errand != NULL)
            question_take_shared(question, charges && !is_denied);
        else if (question_gather(question))
            question_ask_gathered(question, charges && !is_denied);
        if (question_is_given_up(question))
            return true;
        is_denied = question_is_denied(question, NO_TARGET);
        if (is_denied || !question_step_back(question))
            return is_denied;
    }
}

/* Units that come back with a request that is allowed. */
static void ask_refunds(struct question *question, bool charges)
{
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        if (!target->is_refund || target->part == TARGET_FREE)
            continue;
        struct stint_ask ask = {.now_ns = question->now_ns,
                                .at_ns = STINT_NEVER_NS,
                                .cost = target->cost,
                                .verb = STINT_REFUND};
        target->decision = charges ? question_ask_one(question, target, target->quota, &ask)
                                   : question_stands(question, target);
        if (charges && target->rule != NULL && target->rule->has_shadow)
            question_ask_one(question, target, &target->rule->shadow, &ask);
    }
}

static struct stint_decision take(struct question *question, bool charges)
{
    bool denied = question_ask_live(question, charges);
    if (question_is_given_up(question))
        return decision_unlimited(0);
    if (denied && charges) {
        question_look_again(question);
        question_count_denials(question);
    }
    charges = charges && !question->is_replayed;
    question_ask_shadows(question, charges ? STINT_TAKE : STINT_PEEK, UINT32_MAX);
    ask_refunds(question, charges && !denied);
    return sum(question, denied);
}

struct stint_decision question_take(struct question *question)
{
    if (question->n_targets > 1)
        question_go_on(question);
    return take(question, true);
}

struct stint_decision question_peek(struct question *question)
{
    return take(question, false);
}
