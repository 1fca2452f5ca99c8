/* SPDX-License-Identifier: MIT */
/*
 * All or nothing under contention: lists of several quotas on several keys, in any order and with
 * duplicates, from many threads. No key admits more than its limit, every unit that a state is
 * charged with belongs to an ALLOW or is counted as kept, and a ticket is good once. FIELD B7, B8.
 */
#include "race/crew.h"

#include "base/splitmix.h"

#define THREADS 4
#define KEYS 6u
#define QUOTAS 3u
#define ROUNDS 1000u
#define TIMES 20 /* with a new table: the limits are soon used up */
#define LIMIT_MAX 300u
#define NOW_NS (UINT64_C(100) * 3600 * 1000000000)
#define TICKETS 512u

struct shared {
    struct stint_table *table;
    struct stint_quota quotas[QUOTAS];
    uint64_t charged[QUOTAS][KEYS]; /* units that the callers were told are theirs */
    uint64_t redeemed, odd;
    struct stint_ticket tickets[TICKETS];
    uint32_t good[TICKETS];
    unsigned turn; /* 0: take, 1: take_upto */
};

static uint64_t draw(uint64_t *random)
{
    return splitmix_next(random) >> 24;
}

static void ask_lists(void *arg, unsigned number)
{
    static const uint32_t names[KEYS] = {11, 22, 33, 44, 55, 66};
    struct shared *shared = arg;
    uint64_t random = number * 77 + 5;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct stint_item items[4];
        unsigned picked[4][2];
        size_t n = 1 + draw(&random) % 4;
        for (size_t i = 0; i < n; i++) {
            picked[i][0] = (unsigned)(draw(&random) % QUOTAS);
            picked[i][1] = (unsigned)(draw(&random) % KEYS);
            items[i] = (struct stint_item){&shared->quotas[picked[i][0]], &names[picked[i][1]],
                                           sizeof(names[0]), 1 + (uint32_t)(draw(&random) % 3)};
        }
        struct stint_decision decision = shared->turn == 0
                                             ? stint_take_all(shared->table, items, n, NOW_NS)
                                             : stint_take_upto(shared->table, items, n, NOW_NS);
        if (decision.outcome == STINT_NEVER ||
            (decision.outcome == STINT_DENY && decision.granted > 0) ||
            (shared->turn == 1 && decision.outcome == STINT_ALLOW && decision.granted == 0))
            __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
        if (decision.outcome != STINT_ALLOW)
            continue;
        for (size_t i = 0; i < n; i++)
            __atomic_fetch_add(&shared->charged[picked[i][0]][picked[i][1]],
                               shared->turn == 0 ? items[i].cost : decision.granted,
                               __ATOMIC_RELAXED);
    }
}

static void open_shared(struct shared *shared, const char *const *specs)
{
    struct stint_table_options options = {.keys = 64,
                                          .keys16 = 64,
                                          .keys_wide = 64,
                                          .wide_size = 16384,
                                          .tickets = TICKETS,
                                          .clock = STINT_CLOCK_VIRTUAL};
    memset(shared, 0, sizeof(*shared));
    for (unsigned i = 0; i < QUOTAS; i++)
        crew_parse(&shared->quotas[i], specs[i]);
    shared->table = crew_open(&options);
}

