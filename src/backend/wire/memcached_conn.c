/* SPDX-License-Identifier: MIT */
/* States and time. A position counts the bytes of all commands since the beginning. */
#include "backend/wire/memcached_conn.h"

#include "backend/backoff.h"
#include "backend/wire/memcached_greeting.h"
#include "base/ns.h"

#include <assert.h>
#include <stdlib.h>

#define UPTIME_SLACK_S 5
#define INPUT_MAX (MEMCACHED_LINE_MAX + MEMCACHED_VALUE_MAX + 2)

enum state {
    STATE_UNAVAILABLE, /* until the back-off ends */
    STATE_DUE,         /* wants a socket */
    STATE_DIALLING,    /* has one that is not connected yet */
    STATE_GREETING,    /* has sent the version command */
    STATE_READY,
    STATE_GIVEN_UP, /* wants its socket closed */
};

struct pending {
    memcached_answered *answered;
    void *arg;
    uint64_t deadline_ns;
    uint64_t end; /* position after its bytes */
    uint8_t verb; /* enum memcached_verb */
};

struct memcached_conn {
    struct link link;
    struct memcached_conn_options options;
    enum state state;
    struct memcached_greeting greeting;
    struct memcached_server server; /* the last one that greeted */
    uint64_t greeted_ns;
    bool has_greeted; /* ever */
    unsigned restarts;
    struct stint_error fault;
    struct redis_bytes input; /* of a reply that is not complete yet */

    struct pending *pending; /* a ring */
    size_t first, n_pending;
    struct redis_bytes bytes; /* to be sent, after some that were sent */
    uint64_t base;            /* position of the first byte */
    uint64_t sent;            /* up to where */

    uint64_t state_ends_ns;        /* of AWAY, or of DIALLING and GREETING together */
    uint64_t unavailable_since_ns; /* 0: it is ready */
    struct backoff backoff;
};

static const struct link_ops link_ops;

static struct memcached_conn *conn_of(struct link *link)
{
    return (struct memcached_conn *)link;
}

static const struct memcached_conn *const_conn_of(const struct link *link)
{
    return (const struct memcached_conn *)link;
}

/* ---- Start and end --------------------------------------------------------------------------- */

static void set_default(uint64_t *value, uint64_t standard)
{
    if (*value == 0)
        *value = standard;
}

static void set_default_size(size_t *value, size_t standard)
{
    if (*value == 0)
        *value = standard;
}

struct memcached_conn *memcached_conn_new(const struct memcached_conn_options *options)
{
    struct memcached_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->link.ops = &link_ops;
    conn->options = *options;
    set_default(&conn->options.connect_ns, 250 * NS_PER_MS);
    set_default(&conn->options.reply_ns, 50 * NS_PER_MS);
    set_default(&conn->options.backoff_first_ns, 10 * NS_PER_MS);
    set_default(&conn->options.backoff_max_ns, 500 * NS_PER_MS);
    set_default_size(&conn->options.commands_max, 4096);
    set_default_size(&conn->options.bytes_max, 1u << 20);
    conn->state = STATE_DUE;
    conn->backoff.random = options->seed;
    conn->backoff.next_ns = conn->options.backoff_first_ns;
    conn->state_ends_ns = STINT_NEVER_NS;
    conn->pending = calloc(conn->options.commands_max, sizeof(*conn->pending));
    if (conn->pending == NULL) {
        free(conn);
        return NULL;
    }
    return conn;
}

struct link *memcached_conn_link(struct memcached_conn *conn)
{
    return &conn->link;
}

static struct pending *at(const struct memcached_conn *conn, size_t index)
{
    return &conn->pending[(conn->first + index) % conn->options.commands_max];
}

/* ---- Commands -------------------------------------------------------------------------------- */

static uint64_t end_of(const struct memcached_conn *conn)
{
    return conn->base + conn->bytes.len;
}

static void drop_sent(struct memcached_conn *conn)
{
    size_t dropped = (size_t)(conn->sent - conn->base);
    if (dropped == 0)
        return;
    memmove(conn->bytes.ptr, conn->bytes.ptr + dropped, conn->bytes.len - dropped);
    conn->bytes.len -= dropped;
    conn->base = conn->sent;
}

