/* SPDX-License-Identifier: MIT */
/* Digits to nanoseconds since 1970, or since 0. */
#include "sim/input/timestamp.h"

#include "algorithm/text.h"
#include "base/ns.h"

#define DECIMALS_MAX 9
#define DAY_S 86400

/* The number that `n_digits` bytes write, or -1 if one of them is no digit. */
static int digits(const uint8_t *text, size_t n_digits)
{
    int number = 0;
    for (size_t i = 0; i < n_digits; i++) {
        if (!text_is_digit(text[i]))
            return -1;
        number = number * 10 + (text[i] - '0');
    }
    return number;
}

static int no_seconds(struct span text, struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX,
                   "'%.*s' is no time: expected seconds with at most 9 decimals, like 12 or 0.25",
                   (int)(text.len < 40 ? text.len : 40), (const char *)text.ptr);
}

int timestamp_parse_seconds(struct timestamp *timestamp, struct span text,
                            struct stint_error *error)
{
    uint64_t whole_s = 0, fraction_ns = 0;
    size_t at = 0;
    for (; at < text.len && text_is_digit(text.ptr[at]); at++) {
        whole_s = whole_s * 10 + (uint64_t)(text.ptr[at] - '0');
        if (whole_s >= TIMESTAMP_MAX_NS / NS_PER_S)
            return err_set(error, STINT_E_RANGE, "the time %.*s is too far in the future",
                           (int)(text.len < 40 ? text.len : 40), (const char *)text.ptr);
    }
    if (at == 0)
        return no_seconds(text, error);
    size_t n_decimals = 0;
    if (at < text.len && text.ptr[at] == '.') {
        n_decimals = text.len - at - 1;
        if (n_decimals == 0 || n_decimals > DECIMALS_MAX)
            return no_seconds(text, error);
        int fraction = digits(text.ptr + at + 1, n_decimals);
        if (fraction < 0)
            return no_seconds(text, error);
        fraction_ns = (uint64_t)fraction;
        for (size_t i = n_decimals; i < DECIMALS_MAX; i++)
            fraction_ns *= 10;
        at = text.len;
    }
    if (at != text.len)
        return no_seconds(text, error);
    *timestamp = (struct timestamp){whole_s * NS_PER_S + fraction_ns, (uint8_t)n_decimals};
    return 0;
}

/*
 * Days from 1970-01-01 to a day of the Gregorian calendar. Years are counted from March, so that
 * the leap day is the last of its year and month lengths follow one line: (153 m + 2) / 5.
 */
static int64_t days_of_civil(int year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t months = month <= 2 ? month + 9 : month - 3;
    return 365 * y + y / 4 - y / 100 + y / 400 + (153 * months + 2) / 5 + day - 1 - 719468;
}

