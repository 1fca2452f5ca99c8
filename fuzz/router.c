/* SPDX-License-Identifier: MIT */
/*
 * A router among servers that say anything at any time: whoever asks is answered once, and in time;
 * what is not repeatable goes out again only after a reply that refused it; and nothing is kept.
 */
#include "bytes.h"

#include "backend/redis/cluster.h"
#include "backend/redis/router.h"
#include "base/ns.h"

#define LINES_MAX 256
#define ASKS_MAX 16
#define KEY_LEN 4
#define STEPS_MAX 400
#define STEP_NS (NS_PER_MS / 2)

struct line {
    struct redis_conn *conn; /* NULL: closed */
    void *arg;
};

struct asked {
    struct router_ask *ask; /* NULL: answered, or none */
    uint64_t deadline_ns;
    unsigned number;            /* its key: of no two the same */
    unsigned n_sent, n_refused; /* of those in which its key was seen */
    bool is_repeatable;
};

static struct world {
    struct dialer dialer;
    struct router *router;
    struct line lines[LINES_MAX];
    size_t n_lines;
    unsigned n_asked;
    struct asked asks[ASKS_MAX];
    uint64_t now_ns;
    bool is_freed, is_ending;
} world;

/* ---- The dialer ------------------------------------------------------------------------------ */

static uint64_t op_now(struct dialer *dialer)
{
    (void)dialer;
    return world.now_ns;
}

static bool op_open(struct dialer *dialer, const struct store_host *host, const char *path,
                    const struct redis_conn_options *options, void *arg, struct dialled *dialled)
{
    (void)dialer;
    (void)host;
    (void)path;
    if (world.n_lines == LINES_MAX)
        return false;
    struct line *line = &world.lines[world.n_lines++];
    *line = (struct line){.conn = redis_conn_new(options), .arg = arg};
    MUST(line->conn != NULL);
    *dialled = (struct dialled){.conn = line->conn, .io = line};
    return true;
}

static void op_close(struct dialer *dialer, struct dialled *dialled)
{
    struct line *line = dialled->io;
    (void)dialer;
    MUST(line->conn != NULL);
    redis_conn_free(line->conn, world.now_ns);
    line->conn = NULL;
}

static void op_asked(struct dialer *dialer, struct dialled *dialled)
{
    (void)dialer;
    MUST(((struct line *)dialled->io)->conn != NULL);
}

static void op_hurry(struct dialer *dialer)
{
    (void)dialer;
}

static void op_free(struct dialer *dialer)
{
    (void)dialer;
    world.is_freed = true;
}

static const struct dialer_ops ops = {op_now, op_open, op_close, op_asked, op_hurry, op_free};

/* ---- Asks ------------------------------------------------------------------------------------ */

static void on_answered(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                        uint64_t now_ns)
{
    struct asked *asked = arg;
    MUST(asked->ask != NULL);
    MUST((reply != NULL) == (outcome == LINK_DONE || outcome == LINK_REFUSED));
    MUST(world.is_ending || now_ns < asked->deadline_ns + 2 * STEP_NS);
    MUST(outcome != LINK_UNSENT || asked->is_repeatable || asked->n_sent <= asked->n_refused);
    asked->ask = NULL;
}

static void ask(uint8_t choice)
{
    struct asked *asked = &world.asks[choice % ASKS_MAX];
    if (asked->ask != NULL)
        return;
    char key[KEY_LEN + 1];
    unsigned number = world.n_asked++;
    snprintf(key, sizeof(key), "%04u", number % 10000);
    const struct span words[] = {span_of_text("GET"), span_of(key, KEY_LEN)};
    *asked = (struct asked){.number = number,
                            .deadline_ns = world.now_ns + (choice / ASKS_MAX + 1u) * 10 * NS_PER_MS,
                            .is_repeatable = choice % 5 == 0};
    asked->ask = router_ask(world.router,
                            &(struct router_command){.slot = choice * 64u,
                                                     .words = words,
                                                     .n_words = 2,
                                                     .deadline_ns = asked->deadline_ns,
                                                     .is_repeatable = asked->is_repeatable,
                                                     .answered = on_answered,
                                                     .arg = asked},
                            world.now_ns);
}

/* ---- Connections ----------------------------------------------------------------------------- */

static void told(struct line *line, bool was_ready)
{
    if (link_wants(redis_conn_link(line->conn)) == LINK_WANTS_CLOSE)
        link_lost(redis_conn_link(line->conn), NULL, world.now_ns);
    if (link_is_ready(redis_conn_link(line->conn)) != was_ready)
        router_changed(line->arg, world.now_ns);
}

static struct asked *find(unsigned number)
{
    for (size_t i = 0; i < ASKS_MAX; i++)
        if (world.asks[i].ask != NULL && world.asks[i].number == number)
            return &world.asks[i];
    return NULL;
}

/* All of it leaves: which asks went out is seen by their keys. */
static void flush(struct line *line)
{
    struct span output = link_output(redis_conn_link(line->conn));
    static const char get[] = "$3\r\nGET\r\n$4\r\n";
    for (size_t at = 0; at + sizeof(get) + KEY_LEN <= output.len; at++) {
        if (memcmp(output.ptr + at, get, sizeof(get) - 1) != 0)
            continue;
        char key[KEY_LEN + 1] = "";
        memcpy(key, output.ptr + at + sizeof(get) - 1, KEY_LEN);
        struct asked *asked = find((unsigned)strtoul(key, NULL, 10));
        if (asked == NULL)
            continue;
        asked->n_sent++;
        MUST(asked->is_repeatable || asked->n_sent <= asked->n_refused + 1);
    }
    link_sent(redis_conn_link(line->conn), output.len);
}

