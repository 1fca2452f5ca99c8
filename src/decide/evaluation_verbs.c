/* SPDX-License-Identifier: MIT */
/* The verbs, and when what is left grows. */
#include "decide/evaluation_parts.h"

#include "algorithm/gcra.h"
#include "base/wide_int.h"

#include <assert.h>

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
                                   : evaluation_stands(evaluation, target);
        if (charges && target_candidate(target) != NULL)
            evaluation_ask_one(evaluation, target, target_candidate(target), &ask);
    }
}

static struct stint_decision take(struct evaluation *evaluation, bool charges)
{
    bool denied = evaluation_ask_live(evaluation, charges);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    if (denied && charges)
        evaluation_count_denial(evaluation);
    charges = charges && !evaluation->is_replayed;
    evaluation_ask_shadows(evaluation, charges ? STINT_TAKE : STINT_PEEK, UINT32_MAX);
    ask_refunds(evaluation, charges && !denied);
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
    uint32_t granted = evaluation_upto_live(evaluation, most);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    bool denied = evaluation_is_denied(evaluation);
    if (denied)
        evaluation_count_denial(evaluation);
    evaluation_ask_shadows(evaluation, evaluation->is_replayed ? STINT_PEEK : STINT_TAKE_UPTO,
                           granted > 0 ? granted : most);
    return evaluation_sum(evaluation, denied);
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
    struct stint_decision sum = evaluation_sum(evaluation, evaluation_is_denied(evaluation));
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

/* ---- reserve and book ------------------------------------------------------------------------ */

/* Targets of one decision. If several are charged, each has its numbers. */
static void hand_out_one(struct evaluation *evaluation, const struct stint_decision *decision)
{
    assert(decision->outcome == STINT_ALLOW || decision->binding < evaluation->n_items);
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
    assert(decision.binding < evaluation->n_items);
    decision.binding = evaluation->target_of[decision.binding];
    return decision;
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
    return !evaluation_is_denied(evaluation);
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
        return evaluation_refuse(evaluation);
    reservation_init(&reservation);
    if (evaluation_gather(evaluation)) {
        struct stint_decision decision = reserve_gathered(evaluation, &reservation);
        hand_out_one(evaluation, &decision);
        if (decision.outcome != STINT_ALLOW) {
            struct stint_decision seen = evaluation_refuse(evaluation);
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
    return evaluation_sum(evaluation, evaluation_is_denied(evaluation));
}

static struct stint_decision reserve_in_store(struct evaluation *evaluation, uint64_t lifetime_ns,
                                              struct stint_ticket *ticket, bool *has_ticket)
{
    assert(evaluation->pending != NULL);
    (void)ticket; /* evaluation_ticket_write() gives it */
    if (!evaluation_begin_ticket(evaluation, false, lifetime_ns))
        return decision_unlimited(0);
    bool denied = evaluation_ask_live(evaluation, true);
    if (evaluation_is_to_wait(evaluation))
        return decision_unlimited(0);
    if (denied)
        evaluation_count_denial(evaluation);
    /* Where the id was known, so are the shadows' own in the same store: each is charged once. */
    evaluation->has_charged = evaluation->is_replayed;
    evaluation_ask_shadows(evaluation, denied ? STINT_PEEK : STINT_TAKE, UINT32_MAX);
    *has_ticket = !denied && evaluation_has_ticket(evaluation);
    return evaluation_sum(evaluation, denied);
}

/* Shadows are not evaluated: they have no queue, so the position of a booking is unknown. */
static struct stint_decision book_in_table(struct evaluation *evaluation, uint64_t max_wait_ns,
                                           struct stint_ticket *ticket, bool *has_ticket)
{
    evaluation_find_blocks(evaluation);
    if (evaluation_is_denied(evaluation) || !evaluation_gather(evaluation))
        return evaluation_sum(evaluation, evaluation_is_denied(evaluation));
    struct stint_decision decision =
        stint_book(evaluation->table, evaluation->items, evaluation->n_items, max_wait_ns,
                   evaluation->now_ns, ticket);
    hand_out_one(evaluation, &decision);
    *has_ticket = decision.outcome == STINT_ALLOW;
    return of_request(evaluation, decision);
}

static struct stint_decision book_in_store(struct evaluation *evaluation, uint64_t max_wait_ns,
                                           struct stint_ticket *ticket, bool *has_ticket)
{
    assert(evaluation->pending != NULL);
    (void)ticket;
    if (!evaluation_begin_ticket(evaluation, true, 0))
        return decision_unlimited(0);
    evaluation_find_blocks(evaluation);
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
    *has_ticket = evaluation_has_ticket(evaluation);
    return evaluation_sum(evaluation, evaluation_is_denied(evaluation));
}

/* Where the ticket is kept: in the ring of the table, or in the store of the deciding states. */
struct ticket_ops {
    struct stint_decision (*reserve)(struct evaluation *evaluation, uint64_t lifetime_ns,
                                     struct stint_ticket *ticket, bool *has_ticket);
    struct stint_decision (*book)(struct evaluation *evaluation, uint64_t max_wait_ns,
                                  struct stint_ticket *ticket, bool *has_ticket);
};
static const struct ticket_ops in_table = {reserve_in_table, book_in_table};
static const struct ticket_ops in_store = {reserve_in_store, book_in_store};

static const struct ticket_ops *ticket_ops_of(const struct evaluation *evaluation)
{
    return evaluation->pending != NULL ? &in_store : &in_table;
}

struct stint_decision evaluation_reserve(struct evaluation *evaluation, uint64_t lifetime_ns,
                                         struct stint_ticket *ticket, bool *has_ticket)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    *has_ticket = false;
    return ticket_ops_of(evaluation)->reserve(evaluation, lifetime_ns, ticket, has_ticket);
}

struct stint_decision evaluation_book(struct evaluation *evaluation, uint64_t max_wait_ns,
                                      struct stint_ticket *ticket, bool *has_ticket)
{
    assert(evaluation_is_valid(evaluation) && evaluation->n_targets > 0);
    *has_ticket = false;
    return ticket_ops_of(evaluation)->book(evaluation, max_wait_ns, ticket, has_ticket);
}

/* ---- block and reset ------------------------------------------------------------------------- */

int evaluation_block(struct evaluation *evaluation, uint64_t for_ns)
{
    assert(evaluation_is_valid(evaluation));
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_FREE)
            continue;
        int code = stint_block(evaluation->table, target->key.ptr, target->key.len,
                               add_sat(evaluation->now_ns, for_ns), evaluation->now_ns);
        if (code != 0)
            return code;
    }
    return 0;
}

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

