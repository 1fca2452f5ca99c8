/* SPDX-License-Identifier: MIT */
/*
 * Deciding on states of 8 bytes, which are in the slot's pair beside the tag: one swap changes
 * both, so no charge can reach a slot that belongs to another key by now.
 */
#include "table/slot/ask.h"
#include "table/slot/entry.h"
#include "table/slot/place.h"

#include <assert.h>

/* The state under the quota's algorithm, also if a quota with other parameters wrote it. */
static uint64_t read_state(const struct asking *asking, struct pair pair)
{
    if ((pair.first & TAG_PENDING) != 0)
        return 0;
    if (asking_same_algorithm(asking, pair.first))
        return pair.second;
    const struct stint_quota *writer = entry_quota(asking, pair.first);
    if (writer != NULL && writer->algorithm == asking->quota->algorithm &&
        writer->algorithm == STINT_GCRA)
        return pair.second; /* a TAT means the same under any rate */
    uint64_t carried;
    entry_carry(asking, writer, &pair.second, &carried);
    return carried;
}

/* `before` is what the caller would have found in the state if its slot was pending. */
CAS16_TARGET static bool swap(const struct asking *asking, const struct seen *seen, uint64_t before,
                              uint64_t state)
{
    assert(slots_has(asking->slots, seen->at));
    struct pair after = {asking->home.tag | asking->id, state};
    if (!cas16(seen->at, seen->pair, after))
        return false;
    if (asking->undo != NULL) {
        bool fresh = (seen->pair.first & TAG_PENDING) != 0;
        struct pair uncharged = {after.first, before};
        *asking->undo =
            (struct undo){.at = seen->at, .before = fresh ? uncharged : seen->pair, .after = after};
    }
    return true;
}

/* A new key publishes its pending slot; the decision comes once the slot is found there. */
CAS16_TARGET static void publish(struct asking *asking, struct place *place)
{
    assert(slots_may_publish(asking->slots, place->seen.at));
    struct pair pending = {asking->home.tag | TAG_PENDING | asking->id, table_nonce(asking->table)};
    if (cas16(place->seen.at, place->seen.pair, pending))
        place_count(asking, place);
}

static bool begin(const struct asking *asking, struct stint_decision *decision)
{
    uint64_t state = 0;
    *decision = algorithm_ask(asking->quota, &state, &asking->ask);
    return state != 0;
}

static bool land(const struct asking *asking, const struct seen *seen, struct word16 before,
                 struct word16 after)
{
    return swap(asking, seen, before.lo, after.lo);
}

static bool ask(struct asking *asking, struct seen *seen, struct stint_decision *decision)
{
    bool pending = (seen->pair.first & TAG_PENDING) != 0;
    if (pending && asking->rule != 0)
        return ask_arriving(asking, seen, land, decision);
    uint64_t state = read_state(asking, seen->pair), before = state;
    *decision = ask_state(asking, &state);
    if (state == before) /* nothing to swap confirms that the two halves match: read again */
        return pair_equals(cas16_load(seen->at), seen->pair);
    if (pending && (slots_settle(asking->slots, &asking->home, seen) != SETTLE_MINE ||
                    asking_catch_up(asking)))
        return false;
    return swap(asking, seen, before, state);
}

/* ---- The other operations -------------------------------------------------------------------- */

static void appraise(const struct asking *asking, const struct stint_quota *quota,
                     struct place *place)
{
    uint64_t state = place->seen.pair.second;
    place_appraise_state(asking, quota, &state, place);
}

static bool copy(struct asking *asking, struct seen *seen, struct entry_state *state)
{
    struct pair now = cas16_load_stable(seen->at);
    (void)asking;
    if (now.first != seen->pair.first)
        return false;
    seen->pair = now;
    state->as.word8 = now.second;
    return true;
}

/* gcra represents "full" by a debt of one capacity; the others have a fill. */
static void fill(struct asking *asking, const struct seen *seen, const struct stint_quota *quota,
                 uint64_t until_ns)
{
    assert(quota->limit > 0);
    struct held_run full = {asking->ask.now_ns, quota->burst};
    uint64_t filled;
    if (quota->algorithm == STINT_GCRA)
        algorithm_carry(quota, &filled, &full, 1);
    else
        algorithm_fill(quota, &filled, until_ns);
    seen->at->second = filled;
}

CAS16_TARGET static bool freeze(struct asking *asking, struct seen *seen,
                                const struct entry_state *state, uint64_t until_ns)
{
    assert((seen->pair.first & TAG_PENDING) == 0);
    struct pair gone = {asking->home.tag | TAG_PENDING,
                        frozen8(until_ns, table_nonce(asking->table))};
    (void)state;
    if (!cas16(seen->at, seen->pair, gone))
        return false;
    seen->pair = gone;
    return true;
}

CAS16_TARGET static void put_back(struct asking *asking, const struct seen *gone, struct pair valid,
                                  const struct entry_state *state)
{
    assert(slots_is_frozen(gone->pair.first));
    (void)asking;
    (void)state;
    cas16(gone->at, gone->pair, valid);
}

static uint64_t frozen_until(const struct seen *frozen)
{
    assert(slots_is_frozen(frozen->pair.first));
    return frozen->pair.second >> FROZEN_NONCE_BITS << FROZEN_UNIT_LOG2;
}

const struct class_ops place8_ops = {
    .ask = ask,
    .begin = begin,
    .publish = publish,
    .appraise = appraise,
    .copy = copy,
    .fill = fill,
    .freeze = freeze,
    .put_back = put_back,
    .frozen_until = frozen_until,
};
