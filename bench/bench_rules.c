/* SPDX-License-Identifier: MIT */
/*
 * What it costs to find the rule of a descriptor, with 10 exact values at a level and with 100,000.
 * The values asked for are drawn from all of them alike, and written anew for each: a list of them
 * would take the caches from what is measured. Writing one costs both sides the same. Each waits
 * for the rule before it, as a decision waits for its rule.
 *
 * With 100,000 asked alike, the place of a value is a line that comes from beyond the second cache,
 * and that is the whole difference: one row has a baseline that fetches one such line, too, and
 * nothing of the rules, and one asks for ten of the 100,000 alone, as if all others were asleep.
 */
#include "measure.h"

#include "rules/yaml/rules_load.h"

#include <stdlib.h>

#define FEW 10
#define MANY 100000
#define DIGITS 6

/* As much memory as the places of MANY values take. */
struct line {
    uint64_t zero, rest[3];
};
#define N_LINES MANY

struct bench {
    struct rules *few, *many;
    struct line *lines;
    uint64_t ops, state;
    bool is_missed; /* asks for values that are in no file: the bare key is met */
    uint64_t found;
};

static void *must(void *memory)
{
    if (memory == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

static struct rules *make_rules(uint32_t n_values)
{
    size_t size = 256 + (size_t)n_values * 96, len;
    char *text = must(malloc(size));
    struct rules_diagnostics diagnostics;
    len = (size_t)snprintf(text, size,
                           "domain: bench\ndescriptors:\n"
                           "- {key: customer, rate_limit: {unit: hour, requests_per_unit: 100}}\n");
    for (uint32_t i = 0; i < n_values; i++)
        len += (size_t)snprintf(text + len, size - len,
                                "- {key: customer, value: c-%06u, rate_limit: {unit: minute, "
                                "requests_per_unit: %u}}\n",
                                (unsigned)i, 1 + (unsigned)i % 1000);
    const struct rules_file file = {.path = "bench.yaml", .text = span_of(text, len)};
    struct rules *rules = rules_load(&file, 1, NULL, &diagnostics);
    if (rules == NULL) {
        fprintf(stderr, "%s\n",
                diagnostics.n_diagnostics > 0 ? diagnostics.diagnostics[0].message : "no rules");
        exit(1);
    }
    rules_diagnostics_free(&diagnostics);
    free(text);
    return rules;
}

/* The next value, as "c-012345", of n. */
static void write_value(struct bench *bench, uint8_t *text, uint32_t n_values)
{
    bench->state = bench->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint32_t value = (uint32_t)((bench->state >> 32) * n_values >> 32);
    text[0] = bench->is_missed ? 'x' : 'c';
    text[1] = '-';
    for (int i = DIGITS; i-- > 0; value /= 10)
        text[2 + i] = (uint8_t)('0' + value % 10);
}

static void match(struct bench *bench, const struct rules *rules, uint32_t n_values,
                  const struct line *lines)
{
    const struct span domain = span_of("bench", 5);
    uint8_t text[2 + DIGITS], key[64];
    struct descriptor_entry entry = {span_of("customer", 8), span_of(text, sizeof(text))};
    const struct descriptor descriptor = {.entries = &entry, .n_entries = 1};
    for (uint64_t i = 0; i < bench->ops; i++) {
        struct rule_match found;
        struct rules_walk walk;
        write_value(bench, text, n_values);
        rules_walk_begin(&walk, rules, domain);
        if (rules_match(&walk, &descriptor, key, sizeof(key), &found, NULL) == 0)
            bench->found += found.key_len;
        bench->state += key[0]; /* of the rule's id */
        if (lines != NULL)
            bench->state += lines[(bench->state >> 32) % N_LINES].zero;
    }
}

static void match_few(void *arg, unsigned turn)
{
    struct bench *bench = arg;
    (void)turn;
    match(bench, bench->few, FEW, NULL);
}

static void match_few_and_fetch(void *arg, unsigned turn)
{
    struct bench *bench = arg;
    (void)turn;
    match(bench, bench->few, FEW, bench->lines);
}

static void match_many(void *arg, unsigned turn)
{
    struct bench *bench = arg;
    (void)turn;
    match(bench, bench->many, MANY, NULL);
}

/* The rest of the rules is there, and nobody asks for it. */
static void match_few_of_many(void *arg, unsigned turn)
{
    struct bench *bench = arg;
    (void)turn;
    match(bench, bench->many, FEW, NULL);
}

static void run(const struct bench_options *options, struct bench *bench, struct duel duel)
{
    struct row row;
    duel.arg = bench;
    duel.ops = bench->ops;
    if (duel.subject == NULL)
        duel.subject = match_many;
    duel.goal = GOAL_AT_MOST;
    duel.reach = 1.5;
    duel_run(options, &duel, &row);
    row_report(options, &row);
    keep(bench->found);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    struct bench bench = {
        .few = make_rules(FEW),
        .many = make_rules(MANY),
        .lines = must(calloc(N_LINES, sizeof(*bench.lines))),
        .ops = options.quick ? 100000 : 2000000,
    };
    for (size_t i = 0; i < N_LINES; i++) /* else all of them are one page of zeros */
        bench.lines[i].rest[0] = i;
    run(&options, &bench,
        (struct duel){.what = "rule of one of 100,000 values at a level",
                      .baseline_name = "rule of one of 10",
                      .baseline = match_few});
    run(&options, &bench,
        (struct duel){.what = "rule of one of 100,000 values at a level",
                      .baseline_name = "rule of one of 10, and a bare fetch from 3.2 MB",
                      .baseline = match_few_and_fetch});
    run(&options, &bench,
        (struct duel){.what = "rule of one of 10 values that are asked, among 100,000",
                      .subject = match_few_of_many,
                      .baseline_name = "rule of one of 10",
                      .baseline = match_few});
    bench.is_missed = true;
    run(&options, &bench,
        (struct duel){.what = "rule of a value that is not listed, beside 100,000 that are",
                      .baseline_name = "rule of a value that is not listed, beside 10",
                      .baseline = match_few});
    rules_unref(bench.few);
    rules_unref(bench.many);
    free(bench.lines);
    return 0;
}
