/* SPDX-License-Identifier: MIT */
/*
 * Overrides: a small hashed table. Writers take turns by an owner word; readers need none. An entry
 * becomes valid by one swap of its pair, after the rest of it is written. Another quota for a key
 * is written to another entry before the older one is removed.
 */
#include "table/overrides.h"

#include "table/region/owner.h"

#include <assert.h>
#include <string.h>

#define OVERRIDE_TWEAK UINT64_C(0x6f76657272) /* separates sums from hashes of keys */
#define TRIES 100 /* of OWNER_PATIENCE_NS each, until a writer counts as stopped */
#define PLACES_PER_SET 8
#define SETS 2 /* in which a key may be */
#define CANDIDATES (SETS * PLACES_PER_SET)

struct override {
    struct pair pair; /* (hash.lo, hash.hi with the quota's id in its low bits); 0, 0: free */
    uint64_t rule;
    uint64_t check; /* over all the rest: a file may come back damaged */
};

_Static_assert(sizeof(struct override) == OVERRIDE_SIZE, "the region counts on it");

/* Twice as many entries as keys: of two sets, one then has a free entry. */
uint64_t overrides_places(const struct region_fixed *fixed)
{
    uint64_t sets = ((uint64_t)fixed->overrides_max * 2 + PLACES_PER_SET - 1) / PLACES_PER_SET;
    return (sets < SETS ? SETS : sets) * PLACES_PER_SET;
}

static struct override *place_at(const struct stint_table *table, uint64_t place)
{
    assert(place < overrides_places(&table->region.fixed));
    const struct region_fixed *fixed = &table->region.fixed;
    struct override *places = region_at(&table->region, fixed->overrides_offset);
    return &places[place];
}

/* The CANDIDATES entries of a key. */
struct candidates {
    struct override *set[SETS];
};

static struct candidates candidates_of(const struct stint_table *table, uint64_t lo, uint64_t hi)
{
    uint64_t sets = overrides_places(&table->region.fixed) / PLACES_PER_SET;
    uint64_t first = ((hi >> 32) * sets) >> 32, second = ((lo >> 32) * sets) >> 32;
    if (second == first)
        second = first + 1 < sets ? first + 1 : 0;
    return (struct candidates){
        {place_at(table, first * PLACES_PER_SET), place_at(table, second * PLACES_PER_SET)}};
}

static struct override *candidate(const struct candidates *candidates, unsigned i)
{
    assert(i < CANDIDATES);
    return &candidates->set[i / PLACES_PER_SET][i % PLACES_PER_SET];
}

static bool is_free(struct pair pair)
{
    return pair.first == 0 && pair.second == 0;
}

static bool is_of(struct pair pair, struct hash128 hash)
{
    return pair.first == hash.lo && ((pair.second ^ hash.hi) & ~QUOTA_ID_MASK) == 0 &&
           !is_free(pair);
}

static uint64_t check_of(const struct stint_table *table, const struct override *override)
{
    const uint64_t words[] = {override->pair.first, override->pair.second, override->rule};
    return siphash13_128(table->region.fixed.hash_key, OVERRIDE_TWEAK, words, sizeof(words)).lo;
}

/* ---- Readers --------------------------------------------------------------------------------- */

/* The entry of a key, and its pair as it was read; NULL: the key has none. */
static struct override *find(const struct stint_table *table, struct hash128 hash,
                             const struct override *but, struct pair *pair)
{
    struct candidates candidates = candidates_of(table, hash.lo, hash.hi);
    for (unsigned i = 0; i < CANDIDATES; i++) {
        struct override *place = candidate(&candidates, i);
        *pair = cas16_load_stable(&place->pair);
        if (place != but && is_of(*pair, hash))
            return place;
    }
    return NULL;
}

static uint64_t moves(const struct stint_table *table)
{
    /* acquire: what is read after it is as new as the move, or the next read counts another. */
    return __atomic_load_n(&table->region.header->overrides_moves, __ATOMIC_ACQUIRE);
}

