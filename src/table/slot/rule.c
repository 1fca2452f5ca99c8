/* SPDX-License-Identifier: MIT */
/* Searches for a rule's key in the other classes, and moves it to the one that decides. */
#include "table/slot/rule.h"

#include "base/wide_int.h"
#include "table/region/owner.h"
#include "table/table.h"

#include <assert.h>

#define PATIENCE 200 /* reads without a change, before the writer counts as ended */

/* What the other classes hold of a key; .slots is NULL for those without it. */
struct other {
    const struct slots *slots;
    struct seen seen;
};

struct others {
    struct other valid;
    struct other frozen;
    struct other bound;  /* class 16: about to become valid, by any thread */
    struct other before; /* pending, in a class that comes before ours */
    struct other after;
};

static bool is_bound(const struct slots *slots, const struct seen *seen)
{
    if ((seen->pair.first & TAG_PENDING) != 0)
        return slots_is_bound(slots, seen);
    return slots->class == CLASS_16 &&
           state_leaves(cas16_load_stable(seen->state), seen->pair.second);
}

static void sort(const struct asking *asking, const struct other *other, struct others *others)
{
    assert(other->slots != asking->slots);
    const struct slots *slots = other->slots;
    if (slots_is_frozen(other->seen.pair.first))
        others->frozen = *other;
    else if (is_bound(slots, &other->seen))
        others->bound = *other;
    else if ((other->seen.pair.first & TAG_PENDING) == 0)
        others->valid = *other;
    else if (slots->class < asking->slots->class)
        others->before = *other;
    else
        others->after = *other;
}

static void scan_class(const struct asking *asking, const struct slots *slots,
                       struct others *others)
{
    assert(slots->sets > 0 && slots != asking->slots);
    struct home home = slots_home(slots, asking->hash);
    const unsigned reach = slots_reach(slots); /* read after our own was published */
    for (unsigned i = 0; i < reach * WAYS; i++) {
        uint8_t *set = home.set[i / WAYS];
        struct pair *at = slots_pair(slots, set, i % WAYS);
        /* seq_cst: it comes after the swap that published our own. */
        if (!slots_is_tag(__atomic_load_n(&at->first, __ATOMIC_SEQ_CST), home.tag))
            continue;
        struct other other = {slots, slots_see(slots, set, i % WAYS)};
        other.seen.pair = cas16_load_stable(at);
        if (slots_is_tag(other.seen.pair.first, home.tag) &&
            !slots_is_given_away(slots, &other.seen))
            sort(asking, &other, others);
    }
}

static struct others scan(const struct asking *asking)
{
    assert(asking_is_valid(asking));
    struct others others = {.valid = {.slots = NULL}};
    for (int class = CLASS_8; class <= CLASS_WIDE; class ++) {
        const struct slots *slots = &asking->table->slots[class];
        if (slots != asking->slots && slots->sets > 0)
            scan_class(asking, slots, &others);
    }
    return others;
}

/* The same decision, in another class. */
static struct asking in_class(const struct asking *asking, const struct slots *slots)
{
    assert(slots->sets > 0);
    struct asking other = *asking;
    other.slots = slots;
    other.home = slots_home(slots, asking->hash);
    other.undo = NULL;
    return other;
}

void rule_pause(struct asking *asking)
{
    if (asking->waits.at != NULL)
        owner_pause();
}

static bool is_patient(struct asking *asking, const struct seen *seen)
{
    struct waits *waits = &asking->waits;
    if (waits->at != seen->at || !pair_equals(waits->pair, seen->pair))
        *waits = (struct waits){.at = seen->at, .pair = seen->pair};
    return waits->n++ < PATIENCE;
}

bool rule_waits(struct asking *asking, const struct seen *seen)
{
    bool waits = is_patient(asking, seen);
    if (waits)
        owner_pause();
    return waits;
}

void rule_refuse(const struct asking *asking, uint64_t until_ns, struct stint_decision *decision)
{
    uint64_t wait_ns = sub_floor(until_ns, asking->ask.now_ns);
    uint32_t capacity = most_units(asking->quota);
    uint8_t verb = asking->ask.verb;
    *decision = algorithm_deny_for(capacity, wait_ns);
    if (asking->ask.cost > capacity && verb != STINT_TAKE_UPTO && verb != STINT_CHARGE)
        *decision = algorithm_never(capacity);
}

/* ---- Conflicts ------------------------------------------------------------------------------- */

