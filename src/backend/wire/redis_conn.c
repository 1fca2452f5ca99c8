/* SPDX-License-Identifier: MIT */
/*
 * States and time. A position counts the bytes of all commands since the beginning; a command's
 * bytes are kept until it is answered, so that it can be sent again where that is safe.
 */
#include "backend/wire/redis_conn.h"

#include "backend/backoff.h"
#include "backend/wire/redis_command.h"
#include "backend/wire/redis_greeting.h"
#include "base/buf.h"
#include "base/ns.h"

#include <assert.h>
#include <stdlib.h>

enum state {
    STATE_UNAVAILABLE, /* until the back-off ends */
    STATE_DUE,         /* wants a socket */
    STATE_DIALLING,    /* has one that is not connected yet */
    STATE_GREETING,    /* has sent HELLO */
    STATE_READY,
    STATE_GIVEN_UP, /* wants its socket closed */
};

struct pending {
    redis_answered *answered;
    void *arg;
    struct span script;
    uint64_t deadline_ns;
    uint64_t begin, end; /* positions of its bytes */
    unsigned skips;      /* replies before its own: of SCRIPT LOAD and ASKING */
    unsigned skips_left; /* of them, those that have not come yet */
    bool is_asking;
    bool is_retried; /* its script was loaded for it */
    bool is_over;    /* to be removed */
};

struct redis_conn {
    struct link link;
    struct redis_conn_options options;
    enum state state;
    struct redis_reader *reader; /* NULL without a socket */
    struct redis_greeting greeting;
    struct redis_server server;
    struct stint_error fault;

    struct pending *pending; /* a ring */
    size_t first, n_pending;
    struct redis_bytes bytes; /* of pending commands; dropped ones stay until space is needed */
    uint64_t base;            /* position of the first byte */
    uint64_t sent;            /* up to where */

    const uint8_t *loaded;  /* the script that was loaded last on this socket */
    uint64_t loaded_at;     /* where its loading ends */
    uint64_t state_ends_ns; /* of AWAY, or of DIALLING and GREETING together */
    uint64_t earliest_ns;   /* no pending command's deadline is earlier */
    uint64_t heard_ns;      /* when bytes came last */
    struct backoff backoff;
    bool is_ending; /* takes no more commands */
};

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

struct redis_conn *redis_conn_new(const struct redis_conn_options *options)
{
    struct redis_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->link.ops = &redis_conn_ops;
    conn->options = *options;
    set_default(&conn->options.connect_ns, 250 * NS_PER_MS);
    set_default(&conn->options.reply_ns, 50 * NS_PER_MS);
    set_default(&conn->options.backoff_first_ns, 10 * NS_PER_MS);
    set_default(&conn->options.backoff_max_ns, 2 * NS_PER_S);
    set_default_size(&conn->options.commands_max, 4096);
    set_default_size(&conn->options.bytes_max, 1u << 20);
    set_default_size(&conn->options.reply_bytes_max, REDIS_REPLY_BYTES_DEFAULT);
    conn->state = STATE_DUE;
    conn->backoff.random = options->seed;
    conn->backoff.next_ns = conn->options.backoff_first_ns;
    conn->earliest_ns = conn->state_ends_ns = STINT_NEVER_NS;
    conn->pending = calloc(conn->options.commands_max, sizeof(*conn->pending));
    if (conn->pending == NULL) {
        free(conn);
        return NULL;
    }
    return conn;
}

static struct pending *at(const struct redis_conn *conn, size_t index)
{
    return &conn->pending[(conn->first + index) % conn->options.commands_max];
}

/* ---- Commands -------------------------------------------------------------------------------- */

static uint64_t end_of(const struct redis_conn *conn)
{
    return conn->base + conn->bytes.len;
}

/* Bytes before the first pending command are no longer needed. */
static void drop_answered(struct redis_conn *conn)
{
    uint64_t kept = conn->n_pending > 0 ? at(conn, 0)->begin : end_of(conn);
    if (kept > conn->sent) /* a command that is sent in part is completed */
        kept = conn->sent;
    size_t dropped = (size_t)(kept - conn->base);
    if (dropped == 0)
        return;
    memmove(conn->bytes.ptr, conn->bytes.ptr + dropped, conn->bytes.len - dropped);
    conn->bytes.len -= dropped;
    conn->base += dropped;
}

