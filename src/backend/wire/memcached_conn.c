/* SPDX-License-Identifier: MIT */
/*
 * Commands and replies in their order. A password goes as the value of any key; refused statistics
 * are treated as unknown.
 */
#include "backend/wire/memcached_conn.h"

#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"

#include <stdlib.h>

/* ---- Replies --------------------------------------------------------------------------------- */

/* "VA 3 c17\r\nabc\r\n": a word for the kind, and flags, of which two are used. */

static const struct {
    const char *word;
    enum memcached_code code;
} reply_words[] = {
    {"HD", MEMCACHED_STORED},
    {"STORED", MEMCACHED_STORED},
    {"DELETED", MEMCACHED_STORED},
    {"VA", MEMCACHED_VALUE},
    {"EN", MEMCACHED_MISS},
    {"NS", MEMCACHED_NOT_STORED},
    {"EX", MEMCACHED_EXISTS},
    {"NF", MEMCACHED_NOT_FOUND},
    {"STAT", MEMCACHED_STAT},
    {"END", MEMCACHED_END},
    {"VERSION", MEMCACHED_VERSION},
    {"ERROR", MEMCACHED_ERROR},
    {"CLIENT_ERROR", MEMCACHED_ERROR},
    {"SERVER_ERROR", MEMCACHED_ERROR},
};

static int no_reply(struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX, "invalid reply from memcached");
}

/* The length of the line without its end; 0: it is not complete yet. */
static int find_line(struct span bytes, size_t *len, struct stint_error *error)
{
    size_t most = bytes.len < MEMCACHED_LINE_MAX ? bytes.len : MEMCACHED_LINE_MAX;
    const uint8_t *end = most > 0 ? memchr(bytes.ptr, '\n', most) : NULL;
    if (end == NULL)
        return most < MEMCACHED_LINE_MAX
                   ? 0
                   : err_set(error, STINT_E_RANGE,
                             "a line from memcached is too long: expected at most %d bytes",
                             MEMCACHED_LINE_MAX);
    *len = (size_t)(end - bytes.ptr);
    if (*len < 2 || end[-1] != '\r')
        return no_reply(error);
    *len -= 1;
    return 1;
}

/* Flags are a letter and, for some, a word; false: an invalid number. Other flags are ignored. */
static bool read_flags(struct memcached_reply *reply, struct span flags)
{
    while (flags.len > 0) {
        struct span flag = span_cut_word(&flags);
        if (flag.len > 0 && flag.ptr[0] == 'c' &&
            !resp_number_read(span_of(flag.ptr + 1, flag.len - 1), UINT64_MAX, &reply->number))
            return false;
        if (span_equals(flag, "h1"))
            reply->was_read = true;
    }
    return true;
}

static int read_value(struct memcached_reply *reply, struct span bytes, struct span line,
                      size_t line_len, struct stint_error *error)
{
    uint64_t len;
    if (!resp_number_read(span_cut_word(&line), UINT32_MAX, &len) || !read_flags(reply, line))
        return no_reply(error);
    if (len > MEMCACHED_VALUE_MAX) {
        reply->skips = len + 2;
        return (int)line_len;
    }
    if (bytes.len - line_len < len + 2)
        return 0;
    reply->value = span_of(bytes.ptr + line_len, (size_t)len);
    const uint8_t *end = reply->value.ptr + len;
    return end[0] == '\r' && end[1] == '\n' ? (int)(line_len + len + 2) : no_reply(error);
}

int memcached_reply_read(struct memcached_reply *reply, struct span bytes,
                         struct stint_error *error)
{
    size_t len = 0, i = 0;
    int found = find_line(bytes, &len, error);
    if (found <= 0)
        return found;
    struct span line = span_of(bytes.ptr, len), rest = line, word = span_cut_word(&rest);
    while (i < sizeof(reply_words) / sizeof(reply_words[0]) &&
           !span_equals(word, reply_words[i].word))
        i++;
    if (i == sizeof(reply_words) / sizeof(reply_words[0]))
        return no_reply(error);
    len += 2;
    *reply = (struct memcached_reply){.code = reply_words[i].code};
    switch (reply->code) {
    case MEMCACHED_VALUE:
        return read_value(reply, bytes, rest, len, error);
    case MEMCACHED_STAT:
        reply->name = span_cut_word(&rest);
        reply->value = rest;
        return (int)len;
    case MEMCACHED_VERSION:
        reply->value = rest;
        return (int)len;
    case MEMCACHED_ERROR:
        reply->value = line;
        return (int)len;
    default:
        return read_flags(reply, rest) ? (int)len : no_reply(error);
    }
}

