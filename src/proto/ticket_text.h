/* SPDX-License-Identifier: MIT */
/* A ticket as text, the same at every door: 32 hexadecimal digits, its slot and its nonce. */
#ifndef STINT_PROTO_TICKET_TEXT_H
#define STINT_PROTO_TICKET_TEXT_H

#include "base/span.h"
#include "stint.h"

#define TICKET_TEXT_LEN 32

/* Writes TICKET_TEXT_LEN digits and no terminator. */
void ticket_text_write(struct stint_ticket ticket, char text[TICKET_TEXT_LEN]);
/* False for what is no ticket's text; whether there is such a ticket, the table knows. */
bool ticket_text_read(struct span text, struct stint_ticket *ticket);

#endif
