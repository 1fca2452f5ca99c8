/* SPDX-License-Identifier: MIT */
/* Tickets to text and back. */
#include "proto/ticket_text.h"

#include "base/number.h"

void ticket_hex_write(uint64_t number, char *text)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *text++ = "0123456789abcdef"[number >> shift & 15];
}

bool ticket_hex_read(const uint8_t *text, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < TICKET_HEX_LEN; i++) {
        int digit = number_hex_digit(text[i]);
        if (digit < 0)
            return false;
        *number = *number << 4 | (uint64_t)digit;
    }
    return true;
}

struct span ticket_text_of(const struct reply *reply, char space[TICKET_TEXT_LEN])
{
    if (reply->ticket_text.len > 0)
        return reply->ticket_text;
    ticket_hex_write(reply->ticket.slot, space);
    ticket_hex_write(reply->ticket.nonce, space + TICKET_HEX_LEN);
    return span_of(space, TICKET_TEXT_LEN);
}

bool ticket_text_read(struct span text, struct request *request)
{
    struct stint_ticket *ticket = &request->ticket;
    if (text.len > TICKET_TEXT_LEN) {
        request->ticket_text = text;
        return true;
    }
    return text.len == TICKET_TEXT_LEN && ticket_hex_read(text.ptr, &ticket->slot) &&
           ticket_hex_read(text.ptr + TICKET_HEX_LEN, &ticket->nonce);
}
