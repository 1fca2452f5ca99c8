/* SPDX-License-Identifier: MIT */
/* The shared store of a command, used as by a server; a loop runs while answers are awaited. */
#ifndef STINT_CMD_STORE_SHARED_SESSION_H
#define STINT_CMD_STORE_SHARED_SESSION_H

#include "cmd/store/store_word.h"
#include "decide/backend.h"
#include "net/upstream/backends.h"

#include <uv.h>

#define SHARED_SESSION_REAL_TIME STINT_NEVER_NS

struct shared_session {
    /*
     * Answers each request before the call returns: for a command that decides one after the other,
     * and for tests. In virtual time every request is made at epoch_ns + its now_ns, and leases are
     * not used: units are taken one by one.
     */
    struct backend blocking;
    struct backend *store; /* the same without waiting: see shared_session_run() */
    uint64_t epoch_ns;     /* SHARED_SESSION_REAL_TIME: requests are made now */
    uint64_t timeout_ns;   /* of each request */
    uint64_t spent_ns;     /* waiting in `blocking` */
    bool may_have_keys;    /* an operation was done there, or may have been */
    const char *why;       /* no decision was made first; NULL: all were, or it is unknown */
    uv_loop_t loop;
    struct upstream_tls *tls;
    struct store_config config;
    struct stores *stores;
};

/* `prefix` of its keys; NULL: that of servers. Both are borrowed. Does not connect yet. */
int shared_session_open(struct shared_session **session, const struct store_given *given,
                        const char *prefix, uint64_t epoch_ns, struct stint_error *error);
/* Answers waiting requests with BACKEND_FAILED. NULL is fine. */
void shared_session_close(struct shared_session *session);

/* Runs the loop until something has arrived. Each request is answered by its deadline. */
void shared_session_run(struct shared_session *session);
/* An answer came: notes whether keys may be there. */
void shared_session_note(struct shared_session *session, const struct backend_answer *answer);
/* How often a request was redirected to another server, which may reorder requests. */
uint64_t shared_session_detours(const struct shared_session *session);

#endif
