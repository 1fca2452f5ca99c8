/* SPDX-License-Identifier: MIT */
/* Guesses at what was meant, for error messages. */
#include "algorithm/suggest.h"

#include "algorithm/text.h"

#include <assert.h>

/* ---- Names ----------------------------------------------------------------------------------- */

/* Edits are letters inserted, left out or replaced, and neighbours swapped. */
#define NEAREST_MAX 8
#define WORD_MAX 32 /* longer words are not compared: every known name is shorter */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t edits_between(struct span word, const char *name, size_t name_len)
{
    assert(word.len <= WORD_MAX && name_len <= WORD_MAX);
    /* Row i holds the edits from the word's first i letters to each beginning of the name. */
    size_t rows[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t j = 0; j <= name_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= word.len; i++) {
        rows[i][0] = i;
        for (size_t j = 1; j <= name_len; j++) {
            size_t replaced = rows[i - 1][j - 1] + (word.ptr[i - 1] != (uint8_t)name[j - 1]);
            size_t edits = least(replaced, least(rows[i - 1][j], rows[i][j - 1]) + 1);
            if (i > 1 && j > 1 && word.ptr[i - 1] == (uint8_t)name[j - 2] &&
                word.ptr[i - 2] == (uint8_t)name[j - 1])
                edits = least(edits, rows[i - 2][j - 2] + 1);
            rows[i][j] = edits;
        }
    }
    assert(rows[word.len][name_len] <= (word.len > name_len ? word.len : name_len));
    return rows[word.len][name_len];
}

int nearest_name(struct span word, const char *const *names, size_t n_names)
{
    int best = -1;
    size_t best_edits = word.len / 3 + 1; /* a third of the letters, and one more, may be wrong */
    if (word.len == 0 || word.len > WORD_MAX)
        return -1;
    for (size_t i = 0; i < n_names; i++) {
        size_t name_len = text_span(names[i]).len;
        if (name_len > WORD_MAX)
            continue;
        size_t edits = edits_between(word, names[i], name_len);
        if (edits < name_len && (edits < best_edits || (edits == best_edits && best < 0))) {
            best = (int)i;
            best_edits = edits;
        }
    }
    return best;
}

size_t nearest_names(struct span word, const char *const *names, size_t n_names,
                     const char **nearest, size_t max)
{
    size_t edits[NEAREST_MAX], n_nearest = 0;
    assert(max <= NEAREST_MAX);
    if (word.len > WORD_MAX)
        word.len = WORD_MAX;
    for (size_t i = 0; i < n_names; i++) {
        size_t name_len = least(text_span(names[i]).len, WORD_MAX);
        size_t own = edits_between(word, names[i], name_len), at = n_nearest;
        for (; at > 0 && edits[at - 1] > own; at--)
            if (at < max) {
                edits[at] = edits[at - 1];
                nearest[at] = nearest[at - 1];
            }
        if (at == max)
            continue;
        edits[at] = own;
        nearest[at] = names[i];
        n_nearest += n_nearest < max;
    }
    return n_nearest;
}

/* ---- Quotas and durations -------------------------------------------------------------------- */

/*
 * Read is LIMIT [NOUN] SEPARATOR [COUNT] UNIT, with blanks anywhere between. A word in it that is
 * not known, a unit such as kilobytes for one, gives no guess: it could mean another number.
 */

#define MISSPELT_MIN 5 /* letters: shorter words are too near to each other */

/* Names of units of time, and how a SPEC writes them. A name may have an `s` at its end. */
static const char *const unit_names[] = {
    "second", "sec",  "s",  "minute", "min", "m",           "hour",  "hr",
    "h",      "day",  "d",  "week",   "wk",  "w",           "month", "mon",
    "mo",     "year", "yr", "y",      "ms",  "millisecond", "msec",
};
static const char *const unit_texts[] = {
    "s", "s", "s",  "m",  "m",  "m", "h", "h", "h",  "d",  "d",  "w",
    "w", "w", "mo", "mo", "mo", "y", "y", "y", "ms", "ms", "ms",
};
#define N_UNITS (sizeof(unit_names) / sizeof(unit_names[0]))

/* What is counted, one of each. */
static const char *const nouns[] = {"r",    "req",  "reqs",  "request", "requests", "hit",
                                    "hits", "call", "calls", "unit",    "units"};
static const char *const separators[] = {"/", "per", "a", "an", "each", "every", "in"};

/* A count and its unit in one word. */
static const char *const rate_names[] = {"rps", "qps", "rpm", "rph", "rpd"};
static const char *const rate_texts[] = {"s", "s", "m", "h", "d"};

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 'a' - 'A') : c;
}

static bool is_letter(uint8_t c)
{
    return lower(c) >= 'a' && lower(c) <= 'z';
}