static bool reserve(struct redis_conn *conn, size_t more)
{
    if (conn->bytes.len + more > conn->bytes.size)
        drop_answered(conn);
    return redis_bytes_reserve(&conn->bytes, more, conn->options.bytes_max);
}

static struct pending *append(struct redis_conn *conn)
{
    assert(conn->n_pending < conn->options.commands_max);
    struct pending *pending = at(conn, conn->n_pending++);
    pending->begin = end_of(conn);
    return pending;
}

static const struct span asking = {(const uint8_t *)"ASKING", 6};

bool redis_conn_ask(struct redis_conn *conn, const struct redis_command *command, uint64_t now_ns)
{
    size_t len = redis_command_len(command->words, command->n_words);
    if (command->is_asking)
        len += redis_command_len(&asking, 1);
    if (conn->is_ending || conn->n_pending == conn->options.commands_max || !reserve(conn, len))
        return false;
    struct pending *pending = append(conn);
    *pending = (struct pending){
        .answered = command->answered,
        .arg = command->arg,
        .script = command->script,
        .deadline_ns = now_ns + conn->options.reply_ns,
        .begin = pending->begin,
        .skips = command->is_asking,
        .skips_left = command->is_asking,
        .is_asking = command->is_asking,
    };
    if (command->is_asking)
        redis_command_write(&conn->bytes, &asking, 1);
    redis_command_write(&conn->bytes, command->words, command->n_words);
    pending->end = end_of(conn);
    if (pending->deadline_ns < conn->earliest_ns)
        conn->earliest_ns = pending->deadline_ns;
    return true;
}

size_t redis_conn_pending(const struct redis_conn *conn)
{
    return conn->n_pending;
}

/*
 * The server does not know the script, so nothing was done: the command goes to the end once more,
 * after its script, unless another command is loading it already. False: there is no space.
 */
static bool ask_again(struct redis_conn *conn, const struct pending *old)
{
    const struct span load[] = {span_of_text("SCRIPT"), span_of_text("LOAD"), old->script};
    bool loads = conn->loaded != old->script.ptr || conn->loaded_at <= old->begin;
    size_t len = (size_t)(old->end - old->begin);
    size_t load_len = loads ? redis_command_len(load, 3) : 0;
    if (conn->n_pending == conn->options.commands_max || !reserve(conn, load_len + len))
        return false;
    struct pending *pending = append(conn);
    uint64_t begin = pending->begin;
    *pending = *old;
    if (loads) {
        redis_command_write(&conn->bytes, load, 3);
        conn->loaded = old->script.ptr;
        conn->loaded_at = end_of(conn);
    }
    /* Bytes are dropped only up to the first pending command, and so are there still. */
    memcpy(conn->bytes.ptr + conn->bytes.len, conn->bytes.ptr + (old->begin - conn->base), len);
    conn->bytes.len += len;
    pending->begin = begin;
    pending->end = end_of(conn);
    pending->skips = pending->skips_left = (unsigned)loads + old->is_asking;
    pending->is_retried = true;
    if (pending->deadline_ns < conn->earliest_ns)
        conn->earliest_ns = pending->deadline_ns;
    return true;
}

/* For a command whose caller already got "late": the reply is skipped. */
static void skip_reply(void *arg, enum redis_outcome outcome, const struct redis_reply *reply,
                       uint64_t now_ns)
{
    (void)arg, (void)outcome, (void)reply, (void)now_ns;
}

/* ---- Commands that end without a reply ------------------------------------------------------- */

/* Removes expired commands, and with them bytes that were not sent. */
static void sweep(struct redis_conn *conn)
{
    size_t n_kept = 0;
    conn->earliest_ns = STINT_NEVER_NS;
    if (conn->n_pending == 0)
        return;
    uint64_t end = at(conn, 0)->begin;
    for (size_t i = 0; i < conn->n_pending; i++) {
        struct pending pending = *at(conn, i);
        uint64_t len = pending.end - pending.begin;
        if (pending.is_over)
            continue;
        if (end != pending.begin)
            memmove(conn->bytes.ptr + (end - conn->base),
                    conn->bytes.ptr + (pending.begin - conn->base), (size_t)len);
        pending.begin = end;
        pending.end = end += len;
        *at(conn, n_kept++) = pending;
        if (pending.deadline_ns < conn->earliest_ns)
            conn->earliest_ns = pending.deadline_ns;
    }
    conn->n_pending = n_kept;
    conn->bytes.len = (size_t)(end - conn->base);
}

