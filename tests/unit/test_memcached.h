/* SPDX-License-Identifier: MIT */
/* A memcached for unit tests, whose servers answer one command when they are told to. */
#ifndef STINT_TESTS_TEST_MEMCACHED_H
#define STINT_TESTS_TEST_MEMCACHED_H

#include "unit/test.h"

#include "backend/memcached/memcached_backend.h"
#include "backend/memcached/memcached_state.h"

#include "base/ns.h"

#define MS NS_PER_MS
#define SERVERS 2
#define VALUES_MAX 16
#define BEGAN_NS (UINT64_C(56) * NS_PER_YEAR) /* 2025, at a change of epochs */

/* ---- The servers ----------------------------------------------------------------------------- */

struct value {
    char key[256], bytes[512];
    size_t len;
    uint64_t number, ttl_s;
};

struct server {
    struct memcached_conn *conn;
    struct value values[VALUES_MAX];
    size_t n_values;
    uint64_t number;
    unsigned reads, writes;
    bool is_unavailable;
    const char *fault; /* that it answers writes with */
};

static struct server servers[SERVERS];
static struct store_url url;
static struct backend *store;
static uint64_t now_ns, wall_ns, skew_told_ns;
static unsigned hurried;

static inline struct value *find(struct server *server, const char *key)
{
    for (size_t i = 0; i < server->n_values; i++)
        if (strcmp(server->values[i].key, key) == 0)
            return &server->values[i];
    return NULL;
}

static inline void answer(struct server *server, const char *text)
{
    link_feed(memcached_conn_link(server->conn), span_of_text(text), now_ns);
}

static inline void answer_get(struct server *server, const char *key)
{
    char head[64];
    struct value *value = find(server, key);
    struct link *link = memcached_conn_link(server->conn);
    server->reads++;
    if (value == NULL) {
        answer(server, "EN\r\n");
        return;
    }
    snprintf(head, sizeof(head), "VA %zu c%llu\r\n", value->len, (unsigned long long)value->number);
    answer(server, head);
    link_feed(link, span_of(value->bytes, value->len), now_ns);
    answer(server, "\r\n");
}

/* What it says to a write: 'M' adds, 'C' compares. The value is written where it says HD. */
static inline const char *write_value(struct server *server, const char *key, struct value *written,
                                      uint64_t compared, char flag)
{
    struct value *value = find(server, key);
    if (server->fault != NULL)
        return server->fault;
    if (flag == 'M' && value != NULL)
        return "NS\r\n";
    if (flag == 'C' && value == NULL)
        return "NF\r\n";
    if (flag == 'C' && value->number != compared)
        return "EX\r\n";
    if (value == NULL) {
        assert_in_range(server->n_values, 0, VALUES_MAX - 1);
        value = &server->values[server->n_values++];
    }
    written->number = ++server->number;
    *value = *written;
    server->writes++;
    return "HD\r\n";
}

static inline size_t do_write(struct server *server, const char *line, const char *end)
{
    struct value written = {.len = 0};
    unsigned long long ttl, number = 0;
    char key[256], flag = '\0';
    char words[512];
    snprintf(words, sizeof(words), "%.*s", (int)(end - line), line);
    assert_in_range(
        sscanf(words, "ms %255s %zu T%llu %c%llu", key, &written.len, &ttl, &flag, &number), 3, 5);
    assert_in_range(written.len, 1, sizeof(written.bytes));
    snprintf(written.key, sizeof(written.key), "%s", key);
    written.ttl_s = ttl;
    memcpy(written.bytes, end + 2, written.len);
    answer(server, write_value(server, key, &written, number, flag));
    return written.len + 2;
}

static inline void do_delete(struct server *server, const char *key)
{
    struct value *value = find(server, key);
    if (value == NULL) {
        answer(server, "NF\r\n");
        return;
    }
    *value = server->values[--server->n_values];
    answer(server, "HD\r\n");
}

