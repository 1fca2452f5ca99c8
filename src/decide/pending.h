/* SPDX-License-Identifier: MIT */
/*
 * The store requests of one request that need replies before it can be answered.
 *
 * Evaluation never blocks. Where it needs a store reply that is missing, it is suspended, and runs
 * again from its beginning once the reply is in. The pending request records the replies in the
 * order of the requests, local results that may differ later, and what the evaluation was filled
 * with, so that the second run takes the same branches as the first. One thread.
 */
#ifndef STINT_DECIDE_PENDING_H
#define STINT_DECIDE_PENDING_H

#include "decide/backend.h"
#include "decide/evaluation.h"
#include "rules/ban.h"

struct pending;

/* The memory of finished pending requests and of their store requests; belongs to a worker. */
struct pending_requests {
    struct pending *free_pending_requests;
    struct pending_record *free_records;
};

/* Something to wait for that is no request under a quota: the first member of its struct. */
struct pending_extra {
    /* Cancels it with its pending request. */
    void (*free)(struct pending_extra *extra);
};

/* What a record of the first run holds. */
enum pending_kind {
    PENDING_REPLY = 0, /* of a store: pending_ask() */
    PENDING_DECISION,
    PENDING_BLOCKED_UNTIL, /* 0: the key is not blocked */
    PENDING_BAN,
    PENDING_CLOCK,
    PENDING_UNAVAILABLE_SINCE,
};

/* A result or an effect of this process: the member that its kind names. */
union pending_result {
    struct stint_decision decision; /* in the table */
    struct ban_made ban;
    uint64_t blocked_until_ns;
    uint64_t clock_ns;
    uint64_t unavailable_since_ns;
    struct {
        uint64_t at_ns;
        uint32_t granted;
    } end; /* PENDING_DECISION, the last of several */
};

/* Results of the first run on blocked keys. */
enum pending_blocks { PENDING_BLOCKS_UNKNOWN = 0, PENDING_BLOCKS_NONE, PENDING_BLOCKS_NOTED };

#define PENDING_NO_MEMORY "no memory for a store request"

struct trace_span; /* service/traces.h */

struct pending {
    struct pending_requests *home;
    struct pending *next_free;
    struct pending_record *first, *last, *next; /* next: in this run */
    unsigned n_waiting;
    uint64_t heard_ns; /* when the last reply came; 0: none yet */
    uint64_t now_ns;   /* of the first run: every run evaluates at this time */
    uint64_t deadline_ns;
    uint64_t retry_until_ns; /* of the first run in its turn: every run denies as that one does */
    struct pending_extra *extra;      /* NULL: none */
    struct pending_text *texts;       /* pending_keep() */
    struct evaluation_inputs *inputs; /* evaluation_keep(); NULL: none are kept */
    /*
     * The rules of the first run, with a reference; its owner knows the type. NULL: it has not
     * waited yet.
     */
    void *rules;
    struct trace_span *span;    /* of its request, while it waits. The same. NULL: none */
    uint8_t id[BACKEND_ID_LEN]; /* of the ticket that it makes, where the request has none */
    bool has_asked, has_id;
    uint8_t blocks;   /* enum pending_blocks */
    const char *loss; /* why it is lost: its evaluation cannot go on. NULL: it is not */
    /* Called once nothing is waited for; it may run the evaluation again. NULL: no callback. */
    void (*done)(void *arg, uint64_t now_ns);
    void *arg;
};

/* NULL: no memory. */
struct pending *pending_new(struct pending_requests *home, uint64_t now_ns, uint64_t timeout_ns);
/* Cancels what is still waited for. NULL is fine. The owner of `rules` releases it. */
void pending_free(struct pending *pending);
void pending_requests_deinit(struct pending_requests *home); /* after all of its pending requests */

/* For asserts. */
bool pending_is_valid(const struct pending *pending);

/* Before each run of its evaluation. */
void pending_rewind(struct pending *pending);

/*
 * The next store request of this run: the answer, or NULL where it is missing, or where the request
 * could not be sent and the pending request is lost. In the first run the request goes to the
 * store; later it has to be the same, or the pending request is lost.
 */
const struct backend_answer *pending_ask(struct pending *pending, struct backend *store,
                                         struct backend_request *ask);

/*
 * The same for results and effects of this process, which must not happen twice: n of one kind, to
 * write where *is_new, to read where not. NULL: the pending request is lost.
 */
union pending_result *pending_note(struct pending *pending, enum pending_kind kind, size_t n,
                                   bool *is_new);

/* A store request that was not answered at once, for traces. */
struct pending_seen {
    const struct backend *store;
    uint8_t verb; /* enum request_verb */
    uint64_t asked_ns, answered_ns;
    const struct backend_answer *answer;
};
/* Calls `see` for each of them that was answered, in the order of the requests. */
void pending_each(const struct pending *pending,
                  void (*see)(void *arg, const struct pending_seen *seen), void *arg);

/*
 * A copy of a store's message, which lives as long as the pending request: the store uses its own
 * again for the next failure. NULL if that is given.
 */
const char *pending_keep(struct pending *pending, const char *text);

/* The pending request's extra, which n_waiting counted, has been answered. */
void pending_answered(struct pending *pending, uint64_t now_ns);

#endif
