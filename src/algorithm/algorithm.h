/* SPDX-License-Identifier: MIT */
/*
 * The functions that every algorithm provides, and the dispatch over all of them.
 *
 * A state is bytes; all zero is "never used". An algorithm works on these bytes only: no clock, no
 * allocation, no atomics. Each file <algorithm>.c defines the functions of its row below;
 * algorithm.c calls them by quota->algorithm (and, for window, by the state's size).
 *
 *   <alg>_check    quota -> derived fields, state_size and defaults; or an error. quota.c has
 *                  checked what all have in common (limit, period, fields of other algorithms).
 *   <alg>_ask      state, ask -> state', decision. A DENY or NEVER leaves the bytes unchanged,
 *                  except under STINT_CHARGE. now_ns is already the effective time; if the state's
 *                  own time is later, that is used.
 *   <alg>_expires_at  the time from which the state equals "never used"; 0 for all zero.
 *   <alg>_fill     the state that denies every cost above 0 until `until_ns`, then expires: exactly
 *                  then if the state can hold it, else as soon after as it can. gcra keeps debt,
 *                  not denial: its TAT becomes until_ns.
 *   <alg>_is_valid whether the bytes are a state that this algorithm can have written for this
 *                  quota, with no decision later than now_ns. Safe for any bytes; no other function
 *                  here may get bytes that are not valid. A valid state expires at most 3 periods
 *                  and 2 capacities after now_ns; one booked through a table at most
 *                  BOOK_WAIT_MAX_NS later. Under limit 0 only all zero is valid.
 *   <alg>_held     the units that the state still holds at now, as runs at their latest possible
 *                  time, oldest first; returns the number of runs, at most HELD_RUNS_MAX (older
 *                  runs are merged into the time of a younger one, never the reverse). Displaced
 *                  units are in the first run: the sum may exceed the limit.
 *   <alg>_own_ns   the state's own time: earlier requests are decided at it. 0: it has none.
 *   <alg>_pass     makes the state's own time at least at_ns. gcra, which has none, owes until
 *                  then. Units that are held are held no shorter.
 *
 * States of 8 and 16 bytes are 64-bit words in registers: a word8 is one, a word16 is two. The top
 * 16 bits of word16.hi belong to the table and are zero here, on input and on output.
 */
#ifndef STINT_ALGORITHM_ALGORITHM_H
#define STINT_ALGORITHM_ALGORITHM_H

#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/wide_int.h"

#define WORD16_STORE_BITS 16
#define HELD_RUNS_MAX 64

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

struct held_run {
    uint64_t at_ns;
    uint64_t units;
};

/* Units that return together; groups.h. */
#define HELD_GROUPS_MAX 512
struct held_group {
    uint64_t returns_ns;
    uint64_t units;
};

/* 8-byte states. */
struct stint_decision gcra_ask(const struct stint_quota *quota, uint64_t *state,
                               const struct stint_ask *ask);
struct stint_decision fixed_window_ask(const struct stint_quota *quota, uint64_t *state,
                                       const struct stint_ask *ask);
struct stint_decision window8_ask(const struct stint_quota *quota, uint64_t *state,
                                  const struct stint_ask *ask);
uint64_t gcra_expires_at(const struct stint_quota *quota, uint64_t state);
uint64_t fixed_window_expires_at(const struct stint_quota *quota, uint64_t state);
uint64_t window8_expires_at(const struct stint_quota *quota, uint64_t state);
uint64_t gcra_fill(const struct stint_quota *quota, uint64_t until_ns);
uint64_t fixed_window_fill(const struct stint_quota *quota, uint64_t until_ns);
uint64_t window8_fill(const struct stint_quota *quota, uint64_t until_ns);
bool gcra_is_valid(const struct stint_quota *quota, uint64_t state, uint64_t now_ns);
bool fixed_window_is_valid(const struct stint_quota *quota, uint64_t state, uint64_t now_ns);
bool window8_is_valid(const struct stint_quota *quota, uint64_t state, uint64_t now_ns);
size_t gcra_held(const struct stint_quota *quota, uint64_t state, uint64_t now_ns,
                 struct held_run *runs);
size_t fixed_window_held(const struct stint_quota *quota, uint64_t state, uint64_t now_ns,
                         struct held_run *runs);