/* What the states hold, and what the callers say they should. */
static void check_units(struct shared *shared, const char *what)
{
    static const uint32_t names[KEYS] = {11, 22, 33, 44, 55, 66};
    struct stint_table_info info;
    uint64_t held = 0, charged = 0;
    for (unsigned q = 0; q < QUOTAS; q++) {
        for (unsigned k = 0; k < KEYS; k++) {
            struct stint_item item = {&shared->quotas[q], &names[k], sizeof(names[0]), 0};
            struct stint_decision peek = stint_peek(shared->table, &item, 1, NOW_NS);
            crew_check(shared->charged[q][k] <= peek.limit, "%s: quota %u, key %u: %llu of %u",
                       what, q, k, (unsigned long long)shared->charged[q][k], peek.limit);
            held += peek.limit - peek.remaining;
            charged += shared->charged[q][k];
        }
    }
    stint_table_info(shared->table, NOW_NS, &info);
    crew_check(held >= charged, "%s: states hold %llu, callers were given %llu", what,
               (unsigned long long)held, (unsigned long long)charged);
    /* A key whose owner was displaced is full. */
    crew_check(held <= charged + info.undo_kept_units + info.owners_displaced * LIMIT_MAX,
               "%s: states hold %llu, callers were given %llu, %llu were kept", what,
               (unsigned long long)held, (unsigned long long)charged,
               (unsigned long long)info.undo_kept_units);
    crew_check(shared->odd == 0, "%s: %llu odd answers", what, (unsigned long long)shared->odd);
}

static void lists_conserve_units(const char *const *specs, unsigned turn, const char *what)
{
    static struct shared shared;
    for (unsigned time = 0; time < TIMES; time++) {
        open_shared(&shared, specs);
        shared.turn = turn;
        crew_run(THREADS, ask_lists, &shared);
        check_units(&shared, what);
        stint_table_close(shared.table);
    }
}

/* All threads try to settle or cancel all tickets: each is good for one of them. */
static void redeem_tickets(void *arg, unsigned number)
{
    struct shared *shared = arg;
    for (unsigned i = 0; i < TICKETS; i++) {
        unsigned at = (i * 7 + number * 131) % TICKETS;
        struct stint_ticket ticket = shared->tickets[at];
        int code = (at + number) % 2 == 0 ? stint_cancel(shared->table, ticket, NOW_NS, NULL)
                                          : stint_settle(shared->table, ticket, 0, NOW_NS, NULL);
        if (code == 0)
            __atomic_fetch_add(&shared->good[at], 1, __ATOMIC_RELAXED);
        else if (code != STINT_E_GONE)
            __atomic_fetch_add(&shared->odd, 1, __ATOMIC_RELAXED);
    }
}

static void tickets_are_good_once(void)
{
    static const char *const specs[QUOTAS] = {"gcra 512/1h", "log 512/1h",
                                              "concurrency 512 lease=1h"};
    static struct shared shared;
    open_shared(&shared, specs);
    for (unsigned i = 0; i < TICKETS; i++) {
        struct stint_item item = {&shared.quotas[i % QUOTAS], "k", 1, 1};
        struct stint_decision decision =
            stint_reserve(shared.table, &item, 1, 1000, NOW_NS, &shared.tickets[i]);
        crew_check(decision.outcome == STINT_ALLOW, "ticket %u was not issued", i);
    }
    crew_run(THREADS, redeem_tickets, &shared);
    for (unsigned i = 0; i < TICKETS; i++)
        crew_check(shared.good[i] == 1, "ticket %u was good %u times", i, shared.good[i]);
    for (unsigned q = 0; q < QUOTAS; q++) {
        struct stint_item item = {&shared.quotas[q], "k", 1, 512};
        struct stint_decision peek = stint_peek(shared.table, &item, 1, NOW_NS);
        crew_check(peek.outcome == STINT_ALLOW, "quota %u: not all came back", q);
    }
    crew_check(shared.odd == 0, "%llu odd answers", (unsigned long long)shared.odd);
    stint_table_close(shared.table);
}

/*
 * More threads than the ring has slots: writers overtake each other. A ticket may be gone then, but
 * what is given back is never more than what was charged.
 */
static void hurry_through_ring(void *arg, unsigned number)
{
    struct shared *shared = arg;
    for (unsigned i = 0; i < 4 * ROUNDS; i++) {
        uint32_t name = number;
        struct stint_item item = {&shared->quotas[1], &name, sizeof(name), 1};
        struct stint_ticket ticket;
        struct stint_decision given = {.granted = 0};
        if (stint_reserve(shared->table, &item, 1, 1000, NOW_NS, &ticket).outcome != STINT_ALLOW)
            break;
        if (stint_cancel(shared->table, ticket, NOW_NS, &given) == 0)
            __atomic_fetch_add(&shared->good[number], given.granted, __ATOMIC_RELAXED);
        __atomic_fetch_add(&shared->charged[0][number], 1, __ATOMIC_RELAXED);
    }
}

