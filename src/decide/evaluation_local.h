/* SPDX-License-Identifier: MIT */
/*
 * on_store_error: local. The share of a quota that this node decides by itself while the store of
 * its states cannot be asked: floor(N / nodes), and the remainder to those nodes that come first
 * for the key. docs/decisions/0041 proves what the nodes admit together.
 */
#ifndef STINT_DECIDE_EVALUATION_LOCAL_H
#define STINT_DECIDE_EVALUATION_LOCAL_H

#include "decide/evaluation.h"

/*
 * The share as a quota with states of its own, for question.table. Where it is nothing, or no quota
 * that can be kept, its limit is 0. False where the time for that has passed: then
 * rule.store.local_then holds, deny where there is no rule.
 *
 * A cost above the share is NEVER by it, and yet may fit the whole once the store is back.
 */
bool evaluation_local_quota(const struct evaluation_stores *stores, const struct target *target,
                            uint64_t unavailable_since_ns, uint64_t now_ns,
                            struct stint_quota *local);

/*
 * Until when the share is all used, whatever its states say: as long as what the store has admitted
 * before it went away still counts. 0 where it begins with nothing used: local_empty.
 *
 * It is told and not charged to the states, because each worker notices by itself that a store is
 * away, and may do so again while states of the last time are there.
 */
uint64_t evaluation_local_full_until(const struct target *target, uint64_t unavailable_since_ns);

/*
 * Whether a table can hold the states of a rule's shares, where it may have to be decided by them.
 * As stint_table_accepts().
 */
int evaluation_local_accepts(struct stint_table *table, const struct evaluation_stores *stores,
                             const struct rule *rule, struct stint_error *error);

#endif
