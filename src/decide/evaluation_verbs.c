/* SPDX-License-Identifier: MIT */
/* The verbs that move units other than all or nothing, or for later. */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"

/* ---- take_upto ------------------------------------------------------------------------------- */

static uint32_t least_cost(const struct evaluation *evaluation)
{
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (target_asks(&evaluation->targets[i]))
            least = (uint32_t)min_u64(least, evaluation->targets[i].cost);
    return least;
}

static uint32_t upto_gathered(struct evaluation *evaluation, uint32_t most)
{
    if (!evaluation_list(evaluation))
        return 0;
    struct stint_decision sum = list_take_upto(&evaluation->list, most);
    uint32_t granted = sum.outcome == STINT_ALLOW ? sum.granted : 0;
    evaluation_hand_out(evaluation);
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

uint32_t evaluation_upto_gathered(struct evaluation *evaluation, uint32_t most)
{
    bool is_new;
    struct pending *pending = evaluation->pending;
    if (pending == NULL)
        return upto_gathered(evaluation, most);
    union pending_result *notes =
        pending_note(pending, PENDING_DECISION, evaluation->n_items, &is_new);
    union pending_result *sum = pending_note(pending, PENDING_GRANTED, 1, &is_new);
    if (sum == NULL)
        return 0;
    if (is_new)
        sum->granted = upto_gathered(evaluation, most);
    evaluation_note_gathered(evaluation, notes, is_new);
    return sum->granted;
}

/* One round of best effort; how much was granted. */
static uint32_t try_upto(struct evaluation *evaluation, uint32_t most)
{
    if (evaluation->pending != NULL)
        return evaluation_take_upto_shared(evaluation, most);
    return evaluation_gather(evaluation) ? upto_gathered(evaluation, most) : 0;
}

struct stint_decision evaluation_take_upto(struct evaluation *evaluation)
{
    uint32_t most = least_cost(evaluation), granted = 0;
    for (size_t i = 0; most == 0 && i < evaluation->n_targets; i++)
        evaluation->targets[i].cost = 0; /* the least is granted: nothing from any */
    if (most == 0)
        return evaluation_peek(evaluation);
    evaluation_go_on(evaluation);
    evaluation_find_blocks(evaluation);
    do {
        if (evaluation_is_denied(evaluation, NO_TARGET))
            break;
        granted = try_upto(evaluation, most);
        if (evaluation_is_given_up(evaluation))
            return decision_unlimited(0);
    } while (granted == 0 && !evaluation_is_denied(evaluation, NO_TARGET) &&
             evaluation_exclude(evaluation));
    bool denied = evaluation_is_denied(evaluation, NO_TARGET);
    if (denied) {
        evaluation_look_again(evaluation);
        evaluation_count_denials(evaluation);
    }
    evaluation_ask_shadows(evaluation, evaluation->is_replayed ? STINT_PEEK : STINT_TAKE_UPTO,
                           granted > 0 ? granted : most);
    return evaluation_sum(evaluation);
}

/* ---- charge and refund ----------------------------------------------------------------------- */

/* The moves under one target, and the answers of its store. */
struct moving {
    struct stint_ask ask;
    const struct backend_answer *live, *candidate; /* NULL: no answer */
};

static const struct stint_quota *candidate_of(const struct target *target)
{
    return target->rule != NULL && target->rule->has_shadow ? &target->rule->shadow : NULL;
}

static void send_moving(struct evaluation *evaluation, struct target *target, struct moving *moving)
{
    const struct stint_quota *candidate = candidate_of(target);
    moving->live = evaluation_send(evaluation, target, target->quota, &moving->ask);
    if (candidate != NULL)
        moving->candidate = evaluation_send(evaluation, target, candidate, &moving->ask);
}

static void read_moving(struct evaluation *evaluation, struct target *target,
                        const struct moving *moving)
{
    const struct stint_quota *candidate = candidate_of(target);
    target->decision =
        evaluation_read(evaluation, target, target->quota, &moving->ask, moving->live);
    if (candidate != NULL)
        evaluation_read(evaluation, target, candidate, &moving->ask, moving->candidate);
}

static void move_in_table(struct evaluation *evaluation, struct target *target,
                          const struct moving *moving)
{
    const struct stint_quota *candidate = candidate_of(target);
    target->decision = evaluation_ask_table(evaluation, target, target->quota, &moving->ask);
    if (candidate != NULL)
        evaluation_ask_table(evaluation, target, candidate, &moving->ask);
}

/*
 * Moves units of every quota, the shadows' too; returns the least that any live one moved. A
 * descriptor that gives its hits back does so whatever verb the others have. Those of the table
 * move first: also where no store ever answers.
 */
static struct stint_decision move_all(struct evaluation *evaluation, uint8_t verb, uint64_t at_ns)
{
    uint32_t least = UINT32_MAX;
    struct moving all[TARGETS_MAX];
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        all[i] = (struct moving){.ask = {
                                     .now_ns = evaluation->now_ns,
                                     .at_ns = target->is_refund ? STINT_NEVER_NS : at_ns,
                                     .cost = target->cost,
                                     .verb = target->is_refund ? STINT_REFUND : verb,
                                 }};
        if (target->part != TARGET_FREE && target->store == 0)
            move_in_table(evaluation, target, &all[i]);
    }
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part != TARGET_FREE && evaluation->targets[i].store != 0)
            send_moving(evaluation, &evaluation->targets[i], &all[i]);
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_FREE)
            continue;
        if (target->store != 0 && !evaluation_is_given_up(evaluation))
            read_moving(evaluation, target, &all[i]);
        target->over = target->decision.outcome != STINT_ALLOW && target->part == TARGET_LIVE;
        if (target->part == TARGET_LIVE)
            least = (uint32_t)min_u64(least, target->decision.granted);
    }
    struct stint_decision sum = evaluation_sum(evaluation);
    sum.granted = (uint32_t)min_u64(least, sum.granted);
    return sum;
}

