/* SPDX-License-Identifier: MIT */
/*
 * Metrics under the names of envoyproxy/ratelimit: requested units by their outcome, for dashboards
 * that know these. The Prometheus labels are those of its default mapping, except that every entry
 * of a descriptor has one, not only the first two.
 */
#include "service/metrics/metrics_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "ratelimit_service_"

static const struct {
    const char *name, *help;
} hit_names[METRICS_HITS] = {
    [HITS_TOTAL] = {"total_hits", "Units requested."},
    [HITS_OVER] = {"over_limit", "Units denied, or over the limit in shadow mode."},
    [HITS_NEAR] = {"near_limit", "Units granted near the limit."},
    [HITS_WITHIN] = {"within_limit", "Units granted."},
    [HITS_SHADOW] = {"shadow_mode", "Units over limit, and granted in shadow mode."},
};

enum form { FORM_STATS, FORM_LABELS };

/* Up to the separator, or all that is left; false at the end. */
static bool next_piece(struct span *rest, char separator, struct span *piece)
{
    assert(piece != rest);
    if (rest->ptr == NULL)
        return false;
    const uint8_t *at = rest->len > 0 ? memchr(rest->ptr, separator, rest->len) : NULL;
    *piece = span_of(rest->ptr, at != NULL ? (size_t)(at - rest->ptr) : rest->len);
    *rest = at != NULL ? span_of(at + 1, rest->len - piece->len - 1) : (struct span){0};
    return true;
}

static size_t count_bytes(const char *text, char byte)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += *text == byte;
    return n;
}

/*
 * ':' and '|', which have a meaning in statsd, become '_', as in envoyproxy/ratelimit. Dots of
 * values, which would begin another entry, do, too. is_value: not a key.
 */
static void add_text(struct page *page, enum form form, struct span text, bool is_value)
{
    static const uint8_t other[] = "_";
    size_t from = 0;
    for (size_t i = 0; i <= text.len; i++) {
        uint8_t c = i < text.len ? text.ptr[i] : 0;
        bool is_odd = i == text.len || c == ':' || c == '|' || (is_value && c == '.') ||
                      c == METRICS_VALUE_END || (form == FORM_STATS && (c < ' ' || c == 0x7f));
        if (!is_odd)
            continue;
        struct span plain = span_of(text.ptr + from, i - from);
        if (form == FORM_LABELS)
            page_add_label(page, plain);
        else
            page_add_span(page, plain);
        if (i < text.len)
            page_add_span(page, c == METRICS_VALUE_END ? span_of(" ", 1) : span_of(other, 1));
        from = i + 1;
    }
}

/* One entry: its key, and "_VALUE" where the file or the request has one. */
static void add_entry(struct page *page, enum form form, size_t number, struct span entry,
                      const struct span *value)
{
    assert(number > 0 && entry.ptr != NULL);
    struct span key, configured = {0};
    if (entry.len > 0 && entry.ptr[entry.len - 1] == RULE_METRIC_SHOWN)
        entry.len--;
    next_piece(&entry, RULE_METRIC_VALUE, &key);
    configured = value != NULL ? *value : entry;
    if (form == FORM_LABELS)
        page_print(page, ",key%zu=\"", number);
    else
        page_add(page, ".");
    add_text(page, form, key, false);
    if (configured.len > 0) {
        page_add(page, "_");
        add_text(page, form, configured, true);
    }
    page_add(page, form == FORM_LABELS ? "\"" : "");
}

/*
 * DOMAIN.KEY_VALUE.KEY, or labels. A series of values has each value at the entry that shows it;
 * "other", and values cut for their length, follow the last of these entries.
 */
