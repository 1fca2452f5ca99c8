/* SPDX-License-Identifier: MIT */
/*
 * CL.THROTTLE as a connection answers it: 16 commands in one feed, 16 replies in one output,
 * against the bare take of the same quota on the same keys. What a socket costs is not in it.
 */
#include "load.h"
#include "traced.h"

#include "base/ns.h"
#include "frontend/resp/resp_call.h"
#include "service/quota_caches.h"

#include <stdlib.h>
#include <string.h>

#define PIPELINE 16
#define SEQUENCE_LEN ((size_t)1 << 23)
#define STEP_NS 500 /* between two commands */
#define COMMAND                                                                                    \
    "*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:000000000000\r\n$2\r\n99\r\n$3\r\n100\r\n$2\r\n60\r\n"
#define COMMAND_LEN (sizeof(COMMAND) - 1)
#define TEXT_KEY_AT 27
#define DIGITS_AT (TEXT_KEY_AT + 4)
#define DIGITS 12

struct serving {
    struct stint_table *table;
    struct server_state *server_state;
    struct service *service;
    struct resp_frontend *frontend;
    struct conn *conn;
    struct sequence sequence;
    struct stint_quota quota;
    uint64_t ops, now_ns;
    char feed[PIPELINE * COMMAND_LEN + 1];
};

static void die(const char *message)
{
    fprintf(stderr, "bench_resp: %s\n", message);
    exit(1);
}

/* Writes the keys of the next 16 commands into them, for the subject and its baseline alike. */
static void next_feed(struct serving *serving, uint64_t at)
{
    for (size_t i = 0; i < PIPELINE; i++) {
        char *digits = serving->feed + i * COMMAND_LEN + DIGITS_AT;
        uint32_t index = serving->sequence.index[(at + i) & (serving->sequence.len - 1)];
        for (int d = DIGITS - 1; d >= DIGITS - 7; d--, index /= 10)
            digits[d] = (char)('0' + index % 10);
    }
    serving->now_ns += PIPELINE * STEP_NS;
}

static void bare(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    uint64_t denied = 0;
    for (uint64_t done = 0; done < serving->ops; done += PIPELINE) {
        next_feed(serving, turn * serving->ops + done);
        for (size_t i = 0; i < PIPELINE; i++) {
            const char *key = serving->feed + i * COMMAND_LEN + TEXT_KEY_AT;
            denied += stint_take(serving->table, &serving->quota, key, KEY_LEN, 1, serving->now_ns)
                          .outcome;
        }
    }
    keep(denied);
}

static void spoken(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    struct conn *conn = serving->conn;
    uint64_t sent = 0;
    for (uint64_t done = 0; done < serving->ops; done += PIPELINE) {
        next_feed(serving, turn * serving->ops + done);
        conn->ops->feed(conn, span_of(serving->feed, PIPELINE * COMMAND_LEN), serving->now_ns);
        struct span output = conn->ops->output(conn);
        sent += output.len;
        conn->ops->sent(conn, output.len, serving->now_ns);
    }
    keep(sent);
}

static void spoken_untraced(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    serving->frontend->tracer = NULL;
    spoken(serving, turn);
}

static void spoken_traced(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    serving->frontend->tracer = service_tracer(serving->service);
    if (!traced_turn(serving->server_state, &serving->ops, spoken, serving, turn))
        die("less than half of the spans were taken");
}

