/* SPDX-License-Identifier: MIT */
/*
 * on_store_error: local. The share of a quota that this node decides by itself while the store of
 * its states is unavailable: floor(N / nodes), and the remainder to those nodes that come first for
 * the key. docs/decisions/0041 proves what the nodes admit together.
 */
#ifndef STINT_DECIDE_EVALUATION_LOCAL_H
#define STINT_DECIDE_EVALUATION_LOCAL_H

#include "decide/evaluation.h"

/*
 * The share as a quota with states of its own, for evaluation.table. Its limit is 0 where the share
 * is nothing, or no quota that can be kept. False where the time for it has passed: then
 * rule.store.local_then applies, deny where there is no rule.
 *
 * A cost above the share never fits it, and yet may fit the whole once the store is back.
 */
bool evaluation_local_quota(const struct evaluation_stores *stores, const struct target *target,
                            uint64_t unavailable_since_ns, uint64_t now_ns,
                            struct stint_quota *local);

/*
 * Until when the share counts as used up, whatever its states hold: as long as units that the store
 * admitted before the failure still count. 0 where the share begins unused: local_empty.
 *
 * It is returned and not charged to the states, because each worker notices by itself that a store
 * is unavailable, and may do so again while states of the last time exist.
 */
uint64_t evaluation_local_full_until(const struct target *target, uint64_t unavailable_since_ns);

/*
 * Whether a table can hold the states of a rule's shares, where local decisions may need them. As
 * stint_table_accepts().
 */
int evaluation_local_accepts(struct stint_table *table, const struct evaluation_stores *stores,
                             const struct rule *rule, struct stint_error *error);

#endif