static void a_small_ring_mints_nothing(void)
{
    static struct shared shared;
    struct stint_table_options options = {
        .keys_wide = 64, .wide_size = 16384, .tickets = 1, .clock = STINT_CLOCK_VIRTUAL};
    memset(&shared, 0, sizeof(shared));
    crew_parse(&shared.quotas[1], "log 1000/1h");
    shared.table = crew_open(&options);
    crew_run(THREADS, hurry_through_ring, &shared);
    struct stint_table_info info;
    stint_table_info(shared.table, NOW_NS, &info);
    uint64_t displaced = info.owners_displaced;
    for (uint32_t key = 0; key < THREADS; key++) {
        struct stint_item item = {&shared.quotas[1], &key, sizeof(key), 0};
        struct stint_decision peek = stint_peek(shared.table, &item, 1, NOW_NS);
        uint64_t held = peek.limit - peek.remaining;
        uint64_t charged = shared.charged[0][key] - shared.good[key];
        crew_check(held == charged || (held > charged && crew_excuses(&displaced)),
                   "small ring: key %u holds %llu, charged %llu, given back %u", key,
                   (unsigned long long)held, (unsigned long long)shared.charged[0][key],
                   shared.good[key]);
    }
    /* A list that needs more slots than there are is refused, not cut. */
    struct stint_item pair[2] = {{&shared.quotas[1], "a", 1, 1}, {&shared.quotas[1], "b", 1, 1}};
    struct stint_ticket ticket;
    crew_check(stint_reserve(shared.table, pair, 2, 1000, NOW_NS, &ticket).outcome == STINT_NEVER,
               "a ticket of two parts in a ring of one slot");
    stint_table_close(shared.table);
}

/* min(cost, remaining), the same from every quota; and not a unit less (nor one out of nothing). */
static void upto_grants_all_there_is(void)
{
    static const char *const specs[QUOTAS] = {"gcra 5/1h", "window 7/1h", "log 9/1h"};
    static struct shared shared;
    open_shared(&shared, specs);
    struct stint_item items[3];
    for (unsigned q = 0; q < QUOTAS; q++)
        items[q] = (struct stint_item){&shared.quotas[q], "k", 1, 100};
    struct stint_decision first = stint_take_upto(shared.table, items, 3, NOW_NS);
    struct stint_decision second = stint_take_upto(shared.table, items, 3, NOW_NS);
    crew_check(first.outcome == STINT_ALLOW && first.granted == 5, "upto granted %u of 5",
               first.granted);
    crew_check(second.outcome == STINT_DENY && second.granted == 0, "upto granted %u of 0",
               second.granted);
    items[0] = items[2];
    struct stint_decision twice = stint_take_upto(shared.table, items, 3, NOW_NS);
    crew_check(twice.outcome == STINT_ALLOW && twice.granted == 2, "upto granted %u of 2",
               twice.granted);
    stint_table_close(shared.table);
}

int main(void)
{
    static const char *const small[QUOTAS] = {"gcra 300/1h", "window 200/1h resolution=12",
                                              "fixed_window 250/1h"};
    static const char *const wide[QUOTAS] = {"window 300/1h", "log 200/1h",
                                             "buckets 250/1h time_slack=6m"};
    upto_grants_all_there_is();
    lists_conserve_units(small, 0, "take of 8-byte states");
    lists_conserve_units(wide, 0, "take of wider states");
    lists_conserve_units(small, 1, "take_upto of 8-byte states");
    lists_conserve_units(wide, 1, "take_upto of wider states");
    tickets_are_good_once();
    a_small_ring_mints_nothing();
    return crew_report();
}
