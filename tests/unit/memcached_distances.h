/* SPDX-License-Identifier: MIT */
/*
 * Several servers of stint on one memcached, in virtual time: bytes take half a round trip each
 * way, and timers have whole milliseconds. Callers want one hot key, and each server has a quiet
 * one.
 */
#ifndef STINT_TESTS_MEMCACHED_DISTANCES_H
#define STINT_TESTS_MEMCACHED_DISTANCES_H

#include "unit/test.h"

#include "backend/front/front.h"
#include "backend/memcached/memcached_backend.h"

#include "base/ns.h"
#include "base/splitmix.h"

#define MS NS_PER_MS
#define STEP_NS (10 * NS_PER_US)
#define NEAR_NS (150 * NS_PER_US) /* a round trip */
#define NODES_MAX 3
#define CLIENTS_MAX 64
#define VALUES_MAX 32
#define GRANTS_MAX 4000000
#define TIMEOUT_NS (50 * MS)
#define WALL_NS (UINT64_C(57) * NS_PER_YEAR)

/* ---- What is tried --------------------------------------------------------------------------- */

struct node_plan {
    uint64_t rtt_ns;
    unsigned clients;  /* that wait for the hot key's answer and ask again */
    uint64_t every_ns; /* in place of that: asks come so often; 0: they do not */
    int64_t ahead_ns;  /* of its clock */
    bool is_paused;    /* now */
};

struct plan {
    const char *spec; /* of the hot key */
    uint32_t limit;   /* N of it, in one second */
    unsigned n_nodes;
    struct node_plan nodes[NODES_MAX];
    size_t denials;    /* of the front's cache */
    uint64_t stops_ns; /* memcached says nothing from then on; 0: it goes on */
    uint64_t lasts_ns;
    void (*happen)(void); /* before each step; may change the plans of nodes. NULL: nothing does */
    bool swaps_blindly;   /* an error of memcached: it does not compare */
};

/* ---- Bytes on their way ---------------------------------------------------------------------- */

struct packet {
    uint64_t due_ns;
    size_t len;
    uint8_t bytes[];
};

struct pipe {
    struct packet *packets[4096];
    unsigned first, end;
};

static void pipe_put(struct pipe *pipe, struct span bytes, uint64_t due_ns)
{
    struct packet *packet = malloc(sizeof(*packet) + bytes.len);
    assert_non_null(packet);
    assert_in_range(pipe->end - pipe->first, 0, 4095);
    packet->due_ns = due_ns;
    packet->len = bytes.len;
    memcpy(packet->bytes, bytes.ptr, bytes.len);
    pipe->packets[pipe->end++ % 4096] = packet;
}

/* NULL: none has come yet. The caller frees it. */
static struct packet *pipe_take(struct pipe *pipe, uint64_t now_ns)
{
    if (pipe->first == pipe->end || pipe->packets[pipe->first % 4096]->due_ns > now_ns)
        return NULL;
    return pipe->packets[pipe->first++ % 4096];
}

/* ---- The nodes ------------------------------------------------------------------------------- */

struct node;

struct client {
    struct backend_op op;
    struct stint_decision each[1];
    struct backend_item item;
    struct node *node;
    uint64_t asked_ns, next_ns; /* next_ns STINT_NEVER_NS: it waits for an answer */
    bool is_quiet;
};

struct node {
    struct memcached_io io;
    struct memcached_conn *conn;
    struct backend *store, *front;
    struct backend_metrics metrics;
    const struct node_plan *plan;
    struct pipe up, down;
    uint64_t timer_ns; /* as uv has it: whole milliseconds */
    struct client clients[CLIENTS_MAX + 1];
    unsigned n_clients;
    uint64_t granted, denied, failed, asked, quiet_asked, quiet_granted, quiet_slowest_ns;
};

struct value {
    char key[256];
    uint8_t bytes[64];
    size_t len;
    uint64_t number, expires_ns;
    bool was_read;
};

static struct {
    const struct plan *plan;
    struct node nodes[NODES_MAX];
    struct value values[VALUES_MAX];
    unsigned n_values;
    uint64_t number, now_ns, random;
    uint64_t reads, swaps, won; /* of the hot key */
    uint64_t *grants;           /* when a unit was granted */
    size_t n_grants;
    struct stint_quota hot, quiet;
    struct store_url url;
} sim;

/* ---- memcached ------------------------------------------------------------------------------- */

