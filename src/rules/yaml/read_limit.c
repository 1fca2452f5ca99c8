/* SPDX-License-Identifier: MIT */
/*
 * The keys of a limit: how much per how long, and by which algorithm; bans; where its states are
 * kept. A month and a year have no fixed length, and only fixed_window keeps such windows: it is
 * the algorithm where a file names none.
 */
#include "rules/yaml/read_limit.h"

#include "algorithm/spec.h"
#include "algorithm/text.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/wide_int.h"
#include "rules/ban.h"

#include <inttypes.h>
#include <stdio.h>

#define LEASE_TERM_MIN (10 * NS_PER_MS)
#define LEASE_TERM_MAX (10 * NS_PER_S)
#define LEASE_PARTS 20          /* of the period, in the default of lease_term */
#define LEASE_SHARE 100         /* of the limit, in the default of lease_units */
#define LOCAL_FOR_NS NS_PER_MIN /* the default of local_for */
#define NO_STORE "none"

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

struct limit_reader {
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
    if (!schema_text(reader->fields, LIMIT_ALGORITHM, &name))
        return;
    quota->algorithm = (uint8_t)spec_algorithm(name, &nearest);
    if (quota->algorithm == 0)
        schema_error(reader->fields, LIMIT_ALGORITHM,
                     "expected an algorithm such as window, gcra or fixed_window, found "
                     "\"%s\"%s%s%s",
                     quoted_text(name).text, nearest ? "; did you mean \"" : "",
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
        schema_error(fields, LIMIT_PERIOD,
                     "there is a unit already; a limit is per unit or per period");
    if (!has(reader, LIMIT_UNIT) && !has(reader, LIMIT_PERIOD))
        diagnostics_add(
            reader->fields->source, fields->map->position,
            "%s has no unit; expected unit: second, minute, hour, day, week, month or year, "
            "or period: DURATION",
            fields->shape->name);
    if (schema_choice(fields, LIMIT_UNIT, unit_names, N_UNITS, &choice)) {
        reader->unit = &units[choice];
        limit->unit = reader->unit->number;
        limit->quota.period_ns = reader->unit->ns;
    }
    if (schema_duration(fields, LIMIT_PERIOD, &limit->quota.period_ns))
        limit->unit = unit_of_length(limit->quota.period_ns);
}

static const char *const lease_words[] = {"strict", "fast"};

/* read_store() reads the other `lease`: a word, for units that are leased from a store. */
static bool has_lease_word(const struct limit_reader *reader)
{
    const struct yaml_value *value = schema_value(reader->fields, LIMIT_LEASE);
    return value != NULL && value->kind == YAML_TEXT &&
           (text_is(value->text, lease_words[0]) || text_is(value->text, lease_words[1]));
}

/* Slots that are held, and no units that come back by themselves. */
static void read_lease(struct limit_reader *reader)
{
    static const int lengths[] = {LIMIT_UNIT, LIMIT_PERIOD, LIMIT_CALENDAR};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        if (has(reader, lengths[i]))
            schema_error(reader->fields, lengths[i],
                         "concurrency is not per time; it has a lease: DURATION");
    if (!has(reader, LIMIT_LEASE))
        diagnostics_add(reader->fields->source, reader->fields->map->position,
                        "%s has no lease; concurrency needs one, such as lease: 30s",
                        reader->fields->shape->name);
    if (has_lease_word(reader))
        schema_error(
            reader->fields, LIMIT_LEASE,
            "slots of concurrency are not leased from a store; expected a duration such as 30s");
    else
        schema_duration(reader->fields, LIMIT_LEASE, &reader->limit->quota.lease_ns);
}

/* ---- Calendars ------------------------------------------------------------------------------- */

static void read_offset(struct limit_reader *reader)
{
    struct span text;
    if (schema_text(reader->fields, LIMIT_UTC_OFFSET, &text) &&
        spec_parse_offset(text, &reader->limit->quota.utc_offset_s) != STINT_OK)
        schema_error(reader->fields, LIMIT_UTC_OFFSET,
                     "expected an offset such as +01:00, -05:30 or Z, found \"%s\"",
                     quoted_text(text).text);
}

static void tell_other_algorithm(const struct limit_reader *reader, bool is_asked_for)
{
    const char *name = stint_algorithm_name(reader->limit->quota.algorithm);
    if (is_asked_for)
        schema_error(reader->fields, LIMIT_ALGORITHM,
                     "%s has no calendar windows; leave algorithm out, which means fixed_window",
                     name);
    else
        schema_error(reader->fields, LIMIT_ALGORITHM,
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
            schema_error(
                reader->fields, has(reader, LIMIT_CALENDAR) ? LIMIT_CALENDAR : LIMIT_UTC_OFFSET,
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
    bool is_said = schema_choice(reader->fields, LIMIT_CALENDAR, names, 2, &choice);
    bool is_fixed = is_said && choice == 0;
    read_offset(reader);
    bool is_asked_for = (is_said && !is_fixed) || has(reader, LIMIT_UTC_OFFSET);
    bool is_long = reader->unit != NULL && reader->unit->align >= STINT_ALIGN_MONTH;
    if (is_fixed && has(reader, LIMIT_UTC_OFFSET))
        schema_error(reader->fields, LIMIT_UTC_OFFSET,
                     "calendar: fixed has no time zone; leave out one of the two");
    else if (is_fixed && has(reader, LIMIT_PERIOD))
        schema_error(reader->fields, LIMIT_CALENDAR,
                     "a period is always fixed; expected a unit beside calendar");
    else if (!is_fixed && (is_asked_for || is_long))
        align(reader, is_asked_for);
}

/* ---- Options --------------------------------------------------------------------------------- */

static const struct option {
    int key;
    uint32_t algorithms; /* that have it */
    const char *home;
} limit_options[] = {

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
    for (size_t i = 0; i < sizeof(limit_options) / sizeof(limit_options[0]) && algorithm != 0; i++)
        if (has(reader, limit_options[i].key) &&
            (limit_options[i].algorithms & IN(algorithm)) == 0 &&
            (limit_options[i].key != LIMIT_LEASE || !may_lease))
            schema_error(reader->fields, limit_options[i].key, "it is an option of %s, not of %s%s",
                         limit_options[i].home, stint_algorithm_name(algorithm),
                         reader->names_algorithm ? "" : ", which is meant where none is named");
}

static void read_when_full(struct limit_reader *reader)
{
    const char *policies[STINT_FULL_ALLOW];
    size_t choice;
    for (uint8_t i = 0; i < STINT_FULL_ALLOW; i++)
        policies[i] = spec_when_full_name(STINT_FULL_INHERIT + i);
    if (schema_choice(reader->fields, LIMIT_WHEN_FULL, policies, STINT_FULL_ALLOW, &choice))
        reader->limit->quota.when_full = (uint8_t)(STINT_FULL_INHERIT + choice);
}

static void read_options(struct limit_reader *reader)
{
    struct stint_quota *quota = &reader->limit->quota;
    refuse_foreign_options(reader);
    schema_units(reader->fields, LIMIT_BURST, 1, &quota->burst);
    schema_number(reader->fields, LIMIT_RESOLUTION, 1, &quota->resolution);
    schema_duration(reader->fields, LIMIT_TIME_SLACK, &quota->time_slack_ns);
    schema_units(reader->fields, LIMIT_COUNT_SLACK, 1, &quota->count_slack);
    schema_flag(reader->fields, LIMIT_COUNT_DENIED, &quota->count_denied);
    read_when_full(reader);
}

/* ---- All keys of a limit --------------------------------------------------------------------- */

/* The key that a message of stint_quota_check() names, if the file has it. */
static int key_of(const struct limit_reader *reader, const char *message)
{
    for (int key = LIMIT_COUNT_DENIED; key >= LIMIT_PERIOD; key--)
        if (has(reader, key) && strstr(message, reader->fields->shape->keys[key]) != NULL)
            return key;
    return LIMIT_REQUESTS_PER_UNIT;
}

static void check(struct limit_reader *reader)
{
    struct stint_error error;
    if (stint_quota_check(&reader->limit->quota, &error) != STINT_OK)
        schema_error(reader->fields, key_of(reader, error.message), "%s", error.message);
}

/* The files of envoyproxy/ratelimit may omit the number; `shadow` is no key of theirs. */
static void tell_no_number(const struct limit_reader *reader)
{
    const struct fields *fields = reader->fields;
    if (fields->shape == &shape_limit)
        warnings_add(fields->source, fields->map->position,
                     "rate_limit has no requests_per_unit, which means 0: it denies always");
    else
        diagnostics_add(fields->source, fields->map->position,
                        "%s has no requests_per_unit; expected a whole number, 0 to deny always",
                        fields->shape->name);
}

bool read_limit(const struct fields *fields, uint8_t default_algorithm, struct limit *limit)
{
    struct limit_reader reader = {.fields = fields, .limit = limit};
    size_t diagnostics_before = diagnostics_count(fields->source->diagnostics);
    memset(limit, 0, sizeof(*limit)); /* also errors that concern several fields of the quota */
    read_algorithm(&reader, default_algorithm);
    if (!has(&reader, LIMIT_REQUESTS_PER_UNIT))
        tell_no_number(&reader);
    schema_units(fields, LIMIT_REQUESTS_PER_UNIT, 0, &limit->requests_per_unit);
    limit->quota.limit = limit->requests_per_unit;
    if (limit->quota.algorithm == STINT_CONCURRENCY && reader.names_algorithm) {
        read_lease(&reader);
    } else {
        read_length(&reader);
        read_calendar(&reader);
    }
    read_options(&reader);
    if (diagnostics_count(fields->source->diagnostics) == diagnostics_before)
        check(&reader);
    return diagnostics_count(fields->source->diagnostics) == diagnostics_before;
}

uint8_t read_hits(const struct fields *fields, const struct limit *limit)
{
    static const char *const names[] = {"take", "charge"};
    size_t choice;
    if (!schema_choice(fields, LIMIT_HITS, names, 2, &choice))
        return RULE_HITS_UNSAID;
    if (choice == 1 && limit->quota.algorithm == STINT_CONCURRENCY)
        schema_error(fields, LIMIT_HITS,
                     "slots of concurrency are taken and returned, and cannot be charged; leave "
                     "hits out, or use take");
    return choice == 0 ? RULE_HITS_TAKE : RULE_HITS_CHARGE;
}

void refuse_limit(const struct fields *fields)
{
    if (schema_value(fields, LIMIT_HITS) != NULL)
        schema_error(fields, LIMIT_HITS, "unlimited: true stands alone, without hits");
    for (int key = LIMIT_UNIT; key < LIMIT_NAME; key++)
        if (schema_value(fields, key) != NULL)
            schema_error(fields, key, "unlimited: true stands alone, without %s",
                         fields->shape->keys[key]);
}

/* ---- Bans, of keys that are denied again and again ------------------------------------------- */

static const struct rule_ban ban_defaults = {.factor = 1, .max_ns = NS_PER_YEAR};

static void need_ban_key(const struct fields *fields, int key, const char *example)
{
    if (schema_value(fields, key) == NULL)
        diagnostics_add(fields->source, fields->map->position, "ban has no %s; expected such as %s",
                        fields->shape->keys[key], example);
}

/* Errors that only the keys together show, reported where the ban begins. */
static void check_ban(const struct fields *fields, const struct rule_ban *ban)
{
    struct stint_error error;
    bool is_complete = ban->after > 0 && ban->for_ns > 0;
    if (is_complete && ban->for_ns > ban->max_ns)
        schema_error(fields, BAN_FOR,
                     "it is longer than the longest ban: max, 365 days by default");
    else if (is_complete && ban_check(ban, &error) != 0)
        diagnostics_add(fields->source, fields->map->position, "ban: %s", error.message);
}

void read_ban(const struct source *source, const struct yaml_value *value, struct rule_ban *ban)
{
    struct fields fields;
    *ban = ban_defaults;
    if (!schema_read(source, &shape_ban, value, &fields))
        return;
    need_ban_key(&fields, BAN_AFTER, "after: 5");
    need_ban_key(&fields, BAN_FOR, "for: 15m");
    schema_number(&fields, BAN_AFTER, 1, &ban->after);
    schema_number(&fields, BAN_FACTOR, 1, &ban->factor);
    schema_duration(&fields, BAN_FOR, &ban->for_ns);
    ban->within_ns = ban->for_ns;
    schema_duration(&fields, BAN_WITHIN, &ban->within_ns);
    schema_duration(&fields, BAN_MAX, &ban->max_ns);
    check_ban(&fields, ban);
}

/* ---- Which store ----------------------------------------------------------------------------- */

static void tell_unknown_store(const struct store_reading *reading, const struct fields *fields,
                               struct span name)
{
    const struct rules_load_options *options = reading->options;
    char known[128];
    struct buf list = buf_of(known, sizeof(known));
    for (size_t i = 0; i < options->n_stores; i++)
        buf_add(&list, "%s, ", options->stores[i]);
    schema_error(fields, LIMIT_STORE, "there is no store \"%s\"; expected %snone%s",
                 quoted_text(name).text, list.len < sizeof(known) ? known : "",
                 options->n_stores == 0 ? ": no store is known here" : "");
}

/* Its number among the known ones, from 1; 0: none of them has the name. */
static size_t number_of(const struct rules_load_options *options, struct span name)
{
    for (size_t i = 0; i < options->n_stores; i++)
        if (text_is(name, options->stores[i]))
            return i + 1;
    return 0;
}

static void read_which(const struct store_reading *reading, const struct fields *fields,
                       struct arena *texts, struct rule_store *store)
{
    const struct rules_load_options *options = reading->options;
    struct span name = {NULL, 0};
    size_t number = options->default_store;
    bool is_said = schema_text(fields, LIMIT_STORE, &name);
    if (is_said)
        number = number_of(options, name);
    store->at = (uint8_t)number;
    store->label = number > 0 ? reading->kept_stores[number - 1] : NULL;
    if (!is_said || number > 0 || text_is(name, NO_STORE))
        return;
    if (!options->any_store) {
        tell_unknown_store(reading, fields, name);
        return;
    }
    store->label = arena_text(texts, name);
    diagnostics_got(fields->source, store->label);
}

static bool says_none(const struct fields *fields)
{
    const struct yaml_value *name = schema_value(fields, LIMIT_STORE);
    return name != NULL && name->kind == YAML_TEXT && text_is(name->text, NO_STORE);
}

static void warn_of_no_store(const struct fields *fields, int key)
{
    warnings_add(fields->source, schema_position(fields, key),
                 "%s: has no meaning, since the limit is kept in no store",
                 fields->shape->keys[key]);
}

/* ---- While it is unavailable ----------------------------------------------------------------- */

static const char *const on_error_names[] = {
    [RULE_STORE_ERROR_DENY] = "deny",
    [RULE_STORE_ERROR_ALLOW] = "allow",
    [RULE_STORE_ERROR_LOCAL] = "local",
    [RULE_STORE_ERROR_ERROR] = "error",
};

/* While units that the store admitted still count, its share admits nothing. */
static void warn_of_nothing(const struct fields *fields, const struct rule *rule)
{
    char counts[64], lasts[64];
    struct buf counts_for = buf_of(counts, sizeof(counts)),
               lasts_for = buf_of(lasts, sizeof(lasts));
    const struct rule_store *store = &rule->store;
    if (rule->quota.limit == 0 || store->on_error != RULE_STORE_ERROR_LOCAL || store->local_empty ||
        store->local_for_ns > rule_full_locally_ns(&rule->quota, store) ||
        schema_value(fields, LIMIT_ON_STORE_ERROR) == NULL)
        return;
    spec_format_duration(&counts_for, rule_counts_for_ns(&rule->quota));
    spec_format_duration(&lasts_for, store->local_for_ns);
    warnings_add(fields->source, schema_position(fields, LIMIT_ON_STORE_ERROR),
                 "on_store_error: local will allow nothing: all units count as used for %s and 1 "
                 "%% more, and local_for is %s; set local_start: empty, or a longer local_for",
                 counts, lasts);
}

static void read_local(const struct fields *fields, struct rule *rule)
{
    static const char *const starts[] = {"full", "empty"};
    struct rule_store *store = &rule->store;
    static const int keys[] = {LIMIT_LOCAL_START, LIMIT_LOCAL_FOR, LIMIT_LOCAL_THEN};
    size_t choice;
    store->local_for_ns = LOCAL_FOR_NS;
    if (schema_choice(fields, LIMIT_LOCAL_START, starts, 2, &choice))
        store->local_empty = choice == 1;
    schema_duration(fields, LIMIT_LOCAL_FOR, &store->local_for_ns);
    if (schema_choice(fields, LIMIT_LOCAL_THEN, on_error_names, RULE_STORE_ERROR_LOCAL, &choice))
        store->local_then = (uint8_t)choice;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (schema_value(fields, keys[i]) != NULL && store->on_error != RULE_STORE_ERROR_LOCAL)
            warnings_add(fields->source, schema_position(fields, keys[i]),
                         "%s: has no meaning where on_store_error is %s",
                         fields->shape->keys[keys[i]], on_error_names[store->on_error]);
    warn_of_nothing(fields, rule);
}

/* ---- Leases ---------------------------------------------------------------------------------- */

static void need_lease(const struct fields *fields)
{
    static const int keys[] = {LIMIT_LEASE_UNITS, LIMIT_LEASE_TERM};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (schema_value(fields, keys[i]) != NULL)
            schema_error(fields, keys[i],
                         "expected lease: strict or lease: fast beside it, found neither");
}

static void read_lease_units(const struct fields *fields, struct rule *rule)
{
    uint32_t limit = rule->quota.limit;
    rule->store.lease_units = limit / LEASE_SHARE > 0 ? limit / LEASE_SHARE : 1;
    if (schema_units(fields, LIMIT_LEASE_UNITS, 1, &rule->store.lease_units) &&
        rule->store.lease_units > limit)
        schema_error(fields, LIMIT_LEASE_UNITS,
                     "expected at most what the limit has, %" PRIu32 ", found %" PRIu32, limit,
                     rule->store.lease_units);
}

static void read_lease_term(const struct fields *fields, struct rule *rule)
{
    uint64_t period_ns = rule->quota.period_ns;
    uint64_t *term_ns = &rule->store.lease_term_ns;
    *term_ns = min_u64(max_u64(period_ns / LEASE_PARTS, LEASE_TERM_MIN), LEASE_TERM_MAX);
    if (schema_duration(fields, LIMIT_LEASE_TERM, term_ns) &&
        (*term_ns < NS_PER_MS || *term_ns > max_u64(period_ns, LEASE_TERM_MIN)))
        schema_error(fields, LIMIT_LEASE_TERM,
                     "expected at least 1ms, and at most the period of the limit");
}

/* Leases need a store; without one, the key is an error. */
static void warn_of_table(const struct store_reading *reading, const struct fields *fields)
{
    const struct rules_load_options *options = reading->options;
    bool is_in_table = schema_value(fields, LIMIT_STORE) == NULL
                           ? options->default_store == 0 && !options->any_store
                           : says_none(fields);
    if (is_in_table)
        warn_of_no_store(fields, LIMIT_LEASE);
}

static void read_lease_words(const struct store_reading *reading, const struct fields *fields,
                             struct rule *rule)
{
    size_t choice;
    bool is_read =
        rule->quota.algorithm != 0; /* else its errors are reported, and these depend on it */
    if (schema_value(fields, LIMIT_LEASE) == NULL || rule->unlimited ||
        rule->quota.algorithm == STINT_CONCURRENCY) {
        need_lease(fields);
        return;
    }
    if (!is_read || !schema_choice(fields, LIMIT_LEASE, lease_words, 2, &choice))
        return;
    if (rule->quota.count_denied) {
        schema_error(fields, LIMIT_LEASE,
                     "requests that are denied cannot be counted where units are leased; expected "
                     "no count_denied beside it");
        return;
    }
    rule->store.lease = choice == 0 ? RULE_LEASE_STRICT : RULE_LEASE_FAST;
    read_lease_units(fields, rule);
    read_lease_term(fields, rule);
    warn_of_table(reading, fields);
}

/* ---- All keys of a store --------------------------------------------------------------------- */

void read_store(const struct store_reading *reading, const struct fields *fields,
                struct arena *texts, struct rule *rule)
{
    struct rule_store *store = &rule->store;
    size_t choice = reading->options->default_on_error;
    schema_choice(fields, LIMIT_ON_STORE_ERROR, on_error_names, 4, &choice);
    store->on_error = (uint8_t)choice;
    if (schema_value(fields, LIMIT_ON_STORE_ERROR) != NULL && says_none(fields))
        warn_of_no_store(fields, LIMIT_ON_STORE_ERROR);
    read_which(reading, fields, texts, store);
    read_local(fields, rule);
    read_lease_words(reading, fields, rule);
}
