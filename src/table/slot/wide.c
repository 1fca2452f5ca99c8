/* SPDX-License-Identifier: MIT */
/*
 * Deciding on states wider than 16 bytes: under an owner word instead of a swap.
 *
 * If the owner's process has ended, the thread that finds this takes the word, and the state, which
 * may be half written, becomes full for one period.
 * An owner that runs but is stuck (stopped, swapped out) may continue at any time and write on. So
 * its slot is left to it: the key is blocked for one period, the word is marked as abandoned, the
 * slot loses its tag. When the owner continues, it cannot give the word back, and decides anew;
 * only then, or when its process has ended, the slot is free again.
 */
#include "table/slot/wide.h"

#include "base/wide_int.h"
#include "table/region/owner.h"
#include "table/slot/ask.h"
#include "table/slot/place.h"
#include "table/slot/rule.h"
#include "table/table.h"

#include <assert.h>
#include <string.h>

static const _Alignas(16) unsigned char never_used[WIDE_STATE_MAX];

uint64_t wide_expires_at(const struct seen *seen)
{
    const struct wide_state *wide = seen->state;
    /* relaxed: a hint, checked under the owner word before the slot is taken. */
    return __atomic_load_n(&wide->expires_at_ns, __ATOMIC_RELAXED);
}

static bool is_left(const struct seen *seen)
{
    const struct wide_state *wide = seen->state;
    uint64_t word = __atomic_load_n(&wide->owner, __ATOMIC_RELAXED);
    return (word & OWNER_HELD) != 0 && !owner_has_ended(word);
}

static void set_expires_at(struct wide_state *wide, uint64_t expires_at_ns)
{
    __atomic_store_n(&wide->expires_at_ns, expires_at_ns, __ATOMIC_RELAXED);
}

/* The thread that abandoned the slot may have been stopped before this. */
CAS16_TARGET static void mark_left(const struct seen *seen)
{
    struct pair left = {TAG_ABANDONED, seen->pair.second + 1};
    if (seen->pair.first != TAG_ABANDONED)
        cas16(seen->at, seen->pair, left);
}

/*
 * After the work: if the slot was abandoned to us meanwhile, it is free from here on. Its tag goes
 * before the word, also if it has just become valid: else another thread could be granted units
 * here that go with the tag. Under our word others can only withdraw a pending slot, or mark it.
 */
CAS16_TARGET static bool give_back(const struct seen *seen, uint64_t mine)
{
    assert((mine & OWNER_HELD) != 0);
    struct wide_state *wide = seen->state;
    if (owner_give_back(&wide->owner, mine))
        return true;
    struct seen now = *seen;
    do {
        now.pair = cas16_load_stable(seen->at);
        mark_left(&now);
    } while (now.pair.first != TAG_ABANDONED);
    set_expires_at(wide, 0);
    owner_give_back(&wide->owner, mine | OWNER_ABANDONED);
    return false;
}

