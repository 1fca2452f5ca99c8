/* SPDX-License-Identifier: MIT */
/*
 * Limiters that err in ways that are in circulation, as subjects of the search, each with the bound
 * that its algorithm would keep were it not for the flaw. Without a flaw they are plain models that
 * keep it: so what the search finds is the flaw, not the model.
 */
#ifndef STINT_TESTS_FLAWED_ALGORITHMS_H
#define STINT_TESTS_FLAWED_ALGORITHMS_H

#include "sim/search/search_worst.h"

enum flawed_model {
    FLAWED_GCRA,
    FLAWED_BUCKETS,
    FLAWED_COUNTER,
    FLAWED_LOG,
    FLAWED_TOKENS,
    FLAWED_HOLDS,   /* places that are released; clocks do not step back here, either */
    FLAWED_CHARGED, /* a log with charges and refunds, whose callers' clocks do not step back */
};

enum flaw {
    FLAW_NONE,
    FLAW_TRIAL_VALUE, /* gcra: what is compared with the tolerance lacks the cost */
    FLAW_CLAMP,       /* gcra: the TAT is pulled up to now less the tolerance only */
    FLAW_TRUNCATED,   /* gcra: T in whole nanoseconds, rounded down */
    FLAW_CREATION,    /* buckets: they come back a period after they were opened */
    FLAW_INVERTED,    /* two counters: the last window weighs as much as of this one has passed */
    FLAW_SET,         /* log: calls of one instant are one entry */
    FLAW_REWIND,      /* tokens: a clock that is behind sets the time of the last refill back */
    FLAW_SATURATE,    /* charged: a charge that does not fit is recorded as far as it fits */
    FLAW_RELEASE,     /* holds: a place whose lease has ended is given back all the same */
    FLAW_DISPLACE,    /* charged: what a charge has displaced is not held against refunds */
};

struct flawed_algorithm {
    const char *name;
    enum flawed_model model;
    enum flaw flaw;
    uint64_t limit, period_ns;
    uint64_t burst;    /* gcra, tokens */
    uint64_t slack_ns; /* buckets */
};

/* The subject borrows the algorithm. */
struct search_subject flawed_algorithm_subject(struct flawed_algorithm *algorithm);

#endif
