/* SPDX-License-Identifier: MIT */
/*
 * A search for the worst case of an algorithm: the sequence of requests of one key after which a
 * take is admitted that leaves the most units in use in any half-open window of the period.
 *
 * Requests are takes, and if the subject has them charges (use that happens anyway), returns of
 * granted units (refunds, cancels, settles below the estimate) and releases of held slots. A settle
 * above the estimate is a charge.
 *
 * The criterion: U is what was used within the last W and not given back, charges in full. Whenever
 * a take of c > 0 is admitted, U + c is at most the bound. A charge itself breaks nothing, whatever
 * U becomes; a `take` that is admitted after it may. docs/algorithms.md shows why this is the same
 * as "the record holds min(bound, U)".
 *
 * The algorithm is called, never inspected: a state is bytes that can be copied, and the results of
 * the algorithm (remaining, retry_after, reset_after) only suggest when to try. The score is the
 * exact count of what was admitted. So the search also finds an algorithm that reports wrong
 * values.
 *
 * A sequence is a short list of moves; a move waits for a time that may matter and takes some of
 * what is there. Moves are drawn at random, the better sequences are kept, changed and crossed, and
 * after long without improvement the search restarts with another draw. The same seed gives the
 * same search.
 */
#ifndef STINT_SIM_SEARCH_SEARCH_WORST_H
#define STINT_SIM_SEARCH_SEARCH_WORST_H

#include "base/err.h"

#define SEARCH_ASKS_MAX (1u << 20) /* requests in one sequence */

enum search_verb {
    SEARCH_VERB_TAKE,
    SEARCH_VERB_CHARGE,
    SEARCH_VERB_REFUND, /* part of a grant or a charge was not used */
    SEARCH_VERB_RELEASE /* of a hold, as a whole */
};

/* A request other than a plain take, as the algorithm receives it. */
struct search_act {
    uint64_t now_ns;
    uint64_t granted_at_ns; /* of a return: the caller's time at the grant */
    uint64_t *holder;       /* written by a take that holds, read by a release */
    uint32_t cost;
    uint8_t verb; /* enum search_verb */
};

/* An algorithm with its parameters. Of all zero bytes a state is one that was never used. */
struct search_subject {
    size_t state_size;
    uint64_t period_ns; /* the length of the window in which units are counted */
    uint64_t bound;     /* the most in any window, according to the algorithm */
    uint32_t cost_max;  /* the greatest cost that can ever fit */
    /* Cost 0 is a peek. States are aligned to 16. */
    void (*decide)(void *arg, void *state, uint64_t now_ns, uint32_t cost,
                   struct stint_decision *decision);
    /* All verbs; NULL if there are takes only. */
    void (*act)(void *arg, void *state, const struct search_act *act,
                struct stint_decision *decision);
    void *arg;
    bool holds;         /* takes hold slots, which can be released; there is no charge */
    bool counts_charge; /* the bound includes charges, too */
    bool has_debt;      /* a charge counts only as far as the algorithm recorded it */
    bool needs_clock;   /* keeps no time of its own: refunds need clocks that do not step back */
    bool refund_ages;   /* returning units moves the state's own time forward */
};

/* A request. Its time may be earlier than that of the one before: a clock that goes back. */
struct search_ask {
    uint64_t now_ns;
    uint64_t counted_ns; /* when its units count: never before those of the grant before */
    uint64_t holder;
    uint32_t cost;
    uint32_t left;   /* units in use that were not given back */
    uint32_t number; /* rising; names the request if others are left out */
    uint32_t of;     /* of a return or release: the number of the grant; SEARCH_NONE for none */
    uint8_t verb;    /* enum search_verb */
    bool granted;
};

#define SEARCH_NONE UINT32_MAX

/* The best sequence so far. */
struct search_best {
    const struct search_ask *asks; /* valid until the next search_…() */
    size_t n_asks;
    uint64_t units;            /* the most in use in any window that an admitted take ends */
    uint64_t at_ns;            /* the end of that window */
    size_t cut_at;             /* the search was cut off by this limit of requests; else 0 */
    uint64_t tries, decisions; /* of the whole search */
};

struct search_options {
    uint64_t seed;
    bool clock_steps; /* callers' clocks may step back, too */
    bool takes_only;  /* also if the subject has other verbs */
};

struct search;

/* The algorithms of the library: subject->arg borrows the quota, which must have been checked. */
void search_subject_of(struct search_subject *subject, struct stint_quota *quota);

/* The subject is borrowed. *search is set only on success. */
int search_new(struct search **search, const struct search_subject *subject,
               const struct search_options *options, struct stint_error *error);
void search_free(struct search *search);

/* Tries one more sequence. 0 or a negative code (memory). */
int search_try(struct search *search, struct stint_error *error);

/*
 * Shortens the best sequence without loss: leaves out useless requests, joins neighbours into one
 * request of a higher cost, straightens a clock that goes back for no gain.
 */
int search_tidy(struct search *search, struct stint_error *error);

struct search_best search_best(const struct search *search);

#endif
