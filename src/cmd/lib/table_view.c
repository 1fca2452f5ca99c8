/* SPDX-License-Identifier: MIT */
/* Reads the file of a table, counts its states by quota, and selects keys. */
#include "cmd/lib/table_view.h"

#include "base/err.h"
#include "base/wide_int.h"
#include "cmd/lib/print.h"
#include "limiter/ticket.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int compare_function(const void *a, const void *b);

struct reading {
    struct table_view *view;
    compare_function *compare;
    size_t keys_max;
};

uint64_t table_view_used(const struct stint_entry *entry)
{
    if (entry->quota.algorithm == STINT_COUNTER)
        return entry->count;
    return sub_floor(entry->decision.limit, entry->decision.remaining);
}

/* The longest until the state is unused. */
static int by_reset(const struct stint_decision *x, const struct stint_decision *y)
{
    if (x->reset_after_ns != y->reset_after_ns)
        return x->reset_after_ns > y->reset_after_ns ? -1 : 1;
    return 0;
}

/* Least left as a share of the limit. */
static int by_least_left(const void *a, const void *b)
{
    const struct stint_decision *x = &((const struct stint_entry *)a)->decision;
    const struct stint_decision *y = &((const struct stint_entry *)b)->decision;
    uint64_t x_left = (uint64_t)x->remaining * (y->limit > 0 ? y->limit : 1);
    uint64_t y_left = (uint64_t)y->remaining * (x->limit > 0 ? x->limit : 1);
    if (x_left != y_left)
        return x_left < y_left ? -1 : 1;
    return by_reset(x, y);
}

static int by_most_used(const void *a, const void *b)
{
    const struct stint_entry *x = a, *y = b;
    uint64_t x_used = table_view_used(x), y_used = table_view_used(y);
    if (x_used != y_used)
        return x_used > y_used ? -1 : 1;
    return by_reset(&x->decision, &y->decision);
}

static void count_quota(struct table_view *view, const struct stint_entry *entry)
{
    char spec[SPEC_SIZE];
    size_t i = 0;
    stint_quota_format(&entry->quota, spec, sizeof(spec));
    while (i < view->n_quotas && strcmp(view->quotas[i].spec, spec) != 0)
        i++;
    if (i == TABLE_VIEW_QUOTAS_MAX) {
        view->others++;
        return;
    }
    if (i == view->n_quotas)
        memcpy(view->quotas[view->n_quotas++].spec, spec, sizeof(spec));
    view->quotas[i].live++;
    view->quotas[i].denying += entry->decision.outcome != STINT_ALLOW;
    view->quotas[i].used += table_view_used(entry);
}

/* Those with most live states first; of equals, those that are used most. */
static int by_live(const void *a, const void *b)
{
    const struct table_view_quota *x = a, *y = b;
    if (x->live != y->live)
        return x->live > y->live ? -1 : 1;
    return x->used != y->used ? (x->used > y->used ? -1 : 1) : strcmp(x->spec, y->spec);
}

static void keep_first(const struct reading *reading)
{
    struct table_view *view = reading->view;
    qsort(view->keys, view->n_keys, sizeof(*view->keys), reading->compare);
    if (view->n_keys > reading->keys_max)
        view->n_keys = reading->keys_max;
}

/* Keeps keys in a buffer of twice their number, halved when full. */
static bool visit(const struct stint_entry *entry, void *arg)
{
    const struct reading *reading = arg;
    struct table_view *view = reading->view;
    count_quota(view, entry);
    if (view->n_keys == 2 * reading->keys_max)
        keep_first(reading);
    view->keys[view->n_keys++] = *entry;
    return true;
}

