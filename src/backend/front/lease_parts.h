/* SPDX-License-Identifier: MIT */
/* What the files of the leases share: keys and their leases. */
#ifndef STINT_BACKEND_FRONT_LEASE_PARTS_H
#define STINT_BACKEND_FRONT_LEASE_PARTS_H

#include "backend/front/lease.h"
#include "base/siphash.h"
#include "base/wide_int.h"

#define LEASE_HELD_MAX 3   /* leases of one key: one runs out while the next is requested */
#define LEASE_SOON_PARTS 8 /* part of the term: this near its end a lease is renewed */

struct lease_key;
struct lease_list;
struct lease_waiter;

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
    struct backend_item *item;
    struct rule_store store;                /* of the rule in force */
    struct lease_held held[LEASE_HELD_MAX]; /* the oldest first */
    size_t n_held;
    struct lease_waiter *first, *last;
    uint64_t waiting; /* units that they want in total */
    /* The one request in progress. */
    uint8_t asking;   /* REQUEST_LEASE, REQUEST_RETURN, REQUEST_REFUND; 0: none */
    uint32_t coming;  /* units of a LEASE request */
    bool is_outdated; /* the key has been changed otherwise since it was sent */
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
    uint64_t earliest_ns; /* no waiting request has an earlier deadline */
    uint64_t turns;       /* counts arrivals and cancellations */
    bool is_draining, is_ending;
};

static inline uint64_t lease_now(const struct lease *lease)
{
    return lease->options.now(lease->options.arg);
}

static inline uint32_t lease_left(const struct lease_key *key)
{
    uint32_t left = 0;
    for (size_t i = 0; i < key->n_held; i++)
        left += key->held[i].lease.left;
    return left;
}

/* What no waiting request is to have. */
static inline uint32_t lease_spare(const struct lease_key *key)
{
    return (uint32_t)sub_floor(lease_left(key), key->waiting);
}

/* `units` more, or fewer, are held and unused. */
static inline void lease_count(struct lease *lease, int64_t units)
{
    lease->units += (uint64_t)units;
    if (lease->options.metrics != NULL)
        backend_metric_set(&lease->options.metrics->lease_units, lease->units);
}

/* Whether a denial of so much is known. */
static inline bool lease_denies(const struct lease_key *key, uint8_t verb, uint32_t cost,
                                uint64_t now_ns)
{
    uint32_t least = verb == REQUEST_TAKE_UPTO ? 1 : cost;
    return key->denied_cost > 0 && least >= key->denied_cost && cost <= key->limit &&
           now_ns < key->denied_until_ns;
}

/* ---- lease_keys.c ---------------------------------------------------------------------------- */

/* The key, which is now the newest. NULL: it is not there. */
struct lease_key *lease_find(const struct lease *lease, const struct backend_item *item,
                             uint64_t now_ns);
/* It is not there yet, and there is space. NULL: no memory. */
struct lease_key *lease_new_key(struct lease *lease, const struct backend_item *item,
                                uint64_t now_ns);
/* It holds no units and has no requests. */
void lease_remove(struct lease_key *key);

/* The ith lease is over. */
void lease_drop(struct lease_key *key, size_t i);
/* Also used units that were charged at once: they need no report. */
void lease_drop_ended(struct lease_key *key, uint64_t now_ns);

/* True: decided by what is held or known here. */
bool lease_serve(struct lease_key *key, uint8_t verb, uint32_t cost, uint64_t now_ns,
                 struct backend_answer *answer);
/* Adds what is held here, as far as it is spare, to the units that the store granted of `cost`. */
void lease_add_upto(struct lease_key *key, uint32_t cost, struct backend_answer *answer);
/* True: the units went back to the lease that they are from. */
bool lease_refund(struct lease_key *key, const struct backend_request *ask, uint64_t now_ns,
                  struct backend_answer *answer);

/* ---- lease_list.c ---------------------------------------------------------------------------- */

/*
 * As an operation of a backend: one request at a time to `leased` for each leased item, and to
 * `plain` for the rest. The result is valid until the answer.
 */
struct lease_list *lease_list_ask(struct backend *leased, struct backend *plain,
                                  const struct backend_request *ask, struct backend_op *op);
/* The answer is not wanted, but still comes: taken units may have to be given back. */
void lease_list_forget(struct lease_list *list);

#endif
