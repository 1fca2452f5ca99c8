/* SPDX-License-Identifier: MIT */
/* The shared store of a command, used as by a server; a loop runs while answers are awaited. */
#ifndef STINT_CMD_STORE_SHARED_SESSION_H
#define STINT_CMD_STORE_SHARED_SESSION_H

#include "cmd/store/store_word.h"
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

/* ---- In virtual time ----
 *
 * Each request is answered before the call returns: for a replay of rules, which decides one event
 * after the other, and for tests. Every request is made at epoch_ns + its now_ns. Leases are not
 * used: units are taken one by one.
 */

struct virtual_store;

/* `given` and `prefix` are borrowed. Connects with the first request. */
int virtual_store_open(struct virtual_store **store, const struct store_given *given,
                       const char *prefix, uint64_t epoch_ns, struct stint_error *error);
void virtual_store_close(struct virtual_store *store); /* NULL is fine */

struct backend *virtual_store_shared(struct virtual_store *store);
/* An operation was done there, or may have been. */
bool virtual_store_may_have_keys(const struct virtual_store *store);
uint64_t virtual_store_ns(const struct virtual_store *store); /* time spent waiting for it */
/* As shared_session_detours(). */
uint64_t virtual_store_detours(const struct virtual_store *store);

#endif
