/* SPDX-License-Identifier: MIT */
/*
 * The numbers of series: for rules, found again after a reload, and for the values of rules that
 * show them. Series are made under the lock and never freed; values are found without it.
 */
#include "base/siphash.h"
#include "base/utf8.h"
#include "service/metrics/metrics_parts.h"

#include <stdio.h>
#include <stdlib.h>

#define VALUE_MAX 128 /* bytes of a value that are kept */
#define DETAILS_MAX (METRICS_DETAIL_SLOTS / 2)
#define OTHER "other"
#define PORTION 256 /* rules bound under one hold of the lock, so that workers do not wait long */

/* ---- Series ---------------------------------------------------------------------------------- */

static void free_series(struct series *series)
{
    if (series == NULL)
        return;
    free(series->domain);
    free(series->rule);
    free(series->value);
    free(series->entries);
    free(series);
}

static char *copy_text(struct span text)
{
    char *copy = malloc(text.len + 1);
    if (copy == NULL)
        return NULL;
    if (text.len > 0)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    return copy;
}

static bool has_space(struct metrics *metrics)
{
    if (metrics->n_series == METRICS_SERIES_MAX)
        return false;
    if (metrics->n_series < metrics->series_space)
        return true;
    size_t space = metrics->series_space > 0 ? 2 * metrics->series_space : METRICS_CHUNK;
    struct series **series = realloc(metrics->series, space * sizeof(struct series *));
    if (series == NULL)
        return false;
    metrics->series = series;
    metrics->series_space = space;
    return true;
}

/* The labels of a series. value.ptr is NULL for a rule. */
struct series_name {
    const char *domain, *rule;
    struct span value;
};

