/* SPDX-License-Identifier: MIT */
/*
 * Reservations that are never settled: what stays charged of them once their deadline has passed,
 * in virtual time; who closes them; and that no unit comes back twice.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/table.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define NOW (1000 * MINUTE)
#define RING 64u
#define ALL STINT_KEEP_ALL

struct fixture {
    struct stint_table *table;
    struct stint_quota gcra, fixed, log, buckets, window, places;
};

static struct fixture fixture[1];

SETUP
{
    name_path();
    const struct stint_table_options options = {.path = path,
                                                .keys = 64,
                                                .keys16 = 64,
                                                .keys_wide = 64,
                                                .wide_size = 1024,
                                                .tickets = RING,
                                                .blocks = 4,
                                                .quotas = 16,
                                                .clock = STINT_CLOCK_VIRTUAL};
    fixture->table = must_open_table(&options);
    fixture->gcra = quota_of("gcra 20/20h");
    fixture->fixed = quota_of("fixed_window 20/20h");
    fixture->log = quota_of("log 20/20h");
    fixture->buckets = quota_of("buckets 20/20h time_slack=1h count_slack=2");
    fixture->window = quota_of("window 20/20h");
    fixture->places = quota_of("concurrency 20 lease=2m");
}

TEARDOWN
{
    stint_table_close(fixture->table);
    remove_file();
}

static uint32_t used(const struct stint_quota *quota, const char *key, uint64_t now_ns)
{
    const struct stint_item asked = item(quota, key, 0);
    struct stint_decision decision = stint_peek(fixture->table, &asked, 1, now_ns);
    return decision.limit - decision.remaining;
}

static struct stint_ticket reserve(const struct stint_item *items, size_t n, const uint32_t *kept,
                                   uint64_t now_ns)
{
    struct stint_ticket ticket;
    assert_int_equal(
        stint_reserve_expiring(fixture->table, items, n, MINUTE, kept, now_ns, &ticket).outcome,
        STINT_ALLOW);
    return ticket;
}

static void expire_all(uint64_t now_ns)
{
    while (stint_expire(fixture->table, now_ns, 16) > 0) {
    }
}

static struct stint_table_info info_of(void)
{
    struct stint_table_info info;
    stint_table_info(fixture->table, NOW, &info);
    return info;
}

static void assert_expired(uint64_t keep, uint64_t floor, uint64_t release)
{
    struct stint_table_info info = info_of();
    assert_int_equal(info.reservations_expired[STINT_EXPIRY_KEEP], keep);
    assert_int_equal(info.reservations_expired[STINT_EXPIRY_FLOOR], floor);
    assert_int_equal(info.reservations_expired[STINT_EXPIRY_RELEASE], release);
}

static void assert_gone(struct stint_ticket ticket, uint64_t now_ns)
{
    assert_int_equal(stint_settle(fixture->table, ticket, 9, now_ns, NULL), STINT_E_GONE);
    assert_int_equal(stint_cancel(fixture->table, ticket, now_ns, NULL), STINT_E_GONE);
}

/* Of an estimate of five stays what was said, and not before the deadline. */
TEST(test_what_was_said_stays)
{
    static const struct {
        uint32_t kept, left;
        uint64_t expired[3];
    } cases[] = {{ALL, 5, {1, 0, 0}}, {0, 0, {0, 0, 1}}, {1, 1, {0, 1, 0}},
                 {4, 4, {0, 1, 0}},   {5, 5, {0, 1, 0}}, {9, 5, {0, 1, 0}}};
    const struct stint_quota *quotas[] = {&fixture->fixed, &fixture->log};
    uint64_t sum[3] = {0};
    for (size_t q = 0; q < N(quotas); q++) {
        for (size_t i = 0; i < N(cases); i++) {
            const char key[] = {(char)('a' + i), '\0'};
            const uint64_t now_ns = NOW + (q * N(cases) + i) * 5 * MINUTE;
            const struct stint_item asked = item(quotas[q], key, 5);
            struct stint_ticket ticket = reserve(&asked, 1, &cases[i].kept, now_ns);
            expire_all(now_ns + MINUTE - 1);
            assert_int_equal(used(quotas[q], key, now_ns + MINUTE - 1), 5);
            assert_expired(sum[0], sum[1], sum[2]);
            for (int again = 0; again < 3; again++) {
                expire_all(now_ns + MINUTE);
                assert_int_equal(used(quotas[q], key, now_ns + MINUTE), cases[i].left);
                assert_gone(ticket, now_ns + MINUTE);
            }
            for (int action = 0; action < 3; action++)
                sum[action] += cases[i].expired[action];
            assert_expired(sum[0], sum[1], sum[2]);
        }
    }
    assert_int_equal(info_of().expiry_kept_units, 0);
}

