/* SPDX-License-Identifier: MIT */
/*
 * A keyed take in a table of many keys against hash, load and swap (load.h); many takes in one call
 * against one call each; and a state of 32 bytes against one of 16.
 */
#include "load.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_KEYS_MIN                                                                             \
    16000000 /* smaller tables are in the caches, and have no misses to overlap */

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
                              const struct load_form *form, uint32_t n_keys, const char *spread)
{
    bool small = load_is_small(load);
    char what[64];
    snprintf(what, sizeof(what), "%s, %u k keys, %s", form->words, n_keys / 1000, spread);
    struct duel duel = {
        .what = what,
        .baseline_name = small ? "hash, load, swap of 8 bytes" : "hash, load, swap of 16 bytes",
        .baseline = small ? load_bare8 : load_bare16,
        .subject = load_single,
        .goal = GOAL_AT_MOST,
        .reach = 1.5,
    };
    report(options, load, &duel);
}

/* Each take as long as it lasts, not how many are begun before the first is done. No goal. */
static void row_against_waiting(const struct bench_options *options, struct load *load,
                                const struct load_form *form, uint32_t n_keys)
{
    bool small = load_is_small(load);
    char what[64];
    snprintf(what, sizeof(what), "%s, %u k keys, uniform, in turn", form->words, n_keys / 1000);
    struct duel duel = {
        .what = what,
        .baseline_name =
            small ? "the same with 8 bytes, each awaited" : "the same with 16 bytes, each awaited",
        .baseline = small ? load_waiting8 : load_waiting16,
        .subject = load_single,
    };
    report(options, load, &duel);
}

static void row_batch(const struct bench_options *options, struct load *load,
                      const struct load_form *form, uint32_t n_keys)
{
    char what[64];
    snprintf(what, sizeof(what), "%s, %u k keys, 32 at a time", form->words, n_keys / 1000);
    struct duel duel = {
        .what = what,
        .baseline_name = "single calls",
        .baseline = load_single,
        .subject = load_batched,
        .speed_up = true,
        .goal = GOAL_AT_LEAST,
        .reach = 2.0,
    };
    report(options, load, &duel);
}

/* The same keys and times in two tables. */
struct pair_of_loads {
    struct load narrow, wide;
};

static void take_narrow(void *arg, unsigned turn)
{
    struct pair_of_loads *loads = arg;
    load_single(&loads->narrow, turn);
}

static void take_wide(void *arg, unsigned turn)
{
    struct pair_of_loads *loads = arg;
    load_single(&loads->wide, turn);
}

/* What a finer window costs: 32 bytes under an owner word, beside 16 by a swap. No goal. */
static void row_wide(const struct bench_options *options, uint32_t n_keys)
{
    const struct load_form *narrow = &load_forms[LOAD_FORMS - 1];
    struct pair_of_loads loads;
    struct row row;
    char what[64], note[128];
    load_open(&loads.narrow, options, narrow, n_keys);
    load_open(&loads.wide, options, &load_wide, n_keys);
    loads.narrow.sequence = loads.wide.sequence =
        sequence_uniform(n_keys, options->quick ? (size_t)1 << 20 : (size_t)1 << 24, 1);
    snprintf(what, sizeof(what), "%s, %u k keys, uniform", load_wide.words, n_keys / 1000);
    const struct duel duel = {
        .what = what,
        .baseline_name = narrow->words,
        .baseline = take_narrow,
        .subject = take_wide,
        .arg = &loads,
        .ops = loads.wide.ops,
    };
    duel_run(options, &duel, &row);
    snprintf(note, sizeof(note), "%.1f %% denied, and %.1f %% in 16 bytes",
             100.0 * (double)loads.wide.denied / (double)loads.wide.asked,
             100.0 * (double)loads.narrow.denied / (double)loads.narrow.asked);
    row.note = note;
    row_report(options, &row);
    sequence_free(&loads.wide.sequence);
    load_close(&loads.narrow);
    load_close(&loads.wide);
}

static void run(const struct bench_options *options, const struct load_form *form, uint32_t n_keys)
{
    size_t sequence_len = options->quick ? (size_t)1 << 20 : (size_t)1 << 24;
    struct load load;
    load_open(&load, options, form, n_keys);
    load.sequence = sequence_uniform(n_keys, sequence_len, 1);
    if (bench_wants(options->spread, "uniform"))
        row_against_lines(options, &load, form, n_keys, "uniform");
    if (bench_wants(options->spread, "uniform"))
        row_against_waiting(options, &load, form, n_keys);
    bool batch_counts = n_keys >= BATCH_KEYS_MIN || options->quick || options->spread != NULL;
    if (batch_counts && bench_wants(options->spread, "batch"))
        row_batch(options, &load, form, n_keys);
    sequence_free(&load.sequence);
    if (bench_wants(options->spread, "zipf")) {
        load.sequence = sequence_zipf(n_keys, sequence_len, 2);
        row_against_lines(options, &load, form, n_keys, "Zipf");
        sequence_free(&load.sequence);
    }
    load_close(&load);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {1000000, 16000000};
    struct bench_options options = bench_options(argc, argv);
    for (size_t i = 0; i < LOAD_FORMS; i++) {
        if (!bench_wants(options.algorithm, load_forms[i].name))
            continue;
        if (options.keys > 0 || options.quick)
            run(&options, &load_forms[i], options.keys > 0 ? (uint32_t)options.keys : 100000);
        else
            for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
                run(&options, &load_forms[i], sizes[s]);
    }
    uint32_t n_keys = options.quick ? 100000 : sizes[0];
    if (bench_wants(options.algorithm, load_wide.name))
        row_wide(&options, options.keys > 0 ? (uint32_t)options.keys : n_keys);
    return 0;
}
