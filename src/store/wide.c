/* SPDX-License-Identifier: MIT */
/*
 * Deciding on states wider than 16 bytes: under an owner word instead of a swap.
 *
 * Death at work: whoever finds the owner's process gone takes the word, and the state, which may be
 * half written, becomes full for one period.
 * An owner who lives but is stuck (stopped, swapped out) may come back at any time and write on. So
 * its slot is left to it: the key is blocked for one period, the word is marked as abandoned, the
 * slot loses its tag. Coming back, the owner cannot give the word back, and decides anew; only then,
 * or when it is dead, the slot is free again.
 */
#include "store/entry.h"

#include "base/wide_int.h"
#include "store/owner.h"

#include <string.h>

struct wide_state {
    uint64_t owner;
    uint64_t dies_at_ns; /* written by owners, read by newcomers who look for a place */
    unsigned char bytes[];
};

static const _Alignas(16) unsigned char never_used[WIDE_STATE_MAX];

uint64_t wide_dies_at(const struct seen *seen)
{
    const struct wide_state *wide = seen->state;
    /* relaxed: a hint, held to account under the owner word before the slot is taken. */
    return __atomic_load_n(&wide->dies_at_ns, __ATOMIC_RELAXED);
}

bool wide_is_left(const struct seen *seen)
{
    const struct wide_state *wide = seen->state;
    uint64_t word = __atomic_load_n(&wide->owner, __ATOMIC_RELAXED);
    return (word & OWNER_HELD) != 0 && !owner_is_dead(word);
}

static void set_dies_at(struct wide_state *wide, uint64_t dies_at_ns)
{
    __atomic_store_n(&wide->dies_at_ns, dies_at_ns, __ATOMIC_RELAXED);
}

static uint64_t self(const struct asking *asking)
{
    struct process_page *process = asking->table->process;
    /* relaxed: every thread of the process works out the same. */
    uint64_t owner = __atomic_load_n(&process->owner, __ATOMIC_RELAXED);
    if (owner == 0) {
        owner = owner_self();
        __atomic_store_n(&process->owner, owner, __ATOMIC_RELAXED);
    }
    return owner;
}

/* Back from work: if the slot was abandoned to us meanwhile, it is empty and free from here on. */
CAS16_TARGET static bool give_back(const struct seen *seen, uint64_t mine)
{
    struct wide_state *wide = seen->state;
    if (owner_give_back(&wide->owner, mine))
        return true;
    struct pair now = cas16_load_stable(seen->at);
    struct pair empty = {0, now.second + 1};
    set_dies_at(wide, 0);
    cas16(seen->at, now, empty);
    owner_give_back(&wide->owner, mine | OWNER_ABANDONED);
    return false;
}