/* ---- When what is left grows ----------------------------------------------------------------- */

/*
 * A peek of one unit more than remains: its wait lasts until `remaining` grows. If the peek is
 * allowed at once, more is free than was decided, since no take was made or units came back: then a
 * copy of the state without these units gives the wait. If other requests took units, the wait is
 * longer, but still correct: no more than `remaining` can be used before it ends.
 */
static uint64_t look(struct evaluation *evaluation, struct target *target)
{
    assert(target->decision.remaining < target->decision.limit && target->store == 0);
    uint32_t left = target->decision.remaining;
    struct stint_ask ask = {.now_ns = evaluation->now_ns, .cost = left + 1, .verb = STINT_PEEK};
    struct stint_decision more;
    struct hash128 hash = evaluation->taken_hash;
    if (!evaluation->is_taken_alone)
        hash = table_hash(evaluation->table, target->quota, target->key.ptr, target->key.len);
    if (table_has_blocks(evaluation->table, evaluation->now_ns))
        more = evaluation_ask_one(evaluation, target, target->quota, &ask);
    else
        more = table_ask_hash(evaluation->table, target->quota, hash, &ask, NULL, NULL);
    if (more.outcome == STINT_ALLOW)
        more = table_foresee(evaluation->table, target->quota, hash, left, evaluation->now_ns);
    return more.outcome == STINT_NEVER ? STINT_NEVER_NS : max_u64(more.retry_after_ns, 1);
}

/*
 * Whether a decision is a gcra take whose numbers give the same as a peek: units return at whole
 * nanoseconds before `reset_after_ns`, so its rounding up is that of every unit.
 */
static bool tells_itself(const struct evaluation *evaluation, const struct target *target)
{
    return evaluation->is_taken_alone && target->quota->algorithm == STINT_GCRA &&
           target->decision.stored == 1 &&
           target->quota->derived.interval_ticks % (UINT64_C(1) << GCRA_TICKS_PER_NS_LOG2) == 0 &&
           !table_has_blocks(evaluation->table, evaluation->now_ns);
}

/* Until one unit more than remains: all but the rest of the burst has returned. */
static uint64_t gcra_grows_after(const struct target *target)
{
    assert(target->quota->algorithm == STINT_GCRA);
    assert(target->decision.remaining < target->decision.limit);
    const struct stint_decision *decision = &target->decision;
    uint64_t interval_ns = target->quota->derived.interval_ticks >> GCRA_TICKS_PER_NS_LOG2;
    uint64_t rest = decision->limit - decision->remaining - 1;
    return max_u64(sub_floor(decision->reset_after_ns, rest * interval_ns), 1);
}

uint64_t evaluation_grows_after(struct evaluation *evaluation, size_t index)
{
    assert(evaluation_is_valid(evaluation) && index < evaluation->n_targets);
    struct target *target = &evaluation->targets[index];
    const struct stint_decision *decision = &target->decision;
    if (decision->outcome == STINT_NEVER || decision->limit == 0)
        return STINT_NEVER_NS;
    if (target->part == TARGET_FREE || decision->remaining >= decision->limit)
        return 0;
    if (target->banned) /* a peek ignores bans, which belong to the rule */
        return decision->retry_after_ns;
    /*
     * Not worth another store request. It is also true, though less exact, that no more than what
     * is left can be used before all is back.
     */
    if (target->store != 0)
        return decision->remaining == 0 && decision->retry_after_ns > 0
                   ? decision->retry_after_ns
                   : max_u64(decision->reset_after_ns, 1);
    if (target->quota->algorithm == STINT_FIXED_WINDOW && decision->stored == 1)
        return max_u64(decision->reset_after_ns, 1);
    if (tells_itself(evaluation, target))
        return gcra_grows_after(target);
    return look(evaluation, target);
}
