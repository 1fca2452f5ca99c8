/* SPDX-License-Identifier: MIT */
/*
 * Interned quotas: equal parameters under one small number, known to everybody who has the region,
 * and a full table is said to be full. Where two ask for the first time at the same moment, the
 * same parameters may get two numbers; then both name the same algorithm, and a key has one state.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/table.h"

#include <pthread.h>

#define EPOCH (INT64_C(1700000000) * (int64_t)S)

struct fixture {
    struct region region;
    struct intern intern;
};

static void open_intern(struct fixture *fixture, uint32_t quotas, bool in_file, bool read_only)
{
    const struct stint_table_options options = {
        .path = in_file ? path : NULL,
        .keys = 12,
        .keys16 = 12,
        .keys_wide = 12,
        .wide_size = 4096,
        .tickets = 4,
        .blocks = 4,
        .quotas = quotas,
        .clock = STINT_CLOCK_VIRTUAL,
        .epoch_ns = EPOCH,
        .read_only = read_only,
    };
    struct stint_error error;
    if (region_open(&fixture->region, &options, &error) != 0 ||
        intern_open(&fixture->intern, &fixture->region, &error) != 0)
        fail_msg("%s", error.message);
    region_settle(&fixture->region);
}

static void close_intern(struct fixture *fixture)
{
    intern_close(&fixture->intern);
    region_close(&fixture->region);
}

/* The number-th of many quotas that all differ. */
static struct stint_quota nth_quota(uint32_t number)
{
    struct stint_quota quota = {
        .algorithm = STINT_FIXED_WINDOW, .limit = number + 1, .period_ns = MINUTE};
    assert_int_equal(stint_quota_check(&quota, NULL), 0);
    return quota;
}

static uint32_t nth_id(struct fixture *fixture, uint32_t number)
{
    struct stint_quota quota = nth_quota(number);
    return intern_id(&fixture->intern, &quota);
}

static uint64_t used(const struct fixture *fixture)
{
    return fixture->region.header->quotas;
}

SETUP
{
    name_path();
}

TEARDOWN
{
    remove_file();
}

/* Equal parameters share an id, however they were written; what differs has one of its own. */
TEST(test_equal_parameters_share_an_id)
{
    static const char *const same[][2] = {
        {"window 100/1m", "100/60s"},
        {"gcra 100/60s", "token_bucket 100/1m burst=100"},
        {"buckets 9/1m count_slack=2", "buckets 9/60s count_slack=2"},
    };
    static const char *const other[] = {
        "window 101/1m",
        "window 100/61s",
        "window 100/1m resolution=12",
        "gcra 100/1m burst=99",
        "gcra 100/1m when_full=deny",
        "gcra 100/1m count_denied=true",
        "fixed_window 100/1m",
        "fixed_window 100/1m align=first_use",
        "log 100/1m",
        "fixed_window 100/1d align=calendar",
        "buckets 9/1m count_slack=3",
        "fixed_window 100/1d align=calendar utc_offset=+01:00",
        "buckets 9/1m time_slack=6s",
        "concurrency 9 lease=1m",
        "concurrency 9 lease=2m",
    };
    const uint32_t n_same = N(same);
    struct fixture fixture;
    open_intern(&fixture, 100, false, false);
    for (uint32_t i = 0; i < n_same; i++) {
        for (size_t form = 0; form < 2; form++) {
            struct stint_quota quota = quota_of(same[i][form]);
            assert_int_equal(intern_id(&fixture.intern, &quota), i + 1);
        }
    }
    for (uint32_t i = 0; i < N(other); i++) {
        struct stint_quota quota = quota_of(other[i]);
        assert_int_equal(intern_id(&fixture.intern, &quota), n_same + i + 1);
    }
    close_intern(&fixture);
}

