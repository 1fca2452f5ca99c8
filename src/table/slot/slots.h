/* SPDX-License-Identifier: MIT */
/*
 * Where keys have their slots: two hashed sets of WAYS slots each, per class of state size.
 *
 * A slot's pair is (tag word, second word). The tag word holds 48 bits of the key's keyed hash, the
 * id of the quota whose algorithm the state has, and one bit for "pending". The second word depends
 * on the class: class 8 and blocks: the state itself, so that tag and state change in one step;
 * class 16 and wide: a generation, counted up each time the slot is handed over. Tag word 0 is an
 * empty slot.
 *
 * One key must never have two valid slots, or it would have its limit twice. A new key therefore
 * publishes a *pending* slot first, then searches for others of the same key, and only then makes
 * its own valid (slots_settle). Each publication is unlike any other at that slot (a nonce in class
 * 8, the generation elsewhere), so a late swap by a stalled thread fails. Proof that two cannot
 * both become valid: of two that do, one was published before the other searched; the one that
 * searched saw it valid (then it withdrew), or pending at a lower position (then it withdrew), or
 * pending at a higher position (then it removed it, and the other's last swap failed). A thread
 * that ends leaves at most a pending slot, which any thread may finish or take.
 *
 * Under a rule whose quotas have states of different sizes the key must be valid in one class only:
 * see rule.h.
 */
#ifndef STINT_TABLE_SLOT_SLOTS_H
#define STINT_TABLE_SLOT_SLOTS_H

#include "base/siphash.h"
#include "table/region/region.h"

#include <assert.h>

#define TAG_PENDING (UINT64_C(1) << 15)
#define TAG_ID_MASK (TAG_PENDING - 1)
#define TAG_HASH_MASK (~UINT64_C(0xffff))
#define TAG_ABANDONED TAG_PENDING /* no key has tag 0: a wide slot left to a stuck owner */

/*
 * A slot whose units are on the move to another class (rule.h): pending, without a quota's id. In
 * class 8 the second word holds the time until which they live, in 41 bits of about a millisecond,
 * rounded up, and a nonce.
 */
#define FROZEN_UNIT_LOG2 20
#define FROZEN_NONCE_BITS 23

static inline bool slots_is_frozen(uint64_t tag_word)
{
    return (tag_word & (TAG_PENDING | TAG_ID_MASK)) == TAG_PENDING &&
           (tag_word & TAG_HASH_MASK) != 0;
}

static inline uint64_t frozen8(uint64_t until_ns, uint64_t nonce)
{
    uint64_t units = (until_ns >> FROZEN_UNIT_LOG2) + 1;
    uint64_t units_max = UINT64_MAX >> FROZEN_NONCE_BITS;
    units = units < units_max ? units : units_max;
    return units << FROZEN_NONCE_BITS | (nonce & ((UINT64_C(1) << FROZEN_NONCE_BITS) - 1));
}

struct class_ops; /* asking.h */

/* One class of slots, as this process sees it. */
struct slots {
    const struct class_ops *ops; /* NULL: blocks hold no state */
    uint8_t *base;
    uint64_t sets;
    uint32_t set_size, half_size, state_offset, state_stride, state_half, state_size;
    uint8_t class; /* enum slot_class */
};

/* The two sets of a key, and its 48 bits at their position in the tag word. */
struct home {
    uint8_t *set[2];
    uint64_t tag;
};

/* A slot as it was seen. */
struct seen {
    struct pair *at; /* NULL: no such slot */
    void *state;     /* class 16 and wide */
    struct pair pair;
};

void slots_open(struct slots *slots, const struct region *region, enum slot_class class,
                const struct class_ops *ops);

static inline bool slots_is_valid(const struct slots *slots)
{
    return slots->base != NULL && slots->class < CLASSES &&
           (slots->ops != NULL || slots->class == CLASS_BLOCKS) &&
           slots->set_size >= WAYS * sizeof(struct pair);
}

/* Whether an address is that of a pair of this class. */
static inline bool slots_has(const struct slots *slots, const void *pair)
{
    uintptr_t at = (uintptr_t)pair, base = (uintptr_t)slots->base;
    return at >= base && at < base + slots->sets * slots->set_size && at % sizeof(struct pair) == 0;
}

/* Whether a key has this home in this class. */
static inline bool slots_is_home(const struct slots *slots, const struct home *home)
{
    return slots_has(slots, home->set[0]) && slots_has(slots, home->set[1]) && home->tag != 0 &&
           (home->tag & ~TAG_HASH_MASK) == 0;
}

static inline struct home slots_home(const struct slots *slots, struct hash128 hash)
{
    struct home home;
    uint64_t first = ((hash.hi >> 32) * slots->sets) >> 32;
    uint64_t second = ((hash.hi & UINT32_MAX) * slots->sets) >> 32;
    if (second == first)
        second = first + 1 < slots->sets ? first + 1 : 0;
    home.set[0] = slots->base + first * slots->set_size;
    home.set[1] = slots->base + second * slots->set_size;
    /* A tag of 0 would look like an empty slot with an id. */
    home.tag = hash.lo & TAG_HASH_MASK;
    if (home.tag == 0)
        home.tag = TAG_PENDING << 1;
    assert(slots_is_home(slots, &home));
    return home;
}

