/* SPDX-License-Identifier: MIT */
/*
 * A stream polls its socket and reads and writes it directly: with uv_tcp each stream would keep an
 * output buffer, and TCP and Unix sockets would need separate code.
 */
#define _GNU_SOURCE
#include "net/stream.h"

#include "base/ns.h"
#include "net/timing.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE 65536
/* A stream with more unsent bytes is not read. */
#define UNSENT_MAX 65536
#define FAREWELL_NS NS_PER_S      /* time for a peer to close its side */
#define FAREWELL_READS 64         /* reads at most meanwhile */
#define TURN_NS (200 * NS_PER_US) /* of one connection; and of all with work left, together */
#define HELD_UNCOUNTED 16384      /* bytes that a connection may hold regardless of the total */

/* Limits the kernel's send buffer: otherwise that of a client that does not read takes MiB. */
#define NOTSENT_MAX 131072

struct stream {
    uv_poll_t poll;
    struct streams *home;
    struct conn *conn;
    struct connection_slot *slot;
    struct stream *next, *prev;
    struct stream *next_ready; /* with work left */
    struct timer timer;
    uint64_t active_ns;     /* time of the last work or output */
    uint64_t busy_since_ns; /* when the incomplete request began; 0: there is none */
    uint64_t unsent_since_ns;
    size_t unsent;             /* of the bytes that waited then, those that still wait */
    uint64_t farewell_ends_ns; /* 0: not set */
    size_t held;               /* counted in the memory of all connections */
    unsigned farewell_reads;
    int fd;
    int events;     /* polled for */
    bool is_at_end; /* the peer sends no more */
    bool is_ready;  /* in the list of those with work left */
    bool is_closing;
};

struct streams {
    struct streams_options options;
    struct stream *first;
    size_t n_streams;
    struct timer_queue timer_queue;
    struct stream *ready, **ready_end; /* in the order of their turns */
    uint64_t turn_ends_ns;
    uv_idle_t idle; /* runs once in each round of the loop, while a stream is ready */
    uv_timer_t timer;
    uint64_t timer_at_ns; /* STINT_NEVER_NS: not set */
    struct timing_turn turn;
    uint8_t bytes[READ_SIZE];
};

static void look_at_timer(uv_timer_t *timer);

static uint64_t now_of(const struct streams *streams)
{
    return server_clock_io_now(streams->options.clock);
}

struct streams *streams_new(const struct streams_options *options)
{
    struct streams *streams = malloc(sizeof(*streams));
    if (streams == NULL)
        return NULL;
    streams->options = *options;
    streams->first = NULL;
    streams->n_streams = 0;
    streams->timer_queue = (struct timer_queue){0};
    streams->timer_at_ns = STINT_NEVER_NS;
    streams->ready = NULL;
    streams->ready_end = &streams->ready;
    streams->turn = (struct timing_turn){0};
    uv_idle_init(options->loop, &streams->idle);
    streams->idle.data = streams;
    uv_timer_init(options->loop, &streams->timer);
    streams->timer.data = streams;
    return streams;
}

void streams_free(struct streams *streams)
{
    if (streams == NULL)
        return;
    timer_queue_deinit(&streams->timer_queue);
    free(streams);
}

size_t streams_count(const struct streams *streams)
{
    return streams != NULL ? streams->n_streams : 0;
}

static void free_stream(uv_handle_t *handle)
{
    free(handle->data);
}

static void leave_ready(struct stream *stream)
{
    struct streams *home = stream->home;
    if (!stream->is_ready)
        return;
    struct stream **at = &home->ready;
    while (*at != stream)
        at = &(*at)->next_ready;
    *at = stream->next_ready;
    if (home->ready_end == &stream->next_ready)
        home->ready_end = at;
    stream->is_ready = false;
}

static void count_held(struct stream *stream, size_t held)
{
    struct stream_memory *memory = stream->home->options.memory;
    memory->held = memory->held - stream->held + held;
    stream->held = held;
}