static int read_table(struct reading *reading, const struct stint_table *table,
                      struct stint_error *error)
{
    struct table_view *view = reading->view;
    view->keys = calloc(2 * reading->keys_max, sizeof(*view->keys));
    if (view->keys == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    view->now_ns = stint_now(table);
    stint_table_info(table, view->now_ns, &view->info);
    uint64_t mark_ns = view->info.mark_ns;
    view->idle_ns = mark_ns == 0 ? STINT_NEVER_NS : sub_floor(view->now_ns, mark_ns);
    view->tickets_open = tickets_open(table, view->now_ns);
    stint_table_each(table, view->now_ns, visit, reading);
    keep_first(reading);
    qsort(view->quotas, view->n_quotas, sizeof(view->quotas[0]), by_live);
    return 0;
}

int table_view_read(struct table_view *view, const char *path, size_t n_keys,
                    enum table_view_order order, struct stint_error *error)
{
    assert(n_keys > 0 && n_keys <= TABLE_VIEW_KEYS_MAX);
    const struct stint_table_options options = {
        .path = path, .must_exist = true, .read_only = true};
    struct reading reading = {
        .view = view,
        .compare = order == TABLE_VIEW_MOST_USED ? by_most_used : by_least_left,
        .keys_max = n_keys,
    };
    struct stint_table *table;
    memset(view, 0, sizeof(*view));
    int code = stint_table_open(&table, &options, error);
    if (code != 0)
        return code;
    code = read_table(&reading, table, error);
    stint_table_close(table);
    return code;
}

void table_view_free(struct table_view *view)
{
    free(view->keys);
    view->keys = NULL;
    view->n_keys = 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *entry_json(const struct stint_entry *entry)
{
    char hash[24], spec[SPEC_SIZE];
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

static json_t *counters_json(const struct stint_table_info *info)
{
    const struct {
        const char *name;
        uint64_t count;
    } counters[] = {
        {"evictions_lossless", info->evictions_lossless},
        {"evictions_inherit", info->evictions_inherit},
        {"evictions_evict", info->evictions_evict},
        {"forgotten_units", info->forgotten_units},
        {"full_denied", info->full_denied},
        {"full_allowed", info->full_allowed},
        {"undo_kept_units", info->undo_kept_units},
        {"tickets_dropped", info->tickets_dropped},
        {"reservations_expired", info->reservations_expired[STINT_EXPIRY_KEEP] +
                                     info->reservations_expired[STINT_EXPIRY_FLOOR] +
                                     info->reservations_expired[STINT_EXPIRY_RELEASE]},
        {"requests_dropped", info->requests_dropped},
        {"owners_displaced", info->owners_displaced},
        {"states_damaged", info->states_damaged},
    };
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        json_object_set_new(object, counters[i].name, json_integer((json_int_t)counters[i].count));
    return object;
}

json_t *table_view_json(const struct table_view *view)
{
    const struct stint_table_info *info = &view->info;
    json_t *quotas = json_array(), *keys = json_array();
    for (size_t i = 0; i < view->n_quotas; i++) {
        const struct table_view_quota *quota = &view->quotas[i];
        json_array_append_new(quotas, json_pack("{s:s, s:I, s:I, s:I}", "quota", quota->spec,
                                                "live", (json_int_t)quota->live, "denying",
                                                (json_int_t)quota->denying, "used",
                                                (json_int_t)quota->used));
    }
    for (size_t i = 0; i < view->n_keys; i++)
        json_array_append_new(keys, entry_json(&view->keys[i]));
    return json_pack(
        "{s:I, s:s, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}",
        "bytes", (json_int_t)info->bytes, "clock",
        info->clock == STINT_CLOCK_VIRTUAL ? "virtual" : "real", "now_ns", (json_int_t)view->now_ns,
        "idle_ns", json_text_ns(view->idle_ns), "fill", fill_json(info), "wide_size",
        (json_int_t)info->wide_size, "tickets", (json_int_t)info->tickets, "tickets_open",
        (json_int_t)view->tickets_open, "pools", (json_int_t)info->pools, "pools_max",
        (json_int_t)info->pools_max, "blocked", (json_int_t)info->blocked, "skew_max_ns",
        (json_int_t)info->skew_max_ns, "quotas_max", (json_int_t)info->quotas_max, "other_live",
        (json_int_t)view->others, "quotas", quotas, "keys", keys, "counters", counters_json(info));
}
