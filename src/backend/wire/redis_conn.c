/* SPDX-License-Identifier: MIT */
/*
 * Commands and replies in their order, and what ends them. A command's bytes are kept until it is
 * answered, so that it can be sent again where that is safe.
 */
#include "backend/wire/redis_conn.h"

#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"

#include <assert.h>
#include <hiredis/read.h>
#include <stdalign.h>
#include <stdlib.h>

/* ---- Replies --------------------------------------------------------------------------------- */

/*
 * hiredis requests an object for each part of a reply; they are allocated in chunks that are
 * emptied at the next reply. Small replies fit the first chunk, which stays.
 */

#define PIECE_SIZE 4096
#define SLOTS_MAX 16384

struct piece {
    struct piece *next;
    size_t size, len;
    alignas(16) uint8_t bytes[];
};

struct redis_reader {
    redisReader *reader;
    struct piece *first, *last;
    struct redis_reply root;
    size_t bytes_max, bytes_used; /* of all pieces */
    bool is_too_large;
};

/* ---- Memory of one reply --------------------------------------------------------------------- */

static struct piece *piece_new(size_t size)
{
    struct piece *piece = malloc(sizeof(*piece) + size);
    if (piece != NULL)
        *piece = (struct piece){.size = size};
    return piece;
}

static void *take(struct redis_reader *reader, size_t len)
{
    struct piece *piece = reader->last;
    len = (len + 15) / 16 * 16;
    if (len > reader->bytes_max - reader->bytes_used) {
        reader->is_too_large = true;
        return NULL;
    }
    if (len > piece->size - piece->len) {
        piece->next = piece_new(len > PIECE_SIZE ? len : PIECE_SIZE);
        if (piece->next == NULL)
            return NULL;
        piece = reader->last = piece->next;
    }
    void *taken = piece->bytes + piece->len;
    piece->len += len;
    reader->bytes_used += len;
    return taken;
}

static void forget(struct redis_reader *reader)
{
    for (struct piece *piece = reader->first->next, *next; piece != NULL; piece = next) {
        next = piece->next;
        free(piece);
    }
    reader->first->next = NULL;
    reader->first->len = 0;
    reader->last = reader->first;
    reader->bytes_used = 0;
}

/* ---- Callbacks of hiredis -------------------------------------------------------------------- */

/* The position of an object in the array around it. */
static struct redis_reply *place_of(const redisReadTask *task)
{
    struct redis_reader *reader = task->privdata;
    if (task->parent == NULL)
        return &reader->root;
    struct redis_reply *around = task->parent->obj;
    return (struct redis_reply *)(uintptr_t)&around->items[task->idx];
}

static void *create_text(const redisReadTask *task, char *text, size_t len)
{
    struct redis_reply *reply = place_of(task);
    uint8_t *copy = take(task->privdata, len > 0 ? len : 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, len);
    *reply = (struct redis_reply){.type = task->type == REDIS_REPLY_ERROR    ? REDIS_ERROR
                                          : task->type == REDIS_REPLY_STATUS ? REDIS_STATUS
                                                                             : REDIS_TEXT,
                                  .text = span_of(copy, len)};
    return reply;
}

static void *create_array(const redisReadTask *task, int n_items)
{
    struct redis_reply *reply = place_of(task);
    struct redis_reply *items = NULL;
    if (n_items > 0 && (items = take(task->privdata, (size_t)n_items * sizeof(*items))) == NULL)
        return NULL;
    for (int i = 0; i < n_items; i++)
        items[i] = (struct redis_reply){.type = REDIS_NIL};
    *reply = (struct redis_reply){.type = REDIS_ARRAY, .items = items, .n_items = (size_t)n_items};
    return reply;
}

static void *create_integer(const redisReadTask *task, long long number)
{
    struct redis_reply *reply = place_of(task);
    *reply = (struct redis_reply){.type = REDIS_INTEGER, .number = number};
    return reply;
}

static void *create_nil(const redisReadTask *task)
{
    struct redis_reply *reply = place_of(task);
    *reply = (struct redis_reply){.type = REDIS_NIL};
    return reply;
}

static redisReplyObjectFunctions functions = {
    .createString = create_text,
    .createArray = create_array,
    .createInteger = create_integer,
    .createNil = create_nil,
    .freeObject = NULL, /* all at once, at the next reply */
};