static void end(struct stream *stream)
{
    struct streams *home = stream->home;
    if (stream->is_closing)
        return;
    stream->is_closing = true;
    leave_ready(stream);
    count_held(stream, 0);
    timer_queue_set(&home->timer_queue, &stream->timer, STINT_NEVER_NS);
    *(stream->prev != NULL ? &stream->prev->next : &home->first) = stream->next;
    if (stream->next != NULL)
        stream->next->prev = stream->prev;
    home->n_streams--;
    uv_close((uv_handle_t *)&stream->poll, free_stream);
    close(stream->fd);
    stream->conn->ops->free(stream->conn);
    connection_limiter_leave(home->options.connection_limiter, stream->slot);
    metrics_count(home->options.metrics, home->options.frontend, METRICS_CLOSED, 1);
    if (home->n_streams == 0)
        home->options.emptied(home->options.arg);
}

static void count_refused(const struct stream *stream, enum metrics_refusal why)
{
    metrics_refused(stream->home->options.metrics, stream->home->options.frontend, why);
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

static uint64_t after(uint64_t since_ns, uint64_t limit_ns)
{
    return limit_ns == 0 ? STINT_NEVER_NS : since_ns + limit_ns;
}

/* The time limit for the peer. */
static uint64_t patience_ends(const struct stream *stream, uint64_t conn_deadline_ns)
{
    const struct stream_limits *limits = &stream->home->options.limits;
    if (stream->unsent > 0)
        return after(stream->unsent_since_ns, limits->write_ns);
    if (stream->busy_since_ns == 0)
        return after(stream->active_ns, limits->idle_ns);
    /* Busy without a deadline: the request waits for the peer. */
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
    uv_timer_start(&streams->timer, look_at_timer, (wait_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
}

/*
 * A later time than the one in the heap is set only when that comes: a request that is answered at
 * once changes neither a timer nor the heap.
 */
static void look_again_at(struct stream *stream, uint64_t at_ns, uint64_t now_ns)
{
    if (at_ns <= now_ns) /* it was due and not ready: not again in this round */
        at_ns = now_ns + 1;
    if (stream->timer.place != 0 && stream->timer.at_ns <= at_ns)
        return;
    timer_queue_set(&stream->home->timer_queue, &stream->timer, at_ns);
    if (at_ns != STINT_NEVER_NS)
        arm_timer(stream->home, at_ns, now_ns);
}

/* ---- Sending and receiving ------------------------------------------------------------------- */

/* Sends as much as the socket accepts. False if the stream is to end. */
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
        metrics_count(stream->home->options.metrics, stream->home->options.frontend,
                      METRICS_BYTES_OUT, sent_bytes);
    if (output.len == 0)
        stream->unsent = 0;
    else if (stream->unsent <= sent_bytes) { /* all that waited is sent: begin again */
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
    bool is_busy = stream->conn->ops->is_busy(stream->conn);
    if (is_busy || has_answered)
        stream->active_ns = now_ns;
    if (!is_busy)
        stream->busy_since_ns = 0;
    else if (stream->busy_since_ns == 0 || has_answered)
        stream->busy_since_ns = now_ns;
}

static void send_farewell(struct stream *stream, uint64_t now_ns)
{
    if (stream->is_at_end || shutdown(stream->fd, SHUT_WR) != 0) {
        end(stream);
        return;
    }
    stream->farewell_ends_ns = now_ns + FAREWELL_NS;
    poll_for(stream, UV_READABLE);
    look_again_at(stream, stream->farewell_ends_ns, now_ns);
}

static void read_and_drop(struct stream *stream)
{
    struct streams *home = stream->home;
    ssize_t len = recv(stream->fd, home->bytes, sizeof(home->bytes), 0);
    if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR) ||
        ++stream->farewell_reads > FAREWELL_READS)
        end(stream);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static void on_idle(uv_idle_t *idle);

static void begin_turn(struct streams *streams, uint64_t now_ns)
{
    streams->turn_ends_ns = now_ns + TURN_NS;
}

static bool turn_is_over(void *owner)
{
    const struct stream *stream = owner;
    return now_of(stream->home) >= stream->home->turn_ends_ns;
}

static bool has_work(const struct conn *conn)
{
    return conn->ops->has_work != NULL && conn->ops->has_work(conn);
}

static void enter_ready(struct stream *stream)
{
    struct streams *home = stream->home;
    if (stream->is_ready)
        return;
    if (home->ready == NULL)
        uv_idle_start(&home->idle, on_idle);
    stream->is_ready = true;
    stream->next_ready = NULL;
    *home->ready_end = stream;
    home->ready_end = &stream->next_ready;
}

/* Call after every use of the connection: sends, then waits for the next event. */
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
        send_farewell(stream, now_ns);
        return;
    }
    count_held(stream, conn->ops->held(conn));
    const struct stream_memory *memory = stream->home->options.memory;
    if (memory->most > 0 && memory->held > memory->most && stream->held > HELD_UNCOUNTED) {
        count_refused(stream, METRICS_REFUSED_MEMORY);
        end(stream);
        return;
    }
    note_busy(stream, has_answered, now_ns);
    bool works = !is_over && has_work(conn);
    if (works)
        enter_ready(stream);
    bool reads = !is_over && !works && !stream->is_at_end && unsent <= UNSENT_MAX &&
                 !conn->ops->is_backpressured(conn);
    poll_for(stream, (reads ? UV_READABLE : 0) | (unsent > 0 ? UV_WRITABLE : 0));

    uint64_t deadline_ns = conn->ops->deadline(conn);
    uint64_t patience_ns = patience_ends(stream, deadline_ns);
    look_again_at(stream, deadline_ns < patience_ns ? deadline_ns : patience_ns, now_ns);
}

