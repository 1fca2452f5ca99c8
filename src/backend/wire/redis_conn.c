/* SPDX-License-Identifier: MIT */
/*
 * Commands and replies in their order, and what ends them. A command's bytes are kept until it is
 * answered, so that it can be sent again after its script.
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
    struct redis_reply *items =
        n_items > 0 ? take(task->privdata, (size_t)n_items * sizeof(*items)) : NULL;
    if (n_items > 0 && items == NULL)
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
           (text.len == len || text.ptr[len] == ' ' || text.ptr[len] == ':');
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
        {"WRONGTYPE", REDIS_ERROR_KEY},
        {"STINT", REDIS_ERROR_KEY},
        {"ERR user_script", REDIS_ERROR_KEY}, /* it stops at bytes that are no state */
        {"ERR Error running script", REDIS_ERROR_KEY},
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

bool redis_reply_integers(const struct redis_reply *reply, int64_t *values, size_t most)
{
    if (reply->type != REDIS_ARRAY || reply->n_items > most)
        return false;
    for (size_t i = 0; i < reply->n_items; i++) {
        if (reply->items[i].type != REDIS_INTEGER)
            return false;
        values[i] = reply->items[i].number;
    }
    return true;
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

struct redis_conn {
    struct link link;
    struct redis_conn_options options;
    struct redis_reader *reader; /* of the present or last socket; NULL: there was none */
    struct redis_server server;
    unsigned greetings_due; /* replies to the greeting */
    bool has_greeted;       /* the reply to HELLO has come */
    const uint8_t *loaded;  /* the script that was loaded last on this socket */
    uint64_t loaded_at;     /* where its loading ends */
    char load_refusal[200]; /* the error of the last load; empty: there was none */
    uint64_t heard_ns;      /* when bytes came last */
};

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

static const struct span asking = {(const uint8_t *)"ASKING", 6};

bool redis_conn_ask(struct redis_conn *conn, const struct redis_command *command, uint64_t now_ns)
{
    struct link *link = &conn->link;
    size_t len = command_len(command->words, command->n_words);
    if (command->is_asking)
        len += command_len(&asking, 1);
    if (!link_reserve(link, len))
        return false;
    struct link_pending pending = {
        .answered = (void (*)(void))command->answered,
        .arg = command->arg,
        .script = command->script,
        .deadline_ns = now_ns + link->options.reply_ns,
        .begin = link_end(link),
        .skips = command->is_asking,
        .is_asking = command->is_asking,
    };
    if (command->is_asking)
        write_command(&link->bytes, &asking, 1);
    write_command(&link->bytes, command->words, command->n_words);
    pending.end = link_end(link);
    link_append(link, &pending);
    return true;
}

/*
 * The server does not know the script of the first command, so nothing was done: the command goes
 * to the end once more, after its script, unless another command is loading it already. False:
 * there is no space.
 */
static bool ask_again(struct redis_conn *conn)
{
    struct link *link = &conn->link;
    struct link_pending pending = *link_at(link, 0);
    const struct span load[] = {span_of_text("SCRIPT"), span_of_text("LOAD"), pending.script};
    bool loads = conn->loaded != pending.script.ptr || conn->loaded_at <= pending.begin;
    size_t len = (size_t)(pending.end - pending.begin);
    if (!link_reserve(link, len + (loads ? command_len(load, 3) : 0)))
        return false;
    uint64_t begin = link_end(link);
    if (loads) {
        write_command(&link->bytes, load, 3);
        conn->loaded = pending.script.ptr;
        conn->loaded_at = link_end(link);
    }
    /* Bytes are dropped only up to the first pending command, and so are there still. */
    wire_bytes_add(&link->bytes, span_of(link->bytes.ptr + (pending.begin - link->base), len));
    pending.begin = begin;
    pending.end = link_end(link);
    pending.skips = (unsigned)loads + pending.is_asking;
    pending.is_retried = true;
    link_append(link, &pending);
    return true;
}

/* ---- Commands that end without a reply ------------------------------------------------------- */

static void end(const struct link_pending *pending, enum link_outcome outcome, uint64_t now_ns)
{
    redis_answered *answered = (redis_answered *)pending->answered;
    answered(pending->arg, outcome, NULL, now_ns);
}

/* Removes expired commands, and with them bytes that were not sent: the load may be among them. */
static void sweep(struct link *link)
{
    size_t n_kept = 0;
    ((struct redis_conn *)link)->loaded = NULL;
    link->earliest_ns = STINT_NEVER_NS;
    if (link->n_pending == 0)
        return;
    uint64_t end = link_at(link, 0)->begin;
    for (size_t i = 0; i < link->n_pending; i++) {
        struct link_pending pending = *link_at(link, i);
        uint64_t len = pending.end - pending.begin;
        if (pending.is_over)
            continue;
        if (end != pending.begin)
            memmove(link->bytes.ptr + (end - link->base),
                    link->bytes.ptr + (pending.begin - link->base), (size_t)len);
        pending.begin = end;
        pending.end = end += len;
        *link_at(link, n_kept++) = pending;
        link->earliest_ns = min_u64(link->earliest_ns, pending.deadline_ns);
    }
    link->n_pending = n_kept;
    link->bytes.len = (size_t)(end - link->base);
}

static void end_unsent_late(struct link *link, uint64_t now_ns)
{
    size_t n_pending = link->n_pending;
    for (size_t i = 0; i < n_pending; i++)
        if (link_at(link, i)->deadline_ns <= now_ns) {
            link_at(link, i)->is_over = true;
            end(link_at(link, i), LINK_UNSENT, now_ns);
        }
    sweep(link);
}

/*
 * Whether the connection is lost: a command is late, and the server has been silent for as long as
 * one answer may take, or has not even taken all of the command.
 */
static bool is_stuck(const struct redis_conn *conn, uint64_t now_ns)
{
    const struct link *link = &conn->link;
    bool is_silent = conn->heard_ns + link->options.reply_ns <= now_ns;
    for (size_t i = 0; i < link->n_pending && link_at(link, i)->begin < link->sent; i++)
        if (link_at(link, i)->deadline_ns <= now_ns &&
            (is_silent || link_at(link, i)->end > link->sent))
            return true;
    return false;
}

/*
 * A server that answers, but late, is overloaded: a new connection would make it no faster, and all
 * commands in progress would be lost. Late replies are skipped.
 */
static void end_sent_late(struct link *link, uint64_t now_ns)
{
    size_t n_pending = link->n_pending;
    for (size_t i = 0; i < n_pending && link_at(link, i)->begin < link->sent; i++) {
        struct link_pending *pending = link_at(link, i);
        if (pending->deadline_ns > now_ns)
            continue;
        const struct link_pending late = *pending;
        pending->answered = (void (*)(void))redis_skip_reply;
        pending->is_retried = true; /* an unknown script is not sent once more */
        pending->deadline_ns = now_ns + link->options.reply_ns;
        end(&late, LINK_LATE, now_ns);
    }
}

static void be_late(struct link *link, uint64_t now_ns)
{
    if (is_stuck((struct redis_conn *)link, now_ns)) {
        link_give_up_late(link, now_ns);
    } else {
        end_sent_late(link, now_ns);
        end_unsent_late(link, now_ns);
    }
}

void redis_skip_reply(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                      uint64_t now_ns)
{
    (void)arg, (void)outcome, (void)reply, (void)now_ns;
}

/* ---- The greeting ---------------------------------------------------------------------------- */

/*
 * HELLO carries password and name, and so costs one round trip in all. It requests RESP2, the
 * protocol that hiredis' reader of Debian 12 reads.
 */
static bool begin(struct link *link)
{
    struct redis_conn *conn = (struct redis_conn *)link;
    const struct redis_conn_options *options = &conn->options;
    const char *user = link->options.user, *password = link->options.password;
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
    conn->load_refusal[0] = '\0';
    redis_reader_free(conn->reader);
    conn->reader = redis_reader_new(options->reply_bytes_max);
    if (conn->reader == NULL || !wire_bytes_reserve(&link->greeting, len, GREETING_MAX))
        return false;
    write_command(&link->greeting, hello, n_words);
    if (options->database != 0)
        write_command(&link->greeting, select, 2);
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
    if (reply != NULL &&
        (reply->type == REDIS_TEXT || reply->type == REDIS_STATUS || reply->type == REDIS_ERROR))
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
    struct stint_error *error = &conn->link.fault;
    if (reply->type == REDIS_ERROR)
        return refused(reply, conn->has_greeted ? "SELECT" : "HELLO", error);
    int code = conn->has_greeted ? 0 : read_hello(reply, &conn->server, error);
    conn->has_greeted = true;
    if (--conn->greetings_due == 0 && code == 0)
        link_be_ready(&conn->link);
    return code;
}

/* ---- Replies --------------------------------------------------------------------------------- */

static void answer(struct redis_conn *conn, const struct redis_reply *reply, uint64_t now_ns)
{
    struct link *link = &conn->link;
    struct link_pending *first = link_at(link, 0);
    bool is_error = reply->type == REDIS_ERROR;
    if (!link_expects_reply(link) && conn->options.pushed != NULL) {
        conn->options.pushed(conn->options.arg, LINK_DONE, reply, now_ns);
    } else if (!link_expects_reply(link)) {
        err_set(&link->fault, STINT_E_SYNTAX, "the store sent a reply to no command");
        link_give_up(link);
    } else if (first->skips > 0) {
        if (first->skips-- > first->is_asking)
            copy(conn->load_refusal, sizeof(conn->load_refusal), is_error ? reply : NULL);
    } else if (is_error && first->script.len > 0 && !first->is_retried &&
               redis_error_of(reply->text) == REDIS_ERROR_NOSCRIPT && ask_again(conn)) {
        (void)link_take_first(link);
    } else {
        const struct link_pending pending = link_take_first(link);
        redis_answered *answered = (redis_answered *)pending.answered;
        const struct redis_reply load = {.type = REDIS_ERROR,
                                         .text = span_of_text(conn->load_refusal)};
        bool is_load =
            is_error && load.text.len > 0 && redis_error_of(reply->text) == REDIS_ERROR_NOSCRIPT;
        answered(pending.arg, is_error ? LINK_REFUSED : LINK_DONE, is_load ? &load : reply, now_ns);
    }
}

static int read_replies(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct redis_conn *conn = (struct redis_conn *)link;
    const struct redis_reply *reply = NULL;
    conn->heard_ns = now_ns;
    int code = redis_reader_feed(conn->reader, bytes, &link->fault);
    while (code == 0 && link_reads(link)) {
        code = redis_reader_next(conn->reader, &reply, &link->fault);
        if (code <= 0)
            break;
        code = 0;
        if (link->state == LINK_GREETING)
            code = take_greeting(conn, reply);
        else
            answer(conn, reply, now_ns);
    }
    return code;
}

/* ---- Start and end --------------------------------------------------------------------------- */

static void free_reader(struct link *link)
{
    redis_reader_free(((struct redis_conn *)link)->reader);
}

static const struct link_codec codec = {
    .server = "the store",
    .begin = begin,
    .read = read_replies,
    .end = end,
    .be_late = be_late,
    .free = free_reader,
};

struct redis_conn *redis_conn_new(const struct redis_conn_options *options)
{
    struct redis_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->options = *options;
    if (conn->options.link.backoff_max_ns == 0)
        conn->options.link.backoff_max_ns = 2 * NS_PER_S;
    if (conn->options.reply_bytes_max == 0)
        conn->options.reply_bytes_max = REDIS_REPLY_BYTES_DEFAULT;
    if (link_init(&conn->link, &codec, &conn->options.link))
        return conn;
    free(conn);
    return NULL;
}

void redis_conn_free(struct redis_conn *conn, uint64_t now_ns)
{
    if (conn != NULL)
        link_free(&conn->link, now_ns);
}

const struct redis_server *redis_conn_server(const struct redis_conn *conn)
{
    return &conn->server;
}
