/* SPDX-License-Identifier: MIT */
/*
 * Reads files one by one into one set of rules, which is returned only if there are no errors. In
 * each file it walks down the entries, as deep as a descriptor can be.
 */
#include "rules/yaml/rules_load.h"

#include "base/buf.h"
#include "rules/rules_make.h"
#include "rules/yaml/read_limit.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define ITEMS_MIN 16
/* Then no more entries are read: those with errors have nodes of one name, which costs more each.
 */
#define ERRORS_MAX 10000

/* The position of a node in the files, for errors that name two entries. */
struct origin {
    uint32_t file, line;
};

/* The store_tag in the files of a domain. */
struct domain_tag {
    uint8_t tag; /* enum rule_tag */
    bool is_said;
    struct origin origin;
};

/* One file while it is read. */
struct reading {
    struct source source;
    struct rules *rules;
    const struct rules_file *files;
    const struct rules_load_options *options;
    const char *stores[RULES_STORES_MAX]; /* their names, kept with the rules */
    struct domain_tag *tags;              /* by the number of the domain */
    size_t n_tags;
    uint32_t file;          /* its number among `files` */
    const char *path;       /* kept with the rules */
    const char *domain;     /* kept with the rules */
    struct origin *origins; /* by the number of the node */
    uint32_t n_origins;
    const struct level *level; /* the entry that is being read; NULL: none */
};

/* An entry on the way down, or the domain. */
struct level {
    const struct level *above; /* NULL: the domain */
    uint32_t node;
    unsigned depth;    /* of entries; 0: the domain */
    uint32_t position; /* in its list, from 0 */
    struct hash128 id;
    struct span key, value;
    bool has_value;
    struct span metadata;
    bool shares, shows_value;   /* share_threshold and value_to_metric, of this entry alone */
    bool any_shares, any_shows; /* the same, here or above */
};

static struct trie_node *node_of(const struct reading *reading, uint32_t number)
{
    return trie_at(&reading->rules->trie, number);
}

/* ---- Positions without lines ----------------------------------------------------------------- */

static void describe_list(const struct level *level, struct buf *text)
{
    if (level->above->above != NULL)
        describe_list(level->above, text);
    buf_add(text, "%sdescriptors[%u]", level->depth > 1 ? "." : "", (unsigned)level->position);
}

/* source.describe: of a struct reading. */
static void describe(const struct source *source, struct buf *text)
{
    const struct reading *reading = (const void *)source;
    if (reading->domain != NULL && reading->domain[0] != '\0')
        buf_add(text, "domain \"%s\": ", quoted_text(span_of_text(reading->domain)).text);
    if (reading->level == NULL)
        return;
    describe_list(reading->level, text);
    buf_add(text, " (key \"%s\"): ", quoted_text(reading->level->key).text);
}

/* "in line 3", "in line 3 of FILE", "of FILE", or "" for the same source without lines. */
struct elsewhere {
    char text[STINT_ERROR_MAX];
};

static struct elsewhere elsewhere(const struct reading *reading, struct origin other)
{
    struct elsewhere where = {""};
    struct buf text = buf_of(where.text, sizeof(where.text));
    if (other.line > 0)
        buf_add(&text, ", in line %u", (unsigned)other.line);
    if (other.file != reading->file)
        buf_add(&text, "%s of %s", other.line > 0 ? "" : ",", reading->files[other.file].path);
    return where;
}

/* ---- How a set grows ------------------------------------------------------------------------- */

/* Grows for one more item; the items, or NULL and nothing has changed. */
static void *with_space(void *items, size_t n_items, size_t *items_max, size_t item_size)
{
    if (n_items < *items_max)
        return items;
    size_t more = *items_max == 0 ? ITEMS_MIN : 2 * *items_max;
    void *moved = more > SIZE_MAX / item_size ? NULL : realloc(items, more * item_size);
    if (moved != NULL)
        *items_max = more;
    return moved;
}

/* False, or NULL: out of memory. */
static bool rules_add_domain(struct rules *rules, const char *name)
{
    const char **domains =
        with_space(rules->domains, rules->n_domains, &rules->domains_max, sizeof(*domains));
    if (domains == NULL)
        return false;
    rules->domains = domains;
    rules->domains[rules->n_domains++] = name;
    return true;
}

