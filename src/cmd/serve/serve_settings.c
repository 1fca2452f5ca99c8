/* SPDX-License-Identifier: MIT */
/* Parses values, each by its kind; serve_config.c and serve.c find the texts. */
#define _GNU_SOURCE
#include "cmd/serve/serve_settings.h"
#include "base/buf.h"

#include "algorithm/spec.h"
#include "cmd/lib/args.h"
#include "cmd/store/store_word.h"
#include "net/listen/endpoint.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

bool setting_is_list(const struct setting *setting)
{
    return setting->kind == SETTING_LIST || setting->kind == SETTING_PLACES ||
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
    case SETTING_PLACES:
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
    case SETTING_PLACES:
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