/* ---- The connection -------------------------------------------------------------------------- */

#define UPTIME_SLACK_S 5
#define INPUT_MAX (MEMCACHED_LINE_MAX + MEMCACHED_VALUE_MAX + 2)
#define WORDS_MAX 96 /* all of a command but key and value */
#define GREETING_MAX 1024
/* The meta commands have their present form since then. */
#define OLDEST_MAJOR 1
#define OLDEST_MINOR 6
#define OLDEST_PATCH 10

/* Distinguishes the server from an earlier one at the same address. */
struct memcached_server {
    char version[32];
    uint64_t pid, uptime_s; /* 0: not reported */
};

struct memcached_conn {
    struct link link;
    bool is_let_in;                   /* the server has accepted the password, or wants none */
    struct memcached_server greeting; /* the one that greets */
    struct memcached_server server;   /* the last one that greeted */
    uint64_t greeted_ns;
    bool has_greeted; /* ever */
    unsigned restarts;
    struct wire_bytes input; /* of a reply that is not complete yet */
    uint64_t skips;          /* bytes to come that no command needs */
};

static struct memcached_conn *of(struct link *link)
{
    return (struct memcached_conn *)link;
}

/* ---- Commands -------------------------------------------------------------------------------- */

static void write_flags(struct wire_bytes *bytes, const struct memcached_command *command)
{
    switch (command->verb) {
    case MEMCACHED_GET:
        wire_bytes_add_text(bytes, " v c h");
        break;
    case MEMCACHED_ADD:
    case MEMCACHED_SWAP:
    case MEMCACHED_SET:
        wire_bytes_add_number(bytes, " ", command->value.len);
        wire_bytes_add_number(bytes, " T", command->ttl_s);
        if (command->verb == MEMCACHED_ADD)
            wire_bytes_add_text(bytes, " ME");
        else if (command->verb == MEMCACHED_SWAP)
            wire_bytes_add_number(bytes, " C", command->number);
        wire_bytes_add_text(bytes, "\r\n");
        wire_bytes_add(bytes, command->value);
        break;
    default:
        break;
    }
}

/* "ms KEY 3 T60 C17\r\nabc\r\n": a verb, the key, a length, flags of one letter each. */
static void write_command(struct wire_bytes *bytes, const struct memcached_command *command)
{
    static const char *const words[] = {
        [MEMCACHED_GET] = "mg", [MEMCACHED_ADD] = "ms",    [MEMCACHED_SWAP] = "ms",
        [MEMCACHED_SET] = "ms", [MEMCACHED_DELETE] = "md", [MEMCACHED_STATS] = "stats",
    };
    /* A number of 0 would count as no number, and any value be overwritten. */
    assert(command->verb != MEMCACHED_SWAP || command->number > 0);
    wire_bytes_add_text(bytes, words[command->verb]);
    if (command->key.len > 0)
        wire_bytes_add_text(bytes, " ");
    wire_bytes_add(bytes, command->key);
    write_flags(bytes, command);
    wire_bytes_add_text(bytes, "\r\n");
}

bool memcached_conn_ask(struct memcached_conn *conn, const struct memcached_command *command,
                        uint64_t now_ns)
{
    struct link *link = &conn->link;
    assert(command->key.len <= MEMCACHED_KEY_MAX);
    if (!link_reserve(link, WORDS_MAX + command->key.len + command->value.len))
        return false;
    write_command(&link->bytes, command);
    link_append(link, &(struct link_pending){
                          .answered = (void (*)(void))command->answered,
                          .arg = command->arg,
                          .deadline_ns = now_ns + link->options.reply_ns,
                          .begin = UINT64_MAX,
                          .end = link_end(link),
                          .verb = (uint8_t)command->verb,
                      });
    return true;
}

/* ---- Commands that end without a reply ------------------------------------------------------- */

static void end(const struct link_pending *pending, enum link_outcome outcome, uint64_t now_ns)
{
    memcached_answered *answered = (memcached_answered *)pending->answered;
    answered(pending->arg, outcome, NULL, now_ns);
}

/* Each has the same time, so the first is late first. */
static void be_late(struct link *link, uint64_t now_ns)
{
    link->earliest_ns = link_at(link, 0)->deadline_ns;
    if (link->earliest_ns <= now_ns)
        link_give_up_late(link, now_ns);
}

/* ---- The greeting ---------------------------------------------------------------------------- */

