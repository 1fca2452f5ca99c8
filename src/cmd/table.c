/* SPDX-License-Identifier: MIT */
/* `stint table`: reads a table file without changing it. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "stint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_SHOWN 10
#define KEYS_MAX (1u << 20)
#define QUOTAS_MAX 64 /* listed one by one; further quotas are counted together */
#define SPEC_MAX 256

struct table_options {
    const char *path;
    uint64_t keys_shown;
    bool json;
};

struct quota_count {
    char spec[SPEC_MAX];
    uint64_t live, denying;
};

struct view {
    struct stint_table_info info;
    struct quota_count quotas[QUOTAS_MAX];
    size_t n_quotas;
    uint64_t others; /* live states of further quotas */
    struct stint_entry *offenders;
    size_t n_offenders, offenders_max;
};

static const struct args_option options_known[] = {
    {"keys", "N", 0, "Show the N keys with the least left (default 10)",
     ARGS_NUMBER(struct table_options, keys_shown, KEYS_MAX)},
    {"json", NULL, 0, "The same as one JSON object", ARGS_FLAG(struct table_options, json)},
    {0},
};

static void set_path(struct argp_state *state, void *input, char *word)
{
    args_file(state, &((struct table_options *)input)->path, word);
}

static void check(struct argp_state *state, void *input)
{
    if (((const struct table_options *)input)->path == NULL)
        argp_error(state, "expected the FILE of a table");
}

/* Least left as a share of the limit; of equals, the longest until the state is unused. */
static int by_offence(const void *a, const void *b)
{
    const struct stint_decision *x = &((const struct stint_entry *)a)->decision;
    const struct stint_decision *y = &((const struct stint_entry *)b)->decision;
    uint64_t x_left = (uint64_t)x->remaining * (y->limit > 0 ? y->limit : 1);
    uint64_t y_left = (uint64_t)y->remaining * (x->limit > 0 ? x->limit : 1);
    if (x_left != y_left)
        return x_left < y_left ? -1 : 1;
    if (x->reset_after_ns != y->reset_after_ns)
        return x->reset_after_ns > y->reset_after_ns ? -1 : 1;
    return 0;
}

static void count_quota(struct view *view, const struct stint_entry *entry)
{
    char spec[SPEC_MAX];
    size_t i = 0;
    stint_quota_format(&entry->quota, spec, sizeof(spec));
    while (i < view->n_quotas && strcmp(view->quotas[i].spec, spec) != 0)
        i++;
    if (i == QUOTAS_MAX) {
        view->others++;
        return;
    }
    if (i == view->n_quotas)
        memcpy(view->quotas[view->n_quotas++].spec, spec, sizeof(spec));
    view->quotas[i].live++;
    view->quotas[i].denying += entry->decision.outcome != STINT_ALLOW;
}

/* Keeps the keys with the least left in a buffer of twice their number, halved when full. */
static bool visit(const struct stint_entry *entry, void *arg)
{
    struct view *view = arg;
    count_quota(view, entry);
    if (view->n_offenders == 2 * view->offenders_max) {
        qsort(view->offenders, view->n_offenders, sizeof(*view->offenders), by_offence);
        view->n_offenders = view->offenders_max;
    }
    view->offenders[view->n_offenders++] = *entry;
    return true;
}

static int look(struct view *view, const struct stint_table *table, uint64_t keys_shown)
{
    view->offenders_max = (size_t)keys_shown;
    view->offenders = calloc(2 * view->offenders_max, sizeof(*view->offenders));
    if (view->offenders == NULL)
        return -1;
    uint64_t now_ns = stint_now(table);
    stint_table_info(table, now_ns, &view->info);
    stint_table_each(table, now_ns, visit, view);
    qsort(view->offenders, view->n_offenders, sizeof(*view->offenders), by_offence);
    if (view->n_offenders > view->offenders_max)
        view->n_offenders = view->offenders_max;
    return 0;
}

static void print_text(const struct table_options *options, const struct view *view)
{
    static const char *const classes[] = {"8-byte states", "16-byte states", "wide states"};
    const struct stint_table_info *info = &view->info;
    struct formatted text, slots, percent;
    printf("%s: %s, %s clock\n\n", options->path, format_bytes(&text, info->bytes),
           info->clock == STINT_CLOCK_VIRTUAL ? "virtual" : "real");
    for (size_t i = 0; i < 3; i++)
        if (info->slots[i] > 0)
            printf("  %-14s %12s of %12s live  %s\n", classes[i],
                   format_count(&text, info->live[i]), format_count(&slots, info->slots[i]),
                   format_percent(&percent, info->live[i], info->slots[i]));
    printf("  wide states have up to %" PRIu32 " bytes; room for %" PRIu32 " tickets; %" PRIu64
           " keys are blocked\n",
           info->wide_size, info->tickets, info->blocked);
    printf("  clocks of callers may differ by %s\n", format_duration(&text, info->skew_max_ns));
    printf("  decisions on new keys without a free slot: %" PRIu64 " wait, %" PRIu64
           " evict another (%" PRIu64 " units forgotten), %" PRIu64 " deny, %" PRIu64 " allow\n",
           info->evictions_inherit, info->evictions_evict, info->forgotten_units, info->full_denied,
           info->full_allowed);
    if (info->states_damaged > 0)
        printf("  damaged: %" PRIu64 " states, found when the table was opened\n",
               info->states_damaged);
    printf("\nquotas (%" PRIu32 " of at most %" PRIu32 ")\n", info->quotas, info->quotas_max);
    for (size_t i = 0; i < view->n_quotas; i++)
        printf("  %s: %" PRIu64 " live, %" PRIu64 " denying\n", view->quotas[i].spec,
               view->quotas[i].live, view->quotas[i].denying);
    if (view->others > 0)
        printf("  others: %" PRIu64 " live\n", view->others);
    if (view->n_offenders > 0)
        puts("\nkey (hash)         remaining of limit   reset   quota");
    for (size_t i = 0; i < view->n_offenders; i++) {
        const struct stint_entry *entry = &view->offenders[i];
        char spec[SPEC_MAX];
        stint_quota_format(&entry->quota, spec, sizeof(spec));
        if (entry->quota.algorithm == STINT_COUNTER)
            printf("  %016" PRIx64 " %20" PRIu64 " %7s   counter\n", entry->key_hash, entry->count,
                   format_seconds_up(&text, entry->decision.reset_after_ns));
        else
            printf("  %016" PRIx64 " %8" PRIu32 " of %-8" PRIu32 " %7s   %s\n", entry->key_hash,
                   entry->decision.remaining, entry->decision.limit,
                   format_seconds_up(&text, entry->decision.reset_after_ns), spec);
    }
}

