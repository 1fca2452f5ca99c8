/* SPDX-License-Identifier: MIT */
/* What the files of the leases share: keys, what is held of them, and who waits. */
#ifndef STINT_BACKEND_FRONT_LEASE_PARTS_H
#define STINT_BACKEND_FRONT_LEASE_PARTS_H

#include "backend/front/lease.h"
#include "base/siphash.h"

#define LEASE_HELD_MAX 3 /* leases of one key: one runs out while the next is on its way */

struct lease_key;
struct lease_list;

/* One lease of ours. `lease.ends_ns` is 0 where it was charged at once. */
struct lease_held {
    struct backend_lease lease;
    uint64_t until_ns; /* by our clock: nothing of it is handed out from then on */
    /*
     * What is told to whoever gets units of it, as the time at which they were granted: when the
     * lease was, and some nanoseconds, which no grant of the store's has. A refund that names it is
     * of this lease.
     */
    uint64_t at_ns;
};

enum lease_waiting { LEASE_WAITS, LEASE_PEEKS, LEASE_LISTS };

/* An ask that was not answered at once: its op->at_work. */
struct lease_waiter {
    struct lease_waiter *next, *previous;
    struct lease *home;
    struct lease_key *key;
    struct backend_op *op;
    enum lease_waiting kind;
    bool is_new; /* it is being asked: the answer is left, not told */
    uint8_t verb;
    uint32_t cost;
    uint64_t deadline_ns;
    uint64_t turn;           /* lease.turns when it came */
    struct backend_op inner; /* of LEASE_PEEKS */
    struct stint_decision each;
    struct lease_list *list; /* of LEASE_LISTS */
};

struct lease_key {
    struct lease_key *next;          /* of its bucket */
    struct lease_key *newer, *older; /* by when they were asked for */
    struct lease *home;
    uint64_t hash;
    unsigned pins; /* it is being worked on */
    /*
     * Those who wait are being answered. Whoever is may ask for the same key again, and nobody else
     * is to be answered from within that.
     */
    bool is_pumping;
    /* A copy of what it is asked by: it is asked for when nobody is there any more. */
    struct backend_item item;
    struct stint_quota quota;
    struct rule rule;
    uint8_t *bytes;
    struct lease_held held[LEASE_HELD_MAX]; /* the oldest first */
    size_t n_held;
    struct lease_waiter *first, *last;
    uint64_t waiting; /* units that they want, all together */
    /* The one ask on its way. */
    uint8_t asking;  /* BACKEND_LEASE, BACKEND_RETURN, BACKEND_REFUND; 0: none */
    uint32_t coming; /* units that a LEASE asks for */
    struct backend_op op;
    struct stint_decision each;
    uint64_t sent_ns;
    uint64_t sent_term_ns; /* of a lease: the rule may say another one before it is there */
    uint32_t least;        /* that the first who waited for it wanted */
    /* How the key stood when the store was asked last. */
    uint32_t limit, remaining;
    uint64_t reset_ns;
    /* How many units are asked for at once. */
    uint32_t units, granted;
    uint64_t used;            /* since a lease was asked for last */
    uint64_t leased_ns;       /* when that was */
    uint64_t asked_ns;        /* when anything was asked of it last */
    uint64_t quiet_until_ns;  /* no lease is asked for that nobody waits for */
    uint64_t direct_until_ns; /* no lease is to be had: each ask goes to the store */
    uint32_t denied_cost;     /* that, and all above, is denied; 0: nothing is known */
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
    uint64_t turns; /* counts what is asked and forgotten */
    bool is_draining, is_ending;
};

static inline uint64_t lease_now(const struct lease *lease)
{
    return lease->options.now(lease->options.arg);
}

/* ---- lease_keys.c ---------------------------------------------------------------------------- */

/* Copies of the item, in one piece of memory; false: none. */
bool lease_copy_item(const struct backend_item *item, struct backend_item *copy,
                     struct stint_quota *quota, struct rule *rule, uint8_t **bytes);

struct lease_key *lease_find(struct lease *lease, const struct backend_item *item);
/* The same, or a new one. NULL: there is no room; one of the others is made ready to go. */
struct lease_key *lease_key_of(struct lease *lease, const struct backend_item *item);
void lease_touch(struct lease_key *key, uint64_t now_ns);
/* Nothing is held of it, asked or waited for. */
void lease_remove(struct lease_key *key);
bool lease_is_busy(const struct lease_key *key);

/* ---- lease_flight.c -------------------------------------------------------------------------- */

uint32_t lease_left(const struct lease_key *key);
/* `units` more, or fewer, are held and not used. */
void lease_count(struct lease *lease, int64_t units);
void lease_drop_ended(struct lease_key *key, uint64_t now_ns);
/* Takes out what is to be ended. `all`, or what is used up, or soon over. At most LEASE_HELD_MAX.
 */
size_t lease_end(struct lease_key *key, bool all, uint64_t now_ns,
                 struct backend_lease ended[LEASE_HELD_MAX]);
/* Answers those who wait as long as it can, and asks for a lease where it cannot. */
void lease_pump(struct lease_key *key, uint64_t now_ns);
/* Asks for more before what is held is used up. Whoever comes to wait for it waits no longer. */
void lease_prefetch(struct lease_key *key, uint64_t deadline_ns, uint64_t now_ns);
/* Gives back what is held and not used. */
void lease_give_back(struct lease_key *key, uint64_t now_ns);

/* ---- lease.c --------------------------------------------------------------------------------- */

/* True: it was decided by what is held or known here. */
bool lease_serve(struct lease_key *key, uint8_t verb, uint32_t cost, uint64_t now_ns,
                 struct backend_answer *answer);
struct lease_waiter *lease_new_waiter(struct lease *lease, enum lease_waiting kind,
                                      struct backend_op *op);
void lease_free_waiter(struct lease_waiter *waiter);
/* Takes it off the queue of its key, and answers it. */
void lease_deliver(struct lease_waiter *waiter, const struct backend_answer *answer,
                   uint64_t now_ns);
/* One item under a rule that leases. */
void lease_ask_item(struct lease *lease, const struct backend_request *ask, struct backend_op *op);

/* ---- lease_list.c ---------------------------------------------------------------------------- */

void lease_ask_list(struct lease *lease, const struct backend_request *ask, struct backend_op *op);
void lease_forget_list(struct lease_waiter *waiter);

#endif