struct stint_decision evaluation_charge(struct evaluation *evaluation)
{
    evaluation_go_on(evaluation);
    return move_all(evaluation, STINT_CHARGE, 0);
}

struct stint_decision evaluation_refund(struct evaluation *evaluation, uint64_t granted_at_ns)
{
    return move_all(evaluation, STINT_REFUND, granted_at_ns);
}

/* ---- reserve and book ------------------------------------------------------------------------ */

/* Targets of one decision. If several are charged, each has its numbers. */
static void hand_out_one(struct evaluation *evaluation, const struct stint_decision *decision)
{
    for (size_t i = 0; i < evaluation->n_items; i++) {
        struct target *target = &evaluation->targets[evaluation->target_of[i]];
        bool is_allowed = decision->outcome == STINT_ALLOW;
        target->over = !is_allowed && i == decision->binding;
        if (is_allowed || target->over)
            target->decision = *decision;
        if (is_allowed && evaluation->n_items > 1) {
            target->decision = evaluation_stands(evaluation, target);
            target->decision.retry_after_ns = decision->retry_after_ns; /* until a booking starts */
        }
        target->decision.granted = is_allowed ? target->cost : 0;
    }
}

static struct stint_decision of_request(const struct evaluation *evaluation,
                                        struct stint_decision decision)
{
    decision.binding = evaluation->target_of[decision.binding];
    return decision;
}

/* The list does not show which item denies: each target is peeked. */
static struct stint_decision refuse(struct evaluation *evaluation)
{
    evaluation_ask_live(evaluation, false);
    if (evaluation_is_denied(evaluation, NO_TARGET))
        evaluation_look_again(evaluation);
    evaluation_count_denials(evaluation);
    evaluation_ask_shadows(evaluation, STINT_PEEK, UINT32_MAX);
    return evaluation_sum(evaluation);
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
        evaluation_ask_live(evaluation, false);
    else
        evaluation_find_blocks(evaluation);
    return !evaluation_is_denied(evaluation, NO_TARGET);
}

/* The collected targets, to be issued together with the charges of shadows and candidates. */
static struct stint_decision reserve_gathered(struct evaluation *evaluation,
                                              struct reservation *reservation)
{
    uint32_t kept[TARGETS_MAX];
    struct stint_decision decision = algorithm_never(0);
    for (size_t i = 0; i < evaluation->n_items; i++)
        kept[i] = evaluation_kept(evaluation, &evaluation->targets[evaluation->target_of[i]]);
    if (list_init(&evaluation->list, evaluation->table, evaluation->items, evaluation->n_items,
                  evaluation->now_ns))
        reservation_take(reservation, &evaluation->list, evaluation->items, kept, &decision);
    return decision;
}

struct stint_decision evaluation_reserve(struct evaluation *evaluation, uint64_t lifetime_ns,
                                         struct stint_ticket *ticket, bool *has_ticket)
{
    struct reservation reservation;
    *has_ticket = false;
    if (evaluation->pending != NULL)
        return evaluation_reserve_shared(evaluation, lifetime_ns, has_ticket);
    if (!may_charge(evaluation))
        return refuse(evaluation);
    reservation_init(&reservation);
    if (evaluation_gather(evaluation)) {
        struct stint_decision decision = reserve_gathered(evaluation, &reservation);
        hand_out_one(evaluation, &decision);
        if (decision.outcome != STINT_ALLOW) {
            struct stint_decision seen = refuse(evaluation);
            return seen.outcome != STINT_ALLOW ? seen : of_request(evaluation, decision);
        }
    }
    evaluation->reservation = &reservation;
    evaluation_ask_shadows(evaluation, STINT_TAKE, UINT32_MAX);
    evaluation->reservation = NULL;
    *has_ticket = reservation.n_entries > 0;
    if (*has_ticket)
        *ticket =
            reservation_issue(&reservation, evaluation->table, lifetime_ns, evaluation->now_ns);
    return evaluation_sum(evaluation);
}

/* Shadows are not evaluated: they have no queue, so the position of a booking is unknown. */
struct stint_decision evaluation_book(struct evaluation *evaluation, uint64_t max_wait_ns,
                                      struct stint_ticket *ticket, bool *has_ticket)
{
    *has_ticket = false;
    if (evaluation->pending != NULL)
        return evaluation_book_shared(evaluation, max_wait_ns, has_ticket);
    evaluation_find_blocks(evaluation);
    if (evaluation_is_denied(evaluation, NO_TARGET) || !evaluation_gather(evaluation))
        return evaluation_sum(evaluation);
    struct stint_decision decision =
        stint_book(evaluation->table, evaluation->items, evaluation->n_items, max_wait_ns,
                   evaluation->now_ns, ticket);
    hand_out_one(evaluation, &decision);
    *has_ticket = decision.outcome == STINT_ALLOW;
    return of_request(evaluation, decision);
}
