/* SPDX-License-Identifier: MIT */
/*
 * The verbs. The live targets, all or nothing: what denies, rounds over the table and the stores;
 * then the limits beside them that are not enforced.
 */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"
#include "rules/ban.h"

#include <assert.h>

#define NO_TARGET SIZE_MAX

/* ---- What denies ----------------------------------------------------------------------------- */

/* Whether the live targets, as decided, deny the request; one may be left out. */
static bool is_denied(const struct evaluation *evaluation, size_t except)
{
    assert(except == NO_TARGET || except < evaluation->n_targets);
    size_t quota_modes_over = 0;
    bool any_passes = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (i == except)
            continue;
        bool is_over = target->over && target_asks(target);
        if (is_over && !target->is_quota_mode)
            return true;
        quota_modes_over += is_over;
        any_passes = any_passes || (target->is_quota_mode && target_passes_in_quota_mode(target));
    }
    return quota_modes_over > 0 && !any_passes;
}

/* Excludes targets in quota_mode that are over; false if there were none. */
static bool exclude(struct evaluation *evaluation)
{
    bool did = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (!target->over || !target->is_quota_mode || target->excluded || !target_asks(target))
            continue;
        target->excluded = true;
        did = true;
    }
    return did;
}

/* ---- Hits that are no take ------------------------------------------------------------------- */

/* A blocked key denies, but the units are recorded all the same. */
static void end_live_hits(struct evaluation *evaluation, const struct evaluation_step *step,
                          const struct stint_decision *decision, bool is_over)
{
    assert(step->hits != TARGET_HITS_TAKE && target_asks(step->target));
    struct target *target = step->target;
    (void)evaluation;
    target->is_settled = true;
    if (target->banned) {
        target->decision.granted = decision->granted;
        return;
    }
    target->decision = *decision;
    target->over = is_over;
}

/* Before any other unit is taken. */
static void ask_hits(struct evaluation *evaluation, bool charges)
{
    struct evaluation_step steps[TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        bool is_known = target->banned && target->hits == TARGET_HITS_CHECK;
        if (target->hits != TARGET_HITS_TAKE && target_asks(target) && !is_known)
            steps[n++] = (struct evaluation_step){
                .target = target, .quota = target->quota, .hits = target->hits, .charges = charges};
    }
    if (n > 0)
        evaluation_run_steps(evaluation, steps, n, end_live_hits);
}

/* ---- The table ------------------------------------------------------------------------------- */

/*
 * Collects the live targets in the table that take part and are not blocked or excluded; false if
 * there are none.
 */
static bool gather(struct evaluation *evaluation)
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
    assert(evaluation->n_items <= evaluation->n_targets);
    return evaluation->n_items > 0;
}

