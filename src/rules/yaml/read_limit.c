/* SPDX-License-Identifier: MIT */
/*
 * How much per how long, and by which algorithm. A month and a year have no fixed length, and only
 * fixed_window keeps such windows: it is the algorithm where a file names none.
 */
#include "rules/yaml/read_limit.h"

#include "algorithm/spec.h"
#include "algorithm/text.h"
#include "base/limits.h"

#define IN(algorithm) (1u << (algorithm))

static const char *const unit_names[] = {"second", "minute", "hour", "day",
                                         "week",   "month",  "year"};
#define N_UNITS (sizeof(unit_names) / sizeof(unit_names[0]))

static const struct unit {
    uint8_t number; /* enum rule_unit */
    uint8_t align;  /* as a calendar window; 0: not one */
    uint64_t ns;    /* as a fixed length */
} units[N_UNITS] = {
    {RULE_SECOND, 0, NS_PER_S},
    {RULE_MINUTE, 0, NS_PER_MIN},
    {RULE_HOUR, 0, NS_PER_HOUR},
    {RULE_DAY, STINT_ALIGN_DAY, NS_PER_DAY},
    {RULE_WEEK, STINT_ALIGN_WEEK, NS_PER_WEEK},
    {RULE_MONTH, STINT_ALIGN_MONTH, 30 * NS_PER_DAY},
    {RULE_YEAR, STINT_ALIGN_YEAR, NS_PER_YEAR},
};

enum calendar { CALENDAR_UNSAID, CALENDAR_FIXED, CALENDAR_UTC };

struct limit_reader {
    const struct source *source;
    const struct fields *fields;
    struct limit *limit;
    const struct unit *unit; /* NULL: a period, or none of both */
    bool names_algorithm;
};

static bool has(const struct limit_reader *reader, int key)
{
    return schema_value(reader->fields, key) != NULL;
}

static void read_algorithm(struct limit_reader *reader, uint8_t default_algorithm)
{
    struct stint_quota *quota = &reader->limit->quota;
    struct span name;
    const char *nearest;
    quota->algorithm = default_algorithm != 0 ? default_algorithm : STINT_WINDOW;
    reader->names_algorithm = has(reader, LIMIT_ALGORITHM);
    if (!schema_text(reader->source, reader->fields, LIMIT_ALGORITHM, &name))
        return;
    quota->algorithm = (uint8_t)spec_algorithm(name, &nearest);
    if (quota->algorithm == 0)
        schema_fault(reader->source, reader->fields, LIMIT_ALGORITHM,
                     "expected an algorithm such as window, gcra or fixed_window, found "
                     "\"%s\"%s%s%s",
                     fault_text(name).text, nearest ? "; did you mean \"" : "",
                     nearest ? nearest : "", nearest ? "\"?" : "");
}

/* ---- How long -------------------------------------------------------------------------------- */

static uint8_t unit_of_length(uint64_t ns)
{
    for (size_t i = 0; i < N_UNITS; i++)
        if (units[i].ns == ns && units[i].align < STINT_ALIGN_MONTH)
            return units[i].number;
    return RULE_UNIT_NONE;
}

static void read_length(struct limit_reader *reader)
{
    const struct fields *fields = reader->fields;
    struct limit *limit = reader->limit;
    size_t choice;
    if (has(reader, LIMIT_UNIT) && has(reader, LIMIT_PERIOD))
        schema_fault(reader->source, fields, LIMIT_PERIOD,
                     "there is a unit already; a limit is per unit or per period");
    if (!has(reader, LIMIT_UNIT) && !has(reader, LIMIT_PERIOD))
        diagnostics_add(
            reader->source->diagnostics, reader->source->path, fields->map->place,
            "%s has no unit; expected unit: second, minute, hour, day, week, month or year, "
            "or period: DURATION",
            fields->shape->name);
    if (schema_choice(reader->source, fields, LIMIT_UNIT, unit_names, N_UNITS, &choice)) {
        reader->unit = &units[choice];
        limit->unit = reader->unit->number;
        limit->quota.period_ns = reader->unit->ns;
    }
    if (schema_duration(reader->source, fields, LIMIT_PERIOD, &limit->quota.period_ns))
        limit->unit = unit_of_length(limit->quota.period_ns);
}

/* read_store.c reads the other `lease`: a word, for units that are leased from a store. */
static bool has_lease_word(const struct limit_reader *reader)
{
    static const char *const words[] = {"strict", "fast"};
    const struct yaml_value *value = schema_value(reader->fields, LIMIT_LEASE);
    for (size_t i = 0; value != NULL && value->kind == YAML_TEXT && i < 2; i++)
        if (text_is(value->text, words[i]))
            return true;
    return false;
}

