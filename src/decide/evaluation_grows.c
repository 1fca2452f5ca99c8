/* SPDX-License-Identifier: MIT */
/* When more than `remaining` of a target can be used, once it is decided. */
#include "decide/evaluation_parts.h"

#include "algorithm/gcra.h"
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
    const struct stint_decision *decision = &target->decision;
    uint64_t interval_ns = target->quota->derived.interval_ticks >> GCRA_TICKS_PER_NS_LOG2;
    uint64_t rest = decision->limit - decision->remaining - 1;
    return max_u64(sub_floor(decision->reset_after_ns, rest * interval_ns), 1);
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
    if (tells_itself(evaluation, target))
        return gcra_grows_after(target);
    return look(evaluation, target);
}
