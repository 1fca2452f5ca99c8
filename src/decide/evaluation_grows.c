/* SPDX-License-Identifier: MIT */
/* When more than `remaining` of a target can be used, once it is decided. */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"

/*
 * A peek of one unit more than remains: its wait lasts until `remaining` grows. If the peek is
 * allowed at once, more is free than was decided, since no take was made or units came back: then a
 * copy of the state without these units gives the wait. If other requests took units, the wait is
 * longer, but still correct: no more than `remaining` can be used before it ends.
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
    return look(evaluation, target);
}