/* ---- The reader ------------------------------------------------------------------------------ */

struct redis_reader *redis_reader_new(size_t bytes_max)
{
    struct redis_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL)
        return NULL;
    reader->bytes_max = bytes_max;
    reader->first = reader->last = piece_new(PIECE_SIZE);
    reader->reader = redisReaderCreateWithFunctions(&functions);
    if (reader->first == NULL || reader->reader == NULL) {
        redis_reader_free(reader);
        return NULL;
    }
    reader->reader->privdata = reader;
    return reader;
}

void redis_reader_free(struct redis_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->first != NULL)
        forget(reader);
    if (reader->reader != NULL)
        redisReaderFree(reader->reader);
    free(reader->first);
    free(reader);
}

static int fault(const struct redis_reader *reader, struct stint_error *error)
{
    if (reader->is_too_large)
        return err_set(error, STINT_E_RANGE,
                       "the store's reply is too large: expected at most %zu bytes",
                       reader->bytes_max);
    if (reader->reader->err == REDIS_ERR_OOM)
        return err_set(error, STINT_E_SYSTEM, "no memory for a store's reply");
    return err_set(error, STINT_E_SYNTAX, "invalid reply from Redis or Valkey: %s",
                   reader->reader->errstr);
}

int redis_reader_feed(struct redis_reader *reader, struct span bytes, struct stint_error *error)
{
    if (bytes.len > reader->bytes_max - (reader->reader->len - reader->reader->pos))
        reader->is_too_large = true;
    if (reader->is_too_large ||
        redisReaderFeed(reader->reader, (const char *)bytes.ptr, bytes.len) != REDIS_OK)
        return fault(reader, error);
    return 0;
}

int redis_reader_next(struct redis_reader *reader, const struct redis_reply **reply,
                      struct stint_error *error)
{
    void *found = NULL;
    if (reader->is_too_large)
        return fault(reader, error);
    if (reader->reader->ridx == -1) /* no reply is incomplete */
        forget(reader);
    if (redisReaderGetReply(reader->reader, &found) != REDIS_OK)
        return fault(reader, error);
    if (found == NULL)
        return 0;
    *reply = found;
    return 1;
}

/* ---- Content of a reply ---------------------------------------------------------------------- */

static bool begins_with(struct span text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && memcmp(text.ptr, word, len) == 0 &&
           (text.len == len || text.ptr[len] == ' ');
}

/* Before version 7 a script's error contains that of its command: "... 1: -READONLY You ..." */
static struct span innermost(struct span text)
{
    if (!begins_with(text, "ERR Error running script"))
        return text;
    for (size_t i = text.len; i >= 3; i--)
        if (memcmp(text.ptr + i - 3, ": -", 3) == 0)
            return span_of(text.ptr + i, text.len - i);
    return text;
}

enum redis_error redis_error_of(struct span text)
{
    static const struct {
        const char *word;
        enum redis_error fault;
    } known[] = {
        {"NOSCRIPT", REDIS_ERROR_NOSCRIPT},
        {"MOVED", REDIS_ERROR_MOVED},
        {"ASK", REDIS_ERROR_ASK},
        {"TRYAGAIN", REDIS_ERROR_TRYAGAIN},
        {"CROSSSLOT", REDIS_ERROR_CROSSSLOT},
        {"CLUSTERDOWN", REDIS_ERROR_CLUSTERDOWN},
        {"LOADING", REDIS_ERROR_LOADING},
        {"READONLY", REDIS_ERROR_READONLY},
        {"MASTERDOWN", REDIS_ERROR_MASTERDOWN},
        {"BUSY", REDIS_ERROR_BUSY},
        {"OOM", REDIS_ERROR_OUT_OF_MEMORY},
        {"MISCONF", REDIS_ERROR_CANNOT_WRITE},
        {"NOREPLICAS", REDIS_ERROR_CANNOT_WRITE},
        {"NOAUTH", REDIS_ERROR_DENIED},
        {"WRONGPASS", REDIS_ERROR_DENIED},
        {"NOPERM", REDIS_ERROR_DENIED},
    };
    text = innermost(text);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (begins_with(text, known[i].word))
            return known[i].fault;
    return REDIS_ERROR_OTHER;
}

