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
#include "table/slot/place.h"

#include "table/slot/entry.h"

#include <assert.h>

/* Sets when the state expires: nothing is lost with an expired one. */
void place_appraise_life(const struct asking *asking, uint64_t expires_at_ns, struct place *place)
{
    assert(asking_is_valid(asking));
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

bool place_may_be_evicted(const struct asking *asking, const struct stint_quota *quota,
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

void place_appraise_state(const struct asking *asking, const struct stint_quota *quota, void *state,
                          struct place *place)
{
    assert(table_class(quota) == asking->slots->class);
    place_appraise_life(asking, algorithm_expires_at(quota, state), place);
    if (!place_may_be_evicted(asking, quota, place))
        return;
    /* A cost of 0 shows how a state stands: any other decision includes what it would take. */
    struct stint_ask ask = {.now_ns = asking->ask.now_ns, .verb = STINT_PEEK};
    struct stint_decision stands = algorithm_ask(quota, state, &ask);
    place_weigh(&stands, place);
}

/*
 * The slot and, in class 16, its state: the generation must be the same before and after the state
 * was read. Otherwise the state might be that of the next key in the slot, and freezing it would
 * take the slot from a key that has just come.
 */
static void look(const struct slots *slots, uint8_t *set, unsigned way, struct place *place)
{
    assert(way < WAYS);
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
    assert(asking_is_valid(asking));
    const struct slots *slots = asking->slots;
    struct place place = {.worth = WORTH_EMPTY};
    look(slots, set, way, &place);
    uint64_t tag_word = place.seen.pair.first;
    if (tag_word == 0)
        return place;
    if (tag_word == TAG_ABANDONED) {
        bool is_left = slots->class == CLASS_WIDE && slots->ops->is_left(&place.seen);
        place.worth = is_left ? WORTH_KEEP : WORTH_EMPTY;
        place.expires_at_ns = asking->ask.now_ns + NS_PER_S;
        return place;
    }
    if ((tag_word & TAG_PENDING) != 0 && !slots_is_bound(slots, &place.seen)) {
        place.worth = WORTH_PENDING;
        return place;
    }
    if (slots_is_frozen(tag_word)) {
        place_appraise_life(asking, slots->ops->frozen_until(&place.seen), &place);
        return place;
    }
    if (slots->class == CLASS_BLOCKS) {
        place_appraise_life(asking, place.seen.pair.second, &place);
        return place;
    }
    const struct stint_quota *quota = entry_quota(asking, tag_word);
    place.is_damaged = quota == NULL;
    if (place.is_damaged)
        return place;
    slots->ops->appraise(asking, quota, &place);
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
    assert(slots_has(asking->slots, set));
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
    assert(best.seen.at == NULL || best.worth < WORTH_KEEP);
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

static struct place choose_in_part(const struct asking *asking, uint8_t *const set[PAIR_SETS])
{
    assert(slots_is_main(asking->slots, set[0]) == slots_is_main(asking->slots, set[1]));
    unsigned free_slots[2] = {0, 0};
    struct place first = choose_in_set(asking, set[0], &free_slots[0]);
    if (set[1] == set[0])
        return first;
    struct place second = choose_in_set(asking, set[1], &free_slots[1]);
    uint64_t first_expiry_ns = min_u64(first.expires_at_ns, second.expires_at_ns);
    bool take_second = first.worth == WORTH_EMPTY && second.worth == WORTH_EMPTY
                           ? prefers_second(&first, &second, free_slots)
                           : second.seen.at != NULL && is_better(&second, &first);
    struct place best = take_second ? second : first;
    best.expires_at_ns = first_expiry_ns;
    return best;
}

struct place place_choose(const struct asking *asking)
{
    assert(slots_is_home(asking->slots, &asking->home));
    const struct slots *slots = asking->slots;
    /* A hint: where new keys go first. */
    unsigned part = slots_spilled(slots) < slots->spilled_max ? 0 : PAIR_SETS;
    struct place first = choose_in_part(asking, &asking->home.set[part]);
    bool is_free = first.seen.at != NULL && first.worth == WORTH_EMPTY;
    if (is_free || slots->front == slots->sets)
        return first;
    struct place second = choose_in_part(asking, &asking->home.set[PAIR_SETS - part]);
    struct place best = second.seen.at != NULL && is_better(&second, &first) ? second : first;
    best.expires_at_ns = min_u64(first.expires_at_ns, second.expires_at_ns);
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
