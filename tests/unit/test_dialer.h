/* SPDX-License-Identifier: MIT */
/*
 * For tests of what connects to Redis by itself: a dialer without sockets, in virtual time. A test
 * plays the servers: it reads what was sent to each as words, and says what comes back.
 */
#ifndef STINT_TESTS_TEST_DIALER_H
#define STINT_TESTS_TEST_DIALER_H

#include "unit/test.h"

#include "backend/redis/router.h"
#include "base/buf.h"
#include "base/ns.h"

#ifndef MS
#define MS NS_PER_MS
#endif
#define LINES_MAX 64
#define SAID_MAX 65536

/* One connection, as long as the router keeps it. */
struct line {
    char address[STORE_HOST_SIZE + 8]; /* host:port, or the path of a socket */
    struct redis_conn *conn;
    void *arg;
    bool is_open;
};

struct test_dialer {
    struct dialer dialer;
    struct router *router;
    struct line lines[LINES_MAX];
    size_t n_lines; /* that there ever were */
    uint64_t now_ns;
    unsigned n_hurries;
    bool is_full; /* no memory for another connection */
    bool is_freed;
    char said[SAID_MAX];
};

/* ---- The dialer ------------------------------------------------------------------------------ */

static inline uint64_t test_dialer_now(struct dialer *dialer)
{
    return ((struct test_dialer *)dialer)->now_ns;
}

static inline bool test_dialer_open(struct dialer *dialer, const struct store_host *host,
                                    const char *path, const struct redis_conn_options *options,
                                    void *arg, struct dialled *dialled)
{
    struct test_dialer *fake = (struct test_dialer *)dialer;
    if (fake->is_full)
        return false;
    assert_true(fake->n_lines < LINES_MAX);
    struct line *line = &fake->lines[fake->n_lines++];
    *line = (struct line){.conn = redis_conn_new(options), .arg = arg, .is_open = true};
    assert_non_null(line->conn);
    if (host == NULL)
        snprintf(line->address, sizeof(line->address), "%s", path);
    else
        snprintf(line->address, sizeof(line->address), "%s:%u", host->name, (unsigned)host->port);
    *dialled = (struct dialled){.conn = line->conn, .io = line};
    return true;
}

static inline void test_dialer_close(struct dialer *dialer, struct dialled *dialled)
{
    struct line *line = dialled->io;
    assert_true(line->is_open);
    line->is_open = false;
    redis_conn_free(line->conn, test_dialer_now(dialer));
    line->conn = NULL;
}

static inline void test_dialer_asked(struct dialer *dialer, struct dialled *dialled)
{
    (void)dialer;
    assert_true(((struct line *)dialled->io)->is_open);
}

static inline void test_dialer_hurry(struct dialer *dialer)
{
    ((struct test_dialer *)dialer)->n_hurries++;
}

static inline void test_dialer_free(struct dialer *dialer)
{
    ((struct test_dialer *)dialer)->is_freed = true;
}

static const struct dialer_ops test_dialer_ops = {
    .now = test_dialer_now,
    .open = test_dialer_open,
    .close = test_dialer_close,
    .asked = test_dialer_asked,
    .hurry = test_dialer_hurry,
    .free = test_dialer_free,
};

static inline void test_dialer_begin(struct test_dialer *fake)
{
    memset(fake, 0, sizeof(*fake));
    fake->dialer.ops = &test_dialer_ops;
    fake->now_ns = 1000 * MS;
}

/* ---- The other end --------------------------------------------------------------------------- */

/* The open connections to an address, the nth of them. */
static inline struct line *line_nth(struct test_dialer *fake, const char *address, unsigned nth)
{
    for (size_t i = 0; i < fake->n_lines; i++)
        if (fake->lines[i].is_open && strcmp(fake->lines[i].address, address) == 0 && nth-- == 0)
            return &fake->lines[i];
    return NULL;
}

static inline struct line *line_to(struct test_dialer *fake, const char *address)
{
    struct line *line = line_nth(fake, address, 0);
    if (line == NULL)
        fail_msg("nothing has connected to %s", address);
    return line;
}

/* What was sent since it was asked last: words by spaces, commands by "; ". */
static inline const char *sent_to(struct test_dialer *fake, struct line *line)
{
    struct span output = link_output(redis_conn_link(line->conn));
    struct buf buf = buf_of(fake->said, sizeof(fake->said));
    const char *at = (const char *)output.ptr, *end = at + output.len;
    while (at < end) {
        char *next;
        assert_int_equal(*at, '*');
        unsigned long n_words = strtoul(at + 1, &next, 10);
        if (buf.len > 0)
            buf_add(&buf, "; ");
        at = next + 2;
        for (unsigned long i = 0; i < n_words; i++) {
            unsigned long len = strtoul(at + 1, &next, 10);
            buf_add(&buf, "%s%.*s", i > 0 ? " " : "", (int)len, next + 2);
            at = next + 2 + len + 2;
        }
    }
    link_sent(redis_conn_link(line->conn), output.len);
    return fake->said;
}

