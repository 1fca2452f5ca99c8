/* SPDX-License-Identifier: MIT */
/*
 * Requests as a worker of the server answers them, from a request to a reply, against the bare take
 * of a quota on the same key: what roles, rules, figures and the rest cost. CL.THROTTLE takes from
 * the very states of the baseline; the others have as many of their own.
 */
#include "load.h"

#include "base/ns.h"
#include "rules/yaml/rules_load.h"
#include "service/access/access.h"
#include "service/quota_caches.h"
#include "service/service.h"

#include <stdlib.h>

#define SEQUENCE_LEN ((size_t)1 << 23)
#define STEP_NS 500 /* between two requests of a worker */

struct serving {
    struct stint_table *table;
    struct server_state *server_state;
    struct service *service;
    struct sequence sequence;
    struct stint_quota quota;
    struct request request; /* whose key changes each time */
    struct span *key;
    uint64_t ops, now_ns;
};

static const char rules_text[] = "domain: bench\n"
                                 "descriptors:\n"
                                 "  - key: ip\n"
                                 "    rate_limit: {unit: minute, requests_per_unit: 100, "
                                 "algorithm: gcra}\n";

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
        *serving->key = span_of(&key, KEY_LEN);
        serving->now_ns += STEP_NS;
        service_ask(serving->service, &serving->request, &caller, serving->now_ns, &reply);
        denied += reply.decision.outcome;
    }
    keep(denied);
}

static void die(const char *message)
{
    fprintf(stderr, "bench_service: %s\n", message);
    exit(1);
}

static void open_serving(struct serving *serving, uint32_t n_keys)
{
    struct stint_error error;
    /* Of three kinds of requests, two have states of their own, each under all keys. */
    const struct stint_table_options table = {.keys = 3 * (uint64_t)n_keys,
                                              .keys16 = n_keys,
                                              .keys_wide = n_keys,
                                              .wide_size = 256,
                                              .clock = STINT_CLOCK_VIRTUAL};
    *serving = (struct serving){.now_ns = NS_PER_HOUR,
                                .quota = {.algorithm = STINT_GCRA,
                                          .limit = (uint32_t)throttle.count_per_period,
                                          .period_ns = throttle.period_s * NS_PER_S,
                                          .burst = (uint32_t)throttle.max_burst + 1,
                                          .rule = THROTTLE_RULE}};
    if (stint_quota_check(&serving->quota, &error) != 0 ||
        stint_table_open(&serving->table, &table, &error) != 0)
        die(error.message);
    struct rules_diagnostics diagnostics;
    const struct rules_file file = {.path = "bench.yaml", .text = span_of_text(rules_text)};
    struct rules *rules = rules_load(
        &file, 1, &(struct rules_load_options){.default_algorithm = STINT_GCRA}, &diagnostics);
    const struct server_state_options server_state = {
        .table = serving->table, .rules = rules, .workers = 1};
    if (rules == NULL || server_state_open(&serving->server_state, &server_state, &error) != 0)
        die(rules == NULL ? diagnostics.diagnostics[0].message : error.message);
    rules_unref(rules);
    rules_diagnostics_free(&diagnostics);
    serving->service = service_new(serving->server_state, 0);
    if (serving->service == NULL)
        die("no memory for a service");
}

static void close_serving(struct serving *serving)
{
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
}

/* One kind of request against the bare take; its states are made before the first turn counts. */
static void run(const struct bench_options *options, struct serving *serving, const char *words,
                uint32_t n_keys)
{
    struct row row;
    char what[64], note[64];
    uint64_t turn = serving->ops;
    serving->ops = SEQUENCE_LEN;
    served(serving, 0);
    serving->ops = turn;
    snprintf(what, sizeof(what), "%s, %u k keys", words, n_keys / 1000);
    const struct duel duel = {
        .what = what,
        .baseline_name = "the bare take",
        .baseline = bare,
        .subject = served,
        .arg = serving,
        .ops = serving->ops,
    };
    duel_run(options, &duel, &row);
    double over = 0;
    for (unsigned i = 0; i < row.n_turns; i++)
        over += (row.values[i] - row.baselines[i]) / row.n_turns;
    snprintf(note, sizeof(note), "%.0f ns more", over);
    row.note = note;
    row_report(options, &row);
}

/* What a look at when it grows costs for other states than that of the descriptor. */
static const struct {
    const char *spec, *take, *grows;
} grown[] = {
    {"window 100/60s", "take of a window", "the same, and when it grows"},
    {"log 15/60s", "take of a log", "the same, and when it grows"},
};

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    uint32_t n_keys = options.keys > 0 ? (uint32_t)options.keys : options.quick ? 100000 : 1000000;
    struct serving serving;
    struct request_item item = {.quota = span_of_text("gcra 100/60s")};
    struct descriptor_entry entry = {.key = span_of_text("ip")};
    struct descriptor descriptor = {.entries = &entry, .n_entries = 1};
    open_serving(&serving, n_keys);
    fill(&serving, n_keys);
    serving.ops = n_keys;
    serving.request = (struct request){.verb = REQUEST_THROTTLE, .cost = 1, .throttle = throttle};
    serving.key = &serving.request.key;
    run(&options, &serving, "CL.THROTTLE in a service", n_keys);
    serving.request =
        (struct request){.verb = REQUEST_TAKE, .cost = 1, .items = &item, .n_items = 1};
    serving.key = &item.key;
    run(&options, &serving, "take of a quota and a key", n_keys);
    serving.request = (struct request){.verb = REQUEST_TAKE,
                                       .cost = 1,
                                       .domain = span_of_text("bench"),
                                       .descriptors = &descriptor,
                                       .n_descriptors = 1};
    serving.key = &entry.value;
    run(&options, &serving, "take of one descriptor", n_keys);
    serving.request.wants_growth = true;
    run(&options, &serving, "the same, and when it grows", n_keys);
    serving.key = &item.key;
    for (size_t i = 0; i < sizeof(grown) / sizeof(grown[0]); i++) {
        item.quota = span_of_text(grown[i].spec);
        serving.request =
            (struct request){.verb = REQUEST_TAKE, .cost = 1, .items = &item, .n_items = 1};
        run(&options, &serving, grown[i].take, n_keys);
        serving.request.wants_growth = true;
        run(&options, &serving, grown[i].grows, n_keys);
    }
    sequence_free(&serving.sequence);
    close_serving(&serving);
    return 0;
}