/* Leaves the slot to its stuck owner. False if the owner came back just now. */
CAS16_TARGET static bool abandon(const struct seen *seen, uint64_t stuck)
{
    struct wide_state *wide = seen->state;
    uint64_t word = stuck;
    /* acq_rel: the block that stands in for the state comes before, the lost tag after. */
    if (!__atomic_compare_exchange_n(&wide->owner, &word, stuck | OWNER_ABANDONED, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return false;
    struct pair left = {TAG_ABANDONED, seen->pair.second + 1};
    cas16(seen->at, seen->pair, left);
    return true;
}

/* The key's owner is stuck: full for one period, elsewhere. */
static bool displace(struct asking *asking, const struct seen *seen, uint64_t stuck)
{
    uint64_t until_ns = add_sat(asking->ask.now_ns, asking->quota->period_ns);
    if (table_block(asking->table, asking->hash, until_ns, asking->ask.now_ns) != 0)
        return false;
    if (abandon(seen, stuck))
        table_count(&table_counters(asking->table)->owners_displaced, 1);
    else
        table_unblock(asking->table, asking->hash);
    return true;
}

/* The state of a key whose owner died at work. */
static void repair(const struct asking *asking, const struct seen *seen)
{
    struct wide_state *wide = seen->state;
    table_count(&table_counters(asking->table)->owners_displaced, 1);
    memset(wide->bytes, 0, asking->slots->state_size);
    if ((seen->pair.first & TAG_PENDING) != 0 || seen->pair.first == 0)
        return;
    uint32_t id = (uint32_t)(seen->pair.first & TAG_ID_MASK);
    const struct stint_quota *quota = intern_quota(&asking->table->intern, id);
    if (quota == NULL || table_class(quota) != CLASS_WIDE)
        return;
    uint64_t until_ns = add_sat(asking->ask.now_ns, quota->period_ns);
    law_wide_fill(quota, wide->bytes, until_ns);
    set_dies_at(wide, law_wide_dies_at(quota, wide->bytes));
}

/* Takes a free place for the asking key, and publishes it as pending. */
CAS16_TARGET static void publish(struct asking *asking, const struct place *place)
{
    struct wide_state *wide = place->seen.state;
    uint64_t mine;
    enum owner_result taken = owner_take(&wide->owner, self(asking), &mine);
    if (taken == OWNER_STUCK)
        abandon(&place->seen, mine); /* nothing is lost: what it works on was dead or not begun */
    if (taken != OWNER_TAKEN && taken != OWNER_ROBBED)
        return;
    struct pair now = cas16_load_stable(place->seen.at);
    if (taken == OWNER_ROBBED)
        repair(asking, &(struct seen){place->seen.at, wide, now});
    uint64_t dies_at_ns = add_sat(wide_dies_at(&place->seen),
                                  asking->table->region.header->fixed.skew_max_ns);
    bool is_free = place->worth == WORTH_PENDING || now.first == 0 ||
                   wide_dies_at(&place->seen) == 0 || dies_at_ns <= asking->ask.now_ns;
    if (pair_equals(now, place->seen.pair) && is_free) {
        memset(wide->bytes, 0, asking->slots->state_size);
        set_dies_at(wide, 0);
        struct pair pending = {asking->home.tag | TAG_PENDING | asking->id, now.second + 1};
        if (cas16(place->seen.at, now, pending) && now.first != 0)
            table_count(&table_counters(asking->table)->evictions_lossless, 1);
    }
    give_back(&place->seen, mine);
}

static struct stint_decision deny_for(const struct asking *asking, uint64_t wait_ns)
{
    return (struct stint_decision){.outcome = STINT_DENY,
                                   .limit = asking->quota->limit,
                                   .retry_after_ns = wait_ns,
                                   .reset_after_ns = wait_ns};
}

/* True if *decision is made without a place. */
static bool newcomer_ask(struct asking *asking, struct stint_decision *decision)
{
    if (table_adopt(asking))
        return false;
    struct stint_ask peek = asking->ask;
    peek.verb = STINT_PEEK;
    /* Displaced since the blocks were looked at: the block was made before the slot lost its tag. */
    uint64_t until_ns = table_blocked_until(asking->table, asking->hash);
    if (until_ns > asking->ask.now_ns) {
        *decision = deny_for(asking, until_ns - asking->ask.now_ns);
        return true;
    }
    /* A peek writes nothing, so it may read the page that is never used. */
    *decision = law_wide_ask(asking->quota, (void *)(uintptr_t)never_used, &peek);
    if (decision->outcome == STINT_NEVER || asking->ask.cost == 0)
        return true;
    struct place place = place_choose(asking);
    if (place.seen.at == NULL) {
        *decision = place_full(asking, &place, *decision);
        return true;
    }
    uint8_t verb = asking->ask.verb;
    if (verb == STINT_PEEK)
        return true;
    if (verb == STINT_REFUND || verb == STINT_UNBOOK) {
        decision->granted = 0;
        return true;
    }
    publish(asking, &place);
    return false;
}

/* Parameters changed: what the state holds is carried over in place. */
CAS16_TARGET static void convert(struct asking *asking, struct seen *seen)
{
    struct wide_state *wide = seen->state;
    uint32_t id = (uint32_t)(seen->pair.first & TAG_ID_MASK);
    const struct stint_quota *writer = intern_quota(&asking->table->intern, id);
    struct held_run runs[HELD_RUNS_MAX];
    size_t n_runs = 0;
    if (writer != NULL && table_class(writer) == CLASS_WIDE)
        n_runs = law_wide_held(writer, wide->bytes, asking->ask.now_ns, runs);
    memset(wide->bytes, 0, asking->slots->state_size);
    law_wide_carry(asking->quota, wide->bytes, runs, n_runs, asking->ask.now_ns);
    set_dies_at(wide, law_wide_dies_at(asking->quota, wide->bytes));
    struct pair renamed = {asking->home.tag | asking->id, seen->pair.second};
    if (cas16(seen->at, seen->pair, renamed))
        seen->pair = renamed;
}

/* At work on the key's slot, valid or pending. False: begin again. */
CAS16_TARGET static bool owned_ask(struct asking *asking, struct seen *seen,
                                   struct stint_decision *decision)
{
    struct wide_state *wide = seen->state;
    bool pending = (seen->pair.first & TAG_PENDING) != 0;
    if (pending && slots_settle(asking->slots, &asking->home, seen) != SETTLE_MINE)
        return false;
    if (!pending && (seen->pair.first & TAG_ID_MASK) != asking->id)
        convert(asking, seen);
    *decision = asking->holder != NULL && asking->ask.verb == STINT_TAKE
                    ? concurrency_hold(asking->quota, wide->bytes, &asking->ask, asking->holder)
                    : law_wide_ask(asking->quota, wide->bytes, &asking->ask);
    decision->stored = 1;
    uint64_t dies_at_ns = law_wide_dies_at(asking->quota, wide->bytes);
    set_dies_at(wide, dies_at_ns);
    if (!pending || dies_at_ns == 0)
        return true;
    struct pair valid = {asking->home.tag | asking->id, seen->pair.second};
    return cas16(seen->at, seen->pair, valid);
}

/* Takes the owner word of the key's slot; false: begin again, or *refused says why it is denied. */
static bool own(struct asking *asking, struct seen *seen, uint64_t *mine, bool *refused)
{
    struct wide_state *wide = seen->state;
    switch (owner_take(&wide->owner, self(asking), mine)) {
    case OWNER_STUCK:
        *refused = !displace(asking, seen, *mine) ||
                   table_blocked_until(asking->table, asking->hash) > asking->ask.now_ns;
        return false;
    case OWNER_LEFT: {
        struct pair left = {TAG_ABANDONED, seen->pair.second + 1};
        if (seen->pair.first != TAG_ABANDONED)
            cas16(seen->at, seen->pair, left);
        *refused = true;
        return false;
    }
    case OWNER_ROBBED:
        repair(asking, &(struct seen){seen->at, wide, cas16_load_stable(seen->at)});
        break;
    case OWNER_TAKEN:
        break;
    }
    if (pair_equals(cas16_load_stable(seen->at), seen->pair))
        return true;
    give_back(seen, *mine);
    return false;
}

struct stint_decision wide_ask(struct asking *asking)
{
    struct stint_decision decision;
    for (;;) {
        struct seen seen = slots_find(asking->slots, &asking->home);
        uint64_t mine;
        bool refused = false;
        if (seen.at == NULL) {
            if (newcomer_ask(asking, &decision))
                return decision;
            continue;
        }
        if (!own(asking, &seen, &mine, &refused)) {
            if (refused)
                return deny_for(asking, asking->quota->period_ns);
            continue;
        }
        bool decided = owned_ask(asking, &seen, &decision);
        if (give_back(&seen, mine) && decided)
            return decision;
    }
}

/* Becomes the owner of the key's valid state; false if there is none. */
static bool with_state(struct asking *asking, struct seen *seen, uint64_t *mine)
{
    for (;;) {
        bool refused = false;
        *seen = slots_find(asking->slots, &asking->home);
        if (seen->at == NULL || (seen->pair.first & TAG_PENDING) != 0)
            return false;
        if (own(asking, seen, mine, &refused))
            return true;
        if (refused)
            return false;
    }
}

bool wide_release(struct asking *asking, uint64_t holder, uint32_t *units)
{
    struct seen seen;
    uint64_t mine;
    if (!with_state(asking, &seen, &mine))
        return false;
    struct wide_state *wide = seen.state;
    bool found = concurrency_release(asking->quota, wide->bytes, asking->ask.now_ns, holder, units);
    set_dies_at(wide, law_wide_dies_at(asking->quota, wide->bytes));
    return give_back(&seen, mine) && found;
}

bool wide_renew(struct asking *asking, uint64_t *holder)
{
    struct seen seen;
    uint64_t mine;
    if (!with_state(asking, &seen, &mine))
        return false;
    struct wide_state *wide = seen.state;
    bool found = concurrency_renew(asking->quota, wide->bytes, asking->ask.now_ns, holder);
    set_dies_at(wide, law_wide_dies_at(asking->quota, wide->bytes));
    return give_back(&seen, mine) && found;
}

void wide_forget(struct asking *asking)
{
    struct seen seen;
    uint64_t mine;
    if (!with_state(asking, &seen, &mine))
        return;
    struct wide_state *wide = seen.state;
    memset(wide->bytes, 0, asking->slots->state_size);
    set_dies_at(wide, 0);
    give_back(&seen, mine);
}

bool wide_copy(struct asking *asking, const struct seen *seen, void *bytes)
{
    struct wide_state *wide = seen->state;
    uint64_t mine;
    if (asking->table->region.read_only) {
        /* Memory that cannot be written to: what an owner is at work on may come out half done. */
        memcpy(bytes, wide->bytes, asking->slots->state_size);
        return pair_equals(cas16_load(seen->at), seen->pair);
    }
    enum owner_result taken = owner_take(&wide->owner, self(asking), &mine);
    if (taken != OWNER_TAKEN && taken != OWNER_ROBBED)
        return false;
    struct pair now = cas16_load_stable(seen->at);
    if (taken == OWNER_ROBBED)
        repair(asking, &(struct seen){seen->at, wide, now});
    memcpy(bytes, wide->bytes, asking->slots->state_size);
    return give_back(seen, mine) && pair_equals(now, seen->pair);
}

void wide_fill(struct asking *asking, const struct seen *seen, const struct stint_quota *quota,
               uint64_t until_ns)
{
    struct wide_state *wide = seen->state;
    wide->owner = 0;
    memset(wide->bytes, 0, asking->slots->state_size);
    law_wide_fill(quota, wide->bytes, until_ns);
    set_dies_at(wide, law_wide_dies_at(quota, wide->bytes));
}

void wide_paste(const struct asking *asking, void *slot_state, const struct entry_state *state)
{
    struct wide_state *wide = slot_state;
    memcpy(wide->bytes, state->as.bytes, asking->slots->state_size);
    wide->dies_at_ns = entry_dies_at(state);
}