/* All zero but for its index. Rules move: valid until the next is added. */
static struct rule *rules_add_rule(struct rules *rules)
{
    if (rules->n_rules >= RULE_NONE)
        return NULL;
    struct rule *all = with_space(rules->rules, rules->n_rules, &rules->rules_max, sizeof(*all));
    if (all == NULL)
        return NULL;
    rules->rules = all;
    struct rule *rule = &all[rules->n_rules];
    memset(rule, 0, sizeof(*rule));
    rule->index = (uint32_t)rules->n_rules++;
    return rule;
}

/* An empty set with one reference. The secret is for the trie. */
static struct rules *rules_new(const uint64_t secret[2])
{
    struct rules *rules = calloc(1, sizeof(*rules));
    if (rules == NULL)
        return NULL;
    atomic_init(&rules->references, 1);
    memcpy(rules->trie.secret, secret, sizeof(rules->trie.secret));
    return rules;
}

/* ---- Identities ------------------------------------------------------------------------------ */

/*
 * The same in every process and after every reload. They begin with a domain and add each entry on
 * the way down; an entry without a value differs from an empty value.
 */

enum id_part { ID_DOMAIN = 1, ID_KEY, ID_VALUE, ID_NO_VALUE, ID_NAME, ID_SHADOW };

/* Each part is hashed with the hash before it, so differently split texts differ. */
static struct hash128 join(struct hash128 before, enum id_part part, struct span text)
{
    const uint64_t secret[2] = {before.lo, before.hi};
    return siphash13_128(secret, part, text.ptr, text.len);
}

static struct hash128 rule_id_of_domain(struct span domain)
{
    /* Public on purpose: processes that share a table must agree. */
    static const struct hash128 begin = {UINT64_C(0x73746e74207275), UINT64_C(0x6c65206964)};
    return join(begin, ID_DOMAIN, domain);
}

static struct hash128 rule_id_below(struct hash128 above, struct span key, struct span value,
                                    bool has_value)
{
    return join(join(above, ID_KEY, key), has_value ? ID_VALUE : ID_NO_VALUE, value);
}

/* Of the candidate beside it where `is_shadow`. */
static struct hash128 rule_id_named(struct hash128 entry, struct span name, bool is_shadow)
{
    struct hash128 named = join(entry, ID_NAME, name);
    return is_shadow ? join(named, ID_SHADOW, span_of(NULL, 0)) : named;
}

/* The half that identifies rules: never 0. */
static uint64_t rule_id_short(struct hash128 named)
{
    return named.lo != 0 ? named.lo : 1;
}

/* ---- Names of states in a store -------------------------------------------------------------- */

#define CUT_LEN (RULE_STORE_NAME_MAX - 35) /* "@@@" and 32 digits fit after it */

/*
 * Writes RULE of a key's name piece by piece: DOMAIN/KEY=VALUE/KEY@NAME, and @shadow after that of
 * a candidate. `/`, `=` and `@` in a text become %XX, as does every byte that a key's name cannot
 * have: so no two rules have one name. A hash of the whole replaces the end of a name longer than
 * RULE_STORE_NAME_MAX.
 */
struct store_name {
    char text[RULE_STORE_NAME_MAX + 4]; /* one character more than fits, which may be %XX */
    size_t len;
};

/* Those that a key's name has as they are, except for the three separators. */
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

static void store_name_add(struct store_name *name, const char *separator, struct span text)
{
    for (; *separator != '\0'; separator++)
        if (name->len <= RULE_STORE_NAME_MAX)
            name->text[name->len++] = *separator;
    for (size_t i = 0; i < text.len; i++)
        add_char(name, text.ptr[i]);
}

/* A name that ended in the middle of %XX would be unreadable. */
static void store_name_end(struct store_name *name, struct hash128 hash)
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

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* Keeps the position of a node; false: no memory. */
static bool note_origin(struct reading *reading, uint32_t node, uint32_t line)
{
    if (node >= reading->n_origins) {
        uint32_t n = reading->rules->trie.units_max;
        struct origin *origins = realloc(reading->origins, n * sizeof(*origins));
        if (origins == NULL)
            return false;
        reading->origins = origins;
        reading->n_origins = n;
    }
    reading->origins[node] = (struct origin){reading->file, line};
    return true;
}

