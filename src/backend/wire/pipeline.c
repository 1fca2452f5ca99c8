/* SPDX-License-Identifier: MIT */
/* What does not depend on the protocol: states, time, and the bytes that go out. */
#include "backend/wire/pipeline.h"

#include "base/ns.h"

#include <assert.h>
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

/* ---- States ---------------------------------------------------------------------------------- */

static struct pipeline *of(struct link *link)
{
    return (struct pipeline *)link;
}

static const struct pipeline *const_of(const struct link *link)
{
    return (const struct pipeline *)link;
}

static enum link_wants op_wants(const struct link *link)
{
    enum pipeline_state state = const_of(link)->state;
    return state == PIPELINE_DUE        ? LINK_WANTS_SOCKET
           : state == PIPELINE_GIVEN_UP ? LINK_WANTS_CLOSE
                                        : LINK_WANTS_NOTHING;
}

static void op_dialling(struct link *link, uint64_t now_ns)
{
    struct pipeline *pipe = of(link);
    assert(pipe->state == PIPELINE_DUE);
    pipe->state = PIPELINE_DIALLING;
    pipe->state_ends_ns = now_ns + pipe->options.connect_ns;
    if (pipe->unavailable_since_ns == 0)
        pipe->unavailable_since_ns = now_ns;
}

void pipeline_give_up(struct pipeline *pipe)
{
    pipe->state = PIPELINE_GIVEN_UP;
    pipe->state_ends_ns = STINT_NEVER_NS;
}

static void clear_greeting(struct pipeline *pipe)
{
    if (pipe->greeting.ptr != NULL)
        memset(pipe->greeting.ptr, 0, pipe->greeting.len);
    pipe->greeting.len = pipe->greeting_sent = 0;
}

static void op_connected(struct link *link, uint64_t now_ns)
{
    struct pipeline *pipe = of(link);
    (void)now_ns;
    if (pipe->state != PIPELINE_DIALLING) /* too late: it is closed */
        return;
    pipe->state = PIPELINE_GREETING;
    clear_greeting(pipe);
    if (pipe->codec->begin(pipe))
        return;
    err_set(&pipe->fault, STINT_E_SYSTEM, "no memory for a connection to the store");
    pipeline_give_up(pipe);
}

void pipeline_be_ready(struct pipeline *pipe)
{
    clear_greeting(pipe);
    pipe->state = PIPELINE_READY;
    pipe->state_ends_ns = STINT_NEVER_NS;
    pipe->backoff.next_ns = pipe->options.backoff_first_ns;
    pipe->unavailable_since_ns = 0;
}

static void op_lost(struct link *link, const char *why, uint64_t now_ns)
{
    struct pipeline *pipe = of(link);
    if (pipe->state == PIPELINE_UNAVAILABLE)
        return;
    if (why != NULL && pipe->state != PIPELINE_GIVEN_UP)
        err_set(&pipe->fault, STINT_E_GONE, "%s", why);
    clear_greeting(pipe);
    pipe->state = PIPELINE_UNAVAILABLE;
    if (pipe->unavailable_since_ns == 0)
        pipe->unavailable_since_ns = now_ns;
    pipe->state_ends_ns = now_ns + backoff_wait_ns(&pipe->backoff, pipe->options.backoff_max_ns);
    pipe->codec->end_sent(pipe, now_ns);
}

static bool op_is_ready(const struct link *link)
{
    return const_of(link)->state == PIPELINE_READY;
}

static const char *op_fault(const struct link *link)
{
    return const_of(link)->fault.message;
}

/* ---- Time ------------------------------------------------------------------------------------ */

static uint64_t op_deadline(const struct link *link)
{
    const struct pipeline *pipe = const_of(link);
    return min_u64(pipe->state_ends_ns, pipe->earliest_ns);
}

static void op_wake(struct link *link, uint64_t now_ns)
{
    struct pipeline *pipe = of(link);
    if (pipe->state_ends_ns <= now_ns && pipe->state == PIPELINE_UNAVAILABLE) {
        pipe->state = PIPELINE_DUE;
        pipe->state_ends_ns = STINT_NEVER_NS;
    } else if (pipe->state_ends_ns <= now_ns) {
        err_set(&pipe->fault, STINT_E_GONE, "%s has not greeted within %llu ms",
                pipe->codec->server, (unsigned long long)(pipe->options.connect_ns / NS_PER_MS));
        pipeline_give_up(pipe);
    }
    if (pipe->earliest_ns <= now_ns)
        pipe->codec->be_late(pipe, now_ns);
}