/* The collected targets, as a list. False: never allowed; the targets then have that result. */
static bool make_list(struct evaluation *evaluation)
{
    assert(evaluation->n_items > 0);
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
static void hand_out(struct evaluation *evaluation, bool is_taken)
{
    const struct list *list = &evaluation->list;
    is_taken = is_taken && !evaluation_gives_back(evaluation);
    for (size_t i = 0; i < evaluation->n_items; i++) {
        const struct list_part *part = &list->parts[list->part_of[i]];
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        target->hash = part->hash;
        target->is_hashed = true;
        target->is_taken = is_taken;
        target->decision = part->decision;
        target->decision.granted = (uint32_t)min_u64(part->decision.granted, target->cost);
        target->over = part->decision.outcome != STINT_ALLOW;
    }
}

/* The numbers of a target with no request: neither debt nor a booking denies it. */
static struct stint_decision stands(struct evaluation *evaluation, struct target *target)
{
    assert(target->part != TARGET_FREE);
    const struct stint_ask ask = {.now_ns = evaluation->now_ns, .verb = STINT_PEEK};
    struct stint_decision decision = evaluation_ask_one(evaluation, target, target->quota, &ask);
    decision.outcome = STINT_ALLOW;
    decision.retry_after_ns = 0;
    return decision;
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

/*
 * For verbs that charge several states and return one time: moves on to the latest time at which
 * any of these states was charged. A log then has units at exactly that time.
 */
static void go_on(struct evaluation *evaluation)
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

/* Of a key and a quota as stint_take() accepts them, and no key is blocked. */
static bool may_hash(const struct evaluation *evaluation, const struct stint_item *item)
{
    assert(item->quota != NULL);
    return item->key_len <= STINT_KEY_MAX && item->quota->derived.checked == 1 &&
           !item->quota->initial_set && !table_has_blocks(evaluation->table, evaluation->now_ns);
}

/* Most requests have one limit: it uses the same take as the library. */
static void take_one(struct evaluation *evaluation)
{
    assert(evaluation->n_items == 1);
    const struct stint_item *item = &evaluation->items[0];
    struct target *target = &evaluation->targets[evaluation->target_of[0]];
    if (evaluation->n_targets == 1 && keeps_times(item->quota)) {
        const struct stint_ask ask = {
            .now_ns = evaluation->now_ns, .cost = item->cost, .verb = STINT_TAKE};
        struct undo undo;
        target->decision =
            table_ask(evaluation->table, item->quota, item->key, item->key_len, &ask, &undo, NULL);
        evaluation->at_ns = undo.entered_ns;
    } else if (may_hash(evaluation, item)) {
        target->is_hashed = true;
        target->is_taken = !evaluation_gives_back(evaluation);
        target->hash = table_hash(evaluation->table, item->quota, item->key, item->key_len);
        target->decision = table_take_hash(evaluation->table, item->quota, target->hash, item->cost,
                                           evaluation->now_ns);
    } else {
        target->decision = stint_take(evaluation->table, item->quota, item->key, item->key_len,
                                      item->cost, evaluation->now_ns);
    }
    target->over = target->decision.outcome != STINT_ALLOW;
}

static void decide_gathered(struct evaluation *evaluation, bool charges)
{
    assert(evaluation->n_items > 0);
    if (charges && evaluation->n_items == 1) {
        take_one(evaluation);
    } else if (make_list(evaluation)) {
        const struct stint_decision sum =
            charges ? list_take(&evaluation->list) : list_ask(&evaluation->list, STINT_PEEK, 0);
        hand_out(evaluation, charges && sum.outcome == STINT_ALLOW);
    }
}

static uint32_t upto_list(struct evaluation *evaluation, uint32_t most)
{
    assert(most > 0);
    if (!make_list(evaluation))
        return 0;
    struct stint_decision sum = list_take_upto(&evaluation->list, most);
    uint32_t granted = sum.outcome == STINT_ALLOW ? sum.granted : 0;
    hand_out(evaluation, false);
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        if (granted > 0)
            target->decision.granted = granted;
        else if (i == sum.binding && !target->over) {
            target->decision = sum; /* other callers were faster, and nothing was left to share */
            target->over = true;
        }
    }
    return granted;
}

/*
 * Decides what was collected: by best effort where `most` is above 0. How much was granted of each
 * then. The results are kept for later runs of the request, or those of an earlier run repeated.
 */
static uint32_t run_gathered(struct evaluation *evaluation, bool charges, uint32_t most)
{
    bool is_new = true;
    size_t n = evaluation->n_items;
    union pending_result *notes = NULL, end = {.end.granted = 0};
    if (evaluation->pending != NULL) {
        notes = pending_note(evaluation->pending, PENDING_DECISION, n + 1, &is_new);
        if (notes == NULL)
            return 0;
    }
    if (is_new) {
        if (most > 0)
            end.end.granted = upto_list(evaluation, most);
        else
            decide_gathered(evaluation, charges);
        end.end.at_ns = evaluation->at_ns;
        if (notes != NULL)
            notes[n] = end;
    } else {
        end = notes[n];
    }
    for (size_t i = 0; notes != NULL && i < n; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        if (is_new)
            notes[i].decision = target->decision;
        target->decision = notes[i].decision;
        target->over = target->decision.outcome != STINT_ALLOW;
    }
    evaluation->at_ns = end.end.at_ns;
    return end.end.granted;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static bool anyone_is_over(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].over && target_takes(&evaluation->targets[i]))
            return true;
    return false;
}

