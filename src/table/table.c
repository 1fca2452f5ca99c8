/* SPDX-License-Identifier: MIT */
/* One decision on one key: time, blocks, quota, class; then the class decides. */
#include "table/table.h"

#include "base/wide_int.h"
#include "table/slot/ask.h"
#include "table/slot/rule.h"
#include "table/slot/wide.h"

#include <assert.h>

/* Whether the table has slots for states of this quota. */
static int fits(const struct stint_table *table, const struct stint_quota *quota,
                struct stint_error *error)
{
    assert(table_is_valid(table));
    if (quota->derived.checked != 1)
        return err_set(error, STINT_E_MISMATCH, "the quota was not checked: stint_quota_check()");
    const struct slots *slots = &table->slots[table_class(quota)];
    if (table->region.read_only)
        return err_set(error, STINT_E_MISMATCH, "the table was opened read-only: no decisions");
    if (quota->initial_set)
        return err_set(error, STINT_E_MISMATCH,
                       "`initial` is for caller-owned states: a table cannot tell a new key from "
                       "one long idle");
    if (slots->sets == 0 || quota->derived.state_size > slots->state_size)
        return err_set(error, STINT_E_MISMATCH,
                       "a state of this quota has %u bytes; the table was made for at most %u "
                       "(keys_wide, wide_size)",
                       quota->derived.state_size, slots->sets == 0 ? 16 : slots->state_size);
    return 0;
}

static int no_entry(uint32_t max, struct stint_error *error)
{
    assert(max > 0);
    return err_set(error, STINT_E_FULL,
                   "all %u places of different quotas are in use; ask with one of those quotas, or "
                   "with gcra, or make the table with more (`quotas`)",
                   max);
}

static int accept_quota(struct stint_table *table, const struct stint_quota *quota,
                        uint32_t (*id_of)(struct intern *intern, const struct stint_quota *quota),
                        uint32_t max, struct stint_error *error)
{
    int code = fits(table, quota, error);
    return code == 0 && id_of(&table->intern, quota) == 0 ? no_entry(max, error) : code;
}

int table_stores(struct stint_table *table, const struct stint_quota *quota,
                 struct stint_error *error)
{
    return accept_quota(table, quota, intern_id, table->intern.max - table->intern.reserved, error);
}

int table_keeps(struct stint_table *table, const struct stint_quota *quota,
                struct stint_error *error)
{
    return accept_quota(table, quota, intern_keep, table->intern.max, error);
}

int stint_table_accepts(struct stint_table *table, const struct stint_quota *quota,
                        struct stint_error *error)
{
    return accept_quota(table, quota, intern_entry_id, table->intern.max - table->intern.reserved,
                        error);
}

void table_reserve_quotas(struct stint_table *table)
{
    assert(table_is_valid(table));
    table->intern.reserved = table->intern.max / 4;
}

int table_accepts(struct stint_table *table, const struct stint_quota *quota, size_t key_len,
                  struct stint_error *error)
{
    if (key_len > STINT_KEY_MAX)
        return err_set(error, STINT_E_RANGE, "the key has %zu bytes; at most %d are allowed",
                       key_len, STINT_KEY_MAX);
    return stint_table_accepts(table, quota, error);
}

/* For reading a key in a class; false if the table has no slots of it. */
static bool look_in_class(struct asking *asking, struct stint_table *table, int class,
                          struct hash128 hash)
{
    assert(class < CLASSES);
    asking->table = table;
    asking->slots = &table->slots[class];
    asking->hash = hash;
    if (asking->slots->sets > 0)
        asking->home = slots_home(asking->slots, hash);
    return asking->slots->sets > 0;
}

static bool start(struct asking *asking, struct stint_table *table, const struct stint_quota *quota,
                  struct hash128 hash)
{
    assert(table_is_valid(table));
    if (table->region.read_only || !look_in_class(asking, table, (int)table_class(quota), hash) ||
        quota->derived.state_size > asking->slots->state_size)
        return false;
    asking->id = intern_id(&table->intern, quota);
    asking->quota = intern_algorithm(&table->intern, asking->id, quota);
    asking->rule = quota->rule;
    return asking->quota != NULL;
}

