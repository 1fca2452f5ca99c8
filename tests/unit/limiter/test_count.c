/* SPDX-License-Identifier: MIT */
/* stint_count(): counters in a table, beside the states of quotas, in files, and when it is full.
 */
#include "unit/test_quota.h"

#include <unistd.h>

static char path[64];
static struct stint_table *table;

static struct stint_table_options virtual_table(void)
{
    return (struct stint_table_options){.clock = STINT_CLOCK_VIRTUAL, .keys = 64, .keys16 = 64};
}

SETUP
{
    struct stint_table_options options = virtual_table();
    table = must_open_table(&options);
    snprintf(path, sizeof(path), "/tmp/stint-count-%d", (int)getpid());
}

TEARDOWN
{
    stint_table_close(table);
    unlink(path);
}

static struct stint_counter count_in(struct stint_table *in, const char *key, int64_t amount,
                                     uint64_t expiry_ns, uint64_t now_ns)
{
    struct stint_counter counter;
    struct stint_error error;
    if (stint_count(in, key, strlen(key), amount, expiry_ns, now_ns, &counter, &error) != 0)
        fail_msg("%s: %s", key, error.message);
    return counter;
}

static void assert_counts(int64_t amount, uint64_t expiry_ns, uint64_t now_ns, uint64_t count,
                          uint64_t expires_after_ns)
{
    struct stint_counter counter = count_in(table, "k", amount, expiry_ns, now_ns);
    assert_int_equal(counter.count, count);
    assert_int_equal(counter.expires_after_ns, expires_after_ns);
}

static uint64_t live(void)
{
    struct stint_table_info info;
    stint_table_info(table, 0, &info);
    return info.live[0] + info.live[1] + info.live[2];
}

TEST(test_one_counter_from_begin_to_expiry)
{
    assert_counts(0, 0, 0, 0, 0);
    assert_counts(-5, S, 0, 0, 0);
    assert_int_equal(live(), 0);
    assert_counts(1, 10 * S, S, 1, 10 * S);
    assert_counts(4, 99 * S, 2 * S, 5, 9 * S);
    assert_counts(0, 0, 11 * S - 1, 5, 1);
    assert_counts(-2, 0, 11 * S - 1, 3, 1);
    assert_counts(-9, 0, 11 * S - 1, 0, 1);
    assert_counts(0, 0, 11 * S, 0, 0);
    assert_counts(UINT32_MAX, S, 11 * S, UINT32_MAX, S);
    assert_counts(UINT32_MAX, S, 11 * S, 2 * (uint64_t)UINT32_MAX, S);
}

TEST(test_a_reset_forgets_it)
{
    assert_counts(3, 10 * S, S, 3, 10 * S);
    assert_int_equal(stint_count_reset(table, "k", 1, NULL), STINT_OK);
    assert_int_equal(stint_count_reset(table, "k", 1, NULL), STINT_OK);
    assert_counts(0, 0, S, 0, 0);
    assert_counts(1, 5 * S, 2 * S, 1, 5 * S);
}

/* A key's states under quotas, its blocks and its counter know nothing of each other. */
TEST(test_it_is_apart_from_quotas_of_the_key)
{
    struct stint_quota quota = quota_of("sliding_counter 2/1m");
    assert_counts(7, 10 * S, S, 7, 10 * S);
    assert_int_equal(stint_take(table, &quota, "k", 1, 2, S).outcome, STINT_ALLOW);
    assert_int_equal(stint_block(table, "k", 1, 5 * S, S), STINT_OK);
    assert_counts(1, 10 * S, S, 8, 10 * S);
    stint_reset(table, &quota, "k", 1, S);
    assert_counts(0, 0, S, 8, 10 * S);
    assert_int_equal(stint_take(table, &quota, "k", 1, 2, S).outcome, STINT_ALLOW);
    stint_count_reset(table, "k", 1, NULL);
    assert_int_equal(stint_take(table, &quota, "k", 1, 1, S).outcome, STINT_DENY);
}

/* Callers with clocks that differ count in one counter; none sees it later than skew allows. */
TEST(test_a_clock_that_is_behind)
{
    assert_counts(1, 10 * S, 100 * S, 1, 10 * S);
    assert_counts(1, 10 * S, 100 * S - S, 2, 11 * S);
    assert_counts(1, 10 * S, 0, 3, 110 * S);
    count_in(table, "other", 1, S, 200 * S);
    assert_counts(0, 0, 109 * S, 0, 0); /* effective: 199 s */
    assert_counts(1, 10 * S, 109 * S, 1, 100 * S);
}

