/* SPDX-License-Identifier: MIT */
/* Limits that are not enforced: asked apart from the live ones, each by itself. */
#include "rules/question_parts.h"

#include "base/wide_int.h"

/* What a request asks of the quotas that are not enforced. */
struct aside {
    uint8_t verb;    /* PEEK: nothing is charged */
    uint32_t most;   /* units of each target */
    bool is_refused; /* without this target, too */
};

/* Best effort that got less than it wanted would have been held back, too. */
static bool is_over(const struct stint_decision *decision, const struct stint_ask *ask)
{
    return decision->outcome != STINT_ALLOW ||
           (ask->verb == STINT_TAKE_UPTO && decision->granted < ask->cost);
}

/*
 * How the units of a target fare under a quota that is not enforced; whether it is over. What is
 * charged there is charged whatever the others say, as under a quota that is.
 */
static bool ask_aside(struct question *question, struct target *target,
                      const struct stint_quota *quota, const struct aside *aside,
                      struct stint_decision *decision)
{
    const struct stint_ask ask = {
        .now_ns = question->now_ns,
        .cost = (uint32_t)min_u64(target->cost, aside->most),
        .verb = aside->is_refused ? STINT_PEEK : aside->verb,
    };
    if (target->hits != TARGET_HITS_TAKE)
        return question_ask_hits_of(question, target, quota, aside->verb != STINT_PEEK, decision);
    *decision = question_ask_one(question, target, quota, &ask);
    return is_over(decision, &ask);
}

static void ask_shadow(struct question *question, struct target *target, const struct aside *aside)
{
    struct stint_decision *decision = &target->decision;
    target->over = ask_aside(question, target, target->quota, aside, decision);
    decision->outcome = STINT_ALLOW;
    decision->granted = (uint32_t)min_u64(target->cost, aside->most);
    decision->retry_after_ns = 0;
}

static void ask_candidate(struct question *question, struct target *target,
                          const struct aside *aside)
{
    struct stint_decision decision;
    target->shadow_over = ask_aside(question, target, &target->rule->shadow, aside, &decision);
    target->shadow_retry_after_ns = target->shadow_over ? decision.retry_after_ns : 0;
}

void question_ask_shadows(struct question *question, uint8_t verb, uint32_t most)
{
    for (size_t i = 0; i < question->n_targets; i++) {
        struct target *target = &question->targets[i];
        bool has_candidate = target->rule != NULL && target->rule->has_shadow;
        if (target->part == TARGET_FREE || target->is_refund ||
            (target->part != TARGET_SHADOW && !has_candidate))
            continue;
        /* A candidate decides as if it were live; a limit in shadow mode has no say to leave out.
         */
        size_t except = target->part == TARGET_SHADOW ? NO_TARGET : i;
        const struct aside aside = {
            .verb = verb,
            .most = most,
            .is_refused = target->banned || question_is_denied(question, except),
        };
        if (target->part == TARGET_SHADOW)
            ask_shadow(question, target, &aside);
        if (has_candidate)
            ask_candidate(question, target, &aside);
    }
}
