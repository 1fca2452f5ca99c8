/* SPDX-License-Identifier: MIT */
/* The config file: one mapping of names to values, read with the places at which they stand. */
#define _GNU_SOURCE
#include "cmd/args.h"
#include "cmd/serve_settings.h"
#include "core/spec.h"
#include "io/file_text.h"
#include "rules/yaml_value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (1u << 20)

struct config {
    struct settings *settings;
    const char *path;
    struct arena arena;
    struct stint_error *error;
};

static int fault_at(const struct config *config, struct fault_place place, const char *sentence)
{
    return err_set(config->error, STINT_E_SYNTAX, "%s:%" PRIu32 ":%" PRIu32 ": %s", config->path,
                   place.line, place.column, sentence);
}

static int unknown_key(const struct config *config, const struct yaml_value *key)
{
    const char *names[SETTINGS_MAX + 1] = {NULL};
    char sentence[STINT_ERROR_MAX];
    struct args_hint hint;
    struct fault_text shown = fault_text(key->text);
    for (size_t i = 0; i < n_settings_known; i++)
        names[i] = settings_known[i].name;
    const char *advice = args_hint(&hint, "", shown.text, names);
    bool is_near = strncmp(advice, "did", 3) == 0; /* all names would be too many to list */
    struct buf buf = buf_of(sentence, sizeof(sentence));
    buf_add(&buf, "there is no setting '%s'; %s", shown.text,
            is_near ? advice : "`stint serve --help` lists them all");
    return fault_at(config, key->place, sentence);
}

static int set_one(struct config *config, size_t index, const struct yaml_value *value)
{
    struct stint_error why;
    const char *name = settings_known[index].name;
    if (value->kind != YAML_TEXT)
        return fault_at(config, value->place, "expected a text or a number here");
    bool is_null = yaml_is_null(value);
    const char *text = is_null ? NULL : arena_text(&config->arena, value->text);
    if (text == NULL && !is_null)
        return fault_at(config, value->place, "no memory for the value");
    int code = settings_set(config->settings, index, SETTING_FILE, name, text, &why);
    return code == 0 ? 0 : fault_at(config, value->place, why.sentence);
}

static int set_list(struct config *config, size_t index, const struct yaml_value *list)
{
    int code = settings_set(config->settings, index, SETTING_FILE, settings_known[index].name, NULL,
                            config->error);
    for (const struct yaml_part *part = list->parts; part != NULL && code == 0; part = part->next)
        code = set_one(config, index, part->value);
    return code;
}

static int read_part(struct config *config, const struct yaml_part *part)
{
    int index = part->key->kind == YAML_TEXT ? setting_find(part->key->text, '_') : -1;
    if (index < 0)
        return unknown_key(config, part->key);
    if (config->settings->origins[index] == SETTING_FILE)
        return fault_at(config, part->key->place, "this setting is there already");
    enum setting_kind kind = settings_known[index].kind;
    bool takes_list = kind == SETTING_LIST || kind == SETTING_PLACES;
    return takes_list && part->value->kind == YAML_LIST
               ? set_list(config, (size_t)index, part->value)
               : set_one(config, (size_t)index, part->value);
}

static int read_all(struct config *config, const char *text)
{
    const struct rules_file file = {.path = config->path, .text = span_of_text(text)};
    struct rules_faults faults = {0};
    const struct yaml_value *root = yaml_read(&config->arena, &file, &faults);
    int code = 0;
    if (root == NULL) {
        const struct rules_fault *fault = &faults.faults[0];
        code = fault_at(config, (struct fault_place){fault->line, fault->column}, fault->sentence);
    } else if (root->kind != YAML_MAP && !yaml_is_null(root))
        code = fault_at(config, root->place, "expected settings as NAME: VALUE");
    else
        for (const struct yaml_part *part = root->parts; part != NULL && code == 0;
             part = part->next)
            code = read_part(config, part);
    rules_faults_free(&faults);
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
    arena_free(&config.arena);
    free(text);
    return code;
}

/* ---- The way back ---------------------------------------------------------------------------- */

static void print_quoted(const char *text, FILE *out)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\x%02x", *c);
        else
            fputc(*c, out);
    fputc('"', out);
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
    case SETTING_PLACES:
        print_list(value, out);
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

void settings_print(const struct settings *settings, FILE *out)
{
    for (size_t i = 0; i < n_settings_known; i++) {
        const struct setting *setting = &settings_known[i];
        const void *value = (const char *)&settings->values + setting->at;
        fprintf(out, "# %s\n%s: ", setting->sentence, setting->name);
        print_value(setting, value, out);
        fputc('\n', out);
    }
}
