/* SPDX-License-Identifier: MIT */
/* Handles a key without a slot: its other classes, the choice of a slot, a full table. */
#include "table/slot/new_key.h"

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
    assert(asking_decides(asking));
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
