/* SPDX-License-Identifier: MIT */
/*
 * Repairs the slots of a file at its opening, when no other process has it open. Then no process is
 * at work: new keys that are not settled are dropped, and all owners have ended.
 *
 * A file may come back with flipped bits, and the algorithms rely on valid states. So every state
 * is checked once: one that no use can have written becomes full for one period, since its true
 * content is not known. After a boot before which the table was not closed, the same is done to all
 * live states. A slot whose quota is not known is emptied: no request can refer to it.
 */
#include "base/wide_int.h"
#include "table/cooldown.h"
#include "table/overrides.h"
#include "table/pool_records.h"
#include "table/region/owner.h"
#include "table/requests.h"
#include "table/slot/wide.h"

#include <assert.h>
#include <string.h>

struct repairing {
    struct asking asking;  /* ask.now_ns: no decision was later */
    uint64_t asked_max_ns; /* the latest time that a state can hold */
    bool after_crash;
    uint64_t blocks_until_ns, cooldowns_until_ns;
};

enum found {
    FOUND_WHOLE,
    FOUND_HALF_DONE, /* its owner ended at work */
    FOUND_DAMAGED,
};

/* ---- The content of a slot ------------------------------------------------------------------- */

static const void *bytes_of(const struct seen *seen)
{
    return ((const struct wide_state *)seen->state)->bytes;
}

static bool is_at_work(const struct seen *seen)
{
    return (((const struct wide_state *)seen->state)->owner & OWNER_HELD) != 0;
}

/* A slot that was published and has no state of its key yet, rather than a flipped bit. */
static bool is_new_key(const struct repairing *repairing, const struct seen *seen)
{
    assert(seen->pair.first != 0);
    const struct slots *slots = repairing->asking.slots;
    if ((seen->pair.first & TAG_PENDING) == 0)
        return false;
    if (slots->class == CLASS_16)
        return !slots_is_bound(slots, seen);
    if (slots->class == CLASS_WIDE)
        return is_at_work(seen) || wide_expires_at(seen) == 0;
    return seen->pair.second < repairing->asking.table->region.header->nonce_next;
}

/*
 * A frozen state is one that is handed from its key to itself: it holds the time until which the
 * key is full, and may outlive every state of the tag's quota, since the other quota differs.
 */
static enum found find16(const struct repairing *repairing, const struct seen *seen,
                         const struct stint_quota *quota)
{
    assert(repairing->asking.slots->class == CLASS_16);
    struct pair held = cas16_load(seen->state);
    uint64_t mark = held.second & ~STATE_MASK, generation = seen->pair.second;
    bool arrives =
        (seen->pair.first & TAG_PENDING) != 0 && mark == (state_mark(generation) | STATE_FROZEN);
    if (arrives || state_leaves(held, generation)) {
        uint64_t last_ns = add_sat(repairing->asked_max_ns, 3 * repairing->asking.table->ahead_ns);
        return held.first <= last_ns ? FOUND_WHOLE : FOUND_DAMAGED;
    }
    struct word16 word = {held.first, held.second & STATE_MASK};
    bool is_whole =
        mark == state_mark(generation) && algorithm_is_valid(quota, &word, repairing->asked_max_ns);
    return is_whole ? FOUND_WHOLE : FOUND_DAMAGED;
}

static enum found find(const struct repairing *repairing, const struct seen *seen,
                       const struct stint_quota *quota)
{
    bool is_whole;
    if (repairing->asking.slots->class == CLASS_16)
        return find16(repairing, seen, quota);
    if ((seen->pair.first & TAG_PENDING) != 0)
        return FOUND_DAMAGED;
    if (repairing->asking.slots->class == CLASS_8) {
        is_whole = algorithm_is_valid(quota, &seen->pair.second, repairing->asked_max_ns);
    } else {
        if (is_at_work(seen))
            return FOUND_HALF_DONE;
        is_whole = algorithm_is_valid(quota, bytes_of(seen), repairing->asked_max_ns);
    }
    return is_whole ? FOUND_WHOLE : FOUND_DAMAGED;
}

/* ---- Repair ---------------------------------------------------------------------------------- */

static void empty(const struct repairing *repairing, const struct seen *seen)
{
    assert(slots_has(repairing->asking.slots, seen->at));
    const struct slots *slots = repairing->asking.slots;
    bool counts = slots->class == CLASS_16 || slots->class == CLASS_WIDE;
    *seen->at = (struct pair){0, counts ? seen->pair.second + 1 : 0};
    if (slots->class == CLASS_WIDE)
        wide_free(seen, 0);
}

