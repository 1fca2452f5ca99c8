/* SPDX-License-Identifier: MIT */
/*
 * A checker of linearizability: Herlihy and Wing, "Linearizability", 1990. A history is what
 * concurrent callers of one table asked, what they were answered, and when each call began and
 * ended. It is linearizable if there is an order of the calls that agrees with real time and in
 * which the sequential engine, one state and algorithm_ask(), gives every answer that was seen.
 *
 * The search is Wing and Gong's, 1993, with Lowe's memory of configurations, 2017: how far each
 * caller is, and the states. Keys are checked one by one (Horn and Kroening, 2015) unless some call
 * takes from two of them.
 *
 * What the table promises beside the state:
 *
 *   time      A call is decided at its own time, or at most skew_max behind the latest time that
 *             the table knew: that of some call that began before this one ended, and to within
 *             MARK_STEP_NS not older than any call that ended before this one began. A refund is
 *             decided at that latest time itself. A peek and a reset tell no time.
 *   lists     A take from two quotas is no single step. It peeks at the first and the second, takes
 *             from the first and the second, and if the second refuses it undoes the first take, or
 *             refunds it if the state has changed since. Each of these happens at once; others may
 *             come between, also between the attempt to undo and the refund. limiter/list.c.
 *   kills     A call without an answer did nothing, or some of its steps.
 */
#ifndef STINT_TESTS_LINEAR_H
#define STINT_TESTS_LINEAR_H

#include "stint.h"

#define LINEAR_CALLERS_MAX 6
#define LINEAR_STATE_MAX 256
#define LINEAR_KEYS 2
#define LINEAR_CALLS_MAX 255         /* of one caller */
#define LINEAR_RESET 100             /* a verb beside those of enum stint_verb: stint_reset() */
#define LINEAR_UNANSWERED UINT64_MAX /* `end` of a call whose caller was killed */

struct linear_call {
    uint64_t begin, end; /* by a clock that all callers share; equal times are concurrent */
    struct stint_ask ask;
    struct stint_decision decision; /* the answer */
    uint8_t caller;
    uint8_t key;  /* of a list: the first key's */
    bool is_list; /* a take from both keys, the same cost from each */
};

struct linear_history {
    const struct stint_quota *quota;
    struct linear_call *calls; /* sorted by the checker */
    size_t n_calls;
    uint64_t skew_max_ns;
    bool counts_only;        /* waits are not compared: the caller does not know the time exactly */
    bool lists_at_once;      /* the steps of a list are one: it is a script of a store */
    bool denials_may_be_old; /* of a cache: what a denial says is left is not compared */
};

struct linear_verdict {
    bool is_linearizable;
    bool gave_up;    /* too many configurations; is_linearizable is false */
    size_t overlaps; /* calls that began before an earlier one of another caller had ended */
    size_t configurations;
};

struct linear_verdict linear_check(const struct linear_history *history);

/* The same by trying every order, without memory: for histories of few single calls. */
bool linear_check_slowly(const struct linear_history *history);

/* The sequential engine: one call on a state, with waits from the time `ask` names. */
struct stint_decision linear_apply(const struct stint_quota *quota, void *state,
                                   const struct stint_ask *ask, uint64_t effective_ns);

#endif
