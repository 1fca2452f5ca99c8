/* SPDX-License-Identifier: MIT */
/*
 * A backend is a store outside of this process, as an evaluation sees it: the requests that it
 * takes and how it replies. backend/ implements it over Redis, Valkey and memcached, in layers: a
 * denial cache or leases are backends themselves, in front of another backend.
 *
 * A backend and its requests belong to the thread of one worker.
 */
#ifndef STINT_DECIDE_BACKEND_H
#define STINT_DECIDE_BACKEND_H

#include "decide/request.h"

#define BACKEND_ITEMS_MAX STINT_ITEMS_MAX
#define BACKEND_ID_LEN 16 /* bytes of an id: a keyed hash of the caller's id */

/* Units that were leased. Units left at the end become free again; the rest was used. */
struct backend_lease {
    uint64_t ends_ns; /* by the store's clock; names it, together with `units` */
    uint32_t units, left;
};

/*
 * One quota on one key. Everything is borrowed for the call. A counter is an item, too, alone in
 * its request and without an id: CHARGE adds, REFUND subtracts, PEEK reads and RESET forgets.
 */
struct backend_item {
    const struct stint_quota *quota; /* of a counter: the period is the expiry of a new one */
    const struct rule *rule;         /* holds the options; NULL: the caller supplied the quota */
    /*
     * Names the states: RULE of a key's name, already escaped. The same on every node with the same
     * rules.
     */
    struct span name;
    struct span key;
    bool is_values; /* the key is from rules_match(): an id, then values, each after its length */
    uint32_t cost;
    uint32_t kept; /* TAKE with a ticket: units that stay charged if it is never settled */
};

struct backend_request {
    uint8_t verb;                     /* enum request_verb */
    bool is_virtual;                  /* now_ns is the time, not the store's own clock */
    bool is_ahead;                    /* prefetch: do not decide what could be answered at once */
    const struct backend_item *items; /* 1 … BACKEND_ITEMS_MAX: all or nothing over them */
    size_t n_items;
    uint64_t at_ns;  /* refund: when it was granted, STINT_NEVER_NS for just now */
    uint64_t now_ns; /* by the clock of this process: stint_now() */
    /* By the same clock: a later reply does not count. Where is_virtual: relative to now_ns. */
    uint64_t deadline_ns;
    /*
     * Idempotency: a request whose id was answered ALLOW within id_lifetime_ns gets the same answer
     * and charges nothing; with a different `body` it is a conflict. NULL: no id.
     */
    const uint8_t *id; /* BACKEND_ID_LEN bytes */
    uint64_t body;
    uint64_t id_lifetime_ns;
    /*
     * The id is a ticket's. TAKE, EXTEND: it is valid for ticket_ns; BOOK: until the start. The
     * answer to such a TAKE or BOOK need not be kept for longer: id_lifetime_ns may be 0.
     */
    bool is_ticket;
    uint64_t ticket_ns;
    uint64_t longer_ns; /* TAKE, EXTEND: EXPIRE knows the ticket for so long after its end */
    /* LEASE, RETURN, RESET: leases that are over. */
    const struct backend_lease *ended;
    size_t n_ended;
    uint64_t term_ns; /* LEASE. 0: the units are charged at once and nothing has to be ended */
    uint32_t least;   /* LEASE: fewer units than this are of no use */
    /* Servers, as in an answer: a request to one of these fails at once with STOPPED. */
    uint64_t stopped;
};

enum backend_outcome {
    BACKEND_WAITS = 0, /* answered() will be called */
    BACKEND_DECIDED,
    BACKEND_FAILED,   /* unavailable or no reply: it may have been done */
    BACKEND_REFUSED,  /* the store can never do this: `error` gives the reason */
    BACKEND_CONFLICT, /* the id was used for a different request */
    BACKEND_GONE,     /* the ticket was used, has ended, or never existed */
    BACKEND_AHEAD,    /* nothing was done: it could have been answered at once */
};

/* Reasons for FAILED, which metrics count apart. */
enum backend_error {
    BACKEND_ERROR_OTHER = 0,
    BACKEND_ERROR_LATE,        /* no reply in time; it may have been done */
    BACKEND_ERROR_LOST,        /* the connection ended before the reply; it may have been done */
    BACKEND_ERROR_UNREACHABLE, /* no server was available in time */
    BACKEND_ERROR_OVERLOAD,    /* too many requests wait already */
    /* Other servers were faster each time; it may have been done. A DENY, too, may have it. */
    BACKEND_ERROR_BUSY,
    BACKEND_ERROR_STATE,   /* it replies, but the key's state is of another time, or is none */
    BACKEND_ERROR_STOPPED, /* too many failures; requests are stopped for now */
    BACKEND_ERRORS,
};

struct backend_answer {
    uint8_t outcome;   /* enum backend_outcome */
    uint8_t fault;     /* enum backend_error */
    bool is_replayed;  /* the answer given earlier to the same id */
    bool is_local;     /* from a lease or a cache: no request went to the store */
    uint64_t at_ns;    /* the store's time at which units were charged; since 1970 */
    const char *error; /* FAILED, REFUSED: a message, borrowed until the backend's next answer */
    /*
     * Bits of the store's servers that got the request, and of those that failed. 0: the store has
     * one server, or none got the request.
     */
    uint64_t servers, failed;
    struct stint_decision sum;
    /*
     * Each item after the decision, in order. Where the list is denied: whether the item alone
     * would have been allowed, with the numbers of a state from which nothing was taken.
     */
    struct stint_decision *each; /* n_items of them; the caller's memory */
    uint64_t count; /* of a counter, after the request; it expires after sum.reset_after_ns */
    uint64_t lease_ends_ns; /* LEASE with a term. 0: too many nodes hold one already */
    uint32_t leases;        /* LEASE: how many other nodes hold units of the key now */
};

/*
 * One request in progress. It is in the caller's memory and must not move until it is answered.
 * Zero it, then set `answered` and answer.each.
 */
struct backend_op {
    struct backend_answer answer;
    /*
     * Called once, and only where ask() left the outcome at BACKEND_WAITS; never from within ask().
     * It may send new requests.
     */
    void (*answered)(struct backend_op *op, uint64_t now_ns);
    void *arg;     /* the caller's */
    void *at_work; /* the backend's, while it waits */
};

struct backend;

struct backend_ops {
    /* Answers at once, or leaves BACKEND_WAITS. Never blocks. */
    void (*ask)(struct backend *store, const struct backend_request *ask, struct backend_op *op);
    /* The answer is no longer wanted: `op` is not touched again. The request may still be done. */
    void (*forget)(struct backend *store, struct backend_op *op);
    /* 0 where the store can keep states under this quota; else as stint_table_accepts(). */
    int (*accepts)(const struct backend *store, const struct stint_quota *quota,
                   struct stint_error *error);
    /* Since when the store is unavailable, by stint_now(); 0: available, as far as is known. */
    uint64_t (*unavailable_since_ns)(const struct backend *store);
    /* The server ends: returns what is held. `done` is called once, at the latest at deadline. */
    void (*drain)(struct backend *store, uint64_t deadline_ns, void (*done)(void *arg), void *arg);
    /* Answers all waiting requests with FAILED. Also frees the backends behind it. */
    void (*free)(struct backend *store);
    /* Whether it refuses every request with an id. NULL: it does not. */
    bool (*refuses_ids)(const struct backend *store);
};

/* First member of every kind of backend. */
struct backend {
    const struct backend_ops *ops;
};

#endif