static void open_serving(struct serving *serving, uint32_t n_keys)
{
    struct stint_error error;
    const struct stint_table_options table = {
        .keys = n_keys, .clock = STINT_CLOCK_VIRTUAL, .hash_key = {1, 2}};
    *serving = (struct serving){.now_ns = NS_PER_HOUR,
                                .quota = {.algorithm = STINT_GCRA,
                                          .limit = 100,
                                          .period_ns = 60 * NS_PER_S,
                                          .burst = 100,
                                          .rule = THROTTLE_RULE}};
    if (stint_quota_check(&serving->quota, &error) != 0 ||
        stint_table_open(&serving->table, &table, &error) != 0)
        die(error.message);
    const struct server_state_options server_state = {
        .table = serving->table, .workers = 1, .traces = &traced_one_percent};
    if (server_state_open(&serving->server_state, &server_state, &error) != 0)
        die(error.message);
    serving->service = service_new(serving->server_state, 0);
    serving->frontend =
        serving->service != NULL ? resp_frontend_new(serving->service, NULL, NULL) : NULL;
    serving->conn =
        serving->frontend != NULL ? resp_conn_new(serving->frontend, span_of(NULL, 0)) : NULL;
    if (serving->conn == NULL)
        die("no memory for a connection");
    serving->frontend->tracer = NULL;
    for (size_t i = 0; i < PIPELINE; i++)
        memcpy(serving->feed + i * COMMAND_LEN, COMMAND, COMMAND_LEN);
}

static void close_serving(struct serving *serving)
{
    serving->conn->ops->free(serving->conn);
    resp_frontend_free(serving->frontend);
    service_free(serving->service);
    server_state_close(serving->server_state);
    stint_table_close(serving->table);
}

/* Every key has a state before the first turn: a new key costs more than what is measured. */
static void fill(struct serving *serving, uint32_t n_keys)
{
    serving->sequence = sequence_uniform(n_keys, SEQUENCE_LEN, 3);
    serving->ops = SEQUENCE_LEN;
    bare(serving, 0);
    serving->ops = n_keys / PIPELINE * PIPELINE;
}

/* What is measured is worth nothing if it is not what clients are answered. */
static void check_answer(struct serving *serving)
{
    static const char limited[] = "*5\r\n:", limit[] = "\r\n:100\r\n:";
    spoken(serving, 0);
    next_feed(serving, 0);
    serving->conn->ops->feed(serving->conn, span_of(serving->feed, COMMAND_LEN), serving->now_ns);
    struct span output = serving->conn->ops->output(serving->conn);
    bool is_right = output.len > sizeof(limited) + sizeof(limit) &&
                    memcmp(output.ptr, limited, sizeof(limited) - 1) == 0 &&
                    memcmp(output.ptr + sizeof(limited), limit, sizeof(limit) - 1) == 0;
    if (!is_right)
        die("the connection answers something else");
    serving->conn->ops->sent(serving->conn, output.len, serving->now_ns);
}

static void run_traced(const struct bench_options *options, struct serving *serving)
{
    struct row row;
    const struct duel duel = {
        .what = "the same, 1 % of them traced",
        .baseline_name = "without traces",
        .baseline = spoken_untraced,
        .subject = spoken_traced,
        .arg = serving,
        .ops = serving->ops,
        .goal = GOAL_AT_MOST,
        .reach = 1.03,
    };
    duel_run(options, &duel, &row);
    row_report(options, &row);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    uint32_t n_keys = options.keys > 0 ? (uint32_t)options.keys : options.quick ? 100000 : 1000000;
    static struct serving serving;
    struct row row;
    char what[64], note[64];
    open_serving(&serving, n_keys);
    fill(&serving, n_keys);
    check_answer(&serving);
    snprintf(what, sizeof(what), "CL.THROTTLE spoken, %d at a time, %u k keys", PIPELINE,
             n_keys / 1000);
    const struct duel duel = {
        .what = what,
        .baseline_name = "the bare take",
        .baseline = bare,
        .subject = spoken,
        .arg = &serving,
        .ops = serving.ops,
    };
    duel_run(&options, &duel, &row);
    double over = 0;
    for (unsigned i = 0; i < row.n_turns; i++)
        over += (row.values[i] - row.baselines[i]) / row.n_turns;
    snprintf(note, sizeof(note), "%.0f ns more", over);
    row.note = note;
    row_report(&options, &row);
    run_traced(&options, &serving);
    sequence_free(&serving.sequence);
    close_serving(&serving);
    return 0;
}
