/* SPDX-License-Identifier: MIT */
/* The verbs that move units otherwise than all or nothing, or for later. */
#include "decide/question_parts.h"

#include "base/wide_int.h"

/* ---- take_upto ------------------------------------------------------------------------------- */

static uint32_t least_cost(const struct question *question)
{
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < question->n_targets; i++)
        if (target_asks(&question->targets[i]))
            least = (uint32_t)min_u64(least, question->targets[i].cost);
    return least;
}

static uint32_t upto_gathered(struct question *question, uint32_t most)
{
    if (!question_list(question))
        return 0;
    struct stint_decision sum = list_take_upto(&question->list, most);
    uint32_t granted = sum.outcome == STINT_ALLOW ? sum.granted : 0;
    question_hand_out(question);
    for (size_t i = 0; i < question->n_items; i++) {
        struct target *target = &question->targets[question->target_of[i]];
        if (granted > 0)
            target->decision.granted = granted;
        else if (i == sum.binding && !target->over) {
            target->decision = sum; /* others were faster, and nothing was left to share */
            target->over = true;
        }
    }
    return granted;
}

uint32_t question_upto_gathered(struct question *question, uint32_t most)
{
    bool is_new;
    if (question->errand == NULL)
        return upto_gathered(question, most);
    struct stint_decision *notes = errand_note(question->errand, question->n_items + 1, &is_new);
    if (notes == NULL)
        return 0;
    struct stint_decision *sum = &notes[question->n_items];
    if (is_new)
        sum->granted = upto_gathered(question, most);
    for (size_t i = 0; i < question->n_items; i++) {
        struct target *target = &question->targets[question->target_of[i]];
        if (is_new)
            notes[i] = target->decision;
        target->decision = notes[i];
        target->over = notes[i].outcome != STINT_ALLOW;
    }
    return sum->granted;
}

/* One round of best effort; how much was granted. */
static uint32_t try_upto(struct question *question, uint32_t most)
{
    if (question->errand != NULL)
        return question_take_upto_shared(question, most);
    return question_gather(question) ? upto_gathered(question, most) : 0;
}

struct stint_decision question_take_upto(struct question *question)
{
    uint32_t most = least_cost(question), granted = 0;
    for (size_t i = 0; most == 0 && i < question->n_targets; i++)
        question->targets[i].cost = 0; /* the least is granted: nothing from any */
    if (most == 0)
        return question_peek(question);
    question_go_on(question);
    question_find_blocks(question);
    do {
        if (question_is_denied(question, NO_TARGET))
            break;
        granted = try_upto(question, most);
        if (question_is_given_up(question))
            return decision_unlimited(0);
    } while (granted == 0 && !question_is_denied(question, NO_TARGET) &&
             question_step_back(question));
    bool denied = question_is_denied(question, NO_TARGET);
    if (denied) {
        question_look_again(question);
        question_count_denials(question);
    }
    question_ask_shadows(question, question->is_replayed ? STINT_PEEK : STINT_TAKE_UPTO,
                         granted > 0 ? granted : most);
    return question_sum(question);
}

/* ---- charge and refund ----------------------------------------------------------------------- */

/* What moves under one target, and the answers of its store. */
struct moving {
    struct stint_ask ask;
    const struct shared_answer *live, *candidate; /* NULL: no answer */
};

static const struct stint_quota *candidate_of(const struct target *target)
{
    return target->rule != NULL && target->rule->has_shadow ? &target->rule->shadow : NULL;
}

static void send_moving(struct question *question, struct target *target, struct moving *moving)
{
    const struct stint_quota *candidate = candidate_of(target);
    moving->live = question_send(question, target, target->quota, &moving->ask);
    if (candidate != NULL)
        moving->candidate = question_send(question, target, candidate, &moving->ask);
}

static void read_moving(struct question *question, struct target *target,
                        const struct moving *moving)
{
    const struct stint_quota *candidate = candidate_of(target);
    target->decision = question_read(question, target, target->quota, &moving->ask, moving->live);
    if (candidate != NULL)
        question_read(question, target, candidate, &moving->ask, moving->candidate);
}

static void move_in_table(struct question *question, struct target *target,
                          const struct moving *moving)
{
    const struct stint_quota *candidate = candidate_of(target);
    target->decision = question_ask_table(question, target, target->quota, &moving->ask);
    if (candidate != NULL)
        question_ask_table(question, target, candidate, &moving->ask);
}

/*
 * Moves units of every quota there is, the shadows' too; tells the least that any live one moved.
 * A descriptor that gives its hits back does so whatever the others are asked. Those of the table
 * move first: also where no store ever answers.
 */
