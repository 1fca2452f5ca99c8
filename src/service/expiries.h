/* SPDX-License-Identifier: MIT */
/*
 * Tickets of backends that one worker issued, and that return units if they are never settled.
 * Found by id while they are open, and by time once they have expired. One thread.
 */
#ifndef STINT_SERVICE_EXPIRIES_H
#define STINT_SERVICE_EXPIRIES_H

#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>

#define EXPIRIES_MAX 65536u /* open at once; further ones stay charged as estimated */
#define EXPIRIES_NONE UINT32_MAX

struct expiry {
    uint8_t *ticket; /* NULL: the entry is free */
    uint32_t len;
    uint32_t next; /* of those with the same home, or of the free ones */
    uint64_t due_ns, give_up_ns;
    bool is_asked; /* a store request is pending: do not send another */
};

/* Zeroed is empty. */
struct expiries {
    struct expiry *entries;
    uint32_t *homes;   /* by id: the first of each chain; as many as entries */
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t free;
    uint32_t n_open;
};

static inline bool expiries_is_valid(const struct expiries *expiries)
{
    uint32_t capacity = expiries->capacity;
    return (capacity & (capacity - 1)) == 0 && capacity <= EXPIRIES_MAX &&
           expiries->n_open <= capacity &&
           (capacity == 0 || (expiries->entries != NULL && expiries->homes != NULL));
}

void expiries_deinit(struct expiries *expiries);
/* Copies the ticket. False: no memory, or EXPIRIES_MAX tickets are open. */
bool expiries_add(struct expiries *expiries, struct span ticket, uint64_t due_ns,
                  uint64_t give_up_ns);
/* The entry of a ticket's id; EXPIRIES_NONE. */
uint32_t expiries_find(const struct expiries *expiries, const uint8_t *id);
void expiries_remove(struct expiries *expiries, uint32_t at);

#endif