static struct value *find(const char *key)
{
    for (unsigned i = 0; i < sim.n_values; i++)
        if (strcmp(sim.values[i].key, key) == 0)
            return sim.values[i].expires_ns > sim.now_ns ? &sim.values[i] : NULL;
    return NULL;
}

static bool is_hot(const char *key)
{
    return strncmp(key, "stint:{hot}", 11) == 0;
}

static size_t answer_get(const char *line, char *out, size_t size)
{
    char key[256], flags[32];
    assert_int_equal(sscanf(line, "mg %255s %31[^\r]", key, flags), 2);
    struct value *value = find(key);
    sim.reads += is_hot(key);
    if (value == NULL)
        return (size_t)snprintf(out, size, "EN\r\n");
    size_t len = (size_t)snprintf(out, size, "VA %zu", value->len);
    if (strchr(flags, 'c') != NULL)
        len += (size_t)snprintf(out + len, size - len, " c%llu", (unsigned long long)value->number);
    if (strchr(flags, 'h') != NULL)
        len += (size_t)snprintf(out + len, size - len, " h%d", value->was_read);
    len += (size_t)snprintf(out + len, size - len, "\r\n");
    memcpy(out + len, value->bytes, value->len);
    memcpy(out + len + value->len, "\r\n", 2);
    value->was_read = true;
    return len + value->len + 2;
}

/* The same slot for a key that has expired. */
static struct value *make(const char *key)
{
    unsigned i = 0;
    while (i < sim.n_values && strcmp(sim.values[i].key, key) != 0)
        i++;
    assert_in_range(i, 0, VALUES_MAX - 1);
    sim.n_values += i == sim.n_values;
    snprintf(sim.values[i].key, sizeof(sim.values[i].key), "%s", key);
    return &sim.values[i];
}

/* "ms KEY LENGTH TTTL MODE", and MODE a letter with a number or none. */
static const char *write_value(const char *line, const char *key, const uint8_t *bytes, size_t len)
{
    struct value *value = find(key);
    unsigned long long number = 0, ttl_s;
    char mode = '\0';
    assert_true(sscanf(line, "ms %*s %*u T%llu %c%llu", &ttl_s, &mode, &number) >= 1);
    assert_in_range(ttl_s, 1, 40000);
    if (mode == 'M' && value != NULL)
        return "NS\r\n";
    if (mode == 'C' && value == NULL)
        return "NF\r\n";
    if (mode == 'C' && value->number != number && !sim.plan->swaps_blindly)
        return "EX\r\n";
    value = make(key);
    assert_in_range(len, 1, sizeof(value->bytes));
    memcpy(value->bytes, bytes, len);
    value->len = len;
    value->number = ++sim.number;
    value->was_read = false;
    value->expires_ns = sim.now_ns + ttl_s * NS_PER_S;
    sim.won += is_hot(key);
    return "HD\r\n";
}

static size_t answer_set(const char *line, const uint8_t *bytes, size_t len, char *out, size_t size)
{
    char key[256];
    assert_int_equal(sscanf(line, "ms %255s", key), 1);
    sim.swaps += is_hot(key);
    return (size_t)snprintf(out, size, "%s", write_value(line, key, bytes, len));
}

/* Runs one command; how many bytes it had. */
static size_t run_command(const uint8_t *bytes, struct pipe *down, uint64_t due_ns)
{
    char line[512], out[512];
    const uint8_t *end = memchr(bytes, '\r', sizeof(line) - 1);
    assert_non_null(end);
    size_t len = (size_t)(end - bytes), value_len = 0, out_len;
    memcpy(line, bytes, len);
    line[len] = '\0';
    if (memcmp(line, "ms ", 3) == 0) {
        assert_int_equal(sscanf(line, "ms %*s %zu", &value_len), 1);
        out_len = answer_set(line, end + 2, value_len, out, sizeof(out));
        value_len += 2;
    } else {
        assert_memory_equal(line, "mg ", 3);
        out_len = answer_get(line, out, sizeof(out));
    }
    pipe_put(down, span_of(out, out_len), due_ns);
    return len + 2 + value_len;
}

static void serve(struct node *node)
{
    bool is_silent = sim.plan->stops_ns != 0 && sim.now_ns >= sim.plan->stops_ns;
    for (struct packet *packet; (packet = pipe_take(&node->up, sim.now_ns)) != NULL; free(packet))
        for (size_t at = 0; at < packet->len && !is_silent;)
            at += run_command(packet->bytes + at, &node->down, sim.now_ns + node->plan->rtt_ns / 2);
}