bool redis_redirect_parse(struct span text, struct redis_redirect *redirect)
{
    uint64_t slot, port;
    struct span kind = span_cut_word(&text);
    if (!span_equals(kind, "MOVED") && !span_equals(kind, "ASK"))
        return false;
    if (!resp_number_read(span_cut_word(&text), SLOTS_MAX - 1, &slot))
        return false;
    struct span address = span_cut_word(&text);
    size_t colon = address.len; /* the last one: an IPv6 address has others */
    while (colon > 0 && address.ptr[colon - 1] != ':')
        colon--;
    if (colon == 0 ||
        !resp_number_read(span_of(address.ptr + colon, address.len - colon), UINT16_MAX, &port) ||
        port == 0)
        return false;
    struct span host = span_of(address.ptr, colon - 1);
    if (span_equals(host, "?")) /* a node that does not know its own name */
        host.len = 0;
    *redirect = (struct redis_redirect){(unsigned)slot, host, (uint16_t)port};
    return true;
}

bool redis_reply_is(const struct redis_reply *reply, const char *text)
{
    return (reply->type == REDIS_TEXT || reply->type == REDIS_STATUS) &&
           span_equals(reply->text, text);
}

const struct redis_reply *redis_reply_named(const struct redis_reply *reply, const char *name)
{
    for (size_t i = 0; reply->type == REDIS_ARRAY && i + 1 < reply->n_items; i += 2)
        if (redis_reply_is(&reply->items[i], name))
            return &reply->items[i + 1];
    return NULL;
}

/* ---- The connection -------------------------------------------------------------------------- */

#define HELLO_WORDS_MAX 7
#define GREETING_MAX 4096

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
    struct pipeline pipe;
    struct redis_conn_options options;
    struct redis_reader *reader; /* of the present or last socket; NULL: there was none */
    struct redis_server server;
    unsigned greetings_due;  /* replies to the greeting */
    bool has_greeted;        /* the reply to HELLO has come */
    struct pending *pending; /* a ring */
    size_t first, n_pending;
    const uint8_t *loaded; /* the script that was loaded last on this socket */
    uint64_t loaded_at;    /* where its loading ends */
    uint64_t heard_ns;     /* when bytes came last */
    bool is_ending;        /* takes no more commands */
};

static struct pending *at(const struct redis_conn *conn, size_t index)
{
    return &conn->pending[(conn->first + index) % conn->pipe.options.commands_max];
}

/* ---- Commands -------------------------------------------------------------------------------- */

/* "*2\r\n$3\r\nGET\r\n$1\r\na\r\n": a count of words, and each with its length. */
static size_t command_len(const struct span *words, size_t n_words)
{
    size_t len = 1 + resp_number_len(n_words) + 2;
    for (size_t i = 0; i < n_words; i++)
        len += 1 + resp_number_len(words[i].len) + 2 + words[i].len + 2;
    return len;
}

static void write_command(struct wire_bytes *bytes, const struct span *words, size_t n_words)
{
    assert(bytes->len + command_len(words, n_words) <= bytes->size);
    uint8_t *at = bytes->ptr + bytes->len;
    *at = '*';
    at = resp_number_write(at + 1, n_words);
    for (size_t i = 0; i < n_words; i++) {
        memcpy(at, "\r\n$", 3);
        at = resp_number_write(at + 3, words[i].len);
        memcpy(at, "\r\n", 2);
        if (words[i].len > 0)
            memcpy(at + 2, words[i].ptr, words[i].len);
        at += 2 + words[i].len;
    }
    memcpy(at, "\r\n", 2);
    bytes->len = (size_t)(at + 2 - bytes->ptr);
}

/* Bytes before the first pending command are no longer needed. */
static void drop_answered(struct redis_conn *conn)
{
    pipeline_drop(&conn->pipe, conn->n_pending > 0 ? at(conn, 0)->begin : UINT64_MAX);
}

static bool reserve(struct redis_conn *conn, size_t more)
{
    if (conn->pipe.bytes.len + more > conn->pipe.bytes.size)
        drop_answered(conn);
    return wire_bytes_reserve(&conn->pipe.bytes, more, conn->pipe.options.bytes_max);
}

static struct pending *append(struct redis_conn *conn)
{
    assert(conn->n_pending < conn->pipe.options.commands_max);
    struct pending *pending = at(conn, conn->n_pending++);
    pending->begin = pipeline_end(&conn->pipe);
    return pending;
}

