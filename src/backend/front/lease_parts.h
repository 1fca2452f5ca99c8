/* SPDX-License-Identifier: MIT */
/* What the files of the leases share: keys, their leases, and waiting requests. */
#ifndef STINT_BACKEND_FRONT_LEASE_PARTS_H
#define STINT_BACKEND_FRONT_LEASE_PARTS_H

#include "backend/front/lease.h"
#include "base/siphash.h"

#define LEASE_HELD_MAX 3 /* leases of one key: one runs out while the next is requested */

struct lease_key;
struct lease_list;

/* One lease of this worker. `lease.ends_ns` is 0 where it was charged at once. */
struct lease_held {
    struct backend_lease lease;
    uint64_t until_ns; /* by this process's clock: no grants from then on */
    /*
     * The time of grant for its units: that of the lease, plus some nanoseconds, which no grant of
     * the store has. A refund with this time is of this lease.
     */
    uint64_t at_ns;
};

enum lease_waiting { LEASE_WAITS, LEASE_PEEKS, LEASE_LISTS };

/* A request that was not answered at once: its op->at_work. */
struct lease_waiter {
    struct lease_waiter *next, *previous;
    struct lease *home;
    struct lease_key *key;
    struct backend_op *op;
    enum lease_waiting kind;
    bool is_new; /* in ask(): the answer is stored, without a callback */
    uint8_t verb;
    uint32_t cost;
    uint64_t deadline_ns;
    uint64_t turn;           /* lease.turns on arrival */
    struct backend_op inner; /* of LEASE_PEEKS */
    struct stint_decision each;
    struct lease_list *list; /* of LEASE_LISTS */
};

struct lease_key {
    struct lease_key *next;          /* of its bucket */
    struct lease_key *newer, *older; /* in the order of their last request */
    struct lease *home;
    uint64_t hash;
    unsigned pins; /* work on it is in progress */
    /*
     * Waiting requests are being answered. A callback may request the same key again, which must
     * not answer others from within.
     */
    bool is_pumping;
    /* A copy of its item: requests continue when no caller is left. */
    struct backend_item item;
    struct stint_quota quota;
    struct rule rule;
    uint8_t *bytes;
    struct lease_held held[LEASE_HELD_MAX]; /* the oldest first */
    size_t n_held;
    struct lease_waiter *first, *last;
    uint64_t waiting; /* units that they want in total */
    /* The one request in progress. */
    uint8_t asking;  /* BACKEND_LEASE, BACKEND_RETURN, BACKEND_REFUND; 0: none */
    uint32_t coming; /* units of a LEASE request */
    struct backend_op op;
    struct stint_decision each;
    uint64_t sent_ns;
    uint64_t sent_term_ns; /* of a lease: the rule may change before the answer */
    uint32_t least;        /* wanted by the first waiting request */
    /* The key's state at the last answer of the store. */
    uint32_t limit, remaining;
    uint64_t reset_ns;
    /* The next lease size. */
    uint32_t units, granted;
    uint64_t used;            /* since the last lease request */
    uint64_t leased_ns;       /* the time of that request */
    uint64_t asked_ns;        /* the last request for the key */
    uint64_t quiet_until_ns;  /* no prefetch of a lease */
    uint64_t direct_until_ns; /* no lease is available: each request goes to the store */
    uint32_t denied_cost;     /* this cost and above is denied; 0: nothing is known */
    uint64_t denied_until_ns, retry_ns;
};

struct lease {
    struct backend store;
    struct lease_options options;
    struct backend *inner;
    struct lease_key **buckets, *newest, *oldest, *free_keys;
    size_t n_buckets, n_keys;
    struct lease_waiter *waiters, *free_waiters;
    uint64_t units; /* held, and not used yet */
    uint64_t woken_ns, salt;
    uint64_t turns; /* counts arrivals and cancellations */
    bool is_draining, is_ending;
};

static inline uint64_t lease_now(const struct lease *lease)
{
    return lease->options.now(lease->options.arg);
}

/* ---- lease_keys.c ---------------------------------------------------------------------------- */

/* Copies of the item, in one block of memory; false: none. */
bool lease_copy_item(const struct backend_item *item, struct backend_item *copy,
                     struct stint_quota *quota, struct rule *rule, uint8_t **bytes);

struct lease_key *lease_find(struct lease *lease, const struct backend_item *item);
/* The same, or a new one. NULL: there is no space; one of the others is prepared for removal. */
struct lease_key *lease_key_of(struct lease *lease, const struct backend_item *item);
void lease_touch(struct lease_key *key, uint64_t now_ns);
/* It holds nothing and has no requests. */
void lease_remove(struct lease_key *key);
bool lease_is_busy(const struct lease_key *key);

/* ---- lease_flight.c -------------------------------------------------------------------------- */

uint32_t lease_left(const struct lease_key *key);
/* `units` more, or fewer, are held and unused. */
void lease_count(struct lease *lease, int64_t units);
void lease_drop_ended(struct lease_key *key, uint64_t now_ns);
/*
 * Removes leases that are to be ended: all with `all`, else those used up or soon over. At most
 * LEASE_HELD_MAX.
 */
size_t lease_end(struct lease_key *key, bool all, uint64_t now_ns,
                 struct backend_lease ended[LEASE_HELD_MAX]);
/* Answers waiting requests as far as possible, and requests a lease for the rest. */
void lease_pump(struct lease_key *key, uint64_t now_ns);
/* Requests more before what is held is used up, so that later requests need not wait. */
void lease_prefetch(struct lease_key *key, uint64_t deadline_ns, uint64_t now_ns);
/* Gives back what is held and not used. */
void lease_give_back(struct lease_key *key, uint64_t now_ns);

/* ---- lease.c --------------------------------------------------------------------------------- */

/* True: decided by what is held or known here. */
bool lease_serve(struct lease_key *key, uint8_t verb, uint32_t cost, uint64_t now_ns,
                 struct backend_answer *answer);
struct lease_waiter *lease_new_waiter(struct lease *lease, enum lease_waiting kind,
                                      struct backend_op *op);
void lease_free_waiter(struct lease_waiter *waiter);
/* Removes it from the queue of its key, and answers it. */
void lease_deliver(struct lease_waiter *waiter, const struct backend_answer *answer,
                   uint64_t now_ns);
/* One item under a rule with leases. */
void lease_ask_item(struct lease *lease, const struct backend_request *ask, struct backend_op *op);

/* ---- lease_list.c ---------------------------------------------------------------------------- */

void lease_ask_list(struct lease *lease, const struct backend_request *ask, struct backend_op *op);
void lease_forget_list(struct lease_waiter *waiter);

#endif