static bool is_valid_beside(const struct asking *asking, const struct slots *frozen)
{
    for (int class = CLASS_8; class <= CLASS_WIDE; class ++) {
        const struct slots *slots = &asking->table->slots[class];
        if (slots == frozen || slots->sets == 0)
            continue;
        struct home home = slots_home(slots, asking->hash);
        struct seen seen = slots_find(slots, &home);
        if (seen.at != NULL && (seen.pair.first & TAG_PENDING) == 0)
            return true;
    }
    return false;
}

/* True if *decision denies. */
static bool meet_frozen(struct asking *asking, const struct slots *slots, const struct seen *frozen,
                        struct stint_decision *decision)
{
    assert(slots_is_frozen(frozen->pair.first));
    uint64_t until_ns = add_sat(slots->ops->frozen_until(frozen), table_grace_ns(asking->table));
    /* An expired one goes before another may be valid: its mover may still put it back. */
    if (until_ns <= asking->ask.now_ns || is_valid_beside(asking, slots)) {
        slots_withdraw(slots, frozen);
        return false;
    }
    if (is_patient(asking, frozen))
        return false;
    rule_refuse(asking, until_ns, decision);
    return true;
}

bool rule_meet(struct asking *asking, const struct seen *frozen, struct stint_decision *decision)
{
    assert(asking_decides(asking));
    if (meet_frozen(asking, asking->slots, frozen, decision))
        return true;
    rule_pause(asking);
    return false;
}

/* True if *decision is made, or all must begin again; *found is which. */
static bool is_in_the_way(struct asking *asking, const struct others *others,
                          struct stint_decision *decision, enum rule_found *found)
{
    *found = RULE_AGAIN;
    if (others->bound.slots != NULL) {
        struct asking other = in_class(asking, others->bound.slots);
        if (!is_patient(asking, &others->bound.seen))
            other.slots->ops->help(&other, &others->bound.seen);
        return true;
    }
    if (others->frozen.slots != NULL) {
        if (meet_frozen(asking, others->frozen.slots, &others->frozen.seen, decision))
            *found = RULE_DECIDED;
        return true;
    }
    return false;
}

/* A state that was left to a stuck owner: searched after the slot, since the block came first. */
bool rule_is_blocked(const struct asking *asking, struct stint_decision *decision)
{
    uint64_t now_ns = asking->ask.now_ns;
    if (asking->table->slots[CLASS_WIDE].sets == 0 || !table_has_blocks(asking->table, now_ns))
        return false;
    uint64_t until_ns = table_blocked_until(asking->table, asking->hash);
    if (until_ns <= now_ns)
        return false;
    rule_refuse(asking, until_ns, decision);
    return true;
}

/* ---- Moving ---------------------------------------------------------------------------------- */

/* Later than now, so that no two frozen pairs of the key in one slot are equal. */
bool rule_freeze(struct rule_move *move)
{
    assert(move->valid.at != NULL && move->from.slots != NULL);
    uint64_t until_ns = max_u64(algorithm_expires_at(move->state.quota, &move->state.as),
                                move->from.ask.now_ns + 1);
    move->gone = move->valid;
    return move->from.slots->ops->freeze(&move->from, &move->gone, &move->state, until_ns);
}

/*
 * The decision of the quota's algorithm on units that are elsewhere; nothing is written. There are
 * none in a state that has expired: it stays as well, unless a unit is granted, since a caller
 * whose clock is behind may still need it.
 */
static __attribute__((noinline)) struct stint_decision decide_on(const struct asking *asking,
                                                                 const struct rule_move *move)
{
    assert(move->n_runs <= HELD_RUNS_MAX);
    struct entry_state carried;
    struct stint_decision decision;
    algorithm_carry(asking->quota, &carried.as, move->runs, move->n_runs);
    decision = algorithm_ask(asking->quota, &carried.as, &asking->ask);
    decision.stored = 1;
    return decision;
}

/* Whether all the units fit the algorithm at once: the others would be forgotten. */
static bool fits(const struct asking *asking, const struct rule_move *move)
{
    assert(move->n_runs <= HELD_RUNS_MAX);
    uint64_t units = 0;
    for (size_t i = 0; i < move->n_runs; i++)
        units = add_sat(units, move->runs[i].units);
    return units <= most_units(asking->quota);
}

