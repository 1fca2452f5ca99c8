/* SPDX-License-Identifier: MIT */
/*
 * Bans: a key that a rule has denied `after` times within a time is blocked for a while, and each
 * time in turn for longer. docs/decisions/0017.
 *
 * Denials are counted as units of a strict window of the rule's own, beside its quota in the table;
 * the ban itself is a word among the blocks (table/cooldown.h), where no flood of keys evicts it.
 * Both outlive the process. Any number of threads and processes.
 */
#ifndef STINT_RULES_BAN_H
#define STINT_RULES_BAN_H

#include "rules/rules.h"
#include "table/table.h"

#define BAN_AFTER_MAX 65535

/*
 * 0 if denials can be counted so; else the error in `after`, `for_ns`, `within_ns`, `factor` or
 * `max_ns`. For the reader of rules; no other code checks this again.
 */
int ban_check(const struct rule_ban *ban, struct stint_error *error);

/* Whether the table can count denials of the rule: as stint_table_accepts(). */
int ban_accepted(struct stint_table *table, const struct rule *rule, struct stint_error *error);

/* Until when a key is banned; 0: it is not. */
uint64_t ban_until(struct stint_table *table, const struct rule *rule, struct span key,
                   uint64_t now_ns);

struct ban_made {
    uint64_t until_ns; /* 0: no ban started */
    bool is_lost;      /* a ban is due, but the table has no space for more blocks */
};
/* One more denial of a key that is not banned. */
struct ban_made ban_count(struct stint_table *table, const struct rule *rule, struct span key,
                          uint64_t now_ns);

/* Forgets the denials of a key, and how often it was banned, and lifts the ban. */
void ban_lift(struct stint_table *table, const struct rule *rule, struct span key, uint64_t now_ns);

#endif
