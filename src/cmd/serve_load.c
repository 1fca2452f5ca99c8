/* SPDX-License-Identifier: MIT */
/* Everything is read before anything is put in force: a fault in one file leaves all as it was. */
#define _GNU_SOURCE
#include "cmd/serve_load.h"

#include "cmd/rules_files.h"
#include "core/spec.h"
#include "io/file_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_FILE_MAX (1u << 20)

static int tell_faults(const struct rules_faults *faults, struct stint_error *error)
{
    const struct rules_fault *first = &faults->faults[0];
    size_t n_others = faults->n_faults + faults->n_more - 1;
    struct buf sentence = buf_of(error->sentence, sizeof(error->sentence));
    error->code = STINT_E_SYNTAX;
    buf_add(&sentence, "%s:%" PRIu32 ":%" PRIu32 ": %s", first->file, first->line, first->column,
            first->sentence);
    if (n_others > 0)
        buf_add(&sentence, " (and %zu more: `stint rules check` tells all)", n_others);
    return error->code;
}

static int load_rules(const struct serve_settings *settings, struct rules **rules,
                      struct stint_error *error)
{
    const char *nearest;
    struct rules_load_options options = {
        .merge_domains = settings->merge_domains,
        .default_algorithm =
            (uint8_t)spec_algorithm(span_of_text(settings->default_algorithm), &nearest),
    };
    struct rules_files files;
    struct rules_faults faults = {0};
    int code = rules_files_read((const char *const *)settings->rules.texts, settings->rules.n_texts,
                                &files, error);
    if (code != 0)
        return code;
    *rules = rules_load(files.files, files.n_files, &options, &faults);
    if (*rules == NULL)
        code = tell_faults(&faults, error);
    rules_faults_free(&faults);
    rules_files_free(&files);
    return code;
}

static int load_tokens(const struct serve_settings *settings, struct access **access,
                       struct stint_error *error)
{
    char *text;
    int code = file_text_read(settings->tokens, TOKENS_FILE_MAX, &text, error);
    if (code != 0)
        return code;
    code = access_load(access, settings->tokens, span_of_text(text), error);
    explicit_bzero(text, strlen(text));
    free(text);
    return code;
}

int serve_load_tokens(const struct serve_settings *settings, struct serve_loaded *loaded,
                      struct stint_error *error)
{
    *loaded = (struct serve_loaded){0};
    return settings->tokens != NULL ? load_tokens(settings, &loaded->access, error) : 0;
}

int serve_load(const struct serve_settings *settings, struct serve_loaded *loaded,
               struct stint_error *error)
{
    struct rules *rules = NULL;
    int code = 0;
    if (settings->rules.n_texts > 0)
        code = load_rules(settings, &rules, error);
    if (code == 0)
        code = serve_load_tokens(settings, loaded, error);
    if (code == 0)
        loaded->rules = rules;
    else
        rules_unref(rules);
    return code;
}

int serve_reload(void *arg, struct stint_error *error)
{
    struct serve_reload *reload = arg;
    struct serve_loaded loaded;
    int code = serve_load(reload->settings, &loaded, error);
    if (code != 0)
        return code;
    if (loaded.rules != NULL)
        code = hub_set_rules(reload->hub, loaded.rules, error);
    rules_unref(loaded.rules);
    if (code == 0 && loaded.access != NULL)
        access_now_set(reload->access, loaded.access);
    else
        access_unref(loaded.access);
    return code;
}
