/* SPDX-License-Identifier: MIT */
/* Numbers for people: rounded, but never so that nothing looks like something, or all like most. */
#include "unit/test.h"

#include "base/ns.h"
#include "cmd/lib/print.h"
#include "stint.h"

static struct formatted formatted;

TEST(test_counts_and_bytes)
{
    assert_string_equal(format_count(&formatted, 0), "0");
    assert_string_equal(format_count(&formatted, 999), "999");
    assert_string_equal(format_count(&formatted, 1000), "1,000");
    assert_string_equal(format_count(&formatted, 1234567), "1,234,567");
    assert_string_equal(format_count(&formatted, UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(format_bytes(&formatted, 999), "999 bytes");
    assert_string_equal(format_bytes(&formatted, 1000), "1.0 kB");
    assert_string_equal(format_bytes(&formatted, 999949), "999.9 kB");
    assert_string_equal(format_bytes(&formatted, 999950), "1.0 MB");
    assert_string_equal(format_bytes(&formatted, UINT64_MAX), "18.4 EB");
}

/* 0.0 % is said only of nothing, 100.0 % only of all. */
TEST(test_percents)
{
    assert_string_equal(format_percent(&formatted, 0, 0), "0.0 %");
    assert_string_equal(format_percent(&formatted, 0, 7), "0.0 %");
    assert_string_equal(format_percent(&formatted, 1, 100000), "<0.1 %");
    assert_string_equal(format_percent(&formatted, 1, 3), "33.3 %");
    assert_string_equal(format_percent(&formatted, 99999, 100000), ">99.9 %");
    assert_string_equal(format_percent(&formatted, 7, 7), "100.0 %");
}

TEST(test_times)
{
    assert_string_equal(format_duration(&formatted, 0), "0 ns");
    assert_string_equal(format_duration(&formatted, 1500), "1 us 500 ns");
    assert_string_equal(format_duration(&formatted, 250 * NS_PER_MS), "250 ms");
    assert_string_equal(format_duration(&formatted, 90 * NS_PER_S), "1 min 30 s");
    assert_string_equal(format_duration(&formatted, NS_PER_HOUR), "1 h");
    assert_string_equal(format_duration(&formatted, 28 * NS_PER_DAY), "28 d");
    assert_string_equal(format_date(&formatted, UINT64_C(1431857103) * NS_PER_S),
                        "2015-05-17 10:05:03 UTC");
}

/* A wait that is rounded down would be too short. */
TEST(test_waits_are_rounded_up)
{
    assert_string_equal(format_seconds_up(&formatted, 0), "0 s");
    assert_string_equal(format_seconds_up(&formatted, 1), "1 s");
    assert_string_equal(format_seconds_up(&formatted, NS_PER_S), "1 s");
    assert_string_equal(format_seconds_up(&formatted, NS_PER_S + 1), "2 s");
    assert_string_equal(format_seconds_up(&formatted, UINT64_MAX - 1), "18446744074 s");
    assert_string_equal(format_seconds_up(&formatted, STINT_NEVER_NS), "never");
}