static struct stint_decision move_all(struct question *question, uint8_t verb, uint64_t at_ns)
{
    uint32_t least = UINT32_MAX;
    struct moving all[TARGETS_MAX];
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        all[i] = (struct moving){.ask = {
                                     .now_ns = question->now_ns,
                                     .at_ns = target->is_refund ? STINT_NEVER_NS : at_ns,
                                     .cost = target->cost,
                                     .verb = target->is_refund ? STINT_REFUND : verb,
                                 }};
        if (target->part != TARGET_FREE && target->store == 0)
            move_in_table(question, target, &all[i]);
    }
    for (size_t i = 0; i < question->n_targets; i++)
        if (question->targets[i].part != TARGET_FREE && question->targets[i].store != 0)
            send_moving(question, &question->targets[i], &all[i]);
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        if (target->part == TARGET_FREE)
            continue;
        if (target->store != 0 && !question_is_given_up(question))
            read_moving(question, target, &all[i]);
        target->over = target->decision.outcome != STINT_ALLOW && target->part == TARGET_LIVE;
        if (target->part == TARGET_LIVE)
            least = (uint32_t)min_u64(least, target->decision.granted);
    }
    struct stint_decision sum = question_sum(question);
    sum.granted = (uint32_t)min_u64(least, sum.granted);
    return sum;
}

struct stint_decision question_charge(struct question *question)
{
    question_go_on(question);
    return move_all(question, STINT_CHARGE, 0);
}

struct stint_decision question_refund(struct question *question, uint64_t granted_at_ns)
{
    return move_all(question, STINT_REFUND, granted_at_ns);
}

/* ---- reserve and book ------------------------------------------------------------------------ */

/* Targets over which one decision was made. Of several that are charged each has its figures. */
static void hand_out_one(struct question *question, const struct stint_decision *decision)
{
    for (size_t i = 0; i < question->n_items; i++) {
        struct target *target = &question->targets[question->target_of[i]];
        bool is_allowed = decision->outcome == STINT_ALLOW;
        target->over = !is_allowed && i == decision->binding;
        if (is_allowed || target->over)
            target->decision = *decision;
        if (is_allowed && question->n_items > 1) {
            target->decision = question_stands(question, target);
            target->decision.retry_after_ns = decision->retry_after_ns; /* until a booking starts */
        }
        target->decision.granted = is_allowed ? target->cost : 0;
    }
}

static struct stint_decision of_request(const struct question *question,
                                        struct stint_decision decision)
{
    decision.binding = question->target_of[decision.binding];
    return decision;
}

/* What denies is known only in parts: each target is asked how it stands. */
static struct stint_decision refuse(struct question *question)
{
    question_ask_live(question, false);
    if (question_is_denied(question, NO_TARGET))
        question_look_again(question);
    question_count_denials(question);
    question_ask_shadows(question, STINT_PEEK, UINT32_MAX);
    return question_sum(question);
}

static bool has_quota_mode(const struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++)
        if (target_asks(&question->targets[i]) && question->targets[i].is_quota_mode)
            return true;
    return false;
}

/* Blocks, and who steps back: what is to be known before all the rest is charged at once. */
static bool may_charge(struct question *question)
{
    if (has_quota_mode(question))
        question_ask_live(question, false);
    else
        question_find_blocks(question);
    return !question_is_denied(question, NO_TARGET);
}

/* What was gathered, to be issued with what shadows and candidates are charged behind it. */
static struct stint_decision reserve_gathered(struct question *question,
                                              struct reservation *reservation)
{
    uint32_t kept[TARGETS_MAX];
    struct stint_decision decision = law_never(0);
    for (size_t i = 0; i < question->n_items; i++)
        kept[i] = question_kept(question, &question->targets[question->target_of[i]]);
    if (list_init(&question->list, question->table, question->items, question->n_items,
                  question->now_ns))
        reservation_take(reservation, &question->list, question->items, kept, &decision);
    return decision;
}

struct stint_decision question_reserve(struct question *question, uint64_t lifetime_ns,
                                       struct stint_ticket *ticket, bool *has_ticket)
{
    struct reservation reservation;
    *has_ticket = false;
    if (question->errand != NULL)
        return question_reserve_shared(question, lifetime_ns, has_ticket);
    if (!may_charge(question))
        return refuse(question);
    reservation_init(&reservation);
    if (question_gather(question)) {
        struct stint_decision decision = reserve_gathered(question, &reservation);
        hand_out_one(question, &decision);
        if (decision.outcome != STINT_ALLOW) {
            struct stint_decision seen = refuse(question);
            return seen.outcome != STINT_ALLOW ? seen : of_request(question, decision);
        }
    }
    question->reservation = &reservation;
    question_ask_shadows(question, STINT_TAKE, UINT32_MAX);
    question->reservation = NULL;
    *has_ticket = reservation.n_entries > 0;
    if (*has_ticket)
        *ticket = reservation_issue(&reservation, question->table, lifetime_ns, question->now_ns);
    return question_sum(question);
}

/* Shadows are not asked: where a place would have been in a queue that nobody stands in, nobody
 * can say. */
struct stint_decision question_book(struct question *question, uint64_t max_wait_ns,
                                    struct stint_ticket *ticket, bool *has_ticket)
{
    *has_ticket = false;
    if (question->errand != NULL)
        return question_book_shared(question, max_wait_ns, has_ticket);
    question_find_blocks(question);
    if (question_is_denied(question, NO_TARGET) || !question_gather(question))
        return question_sum(question);
    struct stint_decision decision = stint_book(question->table, question->items, question->n_items,
                                                max_wait_ns, question->now_ns, ticket);
    hand_out_one(question, &decision);
    *has_ticket = decision.outcome == STINT_ALLOW;
    return of_request(question, decision);
}