void pipeline_give_up_late(struct pipeline *pipe)
{
    if (pipe->state != PIPELINE_GIVEN_UP)
        err_set(&pipe->fault, STINT_E_GONE, "%s has not answered within %llu ms",
                pipe->codec->server, (unsigned long long)(pipe->options.reply_ns / NS_PER_MS));
    pipeline_give_up(pipe);
}

/* ---- Bytes of a connection ------------------------------------------------------------------- */

static bool reads(const struct pipeline *pipe)
{
    return pipe->state == PIPELINE_GREETING || pipe->state == PIPELINE_READY;
}

static void op_feed(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct pipeline *pipe = of(link);
    if (!reads(pipe))
        return;
    if (pipe->codec->read(pipe, bytes, now_ns) < 0)
        pipeline_give_up(pipe);
    if (pipe->state == PIPELINE_GIVEN_UP)
        pipe->codec->end_sent(pipe, now_ns);
}

static struct span op_output(const struct link *link)
{
    const struct pipeline *pipe = const_of(link);
    bool is_greeting = pipe->state == PIPELINE_GREETING;
    const struct wire_bytes *bytes = is_greeting ? &pipe->greeting : &pipe->bytes;
    size_t skipped = is_greeting ? pipe->greeting_sent : (size_t)(pipe->sent - pipe->base);
    if (!reads(pipe) || bytes->ptr == NULL)
        return span_of(NULL, 0);
    return span_of(bytes->ptr + skipped, bytes->len - skipped);
}

static void op_sent(struct link *link, size_t len)
{
    struct pipeline *pipe = of(link);
    if (pipe->state == PIPELINE_GREETING)
        pipe->greeting_sent += len;
    else if (pipe->state == PIPELINE_READY)
        pipe->sent += len;
    assert(pipe->greeting_sent <= pipe->greeting.len && pipe->sent <= pipeline_end(pipe));
}

void pipeline_drop(struct pipeline *pipe, uint64_t kept)
{
    size_t dropped = (size_t)(min_u64(kept, pipe->sent) - pipe->base);
    if (dropped == 0)
        return;
    pipe->bytes.len -= dropped;
    memmove(pipe->bytes.ptr, pipe->bytes.ptr + dropped, pipe->bytes.len);
    pipe->base += dropped;
}

/* ---- Start and end --------------------------------------------------------------------------- */

static void op_free(struct link *link, uint64_t now_ns)
{
    struct pipeline *pipe = of(link);
    pipe->codec->free(pipe, now_ns);
    clear_greeting(pipe);
    free(pipe->greeting.ptr);
    free(pipe->bytes.ptr);
    free(pipe);
}

static const struct link_ops ops = {
    .wants = op_wants,
    .dialling = op_dialling,
    .connected = op_connected,
    .lost = op_lost,
    .feed = op_feed,
    .output = op_output,
    .sent = op_sent,
    .deadline = op_deadline,
    .wake = op_wake,
    .is_ready = op_is_ready,
    .fault = op_fault,
    .free = op_free,
};

static void set_default(uint64_t *value, uint64_t standard)
{
    if (*value == 0)
        *value = standard;
}

void pipeline_init(struct pipeline *pipe, const struct pipeline_codec *codec,
                   const struct pipeline_options *options)
{
    struct pipeline_options *set = &pipe->options;
    pipe->link.ops = &ops;
    pipe->codec = codec;
    *set = *options;
    set_default(&set->connect_ns, 250 * NS_PER_MS);
    set_default(&set->reply_ns, 50 * NS_PER_MS);
    set_default(&set->backoff_first_ns, 10 * NS_PER_MS);
    set_default(&set->backoff_max_ns, 500 * NS_PER_MS);
    set->commands_max = set->commands_max > 0 ? set->commands_max : 4096;
    set->bytes_max = set->bytes_max > 0 ? set->bytes_max : 1u << 20;
    pipe->state = PIPELINE_DUE;
    pipe->backoff = (struct backoff){.next_ns = set->backoff_first_ns, .random = options->seed};
    pipe->earliest_ns = pipe->state_ends_ns = STINT_NEVER_NS;
}