/* False if the stream has ended. */
static bool receive(struct stream *stream, uint64_t *now_ns)
{
    struct streams *home = stream->home;
    ssize_t len = recv(stream->fd, home->bytes, sizeof(home->bytes), 0);
    *now_ns = now_of(home);
    if (len > 0) {
        begin_turn(home, *now_ns);
        struct timing timing = timing_begin(&home->turn, home->options.metrics);
        stream->conn->ops->feed(stream->conn, span_of(home->bytes, (size_t)len), *now_ns);
        timing_end(&timing, home->options.metrics);
        metrics_count(home->options.metrics, home->options.frontend, METRICS_BYTES_IN, (size_t)len);
    } else if (len == 0) { /* the peer may have closed only its sending side: it gets answers */
        stream->is_at_end = true;
        conn_end_input(stream->conn, *now_ns);
    } else if (errno != EAGAIN && errno != EINTR) {
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
        read_and_drop(stream);
        return;
    }
    if ((events & UV_READABLE) == 0) {
        now_ns = now_of(stream->home);
        begin_turn(stream->home, now_ns);
    } else if (!receive(stream, &now_ns))
        return;
    settle(stream, now_ns);
}

/* Streams with work left take turns, until the time for all of them is over. */
static void on_idle(uv_idle_t *idle)
{
    struct streams *streams = idle->data;
    uint64_t now_ns = now_of(streams);
    begin_turn(streams, now_ns);
    while (streams->ready != NULL && now_ns < streams->turn_ends_ns) {
        struct stream *stream = streams->ready;
        leave_ready(stream);
        stream->conn->ops->wake(stream->conn, now_ns);
        settle(stream, now_ns);
        now_ns = now_of(streams);
    }
    if (streams->ready == NULL)
        uv_idle_stop(idle);
}

/* The peer was too slow: it gets the protocol's error, if there is one. */
static void end_late(struct stream *stream, uint64_t now_ns)
{
    struct conn *conn = stream->conn;
    count_refused(stream, METRICS_REFUSED_IDLE);
    bool may_answer = stream->unsent == 0 && stream->busy_since_ns != 0;
    if (!may_answer || conn->ops->expire == NULL) {
        end(stream);
        return;
    }
    conn->ops->expire(conn, now_ns);
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
    if (deadline_ns <= now_ns) {
        begin_turn(stream->home, now_ns);
        conn->ops->wake(conn, now_ns);
    } else if (patience_ends(stream, deadline_ns) <= now_ns) {
        timer_queue_set(&stream->home->timer_queue, &stream->timer, STINT_NEVER_NS);
        end_late(stream, now_ns);
        return;
    }
    timer_queue_set(&stream->home->timer_queue, &stream->timer, STINT_NEVER_NS);
    settle(stream, now_ns);
}