/* A settle or a cancel in time leaves nothing to expire; one that is late changes nothing. */
TEST(test_a_settled_reservation_does_not_expire)
{
    const struct stint_item asked = item(&fixture->fixed, "k", 5);
    const uint32_t release = 0;
    struct stint_ticket ticket = reserve(&asked, 1, &release, NOW);
    assert_int_equal(stint_settle(fixture->table, ticket, 3, NOW + MINUTE - 1, NULL), 0);
    expire_all(NOW + MINUTE);
    assert_int_equal(used(&fixture->fixed, "k", NOW + MINUTE), 3);
    assert_expired(0, 0, 0);
    ticket = reserve(&asked, 1, &release, NOW + MINUTE);
    assert_gone(ticket, NOW + 2 * MINUTE);
    assert_int_equal(used(&fixture->fixed, "k", NOW + 2 * MINUTE), 8);
    expire_all(NOW + 2 * MINUTE);
    assert_gone(ticket, NOW + 2 * MINUTE);
    assert_int_equal(used(&fixture->fixed, "k", NOW + 2 * MINUTE), 3);
}

/* Each quota of a list keeps what was said of it; equal items keep it each. */
TEST(test_each_of_a_list_keeps_its_own)
{
    const struct stint_item items[] = {item(&fixture->fixed, "k", 5), item(&fixture->log, "k", 4),
                                       item(&fixture->fixed, "k", 6),
                                       item(&fixture->fixed, "l", 2)};
    const uint32_t kept[] = {1, 0, 4, ALL};
    reserve(items, N(items), kept, NOW);
    expire_all(NOW + MINUTE);
    assert_int_equal(used(&fixture->fixed, "k", NOW + MINUTE), 5);
    assert_int_equal(used(&fixture->log, "k", NOW + MINUTE), 0);
    assert_int_equal(used(&fixture->fixed, "l", NOW + MINUTE), 2);
    assert_expired(0, 0, 1); /* one reservation: the action that keeps least */
}

/* Places go by their lease and bookings by their start, whatever is said; only units come back. */
TEST(test_places_and_bookings_are_left_alone)
{
    const struct stint_item place = item(&fixture->places, "k", 5);
    const struct stint_item mixed[] = {place, item(&fixture->fixed, "k", 5)};
    const struct stint_item job = item(&fixture->gcra, "job", 20);
    const uint32_t release[] = {0, 0};
    struct stint_ticket booked;
    reserve(&place, 1, release, NOW);
    reserve(mixed, 2, release, NOW);
    stint_book(fixture->table, &job, 1, DAY, NOW, &booked);
    stint_book(fixture->table, &job, 1, DAY, NOW, &booked);
    expire_all(NOW + MINUTE);
    assert_int_equal(used(&fixture->places, "k", NOW + MINUTE), 10);
    assert_int_equal(used(&fixture->fixed, "k", NOW + MINUTE), 0);
    assert_int_equal(used(&fixture->places, "k", NOW + 2 * MINUTE), 0);
    expire_all(NOW + 10 * DAY);
    assert_expired(0, 0, 1);
    const struct stint_item asked = item(&fixture->gcra, "job", 1);
    assert_int_equal(stint_peek(fixture->table, &asked, 1, NOW + MINUTE).outcome, STINT_DENY);
}

