/* SPDX-License-Identifier: MIT */
/* Settings as a config file, which settings_read_file() takes back. */
#include "algorithm/spec.h"
#include "cmd/serve/serve_settings.h"
#include "cmd/store/store_word.h"

#include <inttypes.h>
#include <stdlib.h>

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
    case SETTING_PLACES:
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
