/* SPDX-License-Identifier: MIT */
/*
 * Bytes as replies of memcached: whole and in pieces they must end the same commands in the same
 * way, what is read of them must lie inside them, and no bytes may make more answers than there
 * were commands.
 */
#include "bytes.h"

#include "backend/wire/memcached_conn.h"
#include "base/buf.h"
#include "base/ns.h"

#define COMMANDS 8
#define TOLD_SIZE 65536

/* What the askers of one connection were told. */
struct told {
    struct memcached_conn *conn;
    char text[TOLD_SIZE];
    struct buf buf;
    unsigned n_ended;
};

static void note(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                 uint64_t now_ns)
{
    struct told *told = arg;
    (void)now_ns;
    buf_add(&told->buf, "%d", (int)outcome);
    if (reply == NULL || reply->code != MEMCACHED_STAT)
        told->n_ended++;
    if (reply == NULL)
        return;
    buf_add(&told->buf, " %d %llu", (int)reply->code, (unsigned long long)reply->number);
    for (size_t i = 0; i < reply->name.len; i++)
        buf_add(&told->buf, "%02x", reply->name.ptr[i]);
    for (size_t i = 0; i < reply->value.len; i++)
        buf_add(&told->buf, ".%02x", reply->value.ptr[i]);
}

static void send_all(struct link *link)
{
    link_sent(link, link_output(link).len);
}

static void feed_text(struct link *link, const char *text)
{
    link_feed(link, span_of_text(text), 0);
}

static void begin(struct told *told, struct span verbs)
{
    told->n_ended = 0;
    told->buf = buf_of(told->text, sizeof(told->text));
    told->conn = memcached_conn_new(&(struct link_options){.commands_max = COMMANDS});
    MUST(told->conn != NULL);
    struct link *link = memcached_conn_link(told->conn);
    link_dialling(link, 0);
    link_connected(link, 0);
    send_all(link);
    feed_text(link, "VERSION 1.6.18\r\nSTAT pid 1\r\nEND\r\n");
    MUST(link_is_ready(link));
    for (unsigned i = 0; i < COMMANDS; i++) {
        uint8_t verb = bytes_u8(&verbs) % 5;
        struct memcached_command command = {
            .verb = (enum memcached_verb)verb,
            .key = span_of_text(verb == MEMCACHED_STATS ? "" : "k"),
            .value = span_of_text("v"),
            .number = 7,
            .answered = note,
            .arg = told,
        };
        MUST(memcached_conn_ask(told->conn, &command, 0));
    }
    send_all(link);
}

static void end(struct told *told)
{
    struct link *link = memcached_conn_link(told->conn);
    /* A link that gave up has ended all; one that did not waits for the rest. */
    if (link_wants(link) == LINK_WANTS_CLOSE)
        MUST(told->n_ended == COMMANDS);
    MUST(told->n_ended <= COMMANDS);
    link_free(link, 0);
    MUST(told->n_ended == COMMANDS);
}

static void check_reader(struct span bytes)
{
    struct memcached_reply reply;
    int len = memcached_reply_read(&reply, bytes, NULL);
    if (len <= 0)
        return;
    MUST((size_t)len <= bytes.len);
    const struct span spans[] = {reply.name, reply.value};
    for (size_t i = 0; i < 2; i++)
        if (spans[i].len > 0)
            MUST(spans[i].ptr >= bytes.ptr && spans[i].ptr + spans[i].len <= bytes.ptr + len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct told whole, pieces;
    struct span rest = span_of(data, size), cuts, verbs;
    if (size < COMMANDS || size > 2000)
        return 0;
    verbs = cuts = rest;
    rest = span_of(data + COMMANDS, size - COMMANDS);
    check_reader(rest);
    begin(&whole, verbs);
    begin(&pieces, verbs);
    uint8_t *copy = bytes_copy(rest);
    link_feed(memcached_conn_link(whole.conn), span_of(copy, rest.len), 0);
    free(copy);
    while (rest.len > 0) {
        size_t len = 1 + bytes_u8(&cuts) % 8;
        len = len < rest.len ? len : rest.len;
        copy = bytes_copy(span_of(rest.ptr, len));
        link_feed(memcached_conn_link(pieces.conn), span_of(copy, len), 0);
        free(copy);
        rest = span_of(rest.ptr + len, rest.len - len);
    }
    MUST(link_wants(memcached_conn_link(whole.conn)) ==
         link_wants(memcached_conn_link(pieces.conn)));
    MUST(strcmp(whole.text, pieces.text) == 0);
    end(&whole);
    end(&pieces);
    return 0;
}
