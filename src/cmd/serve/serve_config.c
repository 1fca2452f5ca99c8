/* SPDX-License-Identifier: MIT */
/*
 * Where settings come from: the command line, the environment, a config file with its section
 * `pools`, in which every error has its line and column. And how they are printed as such a file.
 */
#define _GNU_SOURCE
#include "cmd/serve/serve_settings.h"
#include "cmd/serve/serve_traces.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/pool/pool_keys.h"
#include "cmd/store/store_word.h"
#include "net/file.h"
#include "rules/yaml/schema.h"
#include "service/pools/pools.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The command line ------------------------------------------------------------------------ */

#define ENVIRONMENT_PREFIX "STINT_"

static const char doc[] =
    "Runs a rate limit server for RESP, HTTP and gRPC.\vEach option is also a variable, "
    "STINT_TLS_KEY for --tls-key, and a line of the file that --config names, tls_key. "
    "Options override variables, and variables override the file. Options that may be "
    "given several times are lists: in a variable with ; between the elements.\n"
    "SIGHUP reads settings, rules, tokens and certificates again, SIGTERM lets "
    "connections finish, SIGUSR2 starts a successor that takes over.";

static struct args_option options[SETTINGS_MAX + 4]; /* made of the table of settings */
_Static_assert(SETTINGS_MAX + 4 <= ARGS_OPTIONS_MAX, "args_parse() has space for all of them");
static char option_names[SETTINGS_MAX][40];

static void add_given(struct settings_line *line, size_t index, const char *text)
{
    line->given[line->n_given++] = (struct settings_given){index, text};
}

static void read_setting(struct argp_state *state, void *input, char *value)
{
    struct settings_line *line = input;
    size_t index = (size_t)(args_current(state) - options);
    add_given(line, index, value != NULL ? value : "true");
    enum setting_kind kind = settings_known[index].kind;
    if (kind != SETTING_STORES && kind != SETTING_FIELDS)
        return;
    assert(value != NULL);
    /* The command line of a process is public, so it must not contain a password. */
    char *own = arena_text(&line->arena, span_of_text(value));
    if (own == NULL)
        exit(print_failure("no memory for the command line"));
    line->given[line->n_given - 1].text = own;
    if (kind == SETTING_STORES)
        store_word_hide(value);
    else
        memset(value, '*', strlen(value));
}

/* The last option given of that setting, or of a switch where the name is NULL. NULL: none. */
static const struct settings_given *given_last(const struct settings_line *line, const char *name)
{
    for (size_t i = line->n_given; i-- > 0;) {
        const struct setting *setting = &settings_known[line->given[i].index];
        if (name != NULL ? strcmp(setting->name, name) == 0 : setting->kind == SETTING_SWITCH)
            return &line->given[i];
    }
    return NULL;
}

/* --rules PATH PATH...; these words come behind all options, wherever they stand. */
static void add_rules(struct argp_state *state, void *input, char *path)
{
    struct settings_line *line = input;
    const struct settings_given *is_switch = given_last(line, NULL);
    bool value;
    if (is_switch != NULL && setting_switch(&value, "", path, NULL) == 0)
        argp_error(state, "unexpected '%s': the value of a switch follows '=', as in --%s=%s", path,
                   option_names[is_switch->index], path);
    if (given_last(line, "rules") == NULL)
        argp_error(state, "unexpected '%s': expected an option; for rules, --rules %s", path, path);
    add_given(line, (size_t)setting_find(span_of_text("rules")), path);
}

static void fill_option(size_t i)
{
    static char messages[SETTINGS_MAX][256];
    const struct setting *setting = &settings_known[i];
    struct buf message = buf_of(messages[i], sizeof(messages[i]));
    for (size_t at = 0; setting->name[at] != '\0'; at++)
        option_names[i][at] = setting->name[at] == '_' ? '-' : setting->name[at];
    buf_add(&message, "%s", setting->message);
    if (setting->value != NULL && setting->kind != SETTING_SWITCH)
        buf_add(&message, " (default %s)", setting->value);
    options[i] = (struct args_option){
        .name = option_names[i],
        .argument = setting->argument,
        .help = messages[i],
        .value = {ARGS_KIND_OWN, .read = read_setting, .words = setting->choices},
        .is_optional = setting->kind == SETTING_SWITCH,
    };
}