size_t window8_held(const struct stint_quota *quota, uint64_t state, uint64_t now_ns,
                    struct held_run *runs);
uint64_t fixed_window_own_ns(const struct stint_quota *quota, uint64_t state);
uint64_t window8_own_ns(const struct stint_quota *quota, uint64_t state);
void gcra_pass(const struct stint_quota *quota, uint64_t *state, uint64_t at_ns);
void fixed_window_pass(const struct stint_quota *quota, uint64_t *state, uint64_t at_ns);
void window8_pass(const struct stint_quota *quota, uint64_t *state, uint64_t at_ns);

/* 16-byte states. */
struct stint_decision window16_ask(const struct stint_quota *quota, struct word16 *state,
                                   const struct stint_ask *ask);
struct stint_decision sliding_counter_ask(const struct stint_quota *quota, struct word16 *state,
                                          const struct stint_ask *ask);
uint64_t window16_expires_at(const struct stint_quota *quota, struct word16 state);
uint64_t sliding_counter_expires_at(const struct stint_quota *quota, struct word16 state);
struct word16 window16_fill(const struct stint_quota *quota, uint64_t until_ns);
struct word16 sliding_counter_fill(const struct stint_quota *quota, uint64_t until_ns);
bool window16_is_valid(const struct stint_quota *quota, struct word16 state, uint64_t now_ns);
bool sliding_counter_is_valid(const struct stint_quota *quota, struct word16 state,
                              uint64_t now_ns);
size_t window16_held(const struct stint_quota *quota, struct word16 state, uint64_t now_ns,
                     struct held_run *runs);
size_t sliding_counter_held(const struct stint_quota *quota, struct word16 state, uint64_t now_ns,
                            struct held_run *runs);
uint64_t window16_own_ns(const struct stint_quota *quota, struct word16 state);
uint64_t sliding_counter_own_ns(const struct stint_quota *quota, struct word16 state);
void window16_pass(const struct stint_quota *quota, struct word16 *state, uint64_t at_ns);
void sliding_counter_pass(const struct stint_quota *quota, struct word16 *state, uint64_t at_ns);

/* Wider states: state_size bytes, aligned to 8. */
struct stint_decision buckets_ask(const struct stint_quota *quota, void *state,
                                  const struct stint_ask *ask);
struct stint_decision log_ask(const struct stint_quota *quota, void *state,
                              const struct stint_ask *ask);
struct stint_decision concurrency_ask(const struct stint_quota *quota, void *state,
                                      const struct stint_ask *ask);
uint64_t buckets_expires_at(const struct stint_quota *quota, const void *state);
uint64_t log_expires_at(const struct stint_quota *quota, const void *state);
uint64_t concurrency_expires_at(const struct stint_quota *quota, const void *state);
void buckets_fill(const struct stint_quota *quota, void *state, uint64_t until_ns);
void log_fill(const struct stint_quota *quota, void *state, uint64_t until_ns);
void concurrency_fill(const struct stint_quota *quota, void *state, uint64_t until_ns);
bool buckets_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns);
bool log_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns);
bool concurrency_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns);
size_t buckets_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                    struct held_run *runs);
size_t log_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                struct held_run *runs);
size_t concurrency_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                        struct held_run *runs);
size_t buckets_groups(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                      struct held_group *groups);
uint64_t buckets_own_ns(const struct stint_quota *quota, const void *state);
uint64_t log_own_ns(const struct stint_quota *quota, const void *state);
void buckets_pass(const struct stint_quota *quota, void *state, uint64_t at_ns);
void log_pass(const struct stint_quota *quota, void *state, uint64_t at_ns);

/* Buckets that have not expired at now, which is the state's own time or later. */
uint32_t buckets_living(const struct stint_quota *quota, const void *state, uint64_t now_ns);

/*
 * concurrency: a hold writes one value per unit into free entries of the state and returns it; the
 * value is unique among those the state has held in the same lease (deadline and a small count).
 * release and renew return false for a value that is not there or has ended.
 */
struct stint_decision concurrency_hold(const struct stint_quota *quota, void *state,
                                       const struct stint_ask *ask, uint64_t *holder);
bool concurrency_release(const struct stint_quota *quota, void *state, uint64_t now_ns,
                         uint64_t holder, uint32_t *units);
bool concurrency_renew(const struct stint_quota *quota, void *state, uint64_t now_ns,
                       uint64_t *holder);

