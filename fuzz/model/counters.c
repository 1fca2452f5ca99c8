/* SPDX-License-Identifier: MIT */
/* fixed_window and sliding_counter. */
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>

#define DAY_NS (INT64_C(86400) * 1000000000)

/* ---- fixed_window ---------------------------------------------------------------------------- */

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int64_t days_of_month(int64_t year, int month)
{
    static const int64_t days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month] + (month == 1 && is_leap(year));
}

/* Walks from 1970-01-01 over years or months until the day is inside; *begin and *end in days. */
static void walk_calendar(bool by_month, int64_t day, int64_t *begin, int64_t *end)
{
    int64_t year = 1970;
    *begin = 0;
    while (day < *begin)
        *begin -= is_leap(--year) ? 366 : 365;
    for (;; year++) {
        int64_t days = is_leap(year) ? 366 : 365;
        *end = *begin + days;
        if (day < *end)
            break;
        *begin = *end;
    }
    for (int month = 0; by_month; month++) {
        *end = *begin + days_of_month(year, month);
        if (day < *end)
            return;
        *begin = *end;
    }
}

static int64_t floor_div(int64_t n, int64_t d)
{
    return n / d - (n % d < 0);
}

/* The edges around an instant of the wall clock. */
static void edges(const struct stint_quota *quota, int64_t wall_ns, int64_t *begin, int64_t *end)
{
    int64_t period = (int64_t)quota->period_ns, offset = quota->utc_offset_s * INT64_C(1000000000);
    int64_t day = floor_div(wall_ns + offset, DAY_NS);
    if (quota->align == STINT_ALIGN_EPOCH) {
        *begin = floor_div(wall_ns, period) * period;
        *end = *begin + period;
        return;
    }
    *begin = day;
    *end = day + 1;
    if (quota->align == STINT_ALIGN_WEEK) {
        *begin = floor_div(day + 3, 7) * 7 - 3; /* 1970-01-01 was a Thursday */
        *end = *begin + 7;
    } else if (quota->align == STINT_ALIGN_MONTH || quota->align == STINT_ALIGN_YEAR) {
        walk_calendar(quota->align == STINT_ALIGN_MONTH, day, begin, end);
    }
    *begin = *begin * DAY_NS - offset;
    *end = *end * DAY_NS - offset;
}

static uint64_t fixed_used(const struct model *model, uint64_t now_ns)
{
    return now_ns < model->end_ns ? model->current : 0;
}

static uint64_t fixed_space(const struct model *model, uint64_t now_ns)
{
    uint64_t used = fixed_used(model, now_ns);
    return used < model->capacity ? model->capacity - used : 0;
}

static bool fixed_in_debt(const struct model *model, uint64_t now_ns)
{
    return fixed_used(model, now_ns) > model->capacity;
}

static void fixed_spend(struct model *model, uint64_t now_ns, uint64_t units)
{
    if (now_ns >= model->end_ns) {
        model->current = 0;
        model->begin_ns = now_ns;
        model->end_ns = now_ns + model->quota->period_ns;
        if (model->quota->align != STINT_ALIGN_FIRST_USE) {
            int64_t begin, end;
            edges(model->quota, (int64_t)now_ns + model->quota->epoch_ns, &begin, &end);
            model->end_ns = (uint64_t)(end - model->quota->epoch_ns);
        }
    }
    model->current += units;
}

static uint64_t fixed_wait(const struct model *model, uint64_t now_ns, uint64_t cost)
{
    (void)cost;
    return model->end_ns - now_ns;
}

static uint64_t fixed_chargeable(const struct model *model, uint64_t now_ns)
{
    return 2 * model->capacity - fixed_used(model, now_ns);
}

static uint64_t fixed_expires_at(const struct model *model, uint64_t now_ns)
{
    (void)now_ns;
    return model->end_ns;
}

const struct model_algorithm model_fixed_window = {
    .space = fixed_space,
    .in_debt = fixed_in_debt,
    .wait = fixed_wait,
    .spend = fixed_spend,
    .chargeable = fixed_chargeable,
    .expires_at = fixed_expires_at,
};

/* ---- sliding_counter ------------------------------------------------------------------------- */

/* The counts of the window under way and the one before, at an instant. */
struct view {
    uint64_t number, previous, current, elapsed_ns;
};

static struct view view_at(const struct model *model, uint64_t now_ns)
{
    uint64_t period_ns = model->quota->period_ns, number = now_ns / period_ns;
    if (number < model->number)
        return (struct view){model->number, model->previous, model->current, 0};
    struct view view = {number, model->previous, model->current, now_ns % period_ns};
    for (uint64_t passed = number - model->number; passed > 0 && view.previous + view.current > 0;
         passed--) {
        view.previous = view.current;
        view.current = 0;
    }
    return view;
}

/* Times the period, so that nothing is rounded. */
static unsigned __int128 estimate_of(const struct model *model, uint64_t now_ns)
{
    struct view view = view_at(model, now_ns);
    unsigned __int128 period_ns = model->quota->period_ns;
    return view.previous * (period_ns - view.elapsed_ns) + view.current * period_ns;
}

/* Units under a ceiling, when the estimate is taken off it unrounded. */
static uint64_t units_below(const struct model *model, uint64_t now_ns, uint64_t ceiling)
{
    unsigned __int128 period_ns = model->quota->period_ns;
    unsigned __int128 estimate = estimate_of(model, now_ns);
    return ceiling * period_ns > estimate ? (uint64_t)((ceiling * period_ns - estimate) / period_ns)
                                          : 0;
}

static uint64_t sliding_space(const struct model *model, uint64_t now_ns)
{
    return units_below(model, now_ns, model->capacity);
}

static bool sliding_in_debt(const struct model *model, uint64_t now_ns)
{
    unsigned __int128 period_ns = model->quota->period_ns;
    return estimate_of(model, now_ns) > model->capacity * period_ns;
}

/* The estimate never rises by itself: the first instant at which the cost fits, by halving. */
static uint64_t sliding_wait(const struct model *model, uint64_t now_ns, uint64_t cost)
{
    uint64_t low = now_ns, high = (view_at(model, now_ns).number + 3) * model->quota->period_ns;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (sliding_space(model, middle) >= cost && !sliding_in_debt(model, middle))
            high = middle;
        else
            low = middle;
    }
    return high - now_ns;
}

static void sliding_spend(struct model *model, uint64_t now_ns, uint64_t units)
{
    struct view view = view_at(model, now_ns);
    model->number = view.number;
    model->previous = view.previous;
    model->current = view.current + units;
}

static uint64_t sliding_chargeable(const struct model *model, uint64_t now_ns)
{
    return units_below(model, now_ns, 2 * model->capacity);
}

/* Not gone in the window after its own, if there are units of both. */
static uint64_t sliding_expires_at(const struct model *model, uint64_t now_ns)
{
    struct view view = view_at(model, now_ns);
    uint64_t windows = view.current > 0 ? 2 : view.previous > 0 ? 1 : 0;
    return windows == 0 ? 0 : (view.number + windows) * model->quota->period_ns;
}

const struct model_algorithm model_sliding_counter = {
    .space = sliding_space,
    .in_debt = sliding_in_debt,
    .wait = sliding_wait,
    .spend = sliding_spend,
    .chargeable = sliding_chargeable,
    .expires_at = sliding_expires_at,
};