/* The class decides at the effective time; waits are relative to the caller's own. */
static struct stint_decision decide(struct asking *asking, const struct stint_ask *ask,
                                    uint64_t effective_ns)
{
    assert(asking_decides(asking));
    assert(effective_ns >= ask->now_ns);
    uint64_t ahead_ns = effective_ns - ask->now_ns;
    struct stint_decision decision;
    asking->ask = *ask;
    asking->ask.now_ns = effective_ns;
    if (ask->verb == STINT_BOOK)
        asking->ask.at_ns = sub_floor(ask->at_ns, ahead_ns);
    decision = ask_slots(asking);
    ahead_ns = asking->ask.now_ns - ask->now_ns;
    if (ahead_ns > 0) {
        if (decision.retry_after_ns != 0)
            decision.retry_after_ns = add_sat(decision.retry_after_ns, ahead_ns);
        if (decision.reset_after_ns != 0)
            decision.reset_after_ns = add_sat(decision.reset_after_ns, ahead_ns);
    }
    return decision;
}

static bool ends_at(uint64_t until_ns, const struct stint_quota *quota, const struct stint_ask *ask,
                    struct stint_decision *decision)
{
    assert(quota->derived.checked);
    bool asks = ask->verb == STINT_TAKE || ask->verb == TABLE_TAKE_OF_LIST ||
                ask->verb == STINT_TAKE_UPTO || ask->verb == STINT_PEEK || ask->verb == STINT_BOOK;
    if (until_ns <= ask->now_ns || !asks || ask->cost == 0)
        return false;
    uint64_t wait_ns = until_ns - ask->now_ns;
    uint32_t capacity = most_units(quota);
    if (ask->cost > capacity && ask->verb != STINT_TAKE_UPTO)
        *decision = algorithm_never(capacity);
    else
        *decision = algorithm_deny_for(capacity, wait_ns);
    decision->stored = decision->outcome == STINT_DENY;
    return true;
}

void table_wait_for_state(struct stint_table *table, const struct stint_quota *quota,
                          struct hash128 hash, const struct stint_ask *ask,
                          struct stint_decision *decision)
{
    assert(table_is_valid(table) && quota->derived.checked);
    struct asking asking = {.undo = NULL};
    const struct stint_ask peek = {.now_ns = ask->now_ns,
                                   .cost = ask->verb == STINT_TAKE_UPTO ? 1 : ask->cost,
                                   .verb = STINT_PEEK};
    if (decision->outcome != STINT_DENY || ask->now_ns > STINT_NOW_MAX ||
        !start(&asking, table, quota, hash))
        return;
    struct stint_decision state = decide(&asking, &peek, table_effective_peek(table, ask->now_ns));
    if (state.outcome != STINT_DENY)
        return;
    uint64_t accepted_ns = ask->verb == STINT_BOOK ? ask->at_ns : 0;
    decision->retry_after_ns =
        max_u64(decision->retry_after_ns, sub_floor(state.retry_after_ns, accepted_ns));
    decision->reset_after_ns = max_u64(decision->reset_after_ns, state.reset_after_ns);
}

