/* SPDX-License-Identifier: MIT */
/* A hash table of tickets by their ids, which are random. */
#include "service/expiries.h"

#include "decide/evaluation_ticket.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 64u

static uint32_t *home_of(const struct expiries *expiries, const uint8_t *id)
{
    assert(expiries->capacity > 0);
    uint32_t number;
    memcpy(&number, id, sizeof(number));
    return &expiries->homes[number & (expiries->capacity - 1)];
}

static const uint8_t *id_at(const struct expiries *expiries, uint32_t at)
{
    assert(at < expiries->capacity && expiries->entries[at].ticket != NULL);
    const struct expiry *entry = &expiries->entries[at];
    return evaluation_ticket_id(span_of(entry->ticket, entry->len));
}

static void link_in(struct expiries *expiries, uint32_t at)
{
    uint32_t *home = home_of(expiries, id_at(expiries, at));
    expiries->entries[at].next = *home;
    *home = at;
}

static bool grow(struct expiries *expiries)
{
    assert(expiries_is_valid(expiries) && expiries->n_open == expiries->capacity);
    uint32_t old = expiries->capacity, capacity = old == 0 ? CAPACITY_MIN : 2 * old;
    if (old == EXPIRIES_MAX)
        return false;
    struct expiry *entries = realloc(expiries->entries, capacity * sizeof(*entries));
    if (entries == NULL)
        return false;
    expiries->entries = entries;
    uint32_t *homes = realloc(expiries->homes, capacity * sizeof(*homes));
    if (homes == NULL)
        return false;
    expiries->homes = homes;
    expiries->capacity = capacity;
    expiries->free = EXPIRIES_NONE;
    for (uint32_t at = 0; at < capacity; at++)
        homes[at] = EXPIRIES_NONE;
    for (uint32_t at = 0; at < old; at++)
        link_in(expiries, at);
    for (uint32_t at = capacity; at-- > old;) {
        entries[at] = (struct expiry){.next = expiries->free};
        expiries->free = at;
    }
    return true;
}

void expiries_deinit(struct expiries *expiries)
{
    assert(expiries_is_valid(expiries));
    for (uint32_t at = 0; at < expiries->capacity; at++)
        free(expiries->entries[at].ticket);
    free(expiries->entries);
    free(expiries->homes);
    *expiries = (struct expiries){.entries = NULL};
}

bool expiries_add(struct expiries *expiries, struct span ticket, uint64_t due_ns,
                  uint64_t give_up_ns)
{
    assert(expiries_is_valid(expiries));
    assert(ticket.ptr != NULL && ticket.len >= BACKEND_ID_LEN);
    if (expiries->n_open == expiries->capacity && !grow(expiries))
        return false;
    uint8_t *copy = malloc(ticket.len);
    if (copy == NULL)
        return false;
    memcpy(copy, ticket.ptr, ticket.len);
    uint32_t at = expiries->free;
    assert(at < expiries->capacity && expiries->entries[at].ticket == NULL);
    expiries->free = expiries->entries[at].next;
    expiries->entries[at] = (struct expiry){
        .ticket = copy, .len = (uint32_t)ticket.len, .due_ns = due_ns, .give_up_ns = give_up_ns};
    expiries->n_open++;
    link_in(expiries, at);
    return true;
}

uint32_t expiries_find(const struct expiries *expiries, const uint8_t *id)
{
    assert(expiries_is_valid(expiries));
    if (expiries->n_open == 0)
        return EXPIRIES_NONE;
    uint32_t at = *home_of(expiries, id);
    while (at != EXPIRIES_NONE && memcmp(id_at(expiries, at), id, BACKEND_ID_LEN) != 0)
        at = expiries->entries[at].next;
    return at;
}

void expiries_remove(struct expiries *expiries, uint32_t at)
{
    assert(expiries_is_valid(expiries) && at < expiries->capacity);
    struct expiry *entry = &expiries->entries[at];
    assert(entry->ticket != NULL);
    uint32_t *from = home_of(expiries, id_at(expiries, at));
    while (*from != at)
        from = &expiries->entries[*from].next;
    *from = entry->next;
    free(entry->ticket);
    *entry = (struct expiry){.next = expiries->free};
    expiries->free = at;
    expiries->n_open--;
}
