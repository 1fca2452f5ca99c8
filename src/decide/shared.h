/* SPDX-License-Identifier: MIT */
/*
 * A store outside of this process, as a question sees it: what may be asked of it, and how its
 * answers come. remote/ implements it over Redis, Valkey and memcached, and in layers: a cache of
 * denials or leases stand before a store as stores themselves.
 *
 * A store belongs to the thread of one worker, as do its asks.
 */
#ifndef STINT_DECIDE_SHARED_H
#define STINT_DECIDE_SHARED_H

#include "rules/rules.h"

#define SHARED_ITEMS_MAX STINT_ITEMS_MAX
#define SHARED_ID_LEN 16 /* bytes of an id: a keyed hash of what the caller said */

enum shared_verb {
    SHARED_TAKE = STINT_TAKE,
    SHARED_TAKE_UPTO = STINT_TAKE_UPTO,
    SHARED_PEEK = STINT_PEEK,
    SHARED_CHARGE = STINT_CHARGE,
    SHARED_REFUND = STINT_REFUND,
    SHARED_BOOK = STINT_BOOK, /* of one item, with a ticket; at_ns: the longest wait */
    SHARED_RESET = STINT_UNBOOK + 1,
    /*
     * Of one item under a rule that leases: up to `cost` units for whoever asks to hand out himself
     * for a term, and ends leases that he had. RETURN only ends them. See struct shared_lease.
     */
    SHARED_LEASE,
    SHARED_RETURN,
    /*
     * Of the ticket whose id this is, with the items that were charged under it. SETTLE: `cost` is
     * what was used of each; CANCEL: nothing was; EXTEND: whoever holds places keeps them longer.
     */
    SHARED_SETTLE,
    SHARED_CANCEL,
    SHARED_EXTEND,
    /*
     * Of a ticket that has ended and was not used: `cost` is what stays charged of each at most.
     * Denied, with a wait, where it is good still. Places stay as they are.
     */
    SHARED_EXPIRE,
};

/* Units that were leased. What is left of it when it ends is room again, the rest was used. */
struct shared_lease {
    uint64_t ends_ns; /* by the store's clock; names it, together with `units` */
    uint32_t units, left;
};

/* One quota on one key. Everything is borrowed for the call. */
struct shared_item {
    const struct stint_quota *quota;
    const struct rule *rule; /* whose options hold; NULL: a quota that the caller brought along */
    /*
     * Whose states they are: RULE of a key's name, already escaped. The same for every node that
     * goes by the same rules.
     */
    struct span name;
    struct span key;
    bool is_values; /* the key is that of rules_match(): an id, then values behind their lengths */
    uint32_t cost;
    uint32_t kept; /* TAKE of a ticket: units that stay charged if it is never settled */
};

struct shared_ask {
    uint8_t verb;                    /* enum shared_verb */
    bool is_virtual;                 /* now_ns is the time; else the store's own clock is */
    bool is_ahead;                   /* what would be answered at once is not to be answered yet */
    const struct shared_item *items; /* 1 … SHARED_ITEMS_MAX: all or nothing over them */
    size_t n_items;
    uint64_t at_ns;  /* refund: when it was granted, STINT_NEVER_NS for just now */
    uint64_t now_ns; /* by the clock of this process: stint_now() */
    /* By the same clock: an answer after it is none. Where is_virtual: so long after now_ns. */
    uint64_t deadline_ns;
    /*
     * Idempotency: an ask with an id that was answered ALLOW within id_lifetime_ns is answered the
     * same again, and charges nothing; with another `body` it is a conflict. NULL: no id.
     */
    const uint8_t *id; /* SHARED_ID_LEN bytes */
    uint64_t body;
    uint64_t id_lifetime_ns;
    /*
     * The id is a ticket's. TAKE, EXTEND: it is good for ticket_ns; BOOK: until the start. What is
     * answered to such a TAKE or BOOK need not be kept for longer: id_lifetime_ns may be 0.
     */
    bool is_ticket;
    uint64_t ticket_ns;
    uint64_t longer_ns; /* TAKE, EXTEND: so long after its end a ticket is known to EXPIRE */
    /* LEASE, RETURN, RESET: leases that are over. */
    const struct shared_lease *ended;
    size_t n_ended;
    uint64_t term_ns; /* LEASE. 0: the units are charged at once, and nothing is to be ended */
    uint32_t least;   /* LEASE: of no use are fewer units than this */
    /* Servers, as in an answer: an ask that would go to one of these fails at once, STOPPED. */
    uint64_t stopped;
};

