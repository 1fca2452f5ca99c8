/* SPDX-License-Identifier: MIT */
/* Finds a key's slot, and ensures that it has only one. */
#include "table/slot/slots.h"

#include <assert.h>

#if !CAS16_LOCK_FREE
uint32_t cas16_locks[CAS16_LOCKS]; /* of machines without a 16-byte swap; see cas16.h */
#endif

static uint64_t never_spilled; /* of all classes without a main part: it is only read */

void slots_open(struct slots *slots, const struct region *region, enum slot_class class,
                const struct class_ops *ops)
{
    assert(region_is_valid(region) && class < CLASSES);
    const struct class_layout *layout = &region->fixed.classes[class];
    *slots = (struct slots){
        .ops = ops,
        .base = region_at(region, layout->offset),
        .sets = layout->sets,
        .front = layout->front,
        .spilled = &never_spilled,
        .spilled_max = layout->front * WAYS / SPILLED_SHARE,
        .set_size = layout->set_size,
        .half_size = layout->half_size,
        .state_offset = layout->state_offset,
        .state_stride = layout->state_stride,
        .state_half = layout->state_half,
        .state_size = layout->state_size,
        .class = (uint8_t) class,
        .is_quick = class != CLASS_WIDE && !region->read_only,
    };
    if (layout->front < layout->sets)
        slots->spilled = &region->header->spilled[class];
    else
        slots->spilled_max = 1;
    assert(slots_is_valid(slots));
}

struct pair *slots_find_exact(const struct slots *slots, struct hash128 hash, uint64_t tag_word)
{
    const struct home home = slots_home(slots, hash);
    const unsigned reach = slots_reach(slots), first = slots_first_way(home.tag);
    for (unsigned i = 0; i < WAYS; i += HALF_WAYS) {
        for (unsigned s = 0; s < reach; s++) {
            struct pair *half = slots_pair(slots, home.set[s], first ^ i);
            struct pair *at = slots_match(half, tag_word, NULL);
            if (at != NULL)
                return at;
        }
    }
    return NULL;
}

bool slots_is_given_away(const struct slots *slots, const struct seen *seen)
{
    if (slots->class != CLASS_16 || (seen->pair.first & TAG_PENDING) != 0)
        return false;
    struct pair state = cas16_load(seen->state);
    return state_leaves(state, seen->pair.second) && state.first == 0;
}

bool slots_is_bound(const struct slots *slots, const struct seen *pending)
{
    assert((pending->pair.first & TAG_PENDING) != 0);
    if (slots->class != CLASS_16)
        return slots->class != CLASS_BLOCKS && slots_is_frozen(pending->pair.first);
    struct pair state = cas16_load_stable(pending->state);
    uint64_t mark = state.second & ~STATE_MASK;
    uint64_t generation = pending->pair.second;
    return mark == state_mark(generation) ||
           (mark == (state_mark(generation) | STATE_FROZEN) && state.first != 0);
}

bool slots_is_whole(const struct slots *slots, const struct seen *valid)
{
    assert((valid->pair.first & TAG_PENDING) == 0);
    if (slots->class != CLASS_16)
        return true;
    struct pair state = cas16_load_stable(valid->state);
    return state_leaves(state, valid->pair.second) ||
           (state.second & ~STATE_MASK) == state_mark(valid->pair.second) ||
           !pair_equals(cas16_load_stable(valid->at), valid->pair);
}

struct seen slots_find(const struct slots *slots, const struct home *home)
{
    assert(slots_is_home(slots, home));
    struct seen pending = {.at = NULL};
    unsigned first = slots_first_way(home->tag);
    const unsigned reach = slots_reach(slots);
    for (unsigned s = 0; s < reach; s++) {
        for (unsigned i = 0; i < WAYS; i++) {
            unsigned way = i ^ first;
            struct pair *at = slots_pair(slots, home->set[s], way);
            /* acquire: the second word, read next, is not older than the tag. */
            uint64_t tag_word = __atomic_load_n(&at->first, __ATOMIC_ACQUIRE);
            if (!slots_is_tag(tag_word, home->tag))
                continue;
            struct seen seen = slots_see(slots, home->set[s], way);
            if (!slots_is_tag(seen.pair.first, home->tag) || slots_is_given_away(slots, &seen))
                continue;
            if ((seen.pair.first & TAG_PENDING) == 0)
                return seen;
            if (pending.at == NULL || slots_is_bound(slots, &seen))
                pending = seen; /* a bound one is on its way to the key's state */
        }
        if (home->set[1] == home->set[0] && s == 0)
            s++; /* a part of one set */
    }
    return pending;
}

CAS16_TARGET bool slots_withdraw(const struct slots *slots, const struct seen *seen)
{
    assert(slots_has(slots, seen->at));
    /* Class 8 leaves (0, 0); elsewhere the generation stays, so that the next one is new. */
    bool keeps = slots->class == CLASS_16 || slots->class == CLASS_WIDE;
    struct pair empty = {0, keeps ? seen->pair.second : 0};
    return cas16(seen->at, seen->pair, empty);
}

CAS16_TARGET bool slots_remove(const struct slots *slots, const struct seen *pending)
{
    assert(slots_has(slots, pending->at));
    uint64_t generation = pending->pair.second;
    if (slots->class == CLASS_16) {
        struct pair state = cas16_load_stable(pending->state);
        struct pair arriving = {0, state_mark(generation) | STATE_FROZEN};
        struct pair given_away = {0, state_mark(generation + 1) | STATE_FROZEN};
        bool arrives = pair_equals(state, arriving);
        if (slots_is_bound(slots, pending) ||
            (arrives && !cas16(pending->state, arriving, given_away)))
            return false;
    }
    return slots_withdraw(slots, pending);
}

enum settle slots_settle(const struct slots *slots, const struct home *home,
                         const struct seen *mine)
{
    assert(slots_is_home(slots, home));
    assert(slots_has(slots, mine->at) && (mine->pair.first & TAG_PENDING) != 0);
    const unsigned reach = slots_reach(slots); /* read after the publication */
    for (unsigned s = 0; s < reach; s++) {
        for (unsigned way = 0; way < WAYS; way++) {
            struct seen other = slots_see(slots, home->set[s], way);
            if (other.at == mine->at || !slots_is_tag(other.pair.first, home->tag) ||
                slots_is_given_away(slots, &other))
                continue;
            bool pending = (other.pair.first & TAG_PENDING) != 0;
            if (pending && other.at > mine->at && !slots_is_bound(slots, &other)) {
                if (slots_remove(slots, &other))
                    continue;
                other = slots_see(slots, home->set[s], way);
                if (!slots_is_tag(other.pair.first, home->tag))
                    continue;
            }
            return slots_remove(slots, mine) ? SETTLE_OTHER : SETTLE_LOST;
        }
    }
    return SETTLE_MINE;
}
