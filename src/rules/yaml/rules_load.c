/* SPDX-License-Identifier: MIT */
/* Reads files one by one into one set of rules, which is returned only if there are no errors. */
#include "rules/yaml/rules_load.h"

#include "rules/yaml/read_entries.h"
#include "rules/yaml/read_store.h"

#include <assert.h>
#include <stdlib.h>

/* The same files hash alike wherever they are read; no text can choose its own hash. */
static void choose_secret(const struct rules_file *files, size_t n_files, uint64_t secret[2])
{
    secret[0] = secret[1] = 0;
    for (size_t i = 0; i < n_files; i++) {
        struct hash128 hash = siphash13_128(secret, i, files[i].text.ptr, files[i].text.len);
        secret[0] = hash.lo;
        secret[1] = hash.hi;
    }
}

/* Grows the data for the domain that was added last. */
static bool add_tag(struct reading *reading)
{
    struct domain_tag *tags = realloc(reading->tags, reading->rules->domains_max * sizeof(*tags));
    if (tags == NULL)
        return false;
    reading->tags = tags;
    reading->tags[reading->n_tags++] = (struct domain_tag){.is_said = false};
    return true;
}

static uint32_t add_domain(struct reading *reading, struct span name, uint32_t line)
{
    const struct place_name place_name = {TRIE_NONE, TRIE_DOMAIN, name};
    uint32_t number = trie_add(&reading->rules->places, &place_name);
    reading->domain = arena_text(&reading->rules->texts, name);
    if (number != TRIE_NONE && reading->domain != NULL && note_origin(reading, number, line) &&
        rules_add_domain(reading->rules, reading->domain) && add_tag(reading)) {
        struct place *place = trie_at(&reading->rules->places, number);
        place->rule = (uint32_t)reading->rules->n_domains - 1;
        return number;
    }
    tell_no_memory(&reading->source);
    return TRIE_NONE;
}

/* The name that the rules of the domain point to already. */
static const char *kept_domain(const struct rules *rules, struct span name)
{
    for (size_t i = 0; i < rules->n_domains; i++)
        if (span_equals(name, rules->domains[i]))
            return rules->domains[i];
    return NULL;
}

/* False with an error if the file has no name for its domain. */
static bool read_domain(struct reading *reading, const struct fields *fields, struct span *name)
{
    size_t diagnostics_before = diagnostics_count(reading->source.diagnostics);
    if (schema_text(&reading->source, fields, FILE_DOMAIN, name) && name->len > 0)
        return true;
    if (diagnostics_count(reading->source.diagnostics) == diagnostics_before)
        diagnostics_add(reading->source.diagnostics, reading->source.path,
                        schema_place(fields, FILE_DOMAIN),
                        "expected a domain that is not empty, found none");
    return false;
}

/*
 * The node of a file's domain. On failure a node without a name replaces it, so that errors in the
 * entries are reported as well.
 */
static uint32_t take_domain(struct reading *reading, const struct fields *fields, bool may_merge)
{
    struct span name = {(const uint8_t *)"", 0};
    if (!read_domain(reading, fields, &name))
        return add_domain(reading, span_of("", 0), 0);
    const struct place_name place_name = {TRIE_NONE, TRIE_DOMAIN, name};
    uint32_t number = trie_find(&reading->rules->places, &place_name);
    if (number == TRIE_NONE)
        return add_domain(reading, name, schema_place(fields, FILE_DOMAIN).line);
    reading->domain = kept_domain(reading->rules, name);
    if (may_merge)
        return number;
    struct origin other = reading->origins[number];
    schema_fault(&reading->source, fields, FILE_DOMAIN, "\"%s\" is there already, in line %u of %s",
                 fault_text(name).text, (unsigned)other.line, reading->files[other.file].path);
    return add_domain(reading, span_of("", 0), 0);
}

/* ---- Tags of keys ---------------------------------------------------------------------------- */

static size_t number_of_domain(const struct rules *rules, const char *domain)
{
    size_t i = 0;
    while (rules->domains[i] != domain)
        i++;
    return i;
}

