/* SPDX-License-Identifier: MIT */
/* The keys of a limit that concern stores outside of this process. */
#include "rules/yaml/read_store.h"

#include "algorithm/spec.h"
#include "algorithm/text.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/wide_int.h"
#include "rules/arena.h"

#include <inttypes.h>
#include <stdio.h>

#define LEASE_TERM_MIN (10 * NS_PER_MS)
#define LEASE_TERM_MAX (10 * NS_PER_S)
#define LEASE_PARTS 20          /* of the period, in the default of lease_term */
#define LEASE_SHARE 100         /* of the limit, in the default of lease_units */
#define LOCAL_FOR_NS NS_PER_MIN /* the default of local_for */
#define NO_STORE "none"

static const char *const on_error_names[] = {
    [RULE_STORE_ERROR_DENY] = "deny",
    [RULE_STORE_ERROR_ALLOW] = "allow",
    [RULE_STORE_ERROR_LOCAL] = "local",
    [RULE_STORE_ERROR_ERROR] = "error",
};

/* ---- Which store ----------------------------------------------------------------------------- */

static void tell_unknown_store(const struct store_reading *reading, const struct fields *fields,
                               struct span name)
{
    const struct rules_load_options *options = reading->options;
    char known[128];
    struct buf list = buf_of(known, sizeof(known));
    for (size_t i = 0; i < options->n_stores; i++)
        buf_add(&list, "%s, ", options->stores[i]);
    schema_fault(reading->source, fields, LIMIT_STORE,
                 "there is no store \"%s\"; expected %snone%s", fault_text(name).text,
                 list.len < sizeof(known) ? known : "",
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

static bool read_which(const struct store_reading *reading, const struct fields *fields,
                       struct arena *texts, struct rule_store *store)
{
    const struct rules_load_options *options = reading->options;
    struct span name = {NULL, 0};
    size_t number = options->default_store;
    bool is_said = schema_text(reading->source, fields, LIMIT_STORE, &name);
    if (is_said)
        number = number_of(options, name);
    store->at = (uint8_t)number;
    store->label = number > 0 ? reading->kept_stores[number - 1] : NULL;
    if (!is_said || number > 0 || text_is(name, NO_STORE))
        return true;
    if (!options->any_store) {
        tell_unknown_store(reading, fields, name);
        return true;
    }
    store->label = arena_text(texts, name);
    return store->label != NULL;
}

static bool says_none(const struct fields *fields)
{
    const struct yaml_value *name = schema_value(fields, LIMIT_STORE);
    return name != NULL && name->kind == YAML_TEXT && text_is(name->text, NO_STORE);
}

static void warn_of_no_store(const struct source *source, const struct fields *fields, int key)
{
    warnings_add(source->diagnostics, source->path, schema_place(fields, key),
                 "%s: has no meaning, since the limit is kept in no store",
                 fields->shape->keys[key]);
}

/* ---- While it is unavailable ----------------------------------------------------------------- */

/* While units that the store admitted still count, its share admits nothing. */
static void warn_of_nothing(const struct source *source, const struct fields *fields,
                            const struct rule *rule)
{
    char counts[64], lasts[64];
    struct buf counts_for = buf_of(counts, sizeof(counts)),
               lasts_for = buf_of(lasts, sizeof(lasts));
    const struct rule_store *store = &rule->store;
    if (rule->quota.limit == 0 || store->on_error != RULE_STORE_ERROR_LOCAL || store->local_empty ||
        store->local_for_ns > rule_counts_for_ns(&rule->quota) ||
        schema_value(fields, LIMIT_ON_STORE_ERROR) == NULL)
        return;
    spec_format_duration(&counts_for, rule_counts_for_ns(&rule->quota));
    spec_format_duration(&lasts_for, store->local_for_ns);
    warnings_add(source->diagnostics, source->path, schema_place(fields, LIMIT_ON_STORE_ERROR),
                 "on_store_error: local will allow nothing: all units count as used for %s, and "
                 "local_for is %s; set local_start: empty, or a longer local_for",
                 counts, lasts);
}

static void read_local(const struct store_reading *reading, const struct fields *fields,
                       struct rule *rule)
{
    static const char *const starts[] = {"full", "empty"};
    struct rule_store *store = &rule->store;
    static const int keys[] = {LIMIT_LOCAL_START, LIMIT_LOCAL_FOR, LIMIT_LOCAL_THEN};
    const struct source *source = reading->source;
    size_t choice;
    store->local_for_ns = LOCAL_FOR_NS;
    if (schema_choice(source, fields, LIMIT_LOCAL_START, starts, 2, &choice))
        store->local_empty = choice == 1;
    schema_duration(source, fields, LIMIT_LOCAL_FOR, &store->local_for_ns);
    if (schema_choice(source, fields, LIMIT_LOCAL_THEN, on_error_names, RULE_STORE_ERROR_LOCAL,
                      &choice))
        store->local_then = (uint8_t)choice;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (schema_value(fields, keys[i]) != NULL && store->on_error != RULE_STORE_ERROR_LOCAL)
            warnings_add(source->diagnostics, source->path, schema_place(fields, keys[i]),
                         "%s: has no meaning where on_store_error is %s",
                         fields->shape->keys[keys[i]], on_error_names[store->on_error]);
    warn_of_nothing(source, fields, rule);
}

/* ---- Leases ---------------------------------------------------------------------------------- */

static void need_lease(const struct source *source, const struct fields *fields)
{
    static const int keys[] = {LIMIT_LEASE_UNITS, LIMIT_LEASE_TERM};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (schema_value(fields, keys[i]) != NULL)
            schema_fault(source, fields, keys[i],
                         "expected lease: strict or lease: fast beside it, found neither");
}

static void read_lease_units(const struct source *source, const struct fields *fields,
                             struct rule *rule)
{
    uint32_t limit = rule->quota.limit;
    rule->store.lease_units = limit / LEASE_SHARE > 0 ? limit / LEASE_SHARE : 1;
    if (schema_units(source, fields, LIMIT_LEASE_UNITS, 1, &rule->store.lease_units) &&
        rule->store.lease_units > limit)
        schema_fault(source, fields, LIMIT_LEASE_UNITS,
                     "expected at most what the limit has, %" PRIu32 ", found %" PRIu32, limit,
                     rule->store.lease_units);
}

static void read_lease_term(const struct source *source, const struct fields *fields,
                            struct rule *rule)
{
    uint64_t period_ns = rule->quota.period_ns;
    uint64_t *term_ns = &rule->store.lease_term_ns;
    *term_ns = min_u64(max_u64(period_ns / LEASE_PARTS, LEASE_TERM_MIN), LEASE_TERM_MAX);
    if (schema_duration(source, fields, LIMIT_LEASE_TERM, term_ns) &&
        (*term_ns < NS_PER_MS || *term_ns > max_u64(period_ns, LEASE_TERM_MIN)))
        schema_fault(source, fields, LIMIT_LEASE_TERM,
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
        warn_of_no_store(reading->source, fields, LIMIT_LEASE);
}

static void read_lease_words(const struct store_reading *reading, const struct fields *fields,
                             struct rule *rule)
{
    static const char *const words[] = {"strict", "fast"};
    size_t choice;
    bool is_read =
        rule->quota.algorithm != 0; /* else its errors are reported, and these depend on it */
    if (schema_value(fields, LIMIT_LEASE) == NULL || rule->unlimited ||
        rule->quota.algorithm == STINT_CONCURRENCY) {
        need_lease(reading->source, fields);
        return;
    }
    if (!is_read || !schema_choice(reading->source, fields, LIMIT_LEASE, words, 2, &choice))
        return;
    if (rule->quota.count_denied) {
        schema_fault(reading->source, fields, LIMIT_LEASE,
                     "requests that are denied cannot be counted where units are leased; expected "
                     "no count_denied beside it");
        return;
    }
    rule->store.lease = choice == 0 ? RULE_LEASE_STRICT : RULE_LEASE_FAST;
    read_lease_units(reading->source, fields, rule);
    read_lease_term(reading->source, fields, rule);
    warn_of_table(reading, fields);
}

/* ---- The whole ------------------------------------------------------------------------------- */

bool read_store(const struct store_reading *reading, const struct fields *fields,
                struct arena *texts, struct rule *rule)
{
    struct rule_store *store = &rule->store;
    size_t choice = reading->options->default_on_error;
    schema_choice(reading->source, fields, LIMIT_ON_STORE_ERROR, on_error_names, 4, &choice);
    store->on_error = (uint8_t)choice;
    if (schema_value(fields, LIMIT_ON_STORE_ERROR) != NULL && says_none(fields))
        warn_of_no_store(reading->source, fields, LIMIT_ON_STORE_ERROR);
    bool has_memory = read_which(reading, fields, texts, store);
    read_local(reading, fields, rule);
    read_lease_words(reading, fields, rule);
    return has_memory;
}

bool read_store_tag(const struct source *source, const struct fields *fields, uint8_t *tag)
{
    static const char *const names[] = {
        [RULE_TAG_VALUES] = "values", [RULE_TAG_FIRST] = "first", [RULE_TAG_DOMAIN] = "domain"};
    size_t choice;
    if (!schema_choice(source, fields, FILE_STORE_TAG, names, 3, &choice))
        return false;
    *tag = (uint8_t)choice;
    return true;
}

/* ---- Names ----------------------------------------------------------------------------------- */

#define CUT_LEN (RULE_STORE_NAME_MAX - 35) /* "@@@" and 32 digits fit after it */

/* Those that script_key() leaves as they are, except for the three separators. */
static bool is_plain(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~+,*", c) != NULL);
}

static void add_char(struct store_name *name, uint8_t c)
{
    static const char hexadecimal[] = "0123456789ABCDEF";
    if (name->len > RULE_STORE_NAME_MAX)
        return;
    if (is_plain(c)) {
        name->text[name->len++] = (char)c;
    } else {
        name->text[name->len++] = '%';
        name->text[name->len++] = hexadecimal[c >> 4];
        name->text[name->len++] = hexadecimal[c & 15];
    }
}

void store_name_add(struct store_name *name, const char *separator, struct span text)
{
    for (; *separator != '\0'; separator++)
        if (name->len <= RULE_STORE_NAME_MAX)
            name->text[name->len++] = *separator;
    for (size_t i = 0; i < text.len; i++)
        add_char(name, text.ptr[i]);
}

/* A name that ended in the middle of %XX would be unreadable. */
void store_name_end(struct store_name *name, struct hash128 hash)
{
    if (name->len > RULE_STORE_NAME_MAX) {
        size_t len = CUT_LEN;
        for (size_t back = 1; back <= 2; back++)
            if (name->text[CUT_LEN - back] == '%')
                len = CUT_LEN - back;
        struct buf end = buf_of(name->text + len, sizeof(name->text) - len);
        buf_add(&end, "@@@%016" PRIx64 "%016" PRIx64, hash.lo, hash.hi);
        name->len = len + end.len;
    }
    name->text[name->len] = '\0';
}
