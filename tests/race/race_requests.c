/* SPDX-License-Identifier: MIT */
/*
 * Threads that come with the same ids at the same time, in a table with hardly room for them: each
 * id is decided by one of them, and the others are told what it decided. Beside them keys get and
 * lose quotas of their own.
 */
#include "race/crew.h"

#include "base/splitmix.h"
#include "table/overrides.h"
#include "table/requests.h"

#include <sched.h>

#define THREADS 4
#define IDS 20000u
#define KEYS 16u
#define NOW UINT64_C(1000000000)

struct shared {
    struct stint_table *table;
    struct stint_quota quotas[2];
    uint32_t decided[IDS];
    uint64_t odd;
};

static void note_odd(struct shared *shared, bool odd)
{
    if (odd)
        __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
}

static void decide(struct shared *shared, uint32_t id, const struct requests_claim *claim)
{
    struct requests_answer answer = {.decision = {.granted = id, .limit = ~id}, .at_ns = id};
    uint32_t times = __atomic_add_fetch(&shared->decided[id], 1, __ATOMIC_RELAXED);
    answer.ticket.nonce = times;
    if (id % 7 == 0)
        sched_yield();
    /* Some find that nothing is to be charged after all; then the next decides. */
    bool drops = id % 5 == 0 && times == 1;
    note_odd(shared, !requests_end(shared->table, claim, drops ? NULL : &answer));
}

static void ask_all(void *arg, unsigned number)
{
    struct shared *shared = arg;
    for (uint32_t id = 0; id < IDS; id++) {
        struct requests_ask ask = {requests_hash(shared->table, &id, sizeof(id)), id, NOW, NOW};
        struct requests_claim claim;
        struct requests_answer answer;
        enum requests_found found;
        while ((found = requests_begin(shared->table, &ask, &claim, &answer)) == REQUESTS_BUSY)
            sched_yield();
        if (found == REQUESTS_NEW)
            decide(shared, id, &claim);
        else
            note_odd(shared, found != REQUESTS_SAME || answer.decision.granted != id ||
                                 answer.decision.limit != ~id || answer.at_ns != id ||
                                 answer.ticket.nonce != (id % 5 == 0 ? 2 : 1));
    }
    (void)number;
}

/* Room for all: as nothing is pushed out, each id is decided once, or twice where it is dropped. */
static void each_is_decided_once(uint32_t requests)
{
    static struct shared shared;
    struct stint_table_options options = {
        .keys = 64, .requests = requests, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table_info info;
    shared = (struct shared){.table = crew_open(&options)};
    crew_run(THREADS, ask_all, &shared);
    stint_table_info(shared.table, NOW, &info);
    for (uint32_t id = 0; id < IDS; id++)
        crew_check(shared.decided[id] == (id % 5 == 0 ? 2 : 1), "id %u was decided %u times", id,
                   shared.decided[id]);
    crew_check(shared.odd == 0, "%llu answers were not what was decided",
               (unsigned long long)shared.odd);
    crew_check(info.requests_dropped == 0, "answers were pushed out");
    stint_table_close(shared.table);
}

/* Two write, two read: what is found is one of the two quotas, whole. */
static void set_and_find(void *arg, unsigned number)
{
    struct shared *shared = arg;
    uint64_t seed = number + 3;
    for (unsigned i = 0; i < IDS; i++) {
        uint64_t random = splitmix_next(&seed);
        uint32_t key = (uint32_t)(random >> 40) % KEYS;
        struct hash128 hash = table_hash(shared->table, &shared->quotas[0], &key, sizeof(key));
        struct stint_quota quota;
        if (number < 2 && (random >> 33) % 3 == 0)
            overrides_drop(shared->table, hash, NULL);
        else if (number < 2)
            note_odd(shared,
                     overrides_set(shared->table, hash, &shared->quotas[random >> 63], NULL) != 0);
        else if (overrides_find(shared->table, hash, 5, &quota))
            note_odd(shared, quota.limit != 7 && quota.limit != 8);
    }
}

/* The places that hold a whole override: a copy of any other is zeroes. */
static uint64_t count_whole(const struct stint_table *table)
{
    static const uint8_t none[OVERRIDE_SIZE];
    uint64_t n_whole = 0;
    for (uint64_t i = 0; i < overrides_places(&table->region.fixed); i++) {
        uint8_t place[OVERRIDE_SIZE];
        overrides_copy(table, i, place);
        n_whole += memcmp(place, none, sizeof(none)) != 0;
    }
    return n_whole;
}

static void overrides_are_whole(void)
{
    static struct shared shared;
    struct stint_table_options options = {.keys = 64, .overrides = KEYS};
    struct stint_table_info info;
    shared = (struct shared){.table = crew_open(&options)};
    crew_parse(&shared.quotas[0], "gcra 7/1s");
    crew_parse(&shared.quotas[1], "gcra 8/1m");
    shared.quotas[0].rule = shared.quotas[1].rule = 5;
    crew_run(THREADS, set_and_find, &shared);
    uint64_t n_whole = count_whole(shared.table);
    stint_table_info(shared.table, NOW, &info);
    crew_check(shared.odd == 0, "%llu quotas were not what was set",
               (unsigned long long)shared.odd);
    crew_check(n_whole == info.overrides, "%u are counted, %llu are there", info.overrides,
               (unsigned long long)n_whole);
    stint_table_close(shared.table);
}

int main(void)
{
    each_is_decided_once(4 * IDS);
    overrides_are_whole();
    return crew_report();
}