/* Cuts off what begins the text, after blanks, and is all of one kind; empty if nothing is. */
static struct span take(struct span *rest, bool (*is_kind)(uint8_t c))
{
    while (rest->len > 0 && text_is_blank(rest->ptr[0]))
        *rest = span_of(rest->ptr + 1, rest->len - 1);
    size_t len = 0;
    while (len < rest->len && is_kind(rest->ptr[len]))
        len++;
    struct span taken = span_of(rest->ptr, len);
    *rest = span_of(rest->ptr + len, rest->len - len);
    return taken;
}

/* Letters of either case are the same, but a single one must match: M may mean another unit. */
static int index_of(struct span word, const char *const *names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++) {
        struct span name = text_span(names[i]);
        size_t same = 0;
        while (same < word.len && same < name.len &&
               (word.len > 1 ? lower(word.ptr[same]) : word.ptr[same]) == name.ptr[same])
            same++;
        if (same == word.len && same == name.len && word.len > 0)
            return (int)i;
    }
    return -1;
}

#define INDEX_OF(word, names) index_of(word, names, sizeof(names) / sizeof((names)[0]))

/* As a SPEC writes it; NULL if it is none. */
static const char *unit_of(struct span word)
{
    int index = INDEX_OF(word, unit_names);
    if (index < 0 && word.len > 2 && lower(word.ptr[word.len - 1]) == 's')
        index = INDEX_OF(span_of(word.ptr, word.len - 1), unit_names);
    if (index < 0 && word.len >= MISSPELT_MIN)
        index = nearest_name(word, unit_names, N_UNITS);
    return index < 0 ? NULL : unit_texts[index];
}

/* COUNT UNIT, either of which may be missing: a count alone is in seconds. */
static bool read_period(struct span *rest, struct span *count, const char **unit)
{
    *count = take(rest, text_is_digit);
    struct span word = take(rest, is_letter);
    *unit = word.len > 0 ? unit_of(word) : "s";
    return *unit != NULL && (word.len > 0 || count->len > 0);
}

static bool skip_separator(struct span *rest)
{
    struct span before = *rest;
    struct span word = take(rest, is_letter);
    if (word.len == 0 && rest->len > 0 && rest->ptr[0] == '/') {
        *rest = span_of(rest->ptr + 1, rest->len - 1);
        return true;
    }
    if (INDEX_OF(word, separators) >= 0)
        return true;
    *rest = before;
    return false;
}

/* LIMIT and its period: "100 requests per 5 minutes", "5rps". */
static bool read_amount(struct span *rest, struct span *limit, struct span *count,
                        const char **unit)
{
    *limit = take(rest, text_is_digit);
    if (limit->len == 0)
        return false;
    struct span before = *rest;
    struct span word = take(rest, is_letter);
    int rate = INDEX_OF(word, rate_names);
    if (rate >= 0) {
        *count = span_of(rest->ptr, 0);
        *unit = rate_texts[rate];
        return true;
    }
    if (INDEX_OF(word, nouns) < 0)
        *rest = before;
    return skip_separator(rest) && read_period(rest, count, unit);
}

static bool is_word_byte(uint8_t c)
{
    return !text_is_blank(c);
}

/* Months and years differ in length: only the calendar has them. */
static bool is_of_calendar(const char *unit)
{
    return text_is(text_span(unit), "mo") || text_is(text_span(unit), "y");
}

static void add(struct buf *to, struct span text)
{
    buf_add(to, "%.*s", (int)text.len, (const char *)text.ptr);
}

bool suggest_spec(struct buf *to, struct span spec)
{
    struct span rest = spec, algorithm = span_of(spec.ptr, 0), limit, count;
    const char *unit;
    struct span first = take(&rest, is_word_byte);
    if (first.len > 0 && !text_is_digit(first.ptr[0]))
        algorithm = first;
    else
        rest = spec;
    if (!read_amount(&rest, &limit, &count, &unit) || (rest.len > 0 && !text_is_blank(rest.ptr[0])))
        return false;
    bool is_calendar = is_of_calendar(unit);
    if (is_calendar && algorithm.len == 0)
        algorithm = text_span("fixed_window");
    add(to, algorithm);
    buf_add(to, algorithm.len > 0 ? " " : "");
    add(to, limit);
    buf_add(to, "/");
    add(to, count.len > 0 ? count : text_span("1"));
    buf_add(to, "%s%s", unit, is_calendar ? " align=calendar" : "");
    for (struct span word; (word = take(&rest, is_word_byte)).len > 0;) {
        buf_add(to, " ");
        add(to, word);
    }
    return true;
}

bool suggest_duration(struct buf *to, struct span text)
{
    struct span rest = text, count;
    const char *unit;
    if (!read_period(&rest, &count, &unit) || take(&rest, is_word_byte).len > 0)
        return false;
    if (is_of_calendar(unit))
        return false;
    add(to, count.len > 0 ? count : text_span("1"));
    buf_add(to, "%s", unit);
    return true;
}