/* What the rule of refund cannot return stays charged, and is counted. */
TEST(test_what_cannot_return_is_counted)
{
    const struct stint_item asked = item(&fixture->gcra, "k", 20),
                            other = item(&fixture->gcra, "k", 1);
    const uint32_t release = 0;
    struct stint_ticket ticket;
    /* A unit flows back each hour: after two and a half, 17 of the 20 can be given back. */
    stint_reserve_expiring(fixture->table, &asked, 1, 150 * MINUTE, &release, NOW, &ticket);
    assert_int_equal(stint_take(fixture->table, other.quota, "k", 1, 1, NOW + 140 * MINUTE).outcome,
                     STINT_ALLOW);
    expire_all(NOW + 150 * MINUTE);
    struct stint_table_info info = info_of();
    assert_expired(0, 0, 1);
    assert_in_range(info.expiry_kept_units, 2, 3);
    assert_int_equal(used(&fixture->gcra, "k", NOW + 150 * MINUTE), 1);
}

/* A call looks at so many places at most, and says how many are left. */
TEST(test_a_call_is_bounded)
{
    const uint32_t release = 0;
    assert_int_equal(stint_expire(fixture->table, NOW, 1), 0);
    for (unsigned i = 0; i < 10; i++) {
        const struct stint_item asked = item(&fixture->fixed, (char[]){(char)('a' + i), '\0'}, 5);
        reserve(&asked, 1, &release, NOW);
    }
    for (uint64_t left = 9; left > 0; left--) {
        assert_int_equal(stint_expire(fixture->table, NOW + MINUTE, 1), left);
        assert_expired(0, 0, 10 - left);
    }
    assert_int_equal(stint_expire(fixture->table, NOW + MINUTE, 1), 0);
    assert_expired(0, 0, 10);
    /* Nothing is looked at once no reservation can be open. */
    assert_int_equal(stint_expire(fixture->table, NOW + 2 * MINUTE, 1000), 0);
    assert_int_equal(stint_expire(fixture->table, NOW + 2 * MINUTE, 1), 0);
}

/* A full ring closes the oldest open one as estimated, whatever was said; one that is over becomes
 * what was said. */
TEST(test_a_full_ring_keeps_what_is_open)
{
    const uint32_t release = 0;
    const struct stint_item asked = item(&fixture->fixed, "first", 5),
                            none = item(&fixture->fixed, "x", 0);
    for (int over = 0; over < 2; over++) {
        uint64_t now_ns = NOW + (uint64_t)over * 10 * MINUTE;
        reserve(&asked, 1, &release, now_ns);
        for (unsigned i = 0; i < RING; i++)
            reserve(&none, 1, NULL, now_ns + (over ? MINUTE : 0));
        assert_int_equal(info_of().tickets_dropped, 1);
        assert_int_equal(used(&fixture->fixed, "first", now_ns), 5);
        assert_int_equal(info_of().reservations_expired[STINT_EXPIRY_RELEASE], over);
        expire_all(now_ns + 5 * MINUTE);
    }
}

/* A ticket that takes a later slot of a list's reservation, which is over, closes that as was said.
 */
TEST(test_a_list_is_closed_by_any_of_its_slots)
{
    const uint32_t release[32] = {0};
    struct stint_item list[32];
    char keys[32][2];
    for (size_t i = 0; i < N(list); i++) {
        memcpy(keys[i], (char[]){(char)('A' + i), '\0'}, 2);
        list[i] = item(&fixture->fixed, keys[i], 1);
    }
    const struct stint_item none = item(&fixture->fixed, "x", 0);
    struct stint_ticket open;
    stint_reserve(fixture->table, &none, 1, DAY, NOW, &open); /* in slot 0; the list in 1 … 32 */
    reserve(list, 32, release, NOW);
    for (unsigned i = 33; i < RING; i++)
        reserve(&none, 1, NULL, NOW + MINUTE);
    for (size_t i = 0; i < N(list); i++)
        list[i].cost = 0;
    reserve(list, 16, NULL, NOW + MINUTE); /* not in slot 0, and so in 16 … 31 */
    assert_int_equal(info_of().tickets_dropped, 0);
    assert_expired(0, 0, 1);
    for (size_t i = 0; i < N(list); i++)
        assert_int_equal(used(&fixture->fixed, keys[i], NOW + MINUTE), 0);
    assert_int_equal(stint_cancel(fixture->table, open, NOW + MINUTE, NULL), 0);
}

