/* SPDX-License-Identifier: MIT */
/*
 * A keyed take in a table of many keys, against what no keyed limiter can do without: the same
 * keyed hash of the same key, a load from one random line and a swap in another, in memory of the
 * same size and with pages of the same size. And many takes in one call against one call each.
 *
 * The table is full of live states when measuring begins: each key was charged four times over the
 * last period, 0 to 40 units at a time. Then now goes on so that a key is asked for, on average, at
 * 80 % of its rate: 100 a minute. Which keys are asked for is a sequence made beforehand.
 */
#include "keys.h"
#include "measure.h"

#include "base/ns.h"
#include "base/siphash.h"
#include "store/cas16.h"
#include <stint.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BATCH 32
#define LINE 64
#define FILL_ROUNDS 4
#define FILL_COST_MAX 40
#define LOAD_PERCENT 80

struct load {
    struct stint_quota quota;
    struct stint_table *table;
    struct sequence sequence;
    uint64_t now_ns, step_ps, ops;
    uint64_t denied, asked;
    uint8_t *lines; /* the baseline's memory */
    uint64_t n_lines;
    uint64_t secret[2];
};

static uint64_t now_at(const struct load *load, uint64_t op)
{
    return load->now_ns + op * load->step_ps / 1000;
}

static inline uint64_t *line_of(const struct load *load, uint64_t hash)
{
    return (uint64_t *)(void *)(load->lines + ((hash >> 32) * load->n_lines >> 32) * LINE);
}

/* ---- Baselines ------------------------------------------------------------------------------- */

