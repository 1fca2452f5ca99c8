/* SPDX-License-Identifier: MIT */
/* Wide states, for callers that know that a slot has one. */
#ifndef STINT_TABLE_SLOT_WIDE_H
#define STINT_TABLE_SLOT_WIDE_H

#include "table/slot/entry.h"

/*
 * Of the key's valid state, if it has one. wide_holder() releases a holder's units, and sets
 * *units; or, where `units` is NULL, renews its lease, and sets *holder.
 */
bool wide_holder(struct asking *asking, uint64_t *holder, uint32_t *units);
void wide_forget(struct asking *asking);

/* When the state in a wide slot expires. */
uint64_t wide_expires_at(const struct seen *seen);

/* The state in a wide slot, for a sole user of the table. */
const void *wide_bytes(const struct seen *seen);
bool wide_is_at_work(const struct seen *seen);
/* Frees its owner word, and stores its expiry for those that search for a slot. */
void wide_free(const struct seen *seen, uint64_t expires_at_ns);

/* Writes a copied wide state into unshared memory of a slot. */
void wide_paste(const struct asking *asking, void *slot_state, const struct entry_state *state);

#endif
