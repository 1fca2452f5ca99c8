/* SPDX-License-Identifier: MIT */
/*
 * Resident memory per live key: a new table, made for more keys than come. The kernel says how
 * much of its region is in this process's memory once a part of the keys has come.
 */
#define _GNU_SOURCE
#include "keys.h"
#include "measure.h"

#include "base/ns.h"
#include "table/handle.h"
#include <stint.h>

#include <stdlib.h>
#include <unistd.h>

#define PATH_SPACE 64
#define LINE_SPACE 512
#define KIB 1024

struct form {
    const char *name, *spec, *words;
    enum slot_class class;
};

static const struct form forms[] = {
    {"gcra", "gcra 100/60s", "gcra", CLASS_8},
    {"window16", "window 100/60s", "window 16 B", CLASS_16},
};

struct ground {
    const char *words;
    enum stint_memory memory;
    bool huge_pages;
};

static const struct ground grounds[] = {
    {"heap", STINT_MEMORY_HEAP, false},
    {"heap, huge pages", STINT_MEMORY_HEAP, true},
    {"shared", STINT_MEMORY_SHARED, false},
    {"file", STINT_MEMORY_FILE, false},
};

/* Of 1000: a table just begun, those between, and one almost full. */
static const uint64_t parts[] = {10, 50, 200, 400, 800};

static void fail(const char *what)
{
    fprintf(stderr, "bench_memory: %s\n", what);
    exit(1);
}

/* Of the mapping of a region: pages of this process, also where they belong to a file. */
static uint64_t resident(const struct region *region)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[LINE_SPACE];
    unsigned long long from, to, kib, rss = 0;
    uintptr_t begin = (uintptr_t)region->header, end = begin + region->map_size;
    bool is_inside = false;
    if (maps == NULL)
        fail("/proc/self/smaps cannot be read");
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
            is_inside = from < end && to > begin;
        else if (is_inside && sscanf(line, "Rss: %llu kB", &kib) == 1)
            rss += kib * KIB;
    }
    fclose(maps);
    return rss;
}

static struct stint_table *open_table(const struct form *form, const struct ground *ground,
                                      uint64_t n_keys, const char *path)
{
    struct stint_table_options options = {
        .keys = form->class == CLASS_8 ? n_keys : 0,
        .keys16 = form->class == CLASS_16 ? n_keys : 0,
        .memory = ground->memory,
        .path = ground->memory == STINT_MEMORY_FILE ? path : NULL,
        .huge_pages = ground->huge_pages,
        .clock = STINT_CLOCK_VIRTUAL,
        .hash_key = {1, 2},
    };
    struct stint_table *table;
    struct stint_error error;
    if (stint_table_open(&table, &options, &error) != 0)
        fail(error.message);
    return table;
}

static void run(const struct bench_options *options, const struct form *form,
                const struct ground *ground, uint64_t n_keys)
{
    char path[PATH_SPACE];
    snprintf(path, sizeof(path), "/tmp/bench_memory.%ld", (long)getpid());
    struct stint_table *table = open_table(form, ground, n_keys, path);
    struct stint_table_info info;
    struct stint_quota quota;
    uint64_t came = 0;
    if (stint_quota_parse(&quota, form->spec, NULL) != 0)
        fail("a quota that is none");
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        struct row row = {.unit = "B/key", .reach = 64};
        char what[96];
        for (; came < n_keys / 1000 * parts[i]; came++) {
            struct key key = key_of(came);
            stint_take(table, &quota, &key, KEY_LEN, 1, NS_PER_S);
        }
        snprintf(what, sizeof(what), "%s, %s, %g %% of %llu k keys live", form->words,
                 ground->words, (double)parts[i] / 10, (unsigned long long)n_keys / 1000);
        row.goal = parts[i] == 50 && !ground->huge_pages ? GOAL_AT_MOST : GOAL_NONE;
        row.what = what;
        row_add(&row, 0, (double)resident(&table->region) / (double)came);
        row_report(options, &row);
    }
    stint_table_info(table, NS_PER_S, &info);
    if (info.evictions_inherit + info.evictions_evict + info.full_denied > came / 1000)
        fail("keys found no place");
    stint_table_close(table);
    unlink(path);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_options(argc, argv);
    uint64_t n_keys = options.keys > 0 ? options.keys : options.quick ? 50000 : 1000000;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        for (size_t j = 0; j < sizeof(grounds) / sizeof(*grounds); j++)
            if (bench_wants(options.algorithm, forms[i].name))
                run(&options, &forms[i], &grounds[j], n_keys);
    return 0;
}
