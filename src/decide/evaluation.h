/* SPDX-License-Identifier: MIT */
/*
 * One request against rules and table: the quotas that apply to it, and the outcome of each.
 *
 * An evaluation is filled with targets (begin, then items or descriptors), run once with one of the
 * verbs, and read. It holds no memory of its own beside the keys; begin it anew for the next
 * request. One thread at a time.
 *
 * What counts and what does not:
 *   live       decides: all or nothing over all of them. Those in quota_mode fail the request only
 *              if all of them would; else those over their limit are excluded and not charged.
 *   shadow     a rule in shadow_mode: evaluated apart, by itself. Its decision is ALLOW; `over` is
 *              what it would have been. It is charged only where the request is allowed.
 *   candidate  the second quota of a rule: evaluated as if it replaced the first. It is charged
 *              where every other live quota allows, whatever the first one decides.
 * docs/decisions/0016 gives the reasons.
 *
 * Hits of Envoy's descriptors, where evaluation_ask.has_envoy_hits (docs/decisions/0058):
 *   check      hits of 0: denies where not one unit is left; takes nothing.
 *   charge     hits above 0, where the rule or the server says so: recorded before anything else is
 *              decided, whether they fit or not; denies where they did not fit.
 */
#ifndef STINT_DECIDE_EVALUATION_H
#define STINT_DECIDE_EVALUATION_H

#include "base/wide_int.h"
#include "limiter/ticket.h"
#include "rules/rules.h"

#define TARGETS_MAX STINT_ITEMS_MAX

/* How a target takes part. */
enum target_part {
    TARGET_FREE = 0, /* nothing limits it: no rule, an unlimited or a replaced one */
    TARGET_LIVE,
    TARGET_SHADOW,
};

/* How its hits are handled. */
enum target_hits { TARGET_HITS_TAKE = 0, TARGET_HITS_CHECK, TARGET_HITS_CHARGE };

/*
 * What decides a target while its store is unavailable: rule.store.on_error, each one more than in
 * enum rule_on_store_error.
 */
enum fallback { FALLBACK_NONE = 0, FALLBACK_DENY, FALLBACK_ALLOW, FALLBACK_LOCAL };
_Static_assert(FALLBACK_LOCAL == RULE_STORE_ERROR_LOCAL + 1, "policies become fallbacks");

struct target {
    /* Inputs. */
    const struct rule *rule;         /* NULL: an item, or nothing matched */
    const struct stint_quota *quota; /* NULL: TARGET_FREE */
    struct span key;                 /* of the states under it */
    uint32_t cost;
    uint8_t part;     /* enum target_part */
    uint8_t hits;     /* enum target_hits */
    uint8_t store;    /* in evaluation.stores, from 1; 0: the table */
    uint8_t on_error; /* enum rule_on_store_error */
    bool is_refund, is_replaced, is_quota_mode;
    bool has_own_quota; /* an override that was set at run time for this key */
    bool is_values;     /* the key is in the form of rules_match() */
    bool is_throttle;   /* from CL.THROTTLE */
    bool is_unmatched;  /* a descriptor that no rule and no override limits */
    bool is_override;   /* the request supplied its quota, and the key has no override */
    bool is_all_shadow; /* TARGET_SHADOW only because of evaluation.all_shadow */
    /* Outcome. */
    struct stint_decision decision;
    uint64_t shadow_retry_after_ns;
    bool over;                  /* it would deny */
    bool banned;                /* a block of its key denies it */
    bool excluded;              /* over, in quota_mode, and excluded from the request */
    bool made_ban;              /* this denial started the block of the key */
    bool shadow_over;           /* its candidate would deny */
    bool is_reserved;           /* a shadow rule in a store, with a record of the ticket's */
    bool is_candidate_reserved; /* the same for its candidate */
    bool is_settled;            /* the numbers hold whatever becomes of the request */
    uint32_t fitted;            /* units of a charge that fit */
    uint8_t fallback;           /* enum fallback */
    uint64_t fallback_wait_ns;  /* until its share no longer counts as used; 0: it does not */
    bool is_hashed;             /* the hash of its key under its quota is known */
    bool is_taken; /* decided by a take in the table, and nothing of this request came after */
    struct hash128 hash;
    /* For the reply: evaluation_grows_after() where the request wants_growth, else 0; and for
     * EXPLAIN what the table does when it is full, DEFAULT for a state in a store. */
    uint64_t grows_after_ns;
    uint8_t when_full; /* enum stint_when_full */
};

struct pending;
struct backend_pools;
struct backend;

/*
 * The stores that rules name, in the order in which they were loaded with them. `items`,
 * `throttle` and `counters` are for quotas that callers supply, for CL.THROTTLE and for counters,
 * counted from 1, 0 for the table.
 */
