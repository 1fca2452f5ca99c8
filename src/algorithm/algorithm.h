/* SPDX-License-Identifier: MIT */
/*
 * The functions that every algorithm provides, and the table of them.
 *
 * A state is bytes; all zero is "never used". An algorithm works on these bytes only: no clock, no
 * allocation, no atomics. Each file <algorithm>.c defines its row, a struct algorithm; algorithm.c
 * calls the functions of a row by quota->algorithm.
 *
 *   <alg>_check    quota -> derived fields, state_size and defaults; or an error. quota.c has
 *                  checked what all have in common (limit, period, fields of other algorithms).
 *   <alg>_ask      state, ask -> state', decision. A DENY or NEVER leaves the bytes unchanged,
 *                  except under STINT_CHARGE. now_ns is already the effective time; if the state's
 *                  own time is later, that is used.
 *   <alg>_expires_at  the time from which the state equals "never used"; 0 for all zero.
 *   <alg>_fill     the state that denies every cost above 0 until `until_ns`, then
 *                  expires: exactly then if the state can hold it, else as soon after as it can.
 *                  gcra keeps debt, not denial: its TAT becomes until_ns. Not for limit 0, under
 *                  which a new state denies.
 *   <alg>_is_valid whether the bytes are a state that this algorithm can have written for this
 *                  quota, with no decision later than now_ns. Safe for any bytes; no other function
 *                  here may get bytes that are not valid. A valid state expires at most 3 periods
 *                  and 2 capacities after now_ns; one booked through a table at most
 *                  BOOK_WAIT_MAX_NS later, and a counter PERIOD_MAX_NS. Under limit 0 only all zero
 *                  is valid.
 *   <alg>_held     the units that the state still holds at now, as runs at their latest possible
 *                  time, oldest first; returns the number of runs, at most HELD_RUNS_MAX (older
 *                  runs are merged into the time of a younger one, never the reverse). Displaced
 *                  units are in the first run: the sum may exceed the limit.
 *   <alg>_own_ns   the state's own time: earlier requests are decided at it. 0: it has none.
 *   <alg>_pass     makes the state's own time at least at_ns. gcra, which has none, owes until
 *                  then. Units that are held are held no shorter.
 *
 *   <alg>_groups   the units that return together, for the display of a state.
 *
 * States of 8 and 16 bytes are one or two 64-bit words. The top 16 bits of word16.hi belong to the
 * table and are zero here, on input and on output.
 */
#ifndef STINT_ALGORITHM_ALGORITHM_H
#define STINT_ALGORITHM_ALGORITHM_H

#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>

#define WORD16_STORE_BITS 16
#define HELD_RUNS_MAX 128 /* one for each slot of a window, at least */

/*
 * The policy of a full table under a quota, never STINT_FULL_DEFAULT. `otherwise` is for quotas
 * that do not set it; if that is STINT_FULL_DEFAULT too, the algorithm decides. Holders are never
 * evicted: they hold their units, whether the table has a record of it or not.
 */
uint8_t algorithm_when_full(const struct stint_quota *quota, uint8_t otherwise);

/* A refund to a gcra state in which a booking may be that has not begun; see gcra.c. */
#define ALGORITHM_REFUND_BOOKED 7

/* The verb for a caller-owned state: no table records what is booked in it. */
static inline uint8_t algorithm_own_verb(const struct stint_quota *quota, uint8_t verb)
{
    return verb == STINT_REFUND && quota->algorithm == STINT_GCRA ? ALGORITHM_REFUND_BOOKED : verb;
}

struct word16 {
    uint64_t lo, hi;
};