/* ---- What a store needs ---------------------------------------------------------------------- */

static uint64_t io_now(struct memcached_io *io)
{
    (void)io;
    return sim.now_ns;
}

static uint64_t io_wall(struct memcached_io *io)
{
    return WALL_NS + sim.now_ns + (uint64_t)((struct node *)io)->plan->ahead_ns;
}

static void io_digest(void *arg, struct span bytes, uint8_t out[MEMCACHED_DIGEST_LEN])
{
    (void)arg;
    (void)bytes;
    memset(out, 0, MEMCACHED_DIGEST_LEN);
}

static void io_asked(struct memcached_io *io, unsigned server)
{
    (void)io;
    assert_int_equal(server, 0);
}

static void io_hurry(struct memcached_io *io)
{
    struct node *node = (struct node *)io;
    uint64_t at_ns = memcached_backend_deadline(node->store);
    if (at_ns < node->timer_ns)
        node->timer_ns = at_ns == STINT_NEVER_NS ? at_ns : (at_ns + MS - 1) / MS * MS;
}

static void io_skewed(struct memcached_io *io, uint64_t skew_ns)
{
    (void)io;
    (void)skew_ns;
}

static void io_damaged(struct memcached_io *io, uint64_t states)
{
    (void)io;
    (void)states;
}