/*
 * Two steps where stores decide as well: peek in the table, then charge the stores; if the table
 * has no capacity left by then, the stores get their units back. The table is charged also where
 * the stores know the request's id: it may have denied then.
 */
static void take_round(struct evaluation *evaluation, bool charges)
{
    struct evaluation_group groups[EVALUATION_STORES_MAX];
    bool is_shared = evaluation->pending != NULL, denied = false;
    if (is_shared) {
        if (gather(evaluation)) {
            run_gathered(evaluation, false, 0);
            charges = charges && !anyone_is_over(evaluation);
        }
        evaluation_ask_groups(evaluation, charges ? REQUEST_TAKE : REQUEST_PEEK, UINT32_MAX,
                              groups);
        if (evaluation_is_to_wait(evaluation))
            return;
        denied = anyone_is_over(evaluation);
    }
    if (gather(evaluation)) { /* with those whose fallback is local */
        run_gathered(evaluation, charges && !denied, 0);
        denied = is_shared && anyone_is_over(evaluation);
    }
    if (denied && charges)
        evaluation_take_back(evaluation, groups, 0);
}

/*
 * Decides the live targets, blocks first. Those in quota_mode that are over are excluded, and the
 * others are evaluated again: one more round for each at most. Whether the request is denied, where
 * it is not suspended.
 */
static bool ask_live(struct evaluation *evaluation, bool charges)
{
    assert(evaluation_is_valid(evaluation));
    evaluation_find_blocks(evaluation, STINT_TAKE, 0);
    ask_hits(evaluation, charges);
    if (evaluation_is_to_wait(evaluation))
        return true;
    bool denied = is_denied(evaluation, NO_TARGET);
    if (!denied)
        exclude(evaluation); /* else the others would be evaluated, and charged, twice */
    for (;;) {
        take_round(evaluation, charges && !denied);
        if (evaluation_is_to_wait(evaluation))
            return true;
        denied = is_denied(evaluation, NO_TARGET);
        if (denied || !exclude(evaluation))
            return denied;
    }
}

/* Equal targets share what is left. */
static uint32_t times_gathered(const struct evaluation *evaluation, size_t i)
{
    assert(i < evaluation->n_items);
    const struct stint_item *item = &evaluation->items[i];
    uint32_t times = 0;
    for (size_t j = 0; j < evaluation->n_items; j++) {
        const struct stint_item *other = &evaluation->items[j];
        times += other->key_len == item->key_len && other->quota->rule == item->quota->rule &&
                 memcmp(other->key, item->key, item->key_len) == 0;
    }
    assert(times > 0);
    return times;
}

/* The most that the table would grant of each; targets that have nothing are over. */
static uint32_t look_at_table(struct evaluation *evaluation, uint32_t most)
{
    assert(evaluation->pending != NULL && most > 0);
    if (!gather(evaluation))
        return most;
    run_gathered(evaluation, false, 0);
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        const struct stint_decision *decision = &target->decision;
        uint32_t times = times_gathered(evaluation, i), cost = evaluation->items[i].cost;
        bool fits = decision->outcome == STINT_ALLOW;
        uint32_t left = fits ? cost : decision->remaining / times;
        target->over = left == 0;
        if (left == 0) { /* the wait is for one unit of each */
            const struct stint_ask ask = {
                .now_ns = evaluation->now_ns, .cost = times, .verb = STINT_PEEK};
            target->decision =
                evaluation_ask_table(evaluation, target, evaluation->items[i].quota, &ask);
        }
        most = (uint32_t)min_u64(most, left);
    }
    return most;
}

/* The least that a store granted of each, at most `most`; nothing where a target is over. */
static uint32_t least_granted(const struct evaluation *evaluation,
                              const struct evaluation_group *groups, uint32_t most)
{
    assert(evaluation->pending != NULL);
    for (size_t store = 0; store < evaluation->stores->n_stores; store++)
        if (groups[store].answer != NULL)
            most = (uint32_t)min_u64(most, groups[store].granted);
    return anyone_is_over(evaluation) ? 0 : most;
}