static void write_password(struct wire_bytes *bytes, const char *user, const char *password)
{
    wire_bytes_add_number(bytes, "set auth 0 0 ", strlen(user) + 1 + strlen(password));
    wire_bytes_add_text(bytes, "\r\n");
    wire_bytes_add_text(bytes, user);
    wire_bytes_add_text(bytes, " ");
    wire_bytes_add_text(bytes, password);
    wire_bytes_add_text(bytes, "\r\n");
}

static bool begin(struct link *link)
{
    struct memcached_conn *conn = of(link);
    const char *user = link->options.user, *password = link->options.password;
    bool has_password = password != NULL && password[0] != '\0';
    size_t len = WORDS_MAX;
    user = user != NULL ? user : "";
    if (has_password)
        len += strlen(user) + strlen(password);
    conn->greeting = (struct memcached_server){.pid = 0};
    conn->is_let_in = !has_password;
    conn->input.len = 0;
    conn->skips = 0;
    if (!wire_bytes_reserve(&link->greeting, len, GREETING_MAX))
        return false;
    if (has_password)
        write_password(&link->greeting, user, password);
    wire_bytes_add_text(&link->greeting, "version\r\nstats\r\n");
    return true;
}

/* "1.6.18": the first numbers, and any text after them. */
static bool is_new_enough(const char *version)
{
    static const unsigned oldest[] = {OLDEST_MAJOR, OLDEST_MINOR, OLDEST_PATCH};
    for (size_t i = 0; i < 3; i++) {
        unsigned number = 0;
        for (; *version >= '0' && *version <= '9' && number < 10000; version++)
            number = number * 10 + (unsigned)(*version - '0');
        if (number != oldest[i])
            return number > oldest[i];
        if (*version == '.')
            version++;
    }
    return true;
}

static int read_version(struct memcached_server *server, struct span version,
                        struct stint_error *error)
{
    struct buf buf = buf_of(server->version, sizeof(server->version));
    size_t most = sizeof(server->version) - 1;
    buf_add(&buf, "%.*s", version.len < most ? (int)version.len : (int)most,
            (const char *)version.ptr);
    if (!is_new_enough(server->version))
        return err_set(error, STINT_E_MISMATCH,
                       "memcached %s is too old: expected %d.%d.%d, which has meta commands",
                       server->version, OLDEST_MAJOR, OLDEST_MINOR, OLDEST_PATCH);
    return 0;
}

static int read_stat(struct memcached_server *server, const struct memcached_reply *reply)
{
    if (span_equals(reply->name, "pid"))
        (void)resp_number_read(reply->value, UINT32_MAX, &server->pid);
    else if (span_equals(reply->name, "uptime"))
        (void)resp_number_read(reply->value, UINT32_MAX, &server->uptime_s);
    return 0;
}

/* The same server, still running; its clock has whole seconds, and may not have advanced yet. */
static void count_restart(struct memcached_conn *conn, uint64_t now_ns)
{
    const struct memcached_server *old = &conn->server, *found = &conn->greeting;
    uint64_t gone_s = (now_ns - conn->greeted_ns) / NS_PER_S;
    bool runs_on = found->pid == old->pid && found->pid != 0 &&
                   found->uptime_s + UPTIME_SLACK_S >= old->uptime_s + gone_s;
    if (conn->has_greeted && !runs_on)
        conn->restarts++;
    conn->server = *found;
    conn->has_greeted = true;
    conn->greeted_ns = now_ns;
}

