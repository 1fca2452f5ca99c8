/* SPDX-License-Identifier: MIT */
/* What does not depend on the protocol: states, time, commands in order, and the bytes that go out.
 */
#include "backend/wire/backend_link.h"

#include "base/ns.h"

#include <stdlib.h>

/* ---- Bytes ----------------------------------------------------------------------------------- */

bool wire_bytes_reserve(struct wire_bytes *bytes, size_t more, size_t max)
{
    if (more > max || bytes->len > max - more)
        return false;
    if (bytes->len + more <= bytes->size)
        return true;
    size_t size = 2 * (bytes->len + more) < 1024 ? 1024 : 2 * (bytes->len + more);
    uint8_t *grown = realloc(bytes->ptr, size);
    if (grown == NULL)
        return false;
    bytes->ptr = grown;
    bytes->size = size;
    return true;
}

/* ---- Commands -------------------------------------------------------------------------------- */

/* Bytes before the first pending command are no longer needed, unless they are to be sent. */
static void drop_answered(struct link *link)
{
    uint64_t kept = link->n_pending > 0 ? link_at(link, 0)->begin : UINT64_MAX;
    size_t dropped = (size_t)(min_u64(kept, link->sent) - link->base);
    if (dropped == 0)
        return;
    link->bytes.len -= dropped;
    memmove(link->bytes.ptr, link->bytes.ptr + dropped, link->bytes.len);
    link->base += dropped;
}

bool link_reserve(struct link *link, size_t len)
{
    if (link->state != LINK_READY || link->n_pending == link->options.commands_max)
        return false;
    if (link->bytes.len + len > link->bytes.size)
        drop_answered(link);
    return wire_bytes_reserve(&link->bytes, len, link->options.bytes_max);
}

bool link_write(struct link *link, struct span bytes)
{
    drop_answered(link);
    if (!link_reserve(link, bytes.len))
        return false;
    wire_bytes_add(&link->bytes, bytes);
    return true;
}

void link_append(struct link *link, const struct link_pending *pending)
{
    assert(link->n_pending < link->options.commands_max && pending->end == link_end(link));
    *link_at(link, link->n_pending++) = *pending;
    link->earliest_ns = min_u64(link->earliest_ns, pending->deadline_ns);
}

struct link_pending link_take_first(struct link *link)
{
    const struct link_pending first = *link_at(link, 0);
    link->first = (link->first + 1) % link->options.commands_max;
    if (--link->n_pending == 0) {
        link->earliest_ns = STINT_NEVER_NS;
        drop_answered(link);
    }
    return first;
}

/*
 * Commands that were sent whole may have been done. Nothing is kept for the next socket: a command
 * that was not sent may go to another server.
 */
static void end_all(struct link *link, uint64_t now_ns)
{
    assert(link->state != LINK_READY); /* so that no command is accepted meanwhile */
    while (link->n_pending > 0) {
        const struct link_pending pending = link_take_first(link);
        enum link_outcome outcome = pending.end > link->sent        ? LINK_UNSENT
                                    : pending.deadline_ns <= now_ns ? LINK_LATE
                                                                    : LINK_LOST;
        link->codec->end(&pending, outcome, now_ns);
    }
    link->bytes.len = 0;
    link->base = link->sent = 0;
}

/* ---- States ---------------------------------------------------------------------------------- */

enum link_wants link_wants(const struct link *link)
{
    return link->state == LINK_DUE        ? LINK_WANTS_SOCKET
           : link->state == LINK_GIVEN_UP ? LINK_WANTS_CLOSE
                                          : LINK_WANTS_NOTHING;
}

void link_dialling(struct link *link, uint64_t now_ns)
{
    assert(link->state == LINK_DUE);
    link->state = LINK_DIALLING;
    link->state_ends_ns = now_ns + link->options.connect_ns;
    if (link->unavailable_since_ns == 0)
        link->unavailable_since_ns = now_ns;
}

void link_give_up(struct link *link)
{
    link->state = LINK_GIVEN_UP;
    link->state_ends_ns = STINT_NEVER_NS;
}

static void clear_greeting(struct link *link)
{
    if (link->greeting.ptr != NULL)
        memset(link->greeting.ptr, 0, link->greeting.len);
    link->greeting.len = link->greeting_sent = 0;
}

void link_connected(struct link *link, uint64_t now_ns)
{
    (void)now_ns;
    if (link->state != LINK_DIALLING) /* too late: it is closed */
        return;
    link->state = LINK_GREETING;
    clear_greeting(link);
    if (link->codec->begin(link))
        return;
    err_set(&link->fault, STINT_E_SYSTEM, "no memory for a connection to the store");
    link_give_up(link);
}

