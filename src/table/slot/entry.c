/* SPDX-License-Identifier: MIT */
/* Reads whole states, one slot at a time, while other threads decide. */
#include "table/slot/entry.h"

#include "base/wide_int.h"
#include "table/region/owner.h"

#include <assert.h>

#define READS_MAX 200 /* of a slot that is being changed, before the thread counts as stuck */

struct asking entry_looking(const struct stint_table *table, enum slot_class class, uint64_t now_ns)
{
    assert(class < CLASSES);
    /* Reading a wide state takes its owner word; that does not change the table's content. */
    struct stint_table *mutable_table = (struct stint_table *)(uintptr_t)table;
    return (struct asking){
        .table = mutable_table, .slots = &table->slots[class], .ask = {.now_ns = now_ns}};
}

const struct stint_quota *entry_quota(const struct asking *asking, uint64_t tag_word)
{
    assert(asking_is_valid(asking));
    const struct stint_quota *quota =
        intern_quota(&asking->table->intern, (uint32_t)(tag_word & TAG_ID_MASK));
    bool fits = quota != NULL && table_class(quota) == asking->slots->class &&
                quota->derived.state_size <= asking->slots->state_size;
    assert(!fits || quota->derived.checked);
    return fits ? quota : NULL;
}

uint64_t entry_asked_max_ns(const struct stint_table *table, uint64_t now_ns)
{
    const struct region_fixed *fixed = &table->region.fixed;
    uint64_t latest_ns = add_sat(table_latest_ns(table, now_ns), fixed->skew_max_ns);
    return min_u64(add_sat(latest_ns, table->ahead_ns), STINT_NOW_MAX);
}

static bool is_valid(const struct asking *asking, const struct entry_state *state)
{
    uint64_t asked_max_ns = entry_asked_max_ns(asking->table, asking->ask.now_ns);
    return algorithm_is_valid(state->quota, &state->as, asked_max_ns);
}

/* Skips what an opening would repair: a table that is opened read-only is not changed. */
bool entry_read(struct asking *asking, struct seen *seen, struct entry_state *state)
{
    assert(asking_is_valid(asking));
    uint64_t tag_word = seen->pair.first;
    if (tag_word == 0 || (tag_word & TAG_PENDING) != 0)
        return false;
    state->quota = entry_quota(asking, tag_word);
    return state->quota != NULL && asking->slots->ops->copy(asking, seen, state) &&
           (!asking->table->region.read_only || is_valid(asking, state));
}

/* Whether the slot of a key that could not be read is on its way to a state of that key. */
static bool is_changing(const struct asking *asking, const struct seen *before, struct seen now)
{
    assert(before->at == now.at);
    if (!slots_is_tag(now.pair.first, before->pair.first & TAG_HASH_MASK))
        return false;
    if ((now.pair.first & TAG_PENDING) != 0)
        return slots_is_bound(asking->slots, &now);
    const struct class_ops *ops = asking->slots->ops;
    bool goes_on = ops->is_left != NULL && !ops->is_left(&now); /* its owner was slow, not stuck */
    return goes_on || !pair_equals(now.pair, before->pair);
}

bool entry_await(struct asking *asking, struct seen *seen, struct entry_state *state)
{
    assert(seen->at != NULL);
    for (unsigned tries = 0; tries < READS_MAX; tries++) {
        struct seen now = *seen;
        if (entry_read(asking, seen, state))
            return true;
        now.pair = cas16_load_stable(seen->at);
        if (!is_changing(asking, seen, now))
            return false;
        *seen = now;
        owner_pause();
    }
    return false;
}

void entry_carry(const struct asking *asking, const struct stint_quota *from, const void *state,
                 void *carried)
{
    assert(asking_decides(asking));
    struct held_run runs[HELD_RUNS_MAX];
    const struct stint_quota *to = asking->quota;
    uint64_t now_ns = asking->ask.now_ns, latest_ns = table_latest_ns(asking->table, now_ns);
    if (from != NULL && from->algorithm == STINT_CONCURRENCY && from->algorithm == to->algorithm &&
        from->lease_ns == to->lease_ns && to->limit > 0) {
        concurrency_carry(from, state, now_ns, to, carried);
        return;
    }
    size_t n_runs = from != NULL ? algorithm_held(from, state, now_ns, latest_ns, runs) : 0;
    algorithm_carry(to, carried, runs, n_runs);
}

bool entry_get_past(struct asking *asking, const struct seen *seen)
{
    assert(asking_is_valid(asking));
    asking->quota = entry_quota(asking, seen->pair.first);
    bool is_damaged = asking->quota == NULL;
    if (asking->slots->ops->displace != NULL && !is_damaged)
        return asking->slots->ops->displace(asking, seen);
    if (is_damaged || !slots_is_whole(asking->slots, seen))
        slots_withdraw(asking->slots, seen);
    return true;
}
