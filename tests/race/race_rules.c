/* SPDX-License-Identifier: MIT */
/*
 * One rule under quotas whose states differ in size, used by threads at the same time: whoever asks
 * under which, no key admits more than the larger of the limits in one window, and with equal
 * limits what is left in the end is what was not admitted. Threads that die: race_schedules.c.
 */
#include "race/crew.h"

#define THREADS 6
#define KEYS 200
#define ROUNDS 4
#define LIMIT 12
#define SPECS_MAX 4
#define NOW_NS UINT64_C(3600000000000)

struct shared {
    struct stint_table *table;
    struct stint_quota quotas[SPECS_MAX];
    unsigned n_quotas;
    uint64_t granted[KEYS];
};

static struct stint_table *open_table(void)
{
    struct stint_table_options options = {.clock = STINT_CLOCK_VIRTUAL,
                                          .keys = 4 * KEYS,
                                          .keys16 = 4 * KEYS,
                                          .keys_wide = 4 * KEYS,
                                          .wide_size = 512};
    return crew_open(&options);
}

/* Every thread asks for every key under every quota, each in an order of its own. */
static void take_all_keys(void *arg, unsigned number)
{
    struct shared *shared = arg;
    for (uint32_t i = 0; i < KEYS * ROUNDS * shared->n_quotas; i++) {
        /* All are at the same few keys at a time, so that they meet there. */
        uint32_t key = i / (ROUNDS * shared->n_quotas);
        const struct stint_quota *quota = &shared->quotas[(number + i) % shared->n_quotas];
        struct stint_item item = {quota, &key, sizeof(key), 2};
        uint32_t granted = stint_take_upto(shared->table, &item, 1, NOW_NS).granted;
        __atomic_fetch_add(&shared->granted[key], granted, __ATOMIC_RELAXED);
    }
}

static uint32_t limit_of(const struct shared *shared, bool *is_one)
{
    uint32_t most = shared->quotas[0].limit;
    *is_one = true;
    for (unsigned i = 1; i < shared->n_quotas; i++) {
        *is_one = *is_one && shared->quotas[i].limit == most;
        most = shared->quotas[i].limit > most ? shared->quotas[i].limit : most;
    }
    return most;
}

/* Nobody is at work any more: each quota is asked in turn for what is left. */
static void drain(struct shared *shared, uint32_t key)
{
    for (unsigned i = 0; i < shared->n_quotas; i++) {
        struct stint_item item = {&shared->quotas[i], &key, sizeof(key), LIMIT};
        shared->granted[key] += stint_take_upto(shared->table, &item, 1, NOW_NS).granted;
    }
}

static void race(const char *const *specs)
{
    static struct shared shared;
    bool is_one;
    struct stint_table_info info;
    memset(&shared, 0, sizeof(shared));
    shared.table = open_table();
    for (; shared.n_quotas < SPECS_MAX && specs[shared.n_quotas] != NULL; shared.n_quotas++) {
        struct stint_quota *quota = &shared.quotas[shared.n_quotas];
        crew_parse(quota, specs[shared.n_quotas]);
        quota->rule = 77;
    }
    uint32_t limit = limit_of(&shared, &is_one);
    crew_run(THREADS, take_all_keys, &shared);
    stint_table_info(shared.table, NOW_NS, &info);
    /* A thread that the system took off for long leaves a key that denies: see the decisions. */
    unsigned short_of = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        drain(&shared, key);
        crew_check(shared.granted[key] <= limit, "%s and others: key %u admitted %llu", specs[0],
                   key, (unsigned long long)shared.granted[key]);
        short_of += shared.granted[key] < limit;
    }
    crew_check(!is_one || short_of <= KEYS / 10 + info.owners_displaced,
               "%s and others: %u keys deny what is left", specs[0], short_of);
    stint_table_close(shared.table);
}

int main(void)
{
    static const char *const mixes[][SPECS_MAX] = {
        {"window 12/1m resolution=12", "window 12/1m"},
        {"gcra 12/1m", "log 12/1m"},
        {"window 12/1m", "log 12/1m"},
        {"window 12/1m resolution=12", "window 12/1m", "log 12/1m"},
        {"window 9/1m resolution=12", "window 12/1m", "log 6/1m", "window 12/1m resolution=10"},
    };
    for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++)
        race(mixes[i]);
    return crew_report();
}