static inline void assert_sent(struct test_dialer *fake, const char *address, const char *words)
{
    assert_string_equal(sent_to(fake, line_to(fake, address)), words);
}

static inline void line_told(struct test_dialer *fake, struct line *line)
{
    if (line->is_open)
        router_changed(line->arg, fake->now_ns);
}

static inline void say_on(struct test_dialer *fake, struct line *line, const char *bytes)
{
    bool was_ready = link_is_ready(redis_conn_link(line->conn));
    link_feed(redis_conn_link(line->conn), span_of_text(bytes), fake->now_ns);
    if (line->is_open && link_is_ready(redis_conn_link(line->conn)) != was_ready)
        line_told(fake, line);
}

static inline void say(struct test_dialer *fake, const char *address, const char *bytes)
{
    say_on(fake, line_to(fake, address), bytes);
}

/* The socket is there, and the server has greeted. */
static inline void greet_on(struct test_dialer *fake, struct line *line, const char *role)
{
    char hello[256];
    assert_int_equal(link_wants(redis_conn_link(line->conn)), LINK_WANTS_SOCKET);
    link_dialling(redis_conn_link(line->conn), fake->now_ns);
    link_connected(redis_conn_link(line->conn), fake->now_ns);
    (void)sent_to(fake, line);
    snprintf(hello, sizeof(hello),
             "*8\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n"
             "$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$%zu\r\n%s\r\n+OK\r\n+OK\r\n",
             strlen(role), role);
    for (int i = 0; i < 3 && !link_is_ready(redis_conn_link(line->conn)); i++) {
        const char *reply = i == 0 ? hello : "+OK\r\n";
        size_t len = i == 0 ? strlen(hello) - 10 : 5;
        link_feed(redis_conn_link(line->conn), span_of(reply, len), fake->now_ns);
    }
    assert_true(link_is_ready(redis_conn_link(line->conn)));
    line_told(fake, line);
}

/* The same, and it tells who it is. */
static inline void meet_on(struct test_dialer *fake, struct line *line, const char *run_id)
{
    char info[128], bulk[160];
    greet_on(fake, line, "master");
    assert_string_equal(sent_to(fake, line), "INFO server");
    snprintf(info, sizeof(info), "# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\nport:1\r\n",
             run_id);
    snprintf(bulk, sizeof(bulk), "$%zu\r\n%s\r\n", strlen(info), info);
    say_on(fake, line, bulk);
}

static inline void meet(struct test_dialer *fake, const char *address, const char *run_id)
{
    meet_on(fake, line_to(fake, address), run_id);
}

static inline void lose(struct test_dialer *fake, const char *address)
{
    struct line *line = line_to(fake, address);
    if (link_wants(redis_conn_link(line->conn)) == LINK_WANTS_SOCKET)
        link_dialling(redis_conn_link(line->conn), fake->now_ns);
    link_lost(redis_conn_link(line->conn), "gone", fake->now_ns);
    line_told(fake, line);
}

/* What a connection does by itself when its time comes. */
static inline void wake_line(struct test_dialer *fake, struct line *line)
{
    bool was_ready = link_is_ready(redis_conn_link(line->conn));
    link_wake(redis_conn_link(line->conn), fake->now_ns);
    if (link_wants(redis_conn_link(line->conn)) == LINK_WANTS_CLOSE) {
        link_lost(redis_conn_link(line->conn), NULL, fake->now_ns);
        line_told(fake, line);
    } else if (link_is_ready(redis_conn_link(line->conn)) != was_ready)
        line_told(fake, line);
}

/* Time passes, and whoever waits for an instant of it is woken then, in steps of a quarter ms. */
static inline void pass(struct test_dialer *fake, uint64_t length_ns)
{
    uint64_t ends_ns = fake->now_ns + length_ns;
    while (fake->now_ns < ends_ns) {
        fake->now_ns += MS / 4;
        for (size_t i = 0; i < fake->n_lines; i++) {
            struct line *line = &fake->lines[i];
            if (line->is_open && link_deadline(redis_conn_link(line->conn)) <= fake->now_ns)
                wake_line(fake, line);
        }
        for (int i = 0; router_deadline(fake->router) <= fake->now_ns; i++) {
            assert_true(i < 3); /* it does not turn in circles */
            router_wake(fake->router, fake->now_ns);
        }
    }
}

/* Until something is sent there, and then it is this. */
static inline void await_on(struct test_dialer *fake, struct line *line, const char *words,
                            uint64_t most_ns)
{
    const char *said = "";
    for (uint64_t ends_ns = fake->now_ns + most_ns; said[0] == '\0' && fake->now_ns < ends_ns;
         pass(fake, MS / 4))
        if (link_is_ready(redis_conn_link(line->conn)))
            said = sent_to(fake, line);
    assert_string_equal(said, words);
}

static inline void await(struct test_dialer *fake, const char *address, const char *words,
                         uint64_t most_ns)
{
    await_on(fake, line_to(fake, address), words, most_ns);
}

#endif
