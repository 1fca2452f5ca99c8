/* SPDX-License-Identifier: MIT */
/* Settings: values parsed by their kind, read from a config file, and printed as one. */
#define _GNU_SOURCE
#include "cmd/serve/serve_settings.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "cmd/lib/args.h"
#include "cmd/store/store_word.h"
#include "net/file.h"
#include "net/listen/endpoint.h"
#include "rules/yaml/yaml_value.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values ---------------------------------------------------------------------------------- */

#define ENVIRONMENT_PREFIX "STINT_"

int setting_find(struct span name, char separator)
{
    for (size_t i = 0; i < n_settings_known; i++) {
        const char *known = settings_known[i].name;
        size_t at = 0;
        while (at < name.len && known[at] != '\0' &&
               name.ptr[at] == (known[at] == '_' ? separator : known[at]))
            at++;
        if (at == name.len && known[at] == '\0')
            return (int)i;
    }
    return -1;
}

/* ---- One value of each kind ------------------------------------------------------------------ */

static int out_of_range(const struct setting *setting, const char *shown, const char *text,
                        struct stint_error *error)
{
    char least[64], most[64];
    struct buf min = buf_of(least, sizeof(least)), max = buf_of(most, sizeof(most));
    if (setting->kind == SETTING_DURATION) {
        spec_format_duration(&min, setting->min);
        spec_format_duration(&max, setting->max);
    } else {
        buf_add(&min, "%" PRIu64, setting->min);
        buf_add(&max, "%" PRIu64, setting->max);
    }
    return err_set(error, STINT_E_RANGE, "%s: expected %s from %s to %s, not '%s'", shown,
                   setting->kind == SETTING_DURATION ? "a time such as 500ms, 30s or 5m"
                   : setting->kind == SETTING_BYTES  ? "a number of bytes, also as 64KiB or 1MiB,"
                                                     : "a whole number",
                   least, most, text);
}

static bool read_digits(const char **at, uint64_t *number)
{
    const char *from = *at;
    *number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(**at - '0'), number))
            return false;
    return *at != from;
}

static bool read_unit(const char *at, uint64_t *number)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(at, units[i].name) == 0)
            return !__builtin_mul_overflow(*number, UINT64_C(1) << units[i].shift, number);
    return false;
}

static int set_number(const struct setting *setting, uint64_t *number, const char *shown,
                      const char *text, struct stint_error *error)
{
    const char *at = text;
    bool is_read = setting->kind == SETTING_DURATION
                       ? strcmp(text, "0") == 0
                             ? (*number = 0, true)
                             : spec_parse_duration(span_of_text(text), number) == 0
                       : read_digits(&at, number) &&
                             (setting->kind == SETTING_BYTES ? read_unit(at, number) : *at == '\0');
    if (!is_read || *number < setting->min || *number > setting->max)
        return out_of_range(setting, shown, text, error);
    return 0;
}

static int set_switch(bool *value, const char *shown, const char *text, struct stint_error *error)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *value = i % 2 == 1;
            return 0;
        }
    return err_set(error, STINT_E_SYNTAX, "%s: expected true or false, not '%s'", shown, text);
}

static int check_choice(const struct setting *setting, const char *shown, const char *text,
                        struct stint_error *error)
{
    struct args_hint hint;
    for (const char *const *choice = setting->choices; choice != NULL && *choice != NULL; choice++)
        if (strcmp(*choice, text) == 0)
            return 0;
    if (setting->choices == NULL)
        return 0;
    return err_set(error, STINT_E_SYNTAX, "%s cannot be '%s'; %s", shown, text,
                   args_hint(&hint, "", text, setting->choices));
}

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
}

static int set_text(char **value, const char *text, struct stint_error *error)
{
    char *copy = strdup(text);
    if (copy == NULL)
        return no_memory(error);
    free(*value);
    *value = copy;
    return 0;
}

int settings_put_text(char **value, const char *text, struct stint_error *error)
{
    if (text != NULL)
        return set_text(value, text, error);
    free(*value);
    *value = NULL;
    return 0;
}

static void list_clear(struct text_list *list)
{
    for (size_t i = 0; i < list->n_texts; i++)
        free(list->texts[i]);
    free(list->texts);
    *list = (struct text_list){0};
}

static int list_add(struct text_list *list, const char *text, struct stint_error *error)
{
    char **texts = realloc(list->texts, (list->n_texts + 2) * sizeof(char *));
    if (texts == NULL)
        return no_memory(error);
    list->texts = texts;
    list->texts[list->n_texts] = list->texts[list->n_texts + 1] = NULL;
    int code = set_text(&list->texts[list->n_texts], text, error);
    list->n_texts += code == 0;
    return code;
}

static int check_place(const char *shown, const char *text, struct stint_error *error)
{
    struct endpoint endpoint;
    struct stint_error why;
    int code = endpoint_parse(&endpoint, text, &why);
    return code == 0 ? 0 : err_set(error, code, "%s: %s", shown, why.message);
}

static int check_store(const char *shown, const char *text, struct stint_error *error)
{
    struct store_word word;
    struct stint_error why;
    int code = store_word_read(&word, text, &why);
    return code == 0 ? 0 : err_set(error, code, "%s: %s", shown, why.message);
}

