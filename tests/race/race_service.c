/* SPDX-License-Identifier: MIT */
/*
 * Several workers ask for the same keys at the same moment, in any order, while the rules change
 * hands over and over. No limit is passed; a request that was denied has charged nobody, so that
 * what is left under each rule is its limit less what was allowed; and candidates, asked as if they
 * were live, are not passed either.
 */
#include "repeats.h"

#include "base/splitmix.h"
#include "rules/yaml/rules_load.h"
#include "service/access/access.h"
#include "service/service.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 4
#define KEYS 4
#define REQUESTS REPEATS(60000, 20000)
#define NOW (UINT64_C(3600) * 1000000000)

static const char yaml_format[] =
    "domain: d\n"
    "descriptors:\n"
    "  - key: k0\n"
    "    rate_limit: {period: 1h, requests_per_unit: %u, "
    "algorithm: gcra}\n"
    "  - key: k1\n"
    "    rate_limit: {period: 1h, requests_per_unit: %u}\n"
    "    shadow: {period: 1h, requests_per_unit: 700, algorithm: gcra}\n"
    "  - key: k2\n"
    "    rate_limit: {period: 1h, requests_per_unit: %u, "
    "algorithm: fixed_window}\n"
    "  - key: k3\n"
    "    rate_limit: {period: 1h, requests_per_unit: %u, "
    "algorithm: sliding_counter}\n";
static const uint32_t limits[KEYS] = {REPEATS(20000, 7000), REPEATS(9000, 3000),
                                      REPEATS(5000, 1700), REPEATS(30000, 10000)};

static struct server_state *server_state;
static struct rules *rules;
static int stop;

struct worker {
    pthread_t thread;
    struct service *service;
    uint64_t seed;
    uint64_t charged[KEYS]; /* units of requests that were allowed */
    uint64_t allowed, denied, candidate_allowed;
};

static uint64_t next_random(uint64_t *seed)
{
    return splitmix_next(seed) >> 33;
}

static void expect(bool is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "race_service: %s\n", what);
    exit(1);
}

static const struct reply *ask(struct service *service, uint8_t verb, const int *keys, size_t n,
                               struct reply *reply)
{
    static const char *const names[KEYS] = {"k0", "k1", "k2", "k3"};
    static const struct caller caller = {.name = "", .roles = ACCESS_ALL};
    struct descriptor_entry entries[KEYS];
    struct descriptor descriptors[KEYS];
    for (size_t i = 0; i < n; i++) {
        entries[i] = (struct descriptor_entry){span_of_text(names[keys[i]]), span_of_text("v")};
        descriptors[i] = (struct descriptor){.entries = &entries[i], .n_entries = 1};
    }
    const struct request request = {.verb = verb,
                                    .cost = verb == REQUEST_PEEK ? 0 : 1,
                                    .domain = span_of_text("d"),
                                    .descriptors = descriptors,
                                    .n_descriptors = n};
    service_ask(service, &request, &caller, NOW, reply);
    expect(reply->error == REPLY_DECIDED, reply->message);
    return reply;
}

static void count(struct worker *worker, const int *keys, size_t n, const struct reply *reply)
{
    bool allowed = reply->decision.outcome == STINT_ALLOW;
    worker->allowed += allowed;
    worker->denied += !allowed;
    for (size_t i = 0; i < n; i++) {
        const struct target *status = &reply->statuses[i];
        worker->charged[keys[i]] += allowed;
        if (keys[i] == 1)
            worker->candidate_allowed += allowed && !status->shadow_over;
        expect(!allowed || !status->over, "an allowed request has a status that is over");
    }
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct reply reply;
    for (int i = 0; i < REQUESTS; i++) {
        int keys[KEYS] = {0, 1, 2, 3};
        size_t n = 1 + next_random(&worker->seed) % KEYS;
        for (size_t at = 0; at < KEYS - 1; at++) {
            size_t with = at + next_random(&worker->seed) % (KEYS - at);
            int key = keys[at];
            keys[at] = keys[with];
            keys[with] = key;
        }
        ask(worker->service, REQUEST_TAKE, keys, n, &reply);
        count(worker, keys, n, &reply);
    }
    return NULL;
}

static void *change_rules(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        expect(server_state_set_rules(server_state, rules, NULL) == 0, "no memory for rules");
    return NULL;
}

static void load(void)
{
    struct rules_diagnostics diagnostics;
    char yaml[sizeof(yaml_format) + KEYS * 10];
    snprintf(yaml, sizeof(yaml), yaml_format, limits[0], limits[1], limits[2], limits[3]);
    const struct rules_file file = {.path = "race.yaml", .text = span_of(yaml, strlen(yaml))};
    const struct rules_load_options options = {.default_algorithm = STINT_WINDOW};
    rules = rules_load(&file, 1, &options, &diagnostics);
    expect(rules != NULL, "the rules cannot be read");
    rules_diagnostics_free(&diagnostics);
}

static void check(struct worker *workers, struct stint_table *table)
{
    struct stint_table_info info;
    struct reply reply;
    stint_table_info(table, NOW, &info);
    for (int key = 0; key < KEYS; key++) {
        uint64_t charged = 0;
        for (int i = 0; i < WORKERS; i++)
            charged += workers[i].charged[key];
        ask(workers[0].service, REQUEST_PEEK, &key, 1, &reply);
        uint64_t left = reply.statuses[0].decision.remaining;
        expect(charged <= limits[key], "a limit was passed");
        expect(charged + left <= limits[key], "an allowed request was not charged");
        /* A bunch of a window may hold units that nobody can take. */
        expect(charged + left + info.undo_kept_units + 1 >= limits[key] ||
                   reply.statuses[0].quota->algorithm == STINT_WINDOW,
               "a denied request was charged");
    }
}

int main(void)
{
    const struct stint_table_options table_options = {.clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table;
    struct worker workers[WORKERS] = {0};
    pthread_t changer;
    load();
    expect(stint_table_open(&table, &table_options, NULL) == 0, "no table");
    const struct server_state_options server_state_options = {
        .table = table, .rules = rules, .workers = WORKERS};
    expect(server_state_open(&server_state, &server_state_options, NULL) == 0, "no server state");
    for (int i = 0; i < WORKERS; i++) {
        workers[i].service = service_new(server_state, (unsigned)i);
        workers[i].seed = (uint64_t)i + 1;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    pthread_create(&changer, NULL, change_rules, NULL);
    uint64_t candidate_allowed = 0, denied = 0;
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        candidate_allowed += workers[i].candidate_allowed;
        denied += workers[i].denied;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(changer, NULL);
    check(workers, table);
    expect(denied > 0, "nothing was denied: the test tested nothing");
    expect(candidate_allowed <= 700, "a candidate admitted more than it would have");
    for (int i = 0; i < WORKERS; i++)
        service_free(workers[i].service);
    server_state_close(server_state);
    rules_unref(rules);
    stint_table_close(table);
    return 0;
}
