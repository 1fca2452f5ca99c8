/* SPDX-License-Identifier: MIT */
/*
 * Reads and writes SPECs: `[ALGORITHM] LIMIT/PERIOD [name=value …]`. Only the meaning of the text;
 * stint_quota_check() decides whether such a quota can be enforced.
 */
#include "algorithm/spec.h"

#include "algorithm/suggest.h"
#include "algorithm/text.h"
#include "base/limits.h"
#include "base/ns.h"

#include <assert.h>
#include <string.h>

#define SHOWN_MAX 32 /* bytes of the user's text repeated in a message */
#define SUGGESTED_SIZE 96

#define IN(algorithm) (1u << (algorithm))
#define IN_ALL (~0u)
#define IN_COUNTING (IN(STINT_GCRA) | IN(STINT_FIXED_WINDOW) | IN(STINT_SLIDING_COUNTER))

static const char *const algorithm_names[] = {
    "window",
    "buckets",
    "log",
    "gcra",
    "fixed_window",
    "sliding_counter",
    "concurrency",
    "token_bucket",
    "leaky_bucket",
    "sliding_window_log",
    "sliding_window_counter",
    "sliding_window",
};
static const uint8_t algorithm_values[] = {
    STINT_WINDOW,          STINT_BUCKETS,         STINT_LOG,  STINT_GCRA, STINT_FIXED_WINDOW,
    STINT_SLIDING_COUNTER, STINT_CONCURRENCY,     STINT_GCRA, STINT_GCRA, STINT_LOG,
    STINT_SLIDING_COUNTER, STINT_SLIDING_COUNTER,
};
#define N_ALGORITHMS (sizeof(algorithm_names) / sizeof(algorithm_names[0]))

const char *const outcome_names[] = {
    [STINT_ALLOW] = "allow", [STINT_DENY] = "deny", [STINT_NEVER] = "never"};

static const char *const when_full_names[] = {
    [STINT_FULL_INHERIT - 1] = "inherit",
    [STINT_FULL_EVICT - 1] = "evict",
    [STINT_FULL_DENY - 1] = "deny",
    [STINT_FULL_ALLOW - 1] = "allow",
};

/* The parser: the quota so far, and the text. */
struct reader {
    struct stint_quota quota;
    struct stint_error *error;
    const uint8_t *begin; /* of the SPEC, for columns */
    struct span rest;     /* not yet read */
    struct span amount;   /* the word LIMIT/PERIOD, or LIMIT */
    struct span period;   /* its part after the slash, as calendars need `align` to read it */
    uint32_t options_seen;
    bool is_calendar;
};

/* ---- Messages -------------------------------------------------------------------------------- */

/* A piece of the user's text that is safe to repeat: short, and without control characters. */
struct shown {
    char text[SHOWN_MAX + 4];
};

static struct shown show(struct span span)
{
    struct shown shown = {""};
    size_t len = span.len < SHOWN_MAX ? span.len : SHOWN_MAX;
    for (size_t i = 0; i < len; i++)
        shown.text[i] = span.ptr[i] >= ' ' && span.ptr[i] < 0x7f ? (char)span.ptr[i] : '?';
    if (span.len > SHOWN_MAX)
        memcpy(shown.text + len, "...", 4);
    return shown;
}

static unsigned column_of(const struct reader *reader, struct span at)
{
    assert(at.ptr >= reader->begin);
    return (unsigned)(at.ptr - reader->begin) + 1;
}

static int expected(const struct reader *reader, struct span found, const char *what)
{
    if (found.len == 0)
        return err_set(reader->error, STINT_E_SYNTAX, "column %u: expected %s, found nothing",
                       column_of(reader, found), what);
    return err_set(reader->error, STINT_E_SYNTAX, "column %u: expected %s, found \"%s\"",
                   column_of(reader, found), what, show(found).text);
}

static int unknown(const struct reader *reader, struct span word, const char *what,
                   const char *const *names, size_t n_names)
{
    assert(n_names > 0);
    int nearest = nearest_name(word, names, n_names);
    return err_set(reader->error, STINT_E_SYNTAX, "column %u: expected %s, found \"%s\"%s%s%s",
                   column_of(reader, word), what, show(word).text,
                   nearest < 0 ? "" : "; did you mean \"", nearest < 0 ? "" : names[nearest],
                   nearest < 0 ? "" : "\"?");
}

/* ---- Words and values ------------------------------------------------------------------------ */

