/* SPDX-License-Identifier: MIT */
/*
 * One request against rules and table: which quotas it meets, and what becomes of each.
 *
 * A question is filled with targets (begin, then items or descriptors), asked once with one of the
 * verbs, and read. It holds no memory of its own beside the keys; begin it anew for the next
 * request. One thread at a time.
 *
 * What counts and what does not:
 *   live       decides: all or nothing over all of them. Those in quota_mode fail the request only
 *              if all of them would; else those that are over step back, and are not charged.
 *   shadow     a rule in shadow_mode: asked apart, by itself. Its decision says ALLOW; `over` says
 *              what it would have been. It is charged only where the request is allowed.
 *   candidate  the second quota of a rule: asked as if it was the fallback the place of the first.
 * It is charged where every other live quota allows, whatever the first one says.
 * docs/decisions/0016 says why.
 *
 * Hits of Envoy's descriptors, where evaluation_ask.has_envoy_hits (docs/decisions/0058):
 *   check      hits of 0: denies where not one unit is left; takes nothing.
 *   charge     hits above 0, where the rule or the server says so: recorded before anything else is
 *              decided, whether they fit or not; denies where they did not fit.
 */
#ifndef STINT_DECIDE_EVALUATION_H
#define STINT_DECIDE_EVALUATION_H

#include "limiter/ticket.h"
#include "rules/rules.h"

#define TARGETS_MAX STINT_ITEMS_MAX

/* How a target takes part. */
enum target_part {
    TARGET_FREE = 0, /* nothing limits it: no rule, an unlimited or a replaced one */
    TARGET_LIVE,
    TARGET_SHADOW,
};

/* What is to be done with its units. */
enum target_hits { TARGET_HITS_TAKE = 0, TARGET_HITS_CHECK, TARGET_HITS_CHARGE };

/* What a target goes by whose store could not be asked: rule.store.on_error. */
enum fallback { FALLBACK_NONE = 0, FALLBACK_ALLOW, FALLBACK_DENY, FALLBACK_LOCAL };

struct target {
    /* Asked. */
    const struct rule *rule;         /* NULL: an item, or nothing matched */
    const struct stint_quota *quota; /* NULL: TARGET_FREE */
    struct span key;                 /* of the states under it */
    uint32_t cost;
    uint8_t part;     /* enum target_part */
    uint8_t hits;     /* enum target_hits */
    uint8_t store;    /* of question.stores, from 1; 0: the table */
    uint8_t on_error; /* enum rule_on_store_error */
    bool is_refund, is_replaced, is_quota_mode;
    bool has_own_quota; /* one that was set at run time for this key */
    bool is_values;     /* the key is as rules_match() makes it */
    bool is_throttle;   /* of CL.THROTTLE */
    bool is_unmatched;  /* a descriptor that no rule and no override limits */
    bool is_override;   /* the request brought its quota along, and no other was set for the key */
    bool is_all_shadow; /* TARGET_SHADOW by question.all_shadow alone */
    /* Told. */
    struct stint_decision decision;
    uint64_t shadow_retry_after_ns;
    bool over;                  /* it would deny */
    bool banned;                /* a block of its key denies it */
    bool excluded;              /* over, in quota_mode, and the request does without it */
    bool made_ban;              /* this denial was the one that blocks the key */
    bool shadow_over;           /* its candidate would deny */
    bool is_reserved;           /* a shadow rule in a store, that has a record of the ticket's */
    bool is_candidate_reserved; /* the same of its candidate */
    bool is_settled;            /* the figures are right whatever becomes of the request */
    uint32_t fitted;            /* units of a charge that fit */
    uint8_t fallback;           /* enum fallback */
    uint64_t fallback_wait_ns;  /* until its share is no longer taken for used; 0: it is not */
};

struct pending;
struct backend_pools;
struct backend;

/*
 * The stores that rules name, in the order in which they were loaded with them. `items` and
 * `throttle` are those of quotas that callers bring along and of CL.THROTTLE, counted from 1, 0 for
 * the table.
 */
