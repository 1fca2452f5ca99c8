/* SPDX-License-Identifier: MIT */
/* Rounded for display; programs do not read these numbers. */
#define _GNU_SOURCE
#include "cmd/lib/format.h"

#include "base/ns.h"
#include "stint.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

const char *format_count(struct formatted *formatted, uint64_t number)
{
    char plain[24];
    int len = snprintf(plain, sizeof(plain), "%" PRIu64, number);
    char *to = formatted->text;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            *to++ = ',';
        *to++ = plain[i];
    }
    *to = '\0';
    return formatted->text;
}

const char *format_bytes(struct formatted *formatted, uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double number = (double)bytes;
    size_t unit = 0;
    if (bytes < 1000) {
        snprintf(formatted->text, sizeof(formatted->text), "%" PRIu64 " bytes", bytes);
        return formatted->text;
    }
    for (number /= 1000; number >= 999.95 && unit < 5; unit++)
        number /= 1000;
    snprintf(formatted->text, sizeof(formatted->text), "%.1f %s", number, units[unit]);
    return formatted->text;
}

const char *format_percent(struct formatted *formatted, uint64_t part, uint64_t whole)
{
    double percent = whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
    /* 100.0 % and 0.0 % are printed only for all and for none. */
    if (part > 0 && percent < 0.05)
        snprintf(formatted->text, sizeof(formatted->text), "<0.1 %%");
    else if (part < whole && percent >= 99.95)
        snprintf(formatted->text, sizeof(formatted->text), ">99.9 %%");
    else
        snprintf(formatted->text, sizeof(formatted->text), "%.1f %%", percent);
    return formatted->text;
}

/* The two largest units, or one with decimals below a second. */
const char *format_duration(struct formatted *formatted, uint64_t ns)
{
    static const struct {
        uint64_t ns;
        const char *name;
    } units[] = {{NS_PER_DAY, "d"}, {NS_PER_HOUR, "h"}, {NS_PER_MIN, "min"},
                 {NS_PER_S, "s"},   {NS_PER_MS, "ms"},  {NS_PER_US, "us"},
                 {1, "ns"}};
    size_t unit = 0;
    while (unit < 6 && ns < units[unit].ns)
        unit++;
    uint64_t rest = unit < 6 ? ns % units[unit].ns / units[unit + 1].ns : 0;
    if (rest > 0)
        snprintf(formatted->text, sizeof(formatted->text), "%" PRIu64 " %s %" PRIu64 " %s",
                 ns / units[unit].ns, units[unit].name, rest, units[unit + 1].name);
    else
        snprintf(formatted->text, sizeof(formatted->text), "%" PRIu64 " %s", ns / units[unit].ns,
                 units[unit].name);
    return formatted->text;
}

const char *format_seconds_up(struct formatted *formatted, uint64_t ns)
{
    if (ns == STINT_NEVER_NS)
        snprintf(formatted->text, sizeof(formatted->text), "never");
    else
        snprintf(formatted->text, sizeof(formatted->text), "%" PRIu64 " s",
                 ns / NS_PER_S + (ns % NS_PER_S != 0));
    return formatted->text;
}

const char *format_wait(struct formatted *formatted, uint64_t ns)
{
    uint64_t ms = ns / NS_PER_MS + (ns % NS_PER_MS != 0);
    if (ns == STINT_NEVER_NS)
        snprintf(formatted->text, sizeof(formatted->text), "never");
    else
        snprintf(formatted->text, sizeof(formatted->text), "%" PRIu64 ".%03" PRIu64, ms / 1000,
                 ms % 1000);
    return formatted->text;
}

const char *format_date(struct formatted *formatted, uint64_t since_1970_ns)
{
    time_t seconds = (time_t)(since_1970_ns / NS_PER_S);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    strftime(formatted->text, sizeof(formatted->text), "%Y-%m-%d %H:%M:%S UTC", &tm);
    return formatted->text;
}
