/* SPDX-License-Identifier: MIT */
/* Numbers for people: rounded, but never so that nothing looks like something, or all like most. */
#include "base/ns.h"
#include "cmd/lib/human.h"
#include "stint.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct human human;

static void test_counts_and_bytes(void **state)
{
    (void)state;
    assert_string_equal(human_count(&human, 0), "0");
    assert_string_equal(human_count(&human, 999), "999");
    assert_string_equal(human_count(&human, 1000), "1,000");
    assert_string_equal(human_count(&human, 1234567), "1,234,567");
    assert_string_equal(human_count(&human, UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(human_bytes(&human, 999), "999 bytes");
    assert_string_equal(human_bytes(&human, 1000), "1.0 kB");
    assert_string_equal(human_bytes(&human, 999949), "999.9 kB");
    assert_string_equal(human_bytes(&human, 999950), "1.0 MB");
    assert_string_equal(human_bytes(&human, UINT64_MAX), "18.4 EB");
}

/* 0.0 % is said only of nothing, 100.0 % only of all. */
static void test_percents(void **state)
{
    (void)state;
    assert_string_equal(human_percent(&human, 0, 0), "0.0 %");
    assert_string_equal(human_percent(&human, 0, 7), "0.0 %");
    assert_string_equal(human_percent(&human, 1, 100000), "<0.1 %");
    assert_string_equal(human_percent(&human, 1, 3), "33.3 %");
    assert_string_equal(human_percent(&human, 99999, 100000), ">99.9 %");
    assert_string_equal(human_percent(&human, 7, 7), "100.0 %");
}

static void test_times(void **state)
{
    (void)state;
    assert_string_equal(human_duration(&human, 0), "0 ns");
    assert_string_equal(human_duration(&human, 1500), "1 us 500 ns");
    assert_string_equal(human_duration(&human, 250 * NS_PER_MS), "250 ms");
    assert_string_equal(human_duration(&human, 90 * NS_PER_S), "1 min 30 s");
    assert_string_equal(human_duration(&human, NS_PER_HOUR), "1 h");
    assert_string_equal(human_duration(&human, 28 * NS_PER_DAY), "28 d");
    assert_string_equal(human_date(&human, UINT64_C(1431857103) * NS_PER_S),
                        "2015-05-17 10:05:03 UTC");
}

/* A wait that is rounded down would be too short. */
static void test_waits_are_rounded_up(void **state)
{
    (void)state;
    assert_string_equal(human_seconds_up(&human, 0), "0 s");
    assert_string_equal(human_seconds_up(&human, 1), "1 s");
    assert_string_equal(human_seconds_up(&human, NS_PER_S), "1 s");
    assert_string_equal(human_seconds_up(&human, NS_PER_S + 1), "2 s");
    assert_string_equal(human_seconds_up(&human, UINT64_MAX - 1), "18446744074 s");
    assert_string_equal(human_seconds_up(&human, STINT_NEVER_NS), "never");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_and_bytes),
        cmocka_unit_test(test_percents),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_waits_are_rounded_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
