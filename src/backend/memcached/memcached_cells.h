/* SPDX-License-Identifier: MIT */
/*
 * Decisions on single keys: reads the state, decides for all that wait for that key, and writes it
 * back if there was no other write; else again. So a busy key costs two round trips for all its
 * requests, without conflicts between them. If several stores want the same key, each leaves gaps
 * to the others. Beside them it compares the clocks of the nodes. One thread.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_CELLS_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_CELLS_H

#include "backend/memcached/memcached_backend.h"
#include "backend/memcached/memcached_state.h"

struct cells;
struct cell;

enum cell_outcome {
    CELL_DECIDED,
    CELL_REFUSED,  /* memcached is not available for it; nothing was done */
    CELL_UNUSABLE, /* its state is from a clock that is fast; nothing was done */
    CELL_GONE,     /* there is no such ticket at the key */
    CELL_LATE,     /* no answer in time: it may have been done */
    CELL_LOST,     /* the connection has ended: it may have been done */
};

/* One decision in progress; the caller's memory, which must not move until it is answered. */
struct cell_ask {
    /* Set by the caller. Real time is read when it is decided. */
    struct memcached_step step;
    uint64_t deadline_ns; /* it waits for its turn until half of its time is over */
    bool is_reset;        /* forget the key, whatever the step */
    void (*answered)(struct cell_ask *ask, enum cell_outcome outcome, uint64_t now_ns);
    void *arg;
    /* Outcome. */
    struct stint_decision decision;
    struct stint_decision at_rest; /* of a peek: the numbers of the state as it is */
    uint64_t at_ns;                /* of the decision, as step.now_ns */
    uint64_t count;                /* of a counter */
    /* The cells'. */
    uint64_t began_ns;
    struct cell *cell;
    struct cell_ask *next;
    uint8_t outcome; /* enum cell_outcome, once it is decided */
    bool is_decided; /* on the state that was read */
    bool is_due;     /* to be answered */
    bool has_lost;   /* part of a swap, at another store */
    bool is_withdrawn;
};

/*
 * Options, metrics and `fault`, for why the last request was refused or lost, are borrowed; the
 * prefix of all keys is escaped. NULL: no memory. For free(), once no decision waits and nothing is
 * in progress.
 */
struct cells *cells_new(const struct memcached_backend_options *options,
                        struct memcached_metrics *metrics, struct stint_error *fault,
                        struct span prefix);
/* False: no memory. Never answers from within. */
bool cells_ask(struct cells *cells, unsigned server, const struct memcached_key *key,
               struct cell_ask *ask, uint64_t now_ns);
/* What an unanswered decision waits for. */
enum cell_wait {
    CELL_WAITS_FOR_CONNECTION,
    CELL_WAITS_FOR_REPLY,
    CELL_WAITS_FOR_TURN, /* memcached answers, but other stores were faster */
};
enum cell_wait cells_wait(const struct cell_ask *ask, uint64_t now_ns);
/* The answer is no longer wanted; the decision may still be done. */
void cells_forget(struct cell_ask *ask);
/*
 * Forgets it, unless a swap with it is in progress: true, it is answered after that swap, as
 * REFUSED where the swap failed.
 */
bool cells_withdraw(struct cell_ask *ask);
/* When to call wake() at the latest: some cell has waited for its turn, or the nodes' clocks are to
 * be compared. */
uint64_t cells_deadline(const struct cells *cells);
/* has_connected: some connection is ready, so cells that waited for it continue. */
void cells_wake(struct cells *cells, bool has_connected, uint64_t now_ns);

#endif
