/* SPDX-License-Identifier: MIT */
/* Reading whole states, one slot at a time, while others decide. */
#include "store/entry.h"

#include <string.h>

bool entry_read(struct asking *asking, const struct seen *seen, struct entry_state *state)
{
    uint64_t tag_word = seen->pair.first;
    state->class = asking->slots->class;
    if (tag_word == 0 || (tag_word & TAG_PENDING) != 0)
        return false;
    state->quota = intern_quota(&asking->table->intern, (uint32_t)(tag_word & TAG_ID_MASK));
    if (state->quota == NULL || table_class(state->quota) != state->class)
        return false;
    if (state->class == CLASS_8) {
        state->as.word8 = seen->pair.second;
        return pair_equals(cas16_load(seen->at), seen->pair);
    }
    if (state->class == CLASS_WIDE)
        return wide_copy(asking, seen, state->as.bytes);
    struct pair held = cas16_load_stable(seen->state);
    if (state_leaves(held, seen->pair.second)) {
        state->as.word16 = law16_fill(state->quota, held.first);
        return held.first != 0;
    }
    state->as.word16 = (struct word16){held.first, held.second & STATE_MASK};
    return (held.second & ~STATE_MASK) == state_mark(seen->pair.second);
}

struct stint_decision entry_peek(struct entry_state *state, uint64_t now_ns)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = 1, .verb = STINT_PEEK};
    if (state->class == CLASS_8)
        return law8_ask(state->quota, &state->as.word8, &ask);
    if (state->class == CLASS_16)
        return law16_ask(state->quota, &state->as.word16, &ask);
    return law_wide_ask(state->quota, state->as.bytes, &ask);
}

uint64_t entry_dies_at(const struct entry_state *state)
{
    if (state->class == CLASS_8)
        return law8_dies_at(state->quota, state->as.word8);
    if (state->class == CLASS_16)
        return law16_dies_at(state->quota, state->as.word16);
    return law_wide_dies_at(state->quota, state->as.bytes);
}

bool entry_runs(struct asking *asking, const struct seen *seen, uint64_t now_ns,
                struct held_run *runs, size_t *n_runs)
{
    struct entry_state state;
    if (!entry_read(asking, seen, &state))
        return false;
    if (state.class == CLASS_8)
        *n_runs = law8_held(state.quota, state.as.word8, now_ns, runs);
    else if (state.class == CLASS_16)
        *n_runs = law16_held(state.quota, state.as.word16, now_ns, runs);
    else
        *n_runs = law_wide_held(state.quota, state.as.bytes, now_ns, runs);
    return true;
}

void entry_fill(struct asking *asking, const struct seen *seen, struct entry_state *state,
                uint64_t until_ns)
{
    struct held_run full = {asking->ask.now_ns, state->quota->burst};
    struct pair *word = seen->state;
    if (state->class == CLASS_8) {
        /* gcra says "full" with a debt of one capacity; the others with a fill. */
        seen->at->second = state->quota->algorithm == STINT_GCRA
                               ? law8_carry(state->quota, &full, 1, asking->ask.now_ns)
                               : law8_fill(state->quota, until_ns);
    } else if (state->class == CLASS_16) {
        struct word16 filled = law16_fill(state->quota, until_ns);
        *word = (struct pair){filled.lo, filled.hi | state_mark(seen->pair.second)};
    } else {
        wide_fill(asking, seen, state->quota, until_ns);
    }
}