static const struct span asking = {(const uint8_t *)"ASKING", 6};

bool redis_conn_ask(struct redis_conn *conn, const struct redis_command *command, uint64_t now_ns)
{
    size_t len = command_len(command->words, command->n_words);
    if (command->is_asking)
        len += command_len(&asking, 1);
    if (conn->is_ending || conn->n_pending == conn->pipe.options.commands_max ||
        !reserve(conn, len))
        return false;
    struct pending *pending = append(conn);
    *pending = (struct pending){
        .answered = command->answered,
        .arg = command->arg,
        .script = command->script,
        .deadline_ns = now_ns + conn->pipe.options.reply_ns,
        .begin = pending->begin,
        .skips = command->is_asking,
        .skips_left = command->is_asking,
        .is_asking = command->is_asking,
    };
    if (command->is_asking)
        write_command(&conn->pipe.bytes, &asking, 1);
    write_command(&conn->pipe.bytes, command->words, command->n_words);
    pending->end = pipeline_end(&conn->pipe);
    if (pending->deadline_ns < conn->pipe.earliest_ns)
        conn->pipe.earliest_ns = pending->deadline_ns;
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
    size_t load_len = loads ? command_len(load, 3) : 0;
    if (conn->n_pending == conn->pipe.options.commands_max || !reserve(conn, load_len + len))
        return false;
    struct pending *pending = append(conn);
    uint64_t begin = pending->begin;
    *pending = *old;
    if (loads) {
        write_command(&conn->pipe.bytes, load, 3);
        conn->loaded = old->script.ptr;
        conn->loaded_at = pipeline_end(&conn->pipe);
    }
    /* Bytes are dropped only up to the first pending command, and so are there still. */
    memcpy(conn->pipe.bytes.ptr + conn->pipe.bytes.len,
           conn->pipe.bytes.ptr + (old->begin - conn->pipe.base), len);
    conn->pipe.bytes.len += len;
    pending->begin = begin;
    pending->end = pipeline_end(&conn->pipe);
    pending->skips = pending->skips_left = (unsigned)loads + old->is_asking;
    pending->is_retried = true;
    if (pending->deadline_ns < conn->pipe.earliest_ns)
        conn->pipe.earliest_ns = pending->deadline_ns;
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
    conn->pipe.earliest_ns = STINT_NEVER_NS;
    if (conn->n_pending == 0)
        return;
    uint64_t end = at(conn, 0)->begin;
    for (size_t i = 0; i < conn->n_pending; i++) {
        struct pending pending = *at(conn, i);
        uint64_t len = pending.end - pending.begin;
        if (pending.is_over)
            continue;
        if (end != pending.begin)
            memmove(conn->pipe.bytes.ptr + (end - conn->pipe.base),
                    conn->pipe.bytes.ptr + (pending.begin - conn->pipe.base), (size_t)len);
        pending.begin = end;
        pending.end = end += len;
        *at(conn, n_kept++) = pending;
        if (pending.deadline_ns < conn->pipe.earliest_ns)
            conn->pipe.earliest_ns = pending.deadline_ns;
    }
    conn->n_pending = n_kept;
    conn->pipe.bytes.len = (size_t)(end - conn->pipe.base);
}

static void end(struct pending *pending, enum redis_outcome outcome, uint64_t now_ns)
{
    pending->is_over = true;
    pending->answered(pending->arg, outcome, NULL, now_ns);
}

/* Commands that were sent whole end without an answer; the rest count as unsent. */
static void end_sent(struct pipeline *pipe, uint64_t now_ns)
{
    struct redis_conn *conn = (struct redis_conn *)pipe;
    size_t n_pending = conn->n_pending;
    uint64_t sent = conn->pipe.sent;
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
    conn->pipe.sent = conn->n_pending > 0 ? at(conn, 0)->begin : pipeline_end(&conn->pipe);
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
    bool is_silent = conn->heard_ns + conn->pipe.options.reply_ns <= now_ns;
    for (size_t i = 0; i < conn->n_pending && at(conn, i)->begin < conn->pipe.sent; i++)
        if (at(conn, i)->deadline_ns <= now_ns && (is_silent || at(conn, i)->end > conn->pipe.sent))
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
    for (size_t i = 0; i < n_pending && at(conn, i)->begin < conn->pipe.sent; i++) {
        struct pending *pending = at(conn, i);
        if (pending->deadline_ns > now_ns)
            continue;
        redis_answered *answered = pending->answered;
        pending->answered = skip_reply;
        pending->is_retried = true; /* an unknown script is not sent once more */
        pending->deadline_ns = now_ns + conn->pipe.options.reply_ns;
        answered(pending->arg, REDIS_LATE, NULL, now_ns);
    }
}