/* Whether a tag word has this tag, in any state of its slot. */
static inline bool slots_is_tag(uint64_t tag_word, uint64_t tag)
{
    assert((tag & ~TAG_HASH_MASK) == 0);
    return ((tag_word ^ tag) & TAG_HASH_MASK) == 0 && tag_word != 0;
}

static inline struct pair *slots_pair(const struct slots *slots, uint8_t *set, unsigned way)
{
    assert(way < WAYS);
    uint8_t *half = set + way / HALF_WAYS * slots->half_size;
    return (struct pair *)(void *)half + way % HALF_WAYS;
}

static inline void *slots_state(const struct slots *slots, uint8_t *set, unsigned way)
{
    assert(way < WAYS);
    return set + slots->state_offset + way / HALF_WAYS * (size_t)slots->state_half +
           way % HALF_WAYS * (size_t)slots->state_stride;
}

static inline struct seen slots_see(const struct slots *slots, uint8_t *set, unsigned way)
{
    assert(slots_is_valid(slots));
    struct seen seen = {.at = slots_pair(slots, set, way), .state = slots_state(slots, set, way)};
    seen.pair = cas16_load(seen.at);
    return seen;
}

/* The hash selects the half of a set in which a key is searched, and put, first. */
static inline unsigned slots_first_way(uint64_t tag)
{
    return (unsigned)(tag >> 16) & HALF_WAYS;
}

/*
 * Prefetches the lines in which a key most likely is, of both sets at once. Always inline: gcc
 * assumes that a function that only prefetches has no effect, and removes the call.
 */
__attribute__((always_inline)) static inline void slots_prefetch(const struct slots *slots,
                                                                 const struct home *home)
{
    unsigned first = slots_first_way(home->tag);
    for (int s = 0; s < 2; s++) {
        struct pair *pairs = slots_pair(slots, home->set[s], first);
        __builtin_prefetch(pairs);
        if (slots->class == CLASS_16)
            __builtin_prefetch(pairs + HALF_WAYS);
    }
}

/*
 * The slot with exactly this tag word. Four in five keys are in their first set, and nearly all in
 * the first half of theirs: for those one line is read, without waiting for another.
 */
static inline struct seen slots_find_exact(const struct slots *slots, const struct home *home,
                                           uint64_t tag_word)
{
    assert(slots_is_home(slots, home));
    assert((tag_word & TAG_PENDING) == 0);
    unsigned first = slots_first_way(home->tag);
    for (unsigned turn = 0; turn < 4; turn++) {
        uint8_t *set = home->set[turn % 2];
        unsigned way = turn < 2 ? first : first ^ HALF_WAYS;
        struct pair *pairs = slots_pair(slots, set, way);
        for (unsigned i = 0; i < HALF_WAYS; i++)
            /* acquire: what is read of the slot next is not older than the tag. */
            if (__atomic_load_n(&pairs[i].first, __ATOMIC_ACQUIRE) == tag_word)
                return (struct seen){.at = &pairs[i], .state = slots_state(slots, set, way + i)};
    }
    return (struct seen){.at = NULL};
}

/*
 * Class 16 keeps 15 bits of the generation, and a mark "frozen", in the top bits of the state's
 * high word, so that a swap of the state fails once the slot is being handed over. A frozen state
 * belongs to the next generation; its low word is the instant until which the key of the tag must
 * still be held to be full (0: the slot was free to take). place16.c explains.
 */
#define STATE_MASK ((UINT64_C(1) << 48) - 1)
#define STATE_FROZEN (UINT64_C(1) << 48)

static inline uint64_t state_mark(uint64_t generation)
{
    return generation << 49;
}

/* Whether it is frozen, to be handed over from the generation seen to the next. */
static inline bool state_leaves(struct pair state, uint64_t generation)
{
    return (state.second & ~STATE_MASK) == (state_mark(generation + 1) | STATE_FROZEN);
}

/*
 * Whether a pending slot holds units that must not be lost: a frozen one; in class 16 also the
 * first charge of a new key that had settled, or the units of a key that is handed from itself to
 * itself. It counts as valid, and is never removed. The latter two are made valid without another
 * check.
 */
bool slots_is_bound(const struct slots *slots, const struct seen *pending);

/* Whether the state of a valid slot of class 16 can be one that belongs to it. */
bool slots_is_whole(const struct slots *slots, const struct seen *valid);

/* The key's valid slot, or, if it has none, a pending one of its own (.pair.first says which). */
struct seen slots_find(const struct slots *slots, const struct home *home);

/* A slot of class 16 whose state is handed over already: its tag belongs to no key any more. */
bool slots_is_given_away(const struct slots *slots, const struct seen *seen);

enum settle {
    SETTLE_MINE,  /* no other slot has the key: make it valid now, with this pending pair */
    SETTLE_OTHER, /* *other is valid, or pending and before mine; mine is withdrawn */
    SETTLE_LOST,  /* my pending slot is gone: begin again */
};

/* Searches for others of the key that `mine` (pending) is published for; see above. */
enum settle slots_settle(const struct slots *slots, const struct home *home,
                         const struct seen *mine);

/* Empties a slot, its generation kept, if it still is what was seen. */
bool slots_withdraw(const struct slots *slots, const struct seen *seen);

/*
 * The same for a pending slot that is not bound; false if it became so meanwhile. In class 16 the
 * state is handed over first: so a new key that has put its charge there knows that it stands.
 */
bool slots_remove(const struct slots *slots, const struct seen *pending);

#endif