/* Whose rule it is, and from when windows count, is no parameter: neither is kept with it. */
TEST(test_rule_and_epoch_are_no_parameters)
{
    struct stint_quota quota = quota_of("fixed_window 10/1m");
    struct fixture fixture;
    open_intern(&fixture, 4, false, false);
    quota.rule = 77;
    quota.epoch_ns = 12345;
    uint32_t id = intern_id(&fixture.intern, &quota);
    quota.rule = 0;
    quota.epoch_ns = 0;
    assert_int_equal(intern_id_slow(&fixture.intern, &quota), id);
    quota.rule = 78;
    quota.epoch_ns = -EPOCH;
    assert_int_equal(intern_id_slow(&fixture.intern, &quota), id);
    assert_int_equal(fixture.intern.slots[id - 1].quota.rule, 0);
    assert_int_equal(fixture.intern.slots[id - 1].quota.epoch_ns, 0);
    const struct stint_quota *kept = intern_quota(&fixture.intern, id);
    assert_int_equal(kept->rule, 0);
    assert_true(kept->epoch_ns == EPOCH); /* the table's own */
    close_intern(&fixture);
}

/* Many more quotas than the cache has places: each is found again under its own number. */
TEST(test_the_cache_confuses_nobody)
{
    const uint32_t n = 2 * QUOTA_CACHE_SIZE;
    struct fixture fixture;
    open_intern(&fixture, n, false, false);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(nth_id(&fixture, i), i + 1);
    for (uint32_t i = n; i-- > 0;) {
        assert_int_equal(nth_id(&fixture, i), i + 1);
        assert_int_equal(nth_id(&fixture, i), i + 1); /* now out of the cache */
        assert_int_equal(intern_quota(&fixture.intern, i + 1)->limit, i + 1);
    }
    assert_int_equal(used(&fixture), n);
    close_intern(&fixture);
}

/* A full table has no number for one more, and goes on knowing the ones it has. */
TEST(test_a_full_table_says_so)
{
    struct fixture fixture;
    open_intern(&fixture, 3, false, false);
    for (uint32_t turn = 0; turn < 3; turn++)
        for (uint32_t i = 0; i < 5; i++)
            assert_int_equal(nth_id(&fixture, i), i < 3 ? i + 1 : 0);
    assert_int_equal(used(&fixture), 3);
    close_intern(&fixture);
}