static void be_late(struct pipeline *pipe, uint64_t now_ns)
{
    struct redis_conn *conn = (struct redis_conn *)pipe;
    if (is_stuck(conn, now_ns)) {
        pipeline_give_up_late(pipe);
        end_sent(pipe, now_ns);
    } else {
        end_sent_late(conn, now_ns);
        end_unsent_late(conn, now_ns);
    }
}

/* ---- The greeting ---------------------------------------------------------------------------- */

/*
 * HELLO carries password and name, and so costs one round trip in all. It requests RESP2, the
 * protocol that hiredis' reader of Debian 12 reads.
 */
static bool begin(struct pipeline *pipe)
{
    struct redis_conn *conn = (struct redis_conn *)pipe;
    const struct redis_conn_options *options = &conn->options;
    const char *user = pipe->options.user, *password = pipe->options.password;
    struct span hello[HELLO_WORDS_MAX] = {span_of_text("HELLO"), span_of_text("2")};
    size_t n_words = 2;
    char number[16];
    struct buf buf = buf_of(number, sizeof(number));
    if (password != NULL && password[0] != '\0') {
        hello[n_words++] = span_of_text("AUTH");
        hello[n_words++] = span_of_text(user != NULL && user[0] != '\0' ? user : "default");
        hello[n_words++] = span_of_text(password);
    }
    if (options->name != NULL) {
        hello[n_words++] = span_of_text("SETNAME");
        hello[n_words++] = span_of_text(options->name);
    }
    buf_add(&buf, "%u", options->database);
    const struct span select[] = {span_of_text("SELECT"), span_of_text(number)};
    size_t len = command_len(hello, n_words) + command_len(select, 2);
    conn->loaded = NULL;
    redis_reader_free(conn->reader);
    conn->reader = redis_reader_new(options->reply_bytes_max);
    if (conn->reader == NULL || !wire_bytes_reserve(&pipe->greeting, len, GREETING_MAX))
        return false;
    write_command(&pipe->greeting, hello, n_words);
    if (options->database != 0)
        write_command(&pipe->greeting, select, 2);
    conn->greetings_due = 1 + (options->database != 0);
    conn->has_greeted = false;
    return true;
}

static int refused(const struct redis_reply *reply, const char *command, struct stint_error *error)
{
    int len = reply->text.len < 200 ? (int)reply->text.len : 200;
    return err_set(error, STINT_E_MISMATCH, "the store refuses %s: %.*s", command, len,
                   (const char *)reply->text.ptr);
}

static void copy(char *text, size_t size, const struct redis_reply *reply)
{
    struct buf buf = buf_of(text, size);
    if (reply != NULL && (reply->type == REDIS_TEXT || reply->type == REDIS_STATUS))
        buf_add(&buf, "%.*s", reply->text.len < size ? (int)reply->text.len : (int)size,
                (const char *)reply->text.ptr);
}

static int read_hello(const struct redis_reply *reply, struct redis_server *server,
                      struct stint_error *error)
{
    const struct redis_reply *name = redis_reply_named(reply, "server");
    const struct redis_reply *role = redis_reply_named(reply, "role");
    if (name == NULL)
        return err_set(
            error, STINT_E_MISMATCH,
            "the server is neither Redis nor Valkey: its reply to HELLO does not name either");
    *server = (struct redis_server){
        .is_valkey = redis_reply_is(name, "valkey"),
        .is_replica =
            role != NULL && (redis_reply_is(role, "replica") || redis_reply_is(role, "slave")),
    };
    copy(server->version, sizeof(server->version), redis_reply_named(reply, "version"));
    copy(server->mode, sizeof(server->mode), redis_reply_named(reply, "mode"));
    return 0;
}

