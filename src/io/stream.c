/* SPDX-License-Identifier: MIT */
/*
 * A stream polls its socket and reads and writes it itself: with uv_tcp each would keep a buffer to
 * be written from, and TCP and Unix sockets would differ.
 */
#define _GNU_SOURCE
#include "io/stream.h"

#include "base/ns.h"
#include "io/timing.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE 65536
/* What one stream may leave unsent and still be read from. */
#define UNSENT_MAX 65536
#define FAREWELL_NS NS_PER_S /* how long a peer has to close his side */

struct stream {
    uv_poll_t poll;
    struct streams *home;
    struct conn *conn;
    struct gate_seat *seat;
    struct stream *next, *prev;
    struct due due;
    uint64_t active_ns;     /* when bytes came last */
    uint64_t busy_since_ns; /* when the request that is not yet whole began; 0: there is none */
    uint64_t unsent_since_ns;
    size_t unsent;             /* of what waited then, what waits still */
    uint64_t farewell_ends_ns; /* 0: not yet */
    int fd;
    int events;     /* that are polled for */
    bool is_at_end; /* the peer sends no more */
    bool is_closing;
};

struct streams {
    struct streams_options options;
    struct stream *first;
    size_t n_streams;
    struct dues dues;
    uv_timer_t timer;
    uint64_t timer_at_ns; /* when it goes off; STINT_NEVER_NS: it does not */
    struct timing_turn turn;
    uint8_t bytes[READ_SIZE];
};

static void look_at_due(uv_timer_t *timer);

static uint64_t now_of(const struct streams *streams)
{
    return stint_now(streams->options.table);
}

static struct stream *stream_of_due(struct due *due)
{
    return (struct stream *)(void *)((char *)due - offsetof(struct stream, due));
}

struct streams *streams_new(const struct streams_options *options)
{
    struct streams *streams = malloc(sizeof(*streams));
    if (streams == NULL)
        return NULL;
    streams->options = *options;
    streams->first = NULL;
    streams->n_streams = 0;
    streams->dues = (struct dues){0};
    streams->timer_at_ns = STINT_NEVER_NS;
    uv_timer_init(options->loop, &streams->timer);
    streams->timer.data = streams;
    return streams;
}

void streams_free(struct streams *streams)
{
    if (streams == NULL)
        return;
    dues_deinit(&streams->dues);
    free(streams);
}

size_t streams_count(const struct streams *streams)
{
    return streams->n_streams;
}

static void free_stream(uv_handle_t *handle)
{
    free(handle->data);
}

static void end(struct stream *stream)
{
    struct streams *home = stream->home;
    if (stream->is_closing)
        return;
    stream->is_closing = true;
    due_set(&home->dues, &stream->due, STINT_NEVER_NS);
    *(stream->prev != NULL ? &stream->prev->next : &home->first) = stream->next;
    if (stream->next != NULL)
        stream->next->prev = stream->prev;
    home->n_streams--;
    uv_close((uv_handle_t *)&stream->poll, free_stream);
    close(stream->fd);
    stream->conn->ops->free(stream->conn);
    gate_leave(home->options.gate, stream->seat);
    metrics_closed(home->options.metrics, home->options.door);
    if (home->n_streams == 0)
        home->options.emptied(home->options.arg);
}

static void end_late(struct stream *stream)
{
    metrics_refused(stream->home->options.metrics, stream->home->options.door,
                    METRICS_REFUSED_IDLE);
    end(stream);
}

/* ---- When to look at a stream though nothing comes ------------------------------------------- */

static uint64_t after(uint64_t since_ns, uint64_t limit_ns)
{
    return limit_ns == 0 ? STINT_NEVER_NS : since_ns + limit_ns;
}

/* When the patience with the peer ends. */
static uint64_t patience_ends(const struct stream *stream, uint64_t conn_deadline_ns)
{
    const struct stream_limits *limits = &stream->home->options.limits;
    if (stream->unsent > 0)
        return after(stream->unsent_since_ns, limits->write_ns);
    if (stream->busy_since_ns == 0)
        return after(stream->active_ns, limits->idle_ns);
    /* Busy without a deadline: it is the peer who keeps the request waiting. */
    return conn_deadline_ns == STINT_NEVER_NS ? after(stream->busy_since_ns, limits->request_ns)
                                              : STINT_NEVER_NS;
}

