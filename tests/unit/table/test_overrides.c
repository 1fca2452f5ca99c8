/* SPDX-License-Identifier: MIT */
/* Quotas of single keys: found by who asks, kept in the table, and what was used goes with them. */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/overrides.h"

#define RULE UINT64_C(77)

static struct stint_table *open_table(uint32_t overrides, const char *file)
{
    const struct stint_table_options options = {.path = file,
                                                .keys = 4800,
                                                .keys16 = 48,
                                                .overrides = overrides,
                                                .quotas = 16,
                                                .hash_key = {1, 2},
                                                .clock = STINT_CLOCK_VIRTUAL};
    return must_open_table(&options);
}

static struct stint_quota of_rule(const char *spec)
{
    struct stint_quota quota = quota_of(spec);
    quota.rule = RULE;
    return quota;
}

static struct hash128 hash_of(const struct stint_table *table, uint64_t key)
{
    const struct stint_quota quota = {.rule = RULE};
    return table_hash(table, &quota, &key, sizeof(key));
}

static int set(struct stint_table *table, uint64_t key, const char *spec)
{
    const struct stint_quota quota = of_rule(spec);
    return overrides_set(table, hash_of(table, key), &quota, NULL);
}

/* The limit of the key's own quota; 0: it has none. */
static uint32_t limit_of(struct stint_table *table, uint64_t key)
{
    struct stint_quota quota;
    if (!overrides_find(table, hash_of(table, key), RULE, &quota))
        return 0;
    assert_int_equal(quota.rule, RULE);
    return quota.limit;
}

SETUP
{
    name_path();
}

TEARDOWN
{
    remove_file();
}

TEST(test_a_key_has_the_quota_that_was_set_last)
{
    struct stint_table *table = open_table(0, NULL);
    assert_false(overrides_any(table));
    assert_int_equal(limit_of(table, 1), 0);
    assert_int_equal(set(table, 1, "gcra 7/1m"), 0);
    assert_true(overrides_any(table));
    assert_int_equal(limit_of(table, 1), 7);
    assert_int_equal(limit_of(table, 2), 0);
    assert_int_equal(set(table, 1, "gcra 8/1m"), 0);
    assert_int_equal(set(table, 1, "gcra 8/1m"), 0);
    assert_int_equal(limit_of(table, 1), 8);
    struct stint_table_info info;
    stint_table_info(table, S, &info);
    assert_int_equal(info.overrides, 1);
    assert_int_equal(info.overrides_max, 4096);
    assert_int_equal(overrides_drop(table, hash_of(table, 1), NULL), 0);
    assert_int_equal(overrides_drop(table, hash_of(table, 1), NULL), STINT_E_GONE);
    assert_int_equal(limit_of(table, 1), 0);
    assert_false(overrides_any(table));
    stint_table_close(table);
}

/* The same rule: what the key used under the one quota counts under the other. */
TEST(test_what_was_used_goes_with_the_key)
{
    struct stint_table *table = open_table(0, NULL);
    const struct stint_quota old = of_rule("window 10/1m");
    const uint64_t key = 1;
    struct stint_quota new;
    assert_int_equal(stint_take(table, &old, &key, sizeof(key), 10, MINUTE).outcome, STINT_ALLOW);
    assert_int_equal(set(table, key, "window 15/1m"), 0);
    assert_true(overrides_find(table, hash_of(table, key), RULE, &new));
    assert_int_equal(stint_take(table, &new, &key, sizeof(key), 6, MINUTE).outcome, STINT_DENY);
    assert_int_equal(stint_take(table, &new, &key, sizeof(key), 5, MINUTE).outcome, STINT_ALLOW);
    assert_int_equal(overrides_drop(table, hash_of(table, key), NULL), 0);
    assert_int_equal(stint_take(table, &old, &key, sizeof(key), 1, MINUTE).outcome, STINT_DENY);
    stint_table_close(table);
}