/*
 * One round of best effort; how much was granted. Where stores decide as well the table is peeked
 * first here, too: units given back may stay charged a while longer.
 */
static uint32_t upto_round(struct evaluation *evaluation, uint32_t most)
{
    assert(most > 0);
    struct evaluation_group groups[EVALUATION_STORES_MAX];
    bool is_shared = evaluation->pending != NULL;
    uint32_t granted = is_shared ? look_at_table(evaluation, most) : most;
    if (is_shared) {
        uint8_t verb = granted > 0 ? REQUEST_TAKE_UPTO : REQUEST_PEEK;
        evaluation_ask_groups(evaluation, verb, granted > 0 ? granted : 1, groups);
        if (granted == 0 || evaluation_is_to_wait(evaluation))
            return 0;
        granted = least_granted(evaluation, groups, granted);
    }
    if (granted > 0 && gather(evaluation))
        granted = run_gathered(evaluation, true, granted);
    else if (!is_shared)
        granted = 0;
    if (is_shared)
        evaluation_take_back(evaluation, groups, granted);
    return granted;
}

/* The same by best effort: how many units were granted of each. */
static uint32_t upto_live(struct evaluation *evaluation, uint32_t most)
{
    assert(evaluation_is_valid(evaluation) && most > 0);
    evaluation_find_blocks(evaluation, STINT_TAKE_UPTO, 0);
    while (!is_denied(evaluation, NO_TARGET)) {
        uint32_t granted = upto_round(evaluation, most);
        assert(granted <= most);
        if (granted > 0 || evaluation_is_to_wait(evaluation))
            return granted;
        if (is_denied(evaluation, NO_TARGET) || !exclude(evaluation))
            break;
    }
    return 0;
}

/* ---- Limits that are not enforced ------------------------------------------------------------ */

/*
 * These charges do not depend on other limits, as under an enforced quota. The decision of a shadow
 * rule is reported as ALLOW.
 */
static void end_shadow(struct evaluation *evaluation, const struct evaluation_step *step,
                       const struct stint_decision *decision, bool is_over)
{
    assert(step->target->part == TARGET_SHADOW || step->quota != step->target->quota);
    struct target *target = step->target;
    (void)evaluation;
    if (step->quota != target->quota) {
        target->shadow_over = is_over;
        target->shadow_retry_after_ns = is_over ? decision->retry_after_ns : 0;
        return;
    }
    target->decision = *decision;
    target->decision.outcome = STINT_ALLOW;
    target->decision.granted = step->ask.cost;
    target->decision.retry_after_ns = 0;
    target->over = is_over;
}

/*
 * The requests of one target: up to two. A candidate decides as if it were live; a limit in shadow
 * mode never decides.
 */
static size_t add_shadows(const struct evaluation *evaluation, size_t at, uint8_t verb,
                          uint32_t most, struct target *target, struct evaluation_step *steps)
{
    assert(at < evaluation->n_targets);
    const struct stint_quota *candidate = target_candidate(target);
    bool is_shadow = target->part == TARGET_SHADOW;
    size_t n = 0;
    if (target->part == TARGET_FREE || target->is_refund || (!is_shadow && candidate == NULL))
        return 0;
    bool was_charged = evaluation->has_charged && target->store != evaluation->ticket_store;
    bool is_refused =
        target->banned || was_charged || is_denied(evaluation, is_shadow ? NO_TARGET : at);
    const struct evaluation_step step = {
        .target = target,
        .quota = target->quota,
        .hits = target->hits,
        .ask = {.now_ns = evaluation->now_ns,
                .cost = (uint32_t)min_u64(target->cost, most),
                .verb = is_refused ? STINT_PEEK : verb},
        .charges = verb != STINT_PEEK,
    };
    if (is_shadow)
        steps[n++] = step;
    if (candidate != NULL) {
        steps[n] = step;
        steps[n++].quota = candidate;
    }
    return n;
}