bool memcached_conn_ask(struct memcached_conn *conn, const struct memcached_command *command,
                        uint64_t now_ns)
{
    size_t len = memcached_command_len(command);
    assert(command->key.len <= MEMCACHED_KEY_MAX);
    if (conn->state != STATE_READY || conn->n_pending == conn->options.commands_max)
        return false;
    if (conn->bytes.len + len > conn->bytes.size)
        drop_sent(conn);
    if (!redis_bytes_reserve(&conn->bytes, len, conn->options.bytes_max))
        return false;
    memcached_command_write(&conn->bytes, command);
    *at(conn, conn->n_pending++) = (struct pending){
        .answered = command->answered,
        .arg = command->arg,
        .deadline_ns = now_ns + conn->options.reply_ns,
        .end = end_of(conn),
        .verb = (uint8_t)command->verb,
    };
    return true;
}

const char *memcached_conn_version(const struct memcached_conn *conn)
{
    return conn->server.version;
}

/* ---- Commands that end without a reply ------------------------------------------------------- */

static void take_first(struct memcached_conn *conn)
{
    conn->first = (conn->first + 1) % conn->options.commands_max;
    conn->n_pending--;
}

/* Commands that were sent whole end without an answer. A server runs no partial commands. */
static void end_all(struct memcached_conn *conn, uint64_t now_ns)
{
    uint64_t sent = conn->sent;
    assert(conn->state != STATE_READY); /* so that no command is accepted meanwhile */
    while (conn->n_pending > 0) {
        struct pending pending = *at(conn, 0);
        take_first(conn);
        enum memcached_outcome outcome = pending.end > sent              ? MEMCACHED_UNSENT
                                         : pending.deadline_ns <= now_ns ? MEMCACHED_LATE
                                                                         : MEMCACHED_LOST;
        pending.answered(pending.arg, outcome, NULL, now_ns);
    }
    conn->bytes.len = 0;
    conn->base = conn->sent = 0;
}

/* ---- States ---------------------------------------------------------------------------------- */

static enum link_wants conn_wants(const struct link *link)
{
    const struct memcached_conn *conn = const_conn_of(link);
    return conn->state == STATE_DUE        ? LINK_WANTS_SOCKET
           : conn->state == STATE_GIVEN_UP ? LINK_WANTS_CLOSE
                                           : LINK_WANTS_NOTHING;
}

static void conn_dialling(struct link *link, uint64_t now_ns)
{
    struct memcached_conn *conn = conn_of(link);
    assert(conn->state == STATE_DUE);
    conn->state = STATE_DIALLING;
    conn->state_ends_ns = now_ns + conn->options.connect_ns;
    if (conn->unavailable_since_ns == 0)
        conn->unavailable_since_ns = now_ns;
}

static void give_up(struct memcached_conn *conn)
{
    conn->state = STATE_GIVEN_UP;
    conn->state_ends_ns = STINT_NEVER_NS;
}

static void conn_connected(struct link *link, uint64_t now_ns)
{
    struct memcached_conn *conn = conn_of(link);
    (void)now_ns;
    if (conn->state != STATE_DIALLING) /* too late: it is closed */
        return;
    conn->state = STATE_GREETING;
    conn->input.len = 0;
    if (memcached_greeting_begin(&conn->greeting, conn->options.user, conn->options.password))
        return;
    err_set(&conn->fault, STINT_E_SYSTEM, "no memory for a connection to the store");
    give_up(conn);
}

static void conn_lost(struct link *link, const char *why, uint64_t now_ns)
{
    struct memcached_conn *conn = conn_of(link);
    if (conn->state == STATE_UNAVAILABLE)
        return;
    if (why != NULL && conn->state != STATE_GIVEN_UP)
        err_set(&conn->fault, STINT_E_GONE, "%s", why);
    memcached_greeting_deinit(&conn->greeting);
    conn->state = STATE_UNAVAILABLE;
    if (conn->unavailable_since_ns == 0)
        conn->unavailable_since_ns = now_ns;
    conn->state_ends_ns = now_ns + backoff_wait_ns(&conn->backoff, conn->options.backoff_max_ns);
    end_all(conn, now_ns);
}