struct evaluation_stores {
    struct backend *const *stores;
    const char *const *labels;          /* their names in rules; NULL: none */
    const char *const *systems;         /* redis or memcached, for traces; NULL: unknown */
    struct backend_pools *const *pools; /* key pools in each; NULL: it keeps none */
    size_t n_stores;
    size_t items, throttle, counters;
    uint64_t timeout_ns;    /* for a whole request, however many store requests it makes */
    uint8_t items_on_error; /* enum rule_on_store_error */
    /* Those that share the quotas, for on_store_error: local. */
    unsigned nodes;   /* 0 = 1 */
    const char *node; /* the name of this one. NULL: unknown */
    const char *const
        *node_names; /* all nodes, in any order. NULL: the remainder of N is not used */
};

struct evaluation {
    struct stint_table *table;
    uint64_t now_ns;
    uint64_t at_ns;      /* the time at which units were charged; a refund repeats it */
    bool all_shadow;     /* every rule is treated as in shadow_mode */
    bool all_quota_mode; /* the same for quota_mode */
    bool charges_hits;   /* Envoy's hits are charged where their rule does not choose */
    bool checks_debt;    /* a check passes until more than the limit is used */
    size_t n_targets;
    size_t n_unmatched;      /* there are descriptors */
    size_t domain;           /* the result of rules_find_domain(), where there are descriptors */
    uint64_t retry_until_ns; /* evaluation_retries(); 0: every result is final */
    uint64_t bans_lost;      /* the table had no space for a ban */
    uint64_t count;          /* of a counter, as its store answered */
    struct target targets[TARGETS_MAX];
    struct stint_quota quotas[TARGETS_MAX]; /* of targets that have no rule of their own */
    uint8_t *keys;                          /* EVALUATION_KEYS_SIZE bytes */
    size_t keys_len;
    struct list list;
    struct stint_item items[TARGETS_MAX]; /* of the live targets that take part */
    uint8_t target_of[TARGETS_MAX];       /* of each item */
    size_t n_items;
    const struct evaluation_stores *stores; /* NULL: none */
    struct stint_quota locals[TARGETS_MAX]; /* of targets that FALLBACK_LOCAL decides */
    /* For a request that uses stores. */
    struct pending *pending; /* NULL: no store requests are possible */
    const uint8_t *id;       /* BACKEND_ID_LEN bytes, of a request or a ticket; NULL: none */
    uint64_t body, id_lifetime_ns;
    uint64_t ticket_ns, longer_ns;
    size_t ticket_store;               /* in evaluation.stores, from 1 */
    struct ticket_rules *ticket_rules; /* of the ticket that was added; NULL: none was */
    bool has_on_expiry;                /* the request sets kept_units; else each rule does */
    uint32_t kept_units; /* of a reservation that is never settled: stint_reserve_expiring() */
    struct reservation *reservation; /* charges in the table are added to it; NULL: none */
    bool is_ticket; /* the id belongs to a ticket valid for ticket_ns: decide/evaluation_ticket.h */
    bool is_ahead;
    /* Results from stores. */
    bool is_waiting;   /* an answer is missing: the results of this run do not count */
    bool is_too_early; /* the same, since it would be answered at once, and is_ahead */
    bool has_charged; /* a reserve that was replayed: shadows without an id are not charged again */
    bool is_replayed; /* the id was known: nothing was charged now */
    uint8_t fault;    /* enum backend_outcome: why no decision is possible; 0: there is one */
    const char *fault_message; /* may be the pending request's */
};

/* All the keys of one request, packed so that few cache lines are touched. */
#define EVALUATION_KEYS_SIZE ((size_t)TARGETS_MAX * RULES_KEY_MAX)

/*
 * Whether a table can hold states of all quotas of the rules, and count for their bans: else they
 * would never be allowed. STINT_E_FULL or STINT_E_MISMATCH, with the first rule that does not fit.
 */
int evaluation_accepts(struct stint_table *table, const struct rules *rules,
                       struct stint_error *error);

int evaluation_init(struct evaluation *evaluation, struct stint_table *table,
                    struct stint_error *error);
void evaluation_deinit(struct evaluation *evaluation);

/* For asserts: between any two calls of the functions here. */
bool evaluation_is_valid(const struct evaluation *evaluation);

/* If the table already has later times from other callers, the latest of them is used. */
void evaluation_begin(struct evaluation *evaluation, uint64_t now_ns);

/*
 * A key under a quota of the caller's, which is copied; the key is borrowed. At most TARGETS_MAX;
 * the caller checks this.
 */
void evaluation_add_item(struct evaluation *evaluation, const struct stint_quota *quota,
                         struct span key, uint32_t cost);

/* The same for CL.THROTTLE, whose keys are apart from others in a store. */
void evaluation_add_throttle(struct evaluation *evaluation, const struct stint_quota *quota,
                             struct span key, uint32_t cost);

/* A counter in a store, and its expiry if an amount begins it; 0: none does. */
void evaluation_add_counter(struct evaluation *evaluation, struct span key, uint64_t expiry_ns);

/*
 * For a reserve or a book: where the deciding states are in the table, rules in shadow mode whose
 * states are in a store take no part in the decision or the ticket. They are not evaluated.
 */
void evaluation_leave_distant_shadows(struct evaluation *evaluation);

/* Whether any target's states are in a store, which needs a pending request; else in the table. */
bool evaluation_asks(const struct evaluation *evaluation, bool in_stores);

