/* SPDX-License-Identifier: MIT */
/*
 * Chooses the slot of a new key. Two hashed sets: the first while half of it is free, then the one
 * with more free slots. At three quarters full 82 % of the keys are in their first set, where one
 * line is read to find them, and one key in 14,000 finds all its slots taken.
 *
 * Of the free slots those that were never used are taken first, then those whose state expired long
 * ago: a key that returns after its state has expired finds its slot unchanged, and a new key costs
 * twice as much.
 *
 * A live state under `inherit` or `deny` never leaves its slot. Under `inherit` a new key is denied
 * until the first of the live states in its slots expires, and is new then: docs/semantics.md, 5.4.
 */
#include "table/slot/rule.h"

#include <assert.h>

/* Sets when the state expires: nothing is lost with an expired one. */
static void appraise_life(const struct asking *asking, uint64_t expires_at_ns, struct place *place)
{
    place->expires_at_ns = add_sat(expires_at_ns, table_grace_ns(asking->table));
    if (expires_at_ns == 0) {
        place->worth = WORTH_EMPTY;
    } else if (place->expires_at_ns <= asking->ask.now_ns) {
        place->worth = WORTH_EMPTY;
        place->died_at_ns = expires_at_ns;
    } else {
        place->worth = WORTH_KEEP;
    }
}

/* A cost of 0 shows how a state stands: any other decision includes what it would take. */
static struct stint_ask how_it_stands(const struct asking *asking)
{
    return (struct stint_ask){.now_ns = asking->ask.now_ns, .verb = STINT_PEEK};
}

static bool may_be_evicted(const struct asking *asking, const struct stint_quota *quota,
                           const struct place *place)
{
    return place->worth == WORTH_KEEP && table_when_full(asking->table, quota) == STINT_FULL_EVICT;
}

void place_weigh(const struct stint_decision *stands, struct place *place)
{
    assert(stands->remaining <= stands->limit);
    if (stands->remaining == 0)
        return; /* it is denying */
    place->worth = WORTH_EVICT;
    place->held_units = stands->limit - stands->remaining;
    place->share = (uint32_t)(((uint64_t)place->held_units << 32) / stands->limit);
}

static void appraise8(const struct asking *asking, const struct stint_quota *quota,
                      struct place *place)
{
    struct stint_ask ask = how_it_stands(asking);
    uint64_t state = place->seen.pair.second;
    appraise_life(asking, algorithm_expires_at(quota, &state), place);
    if (may_be_evicted(asking, quota, place)) {
        struct stint_decision stands = algorithm_ask(quota, &state, &ask);
        place_weigh(&stands, place);
    }
}

static void appraise16(const struct asking *asking, const struct stint_quota *quota,
                       struct place *place)
{
    uint64_t generation = place->seen.pair.second;
    struct stint_ask ask = how_it_stands(asking);
    bool arrives = (place->seen.pair.first & TAG_PENDING) != 0 &&
                   (place->state.second & ~STATE_MASK) == (state_mark(generation) | STATE_FROZEN);
    if (arrives || state_leaves(place->state, generation)) {
        appraise_life(asking, place->state.first, place);
        return;
    }
    if ((place->state.second & ~STATE_MASK) != state_mark(generation)) {
        place->worth = WORTH_EMPTY; /* damaged: no request can refer to it */
        return;
    }
    struct word16 state = {place->state.first, place->state.second & STATE_MASK};
    appraise_life(asking, algorithm_expires_at(quota, &state), place);
    if (may_be_evicted(asking, quota, place)) {
        struct stint_decision stands = algorithm_ask(quota, &state, &ask);
        place_weigh(&stands, place);
    }
}

static void appraise_wide(const struct asking *asking, const struct stint_quota *quota,
                          struct place *place)
{
    struct stint_decision stands;
    appraise_life(asking, wide_expires_at(&place->seen), place);
    if (may_be_evicted(asking, quota, place) && wide_stands(asking, &place->seen, quota, &stands))
        place_weigh(&stands, place);
}

/*
 * The slot and, in class 16, its state: the generation must be the same before and after the state
 * was read. Otherwise the state might be that of the next key in the slot, and freezing it would
 * take the slot from a key that has just come.
 */
static void look(const struct slots *slots, uint8_t *set, unsigned way, struct place *place)
{
    do {
        place->seen = slots_see(slots, set, way);
        if (slots->class != CLASS_16)
            return;
        place->state = cas16_load_stable(place->seen.state);
    } while (!pair_equals(cas16_load(place->seen.at), place->seen.pair));
}

/* The content of one slot, and until when it lasts. */
static struct place appraise(const struct asking *asking, uint8_t *set, unsigned way)
{
    const struct slots *slots = asking->slots;
    struct place place = {.worth = WORTH_EMPTY};
    look(slots, set, way, &place);
    uint64_t tag_word = place.seen.pair.first;
    if (tag_word == 0)
        return place;
    if (tag_word == TAG_ABANDONED) {
        place.worth = wide_is_left(&place.seen) ? WORTH_KEEP : WORTH_EMPTY;
        place.expires_at_ns = asking->ask.now_ns + NS_PER_S;
        return place;
    }
    if ((tag_word & TAG_PENDING) != 0 && !slots_is_bound(slots, &place.seen)) {
        place.worth = WORTH_PENDING;
        return place;
    }
    if (slots_is_frozen(tag_word)) {
        appraise_life(asking, rule_frozen_until(slots, &place.seen), &place);
        return place;
    }
    if (slots->class == CLASS_BLOCKS) {
        appraise_life(asking, place.seen.pair.second, &place);
        return place;
    }
    const struct stint_quota *quota =
        intern_quota(&asking->table->intern, (uint32_t)(tag_word & TAG_ID_MASK));
    place.is_damaged = quota == NULL || table_class(quota) != slots->class;
    if (place.is_damaged)
        return place;
    if (slots->class == CLASS_8)
        appraise8(asking, quota, &place);
    else if (slots->class == CLASS_16)
        appraise16(asking, quota, &place);
    else
        appraise_wide(asking, quota, &place);
    return place;
}