static void bare8(void *arg, unsigned turn)
{
    struct load *load = arg;
    uint64_t sum = 0, at = turn * load->ops;
    for (uint64_t i = 0; i < load->ops; i++) {
        struct key key = sequence_key(&load->sequence, at + i);
        struct hash128 hash = siphash13_128(load->secret, 1, &key, KEY_LEN);
        sum += __atomic_load_n(line_of(load, hash.hi), __ATOMIC_RELAXED);
        uint64_t *word = line_of(load, hash.lo), seen = __atomic_load_n(word, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(word, &seen, seen + 1, true, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
        }
    }
    keep(sum);
}

CAS16_TARGET static void bare16(void *arg, unsigned turn)
{
    struct load *load = arg;
    uint64_t sum = 0, at = turn * load->ops;
    for (uint64_t i = 0; i < load->ops; i++) {
        struct key key = sequence_key(&load->sequence, at + i);
        struct hash128 hash = siphash13_128(load->secret, 1, &key, KEY_LEN);
        sum += __atomic_load_n(line_of(load, hash.hi), __ATOMIC_RELAXED);
        struct pair *pair = (struct pair *)(void *)line_of(load, hash.lo), seen;
        do {
            seen = cas16_load(pair);
        } while (!cas16(pair, seen, (struct pair){seen.first + 1, seen.second}));
    }
    keep(sum);
}

/* ---- Subjects -------------------------------------------------------------------------------- */

static void single(void *arg, unsigned turn)
{
    struct load *load = arg;
    uint64_t at = turn * load->ops;
    for (uint64_t i = 0; i < load->ops; i++) {
        struct key key = sequence_key(&load->sequence, at + i);
        load->denied += stint_take(load->table, &load->quota, &key, KEY_LEN, 1, now_at(load, i))
                            .outcome != STINT_ALLOW;
    }
    load->asked += load->ops;
    load->now_ns = now_at(load, load->ops);
}

static void batched(void *arg, unsigned turn)
{
    struct load *load = arg;
    struct key keys[BATCH];
    struct stint_item items[BATCH];
    struct stint_decision decisions[BATCH];
    uint64_t at = turn * load->ops;
    for (unsigned i = 0; i < BATCH; i++)
        items[i] = (struct stint_item){&load->quota, &keys[i], KEY_LEN, 1};
    for (uint64_t done = 0; done < load->ops; done += BATCH) {
        for (unsigned i = 0; i < BATCH; i++)
            keys[i] = sequence_key(&load->sequence, at + done + i);
        stint_take_batch(load->table, items, decisions, BATCH, now_at(load, done));
        for (unsigned i = 0; i < BATCH; i++)
            load->denied += decisions[i].outcome != STINT_ALLOW;
    }
    load->asked += load->ops;
    load->now_ns = now_at(load, load->ops);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void open_lines(struct load *load, uint64_t bytes, bool huge)
{
    load->n_lines = bytes / LINE;
    load->lines = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (load->lines == MAP_FAILED || (huge && madvise(load->lines, bytes, MADV_HUGEPAGE) != 0)) {
        fprintf(stderr, "bench_table: cannot map %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    memset(load->lines, 1, bytes);
}

/* Charges every key some units, in an order that is not that of the measuring. */
static void fill_round(struct load *load, uint32_t n_keys, uint64_t seed)
{
    struct rng rng = {seed};
    struct key keys[BATCH];
    struct stint_item items[BATCH];
    struct stint_decision decisions[BATCH];
    for (uint32_t first = 0; first < n_keys; first += BATCH) {
        uint32_t n = n_keys - first < BATCH ? n_keys - first : BATCH;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t cost = (uint32_t)(rng_next(&rng) % (FILL_COST_MAX + 1));
            keys[i] = key_of(first + i);
            items[i] = (struct stint_item){&load->quota, &keys[i], KEY_LEN, cost};
        }
        stint_take_batch(load->table, items, decisions, n, load->now_ns);
    }
}

static void open_table(struct load *load, uint32_t n_keys, bool huge)
{
    bool small = stint_state_size(&load->quota) == 8;
    struct stint_table_options options = {
        .keys = small ? n_keys : 1,
        .keys16 = small ? 1 : n_keys,
        .tickets = 1,
        .blocks = 1,
        .clock = STINT_CLOCK_VIRTUAL,
        .huge_pages = huge,
        .hash_key = {1, 2},
    };
    struct stint_error error;
    if (stint_table_open(&load->table, &options, &error) != 0) {
        fprintf(stderr, "bench_table: %s\n", error.sentence);
        exit(1);
    }
    load->now_ns = NS_PER_S;
    for (uint64_t round = 0; round < FILL_ROUNDS; round++) {
        load->now_ns += load->quota.period_ns / FILL_ROUNDS;
        fill_round(load, n_keys, round);
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

struct form {
    const char *name, *spec, *words;
};

static const struct form forms[] = {
    {"gcra", "gcra 100/60s", "gcra"},
    {"window8", "window 100/60s resolution=12", "window 8 B"},
    {"window16", "window 100/60s", "window 16 B"},
};

static void report(const struct bench_options *options, struct load *load, struct duel *duel)
{
    struct stint_table_info info;
    struct row row;
    char note[128];
    load->denied = load->asked = 0;
    duel->arg = load;
    duel->ops = load->ops;
    duel_run(options, duel, &row);
    stint_table_info(load->table, load->now_ns, &info);
    snprintf(note, sizeof(note), "%.1f %% denied; %.0f MB, %s pages",
             load->asked > 0 ? 100.0 * (double)load->denied / (double)load->asked : 0.0,
             (double)info.bytes / 1e6, info.huge_pages ? "huge" : "small");
    row.note = note;
    row_report(options, &row);
}

static void row_against_lines(const struct bench_options *options, struct load *load,
                              const struct form *form, uint32_t n_keys, const char *spread)
{
    bool small = stint_state_size(&load->quota) == 8;
    char what[64];
    snprintf(what, sizeof(what), "%s, %u k keys, %s", form->words, n_keys / 1000, spread);
    struct duel duel = {
        .what = what,
        .baseline_name = small ? "hash, load, swap of 8 bytes" : "hash, load, swap of 16 bytes",
        .baseline = small ? bare8 : bare16,
        .subject = single,
        .reach = 1.5,
    };
    report(options, load, &duel);
}

static void row_batch(const struct bench_options *options, struct load *load,
                      const struct form *form, uint32_t n_keys)
{
    char what[64];
    snprintf(what, sizeof(what), "%s, %u k keys, 32 at a time", form->words, n_keys / 1000);
    struct duel duel = {
        .what = what,
        .baseline_name = "single calls",
        .baseline = single,
        .subject = batched,
        .reach = n_keys >= 16000000 ? 2.0 : 0,
        .at_least = true,
    };
    report(options, load, &duel);
}

static void run(const struct bench_options *options, const struct form *form, uint32_t n_keys)
{
    size_t sequence_len = options->quick ? (size_t)1 << 20 : (size_t)1 << 24;
    struct load load = {.ops = options->quick ? 1 << 16 : 1 << 20, .secret = {1, 2}};
    struct stint_table_info info;
    struct stint_error error;
    if (stint_quota_parse(&load.quota, form->spec, &error) != 0) {
        fprintf(stderr, "%s: %s\n", form->spec, error.sentence);
        exit(1);
    }
    load.step_ps = load.quota.period_ns * 1000 / load.quota.limit * 100 / LOAD_PERCENT / n_keys;
    open_table(&load, n_keys, !options->small_pages);
    stint_table_info(load.table, load.now_ns, &info);
    open_lines(&load, info.bytes, !options->small_pages);

    load.sequence = sequence_uniform(n_keys, sequence_len, 1);
    if (bench_wants(options->spread, "uniform"))
        row_against_lines(options, &load, form, n_keys, "uniform");
    if (bench_wants(options->spread, "batch"))
        row_batch(options, &load, form, n_keys);
    sequence_free(&load.sequence);
    if (bench_wants(options->spread, "zipf")) {
        load.sequence = sequence_zipf(n_keys, sequence_len, 2);
        row_against_lines(options, &load, form, n_keys, "Zipf");
        sequence_free(&load.sequence);
    }
    munmap(load.lines, info.bytes);
    stint_table_close(load.table);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {1000000, 16000000};
    struct bench_options options = bench_options(argc, argv);
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        if (!bench_wants(options.algorithm, forms[i].name))
            continue;
        if (options.keys > 0 || options.quick)
            run(&options, &forms[i], options.keys > 0 ? (uint32_t)options.keys : 100000);
        else
            for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
                run(&options, &forms[i], sizes[s]);
    }
    return 0;
}
