/* SPDX-License-Identifier: MIT */
/* The config file: one mapping of names to values, with their positions. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "cmd/lib/args.h"
#include "cmd/serve/serve_settings.h"
#include "net/file/file_text.h"
#include "rules/yaml/yaml_value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (1u << 20)
#define POOLS_SECTION "pools"

struct config {
    struct settings *settings;
    const char *path;
    bool has_pools;
    struct stint_error *error;
};

static int fault_at(const struct config *config, struct fault_place place, const char *message)
{
    return err_set(config->error, STINT_E_SYNTAX, "%s:%" PRIu32 ":%" PRIu32 ": %s", config->path,
                   place.line, place.column, message);
}

/* 0 if there is none. Warnings are errors here: no other program reads this format. */
static int first_fault(const struct config *config, const struct rules_diagnostics *diagnostics)
{
    if (diagnostics->n_diagnostics == 0 && diagnostics->n_warnings == 0)
        return 0;
    const struct rules_fault *first =
        diagnostics->n_diagnostics > 0 ? &diagnostics->diagnostics[0] : &diagnostics->warnings[0];
    return fault_at(config, (struct fault_place){first->line, first->column}, first->message);
}

static int unknown_key(const struct config *config, const struct yaml_value *key)
{
    const char *names[SETTINGS_MAX + 2] = {NULL};
    char message[STINT_ERROR_MAX];
    struct args_hint hint;
    struct fault_text shown = fault_text(key->text);
    for (size_t i = 0; i < n_settings_known; i++)
        names[i] = settings_known[i].name;
    names[n_settings_known] = POOLS_SECTION;
    const char *advice = args_hint(&hint, "", shown.text, names);
    bool is_near = strncmp(advice, "did", 3) == 0; /* all names would be too many to list */
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "there is no setting '%s'; %s", shown.text,
            is_near ? advice : "`stint serve --help` lists them all");
    return fault_at(config, key->place, message);
}

static int already_there(const struct config *config, const struct yaml_value *key)
{
    return fault_at(config, key->place, "this setting is there already");
}

static int set_one(struct config *config, size_t index, const struct yaml_value *value)
{
    struct stint_error why;
    const char *name = settings_known[index].name;
    if (value->kind != YAML_TEXT)
        return fault_at(config, value->place, "expected a text or a number here");
    bool is_null = yaml_is_null(value);
    const char *text = is_null ? NULL : arena_text(&config->settings->arena, value->text);
    if (text == NULL && !is_null)
        return fault_at(config, value->place, "no memory for the value");
    int code = settings_set(config->settings, index, SETTING_FILE, name, text, &why);
    return code == 0 ? 0 : fault_at(config, value->place, why.message);
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
        code = fault_at(config, root->place, "expected settings as NAME: VALUE");
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