static bool is_better(const struct place *a, const struct place *b)
{
    if (b->seen.at == NULL || a->worth != b->worth)
        return b->seen.at == NULL || a->worth < b->worth;
    if (a->worth == WORTH_EMPTY)
        return a->died_at_ns < b->died_at_ns;
    return a->worth == WORTH_EVICT && a->share < b->share;
}

/* The best of a set, by the order in which the key is searched; counts the free ones. */
static struct place choose_in_set(const struct asking *asking, uint8_t *set, unsigned *free_slots)
{
    struct place best = {.seen = {.at = NULL}, .worth = WORTH_KEEP};
    uint64_t first_expiry_ns = UINT64_MAX;
    unsigned first = slots_first_way(asking->home.tag);
    for (unsigned i = 0; i < WAYS; i++) {
        struct place place = appraise(asking, set, i ^ first);
        *free_slots += place.worth == WORTH_EMPTY;
        if (place.worth >= WORTH_EVICT)
            first_expiry_ns = min_u64(first_expiry_ns, place.expires_at_ns);
        if (place.worth < WORTH_KEEP && is_better(&place, &best))
            best = place;
    }
    best.expires_at_ns = first_expiry_ns;
    return best;
}

/* Both have free slots: spreads live states, and spares expired ones while there is space. */
static bool prefers_second(const struct place *first, const struct place *second,
                           const unsigned free_slots[2])
{
    if (free_slots[0] < HALF_WAYS)
        return free_slots[1] > free_slots[0];
    return free_slots[1] >= HALF_WAYS && first->died_at_ns > 0 && second->died_at_ns == 0;
}

struct place place_choose(const struct asking *asking)
{
    unsigned free_slots[2] = {0, 0};
    struct place first = choose_in_set(asking, asking->home.set[0], &free_slots[0]);
    if (asking->home.set[1] == asking->home.set[0])
        return first;
    struct place second = choose_in_set(asking, asking->home.set[1], &free_slots[1]);
    uint64_t first_expiry_ns = min_u64(first.expires_at_ns, second.expires_at_ns);
    bool take_second = first.worth == WORTH_EMPTY && second.worth == WORTH_EMPTY
                           ? prefers_second(&first, &second, free_slots)
                           : second.seen.at != NULL && is_better(&second, &first);
    struct place best = take_second ? second : first;
    best.expires_at_ns = first_expiry_ns;
    return best;
}

void place_count(const struct asking *asking, const struct place *place)
{
    struct region_counters *counters = table_counters(asking->table);
    if (place->worth == WORTH_EVICT) {
        table_count(&counters->evictions_evict, 1);
        table_count(&counters->forgotten_units, place->held_units);
    } else if (place->seen.pair.first != 0) {
        table_count(&counters->evictions_lossless, 1);
    }
}

/* The decision for a new key without a slot, by its quota's when_full; `fresh` is what it would be.
 */
static struct stint_decision decide_when_full(const struct asking *asking,
                                              const struct place *place,
                                              struct stint_decision fresh)
{
    struct region_counters *counters = table_counters(asking->table);
    uint8_t policy = table_when_full(asking->table, asking->quota);
    bool counts = asking->ask.verb != STINT_PEEK;
    assert(place->seen.at == NULL);
    fresh.stored = 0;
    if (policy == STINT_FULL_ALLOW) {
        if (counts)
            table_count(&counters->full_allowed, 1);
        return fresh;
    }
    if (counts)
        table_count(
            policy == STINT_FULL_DENY ? &counters->full_denied : &counters->evictions_inherit, 1);
    uint64_t wait_ns = place->expires_at_ns - asking->ask.now_ns;
    return (struct stint_decision){
        .outcome = STINT_DENY,
        .limit = fresh.limit,
        .retry_after_ns = wait_ns,
        .reset_after_ns = wait_ns,
    };
}

enum new_key admit_new_key(struct asking *asking, bool charges, struct place *place,
                           struct stint_decision *decision)
{
    bool asks = decision->outcome != STINT_NEVER && asking->ask.cost > 0 &&
                place_moves_in(asking->ask.verb);
    *place = (struct place){.seen = {.at = NULL}};
    if (asks)
        *place = place_choose(asking);
    if (charges && place->seen.at != NULL)
        return NEW_KEY_PUBLISHES; /* and searches the other classes then */
    switch (rule_look(asking, decision)) {
    case RULE_ALONE:
        if (asks && place->seen.at == NULL)
            *decision = decide_when_full(asking, place, *decision);
        return NEW_KEY_DECIDED;
    case RULE_AGAIN:
        rule_pause(asking);
        return NEW_KEY_AGAIN;
    case RULE_DECIDED:
        return NEW_KEY_DECIDED;
    case RULE_OTHER:
        break;
    }
    if (!asks)
        *place = place_choose(asking);
    if (place->seen.at != NULL)
        return NEW_KEY_PUBLISHES;
    /* Its units stay elsewhere, so it must be full here: they are over within one period. */
    rule_refuse(asking, add_sat(asking->ask.now_ns, asking->quota->period_ns), decision);
    return NEW_KEY_DECIDED;
}