/* A code: the server refuses the connection, or is none. */
static int take_greeting(struct redis_conn *conn, const struct redis_reply *reply)
{
    struct stint_error *error = &conn->pipe.fault;
    if (reply->type == REDIS_ERROR)
        return refused(reply, conn->has_greeted ? "SELECT" : "HELLO", error);
    int code = conn->has_greeted ? 0 : read_hello(reply, &conn->server, error);
    conn->has_greeted = true;
    if (--conn->greetings_due == 0 && code == 0)
        pipeline_be_ready(&conn->pipe);
    return code;
}

/* ---- Replies --------------------------------------------------------------------------------- */

static void take_first(struct redis_conn *conn)
{
    conn->first = (conn->first + 1) % conn->pipe.options.commands_max;
    conn->n_pending--;
}

static void answer(struct redis_conn *conn, const struct redis_reply *reply, uint64_t now_ns)
{
    struct pending *first = at(conn, 0);
    bool is_asked = conn->n_pending > 0 && first->end <= conn->pipe.sent;
    if (!is_asked && conn->options.pushed != NULL) {
        conn->options.pushed(conn->options.arg, REDIS_DONE, reply, now_ns);
        return;
    }
    if (!is_asked) {
        err_set(&conn->pipe.fault, STINT_E_SYNTAX, "the store sent a reply to no command");
        pipeline_give_up(&conn->pipe);
        return;
    }
    if (first->skips_left > 0) {
        first->skips_left--;
        return;
    }
    bool is_error = reply->type == REDIS_ERROR;
    if (is_error && first->script.len > 0 && !first->is_retried &&
        redis_error_of(reply->text) == REDIS_ERROR_NOSCRIPT && ask_again(conn, at(conn, 0))) {
        take_first(conn);
        return;
    }
    struct pending pending = *first;
    take_first(conn);
    if (conn->n_pending == 0) {
        conn->pipe.earliest_ns = STINT_NEVER_NS;
        drop_answered(conn);
    }
    pending.answered(pending.arg, is_error ? REDIS_REFUSED : REDIS_DONE, reply, now_ns);
}

static int read_replies(struct pipeline *pipe, struct span bytes, uint64_t now_ns)
{
    struct redis_conn *conn = (struct redis_conn *)pipe;
    const struct redis_reply *reply = NULL;
    conn->heard_ns = now_ns;
    int code = redis_reader_feed(conn->reader, bytes, &pipe->fault);
    while (code == 0 && (pipe->state == PIPELINE_GREETING || pipe->state == PIPELINE_READY) &&
           (code = redis_reader_next(conn->reader, &reply, &pipe->fault)) > 0) {
        code = 0;
        if (pipe->state == PIPELINE_GREETING)
            code = take_greeting(conn, reply);
        else
            answer(conn, reply, now_ns);
    }
    return code;
}

/* ---- Start and end --------------------------------------------------------------------------- */

static void free_all(struct pipeline *pipe, uint64_t now_ns)
{
    struct redis_conn *conn = (struct redis_conn *)pipe;
    conn->is_ending = true;
    for (size_t i = 0; i < conn->n_pending; i++) {
        struct pending *pending = at(conn, i);
        end(pending, pending->end <= pipe->sent ? REDIS_LOST : REDIS_UNSENT, now_ns);
    }
    redis_reader_free(conn->reader);
    free(conn->pending);
}

static const struct pipeline_codec codec = {
    .server = "the store",
    .begin = begin,
    .read = read_replies,
    .end_sent = end_sent,
    .be_late = be_late,
    .free = free_all,
};

struct redis_conn *redis_conn_new(const struct redis_conn_options *options)
{
    struct redis_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->options = *options;
    if (conn->options.pipeline.backoff_max_ns == 0)
        conn->options.pipeline.backoff_max_ns = 2 * NS_PER_S;
    if (conn->options.reply_bytes_max == 0)
        conn->options.reply_bytes_max = REDIS_REPLY_BYTES_DEFAULT;
    pipeline_init(&conn->pipe, &codec, &conn->options.pipeline);
    conn->pending = calloc(conn->pipe.options.commands_max, sizeof(*conn->pending));
    if (conn->pending != NULL)
        return conn;
    free(conn);
    return NULL;
}

void redis_conn_free(struct redis_conn *conn, uint64_t now_ns)
{
    if (conn != NULL)
        link_free(&conn->pipe.link, now_ns);
}

struct link *redis_conn_link(struct redis_conn *conn)
{
    return &conn->pipe.link;
}

const struct redis_server *redis_conn_server(const struct redis_conn *conn)
{
    return &conn->server;
}