struct evaluation_stores {
    struct backend *const *stores;
    const char *const *labels;          /* what rules call them; NULL: nothing */
    struct backend_pools *const *pools; /* key pools in each; NULL: it keeps none */
    size_t n_stores;
    size_t items, throttle;
    uint64_t timeout_ns;    /* of a request, whatever it has to ask */
    uint8_t items_on_error; /* enum rule_on_store_error */
    /* Those that share the quotas, for on_store_error: local. */
    unsigned nodes;                /* 0 = 1 */
    const char *node;              /* the name of this one. NULL: unknown */
    const char *const *node_names; /* of all, in any order. NULL: the remainder of N is nobody's */
};

struct evaluation {
    struct stint_table *table;
    uint64_t now_ns;
    uint64_t at_ns;      /* the time that units were charged under: what a refund is to say */
    bool all_shadow;     /* every rule is taken for one in shadow_mode */
    bool all_quota_mode; /* the same of quota_mode */
    bool charges_hits;   /* Envoy's hits are charged where their rule does not say */
    bool checks_debt;    /* a check of them passes until more than the limit is used */
    size_t n_targets;
    size_t n_unmatched; /* descriptors */
    size_t domain;      /* where there are such: rules_find_domain() */
    uint64_t bans_lost; /* a ban found no room in the table */
    struct target targets[TARGETS_MAX];
    struct stint_quota quotas[TARGETS_MAX]; /* of targets that do not go by a rule's */
    uint8_t *keys;                          /* EVALUATION_KEYS_SIZE bytes */
    size_t keys_len;
    struct list list;
    struct stint_item items[TARGETS_MAX]; /* of the live targets that are asked */
    uint8_t target_of[TARGETS_MAX];       /* of each item */
    size_t n_items;
    const struct evaluation_stores *stores; /* NULL: none */
    struct stint_quota locals[TARGETS_MAX]; /* of targets that FALLBACK_LOCAL goes for */
    /* Of this request, where it asks stores. */
    struct pending *pending; /* NULL: stores cannot be asked */
    const uint8_t *id;       /* BACKEND_ID_LEN bytes, of a request or a ticket; NULL: none */
    uint64_t body, id_lifetime_ns;
    uint64_t ticket_ns, longer_ns;
    size_t ticket_store;               /* of question.stores, from 1 */
    struct ticket_rules *ticket_rules; /* of the ticket that was added; NULL: none ever was */
    bool has_on_expiry;                /* the request says kept_units; else each rule does */
    uint32_t kept_units; /* of a reservation that is never settled: stint_reserve_expiring() */
    struct reservation *reservation; /* what is charged in the table is added to it; NULL: none */
    bool is_ticket; /* the id is a ticket's, that is good for ticket_ns: decide/evaluation_ticket.h
                     */
    bool is_ahead;
    /* Told by stores. */
    bool is_waiting;   /* an answer is not there: what this run has found says nothing */
    bool is_too_early; /* the same, since it would be answered at once, and is_ahead */
    bool has_charged; /* a reserve that was replayed: shadows without an id are not charged again */
    bool is_replayed; /* an id was known: nothing was charged now */
    uint8_t fault;    /* enum backend_outcome: why there can be no decision; 0: there is one */
    const char *fault_message;
};

/* All the keys of one request: they are packed, so that little of it is ever touched. */
#define EVALUATION_KEYS_SIZE ((size_t)TARGETS_MAX * RULES_KEY_MAX)

/*
 * Whether a table can hold states of all quotas of the rules, and count for their bans: else they
 * would never be allowed. STINT_E_FULL or STINT_E_MISMATCH, with the first rule that it cannot.
 */
int evaluation_accepts(struct stint_table *table, const struct rules *rules,
                       struct stint_error *error);

int evaluation_init(struct evaluation *evaluation, struct stint_table *table,
                    struct stint_error *error);
void evaluation_deinit(struct evaluation *evaluation);

