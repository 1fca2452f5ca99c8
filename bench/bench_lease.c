/* SPDX-License-Identifier: MIT */
/*
 * What a take costs that a worker serves from a lease: against the same take in the table. The
 * store behind is one that grants all that it is asked for, at once, so that what is measured is
 * this process: finding the key, taking the unit, and every so often a lease.
 */
#include "keys.h"
#include "measure.h"

#include "backend/front/lease.h"
#include "base/ns.h"

#include <stdlib.h>

#define TURN_OPS 2000000
#define NAME "bench"

struct endless {
    struct backend store;
    uint64_t now_ns, asks;
};

struct load {
    struct endless inner;
    struct backend *lease;
    struct stint_table *table;
    struct stint_quota quota;
    struct rule rule;
    uint64_t ops, keys, refused;
};

static void endless_ask(struct backend *store, const struct backend_request *ask,
                        struct backend_op *op)
{
    struct endless *endless = (struct endless *)store;
    endless->asks++;
    op->answer.outcome = BACKEND_DECIDED;
    op->answer.at_ns = endless->now_ns;
    op->answer.lease_ends_ns = endless->now_ns + ask->term_ns;
    op->answer.sum = (struct stint_decision){.limit = ask->items[0].quota->limit,
                                             .granted = ask->items[0].cost,
                                             .remaining = ask->items[0].quota->limit / 2};
    op->answer.each[0] = op->answer.sum;
}

static void endless_free(struct backend *store)
{
    (void)store;
}

static const struct backend_ops endless_ops = {.ask = endless_ask, .free = endless_free};

static uint64_t clock_of(void *arg)
{
    return ((struct endless *)arg)->now_ns;
}

static void from_table(void *arg, unsigned turn)
{
    struct load *load = arg;
    (void)turn;
    for (uint64_t i = 0; i < load->ops; i++) {
        struct key key = key_of(i % load->keys);
        load->refused +=
            stint_take(load->table, &load->quota, &key, KEY_LEN, 1, load->inner.now_ns++).outcome !=
            STINT_ALLOW;
    }
}

static void from_lease(void *arg, unsigned turn)
{
    struct load *load = arg;
    struct stint_decision each;
    (void)turn;
    for (uint64_t i = 0; i < load->ops; i++) {
        struct key key = key_of(i % load->keys);
        const struct backend_item item = {.quota = &load->quota,
                                          .rule = &load->rule,
                                          .name = span_of(NAME, sizeof(NAME) - 1),
                                          .key = span_of(&key, KEY_LEN),
                                          .cost = 1};
        const struct backend_request ask = {.verb = REQUEST_TAKE,
                                            .items = &item,
                                            .n_items = 1,
                                            .now_ns = load->inner.now_ns,
                                            .deadline_ns = load->inner.now_ns + NS_PER_S};
        struct backend_op op = {.answer = {.each = &each}};
        load->lease->ops->ask(load->lease, &ask, &op);
        load->refused += op.answer.sum.outcome != STINT_ALLOW;
        load->inner.now_ns += 100;
    }
}

static void row_speed(const struct bench_options *options, struct load *load, uint64_t keys)
{
    struct row row;
    char what[64], note[96];
    load->keys = keys;
    load->inner.asks = load->refused = 0;
    snprintf(what, sizeof(what), "a take from a lease, %llu key%s", (unsigned long long)keys,
             keys == 1 ? "" : "s");
    const struct duel duel = {.what = what,
                              .baseline_name = "the same take in the table",
                              .baseline = from_table,
                              .subject = from_lease,
                              .arg = load,
                              .ops = load->ops};
    duel_run(options, &duel, &row);
    snprintf(note, sizeof(note), "%llu asks of the store, %llu refused",
             (unsigned long long)load->inner.asks, (unsigned long long)load->refused);
    row.note = note;
    row_report(options, &row);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    struct stint_error error;
    struct load load = {.inner = {.store = {&endless_ops}, .now_ns = NS_PER_S},
                        .ops = options.quick ? TURN_OPS / 20 : TURN_OPS};
    struct stint_table_options table = {.clock = STINT_CLOCK_VIRTUAL};
    if (stint_quota_parse(&load.quota, "window 1000000000/1s", &error) != STINT_OK ||
        stint_table_open(&load.table, &table, &error) != STINT_OK) {
        fprintf(stderr, "bench_lease: %s\n", error.message);
        return 1;
    }
    load.rule = (struct rule){.domain = "bench",
                              .quota = load.quota,
                              .store = {.lease = RULE_LEASE_STRICT,
                                        .lease_units = 1000,
                                        .lease_term_ns = 100 * NS_PER_MS}};
    load.lease = lease_new(
        &(struct lease_options){.inner = &load.inner.store, .now = clock_of, .arg = &load.inner});
    if (load.lease == NULL)
        return 1;
    row_speed(&options, &load, 1);
    row_speed(&options, &load, 1000);
    load.lease->ops->free(load.lease);
    stint_table_close(load.table);
    return 0;
}
