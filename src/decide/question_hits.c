/* SPDX-License-Identifier: MIT */
/*
 * Hits of Envoy's descriptors that are not simply taken: checks before a request, and charges of
 * what it has cost once it is done.
 *
 * A charge is behind a peek of the same cost, which says whether it fits. Both go to a store at
 * once: what was used is recorded there also where the caller does not wait for the answer.
 */
#include "decide/question_parts.h"

#include "algorithm/law.h"
#include "base/wide_int.h"

static struct stint_ask ask_of(const struct question *question, uint8_t verb, uint32_t cost)
{
    return (struct stint_ask){.now_ns = question->now_ns, .cost = cost, .verb = verb};
}

/*
 * What is looked for first: whether one unit is left, or the units to be charged fit. A cost of 0
 * is denied in debt alone.
 */
static struct stint_ask look_of(const struct question *question,
                                const struct question_counted *counted)
{
    uint32_t cost = question->checks_debt && law_has_debt(counted->quota) ? 0 : 1;
    if (counted->target->hits == TARGET_HITS_CHARGE)
        cost = counted->target->cost;
    return ask_of(question, STINT_PEEK, cost);
}

static bool charges_now(const struct target *target, bool charges)
{
    return charges && target->hits == TARGET_HITS_CHARGE;
}

void question_send_hits(struct question *question, struct question_counted *counted, bool charges)
{
    struct target *target = counted->target;
    const struct stint_ask look = look_of(question, counted);
    const struct stint_ask charge = ask_of(question, STINT_CHARGE, target->cost);
    if (target->store == 0)
        return;
    counted->looked = question_send(question, target, counted->quota, &look);
    if (charges_now(target, charges))
        counted->charged = question_send(question, target, counted->quota, &charge);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static struct stint_decision read_answer(struct question *question,
                                         const struct question_counted *counted,
                                         const struct stint_ask *ask,
                                         const struct shared_answer *answer)
{
    struct target *target = counted->target;
    if (target->store == 0)
        return question_ask_table(question, target, counted->quota, ask);
    return question_read(question, target, counted->quota, ask, answer);
}

/* The figures of an allowed peek are those of a take: one unit less. */
static struct stint_decision put_back(struct stint_decision decision)
{
    decision.granted = 0;
    decision.remaining = (uint32_t)min_u64((uint64_t)decision.remaining + 1, decision.limit);
    if (decision.remaining == decision.limit)
        decision.reset_after_ns = 0;
    return decision;
}

/* A store is asked once; the table, which costs less to ask, for the figures as they are. */
static struct stint_decision check(struct question *question,
                                   const struct question_counted *counted)
{
    const struct stint_ask one = ask_of(question, STINT_PEEK, 1);
    const struct stint_ask figures = ask_of(question, STINT_PEEK, 0);
    bool wants_one = look_of(question, counted).cost > 0;
    struct stint_decision decision;
    if (counted->target->store == 0) {
        decision = read_answer(question, counted, &figures, NULL);
        if (decision.outcome == STINT_ALLOW && (decision.remaining > 0 || !wants_one))
            return decision;
    }
    decision = read_answer(question, counted, &one, counted->looked);
    return decision.outcome == STINT_ALLOW && wants_one ? put_back(decision) : decision;
}

/* After a charge that did not fit: the wait until there is a unit again. */
static struct stint_decision deny(struct question *question, const struct question_counted *counted,
                                  struct stint_decision charged)
{
    struct stint_decision decision = charged;
    decision.outcome = STINT_DENY;
    decision.retry_after_ns = max_u64(charged.reset_after_ns, 1);
    if (counted->target->store == 0) {
        const struct stint_ask ask = ask_of(question, STINT_PEEK, 1);
        struct stint_decision one = read_answer(question, counted, &ask, NULL);
        if (one.outcome != STINT_ALLOW)
            decision = one;
    }
    decision.granted = charged.granted;
    return decision;
}

static bool charge(struct question *question, const struct question_counted *counted,
                   struct stint_decision *decision)
{
    struct target *target = counted->target;
    const struct stint_ask look = look_of(question, counted);
    const struct stint_ask ask = ask_of(question, STINT_CHARGE, target->cost);
    struct stint_decision before = read_answer(question, counted, &look, counted->looked);
    *decision = read_answer(question, counted, &ask, counted->charged);
    bool fits = before.outcome == STINT_ALLOW && decision->outcome == STINT_ALLOW;
    if (counted->quota == target->quota)
        target->fitted = fits ? target->cost : (uint32_t)min_u64(before.remaining, target->cost);
    if (!fits)
        *decision = deny(question, counted, *decision);
    return !fits;
}

/* Whether the units did not fit. */
bool question_read_hits(struct question *question, const struct question_counted *counted,
                        bool charges, struct stint_decision *decision)
{
    const struct stint_ask look = look_of(question, counted);
    if (charges_now(counted->target, charges))
        return charge(question, counted, decision);
    *decision = counted->target->hits == TARGET_HITS_CHARGE
                    ? read_answer(question, counted, &look, counted->looked)
                    : check(question, counted);
    return decision->outcome != STINT_ALLOW;
}

/* ---- Targets --------------------------------------------------------------------------------- */

static bool is_asked(const struct target *target)
{
    return target_asks(target) && target->hits != TARGET_HITS_TAKE &&
           !(target->banned && target->hits == TARGET_HITS_CHECK);
}

/* What blocks a key denies, and does not keep what was used from being recorded. */
static void decide_live(struct question *question, const struct question_counted *counted,
                        bool charges)
{
    struct target *target = counted->target;
    struct stint_decision decision;
    bool is_over = question_read_hits(question, counted, charges, &decision);
    target->is_settled = true;
    if (target->banned) {
        target->decision.granted = decision.granted;
        return;
    }
    target->decision = decision;
    target->over = is_over;
}

/* Those of the table first: they are charged also where no store ever answers. */
void question_ask_hits(struct question *question, bool charges)
{
    struct question_counted all[TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        struct question_counted counted = {.target = target, .quota = target->quota};
        if (!is_asked(target))
            continue;
        if (target->store == 0)
            decide_live(question, &counted, charges);
        else
            all[n++] = counted;
    }
    for (size_t i = 0; i < n; i++)
        question_send_hits(question, &all[i], charges);
    for (size_t i = 0; i < n && !question_is_given_up(question); i++)
        decide_live(question, &all[i], charges);
}