/* The next word; empty at the end. */
static struct span next_word(struct reader *reader)
{
    struct span rest = reader->rest;
    while (rest.len > 0 && text_is_blank(rest.ptr[0]))
        rest = span_of(rest.ptr + 1, rest.len - 1);
    size_t len = 0;
    while (len < rest.len && !text_is_blank(rest.ptr[len]))
        len++;
    assert(len <= rest.len);
    reader->rest = span_of(rest.ptr + len, rest.len - len);
    return span_of(rest.ptr, len);
}

/* Splits a word at the first `mark`; without one, *after is empty and false is returned. */
static bool split(struct span word, char mark, struct span *before, struct span *after)
{
    const uint8_t *at = word.len > 0 ? memchr(word.ptr, mark, word.len) : NULL;
    size_t len = at == NULL ? word.len : (size_t)(at - word.ptr);
    *before = span_of(word.ptr, len);
    *after = at == NULL ? span_of(word.ptr + len, 0) : span_of(at + 1, word.len - len - 1);
    return at != NULL;
}

static int index_of(struct span word, const char *const *names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        if (text_is(word, names[i]))
            return (int)i;
    return -1;
}

int spec_algorithm(struct span name, const char **nearest)
{
    int index = index_of(name, algorithm_names, N_ALGORITHMS);
    int guess = index >= 0 ? index : nearest_name(name, algorithm_names, N_ALGORITHMS);
    *nearest = guess >= 0 ? algorithm_names[guess] : NULL;
    assert(index < 0 || guess == index);
    return index >= 0 ? algorithm_values[index] : 0;
}

/* Plain digits; -1 for anything else, UINT32_MAX + 1 for what is too large. */
static int64_t digits_value(struct span text)
{
    uint64_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (!text_is_digit(text.ptr[i]))
            return -1;
        value = value * 10 + (text.ptr[i] - (uint64_t)'0');
        if (value > UINT32_MAX)
            value = (uint64_t)UINT32_MAX + 1;
    }
    assert(value <= (uint64_t)UINT32_MAX + 1);
    return text.len == 0 ? -1 : (int64_t)value;
}

static int read_number(const struct reader *reader, struct span text, uint32_t min,
                       uint32_t *number)
{
    int64_t value = digits_value(text);
    if (value < 0)
        return expected(reader, text, "a number in plain digits");
    if (value < min || value > UINT32_MAX)
        return err_set(reader->error, STINT_E_RANGE,
                       "column %u: expected a number from %u to 4294967295, found \"%s\"",
                       column_of(reader, text), (unsigned)min, show(text).text);
    *number = (uint32_t)value;
    return STINT_OK;
}

static int read_units(const struct reader *reader, struct span text, uint32_t min, uint32_t *number)
{
    assert(min <= UNIT_COUNT_MAX);
    if (digits_value(text) > UNIT_COUNT_MAX)
        return err_set(reader->error, STINT_E_RANGE,
                       "column %u: expected a number from %u to " UNIT_COUNT_MAX_TEXT
                       ", found \"%s\"; " UNITS_ADVICE,
                       column_of(reader, text), (unsigned)min, show(text).text);
    return read_number(reader, text, min, number);
}

static int read_duration(const struct reader *reader, struct span text, uint64_t *ns)
{
    int code = spec_parse_duration(text, ns);
    if (code == STINT_E_SYNTAX)
        return expected(reader, text, "a duration such as 60s, 1h30m or 500ms");
    if (code == STINT_OK && *ns > 0)
        return STINT_OK;
    return err_set(reader->error, STINT_E_RANGE,
                   "column %u: expected a duration of whole nanoseconds above 0 and below 584 "
                   "years, found \"%s\"",
                   column_of(reader, text), show(text).text);
}

/* ---- Options --------------------------------------------------------------------------------- */

static int read_align(struct reader *reader, struct span value)
{
    static const char *const names[] = {"epoch", "first_use", "calendar"};
    int index = index_of(value, names, 3);
    if (index < 0)
        return unknown(reader, value, "align=epoch, first_use or calendar", names, 3);
    reader->is_calendar = index == 2;
    if (index < 2)
        reader->quota.align = index == 0 ? STINT_ALIGN_EPOCH : STINT_ALIGN_FIRST_USE;
    return STINT_OK;
}

/* Two digits below `end` at text[at]; -1 if there are none. */
static int two_digits(struct span text, size_t at, int end)
{
    assert(end > 0 && end <= 100);
    int64_t value = at + 2 <= text.len ? digits_value(span_of(text.ptr + at, 2)) : -1;
    return value < end ? (int)value : -1;
}