static json_t *entry_json(const struct stint_entry *entry)
{
    char hash[24], spec[SPEC_MAX];
    snprintf(hash, sizeof(hash), "%016" PRIx64, entry->key_hash);
    stint_quota_format(&entry->quota, spec, sizeof(spec));
    if (entry->quota.algorithm == STINT_COUNTER)
        return json_pack("{s:s, s:s, s:I, s:o}", "key_hash", hash, "quota", spec, "count",
                         (json_int_t)entry->count, "reset_after_ns",
                         json_text_ns(entry->decision.reset_after_ns));
    return json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "key_hash", hash, "quota", spec, "limit",
                     (json_int_t)entry->decision.limit, "remaining",
                     (json_int_t)entry->decision.remaining, "retry_after_ns",
                     json_text_ns(entry->decision.retry_after_ns), "reset_after_ns",
                     json_text_ns(entry->decision.reset_after_ns));
}

static json_t *fill_json(const struct stint_table_info *info)
{
    static const char *const names[] = {"8_byte", "16_byte", "wide"};
    json_t *fill = json_object();
    for (size_t i = 0; i < 3; i++)
        json_object_set_new(fill, names[i],
                            json_pack("{s:I, s:I}", "places", (json_int_t)info->slots[i], "live",
                                      (json_int_t)info->live[i]));
    return fill;
}

static int print_json(const struct view *view)
{
    const struct stint_table_info *info = &view->info;
    json_t *quotas = json_array(), *keys = json_array();
    for (size_t i = 0; i < view->n_quotas; i++)
        json_array_append_new(quotas, json_pack("{s:s, s:I, s:I}", "quota", view->quotas[i].spec,
                                                "live", (json_int_t)view->quotas[i].live, "denying",
                                                (json_int_t)view->quotas[i].denying));
    for (size_t i = 0; i < view->n_offenders; i++)
        json_array_append_new(keys, entry_json(&view->offenders[i]));
    json_t *counters = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "evictions_lossless",
        (json_int_t)info->evictions_lossless, "evictions_inherit",
        (json_int_t)info->evictions_inherit, "evictions_evict", (json_int_t)info->evictions_evict,
        "forgotten_units", (json_int_t)info->forgotten_units, "full_denied",
        (json_int_t)info->full_denied, "full_allowed", (json_int_t)info->full_allowed,
        "undo_kept_units", (json_int_t)info->undo_kept_units, "tickets_dropped",
        (json_int_t)info->tickets_dropped, "owners_displaced", (json_int_t)info->owners_displaced,
        "states_damaged", (json_int_t)info->states_damaged);
    return json_text_print(
        json_pack("{s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "bytes",
                  (json_int_t)info->bytes, "clock",
                  info->clock == STINT_CLOCK_VIRTUAL ? "virtual" : "real", "fill", fill_json(info),
                  "wide_size", (json_int_t)info->wide_size, "tickets", (json_int_t)info->tickets,
                  "blocked", (json_int_t)info->blocked, "skew_max_ns",
                  (json_int_t)info->skew_max_ns, "quotas_max", (json_int_t)info->quotas_max,
                  "other_live", (json_int_t)view->others, "quotas", quotas, "keys", keys,
                  "counters", counters),
        true);
}

int table_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = set_path, .end = check},
        .arguments = "FILE",
        .doc = "Shows the content of the table FILE: its size and fill, its quotas, and the keys "
               "with the least left. A table contains no names of keys, only hashes."};
    struct table_options options = {.keys_shown = KEYS_SHOWN};
    struct stint_table_options opening = {.must_exist = true, .read_only = true};
    static struct view view;
    struct stint_error error;
    struct stint_table *table;
    args_parse(&command, argc, argv, &options);
    opening.path = options.path;
    if (stint_table_open(&table, &opening, &error) != 0)
        return print_failure("%s", error.message);
    int failed = look(&view, table, options.keys_shown);
    if (failed != 0)
        print_message("out of memory");
    else if (options.json)
        failed = print_json(&view);
    else
        print_text(&options, &view);
    free(view.offenders);
    stint_table_close(table);
    return failed != 0 ? CMD_BAD_INPUT : CMD_DONE;
}
