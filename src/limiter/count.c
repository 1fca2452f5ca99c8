/* SPDX-License-Identifier: MIT */
/* Counters that expire: one slot of the table each, under the quota that all counters share. */
#include "table/table.h"

#include "algorithm/expiring_counter.h"
#include "base/wide_int.h"

#include <assert.h>

static struct stint_counter seen_from(struct counter_value value, uint64_t now_ns)
{
    return (struct stint_counter){.count = value.count,
                                  .expires_after_ns = sub_floor(value.expires_at_ns, now_ns)};
}

/* Nothing is written, so that a table opened read-only can be read, too. */
static struct stint_counter look(struct stint_table *table, const void *key, size_t key_len,
                                 uint64_t now_ns)
{
    struct stint_entry entry;
    uint64_t effective_ns = table_effective_peek(table, now_ns);
    struct counter_value value = {0, 0};
    if (stint_find(table, &table->counters, key, key_len, effective_ns, &entry) == STINT_OK)
        value = (struct counter_value){entry.count, entry.expires_at_ns};
    return seen_from(value, now_ns);
}

/* The swap that counted has the state after it, and so the count that is this caller's alone. */
static int move(struct stint_table *table, const void *key, size_t key_len,
                const struct stint_ask *ask, struct stint_counter *counter,
                struct stint_error *error)
{
    struct undo swap;
    struct stint_decision decision =
        table_ask(table, &table->counters, key, key_len, ask, &swap, NULL);
    assert(decision.outcome == STINT_ALLOW || decision.granted == 0);
    if (decision.outcome == STINT_NEVER) /* counters have no limit */
        return err_set(error, STINT_E_CORRUPT,
                       "nothing was counted: the table is damaged where it keeps the quota of its "
                       "counters; replace it, or its file by a copy");
    if (ask->verb == STINT_CHARGE && decision.stored == 0)
        return err_set(error, STINT_E_FULL,
                       "no slot is free for a new counter: the table is full of states that stay; "
                       "make it larger (keys16)");
    if (swap.at != NULL) {
        struct word16 after = {swap.after.first, swap.after.second & STATE_MASK};
        *counter = seen_from(counter_at(&after, 0), ask->now_ns);
    } else {
        *counter = look(table, key, key_len, ask->now_ns);
    }
    return STINT_OK;
}

int stint_count(struct stint_table *table, const void *key, size_t key_len, int64_t amount,
                uint64_t expiry_ns, uint64_t now_ns, struct stint_counter *counter,
                struct stint_error *error)
{
    assert(table_is_valid(table) && counter != NULL);
    *counter = (struct stint_counter){0, 0};
    int code = counter_check_ask(key_len, amount, expiry_ns, error);
    if (code == STINT_OK && now_ns > STINT_NOW_MAX)
        code = err_set(error, STINT_E_RANGE, "the time %llu ns is later than STINT_NOW_MAX",
                       (unsigned long long)now_ns);
    if (code == STINT_OK && amount == 0) {
        *counter = look(table, key, key_len, now_ns);
        return STINT_OK;
    }
    if (code == STINT_OK)
        code = table_stores(table, &table->counters, error);
    if (code == STINT_E_FULL)
        code = table_keeps(table, &table->counters, error);
    if (code != STINT_OK)
        return code;
    struct stint_ask ask = counter_ask_of(amount, expiry_ns, now_ns);
    return move(table, key, key_len, &ask, counter, error);
}

int stint_count_reset(struct stint_table *table, const void *key, size_t key_len,
                      struct stint_error *error)
{
    assert(table_is_valid(table));
    int code = counter_check_ask(key_len, 0, 0, error);
    if (code != STINT_OK)
        return code;
    if (table->region.read_only)
        return err_set(error, STINT_E_MISMATCH, "the table was opened read-only: nothing changes");
    table_forget(table, &table->counters, table_hash(table, &table->counters, key, key_len));
    return STINT_OK;
}