struct stint_decision table_ask_hash(struct stint_table *table, const struct stint_quota *quota,
                                     struct hash128 hash, const struct stint_ask *ask,
                                     struct undo *undo, uint64_t *holder)
{
    assert(table_is_valid(table));
    assert(quota->derived.checked);
    struct asking asking = {.undo = undo, .holder = holder};
    struct stint_decision decision;
    if (undo != NULL)
        *undo = (struct undo){.at = NULL, .entered_ns = ask->now_ns};
    if (ask->now_ns > STINT_NOW_MAX || !start(&asking, table, quota, hash))
        return algorithm_never(0);
    uint64_t effective_ns = table_effective_for(table, ask->verb, ask->now_ns);
    if (table_has_blocks(table, ask->now_ns) &&
        ends_at(table_blocked_until(table, hash), asking.quota, ask, &decision)) {
        table_wait_for_state(table, quota, hash, ask, &decision);
        return decision;
    }
    /*
     * What has flowed back since a grant cannot be refunded. A caller whose clock is behind would
     * subtract too little, and get units that others have used since. A counter has no units: it
     * lives or has expired at the same time for amounts of either sign.
     */
    if ((ask->verb == STINT_REFUND || ask->verb == STINT_UNBOOK) &&
        quota->algorithm != STINT_COUNTER)
        effective_ns = min_u64(max_u64(effective_ns, table_mark(table)), STINT_NOW_MAX);
    struct stint_ask careful = *ask;
    struct stint_quota uncounted;
    if (ask->verb == TABLE_TAKE_OF_LIST) {
        uncounted = *asking.quota;
        uncounted.count_denied = false;
        asking.quota = &uncounted;
        careful.verb = STINT_TAKE;
    }
    decision = decide(&asking, &careful, effective_ns);
    if (undo != NULL)
        undo->entered_ns = max_u64(asking.ask.now_ns, asking.own_ns);
    /* cppcheck-suppress returnDanglingLifetime ; a decision has no pointers */
    return decision;
}

struct stint_decision table_ask(struct stint_table *table, const struct stint_quota *quota,
                                const void *key, size_t key_len, const struct stint_ask *ask,
                                struct undo *undo, uint64_t *holder)
{
    assert(table_is_valid(table));
    struct stint_decision decision;
    struct hash128 hash;
    if (undo != NULL)
        *undo = (struct undo){.at = NULL, .entered_ns = ask->now_ns};
    if (key_len > STINT_KEY_MAX || quota->derived.checked != 1 || quota->initial_set)
        return algorithm_never(0);
    hash = table_hash(table, quota, key, key_len);
    if (table_has_blocks(table, ask->now_ns) &&
        ends_at(table_blocked_until(table, table_block_hash(table, key, key_len)), quota, ask,
                &decision)) {
        table_wait_for_state(table, quota, hash, ask, &decision);
        return decision;
    }
    return table_ask_hash(table, quota, hash, ask, undo, holder);
}

CAS16_TARGET bool table_undo(const struct undo *undo)
{
    return undo->at != NULL && cas16(undo->at, undo->after, undo->before);
}

bool table_holder(struct stint_table *table, const struct stint_quota *quota, struct hash128 hash,
                  uint64_t now_ns, uint64_t *holder, uint32_t *units)
{
    assert(table_is_valid(table));
    struct asking asking = {.undo = NULL};
    if (quota->algorithm != STINT_CONCURRENCY || now_ns > STINT_NOW_MAX ||
        !start(&asking, table, quota, hash))
        return false;
    asking.ask.now_ns = table_effective_now(table, now_ns);
    return wide_holder(&asking, holder, units);
}

/* Whether a state under this quota, or under its rule, may stand in a class. */
static bool may_fall_back(const struct stint_quota *quota, int class)
{
    return quota->rule != 0 || class == (int)table_class(quota);
}

static void forget_in_class(struct asking *asking)
{
    assert(slots_is_home(asking->slots, &asking->home));
    for (;;) {
        struct seen seen = slots_find(asking->slots, &asking->home);
        bool pending = (seen.pair.first & TAG_PENDING) != 0;
        if (seen.at == NULL || (pending && !slots_is_frozen(seen.pair.first)))
            return;
        if (asking->slots->class == CLASS_WIDE && !pending) {
            wide_forget(asking);
            return;
        }
        if (slots_withdraw(asking->slots, &seen))
            return;
    }
}

void table_forget(struct stint_table *table, const struct stint_quota *quota, struct hash128 hash)
{
    assert(table_is_valid(table));
    struct asking asking = {.undo = NULL};
    for (int class = CLASS_8; class <= CLASS_WIDE; class ++)
        if (may_fall_back(quota, class) && look_in_class(&asking, table, class, hash))
            forget_in_class(&asking);
}

