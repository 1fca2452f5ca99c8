/* SPDX-License-Identifier: MIT */
/*
 * Decides on a key, whatever its class: one that has a slot, one that moves here from another
 * class, and one without: the choice of its slot, or what a full table does.
 */
#include "table/slot/ask.h"

#include "table/slot/place.h"
#include "table/slot/rule.h"

#include <assert.h>

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
    return algorithm_deny_for(fresh.limit, place->expires_at_ns - asking->ask.now_ns);
}

/* True if *decision is made without a slot. */
static bool ask_new_key(struct asking *asking, struct stint_decision *decision)
{
    assert(asking_decides(asking));
    const struct class_ops *ops = asking->slots->ops;
    /* A wide key without a state may have had one that was left to a stuck owner. */
    if (asking->slots->class == CLASS_WIDE && rule_is_blocked(asking, decision))
        return true;
    bool charges = ops->begin(asking, decision);
    bool asks =
        decision->outcome != STINT_NEVER && asking->ask.cost > 0 && ask_moves_in(asking->ask.verb);
    struct place place = {.seen = {.at = NULL}};
    if (asks)
        place = place_choose(asking);
    if (!charges || place.seen.at == NULL) { /* else the other classes are searched afterwards */
        enum rule_found found = rule_look(asking, decision);
        if (found == RULE_ALONE && asks && place.seen.at == NULL)
            *decision = decide_when_full(asking, &place, *decision);
        if (found == RULE_AGAIN)
            rule_pause(asking);
        if (found != RULE_OTHER)
            return found != RULE_AGAIN;
        if (!asks)
            place = place_choose(asking);
    }
    if (place.seen.at != NULL) {
        slots_spill(asking->slots, place.seen.at);
        ops->publish(asking, &place);
        return false;
    }
    /* Its units stay elsewhere, so it must be full here: they are over within one period. */
    rule_refuse(asking, add_sat(asking->ask.now_ns, asking->quota->period_ns), decision);
    return true;
}

struct stint_decision ask_state(const struct asking *asking, void *state)
{
    struct stint_ask ask = asking->ask;
    if (asking->quota->algorithm == STINT_GCRA && ask.verb == STINT_REFUND &&
        table_booked_until(asking->table) > ask.now_ns)
        ask.verb = ALGORITHM_REFUND_BOOKED;
    struct stint_decision decision = algorithm_ask(asking->quota, state, &ask);
    decision.stored = 1;
    if (ask.verb == STINT_BOOK && decision.outcome == STINT_ALLOW)
        table_raise_booked(asking->table, add_sat(ask.now_ns, decision.retry_after_ns));
    return decision;
}

__attribute__((noinline)) bool ask_arriving(struct asking *asking, const struct seen *seen,
                                            bool (*land)(const struct asking *asking,
                                                         const struct seen *seen,
                                                         struct word16 before, struct word16 after),
                                            struct stint_decision *decision)
{
    assert((seen->pair.first & TAG_PENDING) != 0 && asking->rule != 0);
    struct rule_move move;
    enum rule_found found = rule_arrive(asking, seen, &move, decision);
    if (found == RULE_AGAIN)
        rule_pause(asking);
    if (found == RULE_AGAIN || found == RULE_DECIDED)
        return found == RULE_DECIDED;
    struct word16 before = {0, 0}, after; /* a state of 8 bytes is in the first word */
    algorithm_carry(asking->quota, &before, move.runs, move.n_runs);
    after = before;
    *decision = ask_state(asking, &after);
    if (found == RULE_ALONE)
        return word16_equals(after, before) || land(asking, seen, before, after);
    if (!land(asking, seen, before, after)) {
        rule_put_back(&move);
        return false;
    }
    rule_arrived(&move);
    return true;
}

struct stint_decision ask_slots(struct asking *asking)
{
    assert(asking_decides(asking));
    struct stint_decision decision;
    for (;;) {
        struct seen seen = slots_find(asking->slots, &asking->home);
        bool decided = seen.at == NULL ? ask_new_key(asking, &decision)
                       : slots_is_frozen(seen.pair.first)
                           ? rule_meet(asking, &seen, &decision)
                           : asking->slots->ops->ask(asking, &seen, &decision);
        if (decided)
            return decision;
    }
}