static void add_name(struct page *page, enum form form, const struct metrics *metrics,
                     const struct series *series)
{
    assert(series->value == NULL || series->of < metrics->n_series);
    const char *entries =
        series->value != NULL ? metrics->series[series->of]->entries : series->entries;
    struct span path = span_of_text(entries != NULL ? entries : ""), entry, value;
    struct span values = series->value != NULL ? span_of_text(series->value) : (struct span){0};
    size_t left = count_bytes(entries != NULL ? entries : "", RULE_METRIC_SHOWN);
    bool is_paired =
        series->value != NULL && count_bytes(series->value, METRICS_VALUE_END) + 1 == left;
    page_add(page, form == FORM_LABELS ? "{domain=\"" : "");
    add_text(page, form, span_of_text(series->domain), false);
    page_add(page, form == FORM_LABELS ? "\"" : "");
    for (size_t number = 1; next_piece(&path, RULE_METRIC_ENTRY, &entry); number++) {
        bool is_shown = entry.len > 0 && entry.ptr[entry.len - 1] == RULE_METRIC_SHOWN;
        bool has_value = is_shown && series->value != NULL && (is_paired || left == 1);
        if (has_value && (!is_paired || !next_piece(&values, METRICS_VALUE_END, &value)))
            value = values;
        left -= is_shown;
        add_entry(page, form, number, entry, has_value ? &value : NULL);
    }
    page_add(page, form == FORM_LABELS ? "}" : "");
}

struct named {
    size_t at, len; /* in the page of names */
    const struct page *names;
    struct hit_metrics counts;
};

struct table_of_hits {
    struct page names;
    struct named *all;
    size_t n;
};

