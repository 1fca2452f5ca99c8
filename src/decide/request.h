/* SPDX-License-Identifier: MIT */
/*
 * A request, whatever the protocol. A protocol's parser fills it; all that it points to is borrowed
 * and stays as it is until the reply is written. It is small, so that a request can be made anew
 * for each command: lists stay where the parser keeps them.
 */
#ifndef STINT_DECIDE_REQUEST_H
#define STINT_DECIDE_REQUEST_H

#include "base/ns.h"
#include "rules/rules.h"

struct pending; /* decide/pending.h */

/*
 * Verbs of callers and of stores. Those on one state have the numbers of stint.h: an evaluation
 * passes them on. Stores get those up to RENEW.
 */
enum request_verb {
    REQUEST_TAKE = STINT_TAKE,
    REQUEST_TAKE_UPTO = STINT_TAKE_UPTO,
    REQUEST_PEEK = STINT_PEEK,
    REQUEST_CHARGE = STINT_CHARGE,
    REQUEST_REFUND = STINT_REFUND, /* granted_at_ns */
    REQUEST_BOOK = STINT_BOOK, /* max_wait_ns in lifetime_ns. A store: one item, with a ticket */
    REQUEST_UNBOOK = STINT_UNBOOK,
    REQUEST_RESET,
    /*
     * One item under a rule with leases: up to `cost` units, which the caller grants by itself for
     * a term. Ends earlier leases of the caller. RETURN only ends them. See struct backend_lease.
     */
    REQUEST_LEASE,
    REQUEST_RETURN,
    /*
     * For a ticket, of a store also the items charged under it. SETTLE: `cost` is what was used of
     * each. CANCEL: nothing was used. EXTEND, of stores: the holder keeps its slots for longer.
     */
    REQUEST_SETTLE,
    REQUEST_CANCEL,
    REQUEST_EXTEND,
    /*
     * For an ended ticket that was not used: `cost` is the most that stays charged of each item.
     * Denied, with a wait, while the ticket is still valid. Slots of concurrency do not change.
     */
    REQUEST_EXPIRE,
    /*
     * What a store that runs scripts is asked by its backend alone (backend/script/script.h): all
     * that was charged under an id is taken back, slots included, and the id is forgotten; or the
     * slots of one holder of concurrency are returned, or held for longer.
     */
    REQUEST_UNDO,
    REQUEST_RELEASE,
    REQUEST_RENEW, /* of a caller: the slots of a ticket */
    /* Of callers alone. */
    REQUEST_RESERVE,     /* lifetime_ns */
    REQUEST_BLOCK,       /* lifetime_ns: for how long */
    REQUEST_SET_QUOTA,   /* quota: for these keys from now on; empty: that of the rules again */
    REQUEST_EXPLAIN,     /* which rules match, their state, which would deny; charges nothing */
    REQUEST_THROTTLE,    /* CL.THROTTLE: throttle, key */
    REQUEST_FORGET,      /* a key of CL.THROTTLE's: DEL */
    REQUEST_FIND,        /* the same: EXISTS, PTTL */
    REQUEST_COUNT,       /* a counter: key, amount, and the expiry of a new one in lifetime_ns */
    REQUEST_COUNT_RESET, /* key */
    REQUEST_VERBS,
};

/* What is known of a verb, whatever the protocol. */
struct verb {
    const char *name;  /* in metrics, in logs, in the paths of HTTP, and to scripts of stores */
    bool is_of_stores; /* and no caller's */
    bool is_charging;  /* it may move units: such a request may have an id */
    bool is_administrative; /* for administrators */
    bool may_be_ahead;      /* it can wait for a store before earlier requests have an answer */
    bool is_counted; /* its outcome is counted: it decides, or moves units as a decision does */
    uint8_t digest;  /* is_charging: its number where tables and stores keep requests with an id */
};
extern const struct verb request_verbs[REQUEST_VERBS];

/* A key under a quota that the caller supplies. */
struct request_item {
    struct span quota; /* a SPEC */
    struct span key;
    uint32_t cost;
    bool has_cost; /* else the request's */
};

/* Of request_throttle, in seconds: 292 years. */
#define THROTTLE_PERIOD_MAX_S (INT64_MAX / NS_PER_S)

/* As in redis-cell: one more than max_burst at once, count per period seconds. */
struct request_throttle {
    int64_t max_burst; /* -1: nothing fits */
    uint64_t count_per_period, period_s;
};

struct request {
    uint8_t verb; /* enum request_verb */
    bool has_granted_at;
    bool has_envoy_hits; /* hits of descriptors are Envoy's: decide/evaluation.h */
    bool has_on_expiry;  /* RESERVE: kept_units is set */
    bool wants_growth;   /* each status returns when what is left grows: may cost another lookup */
    uint32_t cost;       /* 1 where the caller gave none */
    /* What it is for: a domain with descriptors, or items. Verbs on tickets: neither. */
    struct span domain;
    const struct descriptor *descriptors;
    size_t n_descriptors;
    const struct request_item *items;
    size_t n_items;
    struct request_throttle throttle;
    struct span key;   /* THROTTLE, FORGET, FIND, COUNT */
    int64_t amount;    /* COUNT; 0 reads */
    struct span quota; /* SET_QUOTA: a SPEC */
    struct span id;    /* idempotency: a retry with the same id is charged once; empty: none */
    uint64_t wait_ns;  /* how long the caller waits for an ALLOW */
    /*
     * The time at which that ends, on the clock of decisions; 0: this answer is final. A request
     * that waits is decided several times and counts once, with its final answer.
     */
    uint64_t retry_until_ns;
    uint64_t lifetime_ns;
    uint32_t kept_units;    /* of a reservation never settled; STINT_KEEP_ALL: all of them */
    uint64_t granted_at_ns; /* at_ns of the reply */
    struct stint_ticket ticket;
    struct span ticket_text; /* of a ticket in a store, from a reply; empty: it is `ticket` */
    /*
     * For a request that waits for a store (REPLY_WAITS): reply->pending, so that the same request
     * continues. NULL: first call.
     */
    struct pending *pending;
    /*
     * Earlier requests have no answer yet: begin only what waits for a store (REPLY_WAITS). Else
     * nothing is done, and the reply is REPLY_AHEAD.
     */
    bool is_ahead;
};

/* For asserts: what any parser must keep to. Not that the request makes sense. */
bool request_is_valid(const struct request *request);

#endif