/*
 * Shadow targets and candidates, once the live ones are decided: with `verb` where they are to be
 * charged, each its own cost or `most`. Else they are only peeked.
 */
static void ask_shadows(struct evaluation *evaluation, uint8_t verb, uint32_t most)
{
    assert(evaluation_is_valid(evaluation));
    struct evaluation_step steps[2 * TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        n += add_shadows(evaluation, i, verb, most, &evaluation->targets[i], &steps[n]);
    if (n > 0)
        evaluation_run_steps(evaluation, steps, n, end_shadow);
}

/* ---- The end of a decision ------------------------------------------------------------------- */

/* For a refused request, the targets that had capacity: their numbers, as nothing was taken. */
static void count_denial(struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target_asks(target) && !target->over && !target->is_settled)
            target->decision = stands(evaluation, target);
    }
    if (evaluation->retry_until_ns > 0) {
        struct stint_decision sum = evaluation_sum(evaluation, true);
        if (evaluation_retries(evaluation, &sum))
            return;
    }
    evaluation_count_denials(evaluation);
}

static struct stint_decision end(struct evaluation *evaluation, bool denied, uint8_t verb,
                                 uint32_t most)
{
    if (denied)
        count_denial(evaluation);
    ask_shadows(evaluation, verb, most);
    return evaluation_sum(evaluation, denied);
}

/* The list does not show which item denies: each target is peeked. */
static struct stint_decision refuse(struct evaluation *evaluation)
{
    assert(evaluation->pending == NULL);
    return end(evaluation, ask_live(evaluation, false), STINT_PEEK, UINT32_MAX);
}

/* ---- take and peek --------------------------------------------------------------------------- */

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
                                   : stands(evaluation, target);
        if (charges && target_candidate(target) != NULL)
            evaluation_ask_one(evaluation, target, target_candidate(target), &ask);
    }
}

static struct stint_decision take(struct evaluation *evaluation, bool charges)
{
    bool denied = ask_live(evaluation, charges);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    if (denied && charges)
        count_denial(evaluation);
    charges = charges && !evaluation->is_replayed;
    ask_shadows(evaluation, charges ? STINT_TAKE : STINT_PEEK, UINT32_MAX);
    ask_refunds(evaluation, charges && !denied);
    return evaluation_sum(evaluation, denied);
}

struct stint_decision evaluation_take(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    if (evaluation->n_targets > 1)
        go_on(evaluation);
    return take(evaluation, true);
}

struct stint_decision evaluation_peek(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    return take(evaluation, false);
}

/* ---- take_upto ------------------------------------------------------------------------------- */

static uint32_t least_cost(const struct evaluation *evaluation)
{
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (target_asks(&evaluation->targets[i]))
            least = (uint32_t)min_u64(least, evaluation->targets[i].cost);
    return least;
}

struct stint_decision evaluation_take_upto(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    uint32_t most = least_cost(evaluation);
    for (size_t i = 0; most == 0 && i < evaluation->n_targets; i++)
        evaluation->targets[i].cost = 0; /* the least is granted: nothing from any */
    if (most == 0)
        return evaluation_peek(evaluation);
    go_on(evaluation);
    uint32_t granted = upto_live(evaluation, most);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    return end(evaluation, is_denied(evaluation, NO_TARGET),
               evaluation->is_replayed ? STINT_PEEK : STINT_TAKE_UPTO,
               granted > 0 ? granted : most);
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
        struct evaluation_step step = {.target = target,
                                       .quota = target->quota,
                                       .ask = move_of(evaluation, target, verb, at_ns)};
        if (target->part == TARGET_FREE)
            continue;
        steps[n++] = step;
        step.quota = target_candidate(target);
        if (step.quota != NULL)
            steps[n++] = step;
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
    struct stint_decision sum = evaluation_sum(evaluation, is_denied(evaluation, NO_TARGET));
    sum.granted = (uint32_t)min_u64(least, sum.granted);
    return sum;
}