/* Slots that are held, and no units that come back by themselves. */
static void read_lease(struct limit_reader *reader)
{
    static const int lengths[] = {LIMIT_UNIT, LIMIT_PERIOD, LIMIT_CALENDAR};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        if (has(reader, lengths[i]))
            schema_fault(reader->source, reader->fields, lengths[i],
                         "concurrency is not per time; it has a lease: DURATION");
    if (!has(reader, LIMIT_LEASE))
        diagnostics_add(reader->source->diagnostics, reader->source->path,
                        reader->fields->map->place,
                        "%s has no lease; concurrency needs one, such as lease: 30s",
                        reader->fields->shape->name);
    if (has_lease_word(reader))
        schema_fault(
            reader->source, reader->fields, LIMIT_LEASE,
            "slots of concurrency are not leased from a store; expected a duration such as 30s");
    else
        schema_duration(reader->source, reader->fields, LIMIT_LEASE,
                        &reader->limit->quota.lease_ns);
}

/* ---- Calendars ------------------------------------------------------------------------------- */

static void read_offset(struct limit_reader *reader)
{
    struct span text;
    if (schema_text(reader->source, reader->fields, LIMIT_UTC_OFFSET, &text) &&
        spec_parse_offset(text, &reader->limit->quota.utc_offset_s) != STINT_OK)
        schema_fault(reader->source, reader->fields, LIMIT_UTC_OFFSET,
                     "expected an offset such as +01:00, -05:30 or Z, found \"%s\"",
                     fault_text(text).text);
}

static void tell_other_algorithm(const struct limit_reader *reader, bool is_asked_for)
{
    const char *name = stint_algorithm_name(reader->limit->quota.algorithm);
    if (is_asked_for)
        schema_fault(reader->source, reader->fields, LIMIT_ALGORITHM,
                     "%s has no calendar windows; leave algorithm out, which means fixed_window",
                     name);
    else
        schema_fault(reader->source, reader->fields, LIMIT_ALGORITHM,
                     "%s has no calendar %ss; leave algorithm out, which means fixed_window, or "
                     "use calendar: fixed, which means %s days",
                     name, reader->unit->number == RULE_MONTH ? "month" : "year",
                     reader->unit->number == RULE_MONTH ? "30" : "365");
}

static void align(struct limit_reader *reader, bool is_asked_for)
{
    struct stint_quota *quota = &reader->limit->quota;
    if (reader->unit == NULL || reader->unit->align == 0) {
        if (is_asked_for)
            schema_fault(
                reader->source, reader->fields,
                has(reader, LIMIT_CALENDAR) ? LIMIT_CALENDAR : LIMIT_UTC_OFFSET,
                "a calendar window is of a day, week, month or year; expected such a unit");
        return;
    }
    if (reader->names_algorithm && quota->algorithm != STINT_FIXED_WINDOW) {
        if (quota->algorithm != 0)
            tell_other_algorithm(reader, is_asked_for);
        return;
    }
    quota->algorithm = STINT_FIXED_WINDOW;
    quota->align = reader->unit->align;
    quota->period_ns = 0; /* the calendar's own */
}

static void read_calendar(struct limit_reader *reader)
{
    static const char *const names[] = {"fixed", "utc"};
    size_t choice;
    enum calendar calendar = CALENDAR_UNSAID;
    if (schema_choice(reader->source, reader->fields, LIMIT_CALENDAR, names, 2, &choice))
        calendar = choice == 0 ? CALENDAR_FIXED : CALENDAR_UTC;
    read_offset(reader);
    bool is_asked_for = calendar == CALENDAR_UTC || has(reader, LIMIT_UTC_OFFSET);
    bool is_long = reader->unit != NULL && reader->unit->align >= STINT_ALIGN_MONTH;
    if (calendar == CALENDAR_FIXED && has(reader, LIMIT_UTC_OFFSET))
        schema_fault(reader->source, reader->fields, LIMIT_UTC_OFFSET,
                     "calendar: fixed has no time zone; leave out one of the two");
    else if (calendar == CALENDAR_FIXED && has(reader, LIMIT_PERIOD))
        schema_fault(reader->source, reader->fields, LIMIT_CALENDAR,
                     "a period is always fixed; expected a unit beside calendar");
    else if (calendar != CALENDAR_FIXED && (is_asked_for || is_long))
        align(reader, is_asked_for);
}

/* ---- Options --------------------------------------------------------------------------------- */

static const struct option {
    int key;
    uint32_t algorithms; /* that have it */
    const char *home;
} options[] = {
    {LIMIT_BURST, IN(STINT_GCRA), "gcra"},
    {LIMIT_RESOLUTION, IN(STINT_WINDOW), "window"},
    {LIMIT_TIME_SLACK, IN(STINT_BUCKETS), "buckets"},
    {LIMIT_COUNT_SLACK, IN(STINT_BUCKETS), "buckets"},
    {LIMIT_LEASE, IN(STINT_CONCURRENCY), "concurrency"},
    {LIMIT_COUNT_DENIED, IN(STINT_GCRA) | IN(STINT_FIXED_WINDOW) | IN(STINT_SLIDING_COUNTER),
     "gcra, fixed_window and sliding_counter"},
};