enum shared_outcome {
    SHARED_WAITS = 0, /* answered() will be called */
    SHARED_DECIDED,
    SHARED_FAILED,   /* the store cannot be asked, or did not answer: it may have been done */
    SHARED_REFUSED,  /* it can never be asked this: `error` says why */
    SHARED_CONFLICT, /* the id was used for something else */
    SHARED_GONE,     /* the ticket was used, has ended, or never was */
    SHARED_AHEAD,    /* nothing was done: it would have been answered at once */
};

/* Of FAILED: what figures tell apart. */
enum shared_fault {
    SHARED_FAULT_OTHER = 0,
    SHARED_FAULT_LATE,        /* no answer in time; it may have been done */
    SHARED_FAULT_LOST,        /* the connection ended before the answer; it may have been done */
    SHARED_FAULT_UNREACHABLE, /* nobody could be asked in time */
    SHARED_FAULT_OVERLOAD,    /* too much waits already */
    SHARED_FAULT_BUSY,        /* it answers, but other servers were faster; it may have been done */
    SHARED_FAULT_STATE,       /* it answers, but what stands there is of another time */
    SHARED_FAULT_STOPPED,     /* it has failed too often to be asked now */
    SHARED_FAULTS,
};

struct shared_answer {
    uint8_t outcome;   /* enum shared_outcome */
    uint8_t fault;     /* enum shared_fault */
    bool is_replayed;  /* the answer that was given to the same id before */
    bool is_local;     /* of a lease or a cache: the store was not asked */
    uint64_t at_ns;    /* the store's time, under which units were charged; since 1970 */
    const char *error; /* FAILED, REFUSED: a sentence that lives as long as the store */
    /*
     * Which servers of the store were asked, a bit each, and which of these failed; 0: the store is
     * one, or nobody was asked.
     */
    uint64_t servers, failed;
    struct stint_decision sum;
    /*
     * How each item stands after the decision, in their order: where the list is denied, whether it
     * alone would have been allowed, with the figures of a state from which nothing was taken.
     */
    struct stint_decision *each; /* n_items of them; the asker's memory */
    uint64_t lease_ends_ns;      /* LEASE with a term. 0: so many have one that none is to be had */
    uint32_t leases;             /* LEASE: how many others have units of the key now */
};

/*
 * One ask on its way. The asker's memory, which stays where it is until it is answered. Zero it,
 * set `answered` and answer.each.
 */
struct shared_op {
    struct shared_answer answer;
    /*
     * Called once, but only where ask() left the outcome at SHARED_WAITS; never from within ask().
     * It may ask anything anew.
     */
    void (*answered)(struct shared_op *op, uint64_t now_ns);
    void *arg;     /* the asker's */
    void *at_work; /* the store's, while it waits */
};

struct shared_store;

struct shared_store_ops {
    /* Answers at once, or leaves SHARED_WAITS. Never blocks. */
    void (*ask)(struct shared_store *store, const struct shared_ask *ask, struct shared_op *op);
    /* Nobody wants this answer any more: `op` is not touched again. It may be done all the same. */
    void (*forget)(struct shared_store *store, struct shared_op *op);
    /* 0 where states under this quota can be kept here; else why not, as stint_table_accepts(). */
    int (*accepts)(const struct shared_store *store, const struct stint_quota *quota,
                   struct stint_error *error);
    /* Since when it could not be asked, by stint_now(); 0: it can, as far as is known. */
    uint64_t (*away_since_ns)(const struct shared_store *store);
    /* The server ends: gives back what is held. `done` is called once, at the latest at deadline.
     */
    void (*drain)(struct shared_store *store, uint64_t deadline_ns, void (*done)(void *arg),
                  void *arg);
    /* Answers what waits with FAILED, and frees the stores behind it, too. */
    void (*free)(struct shared_store *store);
    /* Whether it refuses every ask with an id. NULL: it does not. */
    bool (*refuses_ids)(const struct shared_store *store);
};

/* First member of every kind of store. */
struct shared_store {
    const struct shared_store_ops *ops;
};

#endif