struct stint_decision evaluation_charge(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    go_on(evaluation);
    return move_all(evaluation, STINT_CHARGE, 0);
}

struct stint_decision evaluation_refund(struct evaluation *evaluation, uint64_t granted_at_ns)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    return move_all(evaluation, STINT_REFUND, granted_at_ns);
}

/* ---- reserve and book ------------------------------------------------------------------------ */

/* Of one decision, which becomes the request's. If several are charged, each has its numbers. */
static void hand_out_one(struct evaluation *evaluation, struct stint_decision *decision)
{
    assert(decision->binding < evaluation->n_items);
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        bool is_allowed = decision->outcome == STINT_ALLOW;
        target->over = !is_allowed && i == decision->binding;
        if (is_allowed || target->over)
            target->decision = *decision;
        if (is_allowed && evaluation->n_items > 1) {
            target->decision = stands(evaluation, target);
            target->decision.retry_after_ns = decision->retry_after_ns; /* until a booking starts */
        }
        target->decision.granted = is_allowed ? target->cost : 0;
    }
    decision->binding = evaluation->target_of[decision->binding];
}

static bool has_quota_mode(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (target_asks(&evaluation->targets[i]) && evaluation->targets[i].is_quota_mode)
            return true;
    return false;
}

/* Blocks and exclusions, which must be known before all the rest is charged at once. */
static bool may_charge(struct evaluation *evaluation)
{
    if (has_quota_mode(evaluation))
        ask_live(evaluation, false);
    else
        evaluation_find_blocks(evaluation, STINT_TAKE, 0);
    return !is_denied(evaluation, NO_TARGET);
}

/* The collected targets, to be issued together with the charges of shadows and candidates. */
static struct stint_decision reserve_gathered(struct evaluation *evaluation,
                                              struct reservation *reservation)
{
    assert(evaluation->n_items > 0 && evaluation->reservation == NULL);
    uint32_t kept[TARGETS_MAX];
    struct stint_decision decision = algorithm_never(0);
    for (size_t i = 0; i < evaluation->n_items; i++)
        kept[i] = evaluation_kept(evaluation, &evaluation->targets[evaluation->target_of[i]]);
    if (list_init(&evaluation->list, evaluation->table, evaluation->items, evaluation->n_items,
                  evaluation->now_ns))
        reservation_take(reservation, &evaluation->list, evaluation->items, kept, &decision);
    return decision;
}

static struct stint_decision reserve_in_table(struct evaluation *evaluation, uint64_t lifetime_ns,
                                              struct stint_ticket *ticket, bool *has_ticket)
{
    assert(evaluation->pending == NULL);
    struct reservation reservation;
    if (!may_charge(evaluation))
        return refuse(evaluation);
    reservation_init(&reservation);
    if (gather(evaluation)) {
        struct stint_decision decision = reserve_gathered(evaluation, &reservation);
        hand_out_one(evaluation, &decision);
        if (decision.outcome != STINT_ALLOW) {
            struct stint_decision seen = refuse(evaluation);
            return seen.outcome != STINT_ALLOW ? seen : decision;
        }
    }
    evaluation->reservation = &reservation;
    ask_shadows(evaluation, STINT_TAKE, UINT32_MAX);
    evaluation->reservation = NULL;
    *has_ticket = reservation.n_entries > 0;
    if (*has_ticket)
        *ticket =
            reservation_issue(&reservation, evaluation->table, lifetime_ns, evaluation->now_ns);
    return evaluation_sum(evaluation, is_denied(evaluation, NO_TARGET));
}

/* A fallback gives no tickets: the store has granted something. */
static bool any_ticket(const struct evaluation *evaluation)
{
    assert(evaluation->is_ticket);
    for (size_t i = 0; evaluation->ticket_store != 0 && i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->is_reserved || (target_is_charged(target) && target->fallback == FALLBACK_NONE))
            return true;
    }
    return false;
}

