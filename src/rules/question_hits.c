/* SPDX-License-Identifier: MIT */
/*
 * Hits of Envoy's descriptors that are not simply taken: checks before a request, and charges of
 * what it has cost once it is done.
 *
 * A charge is behind a peek of the same cost, which says whether it fits. Both go to a store at
 * once: what was used is recorded there also where the caller does not wait for the answer.
 */
#include "rules/question_parts.h"

#include "base/wide_int.h"

static struct stint_decision ask_for(struct question *question, struct target *target,
                                     const struct stint_quota *quota, uint8_t verb, uint32_t cost)
{
    const struct stint_ask ask = {.now_ns = question->now_ns, .cost = cost, .verb = verb};
    return question_ask_one(question, target, quota, &ask);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

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
static struct stint_decision check(struct question *question, struct target *target,
                                   const struct stint_quota *quota)
{
    struct stint_decision decision = {.outcome = STINT_DENY};
    if (target->store == 0)
        decision = ask_for(question, target, quota, STINT_PEEK, 0);
    if (decision.outcome == STINT_ALLOW && decision.remaining > 0)
        return decision;
    decision = ask_for(question, target, quota, STINT_PEEK, 1);
    return decision.outcome == STINT_ALLOW ? put_back(decision) : decision;
}

/* ---- Charges --------------------------------------------------------------------------------- */

/* After a charge that did not fit: the wait until there is a unit again. */
static struct stint_decision deny(struct question *question, struct target *target,
                                  const struct stint_quota *quota, struct stint_decision charged)
{
    struct stint_decision decision = charged;
    decision.outcome = STINT_DENY;
    decision.retry_after_ns = max_u64(charged.reset_after_ns, 1);
    if (target->store == 0) {
        struct stint_decision one = ask_for(question, target, quota, STINT_PEEK, 1);
        if (one.outcome != STINT_ALLOW)
            decision = one;
    }
    decision.granted = charged.granted;
    return decision;
}

static bool charge(struct question *question, struct target *target,
                   const struct stint_quota *quota, struct stint_decision *decision)
{
    struct stint_decision before = ask_for(question, target, quota, STINT_PEEK, target->cost);
    *decision = ask_for(question, target, quota, STINT_CHARGE, target->cost);
    bool fits = before.outcome == STINT_ALLOW && decision->outcome == STINT_ALLOW;
    if (quota == target->quota)
        target->fitted = fits ? target->cost : (uint32_t)min_u64(before.remaining, target->cost);
    if (!fits && !question_is_given_up(question))
        *decision = deny(question, target, quota, *decision);
    return !fits;
}

/* ---- Both ------------------------------------------------------------------------------------ */

bool question_ask_hits_of(struct question *question, struct target *target,
                          const struct stint_quota *quota, bool charges,
                          struct stint_decision *decision)
{
    if (target->hits == TARGET_HITS_CHARGE && charges)
        return charge(question, target, quota, decision);
    *decision = target->hits == TARGET_HITS_CHARGE
                    ? ask_for(question, target, quota, STINT_PEEK, target->cost)
                    : check(question, target, quota);
    return decision->outcome != STINT_ALLOW;
}

/* What blocks a key denies, and does not keep what was used from being recorded. */
void question_ask_hits(struct question *question, bool charges)
{
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        struct stint_decision decision;
        if (!target_asks(target) || target->hits == TARGET_HITS_TAKE ||
            (target->banned && target->hits == TARGET_HITS_CHECK))
            continue;
        bool is_over = question_ask_hits_of(question, target, target->quota, charges, &decision);
        target->is_settled = true;
        if (target->banned) {
            target->decision.granted = decision.granted;
            continue;
        }
        target->decision = decision;
        target->over = is_over;
    }
}