/* A code: why the server is not usable. */
static int take_greeting(struct memcached_conn *conn, const struct memcached_reply *reply,
                         uint64_t now_ns)
{
    struct stint_error *error = &conn->link.fault;
    bool is_known = conn->greeting.version[0] != '\0';
    if (reply->code == MEMCACHED_ERROR && !is_known)
        return err_set(error, STINT_E_MISMATCH, "memcached refuses %s: %.*s",
                       conn->is_let_in ? "to report its version" : "the password",
                       reply->value.len < 200 ? (int)reply->value.len : 200,
                       (const char *)reply->value.ptr);
    if (!conn->is_let_in && reply->code == MEMCACHED_STORED) {
        conn->is_let_in = true;
        return 0;
    }
    if (conn->is_let_in && !is_known && reply->code == MEMCACHED_VERSION)
        return read_version(&conn->greeting, reply->value, error);
    if (is_known && reply->code == MEMCACHED_STAT)
        return read_stat(&conn->greeting, reply);
    if (!is_known || (reply->code != MEMCACHED_END && reply->code != MEMCACHED_ERROR))
        return err_set(error, STINT_E_MISMATCH, "the server does not identify itself as memcached");
    count_restart(conn, now_ns);
    link_be_ready(&conn->link);
    return 0;
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* The replies of a command beside errors. */
static bool is_reply_of(enum memcached_verb verb, enum memcached_code code)
{
#define REPLY(code) (1u << (code))
    static const unsigned replies[] = {
        [MEMCACHED_GET] = REPLY(MEMCACHED_VALUE) | REPLY(MEMCACHED_MISS),
        [MEMCACHED_ADD] = REPLY(MEMCACHED_STORED) | REPLY(MEMCACHED_NOT_STORED),
        [MEMCACHED_SWAP] = REPLY(MEMCACHED_STORED) | REPLY(MEMCACHED_NOT_STORED) |
                           REPLY(MEMCACHED_EXISTS) | REPLY(MEMCACHED_NOT_FOUND),
        [MEMCACHED_SET] = REPLY(MEMCACHED_STORED) | REPLY(MEMCACHED_NOT_STORED),
        [MEMCACHED_DELETE] = REPLY(MEMCACHED_STORED) | REPLY(MEMCACHED_NOT_FOUND),
        [MEMCACHED_STATS] = REPLY(MEMCACHED_STAT) | REPLY(MEMCACHED_END),
    };
    return ((replies[verb] | REPLY(MEMCACHED_ERROR)) & REPLY(code)) != 0;
}

static void answer(struct memcached_conn *conn, const struct memcached_reply *reply,
                   uint64_t now_ns)
{
    struct link *link = &conn->link;
    struct link_pending pending = *link_at(link, 0);
    if (!link_expects_reply(link) || !is_reply_of(pending.verb, reply->code)) {
        err_set(&link->fault, STINT_E_SYNTAX, "memcached sent a reply to no command");
        link_give_up(link);
        return;
    }
    if (reply->code != MEMCACHED_STAT)
        (void)link_take_first(link);
    memcached_answered *answered = (memcached_answered *)pending.answered;
    answered(pending.arg, reply->code == MEMCACHED_ERROR ? LINK_REFUSED : LINK_DONE, reply, now_ns);
}

/* How many of these bytes were replies; a code where one of them is invalid. */
static int read_replies(struct memcached_conn *conn, struct span bytes, uint64_t now_ns)
{
    size_t used = 0;
    while (link_reads(&conn->link)) {
        size_t skipped = (size_t)min_u64(conn->skips, bytes.len - used);
        conn->skips -= skipped;
        used += skipped;
        struct memcached_reply reply;
        int len = memcached_reply_read(&reply, span_of(bytes.ptr + used, bytes.len - used),
                                       &conn->link.fault);
        if (len < 0)
            return len;
        if (len == 0)
            break;
        used += (size_t)len;
        conn->skips = reply.skips;
        int code = 0;
        if (conn->link.state == LINK_READY)
            answer(conn, &reply, now_ns);
        else
            code = take_greeting(conn, &reply, now_ns);
        if (code < 0)
            return code;
    }
    return (int)used;
}

/* An incomplete reply is kept until the rest has come. */
static int read_bytes(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct memcached_conn *conn = of(link);
    struct wire_bytes *input = &conn->input;
    struct span all = bytes;
    if (input->len > 0) {
        if (!wire_bytes_reserve(input, bytes.len, INPUT_MAX + bytes.len))
            return err_set(&conn->link.fault, STINT_E_SYSTEM, "no memory for memcached's reply");
        wire_bytes_add(input, bytes);
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
    if (!wire_bytes_reserve(input, left, INPUT_MAX + left))
        return err_set(&conn->link.fault, STINT_E_SYSTEM, "no memory for memcached's reply");
    wire_bytes_add(input, span_of(all.ptr + used, left));
    return 0;
}

/* ---- Start and end --------------------------------------------------------------------------- */

static void free_input(struct link *link)
{
    free(of(link)->input.ptr);
}

static const struct link_codec codec = {
    .server = "memcached",
    .begin = begin,
    .read = read_bytes,
    .end = end,
    .be_late = be_late,
    .free = free_input,
};

struct memcached_conn *memcached_conn_new(const struct link_options *options)
{
    struct memcached_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    if (link_init(&conn->link, &codec, options))
        return conn;
    free(conn);
    return NULL;
}

const char *memcached_conn_version(const struct memcached_conn *conn)
{
    return conn->server.version;
}

unsigned memcached_conn_restarts(const struct memcached_conn *conn)
{
    return conn->restarts;
}