int spec_parse_offset(struct span text, int32_t *offset_s)
{
    *offset_s = 0;
    if (text_is(text, "Z"))
        return STINT_OK;
    if ((text.len != 6 && text.len != 9) || (text.ptr[0] != '+' && text.ptr[0] != '-') ||
        text.ptr[3] != ':' || (text.len == 9 && text.ptr[6] != ':'))
        return STINT_E_SYNTAX;
    int hours = two_digits(text, 1, 24), minutes = two_digits(text, 4, 60);
    int seconds = text.len == 9 ? two_digits(text, 7, 60) : 0;
    if (hours < 0 || minutes < 0 || seconds < 0)
        return STINT_E_SYNTAX;
    int32_t magnitude_s = hours * 3600 + minutes * 60 + seconds;
    *offset_s = text.ptr[0] == '-' ? -magnitude_s : magnitude_s;
    return STINT_OK;
}

static int read_utc_offset(struct reader *reader, struct span value)
{
    if (spec_parse_offset(value, &reader->quota.utc_offset_s) == STINT_OK)
        return STINT_OK;
    return expected(reader, value, "utc_offset such as +01:00, -05:30 or Z");
}

static int read_initial(struct reader *reader, struct span value)
{
    reader->quota.initial_set = true;
    if (text_is(value, "full")) {
        reader->quota.initial = STINT_INITIAL_FULL;
        return STINT_OK;
    }
    if (text_is(value, "empty")) {
        reader->quota.initial = 0;
        return STINT_OK;
    }
    if (digits_value(value) < 0)
        return expected(reader, value, "initial=full, empty or a number");
    return read_units(reader, value, 0, &reader->quota.initial);
}

const char *spec_when_full_name(uint8_t when_full)
{
    assert(when_full <= STINT_FULL_ALLOW);
    return when_full == STINT_FULL_DEFAULT ? NULL : when_full_names[when_full - 1];
}

static int read_when_full(struct reader *reader, struct span value)
{
    int index = index_of(value, when_full_names, 4);
    if (index < 0)
        return unknown(reader, value, "when_full=inherit, evict, deny or allow", when_full_names,
                       4);
    reader->quota.when_full = (uint8_t)(index + 1);
    return STINT_OK;
}

static int read_count_denied(struct reader *reader, struct span value)
{
    reader->quota.count_denied = text_is(value, "true");
    if (!reader->quota.count_denied && !text_is(value, "false"))
        return expected(reader, value, "count_denied=true or false");
    return STINT_OK;
}

static const char *const option_names[] = {
    "burst", "resolution", "time_slack", "count_slack", "lease",
    "align", "utc_offset", "initial",    "when_full",   "count_denied",
};
#define N_OPTIONS (sizeof(option_names) / sizeof(option_names[0]))

static const struct option {
    uint32_t algorithms; /* that have it */
    enum { OPTION_UNITS, OPTION_NUMBER, OPTION_DURATION, OPTION_OTHER } kind;
    size_t at; /* in struct stint_quota: a uint32_t, or a uint64_t of a duration */
    int (*read)(struct reader *reader, struct span value);
} spec_options[N_OPTIONS] = {
    {IN(STINT_GCRA), OPTION_UNITS, offsetof(struct stint_quota, burst), NULL},
    {IN(STINT_WINDOW), OPTION_NUMBER, offsetof(struct stint_quota, resolution), NULL},
    {IN(STINT_BUCKETS), OPTION_DURATION, offsetof(struct stint_quota, time_slack_ns), NULL},
    {IN(STINT_BUCKETS), OPTION_UNITS, offsetof(struct stint_quota, count_slack), NULL},
    {IN(STINT_CONCURRENCY), OPTION_DURATION, offsetof(struct stint_quota, lease_ns), NULL},
    {IN(STINT_FIXED_WINDOW), OPTION_OTHER, 0, read_align},
    {IN(STINT_FIXED_WINDOW), OPTION_OTHER, 0, read_utc_offset},
    {IN_ALL & ~IN(STINT_CONCURRENCY), OPTION_OTHER, 0, read_initial},
    {IN_ALL, OPTION_OTHER, 0, read_when_full},
    {IN_COUNTING, OPTION_OTHER, 0, read_count_denied},
};

static int read_value(struct reader *reader, const struct option *option, struct span value)
{
    void *field = (char *)&reader->quota + option->at;
    if (option->kind == OPTION_UNITS)
        return read_units(reader, value, 1, field);
    if (option->kind == OPTION_NUMBER)
        return read_number(reader, value, 1, field);
    return option->kind == OPTION_DURATION ? read_duration(reader, value, field)
                                           : option->read(reader, value);
}