/*
 * As find(), while another process writes. A pair that moves may come to an entry that was read
 * already, and leave one that is read later; but the move is counted before the pair leaves.
 */
static bool find_moving(const struct stint_table *table, struct hash128 hash, struct pair *pair)
{
    for (uint64_t before = moves(table);;) {
        if (find(table, hash, NULL, pair) != NULL)
            return true;
        uint64_t after = moves(table);
        if (after == before)
            return false;
        before = after;
    }
}

bool overrides_find(struct stint_table *table, struct hash128 hash, uint64_t rule,
                    struct stint_quota *quota)
{
    assert(table_is_valid(table));
    struct pair pair;
    if (!overrides_any(table) || !find_moving(table, hash, &pair))
        return false;
    const struct stint_quota *known =
        intern_quota(&table->intern, (uint32_t)(pair.second & QUOTA_ID_MASK));
    if (known == NULL)
        return false;
    *quota = *known;
    quota->rule = rule;
    return true;
}

/* An entry, read consistently; false: it is free, or was being written. */
static bool read_place(const struct stint_table *table, uint64_t place, struct override *read)
{
    assert(table_is_valid(table));
    struct override *at = place_at(table, place);
    read->pair = cas16_load_stable(&at->pair);
    /* relaxed: the sum shows whether the words belong together. */
    read->rule = __atomic_load_n(&at->rule, __ATOMIC_RELAXED);
    read->check = __atomic_load_n(&at->check, __ATOMIC_RELAXED);
    return !is_free(read->pair) && read->check == check_of(table, read);
}

void overrides_copy(const struct stint_table *table, uint64_t place, void *to)
{
    struct override read;
    if (!read_place(table, place, &read))
        memset(&read, 0, sizeof(read));
    memcpy(to, &read, sizeof(read));
}

/* ---- Writers --------------------------------------------------------------------------------- */

static void add_count(struct stint_table *table, int64_t by)
{
    assert(by == 1 || by == -1);
    /* relaxed: see overrides_any(). */
    __atomic_fetch_add(&table->region.header->overrides, (uint64_t)by, __ATOMIC_RELAXED);
}

static void count_anew(struct stint_table *table)
{
    uint64_t places = overrides_places(&table->region.fixed), count = 0;
    for (uint64_t i = 0; i < places; i++)
        count += !is_free(cas16_load_stable(&place_at(table, i)->pair));
    __atomic_store_n(&table->region.header->overrides, count, __ATOMIC_RELAXED);
}

/* One writer at a time; the count of one that was killed at work may be off. */
static int enter(struct stint_table *table, uint64_t *mine, struct stint_error *error)
{
    assert(table_is_valid(table));
    uint64_t *owner = &table->region.header->overrides_owner;
    for (unsigned tries = 0; tries < TRIES; tries++) {
        enum owner_result taken = owner_take(owner, table_self(table), mine);
        if (taken == OWNER_TAKEN_OVER)
            count_anew(table);
        if (taken == OWNER_TAKEN_OVER || taken == OWNER_TAKEN)
            return 0;
    }
    return err_set(error, STINT_E_BUSY,
                   "a process that uses the table was stopped while it set a key's quota");
}

CAS16_TARGET static void clear(struct stint_table *table, struct override *place)
{
    cas16(&place->pair, cas16_load_stable(&place->pair), (struct pair){0, 0});
    add_count(table, -1);
}

/* Counted before it is written, removed before it is uncounted: overrides_any() misses none. */
CAS16_TARGET static void put(struct stint_table *table, struct override *place,
                             const struct override *made)
{
    assert(!is_free(made->pair));
    add_count(table, 1);
    __atomic_store_n(&place->rule, made->rule, __ATOMIC_RELAXED);
    __atomic_store_n(&place->check, made->check, __ATOMIC_RELAXED);
    cas16(&place->pair, (struct pair){0, 0}, made->pair);
}

