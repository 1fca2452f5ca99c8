/* SPDX-License-Identifier: MIT */
/*
 * Where keys have their slots: hashed sets of WAYS slots each, per class of state size.
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
 * A large class has a front, its first sets, and a main part, the rest. A key has four sets for
 * ever, two in each part; in a small class, which is all front, it has two. No key is moved. New
 * keys go to the front first, so that the pages of the main part are not used before they are
 * needed. The header's word `spilled` counts, up to spilled_max, the new keys that found no free
 * slot there. From then on, for good, new keys go to the main part first. For the choice of a slot
 * the word is a hint. But while it is 0 the main part is not read, which would make its pages
 * resident. The proof above holds with that, because reading 0 is a search of the main part: the
 * word never returns to 0 while the table is in use, and a thread that chose a slot of the main
 * part makes it non-zero before it publishes there (slots_spill). So a read of 0 shows that nothing
 * was published there before. As with every other search, it must come after the own publication:
 * slots_settle and rule.c read the word again. All these accesses are sequentially consistent. Let
 * A publish in the front and B, of the same key, in the main part. If A reads 0 then A has
 * published before B makes the word non-zero, so before B publishes, and B, searching later still,
 * sees A's slot. Else A searches the main part. Positions are compared by address, which no hint
 * changes.
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
    uint64_t sets, front; /* of all sets the first ones; both are equal in a small class */
    uint64_t *spilled;    /* see above; where all is front, a word that stays 0 */
    uint64_t spilled_max;
    uint32_t set_size, half_size, state_offset, state_stride, state_half, state_size;
    uint8_t class; /* enum slot_class */
    bool is_quick; /* take.c decides on its states: of 8 or 16 bytes, in memory that it may write */
};

#define PAIR_SETS 2 /* sets of a key in one part */
#define HOME_SETS 4

/*
 * The sets of a key, two in the front, then two in the main part; and its 48 bits at their position
 * in the tag word. In a class that is all front the latter two are not used.
 */