static void fill(struct repairing *repairing, struct seen *seen, const struct stint_quota *quota)
{
    uint64_t until_ns = add_sat(repairing->asking.ask.now_ns, quota->period_ns);
    if (quota->limit == 0 || quota->algorithm == STINT_COUNTER) { /* it cannot be full */
        empty(repairing, seen);
        return;
    }
    seen->pair.first &= ~TAG_PENDING;
    seen->at->first = seen->pair.first;
    repairing->asking.slots->ops->fill(&repairing->asking, seen, quota, until_ns);
}

/*
 * After a crash: live states are full for one period. A frozen state holds its own time. A counter
 * denies nothing: it goes on with the count that the file has.
 */
static void fill_live(struct repairing *repairing, struct seen *seen,
                      const struct stint_quota *quota)
{
    assert(repairing->after_crash);
    struct entry_state state;
    uint64_t now_ns = repairing->asking.ask.now_ns;
    struct pair *state_word = seen->state;
    if (quota->algorithm == STINT_COUNTER)
        return;
    if (repairing->asking.slots->class == CLASS_16 && (state_word->second & STATE_FROZEN) != 0) {
        state_word->first = max_u64(state_word->first, add_sat(now_ns, quota->period_ns));
        return;
    }
    bool lives = (seen->pair.first & TAG_PENDING) != 0 ||
                 (entry_read(&repairing->asking, seen, &state) &&
                  add_sat(algorithm_expires_at(state.quota, &state.as),
                          table_grace_ns(repairing->asking.table)) > now_ns);
    if (lives)
        fill(repairing, seen, quota);
}

/*
 * A process ended while a key moved to another class: the move may be complete or not, and the
 * quota is not known. So the slot stays; after a crash it is full for the longest of all periods.
 */
static void repair_frozen(struct repairing *repairing, struct seen *seen)
{
    assert(slots_is_frozen(seen->pair.first));
    struct stint_table *table = repairing->asking.table;
    const struct slots *slots = repairing->asking.slots;
    uint64_t now_ns = repairing->asking.ask.now_ns, until_ns = slots->ops->frozen_until(seen);
    uint64_t full_until_ns = add_sat(now_ns, table->ahead_ns);
    bool lives = add_sat(until_ns, table_grace_ns(table)) > now_ns;
    if (until_ns > add_sat(repairing->asked_max_ns, 3 * table->ahead_ns)) {
        table_count(&table_counters(table)->states_damaged, 1);
        until_ns = full_until_ns;
    } else if (!lives) {
        empty(repairing, seen);
        return;
    } else if (repairing->after_crash) {
        until_ns = max_u64(until_ns, full_until_ns);
    }
    struct pair *state = seen->state;
    if (slots->class == CLASS_WIDE)
        wide_free(seen, until_ns);
    else if (until_ns != slots->ops->frozen_until(seen) && slots->class == CLASS_8)
        seen->at->second = frozen8(until_ns, seen->pair.second);
    else if (until_ns != slots->ops->frozen_until(seen))
        *state = (struct pair){until_ns, state_mark(seen->pair.second) | STATE_FROZEN};
}

static void repair_slot(struct repairing *repairing, struct seen *seen)
{
    struct stint_table *table = repairing->asking.table;
    struct pair *state = seen->state;
    if (seen->pair.first == 0) {
        /* Frozen by an ended process: the next key must not count as full until that instant. */
        if (repairing->asking.slots->class == CLASS_16 && state->first != 0 &&
            state_leaves(*state, seen->pair.second))
            state->first = 0;
        return;
    }
    if (slots_is_frozen(seen->pair.first)) {
        repair_frozen(repairing, seen);
        return;
    }
    if (seen->pair.first == TAG_ABANDONED || is_new_key(repairing, seen) ||
        slots_is_given_away(repairing->asking.slots, seen)) {
        empty(repairing, seen);
        return;
    }
    const struct stint_quota *quota = entry_quota(&repairing->asking, seen->pair.first);
    if (quota == NULL) {
        table_count(&table_counters(table)->states_damaged, 1);
        empty(repairing, seen);
        return;
    }
    enum found found = find(repairing, seen, quota);
    if (found == FOUND_DAMAGED)
        table_count(&table_counters(table)->states_damaged, 1);
    if (found == FOUND_HALF_DONE)
        table_count(&table_counters(table)->owners_displaced, 1);
    if (found != FOUND_WHOLE)
        fill(repairing, seen, quota);
    else if (repairing->after_crash)
        fill_live(repairing, seen, quota);
    else if (repairing->asking.slots->class == CLASS_WIDE)
        wide_free(seen, algorithm_expires_at(quota, bytes_of(seen)));
}

