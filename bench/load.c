/* SPDX-License-Identifier: MIT */
/* Filling a table, asking it, and the baseline. */
#include "load.h"

#include "base/ns.h"
#include "table/slot/cas16.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE 64
#define FILL_ROUNDS 4
#define FILL_COST_MAX 40
#define LOAD_PERCENT 80

const struct load_form load_forms[LOAD_FORMS] = {
    {"gcra", "gcra 100/60s", "gcra"},
    {"window8", "window 100/60s resolution=12", "window 8 B"},
    {"window16", "window 100/60s", "window 16 B"},
};
const struct load_form load_wide = {"window32", "window 100/60s resolution=100", "window 32 B"};

static uint64_t now_at(const struct load *load, uint64_t op)
{
    return load->now_ns + op * load->step_ps / 1000;
}

static inline uint64_t *line_of(const struct load *load, uint64_t hash)
{
    return (uint64_t *)(void *)(load->lines + ((hash >> 32) * load->n_lines >> 32) * LINE);
}

/* ---- Baselines ------------------------------------------------------------------------------- */

/*
 * Makes the next key wait for what was loaded, as the caller of a limiter waits who acts upon its
 * decision. Without it the processor begins the next keys' loads while this one's is under way.
 */
static inline void wait_for(struct key *key, uint64_t loaded)
{
    __asm__ volatile("and $0, %0" : "+r"(loaded));
    key->word[0] += loaded;
}

