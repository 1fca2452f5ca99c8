/* SPDX-License-Identifier: MIT */
/*
 * The live targets, all or nothing: what is blocked, what denies, rounds over the table and the
 * stores; then the limits beside them that are not enforced.
 */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"
#include "rules/ban.h"
#include "table/cooldown.h"

#include <assert.h>

#define NO_TARGET SIZE_MAX

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

/* Whether the live targets, as decided, deny the request; one may be left out. */
static bool is_denied_without(const struct evaluation *evaluation, size_t except)
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
        any_passes = any_passes || (target->is_quota_mode && passes_in_quota_mode(target));
    }
    return quota_modes_over > 0 && !any_passes;
}

bool evaluation_is_denied(const struct evaluation *evaluation)
{
    return is_denied_without(evaluation, NO_TARGET);
}

bool evaluation_would_be_denied(const struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
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
    assert(a != NULL);
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
    sum.binding = (uint8_t)evaluation_index(evaluation, binding);
    sum.retry_after_ns = retry_after_ns;
    sum.granted = 0;
    assert(sum.outcome != STINT_ALLOW);
    return sum;
}

/* Where no live quota decides, the numbers are those of a shadow one: this gives at least some. */
static struct stint_decision sum_allowed(const struct evaluation *evaluation)
{
    assert(evaluation->n_targets > 0);
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
    assert(binding != NULL);
    struct stint_decision sum = binding->decision;
    sum.binding = (uint8_t)evaluation_index(evaluation, binding);
    return sum;
}

struct stint_decision evaluation_sum(const struct evaluation *evaluation, bool is_denied)
{
    assert(evaluation_is_valid(evaluation));
    return is_denied ? sum_denied(evaluation) : sum_allowed(evaluation);
}

/* ---- Blocks and bans ------------------------------------------------------------------------- */

/* The latest end of all that blocks the key; 0: not blocked. */
static uint64_t blocked_until(struct evaluation *evaluation, const struct target *target)
{
    assert(target_asks(target));
    struct stint_table *table = evaluation->table;
    uint64_t now_ns = evaluation->now_ns, until_ns = 0;
    if (target_has_ban(target))
        until_ns = ban_until(table, target->rule, target->key, now_ns);
    if (table_has_blocks(table, now_ns) && target->key.len <= STINT_KEY_MAX) {
        struct hash128 hash = table_block_hash(table, target->key.ptr, target->key.len);
        until_ns = max_u64(until_ns, table_blocked_until(table, hash));
    }
    return until_ns > now_ns ? until_ns : 0;
}

static void deny_until(const struct evaluation *evaluation, struct target *target,
                       uint64_t until_ns)
{
    assert(target->quota != NULL && until_ns > evaluation->now_ns);
    uint32_t capacity = most_units(target->quota);
    uint64_t wait_ns = until_ns - evaluation->now_ns;
    target->banned = true;
    target->over = true;
    if (target->cost > capacity)
        target->decision = algorithm_never(capacity);
    else
        target->decision = (struct stint_decision){.outcome = STINT_DENY,
                                                   .stored = 1,
                                                   .limit = capacity,
                                                   .retry_after_ns = wait_ns,
                                                   .reset_after_ns = wait_ns};
}

/* The results of the first run of the request: bans may have been added since. */
static void recall_blocks(struct evaluation *evaluation, const union pending_result *notes)
{
    assert(notes != NULL);
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (notes[i].blocked_until_ns > 0)
            deny_until(evaluation, &evaluation->targets[i], notes[i].blocked_until_ns);
}

static bool any_may_be_blocked(const struct evaluation *evaluation)
{
    return table_has_blocks(evaluation->table, evaluation->now_ns) ||
           cooldown_any(evaluation->table, evaluation->now_ns);
}

static void find_blocks(struct evaluation *evaluation, union pending_result *notes)
{
    assert((notes != NULL) == (evaluation->pending != NULL));
    if (!any_may_be_blocked(evaluation))
        return;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        bool asks_nothing = target->cost == 0 && target->hits != TARGET_HITS_CHECK;
        if (!target_asks(target) || asks_nothing)
            continue;
        uint64_t until_ns = blocked_until(evaluation, target);
        if (until_ns > 0)
            deny_until(evaluation, target, until_ns);
        if (notes != NULL)
            notes[i].blocked_until_ns = until_ns;
    }
}

