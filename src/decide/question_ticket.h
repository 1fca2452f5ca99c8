/* SPDX-License-Identifier: MIT */
/*
 * Tickets over quotas whose states are in a store. Such a ticket says by itself whose they are: the
 * store that has them, the id that they were charged under, and every quota and key, so that any
 * server that has the store can settle it. What was charged, the store remembers under the id; a
 * ticket that somebody made up is of nothing there.
 */
#ifndef STINT_DECIDE_QUESTION_TICKET_H
#define STINT_DECIDE_QUESTION_TICKET_H

#include "decide/question.h"
#include "decide/shared.h"

#define TICKET_BYTES_MAX 3072 /* of a ticket of a store: requests for longer ones are refused */

/* After a reserve or a book that has a ticket, and that asked a store. Returns its length. */
size_t question_ticket_write(const struct question *question, uint8_t bytes[TICKET_BYTES_MAX]);

/*
 * Fills a question, that was begun, with what a ticket is of; its bytes have to stay.
 * STINT_E_SYNTAX for what is none, STINT_E_MISMATCH for one of a store that is not among the
 * question's.
 */
int question_add_ticket(struct question *question, struct span ticket, struct stint_error *error);

/* Its id, SHARED_ID_LEN bytes, of one that question_ticket_write() or _add_ticket() knows. */
const uint8_t *question_ticket_id(struct span ticket);

/* What became of a ticket that was never settled. */
struct question_expired {
    bool is_closed; /* just now, by this question */
    uint8_t action; /* enum stint_expiry */
    uint64_t kept_units;
};

/* What was used of each quota, or nothing. fault: SHARED_GONE where the ticket is not good. */
struct stint_decision question_settle(struct question *question, uint32_t actual,
                                      struct question_expired *expired);
struct stint_decision question_cancel(struct question *question, struct question_expired *expired);
/*
 * Of a ticket that has ended: what its maker said stays charged, the rest comes back. Denied, with
 * a wait, while it is good still; SHARED_GONE where it was used, expired, or keeps all.
 */
struct stint_decision question_expire(struct question *question, struct question_expired *expired);
/* After a reserve that has a ticket: whether something is to come back if it is never settled. */
bool question_ticket_expires(const struct question *question);
/* Whoever holds places keeps them longer. False: the ticket holds none. */
bool question_renew(struct question *question);

#endif