/* In the emptier of the key's two sets. */
static struct override *free_place(const struct stint_table *table, struct hash128 hash)
{
    struct candidates candidates = candidates_of(table, hash.lo, hash.hi);
    struct override *found[SETS] = {NULL, NULL};
    unsigned n_free[SETS] = {0, 0};
    for (unsigned i = 0; i < CANDIDATES; i++) {
        struct override *place = candidate(&candidates, i);
        if (is_free(cas16_load_stable(&place->pair))) {
            found[i / PLACES_PER_SET] = place;
            n_free[i / PLACES_PER_SET]++;
        }
    }
    return n_free[0] >= n_free[1] ? found[0] : found[1];
}

static int replace(struct stint_table *table, struct hash128 hash, const struct override *made,
                   struct stint_error *error)
{
    assert(!is_free(made->pair));
    struct pair seen;
    struct override *old = find(table, hash, NULL, &seen);
    if (old != NULL && pair_equals(seen, made->pair))
        return 0;
    struct override *place = free_place(table, hash);
    uint64_t count = __atomic_load_n(&table->region.header->overrides, __ATOMIC_RELAXED);
    uint32_t max = table->region.fixed.overrides_max;
    if (old == NULL && count >= max)
        return err_set(error, STINT_E_FULL,
                       "%u keys have quotas of their own, and no more may (`overrides`): restore "
                       "that of the rule for some",
                       max);
    if (place == NULL)
        return err_set(error, STINT_E_FULL,
                       "other keys with quotas of their own have all places of this key: restore "
                       "that of the rule for some, or make the table with more (`overrides`)");
    put(table, place, made);
    /* release: a reader that sees an entry cleared below sees this, and searches again. */
    __atomic_fetch_add(&table->region.header->overrides_moves, 1, __ATOMIC_RELEASE);
    /* More than one, if a process ended between these two steps. */
    while ((old = find(table, hash, place, &seen)) != NULL)
        clear(table, old);
    return 0;
}

int overrides_set(struct stint_table *table, struct hash128 hash, const struct stint_quota *quota,
                  struct stint_error *error)
{
    assert(table_is_valid(table));
    int code = stint_table_accepts(table, quota, error);
    if (code != 0)
        return code;
    if (quota->rule == 0)
        return err_set(error, STINT_E_MISMATCH, "a key's own quota needs the rule it stands for");
    uint32_t id = intern_entry_id(&table->intern, quota);
    if (id == 0)
        return err_set(error, STINT_E_FULL,
                       "all %u places of different quotas are in use (`quotas`)",
                       table->intern.max);
    struct override made = {.pair = {hash.lo, (hash.hi & ~QUOTA_ID_MASK) | id},
                            .rule = quota->rule};
    made.check = check_of(table, &made);
    uint64_t mine;
    code = enter(table, &mine, error);
    if (code != 0)
        return code;
    code = replace(table, hash, &made, error);
    owner_give_back(&table->region.header->overrides_owner, mine);
    return code;
}

int overrides_drop(struct stint_table *table, struct hash128 hash, struct stint_error *error)
{
    assert(table_is_valid(table));
    uint64_t mine;
    struct pair seen;
    struct override *place;
    int code = enter(table, &mine, error);
    if (code != 0)
        return code;
    code = STINT_E_GONE;
    while ((place = find(table, hash, NULL, &seen)) != NULL) {
        clear(table, place);
        code = 0;
    }
    owner_give_back(&table->region.header->overrides_owner, mine);
    return code == 0 ? 0 : err_set(error, code, "the key has no quota of its own");
}

void overrides_repair(struct stint_table *table)
{
    assert(table->region.alone);
    uint64_t places = overrides_places(&table->region.fixed);
    table->region.header->overrides_owner = 0;
    for (uint64_t i = 0; i < places; i++) {
        struct override *place = place_at(table, i), read;
        bool is_whole =
            read_place(table, i, &read) &&
            intern_quota(&table->intern, (uint32_t)(read.pair.second & QUOTA_ID_MASK)) != NULL;
        if (is_whole || is_free(place->pair))
            continue;
        table_count(&table_counters(table)->states_damaged, 1);
        place->pair = (struct pair){0, 0};
    }
    count_anew(table);
}