/* Whether there are no blocks, now and in the first run of the request. */
static bool knows_of_no_blocks(const struct evaluation *evaluation)
{
    assert(evaluation->pending != NULL);
    struct pending *pending = evaluation->pending;
    if (pending->blocks == PENDING_BLOCKS_UNKNOWN)
        pending->blocks =
            any_may_be_blocked(evaluation) ? PENDING_BLOCKS_NOTED : PENDING_BLOCKS_NONE;
    return pending->blocks == PENDING_BLOCKS_NONE;
}

void evaluation_find_blocks(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    bool is_new = true;
    union pending_result *notes = NULL;
    if (evaluation->pending != NULL) {
        if (knows_of_no_blocks(evaluation))
            return;
        notes = pending_note(evaluation->pending, PENDING_BLOCKED_UNTIL, evaluation->n_targets,
                             &is_new);
        if (notes == NULL)
            return;
    }
    if (is_new)
        find_blocks(evaluation, notes);
    else
        recall_blocks(evaluation, notes);
}

/* Once for a request, however often it runs. */
static struct ban_made count_denial(struct evaluation *evaluation, const struct target *target)
{
    assert(target->over && target_has_ban(target));
    bool is_new;
    union pending_result space, *note;
    note = evaluation_note(evaluation, PENDING_BAN, 1, &space, &is_new);
    if (note == NULL)
        return (struct ban_made){0};
    if (is_new)
        note->ban = ban_count(evaluation->table, target->rule, target->key, evaluation->now_ns);
    return note->ban;
}

/* After a denial: counts it for the bans of the rules that denied. */
static void count_denials(struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        /* Blocked already: more denials never extend a ban. NEVER does not depend on repetition. */
        if (!target_asks(target) || !target_has_ban(target) || !target->over || target->banned ||
            target->decision.outcome != STINT_DENY || target->hits == TARGET_HITS_CHARGE)
            continue; /* a charge means that it was served */
        struct ban_made made = count_denial(evaluation, target);
        evaluation->bans_lost += made.is_lost;
        if (made.until_ns == 0)
            continue;
        uint64_t own_wait_ns = target->decision.retry_after_ns;
        deny_until(evaluation, target, made.until_ns);
        target->decision.retry_after_ns = max_u64(target->decision.retry_after_ns, own_wait_ns);
        target->made_ban = true;
    }
}

/* ---- Hits that are no take ------------------------------------------------------------------- */

static bool is_asked(const struct target *target)
{
    return target->hits != TARGET_HITS_TAKE && target_asks(target) &&
           !(target->banned && target->hits == TARGET_HITS_CHECK);
}

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
        if (is_asked(target))
            steps[n++] = (struct evaluation_step){
                .target = target, .quota = target->quota, .hits = target->hits, .charges = charges};
    }
    if (n > 0)
        evaluation_run_steps(evaluation, steps, n, end_live_hits);
}

/* ---- The table ------------------------------------------------------------------------------- */

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
static void hand_out(struct evaluation *evaluation)
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

struct stint_decision evaluation_stands(struct evaluation *evaluation, struct target *target)
{
    assert(target->part != TARGET_FREE);
    const struct stint_ask ask = {.now_ns = evaluation->now_ns, .verb = STINT_PEEK};
    struct stint_decision decision = evaluation_ask_one(evaluation, target, target->quota, &ask);
    decision.outcome = STINT_ALLOW;
    decision.retry_after_ns = 0;
    return decision;
}

/* For a refused request, the targets that had capacity: their numbers, as nothing was taken. */
static void look_again(struct evaluation *evaluation)
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
    assert(evaluation_is_valid(evaluation));
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
    assert(evaluation->n_items > 0);
    if (charges && evaluation->n_items == 1) {
        take_one(evaluation);
    } else if (make_list(evaluation)) {
        if (charges)
            list_take(&evaluation->list);
        else
            list_ask(&evaluation->list, STINT_PEEK, 0);
        hand_out(evaluation);
    }
}

/* The decisions of this run are kept for later ones, or those of an earlier run repeated. */
static void note_gathered(struct evaluation *evaluation, union pending_result *notes, bool is_new)
{
    assert(notes != NULL && evaluation->pending != NULL);
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        if (is_new)
            notes[i].decision = target->decision;
        target->decision = notes[i].decision;
        target->over = target->decision.outcome != STINT_ALLOW;
    }
}