void link_be_ready(struct link *link)
{
    clear_greeting(link);
    link->state = LINK_READY;
    link->state_ends_ns = STINT_NEVER_NS;
    link->backoff_ns = link->options.backoff_first_ns;
    link->unavailable_since_ns = 0;
}

void link_lost(struct link *link, const char *why, uint64_t now_ns)
{
    if (link->state == LINK_UNAVAILABLE)
        return;
    if (why != NULL && link->state != LINK_GIVEN_UP)
        err_set(&link->fault, STINT_E_GONE, "%s", why);
    clear_greeting(link);
    link->state = LINK_UNAVAILABLE;
    if (link->unavailable_since_ns == 0)
        link->unavailable_since_ns = now_ns;
    link->state_ends_ns = now_ns + link_jitter(&link->random, link->backoff_ns);
    link->backoff_ns = min_u64(2 * link->backoff_ns, link->options.backoff_max_ns);
    end_all(link, now_ns);
}

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t link_deadline(const struct link *link)
{
    return min_u64(link->state_ends_ns, link->earliest_ns);
}

void link_wake(struct link *link, uint64_t now_ns)
{
    if (link->state_ends_ns <= now_ns && link->state == LINK_UNAVAILABLE) {
        link->state = LINK_DUE;
        link->state_ends_ns = STINT_NEVER_NS;
    } else if (link->state_ends_ns <= now_ns) {
        err_set(&link->fault, STINT_E_GONE, "%s has not greeted within %llu ms",
                link->codec->server, (unsigned long long)(link->options.connect_ns / NS_PER_MS));
        link_give_up(link);
    }
    if (link->earliest_ns <= now_ns)
        link->codec->be_late(link, now_ns);
}

void link_give_up_late(struct link *link, uint64_t now_ns)
{
    if (link->state != LINK_GIVEN_UP)
        err_set(&link->fault, STINT_E_GONE, "%s has not answered within %llu ms",
                link->codec->server, (unsigned long long)(link->options.reply_ns / NS_PER_MS));
    link_give_up(link);
    end_all(link, now_ns);
}

/* ---- Bytes of a connection ------------------------------------------------------------------- */

void link_feed(struct link *link, struct span bytes, uint64_t now_ns)
{
    if (!link_reads(link))
        return;
    if (link->codec->read(link, bytes, now_ns) < 0)
        link_give_up(link);
    if (link->state == LINK_GIVEN_UP)
        end_all(link, now_ns);
}

struct span link_output(const struct link *link)
{
    bool is_greeting = link->state == LINK_GREETING;
    const struct wire_bytes *bytes = is_greeting ? &link->greeting : &link->bytes;
    size_t skipped = is_greeting ? link->greeting_sent : (size_t)(link->sent - link->base);
    if (!link_reads(link) || bytes->ptr == NULL)
        return span_of(NULL, 0);
    return span_of(bytes->ptr + skipped, bytes->len - skipped);
}

void link_sent(struct link *link, size_t len)
{
    if (link->state == LINK_GREETING)
        link->greeting_sent += len;
    else if (link->state == LINK_READY)
        link->sent += len;
    assert(link->greeting_sent <= link->greeting.len && link->sent <= link_end(link));
}

/* ---- Start and end --------------------------------------------------------------------------- */

void link_free(struct link *link, uint64_t now_ns)
{
    link->state = LINK_UNAVAILABLE;
    end_all(link, now_ns);
    link->codec->free(link);
    clear_greeting(link);
    free(link->greeting.ptr);
    free(link->bytes.ptr);
    free(link->pending);
    free(link);
}

bool link_init(struct link *link, const struct link_codec *codec,
               const struct link_options *options)
{
    struct link_options *set = &link->options;
    link->codec = codec;
    *set = *options;
    link_set_default(&set->connect_ns, LINK_CONNECT_NS);
    link_set_default(&set->reply_ns, LINK_REPLY_NS);
    link_set_default(&set->backoff_first_ns, 10 * NS_PER_MS);
    link_set_default(&set->backoff_max_ns, 500 * NS_PER_MS);
    set->commands_max = set->commands_max > 0 ? set->commands_max : 4096;
    set->bytes_max = set->bytes_max > 0 ? set->bytes_max : 1u << 20;
    link->state = LINK_DUE;
    link->backoff_ns = set->backoff_first_ns;
    link->random = options->seed;
    link->earliest_ns = link->state_ends_ns = STINT_NEVER_NS;
    link->pending = calloc(set->commands_max, sizeof(*link->pending));
    return link->pending != NULL;
}
