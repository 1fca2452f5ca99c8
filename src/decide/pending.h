/* SPDX-License-Identifier: MIT */
/*
 * What one request has to ask of shared stores before it can be answered.
 *
 * A question never waits. Where it meets a store whose answer is not there yet, it is given up, and
 * asked anew from its beginning once the answer has come: the pending request remembers the answers
 * in the order of the asks, and what was found out on the way that may be different by now, so that
 * the second run takes the same turns as the first. One thread.
 */
#ifndef STINT_DECIDE_PENDING_H
#define STINT_DECIDE_PENDING_H

#include "decide/backend.h"
#include "decide/evaluation.h"

struct pending;

/* The memory of pending requests that are over, and of their asks; belongs to a worker. */
struct pending_requests {
    struct pending *free_pending_requests;
    struct pending_ask *free_asks;
};

/* What a request waits for that is no ask of a quota: the first member of whatever it is. */
struct pending_extra {
    /* With its pending request, and with it what is still waited for. */
    void (*free)(struct pending_extra *extra);
};

/* What the first run has found of blocked keys. */
enum pending_blocks { PENDING_BLOCKS_UNKNOWN = 0, PENDING_BLOCKS_NONE, PENDING_BLOCKS_NOTED };

struct pending {
    struct pending_requests *home;
    struct pending *next_free;
    struct pending_ask *first, *last, *next; /* next: of this run */
    unsigned n_waiting;
    uint64_t heard_ns; /* when an answer came last; 0: none has */
    uint64_t now_ns;   /* at which it was asked first: every run is at that time */
    uint64_t deadline_ns;
    struct pending_extra *extra; /* NULL: none */
    /* Rules that it was begun under, with a reference; whoever began it knows what it is. NULL: it
     * has not waited yet. */
    void *rules;
    uint8_t id[BACKEND_ID_LEN]; /* of the ticket that it makes, where the request has none */
    bool has_asked, has_id;
    uint8_t blocks; /* enum pending_blocks */
    bool is_lost; /* what is asked is not what was asked: the quota of a key has changed; no memory
                   */
    /* Called once nothing is waited for any more; it may run the question again. NULL: nobody. */
    void (*done)(void *arg, uint64_t now_ns);
    void *arg;
};

/* NULL: no memory. */
struct pending *pending_new(struct pending_requests *home, uint64_t now_ns, uint64_t timeout_ns);
/* Forgets what is still waited for. NULL is fine. `rules` is to be let go by whoever set it. */
void pending_free(struct pending *pending);
void pending_requests_deinit(struct pending_requests *home); /* after all of its pending requests */

/* Before each run of its question. */
void pending_rewind(struct pending *pending);

/*
 * The next ask of this run: the answer, or NULL where it is waited for, or where nothing could be
 * asked (is_lost, or no memory: then the pending request is lost as well). Of the first run the ask
 * goes to the store; afterwards it has to be the same.
 */
const struct backend_answer *pending_ask(struct pending *pending, struct backend *store,
                                         struct backend_request *ask);

/*
 * The same for what this process can tell or do by itself, and must not do twice: n decisions to be
 * written where *is_new, and read where not. NULL: the pending request is lost.
 */
struct stint_decision *pending_note(struct pending *pending, size_t n, bool *is_new);

/* What the pending request's extra waited for, and counted in n_waiting, has been answered. */
void pending_answered(struct pending *pending, uint64_t now_ns);

#endif