static void tell_double(const struct reading *reading, const struct fields *fields,
                        const struct level *level, struct origin other)
{
    diagnostics_add(&reading->source, fields->map->position,
                    "the key \"%s\" %s%s%s is there already at this level%s",
                    quoted_text(level->key).text,
                    level->has_value ? "with the value \"" : "without value",
                    level->has_value ? quoted_text(level->value).text : "",
                    level->has_value ? "\"" : "", elsewhere(reading, other).text);
}

static uint32_t find_or_add(struct trie *trie, const struct trie_name *name)
{
    uint32_t number = trie_find(trie, name);
    return number != TRIE_NONE ? number : trie_add(trie, name);
}

/* The new one becomes the last of the ring. */
static void join_wildcards(struct reading *reading, uint32_t key_number, uint32_t number)
{
    struct trie_node *key = node_of(reading, key_number), *wildcard = node_of(reading, number);
    struct trie_node *last =
        key->wildcard == TRIE_NONE ? wildcard : node_of(reading, key->wildcard);
    if (last == wildcard)
        wildcard->wildcard = number;
    wildcard->wildcard = last->wildcard;
    last->wildcard = number;
    key->wildcard = number;
}

/* The node of an entry, made if it does not exist; another entry may have made it already. */
static uint32_t entry_place(struct reading *reading, const struct level *level)
{
    struct trie *trie = &reading->rules->trie;
    const struct trie_name key_name = {level->above->node, TRIE_KEY, level->key};
    uint32_t key = find_or_add(trie, &key_name);
    if (!level->has_value || key == TRIE_NONE)
        return key;
    bool is_wildcard = wildcard_is(level->value);
    const struct trie_name name = {key, is_wildcard ? TRIE_WILDCARD : TRIE_VALUE, level->value};
    uint32_t number = find_or_add(trie, &name);
    if (is_wildcard && number != TRIE_NONE && node_of(reading, number)->wildcard == TRIE_NONE)
        join_wildcards(reading, key, number);
    return number;
}

/*
 * Finds or makes the node of an entry. An entry without a key, or a duplicate, is an error: it gets
 * a node that is not linked, so that the errors in it are reported as well.
 */
