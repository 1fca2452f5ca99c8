/* SPDX-License-Identifier: MIT */
/* `stint table`: reads a table file without changing it. */
#define _GNU_SOURCE
#include "algorithm/spec.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/table_view.h"

#include <inttypes.h>
#include <stdio.h>

#define KEYS_SHOWN 10

struct table_options {
    const char *path;
    uint64_t keys_shown;
    bool json;
};

static const struct args_option options_known[] = {
    {"keys", "N", 0, "Show the N keys with the least left (default 10)",
     ARGS_NUMBER(struct table_options, keys_shown, TABLE_VIEW_KEYS_MAX)},
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

static void print_text(const struct table_options *options, const struct table_view *view)
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
    printf("  wide states have up to %" PRIu32 " bytes; %" PRIu64 " of %" PRIu32
           " tickets are open; %" PRIu64 " keys are blocked; %" PRIu32 " of %" PRIu32
           " pools were made\n",
           info->wide_size, view->tickets_open, info->tickets, info->blocked, info->pools,
           info->pools_max);
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
    if (view->n_keys > 0)
        puts("\nkey (hash)         remaining of limit   reset   quota");
    for (size_t i = 0; i < view->n_keys; i++) {
        const struct stint_entry *entry = &view->keys[i];
        char spec[SPEC_SIZE];
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

int table_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = set_path, .end = check},
        .arguments = "FILE",
        .doc = "Shows the content of the table FILE: its size and fill, its quotas, and the keys "
               "with the least left. A table contains no names of keys, only hashes."};
    struct table_options options = {.keys_shown = KEYS_SHOWN};
    static struct table_view view;
    struct stint_error error;
    int result = CMD_DONE;
    args_parse(&command, argc, argv, &options);
    if (table_view_read(&view, options.path, (size_t)options.keys_shown, TABLE_VIEW_LEAST_LEFT,
                        &error) != 0)
        return print_failure("%s", error.message);
    if (options.json)
        result = json_text_print(table_view_json(&view), true);
    else
        print_text(&options, &view);
    table_view_free(&view);
    return result;
}
