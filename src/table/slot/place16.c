/* SPDX-License-Identifier: MIT */
/*
 * Deciding on states of 16 bytes, which are apart from the tag, each swapped in one step of its
 * own. The generation connects them: the pair of the tag counts it in 64 bits, the state has its
 * last 15.
 *
 * A slot is handed over in four steps, each of which fails if another thread was faster:
 *   1. the state is frozen, marked with the next generation: no charge can succeed any more;
 *   2. the pair becomes (new tag, pending, next generation): published;
 *   3. the frozen state becomes the new key's first state;
 *   4. the pair loses "pending": valid.
 * A thread that ends in between leaves a slot that the next request for the same key continues
 * with, or that any new key takes. When a key's own quota changes its parameters, the slot is
 * handed from the key to itself, and the frozen state holds the end of the old units: if the thread
 * that changes it ends there, the key is full until then, not new.
 */
#include "table/region/owner.h"
#include "table/slot/ask.h"
#include "table/slot/entry.h"
#include "table/slot/place.h"

#include <assert.h>

#define CHANGER_PATIENCE 200 /* times to let others run before finishing another's change */

static struct pair pack(struct word16 word, uint64_t generation)
{
    assert(word.hi >> 48 == 0);
    return (struct pair){word.lo, word.hi | state_mark(generation)};
}

static struct word16 unpack(struct pair state)
{
    return (struct word16){state.first, state.second & STATE_MASK};
}

/* Step 1: the state of slot `seen` is `state`; its successor is full until until_ns. */
CAS16_TARGET static bool freeze_state(const struct seen *seen, struct pair state, uint64_t until_ns)
{
    assert(seen->at != NULL && seen->state != NULL);
    uint64_t next = seen->pair.second + 1;
    struct pair frozen = {until_ns, state_mark(next) | STATE_FROZEN};
    return cas16(seen->state, state, frozen);
}

/* Steps 1 and 2: hands slot `seen`, whose state was `state`, to the key, full until until_ns. */
CAS16_TARGET static bool hand_over(const struct asking *asking, const struct seen *seen,
                                   struct pair state, uint64_t until_ns)
{
    assert(slots_has(asking->slots, seen->at));
    uint64_t next = seen->pair.second + 1;
    if (!state_leaves(state, seen->pair.second) && !freeze_state(seen, state, until_ns))
        return false;
    struct pair pending = {asking->home.tag | TAG_PENDING | asking->id, next};
    return cas16(seen->at, seen->pair, pending);
}

/* Step 4. */
CAS16_TARGET static void make_valid(const struct seen *pending)
{
    assert((pending->pair.first & TAG_PENDING) != 0);
    struct pair valid = {pending->pair.first & ~TAG_PENDING, pending->pair.second};
    cas16(pending->at, pending->pair, valid);
}

/*
 * Steps 3 and 4 for a pending slot of the key: its state becomes `after`, which was charged upon
 * `before`. After step 3 the charge stands: where step 4 fails, another thread has done it.
 */
CAS16_TARGET static bool finish(const struct asking *asking, const struct seen *pending,
                                struct pair frozen, struct word16 before, struct word16 after)
{
    assert((pending->pair.first & TAG_PENDING) != 0);
    uint64_t generation = pending->pair.second;
    struct pair packed = pack(after, generation);
    if (!cas16(pending->state, frozen, packed))
        return false;
    make_valid(pending);
    if (asking->undo != NULL)
        *asking->undo = (struct undo){
            .at = pending->state, .before = pack(before, generation), .after = packed};
    return true;
}

/*
 * A thread that hands a slot from a key to itself needs a few swaps. Another finishes for it, at
 * the price of a key that is full for a while, only when it takes so long that it may have ended.
 */
static bool changer_is_slow(const struct seen *seen, struct pair held)
{
    for (int i = 0; i < CHANGER_PATIENCE; i++) {
        if (!pair_equals(cas16_load(seen->at), seen->pair) ||
            !pair_equals(cas16_load(seen->state), held))
            return false;
        owner_pause();
    }
    return true;
}

/* Steps 3 and 4 for a changer that may have ended: full until all that it carried is over. */
static void finish_for_changer(const struct asking *asking, const struct seen *pending,
                               struct pair frozen)
{
    assert(frozen.first != 0);
    struct asking changer = *asking;
    changer.undo = NULL;
    changer.quota = entry_quota(asking, pending->pair.first);
    if (changer.quota == NULL) {
        slots_withdraw(asking->slots, pending); /* damaged */
        return;
    }
    struct word16 full;
    algorithm_fill(changer.quota, &full, frozen.first);
    finish(&changer, pending, frozen, full, full);
}