TEST(test_bad_input_is_refused)
{
    static const struct {
        int64_t amount;
        uint64_t expiry_ns, now_ns;
        size_t key_len;
        const char *says;
    } rows[] = {
        {1, 0, S, 1, "an expiry of 0 ns is not within"},
        {1, STINT_COUNT_EXPIRY_MAX_NS + 1, S, 1, "10 years (3650d)"},
        {(int64_t)UINT32_MAX + 1, S, S, 1, "an amount of 4294967296 is not within"},
        {-(int64_t)UINT32_MAX - 1, S, S, 1, "an amount of -4294967296 is not within"},
        {INT64_MIN, S, S, 1, "larger units"},
        {1, S, STINT_NOW_MAX + 1, 1, "later than STINT_NOW_MAX"},
        {0, 0, UINT64_MAX, 1, "later than STINT_NOW_MAX"},
        {1, S, S, STINT_KEY_MAX + 1, "the key has 65537 bytes"},
    };
    static char key[STINT_KEY_MAX + 1];
    for (size_t i = 0; i < N(rows); i++) {
        struct stint_counter counter = {9, 9};
        struct stint_error error;
        int code = stint_count(table, key, rows[i].key_len, rows[i].amount, rows[i].expiry_ns,
                               rows[i].now_ns, &counter, &error);
        assert_int_equal(code, STINT_E_RANGE);
        assert_int_equal(counter.count + counter.expires_after_ns, 0);
        if (strstr(error.message, rows[i].says) == NULL)
            fail_msg("%s", error.message);
    }
    assert_int_equal(stint_count_reset(table, key, sizeof(key), NULL), STINT_E_RANGE);
    assert_int_equal(live(), 0);
}

/* A file: counted on after it was opened again, read without changing it, and copied. */
TEST(test_files)
{
    struct stint_table_options options = virtual_table();
    struct stint_counter counter;
    struct stint_error error;
    options.path = path;
    for (int turn = 1; turn <= 3; turn++) {
        struct stint_table *file = must_open_table(&options);
        assert_int_equal(count_in(file, "k", 2, 10 * S, (uint64_t)turn * S).count, 2 * turn);
        stint_table_close(file);
    }
    options.read_only = true;
    struct stint_table *file = must_open_table(&options);
    assert_int_equal(count_in(file, "k", 0, 0, 4 * S).count, 6);
    assert_int_equal(count_in(file, "k", 0, 0, 4 * S).expires_after_ns, 7 * S);
    assert_int_equal(stint_count(file, "k", 1, 1, S, S, &counter, &error), STINT_E_MISMATCH);
    assert_int_equal(stint_count(file, "k", 1, -1, S, S, &counter, &error), STINT_E_MISMATCH);
    assert_int_equal(stint_count_reset(file, "k", 1, &error), STINT_E_MISMATCH);
    stint_table_close(file);
    count_in(table, "k", 9, 10 * S, S);
    assert_int_equal(stint_table_snapshot(table, path, &error), STINT_OK);
    options.read_only = false;
    file = must_open_table(&options);
    assert_int_equal(count_in(file, "k", 1, S, 2 * S).count, 10);
    stint_table_close(file);
}

/* Counts that were begun and have not been refused, beyond what fits: the lowest are forgotten. */
TEST(test_a_full_table_keeps_the_highest)
{
    struct stint_table_info info;
    char key[16];
    for (int i = 1; i <= 2000; i++) {
        snprintf(key, sizeof(key), "%d", i);
        assert_int_equal(count_in(table, key, i, DAY, S).count, i);
    }
    stint_table_info(table, S, &info);
    assert_true(info.evictions_evict > 0);
    assert_true(info.forgotten_units > 0);
    assert_int_equal(count_in(table, "2000", 0, 0, S).count, 2000);
    assert_int_equal(count_in(table, "1", 0, 0, S).count, 0);
}

/* Where only states that stay are in its slots, a new counter is refused, and nothing is counted.
 */
TEST(test_a_table_full_of_what_stays)
{
    struct stint_quota quota = quota_of("window 1/1d");
    struct stint_counter counter = {9, 9};
    struct stint_error error;
    char key[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof(key), "%d", i);
        stint_take(table, &quota, key, strlen(key), 1, S);
    }
    assert_int_equal(stint_count(table, "k", 1, 1, S, S, &counter, &error), STINT_E_FULL);
    assert_non_null(strstr(error.message, "keys16"));
    assert_int_equal(counter.count + counter.expires_after_ns, 0);
    assert_counts(-1, 0, S, 0, 0);
    assert_counts(0, 0, S, 0, 0);
}

static bool find_counter(const struct stint_entry *entry, void *arg)
{
    *(struct stint_entry *)arg = *entry;
    return true;
}

/* An entry shows the count; the quota in it names no limit that a caller could take from. */
TEST(test_entries)
{
    struct stint_entry entry = {.count = 0};
    struct stint_error error;
    for (int i = 0; i < 3; i++)
        count_in(table, "k", UINT32_MAX, 10 * S, S);
    stint_table_each(table, S, find_counter, &entry);
    assert_int_equal(entry.quota.algorithm, STINT_COUNTER);
    assert_int_equal(entry.count, 3 * (uint64_t)UINT32_MAX);
    assert_int_equal(entry.expires_at_ns, 11 * S);
    assert_int_equal(stint_take(table, &entry.quota, "k", 1, 1, S).outcome, STINT_NEVER);
    assert_counts(0, 0, S, 3 * (uint64_t)UINT32_MAX, 10 * S);
    struct stint_quota other = quota_of("sliding_counter 2/1m");
    assert_int_equal(stint_set_quota(table, &other, &entry.quota, "j", 1, S), STINT_OK);
    assert_int_equal(stint_take(table, &other, "j", 1, 1, S).outcome, STINT_ALLOW);
    assert_int_equal(stint_set_quota(table, &other, &entry.quota, "j", 1, S), STINT_E_FULL);
    assert_int_equal(stint_quota_check(&entry.quota, &error), STINT_E_MISMATCH);
}