/* Runs the first command that waits to be sent; false: there is none. */
static inline bool run_one(struct server *server)
{
    struct link *link = memcached_conn_link(server->conn);
    struct span output = link_output(link);
    char text[2048], key[256];
    if (output.len == 0)
        return false;
    assert_in_range(output.len, 1, sizeof(text) - 1);
    memcpy(text, output.ptr, output.len);
    text[output.len] = '\0';
    const char *end = strstr(text, "\r\n");
    assert_non_null(end);
    size_t len = (size_t)(end - text) + 2, value_len = 0;
    if (strncmp(text, "ms ", 3) == 0)
        assert_int_equal(sscanf(text, "ms %*s %zu", &value_len), 1);
    link_sent(link, len + (value_len > 0 ? value_len + 2 : 0));
    if (sscanf(text, "mg %255s v c h", key) == 1)
        answer_get(server, key);
    else if (sscanf(text, "md %255s", key) == 1)
        do_delete(server, key);
    else
        do_write(server, text, end);
    return true;
}

static inline void run_all(void)
{
    bool has_run = true;
    while (has_run) {
        has_run = false;
        for (unsigned i = 0; i < SERVERS; i++)
            has_run = (!servers[i].is_unavailable && run_one(&servers[i])) || has_run;
    }
}

static inline void greet(struct server *server)
{
    struct link *link = memcached_conn_link(server->conn);
    link_dialling(link, now_ns);
    link_connected(link, now_ns);
    link_sent(link, link_output(link).len);
    answer(server, "VERSION 1.6.18\r\nEND\r\n");
    assert_true(link_is_ready(link));
    server->is_unavailable = false;
    memcached_backend_changed(store, now_ns);
}

static inline void cut(struct server *server)
{
    link_lost(memcached_conn_link(server->conn), "reset", now_ns);
    server->is_unavailable = true;
}

/* ---- What the store has ---------------------------------------------------------------------- */

static inline uint64_t io_now(struct memcached_io *io)
{
    (void)io;
    return now_ns;
}

static inline uint64_t io_wall(struct memcached_io *io)
{
    (void)io;
    return wall_ns;
}

/* No hash, but another one for each of the names here. */
static inline void io_digest(void *arg, struct span bytes, uint8_t out[MEMCACHED_DIGEST_LEN])
{
    (void)arg;
    memset(out, 0, MEMCACHED_DIGEST_LEN);
    for (size_t i = 0; i < bytes.len; i++)
        out[i % MEMCACHED_DIGEST_LEN] =
            (uint8_t)(31 * out[i % MEMCACHED_DIGEST_LEN] + bytes.ptr[i]);
}

static inline void io_asked(struct memcached_io *io, unsigned server)
{
    (void)io;
    assert_in_range(server, 0, SERVERS - 1);
}

static inline void io_hurry(struct memcached_io *io)
{
    (void)io;
    hurried++;
}

static inline void io_skewed(struct memcached_io *io, uint64_t skew_ns)
{
    (void)io;
    skew_told_ns = skew_ns;
}

static inline void io_damaged(struct memcached_io *io, uint64_t states)
{
    (void)io;
    (void)states;
}

static inline void io_close(struct memcached_io *io)
{
    (void)io;
    for (unsigned i = 0; i < SERVERS; i++)
        link_free(memcached_conn_link(servers[i].conn), now_ns);
}

static const struct memcached_io_ops io_ops = {
    .now = io_now,
    .wall = io_wall,
    .digest = io_digest,
    .asked = io_asked,
    .hurry = io_hurry,
    .skewed = io_skewed,
    .damaged = io_damaged,
    .close = io_close,
};
static struct memcached_io io = {&io_ops};

SETUP
{
    static struct memcached_conn *conns[SERVERS];
    now_ns = NS_PER_S;
    wall_ns = BEGAN_NS + 500 * NS_PER_DAY;
    skew_told_ns = hurried = 0;
    assert_int_equal(store_url_parse(&url, "memcached://one,two", NULL), 0);
    memset(servers, 0, sizeof(servers));
    for (unsigned i = 0; i < SERVERS; i++)
        conns[i] = servers[i].conn = memcached_conn_new(&(struct link_options){0});
    store = memcached_backend_new(&(struct memcached_backend_options){
        .url = &url, .io = &io, .conns = conns, .prefix = "p:", .beat_ns = NS_PER_HOUR});
    assert_non_null(store);
    for (unsigned i = 0; i < SERVERS; i++)
        greet(&servers[i]);
    run_all(); /* the look at clocks */
    for (unsigned i = 0; i < SERVERS; i++)
        servers[i].reads = servers[i].writes = 0;
}

TEARDOWN
{
    if (store != NULL)
        store->ops->free(store);
    store = NULL;
}

