/* SPDX-License-Identifier: MIT */
/*
 * `stint replay --rules`: events decided by files of rules. Columns of the log become the entries
 * of descriptors; the results are counted by rule.
 */
#ifndef STINT_CMD_REPLAY_REPLAY_RULES_H
#define STINT_CMD_REPLAY_REPLAY_RULES_H

#include "cmd/rules/rules_files.h"
#include "cmd/store/shared_session.h"
#include "decide/evaluation.h"
#include "decide/pending.h"
#include "sim/input/event.h"
#include "sim/judge/exact.h"
#include "sim/judge/key_set.h"

#include <jansson.h>

/* Of the table that is made; states above 16 bytes have fewer keys. */
#define REPLAY_KEYS_DEFAULT (UINT64_C(1) << 20)
#define REPLAY_WIDE_BYTES_DEFAULT (UINT64_C(1) << 28)

/* The options of the command line. */
struct replay_rules_options {
    struct rules_args files;
    const char *domain;
    const char *descriptors; /* "ip,path;user": COLUMN or KEY=COLUMN */
};

/* An entry of a descriptor: the column of the event that has its value. */
struct replay_entry {
    struct span key;
    size_t column;
};

struct replay_descriptor {
    struct replay_entry entries[ENTRIES_MAX];
    size_t n_entries;
};

/* The results of the events that matched one rule. */
struct replay_rule {
    uint64_t events, over, denied, banned, replaced; /* denied: of `over`, not in shadow_mode */
    uint64_t units_allowed, units_denied;
    uint64_t candidate_over;
    struct key_set keys;
    struct exact exact;
    uint32_t most_event;    /* number of the event's key to which the most was admitted */
    size_t most_descriptor; /* its index among the descriptors */
};

struct replay_rules {
    const struct replay_rules_options *options;
    struct rules_loaded loaded;
    struct replay_descriptor descriptors[DESCRIPTORS_MAX];
    size_t n_descriptors;
    struct span columns[JOINED_KEY_PARTS_MAX]; /* of the log: these make an event's key */
    size_t n_columns;
    char *key_expr;            /* the same, joined by + */
    struct replay_rule *rules; /* by index */
    uint64_t unmatched;        /* descriptors */
    uint64_t bans_lost;        /* the table had no capacity for them */
    struct evaluation evaluation;
    /*
     * With a store: quotas, candidates and shadows of every rule are evaluated there, whatever
     * store it names. Rules with `store: none`, and bans, are in a table of this run.
     */
    struct backend *stores[1]; /* NULL: the table's decisions count */
    struct evaluation_stores given;
    struct pending_requests pending_requests;
    struct stint_table *store_table;
    struct evaluation store_evaluation;
    uint8_t parts[STINT_KEY_MAX]; /* of a key, without its backslashes */
    struct joined_key joined;     /* of the values of a descriptor, for people */
};

/* Whether the descriptors can be read: 0 or a negative code. */
int replay_rules_check(const struct replay_rules_options *options, struct stint_error *error);
/*
 * Loads the rules and reads the descriptors; reports errors. 0 or a negative code, and then there
 * is nothing to free.
 */
int replay_rules_open(struct replay_rules **rules, const struct replay_rules_options *options,
                      struct stint_error *error);
void replay_rules_close(struct replay_rules *rules); /* NULL is fine */

/* Capacity of a table for `keys` live keys under each descriptor; 0 = the default. */
void replay_rules_size(const struct replay_rules *rules, uint64_t keys,
                       struct stint_table_options *table);
/*
 * Checks that the open table and the session with the store, if one is given, accept all quotas of
 * the rules. `options` are those of the table. STINT_E_MISMATCH or STINT_E_RANGE, with the rule, if
 * a quota is not accepted.
 */
int replay_rules_begin(struct replay_rules *rules, struct stint_table *table,
                       const struct stint_table_options *options, struct shared_session *session,
                       struct stint_error *error);

struct replay_rules_event {
    struct span key; /* of the columns, joined */
    uint32_t number; /* of that key */
    uint32_t cost;
    uint64_t now_ns;
    uint8_t verb; /* enum stint_verb: take, take_upto or peek */
};
/*
 * Decides an event and counts the result. With a store `decision` is the store's, and `engine` that
 * of the table; else they are the same.
 */
int replay_rules_decide(struct replay_rules *rules, const struct replay_rules_event *event,
                        struct stint_decision *decision, struct stint_decision *engine,
                        struct stint_error *error);
/* Deletes the keys of this run from the store. STINT_E_GONE: some may be left. */
int replay_rules_clean(struct replay_rules *rules, const struct key_set *names,
                       struct stint_error *error);
/* The key that was admitted most under a rule; valid until the next call. */
struct span replay_rules_most_key(struct replay_rules *rules, const struct replay_rule *counts,
                                  const struct key_set *names);

#endif
