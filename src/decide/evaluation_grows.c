/* SPDX-License-Identifier: MIT */
/* When more than what is left of a target can be used: asked after it was decided. */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"

/*
 * One unit more than what is left is what a peek is asked for: the wait it is told is that until
 * the figure grows. Where it fits at once there is more than the figure says, since this was a peek
 * at a take that was not made, or since somebody has given units back: then a copy of the state is
 * asked that has no more. Where somebody took units meanwhile the wait is longer, and the figure is
 * not passed before its end all the same.
 */
static uint64_t look(struct evaluation *evaluation, struct target *target)
{
    uint32_t left = target->decision.remaining;
    struct stint_ask ask = {.now_ns = evaluation->now_ns, .cost = left + 1, .verb = STINT_PEEK};
    struct stint_decision more = evaluation_ask_one(evaluation, target, target->quota, &ask);
    if (more.outcome == STINT_ALLOW)
        more = table_foresee(
            evaluation->table, target->quota,
            table_hash(evaluation->table, target->quota, target->key.ptr, target->key.len), left,
            evaluation->now_ns);
    return more.outcome == STINT_NEVER ? STINT_NEVER_NS : max_u64(more.retry_after_ns, 1);
}

uint64_t evaluation_grows_after(struct evaluation *evaluation, size_t index)
{
    struct target *target = &evaluation->targets[index];
    const struct stint_decision *decision = &target->decision;
    if (decision->outcome == STINT_NEVER || decision->limit == 0)
        return STINT_NEVER_NS;
    if (target->part == TARGET_FREE || decision->remaining >= decision->limit)
        return 0;
    if (target->banned) /* by what no peek may know of: a ban is of the rule's */
        return decision->retry_after_ns;
    /*
     * A store is not asked once more for this. That no more than what is left can be used before
     * all is back is true as well, if less than could be said.
     */
    if (target->store != 0)
        return decision->remaining == 0 && decision->retry_after_ns > 0
                   ? decision->retry_after_ns
                   : max_u64(decision->reset_after_ns, 1);
    if (target->quota->algorithm == STINT_FIXED_WINDOW && decision->stored == 1)
        return max_u64(decision->reset_after_ns, 1);
    return look(evaluation, target);
}
