/* SPDX-License-Identifier: MIT */
/* Keys that are blocked, by an administrator or for repeated denials. */
#include "decide/evaluation_parts.h"

#include "base/wide_int.h"
#include "rules/ban.h"
#include "table/cooldown.h"

static bool has_ban(const struct target *target)
{
    return target->rule != NULL && target->rule->ban.after > 0;
}

/* The latest end of all that blocks the key; 0: not blocked. */
static uint64_t blocked_until(struct evaluation *evaluation, const struct target *target)
{
    struct stint_table *table = evaluation->table;
    uint64_t now_ns = evaluation->now_ns, until_ns = 0;
    if (has_ban(target))
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

/* The results of the first run of the request: bans may have been added since. */
static void recall_blocks(struct evaluation *evaluation, const union pending_result *notes)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (notes[i].blocked_until_ns > 0)
            deny_until(evaluation, &evaluation->targets[i], notes[i].blocked_until_ns);
}

static bool any_may_be_blocked(const struct evaluation *evaluation)
{
    return table_has_blocks(evaluation->table, evaluation->now_ns) ||
           cooldown_any(evaluation->table, evaluation->now_ns);
}

static void find_blocks(struct evaluation *evaluation, union pending_result *notes)
{
    if (!any_may_be_blocked(evaluation))
        return;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        bool asks_nothing = target->cost == 0 && target->hits != TARGET_HITS_CHECK;
        if (!target_asks(target) || asks_nothing)
            continue;
        uint64_t until_ns = blocked_until(evaluation, target);
        if (until_ns > 0)
            deny_until(evaluation, target, until_ns);
        if (notes != NULL)
            notes[i].blocked_until_ns = until_ns;
    }
}

/* Whether there are no blocks, now and in the first run of the request. */
static bool knows_of_no_blocks(const struct evaluation *evaluation)
{
    struct pending *pending = evaluation->pending;
    if (pending->blocks == PENDING_BLOCKS_UNKNOWN)
        pending->blocks =
            any_may_be_blocked(evaluation) ? PENDING_BLOCKS_NOTED : PENDING_BLOCKS_NONE;
    return pending->blocks == PENDING_BLOCKS_NONE;
}

void evaluation_find_blocks(struct evaluation *evaluation)
{
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
        find_blocks(evaluation, notes);
    else
        recall_blocks(evaluation, notes);
}

/* Once for a request, however often it runs. */
static struct ban_made count_denial(struct evaluation *evaluation, const struct target *target)
{
    bool is_new;
    union pending_result space, *note;
    note = evaluation_note(evaluation, PENDING_BAN, 1, &space, &is_new);
    if (note == NULL)
        return (struct ban_made){0};
    if (is_new)
        note->ban = ban_count(evaluation->table, target->rule, target->key, evaluation->now_ns);
    return note->ban;
}

void evaluation_count_denials(struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        /* Blocked already: more denials never extend a ban. NEVER does not depend on repetition. */
        if (!target_asks(target) || !has_ban(target) || !target->over || target->banned ||
            target->decision.outcome != STINT_DENY || target->hits == TARGET_HITS_CHARGE)
            continue; /* a charge means that it was served */
        struct ban_made made = count_denial(evaluation, target);
        evaluation->bans_lost += made.is_lost;
        if (made.until_ns == 0)
            continue;
        uint64_t own_wait_ns = target->decision.retry_after_ns;
        deny_until(evaluation, target, made.until_ns);
        target->decision.retry_after_ns = max_u64(target->decision.retry_after_ns, own_wait_ns);
        target->made_ban = true;
    }
}

int evaluation_block(struct evaluation *evaluation, uint64_t for_ns)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_FREE)
            continue;
        int code = stint_block(evaluation->table, target->key.ptr, target->key.len,
                               add_sat(evaluation->now_ns, for_ns), evaluation->now_ns);
        if (code != 0)
            return code;
    }
    return 0;
}

static void reset_in_store(struct evaluation *evaluation, struct target *target)
{
    const struct stint_ask ask = {.now_ns = evaluation->now_ns, .verb = BACKEND_RESET};
    evaluation_ask_store(evaluation, target, target->quota, &ask);
    if (target->rule != NULL && target->rule->has_shadow)
        evaluation_ask_store(evaluation, target, &target->rule->shadow, &ask);
}

void evaluation_reset(struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_FREE)
            continue;
        if (target->store != 0)
            reset_in_store(evaluation, target);
        stint_reset(evaluation->table, target->quota, target->key.ptr, target->key.len,
                    evaluation->now_ns);
        if (target->rule != NULL && target->rule->has_shadow)
            stint_reset(evaluation->table, &target->rule->shadow, target->key.ptr, target->key.len,
                        evaluation->now_ns);
        if (has_ban(target))
            ban_lift(evaluation->table, target->rule, target->key, evaluation->now_ns);
    }
}
