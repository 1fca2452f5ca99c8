/* SPDX-License-Identifier: MIT */
/*
 * Answers to requests with an id, in sets of REQUESTS_WAYS. A thread that reads a set holds its
 * owner word, for less than a microsecond. The state of a record is zeroed before the record is
 * written, and set last: a process that is killed in between leaves a free record.
 */
#include "table/requests.h"

#include "base/wide_int.h"
#include "table/region/owner.h"

#include <assert.h>
#include <string.h>

#define REQUEST_TWEAK UINT64_C(0x72657175657374) /* separates hashes of ids from those of keys */
#define TRIES 10 /* of OWNER_PATIENCE_NS each, for a set whose owner is stopped */

enum request_state { REQUEST_FREE = 0, REQUEST_CLAIMED = 1, REQUEST_ANSWERED = 2 };
#define STATE_BITS 2
#define STATE_MASK_LOW UINT64_C(3)

struct request_record {
    uint64_t state; /* nonce of the claim, enum request_state in its low bits */
    uint64_t owner; /* process that claimed it */
    struct hash128 hash;
    uint64_t fingerprint;
    uint64_t begun_ns, expires_ns;
    struct requests_answer answer;
    uint64_t check; /* of an answered one, over all before it: a file may come back damaged */
    uint64_t no_use;
};

struct request_set {
    uint64_t owner; /* owner word of the process that works on the set */
    uint64_t no_use;
    uint32_t tags[REQUESTS_WAYS]; /* part of each hash, so that a search touches one line */
    struct request_record records[REQUESTS_WAYS];
};

#define RECORD_WORDS (sizeof(struct request_record) / sizeof(uint64_t))

_Static_assert(sizeof(struct request_record) == REQUEST_SIZE, "the region counts on it");
_Static_assert(sizeof(struct request_set) == REQUESTS_SET_SIZE, "the region counts on it");

static enum request_state state_of(const struct request_record *record)
{
    return (enum request_state)(record->state & STATE_MASK_LOW);
}

static uint32_t tag_of(struct hash128 hash)
{
    return (uint32_t)hash.hi;
}

static struct request_set *set_at(const struct stint_table *table, uint64_t set)
{
    const struct region_fixed *fixed = &table->region.fixed;
    assert(set < fixed->request_sets);
    struct request_set *sets = region_at(&table->region, fixed->requests_offset);
    return &sets[set];
}

static uint64_t check_of(const struct stint_table *table, const struct request_record *record)
{
    return siphash13_128(table->region.fixed.hash_key, REQUEST_TWEAK, record,
                         offsetof(struct request_record, check))
        .lo;
}

