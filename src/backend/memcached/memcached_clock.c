/* SPDX-License-Identifier: MIT */
/* Reads the key, and writes it where our clock is later. */
#include "backend/memcached/memcached_clock.h"

#include "base/ns.h"
#include "base/splitmix.h"
#include "base/wide_int.h"

#define BEATS_KEPT 10 /* beats until a wrong clock that is right again is forgotten */

void memcached_clock_init(struct memcached_clock *clock,
                          const struct memcached_backend_options *options,
                          struct memcached_metrics *metrics, struct span prefix)
{
    *clock = (struct memcached_clock){
        .options = options, .metrics = metrics, .random = options->io->ops->wall(options->io)};
    memcpy(clock->key.text, prefix.ptr, prefix.len);
    memcpy(clock->key.text + prefix.len, "{clock}", 7);
    clock->key.len = prefix.len + 7;
    clock->server = memcached_key_server(options->url, span_of(clock->key.text, clock->key.len));
    clock->conn = options->conns[clock->server];
}

static uint64_t read_time(struct span value)
{
    uint64_t time = 0;
    for (size_t i = 0; i < value.len; i++)
        time = time << 8 | value.ptr[i];
    return time;
}

static void note(struct memcached_clock *clock, uint64_t skew_ns)
{
    if (skew_ns > clock->metrics->skew_ns)
        clock->metrics->skew_ns = skew_ns;
    /* Once for each doubling, so that reports do not repeat. */
    if (skew_ns <= clock->options->skew_max_ns || skew_ns / 2 < clock->reported_ns)
        return;
    clock->reported_ns = skew_ns;
    clock->options->io->ops->skewed(clock->options->io, skew_ns);
}

static void take_written(void *arg, enum memcached_outcome outcome,
                         const struct memcached_reply *reply, uint64_t now_ns)
{
    struct memcached_clock *clock = arg;
    (void)outcome;
    (void)reply;
    (void)now_ns;
    clock->is_asking = false;
}

static void ask(struct memcached_clock *clock, struct memcached_command *command, uint64_t now_ns)
{
    command->key = span_of(clock->key.text, clock->key.len);
    command->arg = clock;
    clock->is_asking = memcached_conn_ask(clock->conn, command, now_ns);
    if (clock->is_asking)
        clock->options->io->ops->asked(clock->options->io, clock->server);
}

static void write_time(struct memcached_clock *clock, uint64_t wall_ns, uint64_t number,
                       uint64_t now_ns)
{
    struct memcached_command command = {
        .verb = number > 0 ? MEMCACHED_SWAP : MEMCACHED_ADD,
        .value = span_of(clock->bytes, sizeof(clock->bytes)),
        .number = number,
        .ttl_s = 2 + BEATS_KEPT * clock->options->beat_ns / NS_PER_S,
        .answered = take_written,
    };
    for (size_t i = sizeof(clock->bytes); i > 0; i--, wall_ns >>= 8)
        clock->bytes[i - 1] = (uint8_t)wall_ns;
    ask(clock, &command, now_ns);
}

static void take_read(void *arg, enum memcached_outcome outcome,
                      const struct memcached_reply *reply, uint64_t now_ns)
{
    struct memcached_clock *clock = arg;
    uint64_t wall_ns = clock->options->io->ops->wall(clock->options->io);
    clock->is_asking = false;
    if (outcome != MEMCACHED_DONE)
        return;
    if (reply->code == MEMCACHED_MISS) {
        write_time(clock, wall_ns, 0, now_ns);
        return;
    }
    uint64_t latest_ns = reply->value.len == sizeof(clock->bytes) ? read_time(reply->value) : 0;
    if (latest_ns > wall_ns)
        note(clock, latest_ns - wall_ns);
    else if (reply->number > 0)
        write_time(clock, wall_ns, reply->number, now_ns);
}

uint64_t memcached_clock_deadline(const struct memcached_clock *clock)
{
    return link_is_ready(memcached_conn_link(clock->conn)) ? clock->next_ns : STINT_NEVER_NS;
}

void memcached_clock_wake(struct memcached_clock *clock, uint64_t now_ns)
{
    struct memcached_command command = {.verb = MEMCACHED_GET, .answered = take_read};
    if (memcached_clock_deadline(clock) > now_ns)
        return;
    clock->next_ns = now_ns + clock->options->beat_ns / 2 +
                     splitmix_next(&clock->random) % (clock->options->beat_ns + 1);
    if (!clock->is_asking)
        ask(clock, &command, now_ns);
}
