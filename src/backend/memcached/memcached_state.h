/* SPDX-License-Identifier: MIT */
/*
 * States as memcached keeps them: the limiter's words after the data that is needed to read them,
 * and one decision on them by the limiter's algorithms. Times are whole microseconds since 1970, as
 * on any shared store; the limiter counts from the state's epoch, as its own time ends after
 * eighteen years.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_STATE_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_STATE_H

#include "algorithm/algorithm.h"
#include "base/span.h"
#include "decide/backend.h"

#define MEMCACHED_TICKETS_MAX 1024 /* for one key: 48 KiB, read and written with each decision */
#define MEMCACHED_TICKET_LEN (BACKEND_ID_LEN + 8 + 8 + 8 + 4 + 4)
#define MEMCACHED_TICKETS_LEN_MAX (MEMCACHED_TICKETS_MAX * MEMCACHED_TICKET_LEN + 2)

/* Version and algorithm, epoch, limit, other parameters, words, tickets, checksum. */
#define MEMCACHED_STATE_MAX (1 + 2 + 4 + 20 + WIDE_STATE_MAX + MEMCACHED_TICKETS_LEN_MAX + 4)

/* Tickets closed by a request that does not name them. */
struct memcached_closed {
    uint64_t expired[3]; /* by enum stint_expiry */
    uint64_t kept_units; /* units that were to be released, and could not be given back */
    uint64_t dropped;    /* closed as estimated before their end: there were too many */
};

struct memcached_ticket {
    uint8_t id[BACKEND_ID_LEN];
    uint64_t charged_ns, ends_ns; /* since 1970, or virtual; whole microseconds */
    uint64_t unit_ticks;          /* gcra: the charge of each unit, in the state's time; else 0 */
    uint32_t units, kept;         /* kept: if it is never settled; STINT_KEEP_ALL */
};

/* The oldest first. */
struct memcached_tickets {
    size_t n;
    bool has_changed;
    struct memcached_ticket each[MEMCACHED_TICKETS_MAX];
};

struct memcached_state {
    size_t len;                     /* 0: never used */
    bool was_damaged;               /* and is used up now */
    bool has_changed;               /* since it was read */
    uint64_t count;                 /* of a counter, after the last decision */
    struct memcached_closed closed; /* since it was read */
    uint8_t bytes[MEMCACHED_STATE_MAX];
    struct memcached_tickets tickets; /* of these bytes, unpacked by each function below */
};

/* The id of a ticket. For a take: makes the ticket, valid for so long, which keeps so much. */
struct memcached_step_ticket {
    const uint8_t *id; /* NULL: no ticket. BACKEND_ID_LEN bytes */
    uint64_t good_ns;
    uint32_t kept; /* units that stay charged if it is never settled: STINT_KEEP_ALL */
};

struct memcached_step {
    const struct stint_quota *quota;
    uint64_t now_ns; /* since 1970, or virtual */
    uint64_t at_ns;  /* refund: as now_ns, STINT_NEVER_NS for just now */
    uint32_t cost;
    uint8_t verb; /* enum stint_verb; of a ticket REQUEST_SETTLE, REQUEST_CANCEL, REQUEST_EXPIRE */
    bool is_virtual;
    struct memcached_step_ticket ticket;
};

/* 0 where such a quota can be kept here; else why not. It has passed stint_quota_check(). */
int memcached_state_accepts(const struct stint_quota *quota, struct stint_error *error);

/* Why a request can never be done here; NULL: it can. */
const char *memcached_state_refusal(const struct backend_request *ask);

/* The time, since 1970, from which states of this time count: real time, or as late. */
uint64_t memcached_state_epoch_ns(uint64_t now_ns);

/* Resets it to one that was never used. */
static inline void memcached_state_forget(struct memcached_state *state)
{
    state->len = 0;
    state->was_damaged = state->has_changed = false;
    state->closed = (struct memcached_closed){.dropped = 0};
}

/* Any bytes. */
void memcached_state_read(struct memcached_state *state, struct span bytes);

/*
 * Decides, and changes the state where the algorithm does. Invalid or damaged bytes are replaced by
 * a state with all units used just now, whatever the verb: the real use is unknown, so nothing is
 * granted that may have been granted before. STINT_E_MISMATCH, without a change, for a state of a
 * clock that is fast by more than an hour. STINT_E_GONE for a ticket that was used, has ended, or
 * never existed: this request moves nothing.
 *
 * Any verb that may change the state first closes the tickets that have ended, by their options; a
 * peek decides as if it had.
 */
int memcached_state_ask(struct memcached_state *state, const struct memcached_step *step,
                        struct stint_decision *decision, struct stint_error *error);

/*
 * How long memcached must keep it, in the form of its commands: at least until it is as never used
 * by a clock that is this slow. 0: for ever.
 */
uint64_t memcached_state_ttl_s(struct memcached_state *state, const struct memcached_step *step,
                               uint64_t skew_ns);

#endif