static int by_name(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    size_t len = a->len < b->len ? a->len : b->len;
    int order = memcmp(a->names->text + a->at, b->names->text + b->at, len);
    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

/* key: a, value: b and key: a_b give one name. A page that contains it twice would be rejected. */
static void merge_equal(struct table_of_hits *table)
{
    size_t n = 0;
    for (size_t i = 0; i < table->n; i++) {
        if (n == 0 || by_name(&table->all[n - 1], &table->all[i]) != 0) {
            table->all[n++] = table->all[i];
            continue;
        }
        for (int kind = 0; kind < METRICS_HITS; kind++)
            table->all[n - 1].counts.units[kind] += table->all[i].counts.units[kind];
    }
    table->n = n;
}

static struct hit_metrics sum_hits(const struct metrics *metrics, uint32_t number)
{
    assert(number < METRICS_SERIES_MAX);
    struct hit_metrics sum = {{0}};
    for (unsigned i = 0; i < metrics->n_workers; i++) {
        /* acquire: pairs with the release of metrics_hits(). */
        const struct hit_metrics *chunk =
            __atomic_load_n(&metrics->workers[i].hits[number / METRICS_CHUNK], __ATOMIC_ACQUIRE);
        for (int kind = 0; chunk != NULL && kind < METRICS_HITS; kind++)
            sum.units[kind] +=
                __atomic_load_n(&chunk[number % METRICS_CHUNK].units[kind], __ATOMIC_RELAXED);
    }
    return sum;
}

/* A rule that counts by value is written by its values, and by its units without a value. */
static bool is_written(const struct metrics *metrics, const struct series *series,
                       const struct hit_metrics *counts)
{
    if (series->number <= SERIES_OTHER || series->is_domain)
        return false;
    return counts->units[HITS_TOTAL] > 0 || (series->value == NULL && series->n_details == 0 &&
                                             series->in_force == metrics->bindings);
}

static bool collect(const struct metrics *metrics, enum form form, struct table_of_hits *table)
{
    *table = (struct table_of_hits){.all = calloc(metrics->n_series + 1, sizeof(*table->all))};
    for (size_t i = 0; table->all != NULL && i < metrics->n_series; i++) {
        struct hit_metrics counts = sum_hits(metrics, metrics->series[i]->number);
        if (!is_written(metrics, metrics->series[i], &counts))
            continue;
        struct named *named = &table->all[table->n++];
        *named = (struct named){table->names.len, 0, &table->names, counts};
        add_name(&table->names, form, metrics, metrics->series[i]);
        named->len = table->names.len - named->at;
    }
    if (table->all == NULL || table->names.failed)
        return false;
    qsort(table->all, table->n, sizeof(*table->all), by_name);
    merge_equal(table);
    assert(table->n <= metrics->n_series);
    return true;
}

static void free_hits(struct table_of_hits *table)
{
    page_free(&table->names);
    free(table->all);
}

/* Metrics without a rule, by their names of Prometheus and of statsd. */
struct plain_metric {
    const char *name, *labels, *stat;
    uint64_t n;
};
#define PLAIN_METRICS 7

static void list_plain(struct plain_metric all[PLAIN_METRICS], const struct metrics *metrics,
                       const struct metrics_facts *facts)
{
    struct frontend_metrics grpc = metrics_sum_frontend(metrics, METRICS_GRPC);
    struct total_metrics total = metrics_sum_total(metrics);
    uint64_t errors = grpc.counters[METRICS_MALFORMED];
    for (unsigned error = 1; error < METRICS_ERRORS; error++)
        errors += error != REPLY_UNAVAILABLE ? grpc.errors[error] : 0;
    const struct plain_metric listed[PLAIN_METRICS] = {
        {"should_rate_limit_error", "{err_type=\"redis_error\"}",
         ".service.call.should_rate_limit.redis_error", grpc.errors[REPLY_UNAVAILABLE]},
        {"should_rate_limit_error", "{err_type=\"service_error\"}",
         ".service.call.should_rate_limit.service_error", errors},
        {"config_load_error", "", ".service.config_load_error", metrics->reloads[false]},
        {"config_load_success", "", ".service.config_load_success", facts->loads},
        {"global_shadow_mode", "", ".service.global_shadow_mode", total.events[METRICS_ALL_SHADOW]},
        {"rate_limit_domain_not_found", "", ".service.rate_limit.domain_not_found",
         total.events[METRICS_DOMAIN_UNKNOWN]},
        {"total_requests", "{grpc_method=\"ShouldRateLimit\"}",
         "_server.ShouldRateLimit.total_requests", grpc.verbs[REQUEST_TAKE]},
    };
    memcpy(all, listed, sizeof(listed));
}

static void write_family(const struct table_of_hits *table, int kind, const char *type,
                         struct page *page)
{
    assert(kind >= 0 && kind < METRICS_HITS);
    const char *name = hit_names[kind].name;
    page_print(page, "# HELP " PREFIX "rate_limit_%s %s\n", name, hit_names[kind].help);
    page_print(page, "# TYPE " PREFIX "rate_limit_%s %s\n", name, type);
    for (size_t i = 0; i < table->n; i++) {
        const struct named *named = &table->all[i];
        page_print(page, PREFIX "rate_limit_%s", name);
        page_add_span(page, span_of(table->names.text + named->at, named->len));
        page_print(page, " %" PRIu64 "\n", named->counts.units[kind]);
    }
}

void metrics_write_envoy(const struct metrics *metrics, const struct metrics_facts *facts,
                         enum metrics_format format, struct page *page)
{
    assert(metrics_has_envoy_names(metrics));
    /* A counter of OpenMetrics ends in _total, and these names do not. */
    const char *type = format == METRICS_PROMETHEUS ? "counter" : "unknown", *last = "";
    struct plain_metric plain[PLAIN_METRICS];
    struct table_of_hits table;
    if (!collect(metrics, FORM_LABELS, &table))
        page->failed = true;
    else
        for (int kind = 0; kind < METRICS_HITS; kind++)
            write_family(&table, kind, type, page);
    free_hits(&table);
    list_plain(plain, metrics, facts);
    for (int i = 0; i < PLAIN_METRICS; last = plain[i++].name) {
        if (strcmp(plain[i].name, last) != 0)
            page_print(page, "# TYPE " PREFIX "%s %s\n", plain[i].name, type);
        page_print(page, PREFIX "%s%s %" PRIu64 "\n", plain[i].name, plain[i].labels, plain[i].n);
    }
}

void metrics_envoy_stats(struct metrics *metrics, const struct metrics_facts *facts,
                         struct page *page)
{
    assert(metrics_has_envoy_names(metrics));
    struct plain_metric plain[PLAIN_METRICS];
    struct table_of_hits table;
    pthread_mutex_lock(&metrics->lock);
    list_plain(plain, metrics, facts);
    for (int i = 0; i < PLAIN_METRICS; i++)
        page_print(page, "ratelimit%s: %" PRIu64 "\n", plain[i].stat, plain[i].n);
    if (!collect(metrics, FORM_STATS, &table))
        page->failed = true;
    for (size_t i = 0; !page->failed && i < table.n; i++)
        for (int kind = 0; kind < METRICS_HITS; kind++) {
            page_add(page, "ratelimit.service.rate_limit.");
            page_add_span(page, span_of(table.names.text + table.all[i].at, table.all[i].len));
            page_print(page, ".%s: %" PRIu64 "\n", hit_names[kind].name,
                       table.all[i].counts.units[kind]);
        }
    free_hits(&table);
    pthread_mutex_unlock(&metrics->lock);
}
