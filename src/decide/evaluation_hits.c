/* SPDX-License-Identifier: MIT */
/*
 * Hits of Envoy's descriptors other than a plain take: checks before a request, and charges of its
 * cost afterwards.
 *
 * Before a charge goes a peek of the same cost, which returns whether it fits. A store gets both at
 * once: units are recorded there even if the caller does not wait for the answer.
 */
#include "decide/evaluation_parts.h"

#include "algorithm/algorithm.h"
#include "base/wide_int.h"

static struct stint_ask ask_of(const struct evaluation *evaluation, uint8_t verb, uint32_t cost)
{
    return (struct stint_ask){.now_ns = evaluation->now_ns, .cost = cost, .verb = verb};
}

/* The cost of the peek: one unit, or the units to be charged. Only debt denies a cost of 0. */
static struct stint_ask look_of(const struct evaluation *evaluation,
                                const struct evaluation_counted *counted)
{
    uint32_t cost = evaluation->checks_debt && algorithm_has_debt(counted->quota) ? 0 : 1;
    if (counted->target->hits == TARGET_HITS_CHARGE)
        cost = counted->target->cost;
    return ask_of(evaluation, STINT_PEEK, cost);
}

static bool charges_now(const struct target *target, bool charges)
{
    return charges && target->hits == TARGET_HITS_CHARGE;
}

void evaluation_send_hits(struct evaluation *evaluation, struct evaluation_counted *counted,
                          bool charges)
{
    struct target *target = counted->target;
    const struct stint_ask look = look_of(evaluation, counted);
    const struct stint_ask charge = ask_of(evaluation, STINT_CHARGE, target->cost);
    if (target->store == 0)
        return;
    counted->looked = evaluation_send(evaluation, target, counted->quota, &look);
    if (charges_now(target, charges))
        counted->charged = evaluation_send(evaluation, target, counted->quota, &charge);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static struct stint_decision read_answer(struct evaluation *evaluation,
                                         const struct evaluation_counted *counted,
                                         const struct stint_ask *ask,
                                         const struct backend_answer *answer)
{
    struct target *target = counted->target;
    if (target->store == 0)
        return evaluation_ask_table(evaluation, target, counted->quota, ask);
    return evaluation_read(evaluation, target, counted->quota, ask, answer);
}

/* The numbers of an allowed peek are those of a take: one unit less. */
static struct stint_decision put_back(struct stint_decision decision)
{
    decision.granted = 0;
    decision.remaining = (uint32_t)min_u64((uint64_t)decision.remaining + 1, decision.limit);
    if (decision.remaining == decision.limit)
        decision.reset_after_ns = 0;
    return decision;
}

/* A store gets one request; the table, which is cheap, is read again for the current numbers. */
static struct stint_decision check(struct evaluation *evaluation,
                                   const struct evaluation_counted *counted)
{
    const struct stint_ask one = ask_of(evaluation, STINT_PEEK, 1);
    const struct stint_ask metrics = ask_of(evaluation, STINT_PEEK, 0);
    bool wants_one = look_of(evaluation, counted).cost > 0;
    struct stint_decision decision;
    if (counted->target->store == 0) {
        decision = read_answer(evaluation, counted, &metrics, NULL);
        if (decision.outcome == STINT_ALLOW && (decision.remaining > 0 || !wants_one))
            return decision;
    }
    decision = read_answer(evaluation, counted, &one, counted->looked);
    return decision.outcome == STINT_ALLOW && wants_one ? put_back(decision) : decision;
}

/* After a charge that did not fit: the wait until there is a unit again. */
static struct stint_decision deny(struct evaluation *evaluation,
                                  const struct evaluation_counted *counted,
                                  struct stint_decision charged)
{
    struct stint_decision decision = charged;
    decision.outcome = STINT_DENY;
    decision.retry_after_ns = max_u64(charged.reset_after_ns, 1);
    if (counted->target->store == 0) {
        const struct stint_ask ask = ask_of(evaluation, STINT_PEEK, 1);
        struct stint_decision one = read_answer(evaluation, counted, &ask, NULL);
        if (one.outcome != STINT_ALLOW)
            decision = one;
    }
    decision.granted = charged.granted;
    return decision;
}

static bool charge(struct evaluation *evaluation, const struct evaluation_counted *counted,
                   struct stint_decision *decision)
{
    struct target *target = counted->target;
    const struct stint_ask look = look_of(evaluation, counted);
    const struct stint_ask ask = ask_of(evaluation, STINT_CHARGE, target->cost);
    struct stint_decision before = read_answer(evaluation, counted, &look, counted->looked);
    *decision = read_answer(evaluation, counted, &ask, counted->charged);
    bool fits = before.outcome == STINT_ALLOW && decision->outcome == STINT_ALLOW;
    if (counted->quota == target->quota)
        target->fitted = fits ? target->cost : (uint32_t)min_u64(before.remaining, target->cost);
    if (!fits)
        *decision = deny(evaluation, counted, *decision);
    return !fits;
}

/* Whether the units did not fit. */
bool evaluation_read_hits(struct evaluation *evaluation, const struct evaluation_counted *counted,
                          bool charges, struct stint_decision *decision)
{
    const struct stint_ask look = look_of(evaluation, counted);
    if (charges_now(counted->target, charges))
        return charge(evaluation, counted, decision);
    *decision = counted->target->hits == TARGET_HITS_CHARGE
                    ? read_answer(evaluation, counted, &look, counted->looked)
                    : check(evaluation, counted);
    return decision->outcome != STINT_ALLOW;
}

/* ---- Targets --------------------------------------------------------------------------------- */

static bool is_asked(const struct target *target)
{
    return target_asks(target) && target->hits != TARGET_HITS_TAKE &&
           !(target->banned && target->hits == TARGET_HITS_CHECK);
}

/* A blocked key denies, but the units are recorded all the same. */
static void decide_live(struct evaluation *evaluation, const struct evaluation_counted *counted,
                        bool charges)
{
    struct target *target = counted->target;
    struct stint_decision decision;
    bool is_over = evaluation_read_hits(evaluation, counted, charges, &decision);
    target->is_settled = true;
    if (target->banned) {
        target->decision.granted = decision.granted;
        return;
    }
    target->decision = decision;
    target->over = is_over;
}

/* Those of the table first: they are charged also if no store ever answers. */
void evaluation_ask_hits(struct evaluation *evaluation, bool charges)
{
    struct evaluation_counted all[TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        struct evaluation_counted counted = {.target = target, .quota = target->quota};
        if (!is_asked(target))
            continue;
        if (target->store == 0)
            decide_live(evaluation, &counted, charges);
        else
            all[n++] = counted;
    }
    for (size_t i = 0; i < n; i++)
        evaluation_send_hits(evaluation, &all[i], charges);
    for (size_t i = 0; i < n && !evaluation_is_given_up(evaluation); i++)
        decide_live(evaluation, &all[i], charges);
}