static void look_at_timer(uv_timer_t *timer)
{
    struct streams *streams = timer->data;
    uint64_t now_ns = now_of(streams);
    streams->timer_at_ns = STINT_NEVER_NS;
    struct timer *first;
    while ((first = timer_queue_first(&streams->timer_queue)) != NULL && first->at_ns <= now_ns)
        look_at((struct stream *)(void *)((char *)first - offsetof(struct stream, timer)), now_ns);
    if (first != NULL)
        arm_timer(streams, first->at_ns, now_ns);
}

/* The connection changed outside a call: checked once, in the loop's next turn. */
static void on_woken(void *owner, uint64_t now_ns)
{
    struct stream *stream = owner;
    (void)now_ns;
    if (stream->farewell_ends_ns != 0)
        return;
    now_ns = now_of(stream->home);
    timer_queue_set(&stream->home->timer_queue, &stream->timer, now_ns);
    arm_timer(stream->home, now_ns, now_ns);
}

/* ---- All streams ----------------------------------------------------------------------------- */

void streams_add(struct streams *streams, int fd, struct conn *conn, struct connection_slot *slot)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL || !timer_queue_reserve(&streams->timer_queue, streams->n_streams + 1) ||
        uv_poll_init_socket(streams->options.loop, &stream->poll, fd) != 0) {
        free(stream);
        conn->ops->free(conn);
        close(fd);
        connection_limiter_leave(streams->options.connection_limiter, slot);
        return;
    }
    uint64_t now_ns = now_of(streams);
    stream->poll.data = stream;
    stream->home = streams;
    stream->conn = conn;
    conn->owner = stream;
    conn->woken = on_woken;
    conn->turn_is_over = turn_is_over;
    stream->slot = slot;
    stream->fd = fd;
    /* Fails for Unix sockets, whose buffers do not grow. */
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){NOTSENT_MAX}, sizeof(int));
    stream->active_ns = now_ns;
    stream->next = streams->first;
    if (stream->next != NULL)
        stream->next->prev = stream;
    streams->first = stream;
    streams->n_streams++;
    metrics_count(streams->options.metrics, streams->options.frontend, METRICS_OPENED, 1);
    settle(stream, now_ns);
}

void streams_set_limits(struct streams *streams, const struct stream_limits *limits)
{
    if (streams == NULL)
        return;
    uint64_t now_ns = now_of(streams);
    streams->options.limits = *limits;
    for (struct stream *stream = streams->first, *next; stream != NULL; stream = next) {
        next = stream->next;
        settle(stream, now_ns);
    }
}

void streams_clock_moved(struct streams *streams)
{
    if (streams == NULL)
        return;
    uint64_t now_ns = now_of(streams);
    for (struct stream *stream = streams->first; stream != NULL; stream = stream->next) {
        uint64_t deadline_ns = stream->conn->ops->deadline(stream->conn);
        if (stream->farewell_ends_ns == 0 && deadline_ns <= now_ns)
            look_again_at(stream, deadline_ns, now_ns);
    }
}

void streams_drain(struct streams *streams)
{
    if (streams == NULL)
        return;
    uint64_t now_ns = now_of(streams);
    for (struct stream *stream = streams->first, *next; stream != NULL; stream = next) {
        next = stream->next;
        if (stream->farewell_ends_ns != 0)
            continue;
        /* The peer's bytes in the socket are requests, too, even if they were not read yet. */
        if ((stream->events & UV_READABLE) != 0 && !receive(stream, &now_ns))
            continue;
        stream->conn->ops->drain(stream->conn, now_ns);
        settle(stream, now_ns);
    }
}

void streams_end(struct streams *streams)
{
    if (streams == NULL)
        return;
    while (streams->first != NULL)
        end(streams->first);
    uv_close((uv_handle_t *)&streams->idle, NULL);
    uv_close((uv_handle_t *)&streams->timer, NULL);
}
