/* SPDX-License-Identifier: MIT */
/*
 * A shared store in virtual time, with each request answered before the call returns: for a replay
 * of rules, which decides one event after the other, and for tests.
 *
 * Every request is made at epoch_ns + its now_ns. Leases are not used: units are taken one by one.
 */
#ifndef STINT_CMD_STORE_VIRTUAL_STORE_H
#define STINT_CMD_STORE_VIRTUAL_STORE_H

#include "cmd/store/store_given.h"
#include "decide/backend.h"

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
