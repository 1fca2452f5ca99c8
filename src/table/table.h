/* SPDX-License-Identifier: MIT */
/*
 * A table: one region, and one decision at a time on one key of it. The limiter handles several
 * keys or several verbs together.
 */
#ifndef STINT_TABLE_TABLE_H
#define STINT_TABLE_TABLE_H

#include "table/slot/asking.h"

/* From now on only table_keeps() uses the last quarter of the entries, in this process. */
void table_reserve_quotas(struct stint_table *table);

/*
 * As stint_table_accepts(), for other callers. table_keeps() is for quotas of the operator: a new
 * one may use a reserved entry. table_stores() is for requests that carry their own quota and get
 * no ticket: a gcra quota is stored without an entry where none is free.
 */
int table_keeps(struct stint_table *table, const struct stint_quota *quota,
                struct stint_error *error);
int table_stores(struct stint_table *table, const struct stint_quota *quota,
                 struct stint_error *error);

/* stint_table_accepts(), and STINT_E_RANGE for a key that is too long. */
int table_accepts(struct stint_table *table, const struct stint_quota *quota, size_t key_len,
                  struct stint_error *error);

/* A verb beside those of stint.h: a take whose refusal is not charged, not even by count_denied. */
#define TABLE_TAKE_OF_LIST 8

/*
 * Decides. `ask->now_ns` is the caller's; waits in the decision are relative to it. NEVER for a
 * quota that table_stores() refuses.
 */
struct stint_decision table_ask(struct stint_table *table, const struct stint_quota *quota,
                                const void *key, size_t key_len, const struct stint_ask *ask,
                                struct undo *undo, uint64_t *holder);
/* The same for a key whose hash is known and whose blocks were checked. */
struct stint_decision table_ask_hash(struct stint_table *table, const struct stint_quota *quota,
                                     struct hash128 hash, const struct stint_ask *ask,
                                     struct undo *undo, uint64_t *holder);
/* A denial by a block lasts as long as the state denies too, if that is longer. */
void table_wait_for_state(struct stint_table *table, const struct stint_quota *quota,
                          struct hash128 hash, const struct stint_ask *ask,
                          struct stint_decision *decision);
/* A take of a key whose hash is known, by the fast path where possible. */
struct stint_decision table_take_hash(struct stint_table *table, const struct stint_quota *quota,
                                      struct hash128 hash, uint32_t cost, uint64_t now_ns);

/* A lookup: the key, and where it is searched for. */
struct taking {
    const struct stint_quota *quota; /* the caller's */
    const struct stint_quota *copy;  /* this table's own, or the caller's: intern_algorithm() */
    const struct slots *slots;
    struct hash128 hash;
    struct near near;
    uint64_t tag_word; /* of a valid slot under this very quota */
};
/*
 * A take in two steps, for callers that charge several keys or none: the decision, and the swap
 * that charges it, which fails if the state has changed since. Only for a table without blocks and
 * a time that is its effective one. False: only table_ask_hash() decides.
 */
bool table_set_out(struct taking *taking, struct stint_table *table,
                   const struct stint_quota *quota, struct hash128 hash); /* prefetches */
bool table_plan(const struct taking *taking, uint32_t cost, uint64_t now_ns, struct undo *plan,
                struct stint_decision *decision);
bool table_carry_out(const struct undo *plan);

/* Restores the bits from before, if the state is still as that charge left it. */
bool table_undo(const struct undo *undo);

/*
 * concurrency, by the value that take returned: releases its units, and sets *units; or, where
 * `units` is NULL, renews its lease, and sets *holder.
 */
bool table_holder(struct stint_table *table, const struct stint_quota *quota, struct hash128 hash,
                  uint64_t now_ns, uint64_t *holder, uint32_t *units);

/* Replaces the key's state under a quota, or its rule, by one that was never used. */
void table_forget(struct stint_table *table, const struct stint_quota *quota, struct hash128 hash);

enum carry {
    CARRY_NONE, /* there is no such state */
    CARRY_DONE,
    CARRY_REFUSED, /* there is, and it stays: no slot for the other, or its owner is at work */
};

/*
 * Freezes a key's state (slot/rule.h), charges what it still holds to the key's state under `to`,
 * and forgets it. Others wait meanwhile, or are denied, and see no unit twice or missing. Within
 * one rule the next charge does all this itself.
 */
enum carry table_carry(struct stint_table *table, const struct stint_quota *from,
                       struct hash128 from_hash, const struct stint_quota *to,
                       struct hash128 to_hash, uint64_t now_ns);

/*
 * The decision of a peek of left + 1 units if no more than `left` were free: on a copy of the key's
 * state, from which the other units are taken first. For reports of takes that were not made.
 */
struct stint_decision table_foresee(struct stint_table *table, const struct stint_quota *quota,
                                    struct hash128 hash, uint32_t left, uint64_t now_ns);

/* Blocks: docs/semantics.md, 3.7. Each key, or one key under one rule, by its hash. */
int table_block(struct stint_table *table, struct hash128 hash, uint64_t until_ns, uint64_t now_ns);
void table_unblock(struct stint_table *table, struct hash128 hash);
uint64_t table_blocked_until(const struct stint_table *table, struct hash128 hash);
struct hash128 table_block_hash(const struct stint_table *table, const void *key, size_t key_len);

/*
 * As stint_table_info(), for callers that need it every second: live states are counted in at most
 * sets_max sets of each class, and extrapolated.
 */
void table_metrics(const struct stint_table *table, uint64_t now_ns, uint64_t sets_max,
                   struct stint_table_info *info);

/* For a sole user of the table, before any decision. after_crash: live states are full. */
void table_repair(struct stint_table *table, bool after_crash);

#endif