static inline void bare8(struct load *load, unsigned turn, bool waits)
{
    uint64_t sum = 0, at = load->first_op + turn * load->ops;
    for (uint64_t i = 0; i < load->ops; i++) {
        struct key key = sequence_key(&load->sequence, at + i);
        if (waits)
            wait_for(&key, sum);
        struct hash128 hash = key_hash(&load->key_hash, 1, &key, KEY_LEN);
        sum += __atomic_load_n(line_of(load, hash.hi), __ATOMIC_RELAXED);
        uint64_t *word = line_of(load, hash.lo), seen = __atomic_load_n(word, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(word, &seen, seen + 1, true, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
        }
    }
    keep(sum);
}

CAS16_TARGET static inline void bare16(struct load *load, unsigned turn, bool waits)
{
    uint64_t sum = 0, at = load->first_op + turn * load->ops;
    for (uint64_t i = 0; i < load->ops; i++) {
        struct key key = sequence_key(&load->sequence, at + i);
        if (waits)
            wait_for(&key, sum);
        struct hash128 hash = key_hash(&load->key_hash, 1, &key, KEY_LEN);
        sum += __atomic_load_n(line_of(load, hash.hi), __ATOMIC_RELAXED);
        struct pair *pair = (struct pair *)(void *)line_of(load, hash.lo), seen;
        do {
            seen = cas16_load(pair);
        } while (!cas16(pair, seen, (struct pair){seen.first + 1, seen.second}));
    }
    keep(sum);
}

void load_bare8(void *arg, unsigned turn)
{
    bare8(arg, turn, false);
}

CAS16_TARGET void load_bare16(void *arg, unsigned turn)
{
    bare16(arg, turn, false);
}

void load_waiting8(void *arg, unsigned turn)
{
    bare8(arg, turn, true);
}

CAS16_TARGET void load_waiting16(void *arg, unsigned turn)
{
    bare16(arg, turn, true);
}

/* ---- Subjects -------------------------------------------------------------------------------- */

void load_single(void *arg, unsigned turn)
{
    struct load *load = arg;
    uint64_t at = load->first_op + turn * load->ops;
    for (uint64_t i = 0; i < load->ops; i++) {
        struct key key = sequence_key(&load->sequence, at + i);
        load->denied +=
            stint_take(load->table, &load->quota, &key, KEY_LEN, 1, now_at(load, i)).outcome !=
            STINT_ALLOW;
    }
    load->asked += load->ops;
    load->now_ns = now_at(load, load->ops);
}

void load_batched(void *arg, unsigned turn)
{
    struct load *load = arg;
    struct key keys[LOAD_BATCH];
    struct stint_item items[LOAD_BATCH];
    struct stint_decision decisions[LOAD_BATCH];
    uint64_t at = load->first_op + turn * load->ops;
    for (unsigned i = 0; i < LOAD_BATCH; i++)
        items[i] = (struct stint_item){&load->quota, &keys[i], KEY_LEN, 1};
    for (uint64_t done = 0; done < load->ops; done += LOAD_BATCH) {
        for (unsigned i = 0; i < LOAD_BATCH; i++)
            keys[i] = sequence_key(&load->sequence, at + done + i);
        stint_take_batch(load->table, items, decisions, LOAD_BATCH, now_at(load, done));
        for (unsigned i = 0; i < LOAD_BATCH; i++)
            load->denied += decisions[i].outcome != STINT_ALLOW;
    }
    load->asked += load->ops;
    load->now_ns = now_at(load, load->ops);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void open_lines(struct load *load, uint64_t bytes, bool huge)
{
    load->lines_size = bytes;
    load->n_lines = bytes / LINE;
    load->lines = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (load->lines == MAP_FAILED || (huge && madvise(load->lines, bytes, MADV_HUGEPAGE) != 0)) {
        fprintf(stderr, "bench: cannot map %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    memset(load->lines, 1, bytes);
}

/* Charges every key some units, in an order that is not that of the measuring. */
static void fill_round(struct load *load, uint32_t n_keys, uint64_t seed)
{
    struct rng rng = {seed};
    struct key keys[LOAD_BATCH];
    struct stint_item items[LOAD_BATCH];
    struct stint_decision decisions[LOAD_BATCH];
    for (uint32_t first = 0; first < n_keys; first += LOAD_BATCH) {
        uint32_t n = n_keys - first < LOAD_BATCH ? n_keys - first : LOAD_BATCH;
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
    size_t size = stint_state_size(&load->quota);
    struct stint_table_options options = {
        .keys = size == 8 ? n_keys : 1,
        .keys16 = size == 16 ? n_keys : 1,
        .keys_wide = size > 16 ? n_keys : 1,
        .wide_size = size > 16 ? (uint32_t)size : 32,
        .tickets = 1,
        .blocks = 1,
        .clock = STINT_CLOCK_VIRTUAL,
        .huge_pages = huge,
        .hash_key = {1, 2},
    };
    struct stint_error error;
    if (stint_table_open(&load->table, &options, &error) != 0) {
        fprintf(stderr, "bench: %s\n", error.message);
        exit(1);
    }
    load->now_ns = NS_PER_S;
    for (uint64_t round = 0; round < FILL_ROUNDS; round++) {
        load->now_ns += load->quota.period_ns / FILL_ROUNDS;
        fill_round(load, n_keys, round);
    }
}

void load_open(struct load *load, const struct bench_options *options, const struct load_form *form,
               uint32_t n_keys)
{
    struct stint_table_info info;
    struct stint_error error;
    *load = (struct load){.ops = options->quick ? 1 << 16 : 1 << 20};
    key_hash_open(&load->key_hash, (const uint64_t[2]){1, 2});
    if (stint_quota_parse(&load->quota, form->spec, &error) != 0) {
        fprintf(stderr, "%s: %s\n", form->spec, error.message);
        exit(1);
    }
    uint64_t period_ps = load->quota.period_ns * 1000;
    load->step_ps = period_ps / load->quota.limit * 100 / LOAD_PERCENT / n_keys;
    open_table(load, n_keys, !options->small_pages);
    stint_table_info(load->table, load->now_ns, &info);
    open_lines(load, info.bytes, !options->small_pages);
}

void load_close(struct load *load)
{
    munmap(load->lines, load->lines_size);
    stint_table_close(load->table);
}