/* ---- Property -------------------------------------------------------------------------------- */

#define STEPS 3000u
#define PROPERTY_LIMIT 20u

struct use {
    uint64_t at_ns;
    uint32_t units;
};

/* What was used within a period that ends with each use. */
static void judge(const struct use *uses, size_t n, uint64_t period_ns)
{
    for (size_t last = 0, first = 0, sum = 0; last < n; last++) {
        sum += uses[last].units;
        while (uses[first].at_ns + period_ns <= uses[last].at_ns)
            sum -= uses[first++].units;
        assert_in_range(sum, 0, PROPERTY_LIMIT);
    }
}

/*
 * Takes, reservations that are settled, and reservations that expire, of which no more was used
 * than was said to stay: in no window were more than N units used.
 */
static void play(const struct stint_quota *quota, uint64_t seed)
{
    static struct use uses[STEPS];
    struct {
        struct stint_ticket ticket;
        uint64_t ends_ns;
        size_t use;
        uint32_t kept;
    } open[RING / 2];
    size_t n = 0, n_open = 0;
    uint64_t now_ns = NOW;
    uint32_t denied = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        now_ns += next_random(&seed) % (20 * S);
        for (size_t i = n_open; i-- > 0;) {
            if (open[i].ends_ns > now_ns)
                continue;
            uses[open[i].use].units = open[i].kept;
            open[i] = open[--n_open];
        }
        expire_all(now_ns);
        uint32_t cost = 1 + (uint32_t)next_random(&seed) % 8,
                 kept = (uint32_t)next_random(&seed) % 3;
        uint64_t what = next_random(&seed) % 3;
        const struct stint_item asked = item(quota, "k", cost);
        if (what == 0 && n_open > 0) {
            size_t i = next_random(&seed) % n_open;
            uint32_t used_of = (uint32_t)next_random(&seed) % (uses[open[i].use].units + 1);
            assert_int_equal(stint_settle(fixture->table, open[i].ticket, used_of, now_ns, NULL),
                             0);
            uses[open[i].use].units = used_of;
            open[i] = open[--n_open];
        } else if (what == 1 || n_open == N(open)) {
            bool allows =
                stint_take(fixture->table, quota, "k", 1, cost, now_ns).outcome == STINT_ALLOW;
            denied += !allows;
            if (allows)
                uses[n++] = (struct use){now_ns, cost};
        } else {
            uint64_t life_ns = 1 + next_random(&seed) % (90 * S);
            struct stint_ticket ticket;
            bool allows =
                stint_reserve_expiring(fixture->table, &asked, 1, life_ns, &kept, now_ns, &ticket)
                    .outcome == STINT_ALLOW;
            denied += !allows;
            if (!allows)
                continue;
            open[n_open].ticket = ticket;
            open[n_open].ends_ns = now_ns + life_ns;
            open[n_open].use = n;
            open[n_open++].kept = kept < cost ? kept : cost;
            uses[n++] = (struct use){now_ns, cost};
        }
    }
    judge(uses, n, quota->period_ns);
    assert_in_range(denied, STEPS / 20, STEPS); /* it was full now and then */
}

TEST(test_no_window_passes_the_limit)
{
    static const char *const specs[] = {"window 20/1m", "window 20/1m resolution=12",
                                        "window 20/1m resolution=100", "log 20/1m",
                                        "buckets 20/1m time_slack=5s count_slack=2"};
    for (size_t i = 0; i < N(specs); i++)
        for (uint64_t seed = 1; seed <= 5; seed++) {
            struct stint_quota quota = quota_of(specs[i]);
            play(&quota, seed);
            tear_down();
            set_up();
        }
}