static inline const struct memcached_metrics *metrics(void)
{
    return memcached_backend_metrics(store);
}

static inline unsigned all_reads(void)
{
    return servers[0].reads + servers[1].reads;
}

static inline unsigned all_writes(void)
{
    return servers[0].writes + servers[1].writes;
}

/* ---- Asks ------------------------------------------------------------------------------------ */

#define ITEMS_MAX 4

struct asked {
    struct backend_op op;
    struct stint_quota quotas[ITEMS_MAX];
    struct backend_item items[ITEMS_MAX];
    struct stint_decision each[ITEMS_MAX];
    struct backend_request ask;
    unsigned n_answers;
};

static inline void note(struct backend_op *op, uint64_t at_ns)
{
    struct asked *asked = op->arg;
    assert_int_equal(at_ns, now_ns);
    asked->n_answers++;
}

static inline void add(struct asked *asked, const char *spec, const char *key, uint32_t cost)
{
    size_t i = asked->ask.n_items++;
    assert_int_equal(stint_quota_parse(&asked->quotas[i], spec, NULL), 0);
    asked->items[i] = (struct backend_item){.quota = &asked->quotas[i],
                                            .name = span_of_text("r"),
                                            .key = span_of_text(key),
                                            .cost = cost};
}

static inline void start(struct asked *asked, enum request_verb verb)
{
    asked->op = (struct backend_op){.answer.each = asked->each, .answered = note, .arg = asked};
    asked->ask.verb = (uint8_t)verb;
    asked->ask.items = asked->items;
    asked->ask.now_ns = now_ns;
    asked->ask.deadline_ns = now_ns + 50 * MS;
    store->ops->ask(store, &asked->ask, &asked->op);
}

/* One key, which is asked and not answered yet. */
static inline void start_one(struct asked *asked, enum request_verb verb, const char *spec,
                             const char *key, uint32_t cost)
{
    *asked = (struct asked){.n_answers = 0};
    add(asked, spec, key, cost);
    start(asked, verb);
}

static inline struct stint_decision take(const char *spec, const char *key, uint32_t cost)
{
    struct asked asked;
    start_one(&asked, REQUEST_TAKE, spec, key, cost);
    run_all();
    assert_int_equal(asked.n_answers, 1);
    assert_int_equal(asked.op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asked.op.answer.at_ns, wall_ns);
    return asked.op.answer.sum;
}

static inline uint32_t left_of(const char *spec, const char *key)
{
    return take(spec, key, 0).remaining;
}

static inline struct server *server_of(const char *spec, const char *key)
{
    unsigned reads = servers[0].reads;
    left_of(spec, key);
    return servers[0].reads > reads ? &servers[0] : &servers[1];
}

static inline void assert_failed(const struct asked *asked, enum backend_error fault)
{
    assert_int_equal(asked->n_answers, 1);
    assert_int_equal(asked->op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(asked->op.answer.fault, fault);
    assert_true(strlen(asked->op.answer.error) > 10);
}

static inline void assert_decided(const struct asked *asked, enum stint_outcome outcome,
                                  uint32_t granted)
{
    assert_int_equal(asked->n_answers, 1);
    assert_int_equal(asked->op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asked->op.answer.sum.outcome, outcome);
    assert_int_equal(asked->op.answer.sum.granted, granted);
}

/* Another node takes units of a key, by a state of its own. */
static inline void rival_takes(struct server *server, const char *spec, const char *name,
                               uint32_t cost)
{
    struct memcached_state state = {.len = 0};
    struct stint_quota quota;
    struct stint_decision decision;
    struct value *value = find(server, name);
    assert_int_equal(stint_quota_parse(&quota, spec, NULL), 0);
    if (value == NULL) {
        value = &server->values[server->n_values++];
        snprintf(value->key, sizeof(value->key), "%s", name);
    } else
        memcached_state_read(&state, span_of(value->bytes, value->len));
    const struct memcached_step step = {.quota = &quota, .now_ns = wall_ns, .cost = cost};
    assert_int_equal(memcached_state_ask(&state, &step, &decision, NULL), 0);
    assert_int_equal(decision.granted, cost);
    memcpy(value->bytes, state.bytes, state.len);
    value->len = state.len;
    value->number = ++server->number;
}

#endif