TEST(test_there_is_space_for_as_many_as_were_asked_for)
{
    static const uint32_t spaces[] = {1, 3, 100, 4096};
    for (size_t i = 0; i < N(spaces); i++) {
        struct stint_table *table = open_table(spaces[i], NULL);
        for (uint64_t key = 0; key < spaces[i]; key++)
            assert_int_equal(set(table, key, "gcra 7/1m"), 0);
        assert_int_equal(set(table, spaces[i], "gcra 7/1m"), STINT_E_FULL);
        assert_int_equal(set(table, 0, "gcra 9/1m"), 0); /* not one more */
        assert_int_equal(overrides_drop(table, hash_of(table, 0), NULL), 0);
        assert_int_equal(set(table, spaces[i], "gcra 8/1m"), 0);
        for (uint64_t key = 1; key < spaces[i]; key++)
            assert_int_equal(limit_of(table, key), 7);
        stint_table_close(table);
    }
}

TEST(test_what_cannot_be_set_is_refused)
{
    struct stint_table *table = open_table(0, NULL);
    struct stint_error error;
    struct stint_quota quota = quota_of("gcra 7/1m");
    const struct hash128 hash = hash_of(table, 1);
    assert_int_equal(overrides_set(table, hash, &quota, &error), STINT_E_MISMATCH);
    quota = of_rule("log 1000/1m"); /* wider than this table's states */
    assert_int_equal(overrides_set(table, hash, &quota, &error), STINT_E_MISMATCH);
    for (uint32_t limit = 1; limit <= 16; limit++) {
        char spec[32];
        snprintf(spec, sizeof(spec), "gcra %u/1m", limit);
        assert_int_equal(set(table, limit, spec), 0);
    }
    assert_int_equal(set(table, 17, "gcra 17/1m"), STINT_E_FULL); /* one quota too many */
    stint_table_close(table);
}

TEST(test_they_outlive_their_process_and_are_copied)
{
    char copy[80];
    snprintf(copy, sizeof(copy), "%s-copy", path);
    struct stint_table *table = open_table(100, path);
    for (uint64_t key = 0; key < 50; key++)
        assert_int_equal(set(table, key, key % 2 == 0 ? "gcra 7/1m" : "gcra 8/1m"), 0);
    assert_int_equal(stint_table_snapshot(table, copy, NULL), 0);
    stint_table_close(table);
    const char *const files[] = {path, copy};
    for (int i = 0; i < 2; i++) {
        table = open_table(0, files[i]);
        assert_true(overrides_any(table));
        for (uint64_t key = 0; key < 50; key++)
            assert_int_equal(limit_of(table, key), key % 2 == 0 ? 7 : 8);
        assert_int_equal(table->region.fixed.overrides_max, 100);
        stint_table_close(table);
        unlink(files[i]);
    }
}

/* Every few bits in turn: a key has the quota that was set, or its rule's; never another. */
TEST(test_a_damaged_one_is_forgotten)
{
    enum { n = 8 };
    unsigned forgotten = 0;
    struct stint_table *table = open_table(n, path);
    for (uint64_t key = 0; key < n; key++)
        assert_int_equal(set(table, key, key % 2 == 0 ? "gcra 7/1m" : "gcra 8/1m"), 0);
    uint64_t offset = table->region.header->fixed.overrides_offset;
    uint64_t bits = overrides_places(&table->region.header->fixed) * OVERRIDE_SIZE * 8;
    stint_table_close(table);
    for (uint64_t bit = 0; bit < bits; bit += 11) {
        flip_bit(8 * offset + bit);
        table = open_table(0, path);
        for (uint64_t key = 0; key < n; key++) {
            uint32_t limit = limit_of(table, key), was = key % 2 == 0 ? 7 : 8;
            if (limit != was) {
                assert_int_equal(limit, 0);
                assert_int_equal(set(table, key, was == 7 ? "gcra 7/1m" : "gcra 8/1m"), 0);
                forgotten++;
            }
        }
        struct stint_table_info info;
        stint_table_info(table, S, &info);
        assert_int_equal(info.overrides, n);
        stint_table_close(table);
    }
    assert_true(forgotten > 50);
    unlink(path);
}
