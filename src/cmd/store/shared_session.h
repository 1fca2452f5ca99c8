/* SPDX-License-Identifier: MIT */
/* The shared store of a command, used as by a server; a loop runs while answers are awaited. */
#ifndef STINT_CMD_STORE_SHARED_SESSION_H
#define STINT_CMD_STORE_SHARED_SESSION_H

#include "cmd/store/store_given.h"
#include "decide/backend.h"

struct shared_session;

/* `prefix` of its keys; NULL: that of servers. Both are borrowed. Does not connect yet. */
int shared_session_open(struct shared_session **session, const struct store_given *given,
                        const char *prefix, struct stint_error *error);
/* Answers waiting requests with BACKEND_FAILED. NULL is fine. */
void shared_session_close(struct shared_session *session);

struct backend *shared_session_store(struct shared_session *session);
/* The clock for requests, if it is not virtual. */
uint64_t shared_session_now_ns(const struct shared_session *session);
/* Runs the loop until something has arrived. Each request is answered by its deadline. */
void shared_session_run(struct shared_session *session);
/* How often a request was redirected to another server, which may reorder requests. */
uint64_t shared_session_detours(const struct shared_session *session);

#endif