/* ---- At once, and killed --------------------------------------------------------------------- */

#define ROUNDS 200u

struct racer {
    struct stint_table *table;
    pthread_barrier_t *start;
    const struct stint_ticket *tickets;
};

static void *sweep_over_and_over(void *arg)
{
    struct racer *racer = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(racer->start);
        while (stint_expire(racer->table, NOW + MINUTE, 7) > 0) {
        }
        pthread_barrier_wait(racer->start);
    }
    return NULL;
}

/* A caller whose clock is behind cancels while others expire: each ticket is closed once. */
TEST(test_one_of_all_closes_a_reservation)
{
    struct stint_quota quota = quota_of("fixed_window 1000/20h");
    const struct stint_item asked = item(&quota, "k", 5);
    const uint32_t release = 0;
    struct stint_ticket tickets[RING];
    struct racer racer = {fixture->table, NULL, tickets};
    pthread_barrier_t start;
    pthread_t threads[2];
    assert_int_equal(pthread_barrier_init(&start, NULL, 3), 0);
    racer.start = &start;
    stint_take(fixture->table, &quota, "k", 1, 600, NOW);
    for (size_t i = 0; i < N(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sweep_over_and_over, &racer), 0);
    uint64_t won = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < RING; i++)
            tickets[i] = reserve(&asked, 1, &release, NOW);
        pthread_barrier_wait(&start);
        for (unsigned i = RING; i-- > 0;)
            won += stint_cancel(fixture->table, tickets[i], NOW + MINUTE - 1, NULL) == 0;
        pthread_barrier_wait(&start);
        expire_all(NOW + MINUTE);
        assert_int_equal(used(&quota, "k", NOW + MINUTE), 600);
    }
    for (size_t i = 0; i < N(threads); i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    assert_int_equal(info_of().reservations_expired[STINT_EXPIRY_RELEASE] + won,
                     (uint64_t)ROUNDS * RING);
}

/*
 * A process that is killed while it expires reservations leaves at most the one that it was at
 * charged; the rest are for the next. No unit comes back twice.
 */
TEST(test_a_killed_sweep_gives_nothing_back_twice)
{
    struct stint_quota quota = quota_of("fixed_window 10000/20h");
    const struct stint_item asked = item(&quota, "k", 5);
    const uint32_t release = 0;
    uint32_t base = 5000;
    stint_take(fixture->table, &quota, "k", 1, base, NOW);
    for (unsigned round = 0; round < 40; round++) {
        for (unsigned i = 0; i < RING; i++)
            reserve(&asked, 1, &release, NOW);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            for (;;)
                stint_expire(fixture->table, NOW + MINUTE, 1);
        usleep(20 * (round % 10));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        expire_all(NOW + MINUTE);
        uint32_t now_used = used(&quota, "k", NOW + MINUTE);
        assert_true(now_used == base || now_used == base + 5);
        base = now_used;
    }
}

/* A file of a version that knew no expiry: its tickets are kept as estimated, and still settle. */
TEST(test_tickets_of_before_are_kept)
{
    const struct stint_item asked = item(&fixture->fixed, "k", 5);
    struct stint_ticket old = reserve(&asked, 1, NULL, NOW);
    const struct region_fixed *fixed = &fixture->table->region.header->fixed;
    const uint8_t *slot = region_at(&fixture->table->region, fixed->tickets_offset);
    uint32_t times, number;
    memcpy(&times, slot + 48, sizeof(times)); /* as words of four bytes, they are what they were */
    memcpy(&number, slot + 52, sizeof(number));
    assert_int_equal(times, 1);
    assert_int_equal(number, 0);
    assert_int_equal(stint_settle(fixture->table, old, 2, NOW, NULL), 0);
}
