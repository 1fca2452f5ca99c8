/* SPDX-License-Identifier: MIT */
/* Reads the text of a workload: which option belongs to which kind, and its values. */
#include "algorithm/spec.h"
#include "algorithm/suggest.h"
#include "base/ns.h"
#include "sim/workload/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 40
#define NUMBER_MAX 1e15

static const char *const workload_names[WORKLOAD_KINDS + 1] = {
    [WORKLOAD_POISSON] = "poisson",
    [WORKLOAD_ONOFF] = "onoff",
    [WORKLOAD_MMPP] = "mmpp",
    [WORKLOAD_DIURNAL] = "diurnal",
    [WORKLOAD_GREEDY] = "greedy",
    [WORKLOAD_HERD] = "herd",
    [WORKLOAD_CLOSED] = "closed",
    [WORKLOAD_EDGE] = "edge",
    [WORKLOAD_LATE_BUCKET] = "late_bucket",
    [WORKLOAD_SLOT_EDGE] = "slot_edge",
    [WORKLOAD_IDLE_BURST] = "idle_burst",
    [WORKLOAD_FLOOD] = "flood",
    [WORKLOAD_CLOCK_STEPS] = "clock_steps",
    [WORKLOAD_LOG] = "log",
};

#define IN(kind) (1u << (kind))
#define IN_MODULATED (IN(WORKLOAD_ONOFF) | IN(WORKLOAD_MMPP))
#define IN_RANDOM (IN(WORKLOAD_POISSON) | IN_MODULATED | IN(WORKLOAD_DIURNAL))
#define IN_CLIENTS (IN(WORKLOAD_CLOSED) | IN(WORKLOAD_GREEDY) | IN(WORKLOAD_HERD))
#define IN_RETRYING (IN_RANDOM | IN(WORKLOAD_CLOSED) | IN(WORKLOAD_HERD))

struct option {
    const char *name;
    uint32_t kinds;
    /* Reads the value into its field. */
    int (*read)(const struct option *option, struct span value, void *field,
                struct stint_error *error);
    size_t at; /* in struct workload_spec */
    double least, most;
};

/* ---- Words ---- */

struct shown {
    char text[SHOWN_MAX + 4];
};

