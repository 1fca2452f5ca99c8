/* SPDX-License-Identifier: MIT */
/*
 * The shared store of a command: asked as a server asks it, in a loop of its own that runs while
 * answers are waited for.
 */
#ifndef STINT_CMD_STORE_SHARED_SESSION_H
#define STINT_CMD_STORE_SHARED_SESSION_H

#include "cmd/store/store_given.h"
#include "decide/backend.h"

struct shared_session;

/* `prefix` of its keys; NULL: that of servers. Both are borrowed. Nothing is connected yet. */
int shared_session_open(struct shared_session **session, const struct store_given *given,
                        const char *prefix, struct stint_error *error);
/* Answers what waits with BACKEND_FAILED. NULL is fine. */
void shared_session_close(struct shared_session *session);

struct backend *shared_session_store(struct shared_session *session);
/* The clock of what is asked, where it is not virtual. */
uint64_t shared_session_now_ns(const struct shared_session *session);
/* Runs the loop until something has come. Each ask is answered in time. */
void shared_session_run(struct shared_session *session);
/* How often a server was another one than was thought: asks may have changed places by that. */
uint64_t shared_session_detours(const struct shared_session *session);

#endif
