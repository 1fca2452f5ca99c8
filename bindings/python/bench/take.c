/* SPDX-License-Identifier: MIT */
/* The baseline of take.py beside it: takes from C in the same process, on the same table. */
#include "stint.h"

#include <stdio.h>

static struct stint_table *table;
static struct stint_quota quota;

/* Opens the table of the file; 0, or an error, which is printed. */
STINT_API int bench_open(const char *path, const char *spec)
{
    struct stint_table_options options = {.path = path};
    struct stint_error error;
    int code = stint_quota_parse(&quota, spec, &error);
    if (code == 0)
        code = stint_table_open(&table, &options, &error);
    if (code < 0)
        fprintf(stderr, "%s\n", error.message);
    return code;
}

/* Takes one unit of each key, each at a time of its own; returns the units. */
STINT_API uint64_t bench_take(const char *const *keys, const size_t *key_lens, size_t n)
{
    uint64_t granted = 0;
    for (size_t i = 0; i < n; i++)
        granted += stint_take_now(table, &quota, keys[i], key_lens[i], 1).granted;
    return granted;
}