static void arm_timer(struct streams *streams, uint64_t at_ns, uint64_t now_ns)
{
    if (at_ns >= streams->timer_at_ns)
        return;
    uint64_t wait_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    streams->timer_at_ns = at_ns;
    uv_update_time(streams->options.loop);
    uv_timer_start(&streams->timer, look_at_due, (wait_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
}

/*
 * A later instant than the one in the heap is left for when that comes: a request that is answered
 * at once moves no timer and nothing in the heap.
 */
static void look_again_at(struct stream *stream, uint64_t at_ns, uint64_t now_ns)
{
    if (at_ns <= now_ns) /* what was not ready though it was due: not again in this round */
        at_ns = now_ns + 1;
    if (stream->due.place != 0 && stream->due.at_ns <= at_ns)
        return;
    due_set(&stream->home->dues, &stream->due, at_ns);
    if (at_ns != STINT_NEVER_NS)
        arm_timer(stream->home, at_ns, now_ns);
}

/* ---- Sending and receiving ------------------------------------------------------------------- */

/* Sends what the socket takes. False if the stream is to end. */
static bool flush(struct stream *stream, uint64_t now_ns)
{
    struct conn *conn = stream->conn;
    struct span output = conn->ops->output(conn);
    size_t sent_bytes = 0;
    while (output.len > 0) {
        ssize_t sent = send(stream->fd, output.ptr, output.len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent < 0)
            break;
        sent_bytes += (size_t)sent;
        conn->ops->sent(conn, (size_t)sent, now_ns);
        output = conn->ops->output(conn);
    }
    if (sent_bytes > 0)
        metrics_bytes(stream->home->options.metrics, stream->home->options.door, 0, sent_bytes);
    if (output.len == 0)
        stream->unsent = 0;
    else if (stream->unsent <= sent_bytes) { /* all that waited is gone: the time begins anew */
        stream->unsent = output.len;
        stream->unsent_since_ns = now_ns;
    } else
        stream->unsent -= sent_bytes;
    return true;
}

static void on_events(uv_poll_t *poll, int status, int events);

static void poll_for(struct stream *stream, int events)
{
    if (events == stream->events)
        return;
    stream->events = events;
    if (events == 0)
        uv_poll_stop(&stream->poll);
    else
        uv_poll_start(&stream->poll, events, on_events);
}

static void note_busy(struct stream *stream, bool has_answered, uint64_t now_ns)
{
    if (!stream->conn->ops->is_busy(stream->conn))
        stream->busy_since_ns = 0;
    else if (stream->busy_since_ns == 0 || has_answered)
        stream->busy_since_ns = now_ns;
}

static void say_farewell(struct stream *stream, uint64_t now_ns)
{
    if (!stream->home->options.says_farewell || stream->is_at_end ||
        shutdown(stream->fd, SHUT_WR) != 0) {
        end(stream);
        return;
    }
    stream->farewell_ends_ns = now_ns + FAREWELL_NS;
    poll_for(stream, UV_READABLE);
    look_again_at(stream, stream->farewell_ends_ns, now_ns);
}

/* What comes after the end is nobody's. */
static void read_in_vain(struct stream *stream)
{
    struct streams *home = stream->home;
    ssize_t len = recv(stream->fd, home->bytes, sizeof(home->bytes), 0);
    if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR))
        end(stream);
}

/* After every call that may have changed the connection: sends, then waits for what comes next. */
static void settle(struct stream *stream, uint64_t now_ns)
{
    struct conn *conn = stream->conn;
    bool has_answered = conn->ops->output(conn).len > 0;
    if (has_answered && !flush(stream, now_ns)) {
        end(stream);
        return;
    }
    size_t unsent = stream->unsent > 0 ? conn->ops->output(conn).len : 0;
    bool is_over = conn->ops->is_over(conn);
    if (is_over && unsent == 0) {
        say_farewell(stream, now_ns);
        return;
    }
    note_busy(stream, has_answered, now_ns);
    bool reads =
        !is_over && !stream->is_at_end && unsent <= UNSENT_MAX && !conn->ops->is_choked(conn);
    poll_for(stream, (reads ? UV_READABLE : 0) | (unsent > 0 ? UV_WRITABLE : 0));

    uint64_t deadline_ns = conn->ops->deadline(conn);
    uint64_t patience_ns = patience_ends(stream, deadline_ns);
    look_again_at(stream, deadline_ns < patience_ns ? deadline_ns : patience_ns, now_ns);
}

/* The peer may have closed its side only: what it asked is answered. */
static void at_end(struct stream *stream, uint64_t now_ns)
{
    stream->is_at_end = true;
    stream->conn->ops->drain(stream->conn, now_ns);
}

