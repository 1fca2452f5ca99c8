/* SPDX-License-Identifier: MIT */
/* What a service keeps of quotas that callers bring along: always the one that was asked for. */
#include "unit/test_server.h"

#include "service/quota_caches.h"

static struct stint_error error;

static const struct stint_quota *find_spec(struct spec_cache *cache, struct stint_table *table,
                                           const char *text)
{
    return spec_cache_find(cache, table, span_of_text(text), &error);
}

TEST(test_a_spec_is_found_by_all_of_its_text)
{
    static struct spec_cache cache;
    struct stint_table *table = table_for_tests(0);
    char spec[32];
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 1; i <= 600; i++) {
            snprintf(spec, sizeof(spec), "gcra %u/1m", i);
            const struct stint_quota *quota = find_spec(&cache, table, spec);
            assert_non_null(quota);
            assert_int_equal(quota->limit, i);
        }
    const struct stint_quota *first = find_spec(&cache, table, "gcra 5/1m");
    assert_ptr_equal(find_spec(&cache, table, "gcra 5/1m"), first);
    assert_int_equal(find_spec(&cache, table, "gcra 5/1m burst=2")->burst, 2);
    stint_table_close(table);
}

TEST(test_a_spec_that_is_none_is_never_kept)
{
    static struct spec_cache cache;
    struct stint_table *table = table_for_tests(0);
    char longest[SPEC_TEXT_MAX + 2];
    memset(longest, ' ', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    for (int i = 0; i < 3; i++) {
        assert_null(find_spec(&cache, table, "5 per minute"));
        assert_int_equal(error.code, STINT_E_SYNTAX);
        assert_null(find_spec(&cache, table, ""));
        assert_int_equal(error.code, STINT_E_SYNTAX);
        assert_null(find_spec(&cache, table, longest));
        assert_int_equal(error.code, STINT_E_RANGE);
        assert_null(spec_cache_find(&cache, table, span_of("5/1m\0", 5), &error));
        assert_int_equal(error.code, STINT_E_SYNTAX);
        assert_null(find_spec(&cache, table, "log 100000/1m"));
    }
    stint_table_close(table);
}

TEST(test_a_throttle_is_found_by_its_three_numbers)
{
    static struct throttle_cache cache;
    struct stint_table *table = table_for_tests(0);
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < 900; i++) {
            const struct request_throttle throttle = {(int64_t)i % 30, 1 + i / 30, 60 + i % 7};
            const struct throttle_entry *entry =
                throttle_cache_find(&cache, table, &throttle, &error);
            assert_non_null(entry);
            const struct stint_quota *quota = &entry->quota;
            assert_int_equal(quota->burst, i % 30 + 1);
            assert_int_equal(quota->limit, 1 + i / 30);
            assert_int_equal(quota->period_ns, (60 + i % 7) * S);
            assert_int_equal(quota->rule, THROTTLE_RULE);
        }
    stint_table_close(table);
}

/* A rate is a ratio: numbers that a quota has no place for become smaller together. */
TEST(test_long_periods_and_large_counts)
{
    static struct throttle_cache cache;
    struct stint_table *table = table_for_tests(0);
    const uint64_t year_s = UINT64_C(365) * 86400, century_s = 100 * year_s;
    const struct {
        struct request_throttle throttle;
        uint64_t limit, period_ns;
    } cases[] = {
        {{0, 10, century_s}, 1, 10 * year_s * S},
        {{2, 100, century_s}, 9, 9 * year_s * S},
        {{9, 3, year_s}, 3, year_s * S},
        {{9, UINT64_C(1) << 32, year_s}, UINT64_C(1) << 31, year_s * S / 2},
    };
    for (size_t i = 0; i < N(cases); i++) {
        const struct throttle_entry *entry =
            throttle_cache_find(&cache, table, &cases[i].throttle, &error);
        assert_non_null(entry);
        assert_int_equal(entry->quota.limit, cases[i].limit);
        assert_int_equal(entry->quota.period_ns, cases[i].period_ns);
    }
    stint_table_close(table);
}

TEST(test_numbers_that_cannot_be_meant)
{
    static struct throttle_cache cache;
    struct stint_table *table = table_for_tests(0);
    const struct request_throttle wrong[] = {
        {1, 0, 60},          {1, 1, 0},
        {UINT32_MAX, 1, 60}, {1, UINT64_C(1) << 32, 1},
        {1, 1, UINT64_MAX},  {INT64_MAX, UINT64_MAX, UINT64_MAX},
        {0, 0, 0},           {10, 3999999999, 1}, /* off by more than 0.1 % */
        {-2, 1, 1},          {INT64_MIN, 1, 1},
        {0, 1, 315360001},   {0, 29, UINT64_C(9223372036)}, /* less than one in ten years */
    };
    for (size_t i = 0; i < N(wrong); i++) {
        error.message[0] = '\0';
        assert_null(throttle_cache_find(&cache, table, &wrong[i], &error));
        assert_int_equal(error.code, STINT_E_RANGE);
        assert_true(strlen(error.message) > 10);
    }
    stint_table_close(table);
}