/* Decides what was collected. */
static void ask_gathered(struct evaluation *evaluation, bool charges)
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
    note_gathered(evaluation, notes, is_new);
}

static uint32_t upto_list(struct evaluation *evaluation, uint32_t most)
{
    assert(most > 0);
    if (!make_list(evaluation))
        return 0;
    struct stint_decision sum = list_take_upto(&evaluation->list, most);
    uint32_t granted = sum.outcome == STINT_ALLOW ? sum.granted : 0;
    hand_out(evaluation);
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

/* Decides what was collected by best effort: how many units each was charged. */
static uint32_t upto_gathered(struct evaluation *evaluation, uint32_t most)
{
    bool is_new;
    struct pending *pending = evaluation->pending;
    if (pending == NULL)
        return upto_list(evaluation, most);
    union pending_result *notes =
        pending_note(pending, PENDING_DECISION, evaluation->n_items, &is_new);
    union pending_result *sum = pending_note(pending, PENDING_GRANTED, 1, &is_new);
    if (sum == NULL)
        return 0;
    if (is_new)
        sum->granted = upto_list(evaluation, most);
    note_gathered(evaluation, notes, is_new);
    return sum->granted;
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
    bool is_shared = evaluation->pending != NULL, is_denied = false;
    if (is_shared) {
        if (evaluation_gather(evaluation)) {
            ask_gathered(evaluation, false);
            charges = charges && !anyone_is_over(evaluation);
        }
        evaluation_ask_groups(evaluation, charges ? REQUEST_TAKE : REQUEST_PEEK, UINT32_MAX,
                              groups);
        if (evaluation_is_to_wait(evaluation))
            return;
        is_denied = anyone_is_over(evaluation);
    }
    if (evaluation_gather(evaluation)) /* with those whose fallback is local */
        ask_gathered(evaluation, charges && !is_denied);
    if (is_shared && charges && anyone_is_over(evaluation))
        evaluation_take_back(evaluation, groups, 0);
}

bool evaluation_ask_live(struct evaluation *evaluation, bool charges)
{
    assert(evaluation_is_valid(evaluation));
    evaluation_find_blocks(evaluation);
    ask_hits(evaluation, charges);
    if (evaluation_is_to_wait(evaluation))
        return true;
    bool is_denied = evaluation_is_denied(evaluation);
    if (!is_denied)
        exclude(evaluation); /* else the others would be evaluated, and charged, twice */
    for (;;) {
        take_round(evaluation, charges && !is_denied);
        if (evaluation_is_to_wait(evaluation))
            return true;
        is_denied = evaluation_is_denied(evaluation);
        if (is_denied || !exclude(evaluation))
            return is_denied;
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
    if (!evaluation_gather(evaluation))
        return most;
    ask_gathered(evaluation, false);
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
    if (granted > 0 && evaluation_gather(evaluation))
        granted = upto_gathered(evaluation, granted);
    else if (!is_shared)
        granted = 0;
    if (is_shared)
        evaluation_take_back(evaluation, groups, granted);
    return granted;
}

uint32_t evaluation_upto_live(struct evaluation *evaluation, uint32_t most)
{
    assert(evaluation_is_valid(evaluation) && most > 0);
    evaluation_find_blocks(evaluation);
    while (!evaluation_is_denied(evaluation)) {
        uint32_t granted = upto_round(evaluation, most);
        assert(granted <= most);
        if (granted > 0 || evaluation_is_to_wait(evaluation))
            return granted;
        if (evaluation_is_denied(evaluation) || !exclude(evaluation))
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
        target->banned || was_charged || is_denied_without(evaluation, is_shadow ? NO_TARGET : at);
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

void evaluation_ask_shadows(struct evaluation *evaluation, uint8_t verb, uint32_t most)
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

void evaluation_count_denial(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    look_again(evaluation);
    count_denials(evaluation);
}

/* The list does not show which item denies: each target is peeked. */
struct stint_decision evaluation_refuse(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->pending == NULL);
    evaluation_ask_live(evaluation, false);
    if (evaluation_is_denied(evaluation))
        look_again(evaluation);
    count_denials(evaluation);
    evaluation_ask_shadows(evaluation, STINT_PEEK, UINT32_MAX);
    return evaluation_sum(evaluation, evaluation_is_denied(evaluation));
}