/* False if the stream has ended. */
static bool receive(struct stream *stream, uint64_t *now_ns)
{
    struct streams *home = stream->home;
    ssize_t len = recv(stream->fd, home->bytes, sizeof(home->bytes), 0);
    *now_ns = now_of(home);
    if (len > 0) {
        stream->active_ns = *now_ns;
        struct timing timing = timing_begin(&home->turn, home->options.metrics);
        stream->conn->ops->feed(stream->conn, span_of(home->bytes, (size_t)len), *now_ns);
        timing_end(&timing, home->options.metrics);
        metrics_bytes(home->options.metrics, home->options.door, (size_t)len, 0);
    } else if (len == 0)
        at_end(stream, *now_ns);
    else if (errno != EAGAIN && errno != EINTR) {
        end(stream);
        return false;
    }
    return true;
}

static void on_events(uv_poll_t *poll, int status, int events)
{
    struct stream *stream = poll->data;
    uint64_t now_ns;
    if (status < 0) {
        end(stream);
        return;
    }
    if (stream->farewell_ends_ns != 0) {
        read_in_vain(stream);
        return;
    }
    if ((events & UV_READABLE) == 0)
        now_ns = now_of(stream->home);
    else if (!receive(stream, &now_ns))
        return;
    settle(stream, now_ns);
}

static void look_at(struct stream *stream, uint64_t now_ns)
{
    struct conn *conn = stream->conn;
    uint64_t deadline_ns = conn->ops->deadline(conn);
    if (stream->farewell_ends_ns != 0) {
        end(stream);
        return;
    }
    if (deadline_ns <= now_ns)
        conn->ops->wake(conn, now_ns);
    else if (patience_ends(stream, deadline_ns) <= now_ns) {
        end_late(stream);
        return;
    }
    due_set(&stream->home->dues, &stream->due, STINT_NEVER_NS);
    settle(stream, now_ns);
}

static void look_at_due(uv_timer_t *timer)
{
    struct streams *streams = timer->data;
    uint64_t now_ns = now_of(streams);
    streams->timer_at_ns = STINT_NEVER_NS;
    struct due *first;
    while ((first = dues_first(&streams->dues)) != NULL && first->at_ns <= now_ns)
        look_at(stream_of_due(first), now_ns);
    if (first != NULL)
        arm_timer(streams, first->at_ns, now_ns);
}

/* The connection has moved on by itself: looked at with the loop's next turn, once for all of it.
 */
static void on_stirred(void *owner, uint64_t now_ns)
{
    struct stream *stream = owner;
    (void)now_ns;
    if (stream->farewell_ends_ns != 0)
        return;
    now_ns = now_of(stream->home);
    due_set(&stream->home->dues, &stream->due, now_ns);
    arm_timer(stream->home, now_ns, now_ns);
}

/* ---- The set --------------------------------------------------------------------------------- */

void streams_add(struct streams *streams, int fd, struct conn *conn, struct gate_seat *seat)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL || !dues_reserve(&streams->dues, streams->n_streams + 1) ||
        uv_poll_init_socket(streams->options.loop, &stream->poll, fd) != 0) {
        free(stream);
        conn->ops->free(conn);
        close(fd);
        gate_leave(streams->options.gate, seat);
        return;
    }
    uint64_t now_ns = now_of(streams);
    stream->poll.data = stream;
    stream->home = streams;
    stream->conn = conn;
    conn->owner = stream;
    conn->stirred = on_stirred;
    stream->seat = seat;
    stream->fd = fd;
    stream->active_ns = now_ns;
    stream->next = streams->first;
    if (stream->next != NULL)
        stream->next->prev = stream;
    streams->first = stream;
    streams->n_streams++;
    metrics_opened(streams->options.metrics, streams->options.door);
    settle(stream, now_ns);
}

void streams_set_limits(struct streams *streams, const struct stream_limits *limits)
{
    uint64_t now_ns = now_of(streams);
    streams->options.limits = *limits;
    for (struct stream *stream = streams->first, *next; stream != NULL; stream = next) {
        next = stream->next;
        settle(stream, now_ns);
    }
}

void streams_drain(struct streams *streams)
{
    uint64_t now_ns = now_of(streams);
    for (struct stream *stream = streams->first, *next; stream != NULL; stream = next) {
        next = stream->next;
        if (stream->farewell_ends_ns != 0)
            continue;
        /* What the peer sent already was asked, though nobody has read it. */
        if ((stream->events & UV_READABLE) != 0 && !receive(stream, &now_ns))
            continue;
        stream->conn->ops->drain(stream->conn, now_ns);
        settle(stream, now_ns);
    }
}

void streams_end(struct streams *streams)
{
    while (streams->first != NULL)
        end(streams->first);
    uv_close((uv_handle_t *)&streams->timer, NULL);
}
