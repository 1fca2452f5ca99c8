/* SPDX-License-Identifier: MIT */
/*
 * A ticket as text, the same at every frontend: 32 hexadecimal digits, its slot and its nonce. One
 * in a store is longer, and what it says is not for a parser to know.
 */
#ifndef STINT_PROTO_TICKET_TEXT_H
#define STINT_PROTO_TICKET_TEXT_H

#include "decide/reply.h"
#include "decide/request.h"

#define TICKET_TEXT_LEN 32
#define TICKET_HEX_LEN 16 /* digits of one number */

void ticket_hex_write(uint64_t number, char *text);
bool ticket_hex_read(const uint8_t *text, uint64_t *number); /* false: these are no digits */

/* Of a reply that has one; in `room`, or where the reply has it. */
struct span ticket_text_of(const struct reply *reply, char space[TICKET_TEXT_LEN]);
/*
 * Into request->ticket, or ->ticket_text. False for what is no ticket's text; whether there is such
 * a ticket, the table knows, or the store.
 */
bool ticket_text_read(struct span text, struct request *request);

#endif
