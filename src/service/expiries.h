/* SPDX-License-Identifier: MIT */
/*
 * Tickets of backends that one worker issued, and that return units if they are never settled.
 * Found by id while they are open, and by time once they have expired. One thread.
 */
#ifndef STINT_SERVICE_EXPIRIES_H
#define STINT_SERVICE_EXPIRIES_H

#include "decide/backend.h"
#include "service/timer_queue.h"

#define EXPIRIES_MAX 65536u /* open at once; further ones stay charged as estimated */

struct expiry {
    uint8_t id[BACKEND_ID_LEN]; /* first: what it is found by */
    struct timer due;           /* in no queue while a store request is under way */
    uint64_t give_up_ns;
    struct service *service;
    struct pending *pending; /* the store request that closes it; NULL: none was sent */
    size_t len;
    uint8_t ticket[];
};

/* Zeroed is empty. */
struct expiries {
    void *tree; /* of tsearch(3) */
    struct timer_queue due;
    uint32_t n_open, n_asked;
};

void expiries_deinit(struct expiries *expiries);
/* Copies the ticket. False: no memory, or EXPIRIES_MAX tickets are open. */
bool expiries_add(struct expiries *expiries, struct span ticket, uint64_t due_ns,
                  uint64_t give_up_ns);
struct expiry *expiries_find(const struct expiries *expiries, const uint8_t *id); /* NULL: none */
void expiries_remove(struct expiries *expiries, struct expiry *entry);

#endif
