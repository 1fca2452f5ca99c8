/* SPDX-License-Identifier: MIT */
/*
 * Memory per key: new keys come, all of them live, until one in a thousand of those that live has
 * been evicted or had to wait for a place, by the table's own counters. What the states' class of
 * the region takes is divided by the keys that live then; the whole region stands in the note.
 */
#include "keys.h"
#include "measure.h"

#include "base/ns.h"
#include <stint.h>

#include <stdlib.h>

#define LOST_SHARE 1000
#define CHECK_EVERY 256
#define TABLES 5

struct form {
    const char *name, *spec, *words;
    unsigned state_class; /* in stint_table_info */
    uint32_t slot_size;   /* tag and state */
    double reach;
};

static const struct form forms[] = {
    {"gcra", "gcra 100/60s", "gcra", 0, 16, 24},
    {"window8", "window 100/60s resolution=12", "window 8 B", 0, 16, 24},
    {"window16", "window 100/60s", "window 16 B", 1, 32, 48},
};

struct fill {
    double class_bytes, region_bytes, share_live; /* per key; of the places */
};

static uint64_t lost(const struct stint_table_info *info)
{
    return info->evictions_inherit + info->evictions_evict + info->full_denied;
}

static struct fill fill_one(const struct form *form, uint64_t n_keys, uint64_t secret)
{
    struct stint_table_options options = {
        .keys = form->state_class == 0 ? n_keys : 1,
        .keys16 = form->state_class == 1 ? n_keys : 1,
        .tickets = 1,
        .blocks = 1,
        .clock = STINT_CLOCK_VIRTUAL,
        .huge_pages = true,
        .hash_key = {secret, ~secret},
    };
    struct stint_table *table;
    struct stint_table_info info;
    struct stint_quota quota;
    struct stint_error error;
    if (stint_quota_parse(&quota, form->spec, &error) != 0 ||
        stint_table_open(&table, &options, &error) != 0) {
        fprintf(stderr, "bench_fill: %s\n", error.message);
        exit(1);
    }
    uint64_t came = 0, checked = 0;
    for (;;) {
        struct key key = key_of(came++);
        stint_take(table, &quota, &key, KEY_LEN, 1, NS_PER_S);
        if (came < n_keys || came % CHECK_EVERY != 0)
            continue;
        /* Counting the live ones reads the whole table: only when it may be enough. */
        if (came < checked + checked / 500)
            continue;
        checked = came;
        stint_table_info(table, NS_PER_S, &info);
        if (lost(&info) * LOST_SHARE >= info.live[form->state_class])
            break;
    }
    double live = (double)info.live[form->state_class];
    struct fill fill = {
        .class_bytes = (double)info.slots[form->state_class] * form->slot_size / live,
        .region_bytes = (double)info.bytes / live,
        .share_live = live / (double)info.slots[form->state_class],
    };
    stint_table_close(table);
    return fill;
}

static void run(const struct bench_options *options, const struct form *form, uint64_t n_keys)
{
    struct row row = {.unit = "B/key", .goal = GOAL_AT_MOST, .reach = form->reach};
    struct fill fill = {0};
    char what[64], note[96];
    snprintf(what, sizeof(what), "%s, table for %llu k keys", form->words,
             (unsigned long long)n_keys / 1000);
    for (uint64_t secret = 1; secret <= (options->quick ? 1 : TABLES); secret++) {
        fill = fill_one(form, n_keys, secret);
        row_add(&row, 0, fill.class_bytes);
    }
    snprintf(note, sizeof(note), "%.1f %% of the places live; %.2f B/key of the whole region",
             100 * fill.share_live, fill.region_bytes);
    row.what = what;
    row.note = note;
    row_report(options, &row);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    uint64_t n_keys = options.keys > 0 ? options.keys : options.quick ? 50000 : 1000000;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        if (bench_wants(options.algorithm, forms[i].name))
            run(&options, &forms[i], n_keys);
    return 0;
}
