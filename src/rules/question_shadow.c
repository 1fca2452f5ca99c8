/* SPDX-License-Identifier: MIT */
/* Limits that are not enforced: asked apart from the live ones, each by itself. */
#include "rules/question_parts.h"

#include "base/wide_int.h"

/* Best effort that got less than it wanted would have been held back, too. */
static bool is_over(const struct stint_decision *decision, const struct stint_ask *ask)
{
    return decision->outcome != STINT_ALLOW ||
           (ask->verb == STINT_TAKE_UPTO && decision->granted < ask->cost);
}

static void ask_shadow(struct question *question, struct target *target,
                       const struct stint_ask *ask)
{
    struct stint_decision *decision = &target->decision;
    *decision = question_ask_one(question, target, target->quota, ask);
    target->over = is_over(decision, ask);
    decision->outcome = STINT_ALLOW;
    decision->granted = ask->cost;
    decision->retry_after_ns = 0;
}

static void ask_candidate(struct question *question, struct target *target,
                          const struct stint_ask *ask)
{
    struct stint_decision decision = question_ask_one(question, target, &target->rule->shadow, ask);
    target->shadow_over = is_over(&decision, ask);
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
        bool was_charged = question->has_charged && target->store != question->ticket_store;
        bool charges = !target->banned && !was_charged && !question_is_denied(question, i);
        struct stint_ask ask = {.now_ns = question->now_ns,
                                .cost = (uint32_t)min_u64(target->cost, most),
                                .verb = charges ? verb : STINT_PEEK};
        if (target->part == TARGET_SHADOW)
            ask_shadow(question, target, &ask);
        if (has_candidate)
            ask_candidate(question, target, &ask);
    }
}