/* Reads the units of the other class's valid slot: OTHER if it could. */
static enum rule_found read_other(struct asking *asking, const struct other *valid,
                                  struct rule_move *move, struct stint_decision *decision)
{
    assert(valid->slots != NULL && valid->seen.at != NULL);
    uint64_t now_ns = asking->ask.now_ns;
    move->from = in_class(asking, valid->slots);
    move->valid = valid->seen;
    if (entry_read(&move->from, &move->valid, &move->state)) {
        move->n_runs = algorithm_held(move->state.quota, &move->state.as, now_ns,
                                      table_latest_ns(asking->table, now_ns), move->runs);
        return RULE_OTHER;
    }
    if (entry_get_past(&move->from, &move->valid))
        return RULE_AGAIN;
    rule_refuse(asking, add_sat(now_ns, asking->quota->period_ns), decision);
    return RULE_DECIDED;
}

/* Decides with these units: OTHER if they must be moved for that. */
static enum rule_found decide_with(const struct asking *asking, const struct rule_move *move,
                                   struct stint_decision *decision)
{
    assert(move->valid.at != NULL && move->from.slots != NULL);
    uint8_t verb = asking->ask.verb;
    if (!fits(asking, move) && verb != STINT_TAKE && verb != STINT_TAKE_UPTO &&
        verb != STINT_PEEK) {
        rule_refuse(asking, algorithm_expires_at(move->state.quota, &move->state.as), decision);
        return RULE_DECIDED;
    }
    *decision = decide_on(asking, move);
    return verb == STINT_PEEK || decision->granted == 0 ? RULE_DECIDED : RULE_OTHER;
}

void rule_arrived(const struct rule_move *move)
{
    assert(slots_is_frozen(move->gone.pair.first));
    slots_withdraw(move->from.slots, &move->gone);
}

void rule_put_back(struct rule_move *move)
{
    assert(slots_is_frozen(move->gone.pair.first));
    move->from.slots->ops->put_back(&move->from, &move->gone, move->valid.pair, &move->state);
}

/* A function of its own, because of the stack space of a state. */
static __attribute__((noinline)) enum rule_found
look_at(struct asking *asking, const struct other *valid, struct stint_decision *decision)
{
    assert(valid->slots != asking->slots);
    struct rule_move move;
    enum rule_found found = read_other(asking, valid, &move, decision);
    if (found != RULE_OTHER)
        return found;
    /* Units that have expired are none: the key is a new one here. */
    return move.n_runs == 0 ? RULE_ALONE : decide_with(asking, &move, decision);
}

enum rule_found rule_look(struct asking *asking, struct stint_decision *decision)
{
    assert(asking_decides(asking));
    enum rule_found found;
    if (asking->rule == 0 || asking->quota->limit == 0)
        return RULE_ALONE;
    struct others others = scan(asking);
    if (is_in_the_way(asking, &others, decision, &found))
        return found;
    if (rule_is_blocked(asking, decision))
        return RULE_DECIDED;
    return others.valid.slots != NULL ? look_at(asking, &others.valid, decision) : RULE_ALONE;
}

enum rule_found rule_arrive(struct asking *asking, const struct seen *mine, struct rule_move *move,
                            struct stint_decision *decision)
{
    assert(asking_decides(asking));
    assert(slots_has(asking->slots, mine->at) && (mine->pair.first & TAG_PENDING) != 0);
    enum rule_found found;
    struct others others;
    move->from.slots = NULL;
    move->n_runs = 0;
    if (asking->quota->limit == 0)
        return RULE_ALONE; /* it takes no unit, and writes none */
    if (slots_settle(asking->slots, &asking->home, mine) != SETTLE_MINE)
        return RULE_AGAIN;
    for (;;) {
        others = scan(asking);
        if (is_in_the_way(asking, &others, decision, &found))
            return found;
        const struct other *pending = others.before.slots != NULL ? &others.before : &others.after;
        if (pending->slots == NULL)
            break;
        if (pending == &others.before && is_patient(asking, &pending->seen))
            return RULE_AGAIN;
        slots_remove(pending->slots, &pending->seen);
    }
    if (rule_is_blocked(asking, decision))
        return RULE_DECIDED;
    if (asking_catch_up(asking))
        return RULE_AGAIN;
    if (others.valid.slots == NULL)
        return RULE_ALONE;
    found = read_other(asking, &others.valid, move, decision);
    if (found == RULE_OTHER)
        found = decide_with(asking, move, decision);
    if (found == RULE_DECIDED)
        slots_remove(asking->slots, mine);
    if (found == RULE_OTHER && !rule_freeze(move))
        return RULE_AGAIN;
    if (found != RULE_OTHER)
        move->n_runs = 0;
    return found;
}