static int read_option(struct reader *reader, struct span word)
{
    assert(reader->quota.algorithm >= STINT_WINDOW);
    struct span name, value;
    if (!split(word, '=', &name, &value))
        return expected(reader, word, "an option as name=value");
    int index = index_of(name, option_names, N_OPTIONS);
    if (index < 0)
        return unknown(reader, name, "the name of an option", option_names, N_OPTIONS);
    const struct option *option = &spec_options[index];
    if ((option->algorithms & IN(reader->quota.algorithm)) == 0)
        return err_set(reader->error, STINT_E_MISMATCH,
                       "column %u: expected an option of %s, found \"%s\", which it does not have",
                       column_of(reader, name), stint_algorithm_name(reader->quota.algorithm),
                       option_names[index]);
    if ((reader->options_seen & (1u << index)) != 0)
        return err_set(reader->error, STINT_E_MISMATCH,
                       "column %u: expected each option once, found \"%s\" again",
                       column_of(reader, name), option_names[index]);
    reader->options_seen |= 1u << index;
    return read_value(reader, option, value);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int read_calendar_period(struct reader *reader)
{
    assert(reader->is_calendar);
    static const char *const lengths[] = {"d", "w", "mo", "y"};
    struct span length = reader->period;
    if (length.len > 0 && length.ptr[0] == '1')
        length = span_of(length.ptr + 1, length.len - 1);
    int index = index_of(length, lengths, 4);
    if (index < 0)
        return expected(reader, reader->period, "1d, 1w, 1mo or 1y for a calendar window");
    reader->quota.align = (uint8_t)(STINT_ALIGN_DAY + index);
    return STINT_OK;
}

/* A number of months or years, as in "6mo" or "y". */
static bool is_calendar_length(struct span text)
{
    while (text.len > 0 && text_is_digit(text.ptr[0]))
        text = span_of(text.ptr + 1, text.len - 1);
    return text_is(text, "mo") || text_is(text, "y");
}

static int read_period(struct reader *reader)
{
    if (reader->quota.algorithm == STINT_CONCURRENCY)
        return STINT_OK;
    if (reader->is_calendar)
        return read_calendar_period(reader);
    if (is_calendar_length(reader->period))
        return err_set(reader->error, STINT_E_MISMATCH,
                       "column %u: expected a period of fixed length, found \"%s\": months and "
                       "years differ, and need fixed_window with align=calendar",
                       column_of(reader, reader->period), show(reader->period).text);
    return read_duration(reader, reader->period, &reader->quota.period_ns);
}

/* The words before the options: the algorithm, if given, and LIMIT/PERIOD. */
static int read_promise(struct reader *reader)
{
    struct span word = next_word(reader), limit;
    reader->quota.algorithm = STINT_WINDOW;
    if (word.len > 0 && (!text_is_digit(word.ptr[0]))) {
        int index = index_of(word, algorithm_names, N_ALGORITHMS);
        if (index < 0)
            return unknown(reader, word, "an algorithm or LIMIT/PERIOD such as 100/60s",
                           algorithm_names, N_ALGORITHMS);
        reader->quota.algorithm = algorithm_values[index];
        word = next_word(reader);
    }
    reader->amount = word;
    bool has_period = split(word, '/', &limit, &reader->period);
    bool is_concurrency = reader->quota.algorithm == STINT_CONCURRENCY;
    if (word.len == 0 || (!has_period && !is_concurrency))
        return expected(reader, word,
                        is_concurrency ? "LIMIT such as 10" : "LIMIT/PERIOD such as 100/60s");
    if (has_period && is_concurrency)
        return err_set(reader->error, STINT_E_MISMATCH,
                       "column %u: expected LIMIT alone, found \"%s\": concurrency has a lease and "
                       "no period",
                       column_of(reader, word), show(word).text);
    return read_units(reader, limit, 0, &reader->quota.limit);
}

static int parse(struct stint_quota *quota, struct span text, struct stint_error *error)
{
    assert(quota != NULL && text.ptr != NULL);
    struct reader reader = {.error = error, .begin = text.ptr, .rest = text};
    memset(&reader.quota, 0, sizeof(reader.quota)); /* including the padding */
    int code = read_promise(&reader);
    while (code == STINT_OK) {
        struct span word = next_word(&reader);
        if (word.len == 0)
            break;
        code = read_option(&reader, word);
    }
    if (code == STINT_OK)
        code = read_period(&reader);
    if (code != STINT_OK)
        return code;
    struct stint_error why;
    code = stint_quota_check(&reader.quota, &why);
    if (code != STINT_OK)
        return err_set(error, code, "column %u: %s", column_of(&reader, reader.amount),
                       why.message);
    assert(reader.quota.derived.checked);
    *quota = reader.quota;
    return STINT_OK;
}

/* Adds the SPEC that was meant to the message, if there is one that is valid. */
static void add_suggestion(struct span text, struct stint_error *error)
{
    char suggested[SUGGESTED_SIZE];
    struct stint_quota quota;
    struct buf buf = buf_of(suggested, sizeof(suggested));
    assert(error->code != STINT_OK);
    if (!suggest_spec(&buf, text) || buf.len >= sizeof(suggested) ||
        parse(&quota, span_of(suggested, buf.len), NULL) != STINT_OK)
        return;
    struct stint_error why = *error;
    err_set(error, why.code, "%s; did you mean \"%s\"?", why.message, suggested);
}

int stint_quota_parse(struct stint_quota *quota, const char *spec, struct stint_error *error)
{
    struct span text = text_span(spec);
    int code = parse(quota, text, error);
    if (code != STINT_OK && error != NULL)
        add_suggestion(text, error);
    return code;
}

static void format_options(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->derived.checked && quota->when_full <= STINT_FULL_ALLOW);
    if (quota->algorithm == STINT_GCRA && quota->burst != quota->limit)
        buf_add(buf, " burst=%u", (unsigned)quota->burst);
    if (quota->resolution > 0)
        buf_add(buf, " resolution=%u", (unsigned)quota->resolution);
    if (quota->time_slack_ns > 0) {
        buf_add(buf, " time_slack=");
        spec_format_duration(buf, quota->time_slack_ns);
    }
    if (quota->count_slack > 0)
        buf_add(buf, " count_slack=%u", (unsigned)quota->count_slack);
    if (quota->lease_ns > 0) {
        buf_add(buf, " lease=");
        spec_format_duration(buf, quota->lease_ns);
    }
    if (quota->initial_set)
        buf_add(buf, " initial=%u", (unsigned)quota->initial);
    if (quota->when_full != STINT_FULL_DEFAULT)
        buf_add(buf, " when_full=%s", when_full_names[quota->when_full - 1]);
    if (quota->count_denied)
        buf_add(buf, " count_denied=true");
}