static const char *const said[] = {
    "*8\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.1\r\n$4\r\nmode\r\n$7\r\n"
    "cluster\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
    "$10\r\nrun_id:a\r\n\r\n",
    "$10\r\nrun_id:b\r\n\r\n",
    "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:1\r\n",
    "*2\r\n*3\r\n:0\r\n:8000\r\n*2\r\n$1\r\na\r\n:1\r\n*3\r\n:8001\r\n:16383\r\n*2\r\n$1\r\nb\r\n:"
    "2\r\n",
    "*2\r\n$1\r\nm\r\n$1\r\n1\r\n",
    "*2\r\n$1\r\nn\r\n$1\r\n1\r\n",
    "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$11\r\nm o 1 n 222\r\n",
    "+OK\r\n",
    "-MOVED 1 a:1\r\n",
    "-MOVED 1 c:3\r\n",
    "-ASK 1 b:2\r\n",
    "-TRYAGAIN\r\n",
    "-CLUSTERDOWN\r\n",
    "-READONLY\r\n",
    "-LOADING\r\n",
    "-OOM\r\n",
    ":1\r\n",
};

/* An error refuses whatever of ours it may be the reply to; more is not known from outside. */
static void print_message(struct line *line, const char *bytes)
{
    bool was_ready = link_is_ready(redis_conn_link(line->conn));
    flush(line);
    if (bytes[0] == '-')
        for (size_t i = 0; i < ASKS_MAX; i++)
            world.asks[i].n_refused++;
    link_feed(redis_conn_link(line->conn), span_of_text(bytes), world.now_ns);
    told(line, was_ready);
}

static void connect_to(struct line *line)
{
    if (link_wants(redis_conn_link(line->conn)) != LINK_WANTS_SOCKET)
        return;
    link_dialling(redis_conn_link(line->conn), world.now_ns);
    link_connected(redis_conn_link(line->conn), world.now_ns);
    print_message(line, said[0]);
    print_message(line, said[1]);
}

static void lose(struct line *line)
{
    bool was_ready = link_is_ready(redis_conn_link(line->conn));
    if (link_wants(redis_conn_link(line->conn)) == LINK_WANTS_SOCKET)
        link_dialling(redis_conn_link(line->conn), world.now_ns);
    link_lost(redis_conn_link(line->conn), "gone", world.now_ns);
    told(line, was_ready);
    if (!was_ready)
        router_changed(line->arg, world.now_ns);
}

static void pass(unsigned n_steps)
{
    for (; n_steps > 0; n_steps--) {
        world.now_ns += STEP_NS;
        for (size_t i = 0; i < world.n_lines; i++) {
            struct line *line = &world.lines[i];
            if (line->conn == NULL || link_deadline(redis_conn_link(line->conn)) > world.now_ns)
                continue;
            bool was_ready = link_is_ready(redis_conn_link(line->conn));
            link_wake(redis_conn_link(line->conn), world.now_ns);
            told(line, was_ready);
        }
        for (int i = 0; router_deadline(world.router) <= world.now_ns; i++) {
            MUST(i < 4);
            router_wake(world.router, world.now_ns);
        }
    }
}

static void step(struct span *bytes)
{
    uint8_t what = bytes_u8(bytes), choice = bytes_u8(bytes);
    if (what % 4 == 0)
        ask(choice);
    else if (what % 16 == 1)
        pass(choice % 64 + 1);
    else if (what % 64 == 2 && world.asks[choice % ASKS_MAX].ask != NULL) {
        router_forget(world.asks[choice % ASKS_MAX].ask);
        world.asks[choice % ASKS_MAX].ask = NULL;
    } else if (world.n_lines > 0) {
        /* The latest are those that live. */
        size_t back = choice % (world.n_lines < 8 ? world.n_lines : 8);
        struct line *line = &world.lines[world.n_lines - 1 - back];
        if (line->conn == NULL)
            return;
        if (what % 16 == 3)
            connect_to(line);
        else if (what % 64 == 6)
            lose(line);
        else if (link_wants(redis_conn_link(line->conn)) == LINK_WANTS_NOTHING)
            print_message(line, said[what % (sizeof(said) / sizeof(said[0]))]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"redis://a", "redis://a,b", "redis-cluster://a:1,b:2",
                                       "redis-sentinel://s:1,t:2/m"};
    struct span bytes = span_of(data, size);
    struct store_url url;
    world = (struct world){.dialer = {&ops}, .now_ns = NS_PER_S};
    MUST(store_url_parse(&url, urls[bytes_u8(&bytes) % 4], NULL) == 0);
    world.router = router_new(&(struct router_options){
        .url = &url, .dialer = &world.dialer, .asks_max = ASKS_MAX / 2, .seed = 1});
    MUST(world.router != NULL);
    pass(1);
    for (int i = 0; i < STEPS_MAX && bytes.len > 0; i++)
        step(&bytes);
    pass(600); /* longer than any deadline, and a reply: nobody is left waiting */
    for (size_t i = 0; i < ASKS_MAX; i++)
        MUST(world.asks[i].ask == NULL);
    for (uint8_t i = 0; i < ASKS_MAX / 2; i++) { /* there is room for as many as at first */
        ask(i);
        MUST(world.asks[i].ask != NULL);
    }
    world.is_ending = true;
    router_free(world.router);
    MUST(world.is_freed);
    for (size_t i = 0; i < world.n_lines; i++)
        MUST(world.lines[i].conn == NULL);
    return 0;
}