void settings_read_line(struct settings_line *line, int argc, char **argv)
{
    static const struct args_option others[] = {
        {"config", "FILE", 0, "Read settings from a YAML file",
         ARGS_TEXT(struct settings_line, config)},
        {"print-config", NULL, 0, "Print all settings, and exit",
         ARGS_FLAG(struct settings_line, prints_config)},
        {"compat", "NAME", 0, "envoyproxy: read its environment, too",
         ARGS_TEXT(struct settings_line, compat)},
        {0},
    };
    const struct args_command command = {
        .set = {options, .word = add_rules}, .arguments = "", .doc = doc};
    for (size_t i = 0; i < n_settings_known; i++)
        fill_option(i);
    memcpy(&options[n_settings_known], others, sizeof(others));
    args_parse(&command, argc, argv, line);
}

/* ---- Defaults and the environment ------------------------------------------------------------ */

/* The elements of a list are in one text, with ';' between them. */
static int set_joined(struct settings *settings, size_t index, enum setting_origin origin,
                      const char *shown, const char *text, struct stint_error *error)
{
    if (!setting_is_list(&settings_known[index]))
        return settings_set(settings, index, origin, shown, text, error);
    char *rest = arena_text(&settings->arena, span_of_text(text));
    if (rest == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    int code = settings_set(settings, index, origin, shown, NULL, error);
    for (char *part; code == 0 && (part = strsep(&rest, ";")) != NULL;)
        code = part[0] == '\0' ? 0 : settings_set(settings, index, origin, shown, part, error);
    return code;
}

int settings_init(struct settings *settings, struct stint_error *error)
{
    *settings = (struct settings){0};
    int code = 0;
    for (size_t i = 0; i < n_settings_known && code == 0; i++)
        if (settings_known[i].value != NULL)
            code = set_joined(settings, i, SETTING_DEFAULT, settings_known[i].name,
                              settings_known[i].value, error);
    return code;
}

static int read_environment(struct settings *settings, struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < n_settings_known && code == 0; i++) {
        char name[64];
        snprintf(name, sizeof(name), ENVIRONMENT_PREFIX "%s", settings_known[i].name);
        for (char *c = name; *c != '\0'; c++)
            *c = (char)toupper((unsigned char)*c);
        const char *text = getenv(name);
        if (text != NULL)
            code = set_joined(settings, i, SETTING_ENVIRONMENT, name, text, error);
    }
    return code;
}

/* ---- The section of pools -------------------------------------------------------------------- */

struct reader {
    struct arena *arena;
    const struct source *source;
};

enum {
    POOL_NAME,
    POOL_ORDER,
    POOL_QUOTA,
    POOL_QUOTAS,
    POOL_KEYS,
    POOL_KEYS_FILE,
    POOL_STORE,
    POOL_FIELDS
};
enum { KEY_NAME, KEY_QUOTA, KEY_QUOTAS, KEY_WEIGHT, KEY_FIELDS };

static const char *const pool_fields[POOL_FIELDS] = {
    [POOL_NAME] = "name",     [POOL_ORDER] = "order", [POOL_QUOTA] = "quota",
    [POOL_QUOTAS] = "quotas", [POOL_KEYS] = "keys",   [POOL_KEYS_FILE] = "keys_file",
    [POOL_STORE] = "store",
};
static const char *const key_fields[KEY_FIELDS] = {
    [KEY_NAME] = "name",
    [KEY_QUOTA] = "quota",
    [KEY_QUOTAS] = "quotas",
    [KEY_WEIGHT] = "weight",
};
static const struct shape pool_shape = {"pool", "a pool", pool_fields, POOL_FIELDS};
static const struct shape key_shape = {"key", "NAME or {name: NAME}", key_fields, KEY_FIELDS};

