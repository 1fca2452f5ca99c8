/* SPDX-License-Identifier: MIT */
/* The lengths of months and years. */
#include "algorithm/calendar.h"

#include "base/ns.h"

#include <assert.h>

#define DAYS_BEFORE_1970 719162 /* days from 1 January of year 1 */
#define DAYS_PER_400_YEARS 146097
#define DAY_NS ((int64_t)NS_PER_DAY)
#define WALL_MAX_NS (INT64_MAX - 2 * 366 * DAY_NS) /* the end of its year does not overflow */

static int64_t floor_div(int64_t n, int64_t d)
{
    assert(d > 0);
    return n / d - (n % d < 0);
}

/* Days from 1 January of year 1 to 1 January of `year`. */
static int64_t days_before_year(int64_t year)
{
    int64_t past = year - 1;
    return 365 * past + past / 4 - past / 100 + past / 400;
}

/* Month 0 is January; month 12 is the next one. */
static int64_t days_before_month(int64_t year, int month)
{
    assert(month >= 0 && month <= 12);
    static const int16_t days[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    int64_t before = days_before_year(year);
    bool is_leap_year = days_before_year(year + 1) - before == 366;
    return before + days[month] + (month >= 2 && is_leap_year);
}

static int64_t year_of_day(int64_t day)
{
    int64_t year = day * 400 / DAYS_PER_400_YEARS + 1; /* at most one off */
    if (days_before_year(year) > day)
        year--;
    else if (days_before_year(year + 1) <= day)
        year++;
    assert(days_before_year(year) <= day && day < days_before_year(year + 1));
    return year;
}

static int month_of_day(int64_t year, int64_t day)
{
    int month = (int)((day - days_before_year(year)) / 31); /* right, or one too low */
    month += days_before_month(year, month + 1) <= day;
    assert(days_before_month(year, month) <= day && day < days_before_month(year, month + 1));
    return month;
}

struct calendar_window calendar_window_of(enum stint_align align, int32_t utc_offset_s,
                                          int64_t wall_ns)
{
    assert(align >= STINT_ALIGN_DAY && align <= STINT_ALIGN_YEAR);
    int64_t offset_ns = utc_offset_s * (int64_t)NS_PER_S;
    if (wall_ns > WALL_MAX_NS || wall_ns < -WALL_MAX_NS)
        wall_ns = wall_ns < 0 ? -WALL_MAX_NS : WALL_MAX_NS;
    int64_t day = floor_div(wall_ns + offset_ns, DAY_NS) + DAYS_BEFORE_1970;
    int64_t begin = day, end = day + 1;
    if (align == STINT_ALIGN_WEEK) {
        begin = day - day % 7; /* 1 January of year 1 was a Monday */
        end = begin + 7;
    } else if (align == STINT_ALIGN_MONTH) {
        int64_t year = year_of_day(day);
        int month = month_of_day(year, day);
        begin = days_before_month(year, month);
        end = days_before_month(year, month + 1);
    } else if (align == STINT_ALIGN_YEAR) {
        int64_t year = year_of_day(day);
        begin = days_before_year(year);
        end = days_before_year(year + 1);
    } else {
        assert(align == STINT_ALIGN_DAY);
    }
    assert(begin <= day && day < end);
    return (struct calendar_window){
        .begin_ns = (begin - DAYS_BEFORE_1970) * DAY_NS - offset_ns,
        .end_ns = (end - DAYS_BEFORE_1970) * DAY_NS - offset_ns,
    };
}
