/* SPDX-License-Identifier: MIT */
/* Calendar windows follow each other without gap, and are as long as the calendar says. */
#include "algorithm/calendar.h"

#include "unit/test_quota.h"

#define DAY_NS ((int64_t)DAY)
#define FIRST_NS (-146 * 366 * DAY_NS) /* 1824 */
#define LAST_NS (165 * 365 * DAY_NS)   /* 2134 */

/* Each window begins where the last one ended, and holds its first and last instant. */
TEST(test_windows_follow_each_other)
{
    static const int32_t offsets_s[] = {0, 3600, -19800, 86399, -86399};
    for (int align = STINT_ALIGN_DAY; align <= STINT_ALIGN_YEAR; align++) {
        for (size_t i = 0; i < 5; i++) {
            int64_t at_ns = FIRST_NS;
            while (at_ns < LAST_NS) {
                struct calendar_window window =
                    calendar_window_of((enum stint_align)align, offsets_s[i], at_ns);
                assert_true(window.begin_ns <= at_ns && at_ns < window.end_ns);
                assert_true(at_ns == FIRST_NS || window.begin_ns == at_ns);
                struct calendar_window last =
                    calendar_window_of((enum stint_align)align, offsets_s[i], window.end_ns - 1);
                assert_true(last.begin_ns == window.begin_ns && last.end_ns == window.end_ns);
                at_ns = window.end_ns;
            }
        }
    }
}

/* Months and years have the lengths of the calendar, counted by its rule. */
TEST(test_months_and_years_have_their_lengths)
{
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t at_ns = 0;
    for (int year = 1970; year < 2130; year++) {
        bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        struct calendar_window whole = calendar_window_of(STINT_ALIGN_YEAR, 0, at_ns);
        assert_int_equal(whole.begin_ns, at_ns);
        assert_int_equal(whole.end_ns - at_ns, (is_leap ? 366 : 365) * DAY_NS);
        for (int month = 0; month < 12; month++) {
            int days = month_days[month] + (month == 1 && is_leap);
            struct calendar_window window = calendar_window_of(STINT_ALIGN_MONTH, 0, at_ns);
            assert_int_equal(window.begin_ns, at_ns);
            assert_int_equal(window.end_ns, at_ns + days * DAY_NS);
            at_ns = window.end_ns;
        }
    }
}

/* Weeks begin on Monday; days begin at midnight of the offset, before 1970 too. */
TEST(test_weeks_begin_on_monday_and_days_at_midnight)
{
    /* 1 January 1970 was a Thursday. */
    struct calendar_window week = calendar_window_of(STINT_ALIGN_WEEK, 0, 0);
    assert_int_equal(week.begin_ns, -3 * DAY_NS);
    assert_int_equal(week.end_ns, 4 * DAY_NS);
    struct calendar_window day = calendar_window_of(STINT_ALIGN_DAY, 3600, -1);
    assert_int_equal(day.begin_ns, -(int64_t)(3600 * S));
    assert_int_equal(day.end_ns, DAY_NS - (int64_t)(3600 * S));
    struct calendar_window month = calendar_window_of(STINT_ALIGN_MONTH, 0, -1);
    assert_int_equal(month.begin_ns, -31 * DAY_NS);
    assert_int_equal(month.end_ns, 0);
    /* 2000 was a leap year, 2100 is none. */
    struct calendar_window y2000 = calendar_window_of(STINT_ALIGN_YEAR, 0, 951782400 * (int64_t)S);
    assert_int_equal(y2000.end_ns - y2000.begin_ns, 366 * DAY_NS);
    struct calendar_window y2100 = calendar_window_of(STINT_ALIGN_YEAR, 0, 4107542400 * (int64_t)S);
    assert_int_equal(y2100.end_ns - y2100.begin_ns, 365 * DAY_NS);
}