/* stint_quota_check() would find these too, but without their position. */
static void refuse_foreign_options(const struct limit_reader *reader)
{
    uint8_t algorithm = reader->limit->quota.algorithm;
    bool may_lease = reader->fields->shape == &shape_limit;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]) && algorithm != 0; i++)
        if (has(reader, options[i].key) && (options[i].algorithms & IN(algorithm)) == 0 &&
            (options[i].key != LIMIT_LEASE || !may_lease))
            schema_fault(reader->source, reader->fields, options[i].key,
                         "it is an option of %s, not of %s%s", options[i].home,
                         stint_algorithm_name(algorithm),
                         reader->names_algorithm ? "" : ", which is meant where none is named");
}

static void read_when_full(struct limit_reader *reader)
{
    const char *policies[STINT_FULL_ALLOW];
    size_t choice;
    for (uint8_t i = 0; i < STINT_FULL_ALLOW; i++)
        policies[i] = spec_when_full_name(STINT_FULL_INHERIT + i);
    if (schema_choice(reader->source, reader->fields, LIMIT_WHEN_FULL, policies, STINT_FULL_ALLOW,
                      &choice))
        reader->limit->quota.when_full = (uint8_t)(STINT_FULL_INHERIT + choice);
}

static void read_options(struct limit_reader *reader)
{
    struct stint_quota *quota = &reader->limit->quota;
    refuse_foreign_options(reader);
    schema_units(reader->source, reader->fields, LIMIT_BURST, 1, &quota->burst);
    schema_number(reader->source, reader->fields, LIMIT_RESOLUTION, 1, &quota->resolution);
    schema_duration(reader->source, reader->fields, LIMIT_TIME_SLACK, &quota->time_slack_ns);
    schema_units(reader->source, reader->fields, LIMIT_COUNT_SLACK, 1, &quota->count_slack);
    schema_flag(reader->source, reader->fields, LIMIT_COUNT_DENIED, &quota->count_denied);
    read_when_full(reader);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void check(struct limit_reader *reader)
{
    struct stint_error error;
    if (stint_quota_check(&reader->limit->quota, &error) != STINT_OK)
        schema_fault(reader->source, reader->fields, LIMIT_REQUESTS_PER_UNIT, "%s", error.message);
}

/* The files of envoyproxy/ratelimit may omit the number; `shadow` is no key of theirs. */
static void tell_no_number(const struct limit_reader *reader)
{
    const struct source *source = reader->source;
    const struct fields *fields = reader->fields;
    if (fields->shape == &shape_limit)
        warnings_add(source->diagnostics, source->path, fields->map->place,
                     "rate_limit has no requests_per_unit, which means 0: it denies always");
    else
        diagnostics_add(source->diagnostics, source->path, fields->map->place,
                        "%s has no requests_per_unit; expected a whole number, 0 to deny always",
                        fields->shape->name);
}

bool read_limit(const struct source *source, const struct fields *fields, uint8_t default_algorithm,
                struct limit *limit)
{
    struct limit_reader reader = {.source = source, .fields = fields, .limit = limit};
    size_t diagnostics_before = diagnostics_count(source->diagnostics);
    memset(limit, 0, sizeof(*limit)); /* also errors that concern several fields of the quota */
    read_algorithm(&reader, default_algorithm);
    if (!has(&reader, LIMIT_REQUESTS_PER_UNIT))
        tell_no_number(&reader);
    schema_units(source, fields, LIMIT_REQUESTS_PER_UNIT, 0, &limit->requests_per_unit);
    limit->quota.limit = limit->requests_per_unit;
    if (limit->quota.algorithm == STINT_CONCURRENCY && reader.names_algorithm) {
        read_lease(&reader);
    } else {
        read_length(&reader);
        read_calendar(&reader);
    }
    read_options(&reader);
    if (diagnostics_count(source->diagnostics) == diagnostics_before)
        check(&reader);
    return diagnostics_count(source->diagnostics) == diagnostics_before;
}

uint8_t read_hits(const struct source *source, const struct fields *fields,
                  const struct limit *limit)
{
    static const char *const names[] = {"take", "charge"};
    size_t choice;
    if (!schema_choice(source, fields, LIMIT_HITS, names, 2, &choice))
        return RULE_HITS_UNSAID;
    if (choice == 1 && limit->quota.algorithm == STINT_CONCURRENCY)
        schema_fault(source, fields, LIMIT_HITS,
                     "slots of concurrency are taken and returned, and cannot be charged; leave "
                     "hits out, or use take");
    return choice == 0 ? RULE_HITS_TAKE : RULE_HITS_CHARGE;
}

void refuse_limit(const struct source *source, const struct fields *fields)
{
    if (schema_value(fields, LIMIT_HITS) != NULL)
        schema_fault(source, fields, LIMIT_HITS, "unlimited: true stands alone, without hits");
    for (int key = LIMIT_UNIT; key < LIMIT_NAME; key++)
        if (schema_value(fields, key) != NULL)
            schema_fault(source, fields, key, "unlimited: true stands alone, without %s",
                         fields->shape->keys[key]);
}