static void end(struct pending *pending, enum redis_outcome outcome, uint64_t now_ns)
{
    pending->is_over = true;
    pending->answered(pending->arg, outcome, NULL, now_ns);
}

/* Commands that were sent whole end without an answer; the rest count as unsent. */
static void end_sent(struct redis_conn *conn, uint64_t now_ns)
{
    size_t n_pending = conn->n_pending;
    uint64_t sent = conn->sent;
    for (size_t i = 0; i < n_pending; i++) {
        struct pending *pending = at(conn, i);
        if (pending->end <= sent)
            end(pending, pending->deadline_ns <= now_ns ? REDIS_LATE : REDIS_LOST, now_ns);
        else if (pending->deadline_ns <= now_ns || conn->options.keeps_nothing)
            end(pending, REDIS_UNSENT, now_ns);
        else
            pending->skips_left = pending->skips;
    }
    sweep(conn);
    conn->sent = conn->n_pending > 0 ? at(conn, 0)->begin : end_of(conn);
}

static void end_unsent_late(struct redis_conn *conn, uint64_t now_ns)
{
    size_t n_pending = conn->n_pending;
    for (size_t i = 0; i < n_pending; i++)
        if (at(conn, i)->deadline_ns <= now_ns)
            end(at(conn, i), REDIS_UNSENT, now_ns);
    sweep(conn);
}

/*
 * Whether the connection is lost: a command is late, and the server has been silent for as long as
 * one answer may take, or has not even taken all of the command.
 */
static bool is_stuck(const struct redis_conn *conn, uint64_t now_ns)
{
    bool is_silent = conn->heard_ns + conn->options.reply_ns <= now_ns;
    for (size_t i = 0; i < conn->n_pending && at(conn, i)->begin < conn->sent; i++)
        if (at(conn, i)->deadline_ns <= now_ns && (is_silent || at(conn, i)->end > conn->sent))
            return true;
    return false;
}

/*
 * A server that answers, but late, is overloaded: a new connection would make it no faster, and all
 * commands in progress would be lost. Late replies are skipped.
 */
static void end_sent_late(struct redis_conn *conn, uint64_t now_ns)
{
    size_t n_pending = conn->n_pending;
    for (size_t i = 0; i < n_pending && at(conn, i)->begin < conn->sent; i++) {
        struct pending *pending = at(conn, i);
        if (pending->deadline_ns > now_ns)
            continue;
        redis_answered *answered = pending->answered;
        pending->answered = skip_reply;
        pending->is_retried = true; /* an unknown script is not sent once more */
        pending->deadline_ns = now_ns + conn->options.reply_ns;
        answered(pending->arg, REDIS_LATE, NULL, now_ns);
    }
}

/* ---- States ---------------------------------------------------------------------------------- */

enum link_wants redis_conn_wants(const struct redis_conn *conn)
{
    return conn->state == STATE_DUE        ? LINK_WANTS_SOCKET
           : conn->state == STATE_GIVEN_UP ? LINK_WANTS_CLOSE
                                           : LINK_WANTS_NOTHING;
}

void redis_conn_dialling(struct redis_conn *conn, uint64_t now_ns)
{
    assert(conn->state == STATE_DUE);
    conn->state = STATE_DIALLING;
    conn->state_ends_ns = now_ns + conn->options.connect_ns;
}

static void give_up(struct redis_conn *conn)
{
    conn->state = STATE_GIVEN_UP;
    conn->state_ends_ns = STINT_NEVER_NS;
}