/* Where others have come to the table with later times, it is asked at the latest of them. */
void evaluation_begin(struct evaluation *evaluation, uint64_t now_ns);

/*
 * A key under a quota of the caller's, which is copied; the key is borrowed. The caller counts:
 * TARGETS_MAX at most.
 */
void evaluation_add_item(struct evaluation *evaluation, const struct stint_quota *quota,
                         struct span key, uint32_t cost);

/* The same for CL.THROTTLE, whose keys have a place of their own in a store. */
void evaluation_add_throttle(struct evaluation *evaluation, const struct stint_quota *quota,
                             struct span key, uint32_t cost);

/*
 * For a reserve or a book: where what decides is in the table, rules in shadow mode whose states
 * are in a store have no say in it, and no part in the ticket. They are not asked.
 */
void evaluation_leave_distant_shadows(struct evaluation *evaluation);

/* Whether any target's states are in a store: then it needs a pending request. */
bool evaluation_asks_stores(const struct evaluation *evaluation);
/* Whether any target's are in the table. */
bool evaluation_asks_table(const struct evaluation *evaluation);

/* After a verb: what it said is worth nothing, as an answer is not there yet. */
bool evaluation_is_to_wait(const struct evaluation *evaluation);

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
 * Matches them, and drops what others replace. STINT_E_RANGE for a key that is too long; of quotas
 * that they bring along, what the table says to them.
 */
int evaluation_add_descriptors(struct evaluation *evaluation, const struct evaluation_ask *ask,
                               struct stint_error *error);

/*
 * The verbs. Each tells what becomes of the request as a whole (binding: the index of a target),
 * and of every target. A request that nothing limits is allowed: limit and remaining are 2^32 - 1.
 */
struct stint_decision evaluation_take(struct evaluation *evaluation);
struct stint_decision evaluation_peek(struct evaluation *evaluation);
/* Whether the request would have been denied, were not all rules in shadow mode. */
bool evaluation_would_be_denied(const struct evaluation *evaluation);
/* The same number of units from every live target, at most the least cost. */
struct stint_decision evaluation_take_upto(struct evaluation *evaluation);
struct stint_decision evaluation_charge(struct evaluation *evaluation);
/* granted_at_ns: STINT_NEVER_NS for just now. */
struct stint_decision evaluation_refund(struct evaluation *evaluation, uint64_t granted_at_ns);
/*
 * reserve and book: a ticket over the live targets, of a reserve over shadows and candidates that
 * were charged, too; *has_ticket if there is one. A question that says kept_units has the last word
 * on what stays charged if the ticket is never settled, before its rules. Where they are in
 * a store, the id has to be set before, and the ticket is what evaluation_ticket_write() says.
 */
struct stint_decision evaluation_reserve(struct evaluation *evaluation, uint64_t lifetime_ns,
                                         struct stint_ticket *ticket, bool *has_ticket);
struct stint_decision evaluation_book(struct evaluation *evaluation, uint64_t max_wait_ns,
                                      struct stint_ticket *ticket, bool *has_ticket);
/* Denies the keys of all targets for a time; STINT_E_FULL where there is no room. */
int evaluation_block(struct evaluation *evaluation, uint64_t for_ns);
/*
 * Gives the keys of all targets a quota of their own from now on (table/overrides.h), or, for NULL,
 * their rule's again. All or none: STINT_E_MISMATCH where no rule matches one of them, or as
 * overrides_set(); then all have what they had.
 */
int evaluation_set_quota(struct evaluation *evaluation, const struct stint_quota *quota,
                         struct stint_error *error);
/*
 * How long until `remaining` of a target, once it is decided, next grows if nobody else asks: no
 * more than that can be used before, and more can be then. 0: nothing is used; STINT_NEVER_NS:
 * never, or what was asked never fits. Under `concurrency` a holder may give back before his time.
 */
uint64_t evaluation_grows_after(struct evaluation *evaluation, size_t index);
/* Forgets the keys of all targets, under their candidates too, and lifts blocks and bans. */
void evaluation_reset(struct evaluation *evaluation);

#endif