/* A live state is lost once it is frozen, whether this key or another gets the slot. */
CAS16_TARGET static void publish(struct asking *asking, struct place *place)
{
    assert(slots_may_publish(asking->slots, place->seen.at));
    bool evicts = place->worth == WORTH_EVICT;
    if (evicts) {
        if (!freeze_state(&place->seen, place->state, 0))
            return;
        place_count(asking, place);
        place->state = (struct pair){0, state_mark(place->seen.pair.second + 1) | STATE_FROZEN};
    }
    if (hand_over(asking, &place->seen, place->state, 0) && !evicts)
        place_count(asking, place);
}

static bool begin(const struct asking *asking, struct stint_decision *decision)
{
    struct word16 state = {0, 0};
    *decision = algorithm_ask(asking->quota, &state, &asking->ask);
    return (state.lo | state.hi) != 0;
}

/* Whether it is frozen for the generation of a pending pair, to become the key's first state. */
static bool is_arriving(struct pair state, uint64_t generation)
{
    return (state.second & ~STATE_MASK) == (state_mark(generation) | STATE_FROZEN);
}

static bool land(const struct asking *asking, const struct seen *pending, struct word16 before,
                 struct word16 after)
{
    struct pair frozen = cas16_load_stable(pending->state);
    return is_arriving(frozen, pending->pair.second) && frozen.first == 0 &&
           finish(asking, pending, frozen, before, after);
}

/* A pending slot of this key, by any publisher: decide, settle, finish. False: begin again. */
CAS16_TARGET static bool pending_ask(struct asking *asking, const struct seen *seen,
                                     struct stint_decision *decision)
{
    assert((seen->pair.first & TAG_PENDING) != 0);
    struct pair held = cas16_load_stable(seen->state);
    uint64_t generation = seen->pair.second;
    if (!is_arriving(held, generation)) {
        /* Step 3 is done: only step 4 is left. Anything else is stale or damaged: withdraw it. */
        if ((held.second & ~STATE_MASK) == state_mark(generation))
            make_valid(seen);
        else
            slots_withdraw(asking->slots, seen);
        return false;
    }
    if (held.first != 0) {
        if (changer_is_slow(seen, held))
            finish_for_changer(asking, seen, held);
        return false;
    }
    if (asking->rule != 0 && asking_same_algorithm(asking, seen->pair.first))
        return ask_arriving(asking, seen, land, decision);
    struct word16 before = {0, 0}, after = before;
    *decision = algorithm_ask(asking->quota, &after, &asking->ask);
    decision->stored = 1;
    if (word16_equals(after, before) && asking->rule == 0)
        return true; /* nothing to charge: the slot stays as it was */
    if (!asking_same_algorithm(asking, seen->pair.first)) {
        hand_over(asking, seen, held, 0); /* under our algorithm, so that the tag has its quota */
        return false;
    }
    if (slots_settle(asking->slots, &asking->home, seen) != SETTLE_MINE || asking_catch_up(asking))
        return false;
    return finish(asking, seen, held, before, after);
}

/* The key's state has other parameters: carries it over by handing the slot to itself. */
CAS16_TARGET static bool convert(struct asking *asking, const struct seen *seen, struct pair held,
                                 struct stint_decision *decision)
{
    assert(!asking_same_algorithm(asking, seen->pair.first));
    const struct stint_quota *writer = entry_quota(asking, seen->pair.first);
    struct word16 carried, old = unpack(held);
    uint64_t until_ns = 0;
    entry_carry(asking, writer, &old, &carried);
    if (writer != NULL)
        until_ns = max_u64(algorithm_expires_at(writer, &old),
                           algorithm_expires_at(asking->quota, &carried));
    struct word16 after = carried;
    *decision = algorithm_ask(asking->quota, &after, &asking->ask);
    decision->stored = 1;
    if (word16_equals(after, carried))
        return pair_equals(cas16_load(seen->state), held);
    if (!hand_over(asking, seen, held, until_ns))
        return false;
    uint64_t next = seen->pair.second + 1;
    struct seen pending = *seen;
    pending.pair = (struct pair){asking->home.tag | TAG_PENDING | asking->id, next};
    struct pair frozen = {until_ns, state_mark(next) | STATE_FROZEN};
    return finish(asking, &pending, frozen, carried, after);
}