void spec_format_offset(struct buf *buf, int32_t offset_s)
{
    assert(offset_s > -24 * 3600 && offset_s < 24 * 3600);
    int magnitude_s = offset_s < 0 ? -offset_s : offset_s;
    buf_add(buf, "%c%02d:%02d", offset_s < 0 ? '-' : '+', magnitude_s / 3600,
            magnitude_s / 60 % 60);
    if (magnitude_s % 60 > 0)
        buf_add(buf, ":%02d", magnitude_s % 60);
}

static void format_align(struct buf *buf, const struct stint_quota *quota)
{
    assert(quota->align <= STINT_ALIGN_YEAR);
    if (quota->align == STINT_ALIGN_FIRST_USE)
        buf_add(buf, " align=first_use");
    if (quota->align < STINT_ALIGN_DAY)
        return;
    buf_add(buf, " align=calendar");
    if (quota->utc_offset_s != 0) {
        buf_add(buf, " utc_offset=");
        spec_format_offset(buf, quota->utc_offset_s);
    }
}

size_t stint_quota_format(const struct stint_quota *quota, char *text, size_t text_size)
{
    assert(quota->derived.checked);
    static const char *const calendar_periods[] = {
        [STINT_ALIGN_DAY] = "1d",
        [STINT_ALIGN_WEEK] = "1w",
        [STINT_ALIGN_MONTH] = "1mo",
        [STINT_ALIGN_YEAR] = "1y",
    };
    struct buf buf = buf_of(text, text_size);
    buf_add(&buf, "%s", stint_algorithm_name(quota->algorithm));
    if (quota->algorithm == STINT_COUNTER)
        return buf.len;
    buf_add(&buf, " %u", (unsigned)quota->limit);
    if (quota->algorithm != STINT_CONCURRENCY) {
        buf_add(&buf, "/");
        if (quota->align >= STINT_ALIGN_DAY)
            buf_add(&buf, "%s", calendar_periods[quota->align]);
        else
            spec_format_duration(&buf, quota->period_ns);
    }
    format_align(&buf, quota);
    format_options(&buf, quota);
    return buf.len;
}
