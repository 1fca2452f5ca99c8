/* SPDX-License-Identifier: MIT */
/*
 * `stint replay --rules --store`: the rules decided by a shared store, in the time of the events.
 * Quotas, candidates and shadows of every rule are evaluated there, whatever store it names. Rules
 * with `store: none`, and bans, are in a table of this run.
 */
#ifndef STINT_CMD_REPLAY_REPLAY_RULES_STORE_H
#define STINT_CMD_REPLAY_REPLAY_RULES_STORE_H

#include "cmd/replay/replay_rules.h"
#include "cmd/store/store_given.h"

struct replay_rules_store;

/*
 * `table` gives the options of the engine's table. STINT_E_MISMATCH or STINT_E_RANGE, with the
 * rule, if the store does not accept one of the quotas.
 */
int replay_rules_store_open(struct replay_rules_store **store, struct replay_rules *rules,
                            const struct store_given *given,
                            const struct stint_table_options *table, struct stint_error *error);
void replay_rules_store_close(struct replay_rules_store *store); /* NULL is fine */

/* STINT_E_GONE: the store did not answer. */
int replay_rules_store_decide(struct replay_rules_store *store, struct replay_rules *rules,
                              const struct replay_rules_event *event,
                              struct stint_decision *decision, struct stint_error *error);
/* The last event's request, as the store has decided it. */
const struct evaluation *replay_rules_store_evaluation(const struct replay_rules_store *store);

/* Deletes the keys of this run. STINT_E_GONE: some may be left. */
int replay_rules_store_clean(struct replay_rules_store *store, struct replay_rules *rules,
                             const struct key_set *names, struct stint_error *error);

const char *replay_rules_store_prefix(const struct replay_rules_store *store);
uint64_t replay_rules_store_ns(const struct replay_rules_store *store); /* time spent waiting */
bool replay_rules_store_has_detoured(const struct replay_rules_store *store);

#endif