static void io_close(struct memcached_io *io)
{
    link_free(memcached_conn_link(((struct node *)io)->conn), sim.now_ns);
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

/* ---- Clients --------------------------------------------------------------------------------- */

static uint64_t jittered(uint64_t length_ns)
{
    return length_ns / 2 + splitmix_next(&sim.random) % length_ns;
}

static uint64_t rest_of(const struct client *client)
{
    const struct node_plan *plan = client->node->plan;
    uint64_t every_ns = client->is_quiet ? 50 * MS : plan->every_ns;
    return jittered(every_ns > 0 ? every_ns : 100 * NS_PER_US);
}

static void note_answer(struct client *client, uint64_t now_ns)
{
    struct node *node = client->node;
    const struct backend_answer *answer = &client->op.answer;
    bool is_granted = answer->outcome == BACKEND_DECIDED && answer->sum.outcome == STINT_ALLOW;
    uint64_t took_ns = now_ns - client->asked_ns;
    client->next_ns = now_ns + rest_of(client);
    if (client->is_quiet) {
        node->quiet_granted += is_granted;
        if (took_ns > node->quiet_slowest_ns)
            node->quiet_slowest_ns = took_ns;
        return;
    }
    node->granted += is_granted;
    node->denied += answer->outcome == BACKEND_DECIDED && !is_granted;
    node->failed += answer->outcome != BACKEND_DECIDED;
    if (is_granted) {
        assert_in_range(sim.n_grants, 0, GRANTS_MAX - 1);
        sim.grants[sim.n_grants++] = answer->at_ns - WALL_NS - (uint64_t)node->plan->ahead_ns;
    }
}

static void answered(struct backend_op *op, uint64_t now_ns)
{
    note_answer(op->arg, now_ns);
}

static void ask(struct client *client)
{
    struct node *node = client->node;
    const struct backend_request asked = {
        .verb = REQUEST_TAKE,
        .items = &client->item,
        .n_items = 1,
        .now_ns = sim.now_ns,
        .deadline_ns = sim.now_ns + TIMEOUT_NS,
    };
    client->op =
        (struct backend_op){.answer.each = client->each, .answered = answered, .arg = client};
    client->asked_ns = sim.now_ns;
    client->next_ns = STINT_NEVER_NS;
    node->asked += !client->is_quiet;
    node->quiet_asked += client->is_quiet;
    node->front->ops->ask(node->front, &asked, &client->op);
    if (client->op.answer.outcome != BACKEND_WAITS)
        note_answer(client, sim.now_ns);
}

/* ---- A run ----------------------------------------------------------------------------------- */

static void drop_packets(struct pipe *pipe)
{
    for (struct packet *packet; (packet = pipe_take(pipe, STINT_NEVER_NS)) != NULL;)
        free(packet);
}

static void greet(struct node *node)
{
    struct link *link = memcached_conn_link(node->conn);
    link_dialling(link, sim.now_ns);
    link_connected(link, sim.now_ns);
    link_sent(link, link_output(link).len);
    link_feed(link, span_of_text("VERSION 1.6.18\r\nEND\r\n"), sim.now_ns);
    assert_true(link_is_ready(link));
    memcached_backend_changed(node->store, sim.now_ns);
}

static void open_node(struct node *node, unsigned number)
{
    static const char *const quiet[NODES_MAX] = {"quiet-0", "quiet-1", "quiet-2"};
    *node = (struct node){
        .io.ops = &io_ops, .plan = &sim.plan->nodes[number], .timer_ns = STINT_NEVER_NS};
    node->conn = memcached_conn_new(&(struct link_options){.seed = number});
    node->store = memcached_backend_new(&(struct memcached_backend_options){
        .url = &sim.url, .io = &node->io, .conns = &node->conn, .beat_ns = NS_PER_HOUR});
    assert_non_null(node->store);
    node->front = front_new(&(struct front_options){
        .inner = node->store, .denials = sim.plan->denials, .metrics = &node->metrics});
    assert_non_null(node->front);
    node->n_clients = (node->plan->every_ns > 0 ? 1 : node->plan->clients) + 1;
    for (unsigned i = 0; i < node->n_clients; i++) {
        struct client *client = &node->clients[i];
        client->node = node;
        client->is_quiet = i == 0;
        client->item = (struct backend_item){
            .quota = i == 0 ? &sim.quiet : &sim.hot,
            .name = span_of_text("r"),
            .key = span_of_text(i == 0 ? quiet[number] : "hot"),
            .cost = 1,
        };
        client->next_ns = sim.now_ns + rest_of(client);
    }
    greet(node);
}

static void step(struct node *node)
{
    struct link *link = memcached_conn_link(node->conn);
    for (struct packet *packet; (packet = pipe_take(&node->down, sim.now_ns)) != NULL; free(packet))
        link_feed(link, span_of(packet->bytes, packet->len), sim.now_ns);
    for (unsigned i = 0; i < node->n_clients; i++)
        if (node->clients[i].next_ns <= sim.now_ns)
            ask(&node->clients[i]);
    if (node->timer_ns <= sim.now_ns) {
        node->timer_ns = STINT_NEVER_NS;
        memcached_backend_wake(node->store, sim.now_ns);
        io_hurry(&node->io);
    }
    if (link_deadline(link) <= sim.now_ns)
        link_wake(link, sim.now_ns);
    struct span output = link_output(link);
    if (output.len == 0)
        return;
    pipe_put(&node->up, output, sim.now_ns + node->plan->rtt_ns / 2);
    link_sent(link, output.len);
}

static void run(const struct plan *plan, uint64_t seed)
{
    memset(&sim, 0, sizeof(sim));
    sim.plan = plan;
    sim.random = seed;
    sim.now_ns = NS_PER_S;
    sim.grants = malloc(GRANTS_MAX * sizeof(*sim.grants));
    assert_non_null(sim.grants);
    assert_int_equal(stint_quota_parse(&sim.hot, plan->spec, NULL), 0);
    assert_int_equal(stint_quota_parse(&sim.quiet, "window 1000/1s", NULL), 0);
    assert_int_equal(store_url_parse(&sim.url, "memcached://one", NULL), 0);
    for (unsigned i = 0; i < plan->n_nodes; i++)
        open_node(&sim.nodes[i], i);
    for (uint64_t ends_ns = sim.now_ns + plan->lasts_ns; sim.now_ns < ends_ns;
         sim.now_ns += STEP_NS) {
        unsigned first = (unsigned)(splitmix_next(&sim.random) % plan->n_nodes);
        for (unsigned i = 0; i < plan->n_nodes; i++)
            serve(&sim.nodes[(first + i) % plan->n_nodes]);
        for (unsigned i = 0; i < plan->n_nodes; i++)
            if (!sim.nodes[i].plan->is_paused)
                step(&sim.nodes[i]);
        if (plan->happen != NULL)
            plan->happen();
    }
}

static int by_time(const void *left, const void *right)
{
    uint64_t one = *(const uint64_t *)left, other = *(const uint64_t *)right;
    return (one > other) - (one < other);
}

static void sort_grants(void)
{
    qsort(sim.grants, sim.n_grants, sizeof(*sim.grants), by_time);
}

static void end(void)
{
    for (unsigned i = 0; i < sim.plan->n_nodes; i++) {
        struct node *node = &sim.nodes[i];
        node->front->ops->free(node->front);
        drop_packets(&node->up);
        drop_packets(&node->down);
    }
    free(sim.grants);
}

#endif