/*
 * Charges runs to the key's state under `to`, ignoring any block. False if it has no slot. A run
 * may be dated later than any now so far (the end of its slot): it is charged at the latest time
 * known then, and the mark stays. A caller that could move the mark to the future could make states
 * of others expire.
 */
static bool charge_runs(const struct rule_move *move, const struct stint_quota *to,
                        struct hash128 hash)
{
    assert(move->n_runs <= HELD_RUNS_MAX);
    struct stint_table *table = move->from.table;
    uint64_t mark_ns = table_mark(table), latest_ns = max_u64(move->from.ask.now_ns, mark_ns);
    uint64_t earliest_ns = sub_floor(mark_ns, table->region.fixed.skew_max_ns);
    /* Under a limit of 0 every unit is denied already, and none is counted. */
    size_t n_runs = to->limit > 0 ? move->n_runs : 0;
    for (size_t i = 0; i < n_runs; i++) {
        struct asking asking = {.undo = NULL};
        struct stint_ask ask = algorithm_carry_ask(to, &move->runs[i]);
        if (!start(&asking, table, to, hash))
            return false;
        ask.now_ns = min_u64(ask.now_ns, latest_ns);
        if (decide(&asking, &ask, max_u64(ask.now_ns, earliest_ns)).stored == 0)
            return false;
    }
    return true;
}

/* Freezes the key's slot in a class; NONE and REFUSED: there is nothing to carry, or it stays. */
static enum carry pick_up(struct rule_move *move)
{
    struct asking *asking = &move->from;
    assert(asking_is_valid(asking));
    struct stint_table *table = asking->table;
    uint64_t now_ns = asking->ask.now_ns;
    for (;;) {
        move->valid = slots_find(asking->slots, &asking->home);
        bool pending = (move->valid.pair.first & TAG_PENDING) != 0;
        if (move->valid.at != NULL && pending && slots_is_bound(asking->slots, &move->valid)) {
            if (!rule_waits(asking, &move->valid))
                return CARRY_REFUSED;
            continue;
        }
        if (move->valid.at == NULL || pending)
            return asking->slots->class == CLASS_WIDE &&
                           table_blocked_until(table, asking->hash) > now_ns
                       ? CARRY_REFUSED /* it was left to a stuck owner */
                       : CARRY_NONE;
        if (!entry_read(asking, &move->valid, &move->state)) {
            if (!entry_get_past(asking, &move->valid))
                return CARRY_REFUSED;
            continue;
        }
        move->n_runs = algorithm_held(move->state.quota, &move->state.as, now_ns,
                                      table_latest_ns(table, now_ns), move->runs);
        if (rule_freeze(move))
            return CARRY_DONE;
    }
}

static enum carry carry_from_class(struct rule_move *move, const struct stint_quota *to,
                                   struct hash128 to_hash)
{
    enum carry carried = pick_up(move);
    if (carried != CARRY_DONE)
        return carried;
    if (!charge_runs(move, to, to_hash)) {
        rule_put_back(move);
        return CARRY_REFUSED;
    }
    rule_arrived(move);
    return CARRY_DONE;
}

enum carry table_carry(struct stint_table *table, const struct stint_quota *from,
                       struct hash128 from_hash, const struct stint_quota *to,
                       struct hash128 to_hash, uint64_t now_ns)
{
    assert(table_is_valid(table));
    enum carry worst = CARRY_NONE;
    if (from_hash.lo == to_hash.lo && from_hash.hi == to_hash.hi)
        return CARRY_NONE; /* the next charge does it */
    for (int class = CLASS_8; class <= CLASS_WIDE; class ++) {
        struct rule_move move;
        move.from = (struct asking){.ask = {.now_ns = now_ns}};
        if (!may_fall_back(from, class) || !look_in_class(&move.from, table, class, from_hash))
            continue;
        enum carry carried = carry_from_class(&move, to, to_hash);
        worst = carried > worst ? carried : worst;
    }
    return worst;
}
