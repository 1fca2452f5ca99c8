/* SPDX-License-Identifier: MIT */
/* Durations as text. Exact in both directions: a fraction of a nanosecond is refused, not cut. */
#include "algorithm/spec.h"
#include "algorithm/text.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>

struct unit {
    const char *name;
    uint64_t ns;
};

/* From the greatest to the smallest. */
static const struct unit units[] = {
    {"w", NS_PER_WEEK}, {"d", NS_PER_DAY}, {"h", NS_PER_HOUR}, {"m", NS_PER_MIN},
    {"s", NS_PER_S},    {"ms", NS_PER_MS}, {"us", NS_PER_US},  {"ns", 1},
};
#define N_UNITS (sizeof(units) / sizeof(units[0]))

/* A number with up to 18 decimals: whole + part / scale. */
struct decimal {
    uint64_t whole, part, scale;
};

#define DECIMALS_MAX 18

/* Reads digits at *at and moves past them; returns how many. *fits: into 64 bits. */
static size_t read_digits(struct span text, size_t *at, uint64_t *number, bool *fits)
{
    size_t begin = *at;
    for (; *at < text.len && text_is_digit(text.ptr[*at]); (*at)++) {
        uint64_t digit = text.ptr[*at] - (uint64_t)'0';
        *fits = *fits && *number <= (UINT64_MAX - digit) / 10;
        *number = *number * 10 + digit;
    }
    return *at - begin;
}

/* Reads digits, or digits.digits; moves *at past them. */
static int read_decimal(struct span text, size_t *at, struct decimal *decimal)
{
    bool fits = true;
    *decimal = (struct decimal){.scale = 1};
    if (read_digits(text, at, &decimal->whole, &fits) == 0)
        return STINT_E_SYNTAX;
    if (!fits || *at == text.len || text.ptr[*at] != '.')
        return fits ? STINT_OK : STINT_E_RANGE;
    (*at)++;
    size_t n_digits = read_digits(text, at, &decimal->part, &fits);
    if (n_digits == 0)
        return STINT_E_SYNTAX;
    if (n_digits > DECIMALS_MAX)
        return STINT_E_RANGE;
    for (size_t i = 0; i < n_digits; i++)
        decimal->scale *= 10;
    return STINT_OK;
}

/* The unit whose name is all letters that follow; N_UNITS for none. Moves *at past it. */
static size_t read_unit(struct span text, size_t *at)
{
    assert(*at <= text.len);
    size_t begin = *at;
    while (*at < text.len && !text_is_digit(text.ptr[*at]))
        (*at)++;
    struct span name = span_of(text.ptr + begin, *at - begin);
    for (size_t i = 0; i < N_UNITS; i++)
        if (text_is(name, units[i].name))
            return i;
    return N_UNITS;
}

static int scale_decimal(const struct decimal *decimal, uint64_t unit_ns, uint64_t *ns)
{
    assert(decimal->scale > 0);
    struct wide whole = wide_mul(decimal->whole, unit_ns);
    struct wide part = wide_mul(decimal->part, unit_ns);
    uint64_t part_ns = wide_div(part, decimal->scale);
    struct wide again = wide_mul(part_ns, decimal->scale);
    if (whole.hi > 0 || again.hi != part.hi || again.lo != part.lo)
        return STINT_E_RANGE;
    *ns = add_sat(whole.lo, part_ns);
    return *ns == UINT64_MAX ? STINT_E_RANGE : STINT_OK;
}

int spec_parse_duration(struct span text, uint64_t *ns)
{
    size_t at = 0, units_from = 0;
    bool is_bare = text.len > 0 && !text_is_digit(text.ptr[0]);
    *ns = 0;
    do {
        struct decimal decimal = {.whole = 1, .scale = 1};
        int code = is_bare ? STINT_OK : read_decimal(text, &at, &decimal);
        if (code != STINT_OK)
            return code;
        size_t unit = read_unit(text, &at);
        if (unit < units_from || unit == N_UNITS || (is_bare && at < text.len))
            return STINT_E_SYNTAX;
        units_from = unit + 1;
        uint64_t part_ns;
        code = scale_decimal(&decimal, units[unit].ns, &part_ns);
        if (code != STINT_OK || part_ns > UINT64_MAX - 1 - *ns)
            return STINT_E_RANGE;
        *ns += part_ns;
    } while (at < text.len);
    return STINT_OK;
}

void spec_format_duration(struct buf *buf, uint64_t ns)
{
    if (ns == 0)
        buf_add(buf, "0s");
    for (size_t i = 1; i < N_UNITS; i++) { /* weeks are written as days, which are easier to read */
        uint64_t n = ns / units[i].ns;
        if (n > 0)
            buf_add(buf, "%llu%s", (unsigned long long)n, units[i].name);
        ns -= n * units[i].ns;
    }
    assert(ns == 0);
}