struct hash128 requests_hash(const struct stint_table *table, const void *bytes, size_t len)
{
    return siphash13_128(table->region.fixed.hash_key, REQUEST_TWEAK, bytes, len);
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Word by word, since the table may be copied meanwhile; the state last. */
static void write_record(struct request_record *to, const struct request_record *from)
{
    assert((from->state & STATE_MASK_LOW) != REQUEST_FREE);
    uint64_t words[RECORD_WORDS], *target = (uint64_t *)(void *)to;
    memcpy(words, from, sizeof(words));
    /* release, all of them: the record is free before any word changes, and whole before it is
     * marked as used. */
    __atomic_store_n(&target[0], 0, __ATOMIC_RELEASE);
    for (size_t i = 1; i < RECORD_WORDS; i++)
        __atomic_store_n(&target[i], words[i], __ATOMIC_RELEASE);
    __atomic_store_n(&target[0], words[0], __ATOMIC_RELEASE);
}

static void read_record(const struct request_record *from, struct request_record *to)
{
    uint64_t words[RECORD_WORDS] = {0};
    const uint64_t *source = (const uint64_t *)(const void *)from;
    /* relaxed: no process writes while we hold the owner word; a copy checks the sum. */
    for (size_t i = 0; i < RECORD_WORDS; i++)
        words[i] = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
    memcpy(to, words, sizeof(*to));
}

static void free_record(struct request_record *record)
{
    __atomic_store_n(&record->state, REQUEST_FREE, __ATOMIC_RELEASE);
}

static bool is_live(const struct request_record *record, uint64_t now_ns)
{
    return state_of(record) != REQUEST_FREE && record->expires_ns > now_ns;
}

/* ---- Owner words ----------------------------------------------------------------------------- */

static bool enter(struct stint_table *table, struct request_set *set, uint64_t *mine)
{
    assert(table_is_valid(table));
    for (unsigned tries = 0; tries < TRIES; tries++) {
        enum owner_result taken = owner_take(&set->owner, table_self(table), mine);
        if (taken == OWNER_TAKEN || taken == OWNER_TAKEN_OVER)
            return true;
    }
    return false;
}

/* ---- Begin ----------------------------------------------------------------------------------- */

static struct request_record *find(struct request_set *set, const struct requests_ask *ask)
{
    for (unsigned i = 0; i < REQUESTS_WAYS; i++) {
        struct request_record *record = &set->records[i];
        if (set->tags[i] == tag_of(ask->hash) && is_live(record, ask->now_ns) &&
            record->hash.lo == ask->hash.lo && record->hash.hi == ask->hash.hi)
            return record;
    }
    return NULL;
}

/* A free record, or that of the oldest answer; NULL where all are claimed. */
static struct request_record *choose(struct stint_table *table, struct request_set *set,
                                     uint64_t now_ns)
{
    struct request_record *oldest = NULL;
    for (unsigned i = 0; i < REQUESTS_WAYS; i++) {
        struct request_record *record = &set->records[i];
        if (!is_live(record, now_ns))
            return record;
        if (state_of(record) == REQUEST_ANSWERED &&
            (oldest == NULL || record->begun_ns < oldest->begun_ns))
            oldest = record;
    }
    if (oldest != NULL)
        table_count(&table_counters(table)->requests_dropped, 1);
    return oldest;
}

static void claim_record(struct stint_table *table, struct request_set *set,
                         struct request_record *record, const struct requests_ask *ask,
                         struct requests_claim *claim)
{
    assert(record >= set->records && record < set->records + REQUESTS_WAYS);
    uint64_t nonce = table_nonce(table) & (UINT64_MAX >> STATE_BITS);
    struct request_record made = {
        .state = nonce << STATE_BITS | REQUEST_CLAIMED,
        .owner = table_self(table),
        .hash = ask->hash,
        .fingerprint = ask->fingerprint,
        .begun_ns = ask->now_ns,
        .expires_ns = add_sat(ask->now_ns, ask->lifetime_ns),
    };
    uint64_t way = (uint64_t)(record - set->records);
    write_record(record, &made);
    __atomic_store_n(&set->tags[way], tag_of(ask->hash), __ATOMIC_RELAXED);
    uint64_t number = (uint64_t)(set - set_at(table, 0));
    *claim = (struct requests_claim){number * REQUESTS_WAYS + way, nonce};
}

/* The sum does not show who wrote the record: values used as an index are checked as well. */
static bool is_whole_answer(const struct stint_table *table, const struct request_record *record)
{
    const struct stint_decision *decision = &record->answer.decision;
    return state_of(record) == REQUEST_ANSWERED && record->check == check_of(table, record) &&
           decision->outcome <= STINT_NEVER && decision->binding < STINT_ITEMS_MAX;
}

/* The meaning of a record for a request that comes with its id now. */
static enum requests_found judge(struct stint_table *table, const struct request_record *record,
                                 const struct requests_ask *ask)
{
    if (record->fingerprint != ask->fingerprint)
        return REQUESTS_OTHER_BODY;
    if (state_of(record) == REQUEST_ANSWERED)
        return is_whole_answer(table, record) ? REQUESTS_SAME : REQUESTS_NEW;
    bool is_ours = record->owner == table_self(table);
    return !is_ours && owner_has_ended(record->owner) ? REQUESTS_NEW : REQUESTS_BUSY;
}

static enum requests_found begin(struct stint_table *table, struct request_set *set,
                                 const struct requests_ask *ask, struct requests_claim *claim,
                                 struct requests_answer *answer)
{
    struct request_record *record = find(set, ask), seen;
    enum requests_found found = REQUESTS_NEW;
    if (record != NULL) {
        read_record(record, &seen); /* the copy is both checked and returned */
        found = judge(table, &seen, ask);
        if (found == REQUESTS_SAME)
            *answer = seen.answer;
    }
    if (found != REQUESTS_NEW)
        return found;
    if (record == NULL)
        record = choose(table, set, ask->now_ns);
    if (record == NULL)
        return REQUESTS_BUSY;
    claim_record(table, set, record, ask, claim);
    return REQUESTS_NEW;
}

enum requests_found requests_begin(struct stint_table *table, const struct requests_ask *ask,
                                   struct requests_claim *claim, struct requests_answer *answer)
{
    assert(table_is_valid(table));
    uint64_t mine, sets = table->region.fixed.request_sets;
    if (sets == 0)
        return REQUESTS_NONE;
    struct request_set *set = set_at(table, ((ask->hash.hi >> 32) * sets) >> 32);
    if (!enter(table, set, &mine))
        return REQUESTS_BUSY;
    enum requests_found found = begin(table, set, ask, claim, answer);
    owner_give_back(&set->owner, mine);
    return found;
}

/* ---- End ------------------------------------------------------------------------------------- */

bool requests_end(struct stint_table *table, const struct requests_claim *claim,
                  const struct requests_answer *answer)
{
    assert(claim->place < requests_space(table));
    uint64_t mine;
    struct request_set *set = set_at(table, claim->place / REQUESTS_WAYS);
    struct request_record *record = &set->records[claim->place % REQUESTS_WAYS];
    if (!enter(table, set, &mine))
        return false;
    bool is_ours = record->state == (claim->nonce << STATE_BITS | REQUEST_CLAIMED);
    if (is_ours && answer != NULL) {
        struct request_record made = *record;
        made.state = claim->nonce << STATE_BITS | REQUEST_ANSWERED;
        made.answer = *answer;
        made.check = check_of(table, &made);
        write_record(record, &made);
    } else if (is_ours) {
        free_record(record);
    }
    owner_give_back(&set->owner, mine);
    return is_ours;
}

/* ---- The whole table ------------------------------------------------------------------------- */

uint64_t requests_space(const struct stint_table *table)
{
    return table->region.fixed.request_sets * REQUESTS_WAYS;
}

static uint64_t count_set(const struct request_set *set, uint64_t now_ns)
{
    uint64_t count = 0;
    for (unsigned way = 0; way < REQUESTS_WAYS; way++) {
        const struct request_record *record = &set->records[way];
        /* relaxed: only counted. */
        uint64_t state = __atomic_load_n(&record->state, __ATOMIC_RELAXED);
        count += (state & STATE_MASK_LOW) == REQUEST_ANSWERED &&
                 __atomic_load_n(&record->expires_ns, __ATOMIC_RELAXED) > now_ns;
    }
    return count;
}

uint64_t requests_count(const struct stint_table *table, uint64_t now_ns, uint64_t sets_max)
{
    assert(table_is_valid(table));
    uint64_t sets = table->region.fixed.request_sets, looked_at = min_u64(sets, sets_max),
             count = 0;
    for (uint64_t i = 0; i < looked_at; i++)
        count += count_set(set_at(table, mul_div(i, sets, looked_at)), now_ns);
    return looked_at > 0 ? mul_div(count, sets, looked_at) : 0;
}

void requests_repair(struct stint_table *table)
{
    assert(table->region.alone);
    for (uint64_t i = 0; i < table->region.fixed.request_sets; i++) {
        struct request_set *set = set_at(table, i);
        set->owner = 0;
        for (unsigned way = 0; way < REQUESTS_WAYS; way++) {
            struct request_record *record = &set->records[way];
            if (state_of(record) == REQUEST_FREE)
                continue;
            bool is_claim = state_of(record) == REQUEST_CLAIMED;
            if (is_whole_answer(table, record)) {
                set->tags[way] = tag_of(record->hash);
                continue;
            }
            if (!is_claim)
                table_count(&table_counters(table)->states_damaged, 1);
            free_record(record);
        }
    }
}

void requests_copy_set(const struct stint_table *table, uint64_t set, void *to)
{
    assert(to != NULL);
    const struct request_set *from = set_at(table, set);
    struct request_set copy;
    memset(&copy, 0, sizeof(copy));
    for (unsigned way = 0; way < REQUESTS_WAYS; way++) {
        struct request_record record;
        read_record(&from->records[way], &record);
        if (!is_whole_answer(table, &record))
            continue;
        copy.records[way] = record;
        copy.tags[way] = tag_of(record.hash);
    }
    memcpy(to, &copy, sizeof(copy));
}