static bool is_day(int year, int month, int day)
{
    static const uint8_t lengths[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (year < 1 || month < 1 || month > 12 || day < 1)
        return false;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return day <= lengths[month - 1] + (month == 2 && leap);
}

/* Seconds in the day of three pairs of digits with one byte between them; -1 for none. */
static int time_of_day_s(const uint8_t *text)
{
    int hour = digits(text, 2), minute = digits(text + 3, 2), second = digits(text + 6, 2);
    /* 60 is a leap second: the same time as the next minute's 0, as in POSIX time. */
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
        return -1;
    return text[2] == ':' && text[5] == ':' ? hour * 3600 + minute * 60 + second : -1;
}

/* "+0130" with `colon` false, "+01:30" with it true. */
static bool parse_offset(int *offset_s, const uint8_t *text, bool colon)
{
    int hours = digits(text + 1, 2), minutes = digits(text + 3 + colon, 2);
    if ((text[0] != '+' && text[0] != '-') || hours < 0 || hours > 23 || minutes < 0 ||
        minutes > 59)
        return false;
    *offset_s = (text[0] == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
    return true;
}

static bool ns_of_seconds(uint64_t *ns, int64_t since_1970_s)
{
    if (since_1970_s < 0 || since_1970_s >= (int64_t)(TIMESTAMP_MAX_NS / NS_PER_S))
        return false;
    *ns = (uint64_t)since_1970_s * NS_PER_S;
    return true;
}

/* Reads "2026-01-31T23:59:59" and then a fraction and an offset, if each is there. */
static bool rfc3339(struct timestamp *timestamp, struct span text)
{
    const uint8_t *t = text.ptr;
    if (text.len < 20 || t[4] != '-' || t[7] != '-' || memchr("Tt ", t[10], 3) == NULL)
        return false;
    int year = digits(t, 4), month = digits(t + 5, 2), day = digits(t + 8, 2);
    int of_day_s = time_of_day_s(t + 11);
    if (!is_day(year, month, day) || of_day_s < 0)
        return false;
    size_t at = 19;
    uint64_t fraction_ns = 0, digit_ns = NS_PER_S / 10;
    timestamp->decimals = 0;
    if (t[at] == '.') {
        for (at++; at < text.len && text_is_digit(t[at]); at++, digit_ns /= 10) {
            fraction_ns += (uint64_t)(t[at] - '0') * digit_ns;
            if (digit_ns > 0)
                timestamp->decimals++;
        }
        if (timestamp->decimals == 0)
            return false;
    }
    int offset_s = 0;
    bool utc = text.len - at == 1 && (t[at] == 'Z' || t[at] == 'z');
    if (!utc && (text.len - at != 6 || t[at + 3] != ':' || !parse_offset(&offset_s, t + at, true)))
        return false;
    int64_t day_start_s = days_of_civil(year, month, day) * DAY_S;
    if (!ns_of_seconds(&timestamp->ns, day_start_s + of_day_s - offset_s))
        return false;
    timestamp->ns += fraction_ns;
    return true;
}

int timestamp_parse_rfc3339(struct timestamp *timestamp, struct span text,
                            struct stint_error *error)
{
    if (rfc3339(timestamp, text))
        return 0;
    return err_set(error, STINT_E_SYNTAX,
                   "'%.*s' is no time: expected one from 1970 on like 2026-01-31T23:59:59.25Z",
                   (int)(text.len < 40 ? text.len : 40), (const char *)text.ptr);
}

static int month_of(const uint8_t *name)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (int month = 0; month < 12; month++)
        if (memcmp(name, names + 3 * month, 3) == 0)
            return month + 1;
    return 0;
}

/* The start of the day in "17/May/2015:…" at "… +0000", in seconds since 1970. */
static bool clf_day_start(int64_t *day_start_s, const uint8_t *text)
{
    int day = digits(text, 2), month = month_of(text + 3), year = digits(text + 7, 4);
    int offset_s;
    if (text[2] != '/' || text[6] != '/' || text[11] != ':' || text[20] != ' ' ||
        !is_day(year, month, day) || !parse_offset(&offset_s, text + 21, false))
        return false;
    *day_start_s = days_of_civil(year, month, day) * DAY_S - offset_s;
    return true;
}

bool timestamp_parse_clf(uint64_t *ns, const uint8_t *text, struct timestamp_clf_cache *cache)
{
    if (cache->is_set && memcmp(text, cache->text, TIMESTAMP_CLF_LEN) == 0) {
        *ns = cache->ns;
        return true;
    }
    int64_t day_start_s = cache->day_start_s;
    bool same_day = cache->is_set && memcmp(text, cache->text, 12) == 0 &&
                    memcmp(text + 20, cache->text + 20, 6) == 0;
    if (!same_day && !clf_day_start(&day_start_s, text))
        return false;
    int of_day_s = time_of_day_s(text + 12);
    if (of_day_s < 0 || !ns_of_seconds(ns, day_start_s + of_day_s))
        return false;
    cache->is_set = true;
    memcpy(cache->text, text, TIMESTAMP_CLF_LEN);
    cache->ns = *ns;
    cache->day_start_s = day_start_s;
    return true;
}
