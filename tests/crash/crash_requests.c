/* SPDX-License-Identifier: MIT */
/*
 * Processes that answer requests with ids are killed at random instants. Nobody waits for the dead:
 * every id is answered in the end, by one answer, and is decided anew only where its decider was
 * killed. A quota of one key that is set meanwhile is the one or the other.
 *
 * crash_requests [KILLS]: default 200, and thousands for the long run.
 */
#define _GNU_SOURCE
#include "crash/workers.h"

#include "table/overrides.h"
#include "table/requests.h"

#include <sched.h>
#include <unistd.h>

#define IDS_MAX (1u << 17)
#define NOW UINT64_C(1000000000)
#define AT_ONCE 8u /* ids near to one another that all are at */

struct shared {
    uint64_t next;              /* id; each is asked WORKERS times */
    uint64_t finished[WORKERS]; /* asks that came to their end */
    uint32_t decided[IDS_MAX];
    uint32_t answered_with[IDS_MAX]; /* the answer that somebody got first */
    uint64_t odd;
};

static struct shared *shared;
static struct stint_table *table;
static struct stint_quota quotas[2];

static void note_odd(bool odd)
{
    if (odd)
        __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
}

/* All who get an answer get the same one. */
static void compare(uint32_t id, uint32_t answer)
{
    uint32_t first = 0;
    note_odd(answer == 0);
    if (!__atomic_compare_exchange_n(&shared->answered_with[id], &first, answer, false,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        note_odd(first != answer);
}

static void ask(uint32_t id)
{
    struct requests_ask ask = {requests_hash(table, &id, sizeof(id)), id, NOW, NOW};
    struct requests_claim claim;
    struct requests_answer answer = {.at_ns = 0};
    enum requests_found found;
    while ((found = requests_begin(table, &ask, &claim, &answer)) == REQUESTS_BUSY)
        sched_yield();
    if (found == REQUESTS_NEW) {
        answer.decision.granted = __atomic_add_fetch(&shared->decided[id], 1, __ATOMIC_RELAXED);
        sleep_us(20); /* so that many are killed here */
        note_odd(!requests_end(table, &claim, &answer));
        return; /* only who is told an answer compares it */
    }
    note_odd(found != REQUESTS_SAME);
    compare(id, answer.decision.granted);
}

static void set_and_find(uint64_t turn)
{
    const uint32_t key = 1;
    struct hash128 hash = table_hash(table, &quotas[0], &key, sizeof(key));
    struct stint_quota quota;
    note_odd(overrides_set(table, hash, &quotas[turn % 2], NULL) != 0);
    note_odd(!overrides_find(table, hash, 5, &quota) || (quota.limit != 7 && quota.limit != 8));
}

static void work(unsigned worker)
{
    for (;;) {
        uint64_t turn = __atomic_fetch_add(&shared->next, 1, __ATOMIC_RELAXED);
        /* Neighbours in time ask for the same ids. */
        uint64_t id = turn / (WORKERS * AT_ONCE) * AT_ONCE + turn % AT_ONCE;
        if (id >= IDS_MAX)
            _exit(0);
        ask((uint32_t)id);
        if (turn % 16 == 0)
            set_and_find(turn / 16);
        __atomic_fetch_add(&shared->finished[worker], 1, __ATOMIC_RELAXED);
    }
}

static bool is_over(void)
{
    return __atomic_load_n(&shared->next, __ATOMIC_RELAXED) / WORKERS >= IDS_MAX;
}

static unsigned harass(unsigned kills)
{
    struct workers workers = {
        .name = "requests", .work = work, .is_over = is_over, .finished = shared->finished};
    unsigned killed = 0;
    workers_start(&workers);
    for (; killed < kills && !is_over() && workers_get_on(&workers); killed++)
        workers_replace(&workers, workers_pick(&workers, 300), 0);
    workers_end(&workers);
    return killed + WORKERS;
}

int main(int argc, char **argv)
{
    unsigned kills = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 200;
    struct stint_table_options options = {.keys = 64,
                                          .requests = 4 * IDS_MAX,
                                          /* nobody's answer is pushed out */ .memory =
                                              STINT_MEMORY_SHARED,
                                          .clock = STINT_CLOCK_VIRTUAL};
    table = crew_open(&options);
    crew_parse(&quotas[0], "gcra 7/1s");
    crew_parse(&quotas[1], "gcra 8/1m");
    quotas[0].rule = quotas[1].rule = 5;
    shared = workers_share(sizeof(*shared));
    unsigned killed = harass(kills);
    uint64_t ids = shared->next / WORKERS, anew = 0;
    for (uint64_t id = 0; id < ids && id < IDS_MAX; id++)
        anew += shared->decided[id] > 1 ? shared->decided[id] - 1 : 0;
    printf("%llu ids, %u kills, %llu decided anew\n", (unsigned long long)ids, killed,
           (unsigned long long)anew);
    crew_check(shared->odd == 0, "%llu answers were odd", (unsigned long long)shared->odd);
    crew_check(anew <= killed, "%llu were decided anew by %u deaths", (unsigned long long)anew,
               killed);
    crew_check(killed > kills / 2, "the ids were all asked after %u kills", killed);
    struct stint_table_info info;
    stint_table_info(table, NOW, &info);
    crew_check(info.requests_dropped == 0, "answers were pushed out");
    stint_table_close(table);
    return crew_report();
}
