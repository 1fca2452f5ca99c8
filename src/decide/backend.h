/* SPDX-License-Identifier: MIT */
/*
 * A store outside of this process, as a question sees it: what may be asked of it, and how its
 * answers come. remote/ implements it over Redis, Valkey and memcached, and in layers: a cache of
 * denials or leases stand before a store as stores themselves.
 *
 * A store belongs to the thread of one worker, as do its asks.
 */
#ifndef STINT_DECIDE_BACKEND_H
#define STINT_DECIDE_BACKEND_H

#include "rules/rules.h"

#define BACKEND_ITEMS_MAX STINT_ITEMS_MAX
#define BACKEND_ID_LEN 16 /* bytes of an id: a keyed hash of what the caller said */

enum backend_verb {
    BACKEND_TAKE = STINT_TAKE,
    BACKEND_TAKE_UPTO = STINT_TAKE_UPTO,
    BACKEND_PEEK = STINT_PEEK,
    BACKEND_CHARGE = STINT_CHARGE,
    BACKEND_REFUND = STINT_REFUND,
    BACKEND_BOOK = STINT_BOOK, /* of one item, with a ticket; at_ns: the longest wait */
    BACKEND_RESET = STINT_UNBOOK + 1,
    /*
     * Of one item under a rule that leases: up to `cost` units for whoever asks to hand out himself
     * for a term, and ends leases that he had. RETURN only ends them. See struct backend_lease.
     */
    BACKEND_LEASE,
    BACKEND_RETURN,
    /*
     * Of the ticket whose id this is, with the items that were charged under it. SETTLE: `cost` is
     * what was used of each; CANCEL: nothing was; EXTEND: whoever holds places keeps them longer.
     */
    BACKEND_SETTLE,
    BACKEND_CANCEL,
    BACKEND_EXTEND,
    /*
     * Of a ticket that has ended and was not used: `cost` is what stays charged of each at most.
     * Denied, with a wait, where it is good still. Places stay as they are.
     */
    BACKEND_EXPIRE,
};

/* Units that were leased. What is left of it when it ends is room again, the rest was used. */
struct backend_lease {
    uint64_t ends_ns; /* by the store's clock; names it, together with `units` */
    uint32_t units, left;
};

/* One quota on one key. Everything is borrowed for the call. */
struct backend_item {
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

struct backend_request {
    uint8_t verb;                     /* enum backend_verb */
    bool is_virtual;                  /* now_ns is the time; else the store's own clock is */
    bool is_ahead;                    /* what would be answered at once is not to be answered yet */
    const struct backend_item *items; /* 1 … BACKEND_ITEMS_MAX: all or nothing over them */
    size_t n_items;
    uint64_t at_ns;  /* refund: when it was granted, STINT_NEVER_NS for just now */
    uint64_t now_ns; /* by the clock of this process: stint_now() */
    /* By the same clock: an answer after it is none. Where is_virtual: so long after now_ns. */
    uint64_t deadline_ns;
    /*
     * Idempotency: an ask with an id that was answered ALLOW within id_lifetime_ns is answered the
     * same again, and charges nothing; with another `body` it is a conflict. NULL: no id.
     */
    const uint8_t *id; /* BACKEND_ID_LEN bytes */
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
    const struct backend_lease *ended;
    size_t n_ended;
    uint64_t term_ns; /* LEASE. 0: the units are charged at once, and nothing is to be ended */
    uint32_t least;   /* LEASE: of no use are fewer units than this */
    /* Servers, as in an answer: an ask that would go to one of these fails at once, STOPPED. */
    uint64_t stopped;
};

enum backend_outcome {
    BACKEND_WAITS = 0, /* answered() will be called */
    BACKEND_DECIDED,
    BACKEND_FAILED,   /* the store cannot be asked, or did not answer: it may have been done */
    BACKEND_REFUSED,  /* it can never be asked this: `error` says why */
    BACKEND_CONFLICT, /* the id was used for something else */
    BACKEND_GONE,     /* the ticket was used, has ended, or never was */
    BACKEND_AHEAD,    /* nothing was done: it would have been answered at once */
};

/* Of FAILED: what figures tell apart. */
enum backend_error {
    BACKEND_ERROR_OTHER = 0,
    BACKEND_ERROR_LATE,        /* no answer in time; it may have been done */
    BACKEND_ERROR_LOST,        /* the connection ended before the answer; it may have been done */
    BACKEND_ERROR_UNREACHABLE, /* nobody could be asked in time */
    BACKEND_ERROR_OVERLOAD,    /* too much waits already */
    BACKEND_ERROR_BUSY,    /* it answers, but other servers were faster; it may have been done */
    BACKEND_ERROR_STATE,   /* it answers, but what stands there is of another time */
    BACKEND_ERROR_STOPPED, /* it has failed too often to be asked now */
    BACKEND_ERRORS,
};

struct backend_answer {
    uint8_t outcome;   /* enum backend_outcome */
    uint8_t fault;     /* enum backend_error */
    bool is_replayed;  /* the answer that was given to the same id before */
    bool is_local;     /* of a lease or a cache: the store was not asked */
    uint64_t at_ns;    /* the store's time, under which units were charged; since 1970 */
    const char *error; /* FAILED, REFUSED: a message that lives as long as the store */
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
struct backend_op {
    struct backend_answer answer;
    /*
     * Called once, but only where ask() left the outcome at BACKEND_WAITS; never from within ask().
     * It may ask anything anew.
     */
    void (*answered)(struct backend_op *op, uint64_t now_ns);
    void *arg;     /* the asker's */
    void *at_work; /* the store's, while it waits */
};

struct backend;

struct backend_ops {
    /* Answers at once, or leaves BACKEND_WAITS. Never blocks. */
    void (*ask)(struct backend *store, const struct backend_request *ask, struct backend_op *op);
    /* Nobody wants this answer any more: `op` is not touched again. It may be done all the same. */
    void (*forget)(struct backend *store, struct backend_op *op);
    /* 0 where states under this quota can be kept here; else why not, as stint_table_accepts(). */
    int (*accepts)(const struct backend *store, const struct stint_quota *quota,
                   struct stint_error *error);
    /* Since when it could not be asked, by stint_now(); 0: it can, as far as is known. */
    uint64_t (*unavailable_since_ns)(const struct backend *store);
    /* The server ends: gives back what is held. `done` is called once, at the latest at deadline.
     */
    void (*drain)(struct backend *store, uint64_t deadline_ns, void (*done)(void *arg), void *arg);
    /* Answers what waits with FAILED, and frees the stores behind it, too. */
    void (*free)(struct backend *store);
    /* Whether it refuses every ask with an id. NULL: it does not. */
    bool (*refuses_ids)(const struct backend *store);
};

/* First member of every kind of store. */
struct backend {
    const struct backend_ops *ops;
};

#endif