static bool take_place(struct reading *reading, const struct fields *fields, struct level *level)
{
    const struct trie_name nowhere = {level->above->node, TRIE_KEY, {NULL, 0}};
    uint32_t number = level->key.len > 0 ? entry_place(reading, level) : TRIE_NONE;
    bool is_double = number != TRIE_NONE && node_of(reading, number)->is_entry;
    if (is_double)
        tell_double(reading, fields, level, reading->origins[number]);
    if (is_double || level->key.len == 0)
        number = trie_add(&reading->rules->trie, &nowhere);
    if (number == TRIE_NONE || !note_origin(reading, number, fields->map->position.line))
        return diagnostics_got(&reading->source, NULL);
    node_of(reading, number)->is_entry = true;
    node_of(reading, level->above->node)->has_below = true;
    level->node = number;
    return true;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* A text kept with the rules; "" without memory, and then there are no rules. */
static const char *keep(struct reading *reading, struct span text)
{
    const char *kept = text.len == 0 ? "" : arena_text(&reading->rules->texts, text);
    return diagnostics_got(&reading->source, kept) ? kept : "";
}

/* Whether the request's value is what metrics show; a value of the file is the same in all. */
static bool shows_value(const struct level *level, bool is_detailed)
{
    bool is_fixed = level->has_value && !wildcard_is(level->value);
    return !level->shares && (is_detailed || (level->shows_value && !is_fixed));
}

/* Characters between the entries of a rule, and before their values. */
struct entry_style {
    char between, value;
    bool shows_values, is_detailed; /* in metrics */
};

static void add_entries(struct buf *buf, const struct level *level, const struct entry_style *style)
{
    if (level->above->above != NULL) {
        add_entries(buf, level->above, style);
        buf_add(buf, "%c", style->between);
    }
    buf_add(buf, "%.*s", (int)level->key.len, (const char *)level->key.ptr);
    if (level->has_value)
        buf_add(buf, "%c%.*s", style->value, (int)level->value.len, (const char *)level->value.ptr);
    if (style->shows_values && shows_value(level, style->is_detailed))
        buf_add(buf, "%c", RULE_METRIC_SHOWN);
}

static const char *entries_text(struct reading *reading, const struct level *level,
                                const struct entry_style *style)
{
    struct buf buf = buf_of(NULL, 0);
    add_entries(&buf, level, style);
    char *text = arena_take(&reading->rules->texts, buf.len + 1);
    if (!diagnostics_got(&reading->source, text))
        return "";
    buf = buf_of(text, buf.len + 1);
    add_entries(&buf, level, style);
    return text;
}

static uint32_t shown_entries(const struct level *level, bool is_detailed)
{
    uint32_t bits = 0;
    for (; level->above != NULL; level = level->above)
        bits |= (uint32_t)shows_value(level, is_detailed) << (level->depth - 1);
    return bits;
}

static size_t n_parts(const struct yaml_value *list)
{
    size_t n = 0;
    for (const struct yaml_part *part = list->parts; part != NULL; part = part->next)
        n++;
    return n;
}

static void read_replaced(struct reading *reading, const struct yaml_value *item, struct span own,
                          const char **name)
{
    struct fields fields;
    struct span text = {NULL, 0};
    if (!schema_read(&reading->source, &shape_replaces, item, &fields))
        return;
    size_t diagnostics_before = diagnostics_count(reading->source.diagnostics);
    schema_text(&fields, REPLACES_NAME, &text);
    if (diagnostics_count(reading->source.diagnostics) > diagnostics_before)
        return;
    if (text.len == 0)
        diagnostics_add(&reading->source, item->position,
                        "expected the name of another limit, found none");
    else if (text.len == own.len && memcmp(text.ptr, own.ptr, own.len) == 0)
        schema_error(&fields, REPLACES_NAME, "a limit cannot replace itself, \"%s\"",
                     quoted_text(own).text);
    *name = keep(reading, text);
}

static void read_replaces(struct reading *reading, const struct fields *fields, struct span own,
                          struct rule *rule)
{
    const struct yaml_value *list = schema_value(fields, LIMIT_REPLACES);
    if (list == NULL)
        return;
    if (list->kind != YAML_LIST) {
        schema_error(fields, LIMIT_REPLACES, "expected a list of {name: NAME}, found %s",
                     schema_found(list).text);
        return;
    }
    size_t n = n_parts(list);
    const char **names = arena_take(&reading->rules->texts, (n + 1) * sizeof(*names));
    if (!diagnostics_got(&reading->source, names))
        return;
    rule->replaces = names;
    for (const struct yaml_part *part = list->parts; part != NULL; part = part->next)
        read_replaced(reading, part->value, own, &names[rule->n_replaces++]);
}

static void read_rate_limit(struct reading *reading, const struct fields *fields, struct span name,
                            struct rule *rule)
{
    const struct store_reading store = {reading->options, reading->stores};
    struct limit limit;
    schema_flag(fields, LIMIT_UNLIMITED, &rule->unlimited);
    read_replaces(reading, fields, name, rule);
    if (rule->unlimited) {
        refuse_limit(fields);
    } else if (read_limit(fields, reading->options->default_algorithm, &limit)) {
        rule->quota = limit.quota;
        rule->requests_per_unit = limit.requests_per_unit;
        rule->unit = limit.unit;
        rule->hits = read_hits(fields, &limit);
    }
    rule->has_on_expiry = schema_kept(fields, LIMIT_ON_EXPIRY, &rule->kept_units);
    if (rule->unlimited && rule->has_on_expiry)
        schema_error(fields, LIMIT_ON_EXPIRY,
                     "an unlimited rule counts nothing, and so nothing is reserved under it");
    read_store(&store, fields, &reading->rules->texts, rule);
}

static void read_shadow(struct reading *reading, const struct fields *entry, struct rule *rule)
{
    const struct yaml_value *value = schema_value(entry, ENTRY_SHADOW);
    struct fields fields;
    struct limit limit;
    if (value == NULL)
        return;
    if (rule->unlimited)
        schema_error(entry, ENTRY_SHADOW,
                     "an unlimited rule counts nothing, and so has no candidate beside it; try the "
                     "limit with shadow_mode: true");
    else if (schema_read(&reading->source, &shape_shadow, value, &fields) &&
             read_limit(&fields, reading->options->default_algorithm, &limit)) {
        rule->shadow = limit.quota;
        rule->has_shadow = true;
    }
}

static void read_flags(const struct fields *entry, struct rule *rule)
{
    schema_flag(entry, ENTRY_SHADOW_MODE, &rule->shadow_mode);
    schema_flag(entry, ENTRY_QUOTA_MODE, &rule->quota_mode);
    schema_flag(entry, ENTRY_DETAILED_METRIC, &rule->detailed_metric);
}

static void add_store_name(struct store_name *name, const struct level *level)
{
    if (level->above->above != NULL)
        add_store_name(name, level->above);
    store_name_add(name, "/", level->key);
    if (level->has_value)
        store_name_add(name, "=", level->value);
}

/* The name of its states in a store, or of those of its candidate. */
static const char *store_name_text(struct reading *reading, const struct level *level,
                                   struct span name, bool is_shadow)
{
    struct store_name text = {.len = 0};
    store_name_add(&text, "", span_of_text(reading->domain));
    add_store_name(&text, level);
    if (name.len > 0 || is_shadow)
        store_name_add(&text, "@", name);
    if (is_shadow)
        store_name_add(&text, "@", span_of_text("shadow"));
    store_name_end(&text, rule_id_named(level->id, name, is_shadow));
    return keep(reading, span_of(text.text, text.len));
}

static void name_states(struct reading *reading, const struct level *level, struct span name,
                        struct rule *rule)
{
    struct rule_store *store = &rule->store;
    if (store->label == NULL)
        return;
    store->name = store_name_text(reading, level, name, false);
    if (rule->has_shadow)
        store->shadow_name = store_name_text(reading, level, name, true);
}

static void name_rule(struct reading *reading, const struct level *level,
                      const struct source_position *position, struct span name, struct rule *rule)
{
    static const struct entry_style path = {'.', '=', false, false};
    const struct entry_style metric = {RULE_METRIC_ENTRY, RULE_METRIC_VALUE, true,
                                       rule->detailed_metric};
    rule->domain = reading->domain;
    rule->file = reading->path;
    rule->path = entries_text(reading, level, &path);
    rule->metric = entries_text(reading, level, &metric);
    rule->shown = shown_entries(level, rule->detailed_metric);
    rule->name = keep(reading, name);
    rule->line = position->line;
    rule->column = position->column;
    rule->id = rule_id_short(rule_id_named(level->id, name, false));
    rule->quota.rule = rule->id;
    if (rule->has_shadow)
        rule->shadow.rule = rule_id_short(rule_id_named(level->id, name, true));
}

static void read_ban_of(struct reading *reading, const struct fields *entry, struct rule *rule)
{
    const struct yaml_value *value = schema_value(entry, ENTRY_BAN);
    if (value == NULL)
        return;
    if (rule->unlimited)
        schema_error(entry, ENTRY_BAN, "an unlimited rule never denies, so it cannot ban");
    read_ban(&reading->source, value, &rule->ban);
}

static void read_rule(struct reading *reading, const struct fields *entry,
                      const struct level *level)
{
    struct fields fields;
    struct span name = {NULL, 0};
    const struct yaml_value *value = schema_value(entry, ENTRY_RATE_LIMIT);
    if (!schema_read(&reading->source, &shape_limit, value, &fields))
        return;
    struct rule *rule = rules_add_rule(reading->rules);
    if (!diagnostics_got(&reading->source, rule))
        return;
    schema_text(&fields, LIMIT_NAME, &name);
    read_rate_limit(reading, &fields, name, rule);
    read_flags(entry, rule);
    read_shadow(reading, entry, rule);
    read_ban_of(reading, entry, rule);
    rule->share_threshold = level->any_shares;
    rule->value_to_metric = level->any_shows;
    rule->metadata = level->metadata;
    name_rule(reading, level, &entry->map->position, name, rule);
    name_states(reading, level, name, rule);
    struct trie_node *node = node_of(reading, level->node);
    node->rule = rule->index;
    node->id = rule->id;
}

/* Keys that belong to a limit, where there is none. */
static void refuse_without_limit(const struct fields *entry)
{
    static const int keys[] = {ENTRY_SHADOW, ENTRY_BAN};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (schema_value(entry, keys[i]) != NULL)
            schema_error(entry, keys[i], "expected a rate_limit beside it, found none");
}

/* ---- Entries --------------------------------------------------------------------------------- */

static void read_list(struct reading *reading, const struct level *above,
                      const struct yaml_value *list);

static void read_key(const struct source *source, const struct fields *entry, struct level *level)
{
    size_t diagnostics_before = diagnostics_count(source->diagnostics);
    schema_text(entry, ENTRY_KEY, &level->key);
    if (level->key.len == 0 && diagnostics_count(source->diagnostics) == diagnostics_before)
        diagnostics_add(source, schema_position(entry, ENTRY_KEY),
                        "expected a key that is not empty, found none");
    if (wildcard_is(level->key))
        warnings_add(source, schema_position(entry, ENTRY_KEY),
                     "key: a * in a key stands for itself, and in a value for any text");
    level->has_value = schema_text(entry, ENTRY_VALUE, &level->value) && level->value.len > 0;
}

static void read_sharing(const struct fields *entry, struct reading *reading, struct level *level)
{
    schema_flag(entry, ENTRY_SHARE_THRESHOLD, &level->shares);
    schema_flag(entry, ENTRY_VALUE_TO_METRIC, &level->shows_value);
    level->any_shows = level->above->any_shows || level->shows_value;
    level->any_shares = level->above->any_shares || level->shares;
    if (!level->shares)
        return;
    if (!level->has_value || !wildcard_is(level->value))
        schema_error(entry, ENTRY_SHARE_THRESHOLD,
                     "only values of a pattern can share; expected a value with * in it");
    node_of(reading, level->node)->is_shared = true;
}

static void read_entry(struct reading *reading, struct level *level, const struct yaml_value *value)
{
    const struct source *source = &reading->source;
    struct fields entry;
    if (!schema_read(source, &shape_entry, value, &entry))
        return;
    read_key(source, &entry, level);
    if (!take_place(reading, &entry, level))
        return;
    level->id = rule_id_below(level->above->id, level->key, level->value, level->has_value);
    read_sharing(&entry, reading, level);
    level->metadata = read_metadata(source, &entry, &reading->rules->texts);
    if (schema_value(&entry, ENTRY_RATE_LIMIT) != NULL)
        read_rule(reading, &entry, level);
    else
        refuse_without_limit(&entry);
    const struct yaml_value *below = schema_value(&entry, ENTRY_DESCRIPTORS);
    if (below != NULL)
        read_list(reading, level, below);
}

static void read_list(struct reading *reading, const struct level *above,
                      const struct yaml_value *list)
{
    const struct source *source = &reading->source;
    if (list->kind != YAML_LIST) {
        diagnostics_add(source, list->position, "descriptors: expected a list of entries, found %s",
                        schema_found(list).text);
        return;
    }
    if (above->depth == ENTRIES_MAX) {
        diagnostics_add(source, list->position,
                        "descriptors: a descriptor has at most %d entries; this one is deeper",
                        ENTRIES_MAX);
        return;
    }
    const struct level *outer = reading->level;
    uint32_t position = 0;
    for (const struct yaml_part *part = list->parts; part != NULL; part = part->next) {
        if (diagnostics_count(source->diagnostics) >= ERRORS_MAX)
            break;
        struct level level = {
            .above = above, .key = span_of("", 0), .depth = above->depth + 1, .position = position};
        position++;
        reading->level = &level;
        read_entry(reading, &level, part->value);
    }
    reading->level = outer;
}

/* The entries below a domain; NULL: none. Adds errors to the diagnostics. */
static void read_entries(struct reading *reading, uint32_t domain,
                         const struct yaml_value *descriptors)
{
    struct level level = {.node = domain,
                          .id = rule_id_of_domain(trie_text(node_of(reading, domain)))};
    if (descriptors != NULL)
        read_list(reading, &level, descriptors);
}

/* ---- Domains --------------------------------------------------------------------------------- */

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
    const struct trie_name node_name = {TRIE_NONE, TRIE_DOMAIN, name};
    uint32_t number = trie_add(&reading->rules->trie, &node_name);
    reading->domain = keep(reading, name);
    if (number != TRIE_NONE && note_origin(reading, number, line) &&
        rules_add_domain(reading->rules, reading->domain) && add_tag(reading)) {
        struct trie_node *node = trie_at(&reading->rules->trie, number);
        node->rule = (uint32_t)reading->rules->n_domains - 1;
        return number;
    }
    diagnostics_got(&reading->source, NULL);
    return TRIE_NONE;
}