void redis_conn_connected(struct redis_conn *conn)
{
    if (conn->state != STATE_DIALLING) /* too late: it is closed */
        return;
    conn->state = STATE_GREETING;
    conn->reader = redis_reader_new(conn->options.reply_bytes_max);
    if (conn->reader != NULL && redis_greeting_begin(&conn->greeting, &conn->options))
        return;
    err_set(&conn->fault, STINT_E_SYSTEM, "no memory for a connection to the store");
    give_up(conn);
}

void redis_conn_lost(struct redis_conn *conn, const char *why, uint64_t now_ns)
{
    if (conn->state == STATE_UNAVAILABLE)
        return;
    if (why != NULL && conn->state != STATE_GIVEN_UP)
        err_set(&conn->fault, STINT_E_GONE, "%s", why);
    redis_reader_free(conn->reader);
    conn->reader = NULL;
    redis_greeting_deinit(&conn->greeting);
    conn->loaded = NULL;
    conn->state = STATE_UNAVAILABLE;
    conn->state_ends_ns = now_ns + backoff_wait_ns(&conn->backoff, conn->options.backoff_max_ns);
    end_sent(conn, now_ns);
}

void redis_conn_free(struct redis_conn *conn, uint64_t now_ns)
{
    if (conn == NULL)
        return;
    conn->is_ending = true;
    for (size_t i = 0; i < conn->n_pending; i++) {
        struct pending *pending = at(conn, i);
        end(pending, pending->end <= conn->sent ? REDIS_LOST : REDIS_UNSENT, now_ns);
    }
    redis_reader_free(conn->reader);
    redis_greeting_deinit(&conn->greeting);
    redis_bytes_deinit(&conn->bytes);
    free(conn->pending);
    free(conn);
}

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t redis_conn_deadline(const struct redis_conn *conn)
{
    return conn->state_ends_ns < conn->earliest_ns ? conn->state_ends_ns : conn->earliest_ns;
}