/* A piece of the user's text that is safe to print: short, and without control characters. */
static struct shown show(struct span span)
{
    struct shown shown = {""};
    size_t len = span.len < SHOWN_MAX ? span.len : SHOWN_MAX;
    for (size_t i = 0; i < len; i++)
        shown.text[i] = span.ptr[i] >= ' ' && span.ptr[i] != 0x7f ? (char)span.ptr[i] : '?';
    if (span.len > SHOWN_MAX)
        memcpy(shown.text + len, "...", 4);
    return shown;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct span next_word(struct span *rest)
{
    while (rest->len > 0 && is_space(rest->ptr[0]))
        *rest = span_of(rest->ptr + 1, rest->len - 1);
    size_t len = 0;
    while (len < rest->len && !is_space(rest->ptr[len]))
        len++;
    struct span word = span_of(rest->ptr, len);
    *rest = span_of(rest->ptr + len, rest->len - len);
    return word;
}

/* Splits at the first `mark`; false without one. */
static bool split(struct span word, char mark, struct span *before, struct span *after)
{
    const uint8_t *at = word.len > 0 ? memchr(word.ptr, mark, word.len) : NULL;
    size_t len = at == NULL ? word.len : (size_t)(at - word.ptr);
    *before = span_of(word.ptr, len);
    *after = at == NULL ? span_of(word.ptr + len, 0) : span_of(at + 1, word.len - len - 1);
    return at != NULL;
}

/* Digits with a point among them; strtod() alone would also take "inf", "0x1p3" and " 1". */
static bool parse_real(struct span text, double *number)
{
    char copy[32];
    size_t digits = 0, points = 0;
    for (size_t i = 0; i < text.len; i++) {
        digits += text.ptr[i] >= '0' && text.ptr[i] <= '9';
        points += text.ptr[i] == '.';
    }
    if (digits == 0 || points > 1 || digits + points != text.len || text.len >= sizeof(copy))
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    *number = strtod(copy, NULL);
    return *number <= NUMBER_MAX;
}

/* ---- Values ---- */

static int wrong(struct stint_error *error, const char *name, const char *expected,
                 struct span value)
{
    return err_set(error, STINT_E_SYNTAX, "%s must be %s, not '%s'", name, expected,
                   show(value).text);
}

/* A number from `least` to `most`; `more` follows in the message. */
static int read_number(const struct option *option, struct span value, bool is_whole,
                       const char *more, double *number, struct stint_error *error)
{
    char expected[80];
    bool is_one = parse_real(value, number) && *number >= option->least && *number <= option->most;
    if (is_one && !(is_whole && memchr(value.ptr, '.', value.len) != NULL))
        return 0;
    snprintf(expected, sizeof(expected), "a %snumber from %.10g to %.10g%s",
             is_whole ? "whole " : "", option->least, option->most, more);
    return wrong(error, option->name, expected, value);
}

static int read_real(const struct option *option, struct span value, void *field,
                     struct stint_error *error)
{
    return read_number(option, value, false, "", field, error);
}

static int read_count(const struct option *option, struct span value, void *field,
                      struct stint_error *error)
{
    double number = 0;
    int code = read_number(option, value, true, "", &number, error);
    if (code == 0)
        *(uint32_t *)field = (uint32_t)number;
    return code;
}

/* NUMBERx */
static int read_scale(const struct option *option, struct span value, void *field,
                      struct stint_error *error)
{
    bool ends = value.len > 1 && value.ptr[value.len - 1] == 'x';
    return ends ? read_number(option, span_of(value.ptr, value.len - 1), false, " and x, as in 10x",
                              field, error)
                : wrong(error, option->name, "a number and x, as in 10x", value);
}

/* Above 0 */
static int read_duration(const struct option *option, struct span value, void *field,
                         struct stint_error *error)
{
    uint64_t *ns = field;
    if (spec_parse_duration(value, ns) == 0 && *ns > 0 && *ns <= STINT_NOW_MAX)
        return 0;
    return wrong(error, option->name, "a length of time above 0 such as 200ms or 1m30s", value);
}

/* NUMBER/DURATION */
static int read_rate(const struct option *option, struct span value, void *field,
                     struct stint_error *error)
{
    struct span number, period;
    double count;
    uint64_t ns;
    if (!split(value, '/', &number, &period) || !parse_real(number, &count) || !(count > 0) ||
        spec_parse_duration(period, &ns) != 0 || ns == 0)
        return wrong(error, option->name, "a number above 0 and a length of time, as in 120/1m",
                     value);
    *(double *)field = count * 1e9 / (double)ns;
    return 0;
}

static int read_retry(const struct option *option, struct span value, void *field,
                      struct stint_error *error)
{
    static const char *const names[] = {"none", "obey", "backoff", "ignore"};
    for (int i = 0; i < 4; i++)
        if (span_equals(value, names[i])) {
            *(enum workload_retry *)field = (enum workload_retry)i;
            return 0;
        }
    return wrong(error, option->name, "none, obey, backoff or ignore", value);
}

/* NUMBER, lognormal:MEDIAN:SIGMA, pareto:LEAST:EXPONENT or uniform:LEAST:MOST. */
static int read_costs(const struct option *option, struct span value, void *field,
                      struct stint_error *error)
{
    struct workload_spec *spec = field;
    static const struct {
        const char *name;
        enum workload_costs costs;
        double b_least, b_most;
    } shapes[] = {{"lognormal", WORKLOAD_LOGNORMAL, 0, 20},
                  {"pareto", WORKLOAD_PARETO, 0.05, 100},
                  {"uniform", WORKLOAD_UNIFORM, 1, UINT32_MAX}};
    struct span name, rest, a, b;
    spec->costs = WORKLOAD_CONSTANT;
    if (!split(value, ':', &name, &rest) && parse_real(value, &spec->cost_a))
        return read_number(option, value, true, "", &spec->cost_a, error);
    for (size_t i = 0; i < 3; i++) {
        if (!span_equals(name, shapes[i].name) || !split(rest, ':', &a, &b))
            continue;
        spec->costs = shapes[i].costs;
        bool fits = parse_real(a, &spec->cost_a) && parse_real(b, &spec->cost_b) &&
                    spec->cost_a >= 1 && spec->cost_a <= UINT32_MAX &&
                    spec->cost_b >= shapes[i].b_least && spec->cost_b <= shapes[i].b_most;
        if (fits && (spec->costs != WORKLOAD_UNIFORM || spec->cost_a <= spec->cost_b))
            return 0;
    }
    return wrong(error, option->name,
                 "a whole number from 1, lognormal:MEDIAN:SIGMA, pareto:LEAST:EXPONENT or "
                 "uniform:LEAST:MOST",
                 value);
}

/* `most` is the size of its field. */
static int read_text(const struct option *option, struct span value, void *text,
                     struct stint_error *error)
{
    if (value.len == 0)
        return wrong(error, option->name, "a name", value);
    if (value.len >= (size_t)option->most)
        return err_set(error, STINT_E_RANGE, "%s is longer than %d bytes", option->name,
                       (int)option->most - 1);
    memcpy(text, value.ptr, value.len);
    ((char *)text)[value.len] = '\0';
    return 0;
}

/* ---- The options ---- */

#define AT(field) offsetof(struct workload_spec, field)
#define SIZE(field) sizeof(((struct workload_spec *)NULL)->field)

static const struct option options[] = {
    {"rate", IN_RANDOM, read_rate, AT(rate), 0, 0},
    {"load", IN_RANDOM, read_real, AT(load), 1e-6, 1e6},
    {"keys", IN_RANDOM | IN_CLIENTS, read_count, AT(keys), 1, WORKLOAD_KEYS_MAX},
    {"zipf", IN_RANDOM, read_real, AT(zipf), 0, 10},
    {"churn", IN_RANDOM, read_duration, AT(churn_ns), 0, 0},
    {"cost", IN_RANDOM | IN_CLIENTS, read_costs, 0, 1, UINT32_MAX},
    {"cost_max", IN_RANDOM | IN_CLIENTS, read_count, AT(cost_max), 1, UINT32_MAX},
    {"on", IN_MODULATED, read_duration, AT(on_ns), 0, 0},
    {"off", IN_MODULATED, read_duration, AT(off_ns), 0, 0},
    {"alpha", IN(WORKLOAD_ONOFF), read_real, AT(alpha), 1.01, 100},
    {"ratio", IN(WORKLOAD_MMPP), read_real, AT(ratio), 1, 1e6},
    {"day", IN(WORKLOAD_DIURNAL), read_duration, AT(day_ns), 0, 0},
    {"depth", IN(WORKLOAD_DIURNAL), read_real, AT(depth), 0, 1},
    {"clients", IN_CLIENTS, read_count, AT(clients), 1, WORKLOAD_CLIENTS_MAX},
    {"every", IN(WORKLOAD_HERD), read_duration, AT(every_ns), 0, 0},
    {"jitter", IN(WORKLOAD_HERD), read_duration, AT(jitter_ns), 0, 0},
    {"think", IN(WORKLOAD_CLOSED), read_duration, AT(think_ns), 0, 0},
    {"retry", IN_RETRYING, read_retry, AT(retry), 0, 0},
    {"again", IN_RETRYING, read_duration, AT(again_ns), 0, 0},
    {"backoff", IN_RETRYING, read_duration, AT(backoff_ns), 0, 0},
    {"tries", IN_RETRYING, read_count, AT(tries), 1, 60000},
    {"step", IN(WORKLOAD_CLOCK_STEPS), read_duration, AT(step_ns), 0, 0},
    {"format", IN(WORKLOAD_LOG), read_text, AT(format), 0, SIZE(format)},
    {"key", IN(WORKLOAD_LOG), read_text, AT(key), 0, SIZE(key)},
    {"time", IN(WORKLOAD_LOG), read_text, AT(time), 0, SIZE(time)},
    {"cost", IN(WORKLOAD_LOG), read_text, AT(cost), 0, SIZE(cost)},
    {"scale", IN(WORKLOAD_LOG), read_scale, AT(scale), 1e-6, 1e9},
};
#define N_OPTIONS (sizeof(options) / sizeof(*options))

/* ---- All of it ---- */

static int unknown_option(enum workload_kind kind, struct span name, struct stint_error *error)
{
    const char *names[N_OPTIONS];
    size_t n_names = 0;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if ((options[i].kinds & IN(kind)) != 0)
            names[n_names++] = options[i].name;
    int nearest = nearest_name(name, names, n_names);
    if (nearest >= 0)
        return err_set(error, STINT_E_SYNTAX, "%s has no option '%s'; did you mean '%s'?",
                       workload_names[kind], show(name).text, names[nearest]);
    char list[160] = "";
    size_t len = 0;
    for (size_t i = 0; i < n_names && len < sizeof(list); i++)
        len +=
            (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", i > 0 ? ", " : "", names[i]);
    return err_set(error, STINT_E_SYNTAX, "%s has no option '%s'; it has %s", workload_names[kind],
                   show(name).text, n_names > 0 ? list : "none");
}

static int read_option(struct workload_spec *spec, struct span word, uint32_t *seen,
                       struct stint_error *error)
{
    struct span name, value;
    if (!split(word, '=', &name, &value))
        return err_set(error, STINT_E_SYNTAX, "expected an option as name=value, found '%s'",
                       show(word).text);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if ((options[i].kinds & IN(spec->kind)) == 0 || !span_equals(name, options[i].name))
            continue;
        if ((*seen & (1u << i)) != 0)
            return err_set(error, STINT_E_MISMATCH, "expected each option once, found '%s' again",
                           options[i].name);
        *seen |= 1u << i;
        return options[i].read(&options[i], value, (char *)spec + options[i].at, error);
    }
    return unknown_option(spec->kind, name, error);
}

static int read_kind(struct workload_spec *spec, struct span word, struct stint_error *error)
{
    struct span name, value;
    const struct option path = {"log", 0, read_text, 0, 0, SIZE(path)};
    bool has_value = split(word, '=', &name, &value);
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
        if (!span_equals(name, workload_names[kind]))
            continue;
        spec->kind = (enum workload_kind)kind;
        if (kind == WORKLOAD_LOG)
            return read_text(&path, value, spec->path, error);
        return has_value ? err_set(error, STINT_E_SYNTAX, "%s takes no value; only log=FILE does",
                                   workload_names[kind])
                         : 0;
    }
    int nearest = nearest_name(name, workload_names, WORKLOAD_KINDS);
    if (nearest >= 0)
        return err_set(error, STINT_E_SYNTAX, "there is no workload '%s'; did you mean '%s'?",
                       show(name).text, workload_names[nearest]);
    return err_set(error, STINT_E_SYNTAX,
                   "there is no workload '%s'; there are poisson, onoff, mmpp, diurnal, greedy, "
                   "herd, closed, edge, late_bucket, slot_edge, idle_burst, flood, clock_steps and "
                   "log=FILE",
                   show(name).text);
}

