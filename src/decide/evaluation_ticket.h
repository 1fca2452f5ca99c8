/* SPDX-License-Identifier: MIT */
/*
 * Tickets over quotas whose states are in a store. Such a ticket holds all that identifies it: the
 * store, the id that the units were charged under, and every quota and key. So any server with this
 * store can settle it. The store remembers under the id what was charged; a forged ticket matches
 * no record there.
 */
#ifndef STINT_DECIDE_EVALUATION_TICKET_H
#define STINT_DECIDE_EVALUATION_TICKET_H

#include "decide/backend.h"
#include "decide/evaluation.h"

#define TICKET_BYTES_MAX 3072 /* for a ticket of a store: requests for longer ones are refused */

/* After a reserve or a book that has a ticket and used a store. Returns its length. */
size_t evaluation_ticket_write(const struct evaluation *evaluation,
                               uint8_t bytes[TICKET_BYTES_MAX]);

/*
 * Fills an evaluation that was begun from a ticket; its bytes have to stay. STINT_E_SYNTAX for
 * malformed bytes, STINT_E_MISMATCH for a store that is not among the evaluation's.
 */
int evaluation_add_ticket(struct evaluation *evaluation, struct span ticket,
                          struct stint_error *error);

/*
 * The id, BACKEND_ID_LEN bytes, of a ticket that evaluation_ticket_write() or _add_ticket() knows.
 */
const uint8_t *evaluation_ticket_id(struct span ticket);

/* The state of a ticket that was never settled. */
struct evaluation_expired {
    bool is_closed; /* just now, by this evaluation */
    uint8_t action; /* enum stint_expiry */
    uint64_t kept_units;
};

/*
 * SETTLE: `cost` is what was used of each quota; CANCEL. fault: BACKEND_GONE where the ticket is
 * not valid.
 */
struct stint_decision evaluation_close(struct evaluation *evaluation, uint8_t verb, uint32_t cost,
                                       struct evaluation_expired *expired);
/*
 * For an ended ticket: the units that its maker chose stay charged, the rest comes back. Denied,
 * with a wait, while it is valid; BACKEND_GONE where it was used, expired, or keeps all.
 */
struct stint_decision evaluation_expire(struct evaluation *evaluation,
                                        struct evaluation_expired *expired);
/* After a reserve with a ticket: whether units come back if it is never settled. */
bool evaluation_ticket_expires(const struct evaluation *evaluation);
/* The holder keeps its slots for longer. False: the ticket holds none. */
bool evaluation_renew(struct evaluation *evaluation);

#endif