void redis_conn_wake(struct redis_conn *conn, uint64_t now_ns)
{
    if (conn->state_ends_ns <= now_ns && conn->state == STATE_UNAVAILABLE) {
        conn->state = STATE_DUE;
        conn->state_ends_ns = STINT_NEVER_NS;
    } else if (conn->state_ends_ns <= now_ns) {
        err_set(&conn->fault, STINT_E_GONE, "the store has not greeted within %llu ms",
                (unsigned long long)(conn->options.connect_ns / NS_PER_MS));
        give_up(conn);
    }
    if (conn->earliest_ns > now_ns)
        return;
    if (is_stuck(conn, now_ns)) {
        if (conn->state != STATE_GIVEN_UP)
            err_set(&conn->fault, STINT_E_GONE, "the store has not answered within %llu ms",
                    (unsigned long long)(conn->options.reply_ns / NS_PER_MS));
        give_up(conn);
        end_sent(conn, now_ns);
    } else {
        end_sent_late(conn, now_ns);
        end_unsent_late(conn, now_ns);
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

struct span redis_conn_output(const struct redis_conn *conn)
{
    if (conn->state == STATE_GREETING)
        return redis_greeting_output(&conn->greeting);
    if (conn->state != STATE_READY || conn->bytes.ptr == NULL)
        return span_of(NULL, 0);
    size_t skipped = (size_t)(conn->sent - conn->base);
    return span_of(conn->bytes.ptr + skipped, conn->bytes.len - skipped);
}

void redis_conn_sent(struct redis_conn *conn, size_t len)
{
    if (conn->state == STATE_GREETING)
        redis_greeting_sent(&conn->greeting, len);
    else if (conn->state == STATE_READY)
        conn->sent += len;
    assert(conn->sent <= end_of(conn));
}

static void greet(struct redis_conn *conn, const struct redis_reply *reply)
{
    int code = redis_greeting_take(&conn->greeting, reply, &conn->server, &conn->fault);
    if (code < 0)
        give_up(conn);
    else if (code > 0) {
        conn->state = STATE_READY;
        conn->state_ends_ns = STINT_NEVER_NS;
        conn->backoff.next_ns = conn->options.backoff_first_ns;
    }
}

static void answer(struct redis_conn *conn, const struct redis_reply *reply, uint64_t now_ns)
{
    struct pending *first = at(conn, 0);
    bool is_asked = conn->n_pending > 0 && first->end <= conn->sent;
    if (!is_asked && conn->options.pushed != NULL) {
        conn->options.pushed(conn->options.arg, REDIS_DONE, reply, now_ns);
        return;
    }
    if (!is_asked) {
        err_set(&conn->fault, STINT_E_SYNTAX, "the store sent a reply to no command");
        give_up(conn);
        return;
    }
    if (first->skips_left > 0) {
        first->skips_left--;
        return;
    }
    bool is_error = reply->type == REDIS_ERROR;
    if (is_error && first->script.len > 0 && !first->is_retried &&
        redis_error_of(reply->text) == REDIS_ERROR_NOSCRIPT && ask_again(conn, at(conn, 0))) {
        conn->first = (conn->first + 1) % conn->options.commands_max;
        conn->n_pending--;
        return;
    }
    struct pending pending = *first;
    conn->first = (conn->first + 1) % conn->options.commands_max;
    if (--conn->n_pending == 0) {
        conn->earliest_ns = STINT_NEVER_NS;
        drop_answered(conn);
    }
    pending.answered(pending.arg, is_error ? REDIS_REFUSED : REDIS_DONE, reply, now_ns);
}

void redis_conn_feed(struct redis_conn *conn, struct span bytes, uint64_t now_ns)
{
    const struct redis_reply *reply;
    if (conn->state != STATE_GREETING && conn->state != STATE_READY)
        return;
    conn->heard_ns = now_ns;
    int code = redis_reader_feed(conn->reader, bytes, &conn->fault);
    while (code == 0 && (conn->state == STATE_GREETING || conn->state == STATE_READY) &&
           (code = redis_reader_next(conn->reader, &reply, &conn->fault)) > 0) {
        code = 0;
        if (conn->state == STATE_GREETING)
            greet(conn, reply);
        else
            answer(conn, reply, now_ns);
    }
    if (code < 0)
        give_up(conn);
    if (conn->state == STATE_GIVEN_UP)
        end_sent(conn, now_ns);
}

/* ---- State ----------------------------------------------------------------------------------- */

bool redis_conn_is_ready(const struct redis_conn *conn)
{
    return conn->state == STATE_READY;
}

const char *redis_conn_error(const struct redis_conn *conn)
{
    return conn->fault.message;
}

const struct redis_server *redis_conn_server(const struct redis_conn *conn)
{
    return &conn->server;
}

/* A Redis connection as a link, for the code that only moves its bytes. */

static enum link_wants op_wants(const struct link *link)
{
    return redis_conn_wants((const struct redis_conn *)link);
}

static void op_dialling(struct link *link, uint64_t now_ns)
{
    redis_conn_dialling((struct redis_conn *)link, now_ns);
}

static void op_connected(struct link *link, uint64_t now_ns)
{
    (void)now_ns;
    redis_conn_connected((struct redis_conn *)link);
}

static void op_lost(struct link *link, const char *why, uint64_t now_ns)
{
    redis_conn_lost((struct redis_conn *)link, why, now_ns);
}

static void op_feed(struct link *link, struct span bytes, uint64_t now_ns)
{
    redis_conn_feed((struct redis_conn *)link, bytes, now_ns);
}

static struct span op_output(const struct link *link)
{
    return redis_conn_output((const struct redis_conn *)link);
}

static void op_sent(struct link *link, size_t len)
{
    redis_conn_sent((struct redis_conn *)link, len);
}

static uint64_t op_deadline(const struct link *link)
{
    return redis_conn_deadline((const struct redis_conn *)link);
}

static void op_wake(struct link *link, uint64_t now_ns)
{
    redis_conn_wake((struct redis_conn *)link, now_ns);
}

static bool op_is_ready(const struct link *link)
{
    return redis_conn_is_ready((const struct redis_conn *)link);
}

static const char *op_fault(const struct link *link)
{
    return redis_conn_error((const struct redis_conn *)link);
}

static void op_free(struct link *link, uint64_t now_ns)
{
    redis_conn_free((struct redis_conn *)link, now_ns);
}

const struct link_ops redis_conn_ops = {
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

struct link *redis_conn_link(struct redis_conn *conn)
{
    return (struct link *)conn; /* its first member */
}
