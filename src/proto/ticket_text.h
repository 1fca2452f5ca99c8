/* SPDX-License-Identifier: MIT */
/*
 * A ticket as text, the same at every frontend: 32 hexadecimal digits, its slot and its nonce. A
 * store's ticket is longer, and is opaque to parsers.
 */
#ifndef STINT_PROTO_TICKET_TEXT_H
#define STINT_PROTO_TICKET_TEXT_H

#include "decide/reply.h"
#include "decide/request.h"

#define TICKET_TEXT_LEN 32
#define TICKET_HEX_LEN 16 /* digits of one number */

void ticket_hex_write(uint64_t number, char *text);
bool ticket_hex_read(const uint8_t *text, uint64_t *number); /* false: invalid digits */

/* The text of a reply's ticket; in `room`, or in the reply. */
struct span ticket_text_of(const struct reply *reply, char space[TICKET_TEXT_LEN]);
/*
 * Reads into request->ticket, or ->ticket_text. False for an invalid text; whether the ticket
 * exists is known to the table, or the store.
 */
bool ticket_text_read(struct span text, struct request *request);

#endif
