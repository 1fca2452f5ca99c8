/* SPDX-License-Identifier: MIT */
/*
 * Requests that the leases did not answer at once. Their memory is fixed. Those that wait for a
 * lease are in a queue of their key, in the order of their arrival.
 */
#ifndef STINT_BACKEND_FRONT_LEASE_WAITER_H
#define STINT_BACKEND_FRONT_LEASE_WAITER_H

#include "backend/front/lease_parts.h"

enum lease_waiting { LEASE_WAITS, LEASE_PASSES, LEASE_LISTS };

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
    struct backend_op inner; /* of LEASE_PASSES: the store decides on what is not held here */
    struct stint_decision each;
    struct lease_list *list; /* of LEASE_LISTS */
};

/* NULL: too many wait; op has the answer. */
struct lease_waiter *lease_waiter_new(struct lease *lease, enum lease_waiting kind,
                                      struct backend_op *op);
bool lease_is_waiter(const struct lease *lease, const void *at_work);
/* Of LEASE_WAITS: the last in the queue of the key. */
void lease_waiter_enqueue(struct lease_key *key, struct lease_waiter *waiter);
/* Also takes it out of the queue. One that is free has no op. */
void lease_waiter_free(struct lease_waiter *waiter);

/* Of one item; op->answer.each stays. */
void lease_fill(struct backend_op *op, const struct backend_answer *answer);
/* Answers it, and frees it. */
void lease_waiter_tell(struct lease_waiter *waiter, const struct backend_answer *answer,
                       uint64_t now_ns);
/*
 * True: decided by what is held or known here. An answered caller may do much before it returns,
 * and a lease may end meanwhile: so the clock is read for each.
 */
bool lease_waiter_serve(struct lease_waiter *waiter, uint64_t now_ns);
/*
 * Answers all waiting requests of at least this cost. Those for which enough is held are served
 * instead: an earlier one may have been too large. An answered caller may send or cancel requests;
 * then the scan restarts, with those that were waiting before.
 */
void lease_waiters_tell(struct lease_key *key, uint32_t least, const struct backend_answer *answer,
                        uint64_t now_ns);
/* The latest deadline of the queue, at least deadline_ns. */
uint64_t lease_waiters_latest(const struct lease_key *key, uint64_t deadline_ns);
/* Answers those whose deadline has passed: a lease for several lasts as long as the last of them.
 */
void lease_waiters_expire(struct lease *lease, uint64_t now_ns);

#endif
