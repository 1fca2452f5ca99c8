/* SPDX-License-Identifier: MIT */
/* Wide states, for callers that know that a slot has one. */
#ifndef STINT_TABLE_SLOT_WIDE_H
#define STINT_TABLE_SLOT_WIDE_H

#include "table/slot/entry.h"

struct wide_state {
    uint64_t owner;
    uint64_t expires_at_ns; /* written by owners, read for new keys that search for a slot */
    unsigned char bytes[];
};

/*
 * Of the key's valid state, if it has one. wide_holder() releases a holder's units, and sets
 * *units; or, where `units` is NULL, renews its lease, and sets *holder.
 */
bool wide_holder(struct asking *asking, uint64_t *holder, uint32_t *units);
void wide_forget(struct asking *asking);

/* When the state in a wide slot expires. */
uint64_t wide_expires_at(const struct seen *seen);

/* For a sole user: frees the owner word, and stores the expiry for those that search for a slot. */
void wide_free(const struct seen *seen, uint64_t expires_at_ns);

#endif