/* Defaults for what the text does not set; times that are 0 depend on the quota. */
static const struct workload_spec defaults = {
    .cost_a = 1,
    .cost_max = UINT32_MAX,
    .load = 1.2,
    .ratio = 10,
    .alpha = 1.5,
    .depth = 0.8,
    .scale = 1,
    .again_ns = 100 * NS_PER_MS,
    .backoff_ns = 100 * NS_PER_MS,
    .keys = 1,
};

int workload_parse(struct workload *workload, const char *text, struct stint_error *error)
{
    struct span rest = span_of_text(text), word = next_word(&rest);
    uint32_t seen = 0;
    memset(workload, 0, sizeof(*workload));
    struct workload_spec *spec = &workload->spec;
    *spec = defaults;
    if (word.len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected a workload, for example 'poisson load=2'");
    int code = read_kind(spec, word, error);
    if (code == 0 && (spec->kind == WORKLOAD_GREEDY || spec->kind == WORKLOAD_CLOSED ||
                      workload_is_adversary(spec->kind)))
        spec->retry = WORKLOAD_OBEY;
    while (code == 0 && (word = next_word(&rest)).len > 0)
        code = read_option(spec, word, &seen, error);
    bool has_rate = (seen & 1) != 0, has_load = (seen & 2) != 0;
    return code == 0 && has_rate && has_load
               ? err_set(error, STINT_E_MISMATCH, "rate and load both say how much is asked for")
               : code;
}
