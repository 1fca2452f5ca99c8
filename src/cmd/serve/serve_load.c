/* SPDX-License-Identifier: MIT */
/* Reports the first error; `stint rules check` reports all of them. */
#define _GNU_SOURCE
#include "cmd/serve/serve_load.h"

#include "algorithm/spec.h"
#include "cmd/rules/rules_files.h"
#include "cmd/serve/serve_stores.h"
#include "net/file/file_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_FILE_MAX (1u << 20)

static int tell_diagnostics(const struct rules_diagnostics *diagnostics, struct stint_error *error)
{
    const struct rules_fault *first = &diagnostics->diagnostics[0];
    size_t n_others = diagnostics->n_diagnostics + diagnostics->n_more - 1;
    struct buf message = buf_of(error->message, sizeof(error->message));
    error->code = STINT_E_SYNTAX;
    buf_add(&message, "%s:%" PRIu32 ":%" PRIu32 ": %s", first->file, first->line, first->column,
            first->message);
    if (n_others > 0)
        buf_add(&message, " (and %zu more: `stint rules check` prints all)", n_others);
    return error->code;
}

static void tell_warnings(struct log *log, const struct rules_diagnostics *diagnostics)
{
    for (size_t i = 0; i < diagnostics->n_warnings; i++) {
        const struct rules_fault *warning = &diagnostics->warnings[i];
        log_line(log, LOG_RULES_WARNING, LOG_TEXT("file", warning->file),
                 LOG_NUMBER("line", warning->line), LOG_NUMBER("column", warning->column),
                 LOG_TEXT("reason", warning->message));
    }
}

/* Rules without limits are refused, unless that is allowed. */
static int check_empty(const struct serve_settings *settings, const struct rules_files *files,
                       const struct rules *rules, struct log *log, struct stint_error *error)
{
    struct stint_error why;
    int code = rules_files_check((const char *const *)settings->rules.texts,
                                 settings->rules.n_texts, files, rules, &why);
    if (code == 0)
        return 0;
    if (!settings->rules_may_be_empty)
        return err_set(error, code, "%s", why.message);
    log_line(log, LOG_RULES_EMPTY, LOG_TEXT("reason", why.message));
    return 0;
}

static int load_rules(const struct serve_settings *settings, const struct serve_settings *started,
                      struct log *log, struct rules **rules, struct stint_error *error)
{
    const char *nearest;
    struct serve_store_names stores;
    struct rules_load_options options = {
        .merge_domains = settings->merge_domains,
        .default_algorithm =
            (uint8_t)spec_algorithm(span_of_text(settings->default_algorithm), &nearest),
    };
    struct rules_files files;
    struct rules_diagnostics diagnostics = {0};
    int code = serve_store_names(started, &stores, error);
    if (code != 0)
        return code;
    serve_store_rules(started, &stores, &options);
    code = rules_files_read((const char *const *)settings->rules.texts, settings->rules.n_texts,
                            &files, error);
    if (code != 0)
        return code;
    *rules = rules_load(files.files, files.n_files, &options, &diagnostics);
    if (*rules == NULL)
        code = tell_diagnostics(&diagnostics, error);
    else {
        tell_warnings(log, &diagnostics);
        code = check_empty(settings, &files, *rules, log, error);
    }
    rules_diagnostics_free(&diagnostics);
    rules_files_free(&files);
    if (code != 0) {
        rules_unref(*rules);
        *rules = NULL;
    }
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

int serve_load(const struct serve_settings *settings, const struct serve_settings *started,
               struct log *log, struct serve_loaded *loaded, struct stint_error *error)
{
    struct rules *rules = NULL;
    int code = 0;
    *loaded = (struct serve_loaded){0};
    if (settings->rules.n_texts == 0 && started->rules.n_texts > 0 && !settings->rules_may_be_empty)
        return err_set(
            error, STINT_E_MISMATCH,
            "rules: the server started with rules, and none are given any more; give some, or "
            "allow that with rules_may_be_empty");
    if (settings->rules.n_texts > 0)
        code = load_rules(settings, started, log, &rules, error);
    if (code == 0)
        code = serve_load_tokens(settings, loaded, error);
    if (code == 0)
        loaded->rules = rules;
    else
        rules_unref(rules);
    return code;
}

enum log_level serve_log_level(const struct serve_settings *settings)
{
    const char *name = settings->log_level;
    return strcmp(name, "debug") == 0  ? LOG_LEVEL_DEBUG
           : strcmp(name, "info") == 0 ? LOG_LEVEL_INFO
           : strcmp(name, "warn") == 0 ? LOG_LEVEL_WARN
                                       : LOG_LEVEL_ERROR;
}

enum log_format serve_log_format(const struct serve_settings *settings)
{
    return strcmp(settings->log_format, "json") == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
}
