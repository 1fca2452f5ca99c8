/* SPDX-License-Identifier: MIT */
/* Blocks and bans of the keys of an evaluation: what they deny, and which denials count. */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"
#include "rules/ban.h"
#include "table/cooldown.h"

#include <assert.h>

/* The latest end of all that blocks the key; 0: not blocked. */
static uint64_t blocked_until(struct evaluation *evaluation, const struct target *target)
{
    assert(target_asks(target));
    struct stint_table *table = evaluation->table;
    uint64_t now_ns = evaluation->now_ns, until_ns = 0;
    if (target_has_ban(target))
        until_ns = ban_until(table, target->rule, target->key, now_ns);
    if (table_has_blocks(table, now_ns) && target->key.len <= STINT_KEY_MAX) {
        struct hash128 hash = table_block_hash(table, target->key.ptr, target->key.len);
        until_ns = max_u64(until_ns, table_blocked_until(table, hash));
    }
    return until_ns > now_ns ? until_ns : 0;
}

static void deny_until(const struct evaluation *evaluation, struct target *target,
                       uint64_t until_ns)
{
    assert(target->quota != NULL && until_ns > evaluation->now_ns);
    uint32_t capacity = most_units(target->quota);
    uint64_t wait_ns = until_ns - evaluation->now_ns;
    target->banned = true;
    target->over = true;
    if (target->cost > capacity)
        target->decision = algorithm_never(capacity);
    else
        target->decision = (struct stint_decision){.outcome = STINT_DENY,
                                                   .stored = 1,
                                                   .limit = capacity,
                                                   .retry_after_ns = wait_ns,
                                                   .reset_after_ns = wait_ns};
}

/*
 * The same for a key whose state was not asked: it may deny for longer. That of a store is not
 * worth a request. `about`: verb, and the accepted wait of a booking.
 */
static void deny_blocked(struct evaluation *evaluation, struct target *target,
                         const struct stint_ask *about, uint64_t until_ns)
{
    assert(until_ns > evaluation->now_ns);
    struct stint_table *table = evaluation->table;
    const struct stint_ask ask = {.now_ns = evaluation->now_ns,
                                  .at_ns = about->at_ns,
                                  .cost = target->cost,
                                  .verb = about->verb};
    deny_until(evaluation, target, until_ns);
    if (target->store == 0)
        table_wait_for_state(table, target->quota,
                             table_hash(table, target->quota, target->key.ptr, target->key.len),
                             &ask, &target->decision);
}

/* The results of the first run of the request: bans may have been added since. */
static void recall_blocks(struct evaluation *evaluation, const struct stint_ask *about,
                          const union pending_result *notes)
{
    assert(notes != NULL);
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (notes[i].blocked_until_ns > 0)
            deny_blocked(evaluation, &evaluation->targets[i], about, notes[i].blocked_until_ns);
}

static bool any_may_be_blocked(const struct evaluation *evaluation)
{
    return table_has_blocks(evaluation->table, evaluation->now_ns) ||
           cooldown_any(evaluation->table, evaluation->now_ns);
}

static void find_blocks(struct evaluation *evaluation, const struct stint_ask *about,
                        union pending_result *notes)
{
    assert((notes != NULL) == (evaluation->pending != NULL));
    if (!any_may_be_blocked(evaluation))
        return;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        bool asks_nothing = target->cost == 0 && target->hits != TARGET_HITS_CHECK;
        if (!target_asks(target) || asks_nothing)
            continue;
        uint64_t until_ns = blocked_until(evaluation, target);
        if (until_ns > 0)
            deny_blocked(evaluation, target, about, until_ns);
        if (notes != NULL)
            notes[i].blocked_until_ns = until_ns;
    }
}

/* Whether there are no blocks, now and in the first run of the request. */
static bool knows_of_no_blocks(const struct evaluation *evaluation)
{
    assert(evaluation->pending != NULL);
    struct pending *pending = evaluation->pending;
    if (pending->blocks == PENDING_BLOCKS_UNKNOWN)
        pending->blocks =
            any_may_be_blocked(evaluation) ? PENDING_BLOCKS_NOTED : PENDING_BLOCKS_NONE;
    return pending->blocks == PENDING_BLOCKS_NONE;
}

void evaluation_find_blocks(struct evaluation *evaluation, uint8_t verb, uint64_t max_wait_ns)
{
    assert(evaluation_is_valid(evaluation));
    const struct stint_ask about = {.verb = verb, .at_ns = max_wait_ns};
    bool is_new = true;
    union pending_result *notes = NULL;
    if (evaluation->pending != NULL) {
        if (knows_of_no_blocks(evaluation))
            return;
        notes = pending_note(evaluation->pending, PENDING_BLOCKED_UNTIL, evaluation->n_targets,
                             &is_new);
        if (notes == NULL)
            return;
    }
    if (is_new)
        find_blocks(evaluation, &about, notes);
    else
        recall_blocks(evaluation, &about, notes);
}

/* Once for a request, however often it runs. */
static struct ban_made count_for_ban(struct evaluation *evaluation, const struct target *target)
{
    assert(target->over && target_has_ban(target));
    bool is_new;
    union pending_result space, *note;
    note = evaluation_note(evaluation, PENDING_BAN, 1, &space, &is_new);
    if (note == NULL)
        return (struct ban_made){0};
    if (is_new)
        note->ban = ban_count(evaluation->table, target->rule, target->key, evaluation->now_ns);
    return note->ban;
}

/* After a denial: counts it for the bans of the rules that denied. */
void evaluation_count_denials(struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        /* Blocked already: more denials never extend a ban. NEVER does not depend on repetition. */
        if (!target_asks(target) || !target_has_ban(target) || !target->over || target->banned ||
            target->decision.outcome != STINT_DENY || target->hits == TARGET_HITS_CHARGE)
            continue; /* a charge means that it was served */
        struct ban_made made = count_for_ban(evaluation, target);
        evaluation->bans_lost += made.is_lost;
        if (made.until_ns == 0)
            continue;
        uint64_t own_wait_ns = target->decision.retry_after_ns;
        deny_until(evaluation, target, made.until_ns);
        target->decision.retry_after_ns = max_u64(target->decision.retry_after_ns, own_wait_ns);
        target->made_ban = true;
    }
}