#define N_ORDERS (STINT_LEAST_USED + 1)

static void fault(const struct reader *reader, struct source_position position, const char *message)
{
    diagnostics_add(reader->source, position, "%s", message);
}

static void *take(const struct reader *reader, size_t n, size_t size)
{
    void *space = arena_take(reader->arena, n * size);
    if (space == NULL)
        fault(reader, (struct source_position){0}, "out of memory");
    return space;
}

static size_t count_parts(const struct yaml_value *list)
{
    size_t n = 0;
    for (const struct yaml_part *part = list->parts; part != NULL; part = part->next)
        n++;
    return n;
}

/* ---- Names and quotas ------------------------------------------------------------------------ */

static void read_name(const struct reader *reader, struct source_position position,
                      struct span name)
{
    struct stint_error why;
    if (name.len == 0)
        fault(reader, position, "expected a name, found an empty text");
    else if (pool_keys_check_name(name, &why) != 0)
        fault(reader, position, why.message);
}

static void read_name_field(const struct reader *reader, const struct fields *fields, int field,
                            struct span *name)
{
    if (schema_value(fields, field) == NULL)
        schema_error(fields, field, "expected a name, found none");
    else if (schema_text(fields, field, name))
        read_name(reader, schema_position(fields, field), *name);
}

static void read_spec(const struct reader *reader, const struct yaml_value *value,
                      struct configured_quotas *quotas)
{
    struct stint_quota quota;
    struct stint_error why;
    const char *text = value->kind == YAML_TEXT ? arena_text(reader->arena, value->text) : NULL;
    if (text == NULL || yaml_is_null(value) || strlen(text) != value->text.len)
        diagnostics_add(reader->source, value->position,
                        "expected a quota such as 100/1m, found %s", schema_found(value).text);
    else if (stint_quota_parse(&quota, text, &why) != 0)
        fault(reader, value->position, why.message);
    else
        quotas->specs[quotas->n_specs++] = value->text;
}

static void read_specs(const struct reader *reader, const struct fields *fields, int field,
                       struct configured_quotas *quotas)
{
    const struct yaml_value *list = schema_value(fields, field);
    size_t n = list->kind == YAML_LIST ? count_parts(list) : 0;
    if (n < 1 || n > STINT_POOL_QUOTAS_MAX) {
        schema_error(fields, field, "expected a list of 1 to %d quotas", STINT_POOL_QUOTAS_MAX);
        return;
    }
    for (const struct yaml_part *part = list->parts; part != NULL; part = part->next)
        read_spec(reader, part->value, quotas);
}