/* The results of this run do not count: an answer is missing, or there will be none. */
static inline bool evaluation_is_to_wait(const struct evaluation *evaluation)
{
    return evaluation->is_waiting || evaluation->fault != 0;
}

/*
 * Whether the request is decided again at the end of this denial: the denial counts for no ban.
 * Others may be faster then, so this may happen several times.
 */
static inline bool evaluation_retries(const struct evaluation *evaluation,
                                      const struct stint_decision *decision)
{
    uint64_t again_ns = add_sat(evaluation->now_ns, max_u64(decision->retry_after_ns, 1));
    return decision->outcome == STINT_DENY && again_ns <= evaluation->retry_until_ns;
}

/* A list of descriptors in one domain. */
struct evaluation_ask {
    const struct rules *rules; /* NULL: none match */
    struct span domain;
    const struct descriptor *descriptors; /* 1 … TARGETS_MAX */
    size_t n_descriptors;
    uint32_t cost;       /* of descriptors without hits of their own */
    bool has_envoy_hits; /* those that have some check or charge; else they take */
};
/*
 * Matches them, and drops what others replace. STINT_E_RANGE for a key that is too long; for quotas
 * that descriptors supply, the error of the table.
 */
int evaluation_add_descriptors(struct evaluation *evaluation, const struct evaluation_ask *ask,
                               struct stint_error *error);

/*
 * For a run that waits: keeps what the evaluation was filled with, which the next run is filled
 * with again. So both have the same quotas, whatever is set meanwhile. False: no memory. The rules
 * have to stay; later runs are those of the same evaluation.
 */
bool evaluation_keep(const struct evaluation *evaluation, struct pending *pending);
void evaluation_recall(struct evaluation *evaluation, const struct pending *pending);

/*
 * The verbs. Each gives the outcome of the request as a whole (binding: the index of a target), and
 * of every target. A request that nothing limits is allowed: limit and remaining are 2^32 - 1.
 */
struct stint_decision evaluation_take(struct evaluation *evaluation);
struct stint_decision evaluation_peek(struct evaluation *evaluation);
/* Whether the request would have been denied without shadow mode. */
bool evaluation_would_be_denied(const struct evaluation *evaluation);
/* The same number of units from every live target, at most the least cost. */
struct stint_decision evaluation_take_upto(struct evaluation *evaluation);
struct stint_decision evaluation_charge(struct evaluation *evaluation);
/* granted_at_ns: STINT_NEVER_NS for just now. */
struct stint_decision evaluation_refund(struct evaluation *evaluation, uint64_t granted_at_ns);
/*
 * reserve and book: a ticket over the live targets, and for a reserve also over shadows and
 * candidates that were charged; *has_ticket if there is one. If the evaluation sets kept_units, it
 * overrides the rules on what stays charged when the ticket is never settled. Where the states are
 * in a store, set the id before; evaluation_ticket_write() then gives the ticket.
 */
struct stint_decision evaluation_reserve(struct evaluation *evaluation, uint64_t lifetime_ns,
                                         struct stint_ticket *ticket, bool *has_ticket);
struct stint_decision evaluation_book(struct evaluation *evaluation, uint64_t max_wait_ns,
                                      struct stint_ticket *ticket, bool *has_ticket);
/*
 * Denies the keys of all targets for a time. All or none: STINT_E_MISMATCH where nothing limits one
 * of them, STINT_E_FULL where there is no space; then all blocks are as they were.
 */
int evaluation_block(struct evaluation *evaluation, uint64_t for_ns, struct stint_error *error);
/*
 * Gives the keys of all targets a quota of their own from now on (table/overrides.h), or, for NULL,
 * their rule's again. All or none: STINT_E_MISMATCH where no rule matches one of them, or as
 * overrides_set() and accepts() of their store; then no key changes.
 */
int evaluation_set_quota(struct evaluation *evaluation, const struct stint_quota *quota,
                         struct stint_error *error);
/*
 * How long until `remaining` of a decided target next grows if no other request comes: no more than
 * that can be used before, and more can be then. 0: nothing is used; STINT_NEVER_NS: never, or the
 * cost never fits. Under `concurrency` a holder may return a slot earlier.
 */
uint64_t evaluation_grows_after(struct evaluation *evaluation, size_t index);
/*
 * Of one counter in a store, REQUEST_COUNT: adds the amount, subtracts one below 0, reads with 0;
 * REQUEST_COUNT_RESET: forgets it. Returns what it is then.
 */
struct stint_counter evaluation_count(struct evaluation *evaluation, uint8_t verb, int64_t amount);
/* Forgets the states that all targets have in stores, under their candidates too. */
void evaluation_forget(struct evaluation *evaluation);
/* The same, and in the table, and lifts blocks and bans. */
void evaluation_reset(struct evaluation *evaluation);

/* ---- on_store_error: local ---- */

/*
 * The share of a quota that this node decides by itself while the store of its states is
 * unavailable: floor(N / nodes), and the remainder to those nodes that come first for the key.
 * docs/decisions/0041 proves what the nodes admit together.
 */

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
