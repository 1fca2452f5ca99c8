/* SPDX-License-Identifier: MIT */
/* Tickets to text and back. */
#include "proto/ticket_text.h"

static void write_hex(uint64_t number, char *text)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *text++ = "0123456789abcdef"[number >> shift & 15];
}

static bool read_hex(const uint8_t *text, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < 16; i++) {
        uint8_t c = text[i], lower = c | 0x20;
        if (c >= '0' && c <= '9')
            *number = *number << 4 | (uint64_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            *number = *number << 4 | (uint64_t)(lower - 'a' + 10);
        else
            return false;
    }
    return true;
}

void ticket_text_write(struct stint_ticket ticket, char text[TICKET_TEXT_LEN])
{
    write_hex(ticket.slot, text);
    write_hex(ticket.nonce, text + 16);
}

bool ticket_text_read(struct span text, struct stint_ticket *ticket)
{
    return text.len == TICKET_TEXT_LEN && read_hex(text.ptr, &ticket->slot) &&
           read_hex(text.ptr + 16, &ticket->nonce);
}