/*
 * The user chooses how long a block lasts, so any time is valid; the latest is recorded. A cooldown
 * that no report can have written is removed: at worst the upstream service answers 429 once more.
 */
static void repair_block(struct repairing *repairing, const struct seen *seen)
{
    assert(repairing->asking.slots->class == CLASS_BLOCKS);
    uint64_t word = seen->pair.second, now_ns = repairing->asking.ask.now_ns;
    bool is_cooldown = (seen->pair.first & TAG_ID_MASK) == COOLDOWN_ID;
    bool has_no_end = word >> COOLDOWN_LOW_BITS == UINT64_MAX >> COOLDOWN_LOW_BITS;
    if (seen->pair.first == 0)
        return;
    if (is_new_key(repairing, seen)) {
        empty(repairing, seen);
    } else if (is_cooldown && !has_no_end && word > add_sat(now_ns, COOLDOWN_MAX_NS)) {
        empty(repairing, seen);
        table_count(&table_counters(repairing->asking.table)->states_damaged, 1);
    } else {
        uint64_t *until_ns =
            is_cooldown ? &repairing->cooldowns_until_ns : &repairing->blocks_until_ns;
        seen->at->first &= ~TAG_PENDING;
        *until_ns = max_u64(*until_ns, word);
    }
}

/* Repairs the slots of some sets; whether any of them is in use. */
static bool repair_sets(struct repairing *repairing, uint64_t begin, uint64_t end)
{
    const struct slots *slots = repairing->asking.slots;
    assert(begin <= end && end <= slots->sets);
    bool in_use = false;
    for (uint64_t set = begin; set < end; set++) {
        for (unsigned way = 0; way < WAYS; way++) {
            struct seen seen = slots_see(slots, slots->base + set * slots->set_size, way);
            if (slots->class == CLASS_BLOCKS)
                repair_block(repairing, &seen);
            else
                repair_slot(repairing, &seen);
            in_use = in_use || seen.at->first != 0;
        }
    }
    return in_use;
}

/*
 * Whether the main part has keys is decided by its slots, not by the header, which may be damaged.
 * If there are none, its pages leave this process's memory again.
 */
static void repair_class(struct repairing *repairing, enum slot_class class)
{
    assert(class < CLASSES);
    const struct region *region = &repairing->asking.table->region;
    const struct slots *slots = &repairing->asking.table->slots[class];
    repairing->asking.slots = slots;
    repair_sets(repairing, 0, slots->front);
    if (slots->front == slots->sets)
        return;
    if (repair_sets(repairing, slots->front, slots->sets)) {
        *slots->spilled = max_u64(*slots->spilled, 1);
        return;
    }
    *slots->spilled = 0;
    uint64_t offset = region->fixed.classes[class].offset;
    region_unmap_pages(region, offset + slots->front * slots->set_size,
                       (offset + slots->sets * slots->set_size) / REGION_PAGE * REGION_PAGE);
}

void table_repair(struct stint_table *table, bool after_crash)
{
    assert(table_is_valid(table));
    assert(table->region.alone && !table->region.read_only);
    struct region_header *header = table->region.header;
    struct repairing repairing = {.asking = {.table = table}, .after_crash = after_crash};
    intern_repair(&table->intern);
    table->ahead_ns = intern_period_max(&table->intern);
    repairing.asking.ask.now_ns =
        min_u64(table_latest_ns(table, region_now(&table->region)), STINT_NOW_MAX);
    repairing.asked_max_ns = entry_asked_max_ns(table, repairing.asking.ask.now_ns);
    for (int class = 0; class < CLASSES; class ++)
        repair_class(&repairing, (enum slot_class) class);
    header->blocks_until_ns = repairing.blocks_until_ns;
    header->cooldowns_until_ns = repairing.cooldowns_until_ns;
    overrides_repair(table);
    requests_repair(table);
    pool_records_repair(table);
    if (after_crash) {
        const struct region_fixed *fixed = &table->region.fixed;
        memset(region_at(&table->region, fixed->tickets_offset), 0,
               (size_t)fixed->tickets_max * TICKET_SIZE);
        header->filled++;
        table->filled = true;
    }
}