/* If a domain has several files, one may set it for all; others must not contradict. */
static void read_tag(struct reading *reading, const struct fields *fields)
{
    struct domain_tag *tag = &reading->tags[number_of_domain(reading->rules, reading->domain)];
    uint8_t said;
    if (!read_store_tag(&reading->source, fields, &said))
        return;
    if (tag->is_said && tag->tag != said)
        schema_fault(&reading->source, fields, FILE_STORE_TAG,
                     "the domain has another one already, in line %u of %s",
                     (unsigned)tag->origin.line, reading->files[tag->origin.file].path);
    *tag = (struct domain_tag){
        .tag = said,
        .is_said = true,
        .origin = {reading->file, schema_place(fields, FILE_STORE_TAG).line},
    };
}

/* Rules of one domain are mostly adjacent. */
static void hand_out_tags(const struct reading *reading)
{
    const struct rules *rules = reading->rules;
    const char *domain = NULL;
    uint8_t tag = 0;
    for (size_t i = 0; i < rules->n_rules; i++) {
        struct rule *rule = &rules->rules[i];
        if (rule->domain != domain)
            tag = reading->tags[number_of_domain(rules, rule->domain)].tag;
        domain = rule->domain;
        rule->store.tag = tag;
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void read_file(struct reading *reading, const struct yaml_value *root, bool may_merge)
{
    struct fields fields;
    if (!schema_read(&reading->source, &shape_file, root, &fields))
        return;
    uint32_t domain = take_domain(reading, &fields, may_merge);
    if (domain == TRIE_NONE)
        return;
    read_tag(reading, &fields);
    read_entries(reading, domain, schema_value(&fields, FILE_DESCRIPTORS));
}

static void load_file(struct reading *reading, bool may_merge)
{
    const struct rules_file *file = &reading->files[reading->file];
    struct arena values = {0};
    size_t first = reading->source.diagnostics->n_diagnostics;
    size_t first_warning = reading->source.diagnostics->n_warnings;
    reading->source.path = file->path;
    reading->path = arena_text(&reading->rules->texts, span_of_text(file->path));
    if (reading->path == NULL) {
        tell_no_memory(&reading->source);
        return;
    }
    const struct yaml_value *root = NULL;
    if (file->text.len > RULES_TEXT_MAX)
        diagnostics_add(reading->source.diagnostics, file->path, (struct fault_place){0},
                        "expected at most %d bytes, found %zu", RULES_TEXT_MAX, file->text.len);
    else
        root = yaml_read(&values, file, reading->source.diagnostics);
    if (root != NULL)
        read_file(reading, root, may_merge);
    diagnostics_sort(reading->source.diagnostics, first, first_warning);
    arena_free(&values);
}

static bool keep_stores(struct reading *reading)
{
    const struct rules_load_options *options = reading->options;
    assert(options->n_stores <= RULES_STORES_MAX && options->default_store <= options->n_stores);
    for (size_t i = 0; i < options->n_stores; i++) {
        reading->stores[i] = arena_text(&reading->rules->texts, span_of_text(options->stores[i]));
        if (reading->stores[i] == NULL)
            return false;
    }
    return true;
}

struct rules *rules_load(const struct rules_file *files, size_t n_files,
                         const struct rules_load_options *options,
                         struct rules_diagnostics *diagnostics)
{
    static const struct rules_load_options defaults = {0};
    uint64_t secret[2];
    *diagnostics = (struct rules_diagnostics){0};
    if (options == NULL)
        options = &defaults;
    choose_secret(files, n_files, secret);
    struct reading reading = {.source = {.diagnostics = diagnostics, .path = ""},
                              .rules = rules_new(secret),
                              .files = files,
                              .options = options};
    if (reading.rules != NULL)
        reading.rules->default_algorithm =
            options->default_algorithm != 0 ? options->default_algorithm : STINT_WINDOW;
    if (reading.rules == NULL || !keep_stores(&reading)) {
        tell_no_memory(&reading.source);
        rules_unref(reading.rules);
        return NULL;
    }
    for (size_t i = 0; i < n_files; i++) {
        reading.file = (uint32_t)i;
        load_file(&reading, options->merge_domains);
    }
    if (diagnostics_count(diagnostics) == 0)
        hand_out_tags(&reading);
    free(reading.origins);
    free(reading.tags);
    if (diagnostics_count(diagnostics) == 0)
        return reading.rules;
    rules_unref(reading.rules);
    return NULL;
}