/* A list of texts, of whatever kind. */
static bool setting_is_list(const struct setting *setting)
{
    return setting->kind == SETTING_LIST || setting->kind == SETTING_ADDRESSES ||
           setting->kind == SETTING_STORES;
}

static void *value_at(struct serve_settings *values, const struct setting *setting)
{
    return (char *)values + setting->at;
}

static void clear(struct serve_settings *values, const struct setting *setting)
{
    char **text = value_at(values, setting);
    if (setting_is_list(setting))
        list_clear(value_at(values, setting));
    else if (setting->kind == SETTING_TEXT) {
        free(*text);
        *text = NULL;
    }
}

static int set_value(struct serve_settings *values, const struct setting *setting,
                     const char *shown, const char *text, struct stint_error *error)
{
    void *value = value_at(values, setting);
    int code;
    switch (setting->kind) {
    case SETTING_TEXT:
        return text[0] != '\0' ? set_text(value, text, error)
                               : err_set(error, STINT_E_SYNTAX, "%s: expected a %s, found nothing",
                                         shown, setting->argument);
    case SETTING_CHOICE:
        code = check_choice(setting, shown, text, error);
        return code != 0 ? code : set_text(value, text, error);
    case SETTING_LIST:
        code = check_choice(setting, shown, text, error);
        return code != 0 ? code : list_add(value, text, error);
    case SETTING_ADDRESSES:
        code = check_place(shown, text, error);
        return code != 0 ? code : list_add(value, text, error);
    case SETTING_STORES:
        code = check_store(shown, text, error);
        return code != 0 ? code : list_add(value, text, error);
    case SETTING_SWITCH:
        return set_switch(value, shown, text, error);
    default:
        return set_number(setting, value, shown, text, error);
    }
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool is_same_list(const struct text_list *a, const struct text_list *b)
{
    bool is_same = a->n_texts == b->n_texts;
    for (size_t i = 0; i < a->n_texts && is_same; i++)
        is_same = strcmp(a->texts[i], b->texts[i]) == 0;
    return is_same;
}

bool setting_is_same(size_t index, const struct serve_settings *a, const struct serve_settings *b)
{
    const struct setting *setting = &settings_known[index];
    const void *at_a = (const char *)a + setting->at, *at_b = (const char *)b + setting->at;
    switch (setting->kind) {
    case SETTING_TEXT:
    case SETTING_CHOICE:
        return is_same_text(*(char *const *)at_a, *(char *const *)at_b);
    case SETTING_LIST:
    case SETTING_ADDRESSES:
    case SETTING_STORES:
        return is_same_list(at_a, at_b);
    case SETTING_SWITCH:
        return *(const bool *)at_a == *(const bool *)at_b;
    default:
        return *(const uint64_t *)at_a == *(const uint64_t *)at_b;
    }
}

/* ---- All of them ----------------------------------------------------------------------------- */

int settings_set(struct settings *settings, size_t index, enum setting_origin origin,
                 const char *shown, const char *text, struct stint_error *error)
{
    const struct setting *setting = &settings_known[index];
    if (settings->origins[index] != origin) {
        if (text == NULL || setting_is_list(setting))
            clear(&settings->values, setting);
        settings->origins[index] = origin;
    }
    return text == NULL ? 0 : set_value(&settings->values, setting, shown, text, error);
}

/* The elements of a list are in one text, with ';' between them. */
static int set_joined(struct settings *settings, size_t index, enum setting_origin origin,
                      const char *shown, const char *text, struct stint_error *error)
{
    if (!setting_is_list(&settings_known[index]))
        return settings_set(settings, index, origin, shown, text, error);
    char *copy = strdup(text), *rest = NULL;
    int code =
        copy == NULL ? no_memory(error) : settings_set(settings, index, origin, shown, NULL, error);
    for (char *part = copy == NULL ? NULL : strtok_r(copy, ";", &rest); part != NULL && code == 0;
         part = strtok_r(NULL, ";", &rest))
        code = settings_set(settings, index, origin, shown, part, error);
    free(copy);
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

void settings_deinit(struct settings *settings)
{
    for (size_t i = 0; i < n_settings_known; i++) {
        clear(&settings->values, &settings_known[i]);
        if (settings_known[i].kind == SETTING_CHOICE)
            free(*(char **)value_at(&settings->values, &settings_known[i]));
    }
    arena_free(&settings->arena);
}

int settings_read_environment(struct settings *settings, struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < n_settings_known && code == 0; i++) {
        char name[64];
        struct buf buf = buf_of(name, sizeof(name));
        buf_add(&buf, ENVIRONMENT_PREFIX "%s", settings_known[i].name);
        for (char *c = name; *c != '\0'; c++)
            *c = (char)toupper((unsigned char)*c);
        const char *text = getenv(name);
        if (text != NULL)
            code = set_joined(settings, i, SETTING_ENVIRONMENT, name, text, error);
    }
    return code;
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

static int read_pools(struct config *config, const struct yaml_part *part)
{
    struct rules_diagnostics diagnostics = {0};
    const struct source source = {config->path, &diagnostics};
    if (config->has_pools)
        return already_there(config, part->key);
    config->has_pools = true;
    configured_pools_read(&config->settings->values.pools, &config->settings->arena, &source,
                          part->value);
    diagnostics_sort(&diagnostics, 0, 0);
    int code = first_fault(config, &diagnostics);
    rules_diagnostics_free(&diagnostics);
    return code;
}

static int read_part(struct config *config, const struct yaml_part *part)
{
    if (part->key->kind == YAML_TEXT && span_equals(part->key->text, POOLS_SECTION))
        return read_pools(config, part);
    int index = part->key->kind == YAML_TEXT ? setting_find(part->key->text, '_') : -1;
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

int settings_read_file(struct settings *settings, const char *path, struct stint_error *error)
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

/* ---- Printing -------------------------------------------------------------------------------- */

static void print_span(struct span text, FILE *out)
{
    fputc('"', out);
    for (const uint8_t *c = text.ptr; c < text.ptr + text.len; c++)
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\x%02x", *c);
        else
            fputc(*c, out);
    fputc('"', out);
}

static void print_quoted(const char *text, FILE *out)
{
    print_span(span_of_text(text), out);
}

static void print_list(const struct text_list *list, FILE *out)
{
    fputc('[', out);
    for (size_t i = 0; i < list->n_texts; i++) {
        fputs(i > 0 ? ", " : "", out);
        print_quoted(list->texts[i], out);
    }
    fputc(']', out);
}

/* If there is no memory, an empty text is better than a password. */
static void print_stores(const struct text_list *list, FILE *out)
{
    fputc('[', out);
    for (size_t i = 0; i < list->n_texts; i++) {
        char *shown = store_word_shown(list->texts[i]);
        fputs(i > 0 ? ", " : "", out);
        print_quoted(shown != NULL ? shown : "", out);
        free(shown);
    }
    fputc(']', out);
}

static void print_duration(uint64_t ns, FILE *out)
{
    char text[64];
    struct buf buf = buf_of(text, sizeof(text));
    spec_format_duration(&buf, ns);
    fputs(text, out);
}

static void print_value(const struct setting *setting, const void *value, FILE *out)
{
    const char *text;
    switch (setting->kind) {
    case SETTING_TEXT:
    case SETTING_CHOICE:
        text = *(char *const *)value;
        if (text != NULL)
            print_quoted(text, out);
        else
            fputs("null", out);
        return;
    case SETTING_LIST:
    case SETTING_ADDRESSES:
        print_list(value, out);
        return;
    case SETTING_STORES:
        print_stores(value, out);
        return;
    case SETTING_SWITCH:
        fputs(*(const bool *)value ? "true" : "false", out);
        return;
    case SETTING_DURATION:
        print_duration(*(const uint64_t *)value, out);
        return;
    default:
        fprintf(out, "%" PRIu64, *(const uint64_t *)value);
    }
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static void print_quotas(const struct configured_quotas *quotas, FILE *out)
{
    fputs("quotas: [", out);
    for (size_t i = 0; i < quotas->n_specs; i++) {
        fputs(i > 0 ? ", " : "", out);
        print_span(quotas->specs[i], out);
    }
    fputc(']', out);
}

static void print_key(const struct configured_key *key, FILE *out)
{
    fputs("      - {name: ", out);
    print_span(key->name, out);
    if (key->quotas.n_specs > 0) {
        fputs(", ", out);
        print_quotas(&key->quotas, out);
    }
    fprintf(out, ", weight: %" PRIu32 "}\n", key->weight);
}

static void print_pool(const struct configured_pool *pool, FILE *out)
{
    fputs("  - name: ", out);
    print_span(pool->name, out);
    fprintf(out, "\n    order: %s\n", configured_pool_orders[pool->order]);
    if (pool->store.len > 0) {
        fputs("    store: ", out);
        print_span(pool->store, out);
        fputc('\n', out);
    }
    if (pool->quotas.n_specs > 0) {
        fputs("    ", out);
        print_quotas(&pool->quotas, out);
        fputc('\n', out);
    }
    if (pool->keys_file != NULL) {
        fputs("    keys_file: ", out);
        print_quoted(pool->keys_file, out);
        fputc('\n', out);
    }
    fputs("    keys:\n", out);
    for (size_t i = 0; i < pool->n_keys; i++)
        print_key(&pool->keys[i], out);
}

/* ---- All of them ----------------------------------------------------------------------------- */

void settings_print(const struct settings *settings, FILE *out)
{
    for (size_t i = 0; i < n_settings_known; i++) {
        const struct setting *setting = &settings_known[i];
        const void *value = (const char *)&settings->values + setting->at;
        fprintf(out, "# %s\n%s: ", setting->message, setting->name);
        print_value(setting, value, out);
        fputc('\n', out);
    }
    fputs("# Pools of keys that there are from the start\npools:\n", out);
    for (size_t i = 0; i < settings->values.pools.n_pools; i++)
        print_pool(&settings->values.pools.pools[i], out);
}