/* evaluation_ticket_write() gives the ticket. */
static struct stint_decision reserve_in_store(struct evaluation *evaluation, uint64_t lifetime_ns,
                                              bool *has_ticket)
{
    assert(evaluation->pending != NULL);
    if (!evaluation_begin_ticket(evaluation, false, lifetime_ns))
        return decision_unlimited(0);
    bool denied = ask_live(evaluation, true);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    /* Where the id was known, so are the shadows' own in the same store: each is charged once. */
    evaluation->has_charged = evaluation->is_replayed;
    struct stint_decision decision =
        end(evaluation, denied, denied ? STINT_PEEK : STINT_TAKE, UINT32_MAX);
    *has_ticket = !denied && any_ticket(evaluation);
    return decision;
}

/* Shadows are not evaluated: they have no queue, so the position of a booking is unknown. */
static struct stint_decision book_in_table(struct evaluation *evaluation, uint64_t max_wait_ns,
                                           struct stint_ticket *ticket, bool *has_ticket)
{
    evaluation_find_blocks(evaluation, STINT_BOOK, max_wait_ns);
    if (is_denied(evaluation, NO_TARGET) || !gather(evaluation))
        return evaluation_sum(evaluation, is_denied(evaluation, NO_TARGET));
    struct stint_decision decision =
        stint_book(evaluation->table, evaluation->items, evaluation->n_items, max_wait_ns,
                   evaluation->now_ns, ticket);
    hand_out_one(evaluation, &decision);
    *has_ticket = decision.outcome == STINT_ALLOW;
    return decision;
}

static struct stint_decision book_in_store(struct evaluation *evaluation, uint64_t max_wait_ns,
                                           bool *has_ticket)
{
    assert(evaluation->pending != NULL);
    if (!evaluation_begin_ticket(evaluation, true, 0))
        return decision_unlimited(0);
    evaluation_find_blocks(evaluation, STINT_BOOK, max_wait_ns);
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        const struct stint_ask ask = {.now_ns = evaluation->now_ns,
                                      .at_ns = max_wait_ns,
                                      .cost = target->cost,
                                      .verb = STINT_BOOK};
        if (!target_takes(target))
            continue;
        target->decision = evaluation_ask_one(evaluation, target, target->quota, &ask);
        target->over = target->decision.outcome != STINT_ALLOW;
    }
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    *has_ticket = any_ticket(evaluation);
    return evaluation_sum(evaluation, is_denied(evaluation, NO_TARGET));
}

/* The ticket is kept in the ring of the table, or in the store of the deciding states. */
struct stint_decision evaluation_reserve(struct evaluation *evaluation, uint64_t lifetime_ns,
                                         struct stint_ticket *ticket, bool *has_ticket)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    *has_ticket = false;
    return evaluation->pending != NULL
               ? reserve_in_store(evaluation, lifetime_ns, has_ticket)
               : reserve_in_table(evaluation, lifetime_ns, ticket, has_ticket);
}

struct stint_decision evaluation_book(struct evaluation *evaluation, uint64_t max_wait_ns,
                                      struct stint_ticket *ticket, bool *has_ticket)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    *has_ticket = false;
    return evaluation->pending != NULL ? book_in_store(evaluation, max_wait_ns, has_ticket)
                                       : book_in_table(evaluation, max_wait_ns, ticket, has_ticket);
}

/* ---- block and reset ------------------------------------------------------------------------- */

static void forget(struct evaluation *evaluation, struct target *target,
                   const struct stint_quota *quota)
{
    const struct stint_ask ask = {.now_ns = evaluation->now_ns, .verb = REQUEST_RESET};
    assert(target->part != TARGET_FREE && quota != NULL);
    if (target->store != 0)
        evaluation_ask_one(evaluation, target, quota, &ask);
    stint_reset(evaluation->table, quota, target->key.ptr, target->key.len, evaluation->now_ns);
}

void evaluation_reset(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_FREE)
            continue;
        forget(evaluation, target, target->quota);
        if (target_candidate(target) != NULL)
            forget(evaluation, target, target_candidate(target));
        if (target_has_ban(target))
            ban_lift(evaluation->table, target->rule, target->key, evaluation->now_ns);
    }
}
