/* SPDX-License-Identifier: MIT */
/*
 * What the next key of a pool costs, against a take of one of as many keys in the same table, by
 * turns: no caller can find a key with less than that. Both are asked at the same steps of time.
 *
 * "half" and "twice" are what is asked for, as a share of what all keys have; "used up" is a pool
 * of which no key has a unit left.
 */
#include "measure.h"

#include "base/ns.h"
#include <stint.h>

#include <stdlib.h>

#define WARM_PERIODS 2

/* Each side has a table and a time of its own: a pool that rests for a turn is not used up. */
struct load {
    struct stint_table *table, *pool_table;
    struct stint_pool *pool;
    struct stint_quota quota;
    uint64_t now_ns, pool_now_ns, step_ns, ops;
    uint32_t keys;
    uint64_t asks, refused;
};

struct workload {
    const char *what, *spec;
    uint32_t keys;
    uint64_t asked_percent; /* of what all keys have; 0: one ask each ns */
};

static const struct workload workloads[] = {
    {"next of 100 keys, half", "window 500/10m", 100, 50},
    {"next of 100 keys, twice", "window 500/10m", 100, 200},
    {"next of 100 keys, used up", "window 1/10m", 100, 0},
    {"next of 10,000 keys, half", "window 500/10m", 10000, 50},
    {"next of 10,000 keys, twice", "window 500/10m", 10000, 200},
    {"next of 10,000 keys, used up", "window 1/10m", 10000, 0},
};

static void take_each(void *arg, unsigned turn)
{
    struct load *load = arg;
    uint64_t now_ns = load->now_ns;
    (void)turn;
    for (uint64_t i = 0; i < load->ops; i++) {
        uint32_t key = (uint32_t)(i % load->keys);
        now_ns += load->step_ns;
        keep(stint_take(load->table, &load->quota, &key, sizeof(key), 1, now_ns).granted);
    }
    load->now_ns = now_ns;
}

static void next_each(void *arg, unsigned turn)
{
    struct load *load = arg;
    struct stint_pool_ask ask = {.now_ns = load->pool_now_ns, .cost = 1};
    (void)turn;
    for (uint64_t i = 0; i < load->ops; i++) {
        ask.now_ns += load->step_ns;
        load->refused += stint_pool_next(load->pool, &ask).name == NULL;
    }
    load->pool_now_ns = ask.now_ns;
    load->asks += load->ops;
}

static void must(int code, const struct stint_error *error)
{
    if (code == 0)
        return;
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

static void open_load(struct load *load, const struct workload *workload)
{
    const struct stint_table_options options = {
        .keys = 4 * workload->keys, .keys16 = 4 * workload->keys, .clock = STINT_CLOCK_VIRTUAL};
    const struct stint_pool_options pool = {.name = "bench", .keys_max = workload->keys};
    struct stint_error error;
    char name[16];
    must(stint_quota_parse(&load->quota, workload->spec, &error), &error);
    must(stint_table_open(&load->table, &options, &error), &error);
    must(stint_table_open(&load->pool_table, &options, &error), &error);
    must(stint_pool_open(&load->pool, load->pool_table, &pool, &error), &error);
    for (uint32_t i = 0; i < workload->keys; i++) {
        const struct stint_pool_key key = {.name = name, .quotas = &load->quota, .n_quotas = 1};
        snprintf(name, sizeof(name), "key%05u", i);
        must(stint_pool_add(load->pool, &key, load->pool_now_ns, &error), &error);
    }
    uint64_t units = (uint64_t)load->quota.limit * workload->keys * workload->asked_percent / 100;
    load->step_ns = units > 0 ? load->quota.period_ns / units : 1;
}

/* Until as much returns as is taken, or nothing is left. */
static void warm(struct load *load, const struct workload *workload)
{
    uint64_t period_asks = load->quota.period_ns / load->step_ns;
    load->ops = workload->asked_percent > 0 ? WARM_PERIODS * period_asks : workload->keys;
    take_each(load, 0);
    next_each(load, 0);
    load->asks = load->refused = 0;
}

static void run(const struct bench_options *options, const struct workload *workload)
{
    struct load load = {.keys = workload->keys, .now_ns = NS_PER_S, .pool_now_ns = NS_PER_S};
    char note[64];
    open_load(&load, workload);
    warm(&load, workload);
    load.ops = options->quick ? 20000 : 1000000;
    struct duel duel = {
        .what = workload->what,
        .baseline_name = "a take of as many keys",
        .baseline = take_each,
        .subject = next_each,
        .arg = &load,
        .ops = load.ops,
        .goal = GOAL_NONE,
    };
    struct row row;
    duel_run(options, &duel, &row);
    snprintf(note, sizeof(note), "%.1f %% found no free key",
             100.0 * (double)load.refused / (double)load.asks);
    row.note = note;
    row_report(options, &row);
    stint_pool_close(load.pool);
    stint_table_close(load.pool_table);
    stint_table_close(load.table);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    for (size_t i = 0; i < sizeof(workloads) / sizeof(*workloads); i++)
        if (!options.quick || workloads[i].keys <= 100)
            run(&options, &workloads[i]);
    return 0;
}
