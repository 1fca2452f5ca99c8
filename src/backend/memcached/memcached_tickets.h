/* SPDX-License-Identifier: MIT */
/*
 * Open tickets of one key, in the value of that key after its state: so a reservation and its end
 * are each one swap of one value. As bytes each is, numbers big-endian: id 16, when it was charged
 * 8, when it ends 8, units 4, units that stay charged 4. After the last is their number, 2.
 * docs/decisions/0065.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_TICKETS_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_TICKETS_H

#include "base/span.h"
#include "decide/backend.h"

#define MEMCACHED_TICKETS_MAX 1024 /* for one key: 48 KiB, read and written with each decision */
#define MEMCACHED_TICKET_LEN (BACKEND_ID_LEN + 8 + 8 + 8 + 4 + 4)
#define MEMCACHED_TICKETS_LEN_MAX (MEMCACHED_TICKETS_MAX * MEMCACHED_TICKET_LEN + 2)

struct memcached_ticket {
    uint8_t id[BACKEND_ID_LEN];
    uint64_t charged_ns, ends_ns; /* since 1970, or virtual; whole microseconds */
    uint64_t unit_ticks;          /* gcra: the charge of each unit, in the state's time; else 0 */
    uint32_t units, kept;         /* kept: if it is never settled; STINT_KEEP_ALL */
};

/* The oldest first. */
struct memcached_tickets {
    size_t n;
    bool has_changed;
    struct memcached_ticket each[MEMCACHED_TICKETS_MAX];
};

/* Tickets closed by a request that does not name them. */
struct memcached_closed {
    uint64_t expired[3]; /* by enum stint_expiry */
    uint64_t kept_units; /* units that were to be released, and could not be given back */
    uint64_t dropped;    /* closed as estimated before their end: there were too many */
};

/* Removes them from the end of these bytes. False: write() did not write these. */
bool memcached_tickets_read(struct memcached_tickets *tickets, struct span *bytes);
/* Appends; after *at, which is moved. */
void memcached_tickets_write(const struct memcached_tickets *tickets, uint8_t **at);

/* NULL: none has this id. */
struct memcached_ticket *memcached_tickets_find(struct memcached_tickets *tickets,
                                                const uint8_t *id);
/* False: the oldest was dropped. */
bool memcached_tickets_add(struct memcached_tickets *tickets,
                           const struct memcached_ticket *ticket);
void memcached_tickets_remove(struct memcached_tickets *tickets, struct memcached_ticket *ticket);

/* The latest end of all; 0: there is none. */
uint64_t memcached_tickets_until(const struct memcached_tickets *tickets);

#endif
