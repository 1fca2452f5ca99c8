/* SPDX-License-Identifier: MIT */
/* Retry-After as servers write it: exact for every form, and never in the past. */
#include "unit/test.h"

#include "cmd/pool/pool.h"

#include "base/ns.h"

/* 1994-11-06 08:49:37 UTC, the moment that RFC 9110 writes in all three forms. */
#define THAT_S INT64_C(784111777)
#define WALL_NS(seconds) ((seconds) * (int64_t)NS_PER_S)

static uint64_t after(const char *text, int64_t wall_ns)
{
    struct stint_error error;
    uint64_t after_ns = 1;
    assert_int_equal(pool_after_read(text, wall_ns, &after_ns, &error), 0);
    return after_ns;
}

TEST(test_seconds)
{
    assert_int_equal(after("120", 0), 120 * NS_PER_S);
    assert_int_equal(after("0", 0), 0);
    assert_int_equal(after("00007", 5), 7 * NS_PER_S);
    /* Longer than any table lives, and longer than a number can be. */
    uint64_t longest_ns = STINT_NOW_MAX / NS_PER_S * NS_PER_S;
    assert_int_equal(after("999999999999", 0), longest_ns);
    assert_int_equal(after("99999999999999999999999999999999", 0), longest_ns);
}

TEST(test_dates)
{
    static const char *const forms[] = {
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    };
    for (size_t i = 0; i < N(forms); i++) {
        assert_int_equal(after(forms[i], WALL_NS(THAT_S - 90)), 90 * NS_PER_S);
        assert_int_equal(after(forms[i], WALL_NS(THAT_S - 1) + 1), NS_PER_S - 1);
        assert_int_equal(after(forms[i], WALL_NS(THAT_S)), 0);
        assert_int_equal(after(forms[i], WALL_NS(THAT_S + 1000)), 0);
    }
    assert_int_equal(after("Thu, 29 Feb 2024 00:00:00 GMT", WALL_NS(INT64_C(1709164799))),
                     NS_PER_S);
    uint64_t longest_ns = STINT_NOW_MAX / NS_PER_S * NS_PER_S;
    assert_int_equal(after("Fri, 31 Dec 9999 23:59:59 GMT", WALL_NS(THAT_S)), longest_ns);
}

TEST(test_what_is_neither)
{
    static const char *const wrong[] = {
        "",     "soon",        "-1",
        "1.5",  "12s",         " 12",
        "0x10", "12 13",       "Sun, 06 Nov 1994 08:49:37",
        "GMT",  "06 Nov 1994", "Sun, 06 Nov 1994 08:49:37 GMT+1",
    };
    for (size_t i = 0; i < N(wrong); i++) {
        struct stint_error error = {0};
        uint64_t after_ns = 0;
        assert_int_equal(pool_after_read(wrong[i], 0, &after_ns, &error), STINT_E_SYNTAX);
        assert_non_null(strstr(error.message, "is no Retry-After"));
    }
}