struct home {
    uint8_t *set[HOME_SETS];
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

static inline bool slots_is_main(const struct slots *slots, const void *at)
{
    assert(slots_has(slots, at));
    return (uintptr_t)at - (uintptr_t)slots->base >= slots->front * slots->set_size;
}

/* How many keys have spilled into the main part; 0: nothing is, or ever was, published there. */
static inline uint64_t slots_spilled(const struct slots *slots)
{
    /* seq_cst: this is a search; see above. */
    return __atomic_load_n(slots->spilled, __ATOMIC_SEQ_CST);
}

/* Of the sets of a key, those to search now. */
static inline unsigned slots_reach(const struct slots *slots)
{
    return slots_spilled(slots) == 0 ? PAIR_SETS : HOME_SETS;
}

/* Of all sets of the class, those that can have keys now. */
static inline uint64_t slots_used(const struct slots *slots)
{
    return slots_spilled(slots) == 0 ? slots->front : slots->sets;
}

/* Before a new key is published in this slot. */
static inline void slots_spill(const struct slots *slots, const struct pair *at)
{
    if (slots_is_main(slots, at) && slots_spilled(slots) < slots->spilled_max)
        /* seq_cst: before the publication; see above. */
        __atomic_fetch_add(slots->spilled, 1, __ATOMIC_SEQ_CST);
}

static inline bool slots_may_publish(const struct slots *slots, const struct pair *at)
{
    return !slots_is_main(slots, at) || slots_spilled(slots) != 0;
}

/* Whether a key has this home in this class. */
static inline bool slots_is_home(const struct slots *slots, const struct home *home)
{
    unsigned sets = slots->front < slots->sets ? HOME_SETS : PAIR_SETS;
    for (unsigned i = 0; i < sets; i++)
        if (!slots_has(slots, home->set[i]))
            return false;
    return home->tag != 0 && (home->tag & ~TAG_HASH_MASK) == 0;
}

/* Two of n sets, by 32 bits each. */
static inline void slots_choose(const struct slots *slots, uint8_t *base, uint64_t n,
                                uint64_t first_bits, uint64_t second_bits, uint8_t *set[PAIR_SETS])
{
    uint64_t first = ((first_bits & UINT32_MAX) * n) >> 32;
    uint64_t second = ((second_bits & UINT32_MAX) * n) >> 32;
    if (second == first)
        second = first + 1 < n ? first + 1 : 0;
    set[0] = base + first * slots->set_size;
    set[1] = base + second * slots->set_size;
}

/*
 * The two sets of one part are chosen by different bits of the hash. A set of the front and one of
 * the main part share none of them in a class of 2^16 sets or fewer. In a larger one they share
 * some: the keys of one set of the front are then spread evenly over 2^16 sets or more of the main
 * part, not over all.
 */
static inline void slots_choose_front(const struct slots *slots, struct hash128 hash,
                                      uint8_t *set[PAIR_SETS])
{
    slots_choose(slots, slots->base, slots->front, hash.hi >> 32, hash.hi, set);
}

static inline void slots_choose_main(const struct slots *slots, struct hash128 hash,
                                     uint8_t *set[PAIR_SETS])
{
    uint8_t *base = slots->base + slots->front * slots->set_size;
    slots_choose(slots, base, slots->sets - slots->front, hash.hi >> 16,
                 hash.hi << 16 | (hash.lo & ~TAG_HASH_MASK), set);
}

static inline uint64_t slots_tag(struct hash128 hash)
{
    uint64_t tag = hash.lo & TAG_HASH_MASK;
    /* A tag of 0 would look like an empty slot with an id. */
    return tag != 0 ? tag : TAG_PENDING << 1;
}

static inline struct home slots_home(const struct slots *slots, struct hash128 hash)
{
    struct home home;
    slots_choose_front(slots, hash, &home.set[0]);
    slots_choose_main(slots, hash, &home.set[PAIR_SETS]);
    home.tag = slots_tag(hash);
    assert(slots_is_home(slots, &home));
    return home;
}

/* Whether a tag word has this tag, in any state of its slot. */
static inline bool slots_is_tag(uint64_t tag_word, uint64_t tag)
{
    assert((tag & ~TAG_HASH_MASK) == 0);
    return ((tag_word ^ tag) & TAG_HASH_MASK) == 0 && tag_word != 0;
}

/* Where in its set the half of a way begins. No branch: a hash would take it at random. */
static inline size_t slots_half(const struct slots *slots, unsigned way)
{
    assert(way < WAYS);
    return way / HALF_WAYS * (size_t)slots->half_size;
}

static inline struct pair *slots_pair(const struct slots *slots, uint8_t *set, unsigned way)
{
    return (struct pair *)(void *)(set + slots_half(slots, way)) + way % HALF_WAYS;
}

static inline void *slots_state(const struct slots *slots, uint8_t *set, unsigned way)
{
    assert(way < WAYS);
    return set + slots->state_offset + way / HALF_WAYS * (size_t)slots->state_half +
           way % HALF_WAYS * (size_t)slots->state_stride;
}

/* Class 16: one line behind the pair, in the line that the processor fetches with the pair's. */
static inline struct pair *slots_state16(struct pair *at)
{
    return at + HALF_WAYS;
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
 * Where a key most likely is: of each of its sets the half that is searched first. Those of the
 * main part, which follow those of the front, are not used while nothing has spilled.
 */
struct near {
    struct pair *half[HOME_SETS];
    bool has_spilled;
};

#define SLOTS_INLINE __attribute__((always_inline)) static inline

SLOTS_INLINE struct near slots_near(const struct slots *slots, struct hash128 hash, uint64_t tag)
{
    struct near near = {.has_spilled = slots_spilled(slots) != 0};
    unsigned first = slots_first_way(tag);
    uint8_t *set[HOME_SETS];
    slots_choose_front(slots, hash, &set[0]);
    near.half[0] = slots_pair(slots, set[0], first);
    near.half[1] = slots_pair(slots, set[1], first);
    if (near.has_spilled) {
        slots_choose_main(slots, hash, &set[PAIR_SETS]);
        near.half[2] = slots_pair(slots, set[2], first);
        near.half[3] = slots_pair(slots, set[3], first);
    }
    return near;
}

/* Always inline: gcc assumes that a function that only prefetches has no effect. */
SLOTS_INLINE void slots_prefetch_two(const struct slots *slots, struct pair *const half[PAIR_SETS])
{
    __builtin_prefetch(half[1]);
    __builtin_prefetch(half[0]);
    if (slots->class == CLASS_16) {
        __builtin_prefetch(slots_state16(half[1]));
        __builtin_prefetch(slots_state16(half[0]));
    }
}

/* Those of the main part first, since the front is small and more often in a cache. */
SLOTS_INLINE void slots_prefetch(const struct slots *slots, const struct near *near)
{
    if (near->has_spilled)
        slots_prefetch_two(slots, &near->half[PAIR_SETS]);
    slots_prefetch_two(slots, &near->half[0]);
}

_Static_assert(HALF_WAYS == 4, "slots_match() compares four");

/* Whether a pair has exactly this tag word. */
SLOTS_INLINE bool slots_has_tag(const struct pair *pair, uint64_t tag_word)
{
    /* acquire: what is read of the slot next is not older than the tag. */
    return __atomic_load_n(&pair->first, __ATOMIC_ACQUIRE) == tag_word;
}

/*
 * Of the pairs of a half that with exactly this tag word, or `otherwise`. No branches: a hash would
 * take them at random, and the processor would begin with the next key only when it has this one's
 * lines.
 */
SLOTS_INLINE struct pair *slots_match(struct pair *half, uint64_t tag_word, struct pair *otherwise)
{
    struct pair *at = otherwise;
    at = slots_has_tag(&half[0], tag_word) ? &half[0] : at;
    at = slots_has_tag(&half[1], tag_word) ? &half[1] : at;
    at = slots_has_tag(&half[2], tag_word) ? &half[2] : at;
    return slots_has_tag(&half[3], tag_word) ? &half[3] : at;
}

SLOTS_INLINE struct pair *slots_match_two(struct pair *const half[PAIR_SETS], uint64_t tag_word)
{
    return slots_match(half[0], tag_word, slots_match(half[1], tag_word, NULL));
}

/* In these halves; NULL: not there. */
SLOTS_INLINE struct pair *slots_find_near(const struct near *near, uint64_t tag_word)
{
    assert((tag_word & TAG_PENDING) == 0);
    struct pair *at = slots_match_two(&near->half[0], tag_word);
    return at == NULL && near->has_spilled ? slots_match_two(&near->half[PAIR_SETS], tag_word) : at;
}

/* The pair with exactly this tag word, wherever the key may be; NULL: there is none. */
struct pair *slots_find_exact(const struct slots *slots, struct hash128 hash, uint64_t tag_word);

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
