/* SPDX-License-Identifier: MIT */
/*
 * What one request has to ask of shared stores before it can be answered.
 *
 * A question never waits. Where it meets a store whose answer is not there yet, it is given up, and
 * asked anew from its beginning once the answer has come: the errand remembers the answers in the
 * order of the asks, and what was found out on the way that may be different by now, so that the
 * second run takes the same turns as the first. One thread.
 */
#ifndef STINT_DECIDE_ERRAND_H
#define STINT_DECIDE_ERRAND_H

#include "decide/question.h"
#include "decide/shared.h"

struct errand;

/* The memory of errands that are over, and of their asks; belongs to a worker. */
struct errands {
    struct errand *free_errands;
    struct errand_ask *free_asks;
};

/* What a request waits for that is no ask of a quota: the first member of whatever it is. */
struct errand_extra {
    /* With its errand, and with it what is still waited for. */
    void (*free)(struct errand_extra *extra);
};

/* What the first run has found of blocked keys. */
enum errand_blocks { ERRAND_BLOCKS_UNKNOWN = 0, ERRAND_BLOCKS_NONE, ERRAND_BLOCKS_NOTED };

struct errand {
    struct errands *home;
    struct errand *next_free;
    struct errand_ask *first, *last, *next; /* next: of this run */
    unsigned n_waiting;
    uint64_t heard_ns; /* when an answer came last; 0: none has */
    uint64_t now_ns;   /* at which it was asked first: every run is at that time */
    uint64_t deadline_ns;
    struct errand_extra *extra; /* NULL: none */
    /* Rules that it was begun under, with a reference; whoever began it knows what it is. NULL: it
     * has not waited yet. */
    void *rules;
    uint8_t id[SHARED_ID_LEN]; /* of the ticket that it makes, where the request has none */
    bool has_asked, has_id;
    uint8_t blocks; /* enum errand_blocks */
    bool is_lost; /* what is asked is not what was asked: the quota of a key has changed; no memory
                   */
    /* Called once nothing is waited for any more; it may run the question again. NULL: nobody. */
    void (*done)(void *arg, uint64_t now_ns);
    void *arg;
};

/* NULL: no memory. */
struct errand *errand_new(struct errands *home, uint64_t now_ns, uint64_t timeout_ns);
/* Forgets what is still waited for. NULL is fine. `rules` is to be let go by whoever set it. */
void errand_free(struct errand *errand);
void errands_deinit(struct errands *home); /* after all of its errands */

/* Before each run of its question. */
void errand_rewind(struct errand *errand);

/*
 * The next ask of this run: the answer, or NULL where it is waited for, or where nothing could be
 * asked (is_lost, or no memory: then the errand is lost as well). Of the first run the ask goes to
 * the store; afterwards it has to be the same.
 */
const struct shared_answer *errand_ask(struct errand *errand, struct shared_store *store,
                                       struct shared_ask *ask);

/*
 * The same for what this process can tell or do by itself, and must not do twice: n decisions to be
 * written where *is_new, and read where not. NULL: the errand is lost.
 */
struct stint_decision *errand_note(struct errand *errand, size_t n, bool *is_new);

/* What the errand's extra waited for, and counted in n_waiting, has been answered. */
void errand_answered(struct errand *errand, uint64_t now_ns);

#endif
