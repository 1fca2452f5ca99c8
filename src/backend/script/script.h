/* SPDX-License-Identifier: MIT */
/*
 * Decisions of a shared store as bytes: from quota, key, verb and cost to the words of an EVALSHA,
 * and from the integers of its reply to a decision. It has no sockets and no RESP: the caller sends
 * the words and reads the integers.
 */
#ifndef STINT_BACKEND_SCRIPT_SCRIPT_H
#define STINT_BACKEND_SCRIPT_SCRIPT_H

#include "backend/script/key_text.h"
#include "backend/script/lua_script.h"
#include "decide/backend.h"

#define SCRIPT_WORDS_MAX (3 + STINT_ITEMS_MAX + 1 + 3 + 7 * STINT_ITEMS_MAX + 3)
#define SCRIPT_DIGITS_MAX 22 /* of one number: 20 digits, a sign, and its mark */
#define SCRIPT_REPLY_MAX (8 + 6 * STINT_ITEMS_MAX + 2 * STINT_ITEMS_MAX)

/* The holder of slots of a concurrency quota; unique for its key. */
struct script_holder {
    uint64_t deadline_us;
    uint32_t count; /* tells those apart that share a deadline */
};

/*
 * A request with an id that was allowed gets the same answer again for its lifetime, and charges
 * nothing: script_reply.is_replayed. With another body, script_is_conflict(). Requests that were
 * not allowed are not kept, nor are peeks.
 */
struct script_id {
    struct span key; /* by store_id_key(), with the tag of the quotas' keys */
    uint64_t body;
    /* at least 1 ms; with a ticket also 0, for no longer than it. Virtual time: kept for good. */
    uint64_t lifetime_ns;
    /*
     * The id is a ticket's: TAKE makes one that is valid so long; EXTEND counts from now. BOOK
     * makes one that is valid until it starts.
     */
    bool is_ticket;
    uint64_t ticket_ns;
    uint64_t longer_ns; /* for such a TAKE and EXTEND: EXPIRE knows it for so much longer */
};

/*
 * The request. A store counts in microseconds: times are rounded down to them. The verbs of tickets
 * and REQUEST_UNDO need an id, and the keys that it charged. Costs and at_ns of an UNDO do not
 * count: the store knows them. If it does not know the id, its reply grants nothing. If a ticket is
 * no longer valid, it replies with an error: script_is_gone().
 */
struct script_ask {
    uint8_t verb; /* enum request_verb */
    /* refund: when it was granted, STINT_NEVER_NS for just now; book and unbook as in stint.h */
    uint64_t at_ns;
    uint64_t now_ns;             /* where is_virtual */
    bool is_virtual;             /* now_ns is the time, not the store's, and keys get no TTL */
    struct script_holder holder; /* of release and renew */
    const struct script_id *id;  /* NULL: none, which costs the store less */
};

struct script_item {
    const struct stint_quota *quota;
    struct span key; /* by store_key() */
    uint32_t cost;
};

/* EVALSHA, its hash, the number of keys, the keys, the arguments. Words point into `digits`. */
struct script_command {
    struct span words[SCRIPT_WORDS_MAX];
    size_t n_words;
    const struct lua_script *script;
    char digits[SCRIPT_WORDS_MAX * SCRIPT_DIGITS_MAX];
    size_t n_digits;
};

struct script_reply {
    struct stint_decision decision;
    bool is_replayed; /* the answer that its id was given before */
    uint64_t now_ns;  /* at which it was decided; since 1970, if not virtual */
    /*
     * Each quota after the decision. Where a list is denied: whether it alone would have been
     * allowed, with the numbers of a state from which nothing was taken; for a peek those of a peek
     * of it alone. Equal keys count as one: each gets the outcome and the numbers for their costs
     * together, and its own grant.
     */
    struct stint_decision each[STINT_ITEMS_MAX];
    size_t n_each;
    /*
     * One for each concurrency quota that was charged, in the order of keys; or two numbers of
     * another meaning: of a lease its end and how many others there are, of a counter its count.
     */
    struct script_holder holders[STINT_ITEMS_MAX];
    size_t n_holders;
};

/*
 * 0 if a store decides under this quota as the table does; else STINT_E_RANGE or STINT_E_MISMATCH,
 * with a message: lengths that are not whole microseconds, `initial`. The quota has passed
 * stint_quota_check().
 */
int script_accepts(const struct stint_quota *quota, struct stint_error *error);

/*
 * ALGORITHM of a state's key: the algorithm with the parameters without which its state means
 * nothing, so that a changed quota does not misread the state of the old one.
 */
void script_key_algorithm(struct key_text *text, const struct stint_quota *quota);

/* A quota as arguments of scripts, without its algorithm: limit period x y z, in `digits`. */
#define SCRIPT_QUOTA_WORDS 5
void script_quota_words(const struct stint_quota *quota, struct span words[SCRIPT_QUOTA_WORDS],
                        char digits[SCRIPT_QUOTA_WORDS * SCRIPT_DIGITS_MAX]);
/*
 * PREFIX{TAG} of a pool's key: a byte is written %XX, unless it is a letter, a digit or one of
 * -._~/@+=,*: and so grows to three times its length. Returns the length; if that is more than
 * `size`, what was written is incomplete.
 */
size_t script_tag(struct span prefix, struct span tag, char *out, size_t size);

/* One quota, by its algorithm's script. */
void script_command_one(struct script_command *command, const struct script_item *item,
                        const struct script_ask *ask);
/* 1 to STINT_ITEMS_MAX quotas, by lua_script_list. Not for book, unbook, release and renew. */
void script_command_list(struct script_command *command, const struct script_item *items,
                         size_t n_items, const struct script_ask *ask);

/* ---- Leases ---------------------------------------------------------------------------------- */

#define SCRIPT_ENDED_MAX 8 /* leases that one request ends */
/* Of their key, after that of the state: no text has a ! */
#define SCRIPT_LEASES_SUFFIX "!leases"

/* Whether units of this item are leased: then all its requests use the next function. */
static inline bool script_is_leased(const struct backend_item *item)
{
    return item->rule != NULL && item->rule->store.lease != RULE_LEASE_NONE &&
           item->quota != &item->rule->shadow && /* a candidate admits nothing */
           item->quota->algorithm != STINT_CONCURRENCY && !item->quota->count_denied;
}
/*
 * One quota, with a second key for the leases. `lease` has the lease of REQUEST_LEASE, and those
 * that end; with an id none. The one holder of the reply to a lease is its end and the number of
 * others.
 */
void script_command_leased(struct script_command *command, const struct script_item *item,
                           struct span leases, const struct script_ask *ask,
                           const struct backend_request *lease);

/* ---- Replies --------------------------------------------------------------------------------- */

/* The decisions of several quotas as one: docs/store-scripts.md, "Several quotas". */
struct stint_decision script_sum(const struct stint_decision *each, size_t n_items);

/*
 * False, with an undefined result, for integers that no script of stint replies. n_listed: the
 * quotas of script_command_list(); 0: it was script_command_one().
 */
bool script_reply_read(struct script_reply *reply, size_t n_listed, const int64_t *values,
                       size_t n_values);
/* outcome, granted, limit, remaining, retry_after, reset_after: as every decision begins. */
bool script_metrics_read(struct stint_decision *decision, const int64_t values[6]);
/* Whether an error of the store means that the id was used for a different request. */
bool script_is_conflict(struct span error);
/* The same: that the ticket was used, has ended, or never existed. */
bool script_is_gone(struct span error);

#endif