static struct series *add_series(struct metrics *metrics, uint64_t id, struct series_name name)
{
    struct series *made = has_space(metrics) ? calloc(1, sizeof(*made)) : NULL;
    if (made == NULL)
        return NULL;
    made->id = id;
    made->number = (uint32_t)metrics->n_series;
    made->domain = copy_text(span_of_text(name.domain));
    made->rule = copy_text(span_of_text(name.rule));
    made->value = name.value.ptr != NULL ? copy_text(name.value) : NULL;
    if (made->domain == NULL || made->rule == NULL ||
        (name.value.ptr != NULL && made->value == NULL)) {
        free_series(made);
        return NULL;
    }
    metrics->series[metrics->n_series++] = made;
    return made;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* The slot of an id in the list, or the free one where it belongs. */
static uint32_t *place_of(const struct metrics *metrics, uint64_t id)
{
    size_t at = (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) % metrics->by_id_space;
    while (metrics->by_id[at] != 0 && metrics->series[metrics->by_id[at] - 1]->id != id)
        at = at + 1 < metrics->by_id_space ? at + 1 : 0;
    return &metrics->by_id[at];
}

/* Reserves memory for so many more rules, with as many free slots. */
static bool widen(struct metrics *metrics, size_t more)
{
    size_t space = 2 * (metrics->n_series + more) + 1;
    if (space <= metrics->by_id_space)
        return true;
    uint32_t *by_id = calloc(space, sizeof(*by_id)), *old = metrics->by_id;
    if (by_id == NULL)
        return false;
    size_t old_space = metrics->by_id_space;
    metrics->by_id = by_id;
    metrics->by_id_space = space;
    for (size_t i = 0; i < old_space; i++)
        if (old[i] != 0)
            *place_of(metrics, metrics->series[old[i] - 1]->id) = old[i];
    free(old);
    return true;
}

/*
 * Compares labels, not rule->id, which includes the name. A renamed rule would otherwise be a
 * second series with the same labels, and Prometheus rejects a page with such a pair.
 */
static uint64_t id_of(const char *domain, const char *path)
{
    static const uint64_t no_secret[2] = {0, 0};
    uint64_t id = siphash13_128(no_secret, 0, domain, strlen(domain)).lo;
    return siphash13_128(no_secret, id, path, strlen(path)).lo;
}

/* Updates the text and the flags, which may have changed. Without memory the text is kept. */
static void note_entries(struct series *series, const struct rule *rule)
{
    if (rule->metric == NULL ||
        (series->entries != NULL && strcmp(series->entries, rule->metric) == 0))
        return;
    char *entries = copy_text(span_of_text(rule->metric));
    if (entries == NULL)
        return;
    free(series->entries);
    series->entries = entries;
}

/* The series of a domain has no path. NULL: the series are full. */
static struct series *series_for(struct metrics *metrics, const char *domain, const char *path,
                                 uint64_t binding)
{
    uint64_t id = id_of(domain, path);
    uint32_t *place = place_of(metrics, id);
    if (*place == 0) {
        const struct series_name name = {domain, path, {NULL, 0}};
        struct series *made = add_series(metrics, id, name);
        if (made == NULL)
            return NULL;
        *place = made->number + 1;
    }
    struct series *series = metrics->series[*place - 1];
    series->in_force = binding;
    return series;
}

static uint32_t number_for(struct metrics *metrics, const struct rule *rule, uint64_t binding)
{
    struct series *series = series_for(metrics, rule->domain, rule->path, binding);
    if (series == NULL)
        return SERIES_OTHER;
    note_entries(series, rule);
    return series->number;
}

static uint32_t number_for_domain(struct metrics *metrics, const char *domain, uint64_t binding)
{
    struct series *series = series_for(metrics, domain, "", binding);
    if (series == NULL)
        return SERIES_OTHER;
    series->is_domain = true;
    return series->number;
}

struct metrics_bound *metrics_bind(struct metrics *metrics, const struct rules *rules)
{
    size_t n_rules = rules != NULL ? rules_count(rules) : 0;
    size_t n = n_rules + (rules != NULL ? rules_n_domains(rules) : 0);
    struct metrics_bound *bound = calloc(1, sizeof(*bound) + n * sizeof(bound->numbers[0]));
    if (bound == NULL)
        return NULL;
    bound->n = n_rules;
    bound->n_domains = n - n_rules;
    pthread_mutex_lock(&metrics->lock);
    uint64_t binding = metrics->bindings + 1;
    bool has_memory = widen(metrics, n);
    for (size_t i = 0; i < n; i++) {
        bound->numbers[i] =
            !has_memory   ? SERIES_OTHER
            : i < n_rules ? number_for(metrics, rules_at(rules, i), binding)
                          : number_for_domain(metrics, rules_domain(rules, i - n_rules), binding);
        if (i % PORTION == PORTION - 1) {
            pthread_mutex_unlock(&metrics->lock);
            pthread_mutex_lock(&metrics->lock);
        }
    }
    metrics->bindings = binding;
    pthread_mutex_unlock(&metrics->lock);
    return bound;
}

void metrics_unbind(struct metrics_bound *bound)
{
    free(bound);
}

/* ---- Values ---------------------------------------------------------------------------------- */

static uint64_t detail_id(uint32_t rule_number, struct span value)
{
    /* No secret: values chosen to collide share a counter, and cause no other harm. */
    static const uint64_t no_secret[2] = {0, 0};
    uint64_t id = siphash13_128(no_secret, rule_number, value.ptr, value.len).lo;
    return id | (id == 0);
}

/* The slot of a value in the list, or the free one where it belongs. */
static struct series **detail_place(struct series **details, uint64_t id)
{
    for (size_t at = id % METRICS_DETAIL_SLOTS;; at = (at + 1) % METRICS_DETAIL_SLOTS) {
        /* acquire: the series was written before the pointer was stored. */
        const struct series *series = __atomic_load_n(&details[at], __ATOMIC_ACQUIRE);
        if (series == NULL || series->id == id)
            return &details[at];
    }
}

/* A value as text that no other value has: writes invisible bytes and backslashes as numbers. */
static struct span printable(struct span value, char text[4 * VALUE_MAX])
{
    size_t len = 0;
    for (size_t at = 0; at < value.len;) {
        const uint8_t *c = value.ptr + at;
        size_t n = utf8_length(c, value.len - at);
        bool is_shown = *c == METRICS_VALUE_END ||
                        (n > 0 && *c != '\\' && !utf8_is_hidden(utf8_code_point(c, n)));
        n = n > 0 ? n : 1;
        if (is_shown)
            memcpy(text + len, c, n);
        len += is_shown ? n : 0;
        for (size_t i = 0; i < n && !is_shown; i++) {
            text[len++] = '\\';
            text[len++] = 'x';
            text[len++] = "0123456789abcdef"[c[i] >> 4];
            text[len++] = "0123456789abcdef"[c[i] & 15];
        }
        at += n;
    }
    return span_of(text, len);
}

static struct series *add_detail(struct metrics *metrics, struct series *rule, uint64_t id,
                                 struct span value)
{
    if (metrics->n_details == DETAILS_MAX)
        return NULL;
    char text[4 * VALUE_MAX];
    const struct series_name name = {rule->domain, rule->rule, printable(value, text)};
    struct series *made = add_series(metrics, id, name);
    if (made != NULL) {
        made->of = rule->number;
        metrics->n_details++;
        /* release: pairs with the acquire of detail_place(). */
        __atomic_store_n(detail_place(metrics->details, id), made, __ATOMIC_RELEASE);
    }
    return made;
}

/* The lock is held. The last series of a rule is for all other values together. */
static uint32_t detail_slow(struct metrics *metrics, uint32_t rule_number, uint64_t id,
                            struct span value)
{
    if (metrics->details == NULL) {
        struct series **made = calloc(METRICS_DETAIL_SLOTS, sizeof(struct series *));
        if (made == NULL)
            return rule_number;
        __atomic_store_n(&metrics->details, made, __ATOMIC_RELEASE);
    }
    struct series *found = *detail_place(metrics->details, id);
    struct series *rule = metrics->series[rule_number];
    if (found == NULL && rule->n_details >= METRICS_DETAILS_MAX) {
        value = span_of_text(OTHER);
        id = detail_id(rule_number, value);
        found = *detail_place(metrics->details, id);
    }
    if (found == NULL) {
        found = add_detail(metrics, rule, id, value);
        if (found != NULL)
            /* relaxed: it only spares later calls the lock. */
            __atomic_store_n(&rule->n_details, rule->n_details + 1, __ATOMIC_RELAXED);
    }
    return found != NULL ? found->number : SERIES_OTHER;
}

uint32_t metrics_detail_number(struct metrics *metrics, uint32_t rule_number, struct span value)
{
    value.len = value.len < VALUE_MAX ? value.len : VALUE_MAX;
    uint64_t id = detail_id(rule_number, value);
    struct series **details = __atomic_load_n(&metrics->details, __ATOMIC_ACQUIRE);
    const struct series *found = details != NULL ? *detail_place(details, id) : NULL;
    if (found != NULL)
        return found->number;
    pthread_mutex_lock(&metrics->lock);
    uint32_t number = detail_slow(metrics, rule_number, id, value);
    pthread_mutex_unlock(&metrics->lock);
    return number;
}

/* ---- All rules ------------------------------------------------------------------------------- */

struct metrics *metrics_new(unsigned workers)
{
    struct metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics == NULL)
        return NULL;
    pthread_mutex_init(&metrics->lock, NULL);
    metrics->n_workers = workers;
    metrics->names = METRICS_NAMES_STINT;
    metrics->workers = aligned_alloc(128, workers * sizeof(*metrics->workers));
    if (metrics->workers == NULL) {
        metrics->n_workers = 0;
        metrics_free(metrics);
        return NULL;
    }
    memset(metrics->workers, 0, workers * sizeof(*metrics->workers));
    for (unsigned i = 0; i < workers; i++)
        metrics->workers[i].metrics = metrics;
    const struct series_name none = {"", "", {NULL, 0}}, other = {"", OTHER, {NULL, 0}};
    if (add_series(metrics, 0, none) == NULL || add_series(metrics, 0, other) == NULL) {
        metrics_free(metrics);
        return NULL;
    }
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    if (metrics == NULL)
        return;
    for (unsigned i = 0; i < metrics->n_workers; i++)
        for (unsigned chunk = 0; chunk < METRICS_CHUNKS_MAX; chunk++) {
            free(metrics->workers[i].chunks[chunk]);
            free(metrics->workers[i].hits[chunk]);
        }
    for (size_t i = 0; i < metrics->n_series; i++)
        free_series(metrics->series[i]);
    metrics_free_stores(metrics);
    free(metrics->workers);
    free(metrics->series);
    free(metrics->by_id);
    free(metrics->details);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}