/* `quota` is short for a list of one. */
static void read_quotas(const struct reader *reader, const struct fields *fields, int one, int many,
                        struct configured_quotas *quotas)
{
    const struct yaml_value *single = schema_value(fields, one);
    bool has_list = schema_value(fields, many) != NULL;
    if (single == NULL && !has_list)
        return;
    quotas->specs = take(reader, STINT_POOL_QUOTAS_MAX, sizeof(*quotas->specs));
    if (single != NULL && has_list)
        schema_error(fields, many, "quota is there already: expected one of both");
    else if (quotas->specs != NULL && single != NULL)
        read_spec(reader, single, quotas);
    else if (quotas->specs != NULL)
        read_specs(reader, fields, many, quotas);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static void read_key(const struct reader *reader, const struct yaml_value *value,
                     struct configured_key *key)
{
    struct fields fields;
    key->position = value->position;
    key->weight = 1;
    if (value->kind == YAML_TEXT && !yaml_is_null(value)) {
        key->name = value->text;
        read_name(reader, value->position, key->name);
        return;
    }
    if (!schema_read(reader->source, &key_shape, value, &fields))
        return;
    read_name_field(reader, &fields, KEY_NAME, &key->name);
    read_quotas(reader, &fields, KEY_QUOTA, KEY_QUOTAS, &key->quotas);
    if (schema_number(&fields, KEY_WEIGHT, 1, &key->weight) && key->weight > STINT_POOL_WEIGHT_MAX)
        schema_error(&fields, KEY_WEIGHT, "expected at most %d, found %u", STINT_POOL_WEIGHT_MAX,
                     key->weight);
}

/* By name, and equal names by position. */
static int compare_keys(const void *a, const void *b)
{
    const struct configured_key *x = *(const struct configured_key *const *)a;
    const struct configured_key *y = *(const struct configured_key *const *)b;
    size_t len = x->name.len < y->name.len ? x->name.len : y->name.len;
    int order = len > 0 ? memcmp(x->name.ptr, y->name.ptr, len) : 0;
    if (order != 0)
        return order;
    if (x->name.len != y->name.len)
        return x->name.len < y->name.len ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool is_same_name(struct span a, struct span b)
{
    return a.len == b.len && a.len > 0 && memcmp(a.ptr, b.ptr, a.len) == 0;
}

static void tell_twice(const struct reader *reader, const char *what, struct span name,
                       struct source_position second, struct source_position first)
{
    diagnostics_add(reader->source, second, "the %s %s is there already, in line %u", what,
                    quoted_text(name).text, first.line);
}

static void refuse_twice(const struct reader *reader, const struct configured_pool *pool)
{
    const struct configured_key **sorted =
        take(reader, pool->n_keys + 1, sizeof(const struct configured_key *));
    if (sorted == NULL)
        return;
    for (size_t i = 0; i < pool->n_keys; i++)
        sorted[i] = &pool->keys[i];
    qsort(sorted, pool->n_keys, sizeof(const struct configured_key *), compare_keys);
    for (size_t i = 1; i < pool->n_keys; i++)
        if (is_same_name(sorted[i - 1]->name, sorted[i]->name))
            tell_twice(reader, "key", sorted[i]->name, sorted[i]->position,
                       sorted[i - 1]->position);
}

static void read_keys(const struct reader *reader, const struct fields *fields,
                      struct configured_pool *pool)
{
    const struct yaml_value *list = schema_value(fields, POOL_KEYS);
    if (list == NULL)
        return;
    if (list->kind != YAML_LIST) {
        schema_error(fields, POOL_KEYS, "expected a list of names, found %s",
                     schema_found(list).text);
        return;
    }
    pool->keys = take(reader, count_parts(list) + 1, sizeof(*pool->keys));
    for (const struct yaml_part *part = list->parts; pool->keys != NULL && part != NULL;
         part = part->next)
        read_key(reader, part->value, &pool->keys[pool->n_keys++]);
    refuse_twice(reader, pool);
}

static void read_keys_file(const struct reader *reader, const struct fields *fields,
                           struct configured_pool *pool)
{
    struct span path;
    if (!schema_text(fields, POOL_KEYS_FILE, &path))
        return;
    if (path.len == 0)
        schema_error(fields, POOL_KEYS_FILE, "expected a FILE, found nothing");
    pool->keys_file = arena_text(reader->arena, path);
    if (pool->keys_file == NULL)
        fault(reader, (struct source_position){0}, "out of memory");
}

/* ---- Pools ----------------------------------------------------------------------------------- */

/* A pool whose quotas have errors gets no further diagnostics. */
static void refuse_without_quota(const struct reader *reader, const struct fields *fields,
                                 const struct configured_pool *pool)
{
    static const char message[] = "expected a quota, of this key or of its pool; found none";
    if (pool->quotas.specs != NULL)
        return;
    for (size_t i = 0; i < pool->n_keys; i++)
        if (pool->keys[i].quotas.specs == NULL)
            fault(reader, pool->keys[i].position, message);
    if (pool->keys_file != NULL)
        schema_error(fields, POOL_KEYS_FILE,
                     "its keys have no quota: expected `quota` of the pool");
}

static void read_pool(const struct reader *reader, const struct yaml_value *value,
                      struct configured_pool *pool)
{
    struct fields fields;
    size_t order = STINT_ROUND_ROBIN;
    pool->position = value->position;
    if (!schema_read(reader->source, &pool_shape, value, &fields))
        return;
    read_name_field(reader, &fields, POOL_NAME, &pool->name);
    (void)schema_choice(&fields, POOL_ORDER, pool_orders, N_ORDERS, &order);
    pool->order = (uint8_t)order;
    if (schema_text(&fields, POOL_STORE, &pool->store) && pool->store.len == 0)
        schema_error(&fields, POOL_STORE, "expected the name of a store, found an empty text");
    read_quotas(reader, &fields, POOL_QUOTA, POOL_QUOTAS, &pool->quotas);
    read_keys(reader, &fields, pool);
    read_keys_file(reader, &fields, pool);
    refuse_without_quota(reader, &fields, pool);
}

static void refuse_second(const struct reader *reader, const struct configured_pools *pools)
{
    const struct configured_pool *last = &pools->pools[pools->n_pools - 1];
    for (size_t i = 0; i + 1 < pools->n_pools; i++)
        if (is_same_name(pools->pools[i].name, last->name)) {
            tell_twice(reader, "pool", last->name, last->position, pools->pools[i].position);
            return;
        }
}

static void read_pools(struct configured_pools *pools, struct arena *arena,
                       const struct source *source, const struct yaml_value *section)
{
    const struct reader reader = {arena, source};
    *pools = (struct configured_pools){.path = source->path};
    if (yaml_is_null(section))
        return;
    if (section->kind != YAML_LIST) {
        diagnostics_add(
            source, section->position,
            "pools: expected a list of pools, found %s; how many there may be, pools_max "
            "says",
            schema_found(section).text);
        return;
    }
    size_t n = count_parts(section);
    if (n > POOLS_MAX) {
        diagnostics_add(source, section->position, "pools: expected at most %d, found %zu",
                        POOLS_MAX, n);
        return;
    }
    pools->pools = take(&reader, n + 1, sizeof(*pools->pools));
    for (const struct yaml_part *part = section->parts; pools->pools != NULL && part != NULL;
         part = part->next) {
        read_pool(&reader, part->value, &pools->pools[pools->n_pools++]);
        refuse_second(&reader, pools);
    }
}

/* ---- Creating the pools ---------------------------------------------------------------------- */

/* A secret in such a file is a mistake: the error names its line, and never quotes it. */
static int read_names_of_file(struct pool_keys *named, const char *path, struct stint_error *error)
{
    int code = pool_keys_read_file(named, path, error);
    for (size_t i = 0; code == 0 && i < named->n_keys; i++)
        if (named->keys[i].secret.ptr != NULL)
            code = err_set(error, STINT_E_SYNTAX,
                           "%s, line %zu: expected a NAME alone, found more behind it", path,
                           named->keys[i].position);
    return code;
}

static struct pools_key key_of(struct span name, const struct configured_quotas *quotas,
                               uint32_t weight)
{
    return (struct pools_key){
        .name = name, .quotas = quotas->specs, .n_quotas = quotas->n_specs, .weight = weight};
}

/* now_ns: NULL to check it only, beside the other new pools. */
static int define_pool(const struct configured_pool *pool, const struct pool_keys *named,
                       struct pools *pools, struct pools_new *new, const uint64_t *now_ns,
                       struct stint_error *error)
{
    struct pools_key *keys = calloc(pool->n_keys + named->n_keys + 1, sizeof(*keys));
    size_t n_keys = 0;
    if (keys == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the keys");
    for (size_t i = 0; i < pool->n_keys; i++) {
        const struct configured_key *key = &pool->keys[i];
        keys[n_keys++] =
            key_of(key->name, key->quotas.n_specs > 0 ? &key->quotas : &pool->quotas, key->weight);
    }
    for (size_t i = 0; i < named->n_keys; i++)
        keys[n_keys++] = key_of(span_of_text(named->keys[i].name), &pool->quotas, 1);
    const struct pools_definition definition = {.name = pool->name,
                                                .store = pool->store,
                                                .order = pool->order,
                                                .keys = keys,
                                                .n_keys = n_keys};
    int code = now_ns == NULL ? pools_check(pools, &definition, new, error)
                              : pools_define(pools, &definition, *now_ns, error);
    free(keys);
    return code;
}

static int read_and_define(const struct configured_pool *pool, struct pools *pools,
                           struct pools_new *new, const uint64_t *now_ns, struct stint_error *error)
{
    struct pool_keys named = {0};
    int code = pool->keys_file != NULL ? read_names_of_file(&named, pool->keys_file, error) : 0;
    if (code == 0)
        code = define_pool(pool, &named, pools, new, now_ns, error);
    pool_keys_deinit(&named);
    return code;
}

int configured_pools_define(const struct configured_pools *configured, struct pools *pools,
                            const uint64_t *now_ns, struct stint_error *error)
{
    struct pools_new new = {0};
    for (size_t i = 0; i < configured->n_pools; i++) {
        const struct configured_pool *pool = &configured->pools[i];
        struct stint_error why;
        int code = read_and_define(pool, pools, &new, now_ns, &why);
        if (code != 0)
            return err_set(error, code, "%s:%" PRIu32 ":%" PRIu32 ": %s", configured->path,
                           pool->position.line, pool->position.column, why.message);
    }
    return 0;
}

static bool is_configured(const struct configured_pools *configured, const char *name)
{
    for (size_t i = 0; i < configured->n_pools; i++)
        if (span_equals(configured->pools[i].name, name))
            return true;
    return false;
}

bool configured_pools_lack(const struct configured_pools *configured, const struct pools *pools)
{
    for (size_t i = 0; i < pools_count(pools); i++)
        if (!is_configured(configured, pools_name(pools, i)))
            return true;
    return false;
}

/* ---- The config file ------------------------------------------------------------------------- */

#define FILE_MAX (1u << 20)
#define POOLS_SECTION "pools"

struct config {
    struct settings *settings;
    const char *path;
    bool has_pools;
    struct stint_error *error;
};

static int error_at(const struct config *config, struct source_position position,
                    const char *message)
{
    return err_set(config->error, STINT_E_SYNTAX, "%s:%" PRIu32 ":%" PRIu32 ": %s", config->path,
                   position.line, position.column, message);
}

/* 0 if there is none. Warnings are errors here: no other program reads this format. */
static int first_fault(const struct config *config, const struct rules_diagnostics *diagnostics)
{
    if (diagnostics->n_diagnostics == 0 && diagnostics->n_warnings == 0)
        return 0;
    const struct rules_fault *first =
        diagnostics->n_diagnostics > 0 ? &diagnostics->diagnostics[0] : &diagnostics->warnings[0];
    return error_at(config, (struct source_position){first->line, first->column}, first->message);
}

static int unknown_key(const struct config *config, const struct yaml_value *key)
{
    const char *names[SETTINGS_MAX + 2] = {NULL};
    char message[STINT_ERROR_MAX];
    struct args_hint hint;
    struct quoted_text shown = quoted_text(key->text);
    for (size_t i = 0; i < n_settings_known; i++)
        names[i] = settings_known[i].name;
    names[n_settings_known] = POOLS_SECTION;
    const char *advice = args_hint(&hint, "", shown.text, names);
    bool is_near = strncmp(advice, "did", 3) == 0; /* all names would be too many to list */
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "there is no setting '%s'; %s", shown.text,
            is_near ? advice : "`stint serve --help` lists them all");
    return error_at(config, key->position, message);
}

static int already_there(const struct config *config, const struct yaml_value *key)
{
    return error_at(config, key->position, "this setting is there already");
}

static int set_one(struct config *config, size_t index, const struct yaml_value *value)
{
    struct stint_error why;
    const char *name = settings_known[index].name;
    if (value->kind != YAML_TEXT)
        return error_at(config, value->position, "expected a text or a number here");
    bool is_null = yaml_is_null(value);
    const char *text = is_null ? NULL : arena_text(&config->settings->arena, value->text);
    if (text == NULL && !is_null)
        return error_at(config, value->position, "no memory for the value");
    int code = settings_set(config->settings, index, SETTING_FILE, name, text, &why);
    return code == 0 ? 0 : error_at(config, value->position, why.message);
}

static int set_list(struct config *config, size_t index, const struct yaml_value *list)
{
    int code = settings_set(config->settings, index, SETTING_FILE, settings_known[index].name, NULL,
                            config->error);
    for (const struct yaml_part *part = list->parts; part != NULL && code == 0; part = part->next)
        code = set_one(config, index, part->value);
    return code;
}

static int read_pools_part(struct config *config, const struct yaml_part *part)
{
    struct rules_diagnostics diagnostics = {0};
    const struct source source = {.path = config->path, .diagnostics = &diagnostics};
    if (config->has_pools)
        return already_there(config, part->key);
    config->has_pools = true;
    read_pools(&config->settings->values.pools, &config->settings->arena, &source, part->value);
    diagnostics_sort(&diagnostics, 0, 0);
    int code = first_fault(config, &diagnostics);
    rules_diagnostics_free(&diagnostics);
    return code;
}

static int read_part(struct config *config, const struct yaml_part *part)
{
    if (part->key->kind == YAML_TEXT && span_equals(part->key->text, POOLS_SECTION))
        return read_pools_part(config, part);
    int index = part->key->kind == YAML_TEXT ? setting_find(part->key->text) : -1;
    if (index < 0)
        return unknown_key(config, part->key);
    if (config->settings->origins[index] == SETTING_FILE)
        return already_there(config, part->key);
    return setting_is_list(&settings_known[index]) && part->value->kind == YAML_LIST
               ? set_list(config, (size_t)index, part->value)
               : set_one(config, (size_t)index, part->value);
}

static int read_all(struct config *config, const char *text)
{
    const struct rules_file file = {.path = config->path, .text = span_of_text(text)};
    struct rules_diagnostics diagnostics = {0};
    const struct yaml_value *root = yaml_read(&config->settings->arena, &file, &diagnostics);
    int code = 0;
    if (root == NULL)
        code = first_fault(config, &diagnostics);
    else if (root->kind != YAML_MAP && !yaml_is_null(root))
        code = error_at(config, root->position, "expected settings as NAME: VALUE");
    else
        for (const struct yaml_part *part = root->parts; part != NULL && code == 0;
             part = part->next)
            code = read_part(config, part);
    rules_diagnostics_free(&diagnostics);
    return code;
}

static int read_settings_file(struct settings *settings, const char *path,
                              struct stint_error *error)
{
    struct config config = {.settings = settings, .path = path, .error = error};
    char *text;
    int code = file_text_read(path, FILE_MAX, &text, error);
    if (code != 0)
        return code;
    code = read_all(&config, text);
    free(text);
    return code;
}

/* ---- All of them ----------------------------------------------------------------------------- */

int settings_gather(struct settings *settings, const struct settings_line *line,
                    struct stint_error *error)
{
    if (settings_init(settings, error) != 0)
        return CMD_BAD_INPUT;
    settings->values.config = line->config;
    if (line->config != NULL && read_settings_file(settings, line->config, error) != 0)
        return CMD_BAD_INPUT;
    if (read_environment(settings, error) != 0)
        return CMD_BAD_USAGE;
    for (size_t i = 0; i < line->n_given; i++) {
        const struct settings_given *given = &line->given[i];
        char shown[48];
        snprintf(shown, sizeof(shown), "--%s", option_names[given->index]);
        if (settings_set(settings, given->index, SETTING_OPTION, shown, given->text, error) != 0)
            return CMD_BAD_USAGE;
    }
    /* Last, although weakest: the addresses that it listens at depend on the other settings. */
    if (line->compat != NULL && compat_apply(settings, line->compat, error) != 0)
        return CMD_BAD_USAGE;
    return otel_apply(settings, error) == 0 ? CMD_DONE : CMD_BAD_USAGE;
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* If there is no memory, an empty text is better than the password of a store. */
static void print_element(const struct setting *setting, const char *text)
{
    char field[64];
    char *hidden = setting->kind == SETTING_STORES ? store_word_shown(text) : NULL;
    const char *shown = setting->kind == SETTING_STORES ? hidden : text;
    if (setting->kind == SETTING_FIELDS) {
        snprintf(field, sizeof(field), "%.*s=***", (int)strcspn(text, "="), text);
        shown = field;
    }
    print_yaml_text(stdout, span_of_text(shown != NULL ? shown : ""));
    free(hidden);
}

static void print_list(const struct setting *setting, const struct text_list *list)
{
    for (size_t i = 0; i < list->n_texts; i++) {
        fputs(i > 0 ? ", " : "[", stdout);
        print_element(setting, list->texts[i]);
    }
    fputs(list->n_texts > 0 ? "]" : "[]", stdout);
}

static void print_value(const struct setting *setting, const void *value)
{
    char text[64];
    struct buf buf = buf_of(text, sizeof(text));
    const char *word;
    switch (setting->kind) {
    case SETTING_TEXT:
    case SETTING_FIELD_NAME:
        word = *(const char *const *)value;
        if (word != NULL)
            print_yaml_text(stdout, span_of_text(word));
        else
            fputs("null", stdout);
        return;
    case SETTING_CHOICE:
        print_yaml_text(stdout, span_of_text(setting->choices[*(const unsigned *)value]));
        return;
    case SETTING_LIST:
    case SETTING_ADDRESSES:
    case SETTING_FIELDS:
    case SETTING_STORES:
        print_list(setting, value);
        return;
    case SETTING_SHARE:
        printf("%.9g", (double)*(const uint64_t *)value / (double)SETTING_SHARE_ALL);
        return;
    case SETTING_SWITCH:
        fputs(*(const bool *)value ? "true" : "false", stdout);
        return;
    case SETTING_DURATION:
        spec_format_duration(&buf, *(const uint64_t *)value);
        fputs(text, stdout);
        return;
    default:
        printf("%" PRIu64, *(const uint64_t *)value);
    }
}

/* A member of a pool, unless it is not set. */
static void print_member(const char *name, struct span value)
{
    if (value.len == 0)
        return;
    printf("    %s: ", name);
    print_yaml_text(stdout, value);
    putchar('\n');
}

static void print_quotas(const char *before, const struct configured_quotas *quotas,
                         const char *after)
{
    for (size_t i = 0; i < quotas->n_specs; i++) {
        printf("%s", i > 0 ? ", " : before);
        print_yaml_text(stdout, quotas->specs[i]);
    }
    if (quotas->n_specs > 0)
        printf("]%s", after);
}

static void print_pool(const struct configured_pool *pool)
{
    printf("  - name: ");
    print_yaml_text(stdout, pool->name);
    printf("\n    order: %s\n", pool_orders[pool->order]);
    print_member("store", pool->store);
    print_quotas("    quotas: [", &pool->quotas, "\n");
    if (pool->keys_file != NULL)
        print_member("keys_file", span_of_text(pool->keys_file));
    puts("    keys:");
    for (size_t i = 0; i < pool->n_keys; i++) {
        printf("      - {name: ");
        print_yaml_text(stdout, pool->keys[i].name);
        print_quotas(", quotas: [", &pool->keys[i].quotas, "");
        printf(", weight: %" PRIu32 "}\n", pool->keys[i].weight);
    }
}

void settings_print(const struct serve_settings *settings)
{
    for (size_t i = 0; i < n_settings_known; i++) {
        const struct setting *setting = &settings_known[i];
        printf("# %s\n%s: ", setting->message, setting->name);
        print_value(setting, (const char *)settings + setting->at);
        putchar('\n');
    }
    puts("# Pools of keys that there are from the start\npools:");
    for (size_t i = 0; i < settings->pools.n_pools; i++)
        print_pool(&settings->pools.pools[i]);
}