static void conn_free(struct link *link, uint64_t now_ns)
{
    struct memcached_conn *conn = conn_of(link);
    conn->state = STATE_UNAVAILABLE;
    end_all(conn, now_ns);
    memcached_greeting_deinit(&conn->greeting);
    redis_bytes_deinit(&conn->input);
    redis_bytes_deinit(&conn->bytes);
    free(conn->pending);
    free(conn);
}

/* ---- Time ------------------------------------------------------------------------------------ */

static uint64_t conn_deadline(const struct link *link)
{
    const struct memcached_conn *conn = const_conn_of(link);
    return conn->n_pending > 0 && at(conn, 0)->deadline_ns < conn->state_ends_ns
               ? at(conn, 0)->deadline_ns
               : conn->state_ends_ns;
}

static void conn_wake(struct link *link, uint64_t now_ns)
{
    struct memcached_conn *conn = conn_of(link);
    if (conn->state_ends_ns <= now_ns && conn->state == STATE_UNAVAILABLE) {
        conn->state = STATE_DUE;
        conn->state_ends_ns = STINT_NEVER_NS;
    } else if (conn->state_ends_ns <= now_ns) {
        err_set(&conn->fault, STINT_E_GONE, "memcached has not greeted within %llu ms",
                (unsigned long long)(conn->options.connect_ns / NS_PER_MS));
        give_up(conn);
    }
    /* Each has the same time, so the first is late first. */
    if (conn->n_pending == 0 || at(conn, 0)->deadline_ns > now_ns)
        return;
    err_set(&conn->fault, STINT_E_GONE, "memcached has not answered within %llu ms",
            (unsigned long long)(conn->options.reply_ns / NS_PER_MS));
    give_up(conn);
    end_all(conn, now_ns);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static struct span conn_output(const struct link *link)
{
    const struct memcached_conn *conn = const_conn_of(link);
    if (conn->state == STATE_GREETING)
        return memcached_greeting_output(&conn->greeting);
    if (conn->state != STATE_READY || conn->bytes.ptr == NULL)
        return span_of(NULL, 0);
    size_t skipped = (size_t)(conn->sent - conn->base);
    return span_of(conn->bytes.ptr + skipped, conn->bytes.len - skipped);
}

static void conn_sent(struct link *link, size_t len)
{
    struct memcached_conn *conn = conn_of(link);
    if (conn->state == STATE_GREETING)
        memcached_greeting_sent(&conn->greeting, len);
    else if (conn->state == STATE_READY)
        conn->sent += len;
    assert(conn->sent <= end_of(conn));
}

/* The same server, still running; its clock has whole seconds, and may not have advanced yet. */
static void count_restart(struct memcached_conn *conn, uint64_t now_ns)
{
    const struct memcached_server *old = &conn->server, *found = &conn->greeting.server;
    uint64_t gone_s = (now_ns - conn->greeted_ns) / NS_PER_S;
    bool runs_on = found->pid == old->pid && found->pid != 0 &&
                   found->uptime_s + UPTIME_SLACK_S >= old->uptime_s + gone_s;
    if (conn->has_greeted && !runs_on)
        conn->restarts++;
    conn->server = *found;
    conn->has_greeted = true;
    conn->greeted_ns = now_ns;
}

static void greet(struct memcached_conn *conn, const struct memcached_reply *reply, uint64_t now_ns)
{
    int code = memcached_greeting_take(&conn->greeting, reply, &conn->fault);
    if (code < 0)
        give_up(conn);
    if (code <= 0)
        return;
    count_restart(conn, now_ns);
    memcached_greeting_deinit(&conn->greeting);
    conn->state = STATE_READY;
    conn->state_ends_ns = STINT_NEVER_NS;
    conn->backoff.next_ns = conn->options.backoff_first_ns;
    conn->unavailable_since_ns = 0;
}

/* The replies of a command beside errors. */
static bool is_reply_of(enum memcached_verb verb, enum memcached_code code)
{
    switch (code) {
    case MEMCACHED_ERROR:
        return true;
    case MEMCACHED_VALUE:
    case MEMCACHED_MISS:
        return verb == MEMCACHED_GET;
    case MEMCACHED_STORED:
        return verb == MEMCACHED_ADD || verb == MEMCACHED_SWAP || verb == MEMCACHED_SET ||
               verb == MEMCACHED_DELETE;
    case MEMCACHED_NOT_STORED:
        return verb == MEMCACHED_ADD || verb == MEMCACHED_SWAP || verb == MEMCACHED_SET;
    case MEMCACHED_EXISTS:
        return verb == MEMCACHED_SWAP;
    case MEMCACHED_NOT_FOUND:
        return verb == MEMCACHED_SWAP || verb == MEMCACHED_DELETE;
    case MEMCACHED_STAT:
    case MEMCACHED_END:
        return verb == MEMCACHED_STATS;
    default:
        return false;
    }
}

static void answer(struct memcached_conn *conn, const struct memcached_reply *reply,
                   uint64_t now_ns)
{
    bool is_asked = conn->n_pending > 0 && at(conn, 0)->end <= conn->sent;
    if (!is_asked || !is_reply_of(at(conn, 0)->verb, reply->code)) {
        err_set(&conn->fault, STINT_E_SYNTAX, "memcached sent a reply to no command");
        give_up(conn);
        return;
    }
    struct pending pending = *at(conn, 0);
    if (reply->code != MEMCACHED_STAT)
        take_first(conn);
    if (conn->n_pending == 0)
        drop_sent(conn);
    pending.answered(pending.arg,
                     reply->code == MEMCACHED_ERROR ? MEMCACHED_REFUSED : MEMCACHED_DONE, reply,
                     now_ns);
}

/* How many of these bytes were replies; a code where one of them is invalid. */
static int read_replies(struct memcached_conn *conn, struct span bytes, uint64_t now_ns)
{
    size_t used = 0;
    while (conn->state == STATE_GREETING || conn->state == STATE_READY) {
        struct memcached_reply reply;
        int len =
            memcached_reply_read(&reply, span_of(bytes.ptr + used, bytes.len - used), &conn->fault);
        if (len < 0)
            return len;
        if (len == 0)
            break;
        used += (size_t)len;
        if (conn->state == STATE_GREETING)
            greet(conn, &reply, now_ns);
        else
            answer(conn, &reply, now_ns);
    }
    return (int)used;
}

/* An incomplete reply is kept until the rest has come. */
static int read_bytes(struct memcached_conn *conn, struct span bytes, uint64_t now_ns)
{
    struct redis_bytes *input = &conn->input;
    struct span all = bytes;
    if (input->len > 0) {
        if (!redis_bytes_reserve(input, bytes.len, INPUT_MAX + bytes.len))
            return err_set(&conn->fault, STINT_E_SYSTEM, "no memory for memcached's reply");
        memcached_add_span(input, bytes);
        all = span_of(input->ptr, input->len);
    }
    int used = read_replies(conn, all, now_ns);
    if (used < 0)
        return used;
    size_t left = all.len - (size_t)used;
    if (all.ptr == input->ptr) {
        memmove(input->ptr, input->ptr + used, left);
        input->len = left;
        return 0;
    }
    if (!redis_bytes_reserve(input, left, INPUT_MAX + left))
        return err_set(&conn->fault, STINT_E_SYSTEM, "no memory for memcached's reply");
    memcached_add_span(input, span_of(all.ptr + used, left));
    return 0;
}

static void conn_feed(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct memcached_conn *conn = conn_of(link);
    if (conn->state != STATE_GREETING && conn->state != STATE_READY)
        return;
    if (read_bytes(conn, bytes, now_ns) < 0)
        give_up(conn);
    if (conn->state == STATE_GIVEN_UP)
        end_all(conn, now_ns);
}

/* ---- State ----------------------------------------------------------------------------------- */

static bool conn_is_ready(const struct link *link)
{
    return const_conn_of(link)->state == STATE_READY;
}

static const char *conn_fault(const struct link *link)
{
    return const_conn_of(link)->fault.message;
}

uint64_t memcached_conn_unavailable_since(const struct memcached_conn *conn)
{
    return conn->unavailable_since_ns;
}

unsigned memcached_conn_restarts(const struct memcached_conn *conn)
{
    return conn->restarts;
}

static const struct link_ops link_ops = {
    .wants = conn_wants,
    .dialling = conn_dialling,
    .connected = conn_connected,
    .lost = conn_lost,
    .feed = conn_feed,
    .output = conn_output,
    .sent = conn_sent,
    .deadline = conn_deadline,
    .wake = conn_wake,
    .is_ready = conn_is_ready,
    .fault = conn_fault,
    .free = conn_free,
};
