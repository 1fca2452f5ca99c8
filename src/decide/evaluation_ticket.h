/* SPDX-License-Identifier: MIT */
/*
 * Tickets over quotas whose states are in a store. Such a ticket says by itself whose they are: the
 * store that has them, the id that they were charged under, and every quota and key, so that any
 * server that has the store can settle it. What was charged, the store remembers under the id; a
 * ticket that somebody made up is of nothing there.
 */
#ifndef STINT_DECIDE_EVALUATION_TICKET_H
#define STINT_DECIDE_EVALUATION_TICKET_H

#include "decide/backend.h"
#include "decide/evaluation.h"

#define TICKET_BYTES_MAX 3072 /* of a ticket of a store: requests for longer ones are refused */

/* After a reserve or a book that has a ticket, and that asked a store. Returns its length. */
size_t evaluation_ticket_write(const struct evaluation *evaluation,
                               uint8_t bytes[TICKET_BYTES_MAX]);

/*
 * Fills a question, that was begun, with what a ticket is of; its bytes have to stay.
 * STINT_E_SYNTAX for what is none, STINT_E_MISMATCH for one of a store that is not among the
 * question's.
 */
int evaluation_add_ticket(struct evaluation *evaluation, struct span ticket,
                          struct stint_error *error);

/* Its id, BACKEND_ID_LEN bytes, of one that evaluation_ticket_write() or _add_ticket() knows. */
const uint8_t *evaluation_ticket_id(struct span ticket);

/* What became of a ticket that was never settled. */
struct evaluation_expired {
    bool is_closed; /* just now, by this question */
    uint8_t action; /* enum stint_expiry */
    uint64_t kept_units;
};

/* What was used of each quota, or nothing. fault: BACKEND_GONE where the ticket is not good. */
struct stint_decision evaluation_settle(struct evaluation *evaluation, uint32_t actual,
                                        struct evaluation_expired *expired);
struct stint_decision evaluation_cancel(struct evaluation *evaluation,
                                        struct evaluation_expired *expired);
/*
 * Of a ticket that has ended: what its maker said stays charged, the rest comes back. Denied, with
 * a wait, while it is good still; BACKEND_GONE where it was used, expired, or keeps all.
 */
struct stint_decision evaluation_expire(struct evaluation *evaluation,
                                        struct evaluation_expired *expired);
/* After a reserve that has a ticket: whether something is to come back if it is never settled. */
bool evaluation_ticket_expires(const struct evaluation *evaluation);
/* Whoever holds places keeps them longer. False: the ticket holds none. */
bool evaluation_renew(struct evaluation *evaluation);

#endif