/* A valid slot of this key. False: begin again. */
CAS16_TARGET static bool valid_ask(struct asking *asking, const struct seen *seen,
                                   struct stint_decision *decision)
{
    assert((seen->pair.first & TAG_PENDING) == 0);
    struct pair held = cas16_load(seen->state);
    uint64_t generation = seen->pair.second;
    if (state_leaves(held, generation)) {
        if (changer_is_slow(seen, held))
            hand_over(asking, seen, held, held.first);
        return false;
    }
    if ((held.second & ~STATE_MASK) != state_mark(generation)) {
        /* Handed over meanwhile; or, if the pair is the same, damaged: empty the slot. */
        if (pair_equals(cas16_load_stable(seen->at), seen->pair) &&
            pair_equals(cas16_load_stable(seen->state), held))
            slots_withdraw(asking->slots, seen);
        return false;
    }
    if (!asking_same_algorithm(asking, seen->pair.first))
        return convert(asking, seen, held, decision);
    struct word16 before = unpack(held), after = before;
    *decision = algorithm_ask(asking->quota, &after, &asking->ask);
    decision->stored = 1;
    if (word16_equals(after, before))
        return pair_equals(cas16_load(seen->state), held);
    struct pair packed = pack(after, generation);
    if (!cas16(seen->state, held, packed))
        return false;
    if (asking->undo != NULL)
        *asking->undo = (struct undo){.at = seen->state, .before = held, .after = packed};
    return true;
}

static bool ask(struct asking *asking, struct seen *seen, struct stint_decision *decision)
{
    return (seen->pair.first & TAG_PENDING) != 0 ? pending_ask(asking, seen, decision)
                                                 : valid_ask(asking, seen, decision);
}

/* ---- The other operations -------------------------------------------------------------------- */

static void appraise(const struct asking *asking, const struct stint_quota *quota,
                     struct place *place)
{
    uint64_t generation = place->seen.pair.second;
    bool arrives =
        (place->seen.pair.first & TAG_PENDING) != 0 && is_arriving(place->state, generation);
    if (arrives || state_leaves(place->state, generation)) {
        place_appraise_life(asking, place->state.first, place);
        return;
    }
    if ((place->state.second & ~STATE_MASK) != state_mark(generation)) {
        place->worth = WORTH_EMPTY; /* damaged: no request can refer to it */
        return;
    }
    struct word16 state = unpack(place->state);
    place_appraise_state(asking, quota, &state, place);
}

static bool copy(struct asking *asking, struct seen *seen, struct entry_state *state)
{
    struct pair held = state->held = cas16_load_stable(seen->state);
    (void)asking;
    if (state_leaves(held, seen->pair.second)) {
        algorithm_fill(state->quota, &state->as, held.first);
        return held.first != 0;
    }
    state->as.word16 = unpack(held);
    return (held.second & ~STATE_MASK) == state_mark(seen->pair.second);
}

static void fill(struct asking *asking, const struct seen *seen, const struct stint_quota *quota,
                 uint64_t until_ns)
{
    assert(quota->limit > 0);
    struct pair *state = seen->state;
    struct word16 filled;
    (void)asking;
    algorithm_fill(quota, &filled, until_ns);
    *state = pack(filled, seen->pair.second);
}

CAS16_TARGET static bool freeze(struct asking *asking, struct seen *seen,
                                const struct entry_state *state, uint64_t until_ns)
{
    assert((seen->pair.first & TAG_PENDING) == 0);
    struct pair gone = {asking->home.tag | TAG_PENDING, seen->pair.second + 1};
    if (!freeze_state(seen, state->held, until_ns) || !cas16(seen->at, seen->pair, gone))
        return false;
    seen->pair = gone;
    return true;
}

/* The tag has the key's own quota again, as when that hands the slot from the key to itself. */
CAS16_TARGET static void put_back(struct asking *asking, const struct seen *gone, struct pair valid,
                                  const struct entry_state *state)
{
    assert(slots_is_frozen(gone->pair.first));
    struct seen pending = *gone;
    struct pair frozen = cas16_load_stable(gone->state);
    pending.pair.first = valid.first | TAG_PENDING;
    if (cas16(gone->at, gone->pair, pending.pair))
        finish(asking, &pending, frozen, unpack(state->held), unpack(state->held));
}

static uint64_t frozen_until(const struct seen *frozen)
{
    struct pair state = cas16_load_stable(frozen->state);
    return is_arriving(state, frozen->pair.second) ? state.first : 0;
}

static void help(struct asking *asking, const struct seen *seen)
{
    assert(asking_is_valid(asking));
    struct pair held = cas16_load_stable(seen->state);
    uint64_t generation = seen->pair.second;
    asking->id = (uint32_t)(seen->pair.first & TAG_ID_MASK);
    if ((seen->pair.first & TAG_PENDING) == 0) {
        if (state_leaves(held, generation) && held.first != 0)
            hand_over(asking, seen, held, held.first);
    } else if ((held.second & ~STATE_MASK) == state_mark(generation)) {
        make_valid(seen);
    } else if (is_arriving(held, generation) && held.first != 0) {
        finish_for_changer(asking, seen, held);
    }
}

const struct class_ops place16_ops = {
    .ask = ask,
    .begin = begin,
    .publish = publish,
    .appraise = appraise,
    .copy = copy,
    .fill = fill,
    .freeze = freeze,
    .put_back = put_back,
    .frozen_until = frozen_until,
    .help = help,
};