/* Leaves the slot to its stuck owner, unless the owner continues at this time. */
CAS16_TARGET static void abandon(const struct seen *seen, uint64_t stuck)
{
    assert((stuck & OWNER_HELD) != 0);
    struct wide_state *wide = seen->state;
    uint64_t word = stuck;
    /* acq_rel: the block that replaces the state comes before, the lost tag after. */
    if (!__atomic_compare_exchange_n(&wide->owner, &word, stuck | OWNER_ABANDONED, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    mark_left(seen);
}

/* When the last unit that can have been charged until now is over. */
static uint64_t full_until(const struct asking *asking, const struct stint_quota *quota)
{
    assert(quota->period_ns > 0);
    return add_sat(table_latest_ns(asking->table, asking->ask.now_ns), quota->period_ns);
}

/*
 * The key's owner is stuck: full for one period, elsewhere. The block stays if the owner continues
 * meanwhile: another waiter may have abandoned the slot, and rely on the block. A key that is
 * forgotten (no quota) needs none: what its owner still grants is forgotten, too.
 */
static bool displace(struct asking *asking, const struct seen *seen, uint64_t stuck)
{
    assert(asking->quota == NULL || asking_decides(asking));
    if (asking->quota != NULL &&
        table_block(asking->table, asking->hash, full_until(asking, asking->quota),
                    asking->ask.now_ns) != 0)
        return false;
    table_count(&table_counters(asking->table)->owners_displaced, 1);
    abandon(seen, stuck);
    return true;
}

/*
 * The state of a key whose owner was killed at work: full until the last unit that was granted has
 * expired, and at most for one period. The word beside the state holds that time: an owner writes
 * it before it ends its work, and until then its caller has no grant.
 */
static void repair(const struct asking *asking, const struct seen *seen)
{
    assert(asking_is_valid(asking));
    struct wide_state *wide = seen->state;
    uint64_t expires_ns = wide_expires_at(seen);
    table_count(&table_counters(asking->table)->owners_displaced, 1);
    memset(wide->bytes, 0, asking->slots->state_size);
    if ((seen->pair.first & TAG_PENDING) != 0 || seen->pair.first == 0)
        return;
    const struct stint_quota *quota = entry_quota(asking, seen->pair.first);
    if (quota == NULL)
        return;
    /* Also one that has expired: a caller whose clock is behind may still need it. */
    algorithm_fill(quota, wide->bytes, min_u64(expires_ns, full_until(asking, quota)));
    set_expires_at(wide, algorithm_expires_at(quota, wide->bytes));
}

/*
 * Takes the owner word of a slot, and repairs what an ended owner left; false if a running owner
 * has it. *is_same: the pair is still the one seen, so the state is that key's.
 */
static bool enter(const struct asking *asking, const struct seen *seen, uint64_t *mine,
                  bool *is_same)
{
    struct wide_state *wide = seen->state;
    enum owner_result taken = owner_take(&wide->owner, table_self(asking->table), mine);
    if (taken != OWNER_TAKEN && taken != OWNER_TAKEN_OVER)
        return false;
    struct pair now = cas16_load_stable(seen->at);
    if (taken == OWNER_TAKEN_OVER)
        repair(asking, &(struct seen){seen->at, wide, now});
    *is_same = pair_equals(now, seen->pair);
    return true;
}

/* Replaces a state whose owner word is ours by one that was never used. */
static void clear(const struct asking *asking, struct wide_state *wide)
{
    memset(wide->bytes, 0, asking->slots->state_size);
    set_expires_at(wide, 0);
}

/*
 * Whether nothing is lost with a slot: what a stuck owner has left beside an abandoned tag counts
 * for no key. Call it when its owner word is ours, or that of an owner that is stuck: no other
 * thread can change the result then.
 */
static bool is_free(const struct asking *asking, const struct place *place)
{
    uint64_t expires_at_ns = wide_expires_at(&place->seen);
    if (!pair_equals(cas16_load_stable(place->seen.at), place->seen.pair))
        return false;
    uint64_t tag_word = place->seen.pair.first;
    return tag_word == 0 || tag_word == TAG_ABANDONED || place->worth == WORTH_PENDING ||
           place->is_damaged || expires_at_ns == 0 ||
           add_sat(expires_at_ns, table_grace_ns(asking->table)) <= asking->ask.now_ns;
}

/* The decision, with nothing taken, of a state whose owner word is ours. */
static struct stint_decision stands_at(const struct asking *asking, const struct seen *seen,
                                       const struct stint_quota *quota)
{
    assert(table_class(quota) == CLASS_WIDE);
    struct wide_state *wide = seen->state;
    struct stint_ask ask = {.now_ns = asking->ask.now_ns, .verb = STINT_PEEK};
    return algorithm_ask(quota, wide->bytes, &ask);
}

static bool wide_stands(const struct asking *asking, const struct seen *seen,
                        const struct stint_quota *quota, struct stint_decision *stands)
{
    struct wide_state *wide = seen->state;
    uint64_t mine;
    if (!owner_try(&wide->owner, table_self(asking->table), &mine))
        return false;
    bool is_same = pair_equals(cas16_load_stable(seen->at), seen->pair);
    if (is_same)
        *stands = stands_at(asking, seen, quota);
    return give_back(seen, mine) && is_same;
}

/* Whether a state whose owner word is ours may still be evicted, and what is forgotten then. */
static bool may_go(const struct asking *asking, struct place *place)
{
    const struct stint_quota *quota = entry_quota(asking, place->seen.pair.first);
    if (place->worth != WORTH_EVICT || quota == NULL ||
        !pair_equals(cas16_load_stable(place->seen.at), place->seen.pair))
        return false;
    struct stint_decision stands = stands_at(asking, &place->seen, quota);
    place->worth = WORTH_KEEP;
    place_weigh(&stands, place);
    return place->worth == WORTH_EVICT;
}

/* Takes a slot for the key, free or to be evicted, and publishes it as pending. */
CAS16_TARGET static void publish(struct asking *asking, struct place *place)
{
    assert(slots_has(asking->slots, place->seen.at));
    struct wide_state *wide = place->seen.state;
    uint64_t mine;
    enum owner_result taken = owner_take(&wide->owner, table_self(asking->table), &mine);
    if (taken == OWNER_STUCK && is_free(asking, place))
        abandon(&place->seen, mine);
    if (taken == OWNER_LEFT)
        mark_left(&place->seen);
    if (taken != OWNER_TAKEN && taken != OWNER_TAKEN_OVER)
        return;
    struct pair now = cas16_load_stable(place->seen.at);
    if (taken == OWNER_TAKEN_OVER)
        repair(asking, &(struct seen){place->seen.at, wide, now});
    if (is_free(asking, place) || may_go(asking, place)) {
        clear(asking, wide);
        struct pair pending = {asking->home.tag | TAG_PENDING | asking->id, now.second + 1};
        if (cas16(place->seen.at, now, pending))
            place_count(asking, place);
    }
    give_back(&place->seen, mine);
}

/* A peek writes nothing, so it may read the page that is never used. */
static bool begin(const struct asking *asking, struct stint_decision *decision)
{
    struct stint_ask peek = asking->ask;
    uint8_t verb = asking->ask.verb;
    peek.verb = STINT_PEEK;
    if (verb == STINT_TAKE_UPTO || verb == STINT_CHARGE)
        /* More than the limit is not NEVER to these; under a limit of 0 any cost is. */
        peek.cost = (uint32_t)min_u64(peek.cost, max_u64(asking->quota->limit, 1));
    if (!ask_moves_in(verb))
        peek.cost = 0;
    *decision = algorithm_ask(asking->quota, (void *)(uintptr_t)never_used, &peek);
    return verb != STINT_PEEK && decision->outcome != STINT_NEVER && peek.cost > 0;
}

static struct stint_decision algorithm_of(struct asking *asking, void *bytes)
{
    assert(table_class(asking->quota) == CLASS_WIDE);
    asking->own_ns = algorithm_own_ns(asking->quota, bytes);
    struct stint_decision decision =
        asking->holder != NULL && asking->ask.verb == STINT_TAKE
            ? concurrency_hold(asking->quota, bytes, &asking->ask, asking->holder)
            : algorithm_ask(asking->quota, bytes, &asking->ask);
    decision.stored = 1;
    return decision;
}

/*
 * Parameters changed: decides on the state's units under the new ones, and keeps the result if
 * units were moved. A refusal leaves the old state: it may hold more than the new algorithm can
 * represent. So does a peek: its caller may never take, and units that the new quota does not count
 * any more would be gone under the old one.
 */
CAS16_TARGET static struct stint_decision convert(struct asking *asking, struct seen *seen)
{
    assert(!asking_same_algorithm(asking, seen->pair.first));
    struct wide_state *wide = seen->state;
    _Alignas(16) unsigned char carried[WIDE_STATE_MAX];
    entry_carry(asking, entry_quota(asking, seen->pair.first), wide->bytes, carried);
    struct stint_decision decision = algorithm_of(asking, carried);
    if (decision.granted == 0 || asking->ask.verb == STINT_PEEK)
        return decision;
    memset(wide->bytes, 0, asking->slots->state_size);
    memcpy(wide->bytes, carried, asking->quota->derived.state_size);
    set_expires_at(wide, algorithm_expires_at(asking->quota, wide->bytes));
    struct pair renamed = {asking->home.tag | asking->id, seen->pair.second};
    if (cas16(seen->at, seen->pair, renamed))
        seen->pair = renamed;
    return decision;
}

/* Works on the key's slot, valid or pending, whose owner word is ours. False: begin again. */
CAS16_TARGET static bool owned_ask(struct asking *asking, struct seen *seen,
                                   struct stint_decision *decision)
{
    assert(asking_decides(asking));
    struct wide_state *wide = seen->state;
    bool pending = (seen->pair.first & TAG_PENDING) != 0;
    if (pending && (slots_settle(asking->slots, &asking->home, seen) != SETTLE_MINE ||
                    asking_catch_up(asking)))
        return false;
    if (pending && rule_is_blocked(asking, decision))
        return true;
    if (!pending && !asking_same_algorithm(asking, seen->pair.first)) {
        *decision = convert(asking, seen);
        return true;
    }
    *decision = algorithm_of(asking, wide->bytes);
    uint64_t expires_at_ns = algorithm_expires_at(asking->quota, wide->bytes);
    set_expires_at(wide, expires_at_ns);
    if (!pending || expires_at_ns == 0)
        return true;
    struct pair valid = {asking->home.tag | asking->id, seen->pair.second};
    return cas16(seen->at, seen->pair, valid);
}

/* Takes the owner word of the key's slot; false: begin again, or *refused: deny it for a period. */
static bool own(struct asking *asking, struct seen *seen, uint64_t *mine, bool *refused)
{
    assert(asking_is_valid(asking));
    struct wide_state *wide = seen->state;
    enum owner_result taken = owner_take(&wide->owner, table_self(asking->table), mine);
    /* Handed over while we waited: then its stuck owner has nothing of this key. */
    bool is_ours = pair_equals(cas16_load_stable(seen->at), seen->pair);
    *refused = false;
    switch (taken) {
    case OWNER_STUCK:
        *refused =
            is_ours && (!displace(asking, seen, *mine) ||
                        table_blocked_until(asking->table, asking->hash) > asking->ask.now_ns);
        return false;
    case OWNER_LEFT:
        mark_left(seen);
        *refused = is_ours;
        return false;
    case OWNER_TAKEN_OVER:
        repair(asking, &(struct seen){seen->at, wide, cas16_load_stable(seen->at)});
        break;
    case OWNER_TAKEN:
        break;
    }
    if (is_ours)
        return true;
    give_back(seen, *mine);
    return false;
}

/*
 * Works on a pending slot under a rule: other classes may have the key. False: begin again; else
 * the slot is valid, if anything was charged or moved.
 */
CAS16_TARGET static bool owned_arrive(struct asking *asking, const struct seen *seen,
                                      struct rule_move *move, enum rule_found *found,
                                      struct stint_decision *decision)
{
    assert((seen->pair.first & TAG_PENDING) != 0);
    struct wide_state *wide = seen->state;
    *found = rule_arrive(asking, seen, move, decision);
    if (*found == RULE_AGAIN || *found == RULE_DECIDED)
        return *found == RULE_DECIDED;
    memset(wide->bytes, 0, asking->slots->state_size);
    algorithm_carry(asking->quota, wide->bytes, move->runs, move->n_runs);
    *decision = algorithm_of(asking, wide->bytes);
    uint64_t expires_at_ns = algorithm_expires_at(asking->quota, wide->bytes);
    set_expires_at(wide, expires_at_ns);
    if (*found == RULE_ALONE && expires_at_ns == 0)
        return true;
    struct pair valid = {asking->home.tag | asking->id, seen->pair.second};
    return cas16(seen->at, seen->pair, valid);
}

/*
 * If the slot is valid but was left to us as to a stuck owner, it is dropped, and the frozen slot
 * stays frozen: the key is full until that is over.
 */
static __attribute__((noinline)) bool arrive(struct asking *asking, struct seen *seen,
                                             struct stint_decision *decision)
{
    assert(asking->rule != 0);
    struct rule_move move;
    enum rule_found found;
    uint64_t mine;
    bool refused;
    if (!own(asking, seen, &mine, &refused)) {
        if (refused)
            *decision = algorithm_deny_for(asking->quota->limit, asking->quota->period_ns);
        return refused;
    }
    bool decided = owned_arrive(asking, seen, &move, &found, decision);
    bool is_ours = give_back(seen, mine);
    if (found == RULE_AGAIN)
        rule_pause(asking);
    if (found == RULE_OTHER && !decided)
        rule_put_back(&move);
    if (found == RULE_OTHER && decided && is_ours)
        rule_arrived(&move);
    return decided && is_ours;
}

static bool ask(struct asking *asking, struct seen *seen, struct stint_decision *decision)
{
    uint64_t mine;
    bool refused;
    if ((seen->pair.first & TAG_PENDING) != 0 && asking->rule != 0)
        return arrive(asking, seen, decision);
    if (!own(asking, seen, &mine, &refused)) {
        if (refused)
            *decision = algorithm_deny_for(asking->quota->limit, asking->quota->period_ns);
        return refused;
    }
    bool decided = owned_ask(asking, seen, decision);
    return give_back(seen, mine) && decided;
}

/* Becomes the owner of the key's valid state; false if there is none. */
static bool with_state(struct asking *asking, struct seen *seen, uint64_t *mine)
{
    for (bool refused = false; !refused;) {
        *seen = slots_find(asking->slots, &asking->home);
        if (seen->at == NULL || (seen->pair.first & TAG_PENDING) != 0)
            return false;
        if (own(asking, seen, mine, &refused))
            return true;
    }
    return false;
}

bool wide_holder(struct asking *asking, uint64_t *holder, uint32_t *units)
{
    assert(asking->quota->algorithm == STINT_CONCURRENCY);
    struct seen seen;
    uint64_t mine;
    if (!with_state(asking, &seen, &mine))
        return false;
    struct wide_state *wide = seen.state;
    /*
     * The rule's quota may have changed since: the state is as the quota of its tag wrote it. A
     * change of the lease gave the holders other values.
     */
    const struct stint_quota *writer = entry_quota(asking, seen.pair.first);
    bool found = writer != NULL && writer->algorithm == STINT_CONCURRENCY &&
                 writer->lease_ns == asking->quota->lease_ns &&
                 concurrency_holder(writer, wide->bytes, asking->ask.now_ns, holder, units);
    if (found)
        set_expires_at(wide, algorithm_expires_at(writer, wide->bytes));
    return give_back(&seen, mine) && found;
}

void wide_forget(struct asking *asking)
{
    assert(asking_is_valid(asking));
    struct seen seen;
    uint64_t mine;
    if (!with_state(asking, &seen, &mine))
        return;
    clear(asking, seen.state);
    give_back(&seen, mine);
}

/* Whether a state whose owner word is ours is still the one that was read. */
static bool is_unchanged(const struct asking *asking, const struct wide_state *wide,
                         const struct entry_state *state)
{
    return memcmp(wide->bytes, state->as.bytes, asking->slots->state_size) == 0;
}

CAS16_TARGET static bool freeze(struct asking *asking, struct seen *seen,
                                const struct entry_state *state, uint64_t until_ns)
{
    assert((seen->pair.first & TAG_PENDING) == 0);
    struct pair gone = {asking->home.tag | TAG_PENDING, seen->pair.second};
    uint64_t mine;
    bool frozen;
    if (!enter(asking, seen, &mine, &frozen))
        return false;
    frozen = frozen && is_unchanged(asking, seen->state, state);
    if (frozen) {
        set_expires_at(seen->state, until_ns);
        frozen = cas16(seen->at, seen->pair, gone);
    }
    if (frozen)
        seen->pair = gone;
    return give_back(seen, mine) && frozen;
}

/* The bytes, too: a thread that ended during a search for a slot may have left them invalid. */
CAS16_TARGET static void put_back(struct asking *asking, const struct seen *gone, struct pair valid,
                                  const struct entry_state *state)
{
    assert(slots_is_frozen(gone->pair.first));
    struct wide_state *wide = gone->state;
    uint64_t mine;
    bool is_same;
    if (!enter(asking, gone, &mine, &is_same))
        return;
    if (is_same) {
        memcpy(wide->bytes, state->as.bytes, asking->slots->state_size);
        cas16(gone->at, gone->pair, valid);
    }
    give_back(gone, mine);
}

static bool displace_stuck(struct asking *asking, const struct seen *seen)
{
    struct seen again = *seen;
    uint64_t mine;
    bool refused;
    if (own(asking, &again, &mine, &refused))
        give_back(seen, mine);
    return !refused || !pair_equals(cas16_load(seen->at), seen->pair);
}

static bool copy(struct asking *asking, struct seen *seen, struct entry_state *state)
{
    struct wide_state *wide = seen->state;
    uint64_t mine;
    bool is_same;
    if (asking->table->region.read_only) {
        /* Read-only memory: a state whose owner is at work may be copied half written. */
        memcpy(state->as.bytes, wide->bytes, asking->slots->state_size);
        return pair_equals(cas16_load(seen->at), seen->pair);
    }
    if (!enter(asking, seen, &mine, &is_same))
        return false;
    memcpy(state->as.bytes, wide->bytes, asking->slots->state_size);
    return give_back(seen, mine) && is_same;
}

void wide_free(const struct seen *seen, uint64_t expires_at_ns)
{
    struct wide_state *wide = seen->state;
    /* Writes only where something changes: a clean file stays clean. */
    if ((wide->owner & ~OWNER_SEQUENCE_MASK) != 0)
        wide->owner = 0;
    if (wide->expires_at_ns != expires_at_ns)
        wide->expires_at_ns = expires_at_ns;
}

static void fill(struct asking *asking, const struct seen *seen, const struct stint_quota *quota,
                 uint64_t until_ns)
{
    assert(quota->limit > 0);
    struct wide_state *wide = seen->state;
    wide->owner = 0;
    memset(wide->bytes, 0, asking->slots->state_size);
    algorithm_fill(quota, wide->bytes, until_ns);
    set_expires_at(wide, algorithm_expires_at(quota, wide->bytes));
}

static void appraise(const struct asking *asking, const struct stint_quota *quota,
                     struct place *place)
{
    struct stint_decision stands;
    place_appraise_life(asking, wide_expires_at(&place->seen), place);
    if (place_may_be_evicted(asking, quota, place) &&
        wide_stands(asking, &place->seen, quota, &stands))
        place_weigh(&stands, place);
}

const struct class_ops wide_ops = {
    .ask = ask,
    .begin = begin,
    .publish = publish,
    .appraise = appraise,
    .copy = copy,
    .fill = fill,
    .freeze = freeze,
    .put_back = put_back,
    .frozen_until = wide_expires_at,
    .displace = displace_stuck,
    .is_left = is_left,
};
