/* SPDX-License-Identifier: MIT */
/* Delays longer than the maximum of a table are cut to it; they mean "not in the near future". */
#define _GNU_SOURCE
#include "cmd/pool/pool_after.h"

#include "base/ns.h"
#include "base/wide_int.h"

#include <string.h>
#include <time.h>

/*
 * "A recipient that parses a timestamp value in an HTTP field MUST accept all three HTTP-date
 * formats" (RFC 9110, 5.6.7). The program runs in the C locale, whose names of days are English.
 */
static bool read_date(const char *text, int64_t *date_s)
{
    static const char *const forms[] = {
        "%a, %d %b %Y %H:%M:%S GMT",
        "%A, %d-%b-%y %H:%M:%S GMT",
        "%a %b %e %H:%M:%S %Y",
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);
        if (end == NULL || *end != '\0')
            continue;
        *date_s = (int64_t)timegm(&tm);
        return true;
    }
    return false;
}

int pool_after_read(const char *text, int64_t wall_ns, uint64_t *after_ns,
                    struct stint_error *error)
{
    const uint64_t seconds_max = STINT_NOW_MAX / NS_PER_S;
    size_t n_digits = strspn(text, "0123456789");
    int64_t date_s = 0;
    uint64_t seconds = 0;
    if (n_digits > 0 && text[n_digits] == '\0') {
        for (size_t i = 0; i < n_digits && seconds < seconds_max; i++)
            seconds = seconds * 10 + (uint64_t)(text[i] - '0');
        *after_ns = min_u64(seconds, seconds_max) * NS_PER_S;
        return 0;
    }
    if (!read_date(text, &date_s))
        return err_set(error, STINT_E_SYNTAX,
                       "'%s' is no Retry-After: expected seconds, like 120, or a date, like "
                       "'Sun, 06 Nov 1994 08:49:37 GMT'",
                       text);
    int64_t wall_s = wall_ns / (int64_t)NS_PER_S;
    if (date_s <= wall_s)
        *after_ns = 0;
    else if ((uint64_t)(date_s - wall_s) > seconds_max)
        *after_ns = seconds_max * NS_PER_S;
    else
        *after_ns = (uint64_t)(date_s * (int64_t)NS_PER_S - wall_ns);
    return 0;
}
