/* SPDX-License-Identifier: MIT */
/* A list of records of one length, read and written as a whole. */
#define _DEFAULT_SOURCE
#include "backend/memcached/memcached_tickets.h"

#include "base/wide_int.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

static uint64_t read_8(const uint8_t *at)
{
    uint64_t number;
    memcpy(&number, at, sizeof(number));
    return be64toh(number);
}

static uint32_t read_4(const uint8_t *at)
{
    uint32_t number;
    memcpy(&number, at, sizeof(number));
    return be32toh(number);
}

static void write_8(uint8_t *at, uint64_t number)
{
    number = htobe64(number);
    memcpy(at, &number, sizeof(number));
}

static void write_4(uint8_t *at, uint32_t number)
{
    number = htobe32(number);
    memcpy(at, &number, sizeof(number));
}

bool memcached_tickets_read(struct memcached_tickets *tickets, struct span *bytes)
{
    if (bytes->len < 2)
        return false;
    const uint8_t *end = bytes->ptr + bytes->len - 2;
    size_t n = (size_t)end[0] << 8 | end[1], len = n * MEMCACHED_TICKET_LEN;
    if (n == 0 || n > MEMCACHED_TICKETS_MAX || len > bytes->len - 2)
        return false;
    *bytes = span_of(bytes->ptr, bytes->len - 2 - len);
    const uint8_t *at = end - len;
    for (size_t i = 0; i < n; i++, at += MEMCACHED_TICKET_LEN) {
        struct memcached_ticket *ticket = &tickets->each[i];
        memcpy(ticket->id, at, BACKEND_ID_LEN);
        ticket->charged_ns = read_8(at + BACKEND_ID_LEN);
        ticket->ends_ns = read_8(at + BACKEND_ID_LEN + 8);
        ticket->unit_ticks = read_8(at + BACKEND_ID_LEN + 16);
        ticket->units = read_4(at + BACKEND_ID_LEN + 24);
        ticket->kept = read_4(at + BACKEND_ID_LEN + 28);
    }
    tickets->n = n;
    return true;
}

void memcached_tickets_write(const struct memcached_tickets *tickets, uint8_t **at)
{
    assert(tickets->n > 0 && tickets->n <= MEMCACHED_TICKETS_MAX);
    for (size_t i = 0; i < tickets->n; i++, *at += MEMCACHED_TICKET_LEN) {
        const struct memcached_ticket *ticket = &tickets->each[i];
        memcpy(*at, ticket->id, BACKEND_ID_LEN);
        write_8(*at + BACKEND_ID_LEN, ticket->charged_ns);
        write_8(*at + BACKEND_ID_LEN + 8, ticket->ends_ns);
        write_8(*at + BACKEND_ID_LEN + 16, ticket->unit_ticks);
        write_4(*at + BACKEND_ID_LEN + 24, ticket->units);
        write_4(*at + BACKEND_ID_LEN + 28, ticket->kept);
    }
    *(*at)++ = (uint8_t)(tickets->n >> 8);
    *(*at)++ = (uint8_t)tickets->n;
}

struct memcached_ticket *memcached_tickets_find(struct memcached_tickets *tickets,
                                                const uint8_t *id)
{
    for (size_t i = 0; i < tickets->n; i++)
        if (memcmp(tickets->each[i].id, id, BACKEND_ID_LEN) == 0)
            return &tickets->each[i];
    return NULL;
}

bool memcached_tickets_add(struct memcached_tickets *tickets, const struct memcached_ticket *ticket)
{
    bool has_space = tickets->n < MEMCACHED_TICKETS_MAX;
    if (!has_space)
        memcached_tickets_remove(tickets, &tickets->each[0]);
    tickets->each[tickets->n++] = *ticket;
    tickets->has_changed = true;
    return has_space;
}

void memcached_tickets_remove(struct memcached_tickets *tickets, struct memcached_ticket *ticket)
{
    const struct memcached_ticket *end = tickets->each + tickets->n--;
    assert(ticket >= tickets->each && ticket < end);
    memmove(ticket, ticket + 1, (size_t)(end - ticket - 1) * sizeof(*ticket));
    tickets->has_changed = true;
}

uint64_t memcached_tickets_until(const struct memcached_tickets *tickets)
{
    uint64_t until_ns = 0;
    for (size_t i = 0; i < tickets->n; i++)
        until_ns = max_u64(until_ns, tickets->each[i].ends_ns);
    return until_ns;
}