static inline bool word16_equals(struct word16 a, struct word16 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

struct held_run {
    uint64_t at_ns;
    uint64_t units;
};

/* Units that return together: buckets, and bunches of window. */
#define HELD_GROUPS_MAX 512
struct held_group {
    uint64_t returns_ns;
    uint64_t units;
};

/* The functions of one algorithm; the top of this file describes each. NULL: it has none. */
struct algorithm {
    const char *name;
    int (*check)(struct stint_quota *quota, struct stint_error *error);
    struct stint_decision (*ask)(const struct stint_quota *quota, void *state,
                                 const struct stint_ask *ask);
    uint64_t (*expires_at)(const struct stint_quota *quota, const void *state);
    void (*fill)(const struct stint_quota *quota, void *state, uint64_t until_ns);
    bool (*is_valid)(const struct stint_quota *quota, const void *state, uint64_t now_ns);
    size_t (*held)(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                   struct held_run *runs);
    uint64_t (*own_ns)(const struct stint_quota *quota, const void *state);
    void (*pass)(const struct stint_quota *quota, void *state, uint64_t at_ns);
    size_t (*groups)(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                     struct held_group *groups);
};

extern const struct algorithm algorithm_window, algorithm_buckets, algorithm_log, algorithm_gcra,
    algorithm_fixed_window, algorithm_sliding_counter, algorithm_concurrency,
    algorithm_expiring_counter;

/*
 * concurrency: a hold writes one value per unit into free entries of the state and returns it; the
 * value is unique among those the state has held in the same lease (deadline and a small count).
 * concurrency_holder() releases the units of such a value, and sets *units; or, where `units` is
 * NULL, renews its lease, and sets *holder. False for a value that is not there or has ended.
 */
struct stint_decision concurrency_hold(const struct stint_quota *quota, void *state,
                                       const struct stint_ask *ask, uint64_t *holder);
bool concurrency_holder(const struct stint_quota *quota, void *state, uint64_t now_ns,
                        uint64_t *holder, uint32_t *units);
/* The holders of a state, under another limit. */
void concurrency_carry(const struct stint_quota *from, const void *from_state, uint64_t now_ns,
                       const struct stint_quota *to, void *to_state);

/*
 * The calls, by quota->algorithm: states are derived.state_size bytes, aligned to 8. They handle
 * what is the same for all: now_ns > STINT_NOW_MAX (NEVER) and limit 0. gcra and concurrency have
 * no own time; a concurrency state holds units at any time.
 */
int algorithm_check(struct stint_quota *quota, struct stint_error *error);
/* stint_quota_check(), and STINT_COUNTER too: for quotas that a table has stored. */
int algorithm_check_any(struct stint_quota *quota, struct stint_error *error);

/*
 * The one quota of all counters, checked. Its own hash keeps them apart from other states. A
 * counter has no limit, and an expiry of its own instead of a period.
 */
#define COUNTER_LIMIT UINT32_MAX
#define COUNTER_PERIOD_NS NS_PER_S
struct stint_quota counter_quota(void);
struct stint_decision algorithm_ask(const struct stint_quota *quota, void *state,
                                    const struct stint_ask *ask);
uint64_t algorithm_expires_at(const struct stint_quota *quota, const void *state);
void algorithm_fill(const struct stint_quota *quota, void *state, uint64_t until_ns);
bool algorithm_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns);
size_t algorithm_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                      uint64_t latest_ns, struct held_run *runs);
uint64_t algorithm_own_ns(const struct stint_quota *quota, const void *state);
void algorithm_pass(const struct stint_quota *quota, void *state, uint64_t at_ns);

/*
 * The groups that have not returned at now, oldest first; returns their number: 0 for algorithms
 * without groups. now_ns is the state's own time or later, at most STINT_NOW_MAX. For the display
 * of a state; no decision uses it.
 */
size_t algorithm_groups(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                        struct held_group groups[HELD_GROUPS_MAX]);

/*
 * The state of a new key under `quota` that carries runs of units from another state: each is
 * charged at its time, in order; strict algorithms keep the newest of what does not fit. Used by
 * set_quota.
 */
struct stint_ask algorithm_carry_ask(const struct stint_quota *quota, const struct held_run *run);
void algorithm_carry(const struct stint_quota *quota, void *state, const struct held_run *runs,
                     size_t n_runs);

/* Whether more than the limit can be charged. The other algorithms keep the newest units. */
static inline bool algorithm_has_debt(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_GCRA || quota->algorithm == STINT_FIXED_WINDOW ||
           quota->algorithm == STINT_SLIDING_COUNTER;
}

/* The most that can be left: `limit` of a decision. */
static inline uint32_t most_units(const struct stint_quota *quota)
{
    assert(quota->limit > 0 || quota->burst == 0);
    return quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
}

/* Decisions that are the same for every algorithm. */
static inline struct stint_decision algorithm_never(uint32_t capacity)
{
    return (struct stint_decision){
        .outcome = STINT_NEVER, .limit = capacity, .retry_after_ns = STINT_NEVER_NS};
}

static inline struct stint_decision algorithm_allow(const struct stint_quota *quota,
                                                    uint32_t granted, uint32_t remaining,
                                                    uint64_t reset_after_ns)
{
    return (struct stint_decision){.outcome = STINT_ALLOW,
                                   .granted = granted,
                                   .limit = quota->limit,
                                   .remaining = remaining,
                                   .reset_after_ns = reset_after_ns};
}

/* The refusal of a cost, from how the state stands; STINT_NEVER_NS: no wait is enough. */
static inline struct stint_decision algorithm_refuse(struct stint_decision stands,
                                                     uint64_t retry_after_ns)
{
    stands.outcome = retry_after_ns == STINT_NEVER_NS ? STINT_NEVER : STINT_DENY;
    stands.retry_after_ns = retry_after_ns;
    return stands;
}

/* The denial of a key for reasons beside its state. */
static inline struct stint_decision algorithm_deny_for(uint32_t capacity, uint64_t wait_ns)
{
    return (struct stint_decision){.outcome = STINT_DENY,
                                   .limit = capacity,
                                   .retry_after_ns = wait_ns,
                                   .reset_after_ns = wait_ns};
}

/*
 * The two most frequent decisions, written field by field into their place: after a copy in wider
 * words, a reader would stall on the narrower stores.
 */
static inline void algorithm_answer(struct stint_decision *decision, enum stint_outcome outcome,
                                    uint32_t granted, uint32_t capacity, uint32_t remaining)
{
    assert(outcome <= STINT_DENY);
    decision->outcome = (uint8_t)outcome;
    decision->binding = 0;
    decision->stored = 1;
    decision->pad = 0;
    decision->granted = granted;
    decision->limit = capacity;
    decision->remaining = remaining;
}

#endif