/* For want of a number a caller gets an error and NEVER, not the answer of another quota. */
TEST(test_a_full_table_is_an_error_not_a_wrong_answer)
{
    const struct stint_table_options options = {.quotas = 1, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_quota known = quota_of("window 5/1m"), unknown = quota_of("window 6/1m");
    struct stint_table *table;
    struct stint_error error;
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    assert_int_equal(stint_take(table, &known, "k", 1, 1, S).outcome, STINT_ALLOW);
    struct stint_decision decision = stint_take(table, &unknown, "k", 1, 1, S);
    assert_int_equal(decision.outcome, STINT_NEVER);
    assert_int_equal(decision.retry_after_ns, STINT_NEVER_NS);
    assert_int_equal(stint_set_quota(table, &known, &unknown, "k", 1, S), STINT_E_FULL);
    assert_int_equal(table_accepts(table, &unknown, 1, &error), STINT_E_FULL);
    assert_non_null(strstr(error.message, "all 1 places"));
    assert_int_equal(stint_take(table, &known, "k", 1, 4, S).outcome, STINT_ALLOW);
    assert_int_equal(stint_take(table, &known, "k", 1, 1, S).outcome, STINT_DENY);
    stint_table_close(table);
}

/* Ids outlive everybody who knew them, and mean the same to others who have the file open. */
TEST(test_ids_outlive_a_reopening)
{
    struct fixture first, second;
    open_intern(&first, 10, true, false);
    for (uint32_t i = 0; i < 5; i++)
        nth_id(&first, i);
    open_intern(&second, 10, true, false);
    for (uint32_t i = 5; i-- > 0;) {
        assert_int_equal(intern_quota(&second.intern, i + 1)->limit, i + 1);
        assert_int_equal(nth_id(&second, i), i + 1);
    }
    assert_int_equal(nth_id(&second, 5), 6);
    assert_int_equal(nth_id(&first, 5), 6); /* the same to whoever was there before it */
    close_intern(&first);
    close_intern(&second);
    open_intern(&first, 10, true, false);
    for (uint32_t i = 6; i-- > 0;)
        assert_int_equal(nth_id(&first, i), i + 1);
    assert_int_equal(used(&first), 6);
    close_intern(&first);
}

/* Who may only read finds what is known, and adds nothing. */
TEST(test_a_reader_adds_nothing)
{
    struct fixture writer, reader;
    open_intern(&writer, 10, true, false);
    nth_id(&writer, 0);
    open_intern(&reader, 10, true, true);
    assert_int_equal(nth_id(&reader, 0), 1);
    assert_int_equal(nth_id(&reader, 1), 0);
    assert_int_equal(used(&writer), 1);
    close_intern(&reader);
    close_intern(&writer);
}

/* A number that nobody gave names no quota. */
TEST(test_other_numbers_name_nothing)
{
    const uint32_t others[] = {0, 2, 10, 11, TABLE_QUOTAS_MAX, 32718, 32768, UINT32_MAX};
    struct fixture fixture;
    open_intern(&fixture, 10, false, false);
    assert_int_equal(nth_id(&fixture, 0), 1);
    assert_non_null(intern_quota(&fixture.intern, 1));
    for (size_t i = 0; i < N(others); i++)
        assert_null(intern_quota(&fixture.intern, others[i]));
    close_intern(&fixture);
}

/* Breaks the first five of six interned quotas, each in its own way. */
static void damage(struct quota_slot *slots)
{
    slots[0].state = QUOTA_SLOT_WRITING; /* its writer died */
    slots[1].state = 3;
    slots[2].quota.period_ns = 0;
    slots[3].quota.algorithm = 200;
    memset(&slots[4].quota.count_denied, 2, 1); /* neither true nor false */
}

/* What is no quota, or not whole, names nothing, and is forgotten when the table is repaired. */
TEST(test_damaged_quotas_name_nothing)
{
    struct fixture fixture;
    open_intern(&fixture, 10, true, false);
    for (uint32_t i = 0; i < 6; i++)
        nth_id(&fixture, i);
    damage(fixture.intern.slots);
    close_intern(&fixture);
    open_intern(&fixture, 10, true, false);
    for (uint32_t id = 1; id <= 5; id++)
        assert_null(intern_quota(&fixture.intern, id));
    assert_int_equal(nth_id(&fixture, 5), 6);
    fixture.region.header->quotas = 2; /* this number was hit, too */
    intern_repair(&fixture.intern);
    assert_int_equal(used(&fixture), 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(fixture.intern.slots[i].state,
                         i < 5 ? QUOTA_SLOT_EMPTY : QUOTA_SLOT_READY);
    assert_int_equal(nth_id(&fixture, 0), 7);
    close_intern(&fixture);
}

/* A number of places that was hit leads nowhere: past the end there is nothing. */
TEST(test_a_damaged_count_leads_nowhere)
{
    struct fixture fixture;
    open_intern(&fixture, 3, false, false);
    nth_id(&fixture, 0);
    fixture.region.header->quotas = UINT64_MAX / 2;
    assert_int_equal(nth_id(&fixture, 0), 1);
    assert_int_equal(nth_id(&fixture, 1), 0);
    assert_int_equal(intern_period_max(&fixture.intern), MINUTE);
    close_intern(&fixture);
}

/* Once it was checked and copied, what others write over it in shared memory changes nothing. */
TEST(test_what_was_checked_is_what_is_used)
{
    struct fixture fixture;
    open_intern(&fixture, 4, false, false);
    nth_id(&fixture, 8);
    assert_int_equal(intern_quota(&fixture.intern, 1)->limit, 9);
    fixture.intern.slots[0].quota.limit = 1000000;
    fixture.intern.slots[0].state = QUOTA_SLOT_EMPTY;
    assert_int_equal(intern_quota(&fixture.intern, 1)->limit, 9);
    close_intern(&fixture);
}

/* What is derived is derived again: numbers that a file brings along are not believed. */
TEST(test_derived_numbers_are_not_believed)
{
    struct stint_quota quota = nth_quota(0);
    struct fixture fixture;
    open_intern(&fixture, 4, true, false);
    nth_id(&fixture, 0);
    memset(&fixture.intern.slots[0].quota.derived, 0xff, sizeof(quota.derived));
    close_intern(&fixture);
    open_intern(&fixture, 4, true, false);
    assert_memory_equal(&intern_quota(&fixture.intern, 1)->derived, &quota.derived,
                        sizeof(quota.derived));
    close_intern(&fixture);
}

/* The longest period is that of all quotas, wherever it stands; of none it is 0. */
TEST(test_the_longest_period_is_found)
{
    static const char *const specs[] = {"gcra 1/1s", "log 2/1h", "window 3/1m"};
    static const uint64_t longest_ns[] = {S, 60 * MINUTE, 60 * MINUTE};
    struct fixture fixture;
    open_intern(&fixture, 4, false, false);
    assert_int_equal(intern_period_max(&fixture.intern), 0);
    for (size_t i = 0; i < 3; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        intern_id(&fixture.intern, &quota);
        assert_int_equal(intern_period_max(&fixture.intern), longest_ns[i]);
    }
    close_intern(&fixture);
}

#define THREADS 4u
#define RACED 64u
#define ROUNDS 100u

struct racer {
    struct fixture *fixture;
    pthread_barrier_t *start;
    const struct stint_quota *quotas;
    uint32_t first;
    uint32_t ids[RACED];
};

/* Each begins with another quota, so that most of the time no two ask for the same. */
static void *race(void *arg)
{
    struct racer *racer = arg;
    pthread_barrier_wait(racer->start);
    for (uint32_t i = 0; i < RACED; i++) {
        uint32_t which = (racer->first + i) % RACED;
        racer->ids[which] = intern_id(&racer->fixture->intern, &racer->quotas[which]);
    }
    return NULL;
}

static void race_once(struct fixture *fixture, const struct stint_quota *quotas)
{
    static struct racer racers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (uint32_t t = 0; t < THREADS; t++) {
        racers[t] = (struct racer){fixture, &start, quotas, t * RACED / THREADS, {0}};
        assert_int_equal(pthread_create(&threads[t], NULL, race, &racers[t]), 0);
    }
    for (uint32_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    pthread_barrier_destroy(&start);
    for (uint32_t i = 0; i < RACED; i++) {
        uint32_t quiet = nth_id(fixture, i);
        assert_int_equal(nth_id(fixture, i), quiet);
        for (size_t t = 0; t < THREADS; t++)
            assert_int_equal(intern_quota(&fixture->intern, racers[t].ids[i])->limit, i + 1);
    }
    assert_true(used(fixture) >= RACED && used(fixture) <= RACED * THREADS);
    for (uint32_t id = 1; id <= used(fixture); id++)
        assert_non_null(intern_quota(&fixture->intern, id)); /* none was given twice, or lost */
}

/* Threads that intern at once each get a number that names the quota they asked for, and once it is
 * quiet everybody gets the same one. */
TEST(test_threads_get_numbers_of_what_they_asked_for)
{
    struct stint_quota quotas[RACED];
    for (uint32_t i = 0; i < RACED; i++)
        quotas[i] = nth_quota(i);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct fixture fixture;
        open_intern(&fixture, RACED * THREADS, false, false);
        race_once(&fixture, quotas);
        close_intern(&fixture);
    }
}

/* Where a race has given one quota two numbers, a key still has one state. */
TEST(test_two_numbers_of_one_quota_share_its_states)
{
    static const char *const specs[] = {"gcra 5/1m", "window 5/1m", "log 5/1m"};
    const struct stint_table_options options = {
        .path = path, .keys_wide = 12, .wide_size = 64, .quotas = 10, .clock = STINT_CLOCK_VIRTUAL};
    for (uint32_t i = 0; i < 3; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct stint_table *first, *second;
        unlink(path);
        assert_int_equal(stint_table_open(&first, &options, NULL), 0);
        assert_int_equal(stint_table_open(&second, &options, NULL), 0);
        assert_int_equal(stint_take(first, &quota, "k", 1, 3, S).outcome, STINT_ALLOW);
        /* As if the second had not yet seen the first one's number when it took its own. */
        struct intern *intern = &second->intern;
        intern->slots[1] = intern->slots[0];
        second->region.header->quotas = 2;
        intern->slots[0].state = QUOTA_SLOT_WRITING;
        assert_int_equal(intern_id(intern, &quota), 2);
        intern->slots[0].state = QUOTA_SLOT_READY;
        assert_int_equal(intern_id(&first->intern, &quota), 1);
        assert_int_equal(stint_take(second, &quota, "k", 1, 2, S).outcome, STINT_ALLOW);
        assert_int_equal(stint_take(second, &quota, "k", 1, 1, S).outcome, STINT_DENY);
        assert_int_equal(stint_take(first, &quota, "k", 1, 1, S).outcome, STINT_DENY);
        stint_table_close(second);
        stint_table_close(first);
    }
}
