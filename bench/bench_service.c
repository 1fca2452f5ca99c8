/* SPDX-License-Identifier: MIT */
/*
 * CL.THROTTLE as a worker of the server answers it, from a request to a reply, against the bare
 * take of the same quota on the same key: what roles, rules, figures and the rest cost.
 */
#include "load.h"

#include "base/ns.h"
#include "conn/access.h"
#include "conn/service.h"
#include "conn/throttle_cache.h"

#include <stdlib.h>

#define SEQUENCE_LEN ((size_t)1 << 23)
#define STEP_NS 500 /* between two requests of a worker */

struct serving {
    struct stint_table *table;
    struct hub *hub;
    struct service *service;
    struct sequence sequence;
    struct stint_quota quota;
    uint64_t ops, now_ns;
};

static const struct request_throttle throttle = {
    .max_burst = 99, .count_per_period = 100, .period_s = 60};

static void bare(void *arg, unsigned turn)
{
    struct serving *serving = arg;
    uint64_t at = turn * serving->ops, denied = 0;
    for (uint64_t i = 0; i < serving->ops; i++) {
        struct key key = sequence_key(&serving->sequence, at + i);
        serving->now_ns += STEP_NS;
        denied +=
            stint_take(serving->table, &serving->quota, &key, KEY_LEN, 1, serving->now_ns).outcome;
    }
    keep(denied);
}

static void served(void *arg, unsigned turn)
{
    static const struct caller caller = {.name = "", .roles = ACCESS_ALL};
    struct serving *serving = arg;
    struct reply reply;
    uint64_t at = turn * serving->ops, denied = 0;
    for (uint64_t i = 0; i < serving->ops; i++) {
        struct key key = sequence_key(&serving->sequence, at + i);
        struct request request = {.verb = REQUEST_THROTTLE,
                                  .cost = 1,
                                  .throttle = throttle,
                                  .key = span_of(&key, KEY_LEN)};
        serving->now_ns += STEP_NS;
        service_ask(serving->service, &request, &caller, serving->now_ns, &reply);
        denied += reply.decision.outcome;
    }
    keep(denied);
}

static void die(const char *sentence)
{
    fprintf(stderr, "bench_service: %s\n", sentence);
    exit(1);
}

static void open_serving(struct serving *serving, uint32_t n_keys)
{
    struct stint_error error;
    const struct stint_table_options table = {.keys = n_keys, .clock = STINT_CLOCK_VIRTUAL};
    *serving = (struct serving){.now_ns = NS_PER_HOUR,
                                .quota = {.algorithm = STINT_GCRA,
                                          .limit = (uint32_t)throttle.count_per_period,
                                          .period_ns = throttle.period_s * NS_PER_S,
                                          .burst = (uint32_t)throttle.max_burst + 1,
                                          .rule = THROTTLE_RULE}};
    if (stint_quota_check(&serving->quota, &error) != 0 ||
        stint_table_open(&serving->table, &table, &error) != 0)
        die(error.sentence);
    const struct hub_options hub = {.table = serving->table, .workers = 1};
    if (hub_open(&serving->hub, &hub, &error) != 0)
        die(error.sentence);
    serving->service = service_new(serving->hub, 0);
    if (serving->service == NULL)
        die("no memory for a service");
}

static void close_serving(struct serving *serving)
{
    service_free(serving->service);
    hub_close(serving->hub);
    stint_table_close(serving->table);
}

/* Every key has a state before the first turn: a newcomer costs more than what is measured. */
static void fill(struct serving *serving, uint32_t n_keys)
{
    serving->sequence = sequence_uniform(n_keys, SEQUENCE_LEN, 3);
    serving->ops = SEQUENCE_LEN;
    bare(serving, 0);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    uint32_t n_keys = options.keys > 0 ? (uint32_t)options.keys : options.quick ? 100000 : 1000000;
    struct serving serving;
    struct row row;
    char what[64], note[64];
    open_serving(&serving, n_keys);
    fill(&serving, n_keys);
    serving.ops = n_keys;
    snprintf(what, sizeof(what), "CL.THROTTLE in a service, %u k keys", n_keys / 1000);
    const struct duel duel = {
        .what = what,
        .baseline_name = "the bare take",
        .baseline = bare,
        .subject = served,
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
    sequence_free(&serving.sequence);
    close_serving(&serving);
    return 0;
}