int window_check(struct stint_quota *quota, struct stint_error *error);
int buckets_check(struct stint_quota *quota, struct stint_error *error);
int log_check(struct stint_quota *quota, struct stint_error *error);
int gcra_check(struct stint_quota *quota, struct stint_error *error);
int fixed_window_check(struct stint_quota *quota, struct stint_error *error);
int sliding_counter_check(struct stint_quota *quota, struct stint_error *error);
int concurrency_check(struct stint_quota *quota, struct stint_error *error);

/* The dispatch, by size of state. Handles now_ns > STINT_NOW_MAX (NEVER) and limit 0. */
struct stint_decision algorithm8_ask(const struct stint_quota *quota, uint64_t *state,
                                     const struct stint_ask *ask);
struct stint_decision algorithm16_ask(const struct stint_quota *quota, struct word16 *state,
                                      const struct stint_ask *ask);
struct stint_decision algorithm_wide_ask(const struct stint_quota *quota, void *state,
                                         const struct stint_ask *ask);
uint64_t algorithm8_expires_at(const struct stint_quota *quota, uint64_t state);
uint64_t algorithm16_expires_at(const struct stint_quota *quota, struct word16 state);
uint64_t algorithm_wide_expires_at(const struct stint_quota *quota, const void *state);
uint64_t algorithm8_fill(const struct stint_quota *quota, uint64_t until_ns);
struct word16 algorithm16_fill(const struct stint_quota *quota, uint64_t until_ns);
void algorithm_wide_fill(const struct stint_quota *quota, void *state, uint64_t until_ns);
bool algorithm8_is_valid(const struct stint_quota *quota, uint64_t state, uint64_t now_ns);
bool algorithm16_is_valid(const struct stint_quota *quota, struct word16 state, uint64_t now_ns);
bool algorithm_wide_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns);
size_t algorithm8_held(const struct stint_quota *quota, uint64_t state, uint64_t now_ns,
                       struct held_run *runs);
size_t algorithm16_held(const struct stint_quota *quota, struct word16 state, uint64_t now_ns,
                        struct held_run *runs);
size_t algorithm_wide_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                           struct held_run *runs);
/* gcra and concurrency have no own time; a concurrency state holds units at any time. */
uint64_t algorithm8_own_ns(const struct stint_quota *quota, uint64_t state);
uint64_t algorithm16_own_ns(const struct stint_quota *quota, struct word16 state);
uint64_t algorithm_wide_own_ns(const struct stint_quota *quota, const void *state);
void algorithm8_pass(const struct stint_quota *quota, uint64_t *state, uint64_t at_ns);
void algorithm16_pass(const struct stint_quota *quota, struct word16 *state, uint64_t at_ns);
void algorithm_wide_pass(const struct stint_quota *quota, void *state, uint64_t at_ns);

/*
 * The state of a new key under `quota` that carries runs of units from another state: each is
 * charged at its time, in order; strict algorithms keep the newest of what does not fit. Used by
 * set_quota.
 */
struct stint_ask algorithm_carry_ask(const struct stint_quota *quota, const struct held_run *run);
uint64_t algorithm8_carry(const struct stint_quota *quota, const struct held_run *runs,
                          size_t n_runs);
struct word16 algorithm16_carry(const struct stint_quota *quota, const struct held_run *runs,
                                size_t n_runs);
void algorithm_wide_carry(const struct stint_quota *quota, void *state, const struct held_run *runs,
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
    return quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
}

/* Decisions that are the same for every algorithm. */
static inline struct stint_decision algorithm_never(uint32_t capacity)
{
    return (struct stint_decision){
        .outcome = STINT_NEVER, .limit = capacity, .retry_after_ns = STINT_NEVER_NS};
}

/*
 * The two most frequent decisions, written field by field into their place: after a copy in wider
 * words, a reader would stall on the narrower stores.
 */
static inline void algorithm_answer(struct stint_decision *decision, enum stint_outcome outcome,
                                    uint32_t granted, uint32_t capacity, uint32_t remaining)
{
    decision->outcome = (uint8_t)outcome;
    decision->binding = 0;
    decision->stored = 1;
    decision->pad = 0;
    decision->granted = granted;
    decision->limit = capacity;
    decision->remaining = remaining;
}

#endif
