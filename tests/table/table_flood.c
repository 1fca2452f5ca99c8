/* SPDX-License-Identifier: MIT */
/*
 * Very many different keys go through a table of a million: memory stays where it was, and the last
 * keys are decided as fast as the first. FIELD B14, B17.
 *
 * table_flood [KEYS]: default a million; 100000000 for the long run.
 */
#define _GNU_SOURCE
#include "race/crew.h"

#include <time.h>
#include <unistd.h>

#define TABLE_KEYS 1000000u
#define STEP_NS UINT64_C(10000)

static uint64_t resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &total, &resident) != 2)
        exit(1);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void flood(const char *spec, uint64_t keys)
{
    struct stint_table_options options = {
        .keys = TABLE_KEYS, .keys16 = TABLE_KEYS, .skew_max_ns = 1, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_quota quota;
    struct stint_table_info info;
    uint64_t before = resident_bytes(), now_ns = UINT64_C(1000000000), allowed = 0;
    double tenth[10];
    crew_parse(&quota, spec);
    struct stint_table *table = crew_open(&options);
    stint_table_info(table, 0, &info);
    for (unsigned part = 0; part < 10; part++) {
        double began = seconds();
        for (uint64_t i = 0; i < keys / 10; i++) {
            uint64_t key = part * keys + i;
            now_ns += STEP_NS;
            allowed +=
                stint_take(table, &quota, &key, sizeof(key), 1, now_ns).outcome == STINT_ALLOW;
        }
        tenth[part] = seconds() - began;
    }
    uint64_t grown = resident_bytes() - before;
    crew_check(grown <= info.bytes + (UINT64_C(4) << 20), "%s: grew by %llu bytes, bound %llu",
               spec, (unsigned long long)grown, (unsigned long long)info.bytes);
    /* The table is warm from the second tenth on; a machine that is shared may be slow for a while.
     */
    crew_check(tenth[9] < 4 * tenth[1] + 0.05, "%s: %g s for a tenth, then %g s", spec, tenth[1],
               tenth[9]);
    crew_check(allowed * 1000 >= keys * 999, "%s: allowed %llu of %llu new keys", spec,
               (unsigned long long)allowed, (unsigned long long)keys);
    printf("%s: %llu keys, %.0f ns each, %llu of %llu bytes\n", spec, (unsigned long long)keys,
           (tenth[1] + tenth[9]) / (double)(keys / 5) * 1e9, (unsigned long long)grown,
           (unsigned long long)info.bytes);
    stint_table_close(table);
}

int main(int argc, char **argv)
{
    uint64_t keys = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    flood("gcra 5/5s burst=5", keys);
    flood("window 5/5s", keys);
    return crew_report();
}
