/* SPDX-License-Identifier: MIT */
/*
 * The verbs that decide. The live targets, all or nothing: rounds over the table and the stores;
 * then the limits beside them that are not enforced.
 */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"

#include <assert.h>

/* ---- Quota mode ------------------------------------------------------------------------------ */

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
    if (evaluation->n_targets == 1 && quota_keeps_times(item->quota)) {
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

/* Whether what was granted has to go back: a target is over, or a store has no decision. */
static bool is_refused(const struct evaluation *evaluation)
{
    if (evaluation->fault != 0)
        return true;
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
            charges = charges && !is_refused(evaluation);
        }
        evaluation_ask_groups(evaluation, charges ? REQUEST_TAKE : REQUEST_PEEK, UINT32_MAX,
                              groups);
        if (evaluation->is_waiting)
            return;
        denied = is_refused(evaluation);
    }
    if (gather(evaluation)) { /* with those whose fallback is local */
        run_gathered(evaluation, charges && !denied, 0);
        denied = is_shared && is_refused(evaluation);
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
    bool denied = evaluation_is_denied(evaluation, NO_TARGET);
    if (!denied)
        exclude(evaluation); /* else the others would be evaluated, and charged, twice */
    for (;;) {
        take_round(evaluation, charges && !denied);
        if (evaluation_is_to_wait(evaluation))
            return true;
        denied = evaluation_is_denied(evaluation, NO_TARGET);
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

/* The least that a store granted of each, at most `most`; nothing where the list is refused. */
static uint32_t least_granted(const struct evaluation *evaluation,
                              const struct evaluation_group *groups, uint32_t most)
{
    assert(evaluation->pending != NULL);
    for (size_t store = 0; store < evaluation->stores->n_stores; store++)
        if (groups[store].answer != NULL)
            most = (uint32_t)min_u64(most, groups[store].granted);
    return is_refused(evaluation) ? 0 : most;
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
        if (granted == 0 || evaluation->is_waiting)
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
    while (!evaluation_is_denied(evaluation, NO_TARGET)) {
        uint32_t granted = upto_round(evaluation, most);
        assert(granted <= most);
        if (granted > 0 || evaluation_is_to_wait(evaluation))
            return granted;
        if (evaluation_is_denied(evaluation, NO_TARGET) || !exclude(evaluation))
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
    bool is_peeked = target->banned || was_charged ||
                     evaluation_is_denied(evaluation, is_shadow ? NO_TARGET : at);
    const struct evaluation_step step = {
        .target = target,
        .quota = target->quota,
        .hits = target->hits,
        .ask = {.now_ns = evaluation->now_ns,
                .cost = (uint32_t)min_u64(target->cost, most),
                .verb = is_peeked ? STINT_PEEK : verb},
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
    struct target *passed[TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        assert(!target->is_settled || target_asks(target)); /* its own decision did it */
        if (target_asks(target) && !target->over && !target->is_settled)
            passed[n++] = target;
    }
    evaluation_look(evaluation, passed, n);
    if (evaluation_is_to_wait(evaluation))
        return;
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
    if (!evaluation_is_to_wait(evaluation))
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

static struct stint_decision take(struct evaluation *evaluation, bool charges)
{
    bool denied = ask_live(evaluation, charges);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    if (denied && charges)
        count_denial(evaluation);
    charges = charges && !evaluation->is_replayed;
    if (!evaluation_is_to_wait(evaluation))
        ask_shadows(evaluation, charges ? STINT_TAKE : STINT_PEEK, UINT32_MAX);
    if (!evaluation_is_to_wait(evaluation))
        evaluation_ask_refunds(evaluation, charges && !denied);
    return evaluation_sum(evaluation, denied);
}

struct stint_decision evaluation_take(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    if (evaluation->n_targets > 1)
        evaluation_go_on(evaluation);
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
    evaluation_go_on(evaluation);
    uint32_t granted = upto_live(evaluation, most);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    return end(evaluation, evaluation_is_denied(evaluation, NO_TARGET),
               evaluation->is_replayed ? STINT_PEEK : STINT_TAKE_UPTO,
               granted > 0 ? granted : most);
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
            evaluation_look(evaluation, &target, 1);
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
    return !evaluation_is_denied(evaluation, NO_TARGET);
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
    return evaluation_sum(evaluation, evaluation_is_denied(evaluation, NO_TARGET));
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
    if (evaluation_is_denied(evaluation, NO_TARGET) || !gather(evaluation))
        return evaluation_sum(evaluation, evaluation_is_denied(evaluation, NO_TARGET));
    struct stint_decision decision =
        stint_book(evaluation->table, evaluation->items, evaluation->n_items, max_wait_ns,
                   evaluation->now_ns, ticket);
    hand_out_one(evaluation, &decision);
    *has_ticket = decision.outcome == STINT_ALLOW;
    return decision;
}

static void end_book(struct evaluation *evaluation, const struct evaluation_step *step,
                     const struct stint_decision *decision, bool is_over)
{
    assert(target_takes(step->target));
    (void)evaluation;
    step->target->decision = *decision;
    step->target->over = is_over;
}

static struct stint_decision book_in_store(struct evaluation *evaluation, uint64_t max_wait_ns,
                                           bool *has_ticket)
{
    struct evaluation_step steps[TARGETS_MAX];
    size_t n = 0;
    assert(evaluation->pending != NULL);
    if (!evaluation_begin_ticket(evaluation, true, 0))
        return decision_unlimited(0);
    evaluation_find_blocks(evaluation, STINT_BOOK, max_wait_ns);
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target_takes(target))
            steps[n++] = (struct evaluation_step){.target = target,
                                                  .quota = target->quota,
                                                  .ask = {.now_ns = evaluation->now_ns,
                                                          .at_ns = max_wait_ns,
                                                          .cost = target->cost,
                                                          .verb = STINT_BOOK}};
    }
    evaluation_run_steps(evaluation, steps, n, end_book);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    *has_ticket = any_ticket(evaluation);
    return evaluation_sum(evaluation, evaluation_is_denied(evaluation, NO_TARGET));
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