/* False with an error if the file has no name for its domain. */
static bool read_domain(struct reading *reading, const struct fields *fields, struct span *name)
{
    size_t diagnostics_before = diagnostics_count(reading->source.diagnostics);
    if (schema_text(fields, FILE_DOMAIN, name) && name->len > 0)
        return true;
    if (diagnostics_count(reading->source.diagnostics) == diagnostics_before)
        diagnostics_add(&reading->source, schema_position(fields, FILE_DOMAIN),
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
    const struct trie_name node_name = {TRIE_NONE, TRIE_DOMAIN, name};
    uint32_t number = trie_find(&reading->rules->trie, &node_name);
    if (number == TRIE_NONE)
        return add_domain(reading, name, schema_position(fields, FILE_DOMAIN).line);
    reading->domain = reading->rules->domains[node_of(reading, number)->rule];
    if (may_merge)
        return number;
    schema_error(fields, FILE_DOMAIN, "\"%s\" is there already%s", quoted_text(name).text,
                 elsewhere(reading, reading->origins[number]).text);
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

static bool read_store_tag(const struct fields *fields, uint8_t *tag)
{
    static const char *const names[] = {
        [RULE_TAG_VALUES] = "values", [RULE_TAG_FIRST] = "first", [RULE_TAG_DOMAIN] = "domain"};
    size_t choice;
    if (!schema_choice(fields, FILE_STORE_TAG, names, 3, &choice))
        return false;
    *tag = (uint8_t)choice;
    return true;
}

/* If a domain has several files, one may set it for all; others must not contradict. */
static void read_tag(struct reading *reading, const struct fields *fields)
{
    struct domain_tag *tag = &reading->tags[number_of_domain(reading->rules, reading->domain)];
    uint8_t said;
    if (!read_store_tag(fields, &said))
        return;
    if (tag->is_said && tag->tag != said)
        schema_error(fields, FILE_STORE_TAG, "the domain has another one already, in line %u of %s",
                     (unsigned)tag->origin.line, reading->files[tag->origin.file].path);
    *tag = (struct domain_tag){
        .tag = said,
        .is_said = true,
        .origin = {reading->file, schema_position(fields, FILE_STORE_TAG).line},
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
    reading->domain = NULL;
    reading->path = keep(reading, span_of_text(file->path));
    const struct yaml_value *root = NULL;
    if (file->text.len > RULES_TEXT_MAX)
        diagnostics_add(&reading->source, (struct source_position){0},
                        "expected at most %d bytes, found %zu", RULES_TEXT_MAX, file->text.len);
    else
        root = (file->read != NULL ? file->read : yaml_read)(&values, file,
                                                             reading->source.diagnostics);
    if (root != NULL)
        read_file(reading, root, may_merge);
    diagnostics_sort(reading->source.diagnostics, first, first_warning);
    arena_free(&values);
}

static void keep_stores(struct reading *reading)
{
    const struct rules_load_options *options = reading->options;
    assert(options->n_stores <= RULES_STORES_MAX && options->default_store <= options->n_stores);
    for (size_t i = 0; i < options->n_stores; i++)
        reading->stores[i] = keep(reading, span_of_text(options->stores[i]));
}

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
    struct reading reading = {
        .source = {.diagnostics = diagnostics, .path = "", .describe = describe},
        .rules = rules_new(secret),
        .files = files,
        .options = options};
    if (!diagnostics_got(&reading.source, reading.rules))
        return NULL;
    reading.rules->default_algorithm =
        options->default_algorithm != 0 ? options->default_algorithm : STINT_WINDOW;
    keep_stores(&reading);
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
