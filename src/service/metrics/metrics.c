/* SPDX-License-Identifier: MIT */
/*
 * The metrics: each worker counts in memory of its own, a reader sums up. A rule has a series,
 * which is found again after a reload, and so has each value of a rule that shows values. Series
 * are made under the lock and never freed; values are found without it.
 */
#include "service/metrics/metrics_parts.h"

#include "base/siphash.h"
#include "base/utf8.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUE_MAX 128 /* bytes of a value that are kept */
#define DETAILS_MAX (METRICS_DETAIL_SLOTS / 2)
#define OTHER "other"
#define PORTION 256 /* rules bound under one hold of the lock, so that workers do not wait long */
#define THOUSANDTHS 1000

const char *const metrics_frontend_names[METRICS_FRONTENDS] = {"resp", "http", "grpc"};
const char *const metrics_outcome_names[METRICS_OUTCOMES] = {"allow",  "deny",   "never",
                                                             "banned", "shadow", "replaced"};
const char *const metrics_refusal_names[METRICS_REFUSALS] = {"total", "address", "idle", "tls",
                                                             "memory"};
const char *const metrics_error_names[METRICS_ERRORS] = {
    "none", "bad_request", "forbidden", "gone", "conflict", "full", "unavailable"};
const char *const metrics_store_error_names[BACKEND_ERRORS] = {
    "other", "late", "lost", "unreachable", "overload", "busy", "state", "stopped"};
const char *const metrics_store_state_names[STORE_STATES] = {"asked", "probed", "stopped"};

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
    assert(metrics->n_series <= metrics->series_space);
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
    assert(name.domain != NULL && name.rule != NULL);
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
    assert(metrics->by_id_space > 0);
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
    assert(series->value == NULL && !series->is_domain);
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
    assert(domain != NULL && path != NULL);
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

/* The number of a rule's series, or that of a domain. */
static uint32_t number_for(struct metrics *metrics, const struct rules *rules, size_t i,
                           uint64_t binding)
{
    size_t n_rules = rules_count(rules);
    const struct rule *rule = i < n_rules ? rules_at(rules, i) : NULL;
    struct series *series =
        rule != NULL ? series_for(metrics, rule->domain, rule->path, binding)
                     : series_for(metrics, rules_domain(rules, i - n_rules), "", binding);
    if (series == NULL)
        return SERIES_OTHER;
    if (rule != NULL)
        note_entries(series, rule);
    else
        series->is_domain = true;
    return series->number;
}

struct metrics_bound *metrics_bind(struct metrics *metrics, const struct rules *rules)
{
    assert(metrics_is_valid(metrics));
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
        bound->numbers[i] = has_memory ? number_for(metrics, rules, i, binding) : SERIES_OTHER;
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
    assert(value.len <= VALUE_MAX);
    /* No secret: values chosen to collide share a counter, and cause no other harm. */
    static const uint64_t no_secret[2] = {0, 0};
    uint64_t id = siphash13_128(no_secret, rule_number, value.ptr, value.len).lo;
    return id | (id == 0);
}

/* The slot of a value in the list, or the free one where it belongs. */
static struct series **detail_place(struct series **details, uint64_t id)
{
    assert(details != NULL && id != 0);
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
    assert(value.len <= VALUE_MAX);
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
    assert(len <= 4 * VALUE_MAX);
    return span_of(text, len);
}

static struct series *add_detail(struct metrics *metrics, struct series *rule, uint64_t id,
                                 struct span value)
{
    assert(metrics->n_details <= DETAILS_MAX && rule->value == NULL);
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
    assert(rule_number < metrics->n_series);
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

/*
 * The series of one value of a rule's series; for any worker. Values past METRICS_DETAILS_MAX share
 * one.
 */
static uint32_t detail_number(struct metrics *metrics, uint32_t rule_number, struct span value)
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

/* ---- Opening and closing --------------------------------------------------------------------- */

struct metrics *metrics_new(unsigned workers)
{
    assert(workers > 0);
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
    assert(metrics_is_valid(metrics) && metrics->n_series == SERIES_OTHER + 1);
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
    for (size_t i = 0; i < metrics->n_stores; i++) {
        free(metrics->stores[i].name);
        free(metrics->stores[i].workers);
    }
    free(metrics->workers);
    free(metrics->series);
    free(metrics->by_id);
    free(metrics->details);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

/* ---- Counting by a worker -------------------------------------------------------------------- */

struct metrics_worker *metrics_worker(struct metrics *metrics, unsigned worker)
{
    assert(metrics_is_valid(metrics));
    assert(worker < metrics->n_workers);
    return &metrics->workers[worker];
}

/* Counters of METRICS_CHUNK series, of `size` bytes each. */
static void *new_chunk(size_t size)
{
    void *made = aligned_alloc(64, METRICS_CHUNK * size);
    if (made != NULL)
        memset(made, 0, METRICS_CHUNK * size);
    return made;
}

static struct series_metrics *metrics_of(struct metrics_worker *worker, uint32_t number)
{
    assert(number < METRICS_SERIES_MAX);
    struct series_metrics *chunk = worker->chunks[number / METRICS_CHUNK];
    /* release: a thread that sums up sees zeros, not earlier contents of the memory. */
    if (chunk == NULL && (chunk = new_chunk(sizeof(*chunk))) != NULL)
        __atomic_store_n(&worker->chunks[number / METRICS_CHUNK], chunk, __ATOMIC_RELEASE);
    return chunk != NULL ? &chunk[number % METRICS_CHUNK] : &worker->spare;
}

static uint32_t number_of(const struct metrics_bound *bound, const struct rule *rule)
{
    return rule != NULL && bound != NULL && rule->index < bound->n ? bound->numbers[rule->index]
                                                                   : SERIES_NO_RULE;
}

static void count_outcome(struct series_metrics *metrics, enum metrics_outcome outcome,
                          uint32_t units)
{
    assert(outcome < METRICS_OUTCOMES);
    count_up(&metrics->outcomes[outcome], 1);
    count_up(&metrics->units, units);
}

void metrics_decided(struct metrics_worker *worker, const struct metrics_bound *bound,
                     const struct rule *rule, enum metrics_outcome outcome, uint32_t units)
{
    count_outcome(metrics_of(worker, number_of(bound, rule)), outcome, units);
    count_up(&worker->total.outcomes[outcome], 1);
    count_up(&worker->total.units, units);
}

void metrics_candidate_over(struct metrics_worker *worker, const struct metrics_bound *bound,
                            const struct rule *rule)
{
    count_up(&metrics_of(worker, number_of(bound, rule))->candidate_over, 1);
}

void metrics_detailed(struct metrics_worker *worker, const struct metrics_bound *bound,
                      const struct rule *rule, struct span value, enum metrics_outcome outcome,
                      uint32_t units)
{
    uint32_t number = detail_number(worker->metrics, number_of(bound, rule), value);
    count_outcome(metrics_of(worker, number), outcome, units);
}

void metrics_asked(struct metrics_worker *worker, enum metrics_frontend frontend, unsigned verb,
                   unsigned error)
{
    assert(frontend < METRICS_FRONTENDS);
    struct frontend_metrics *metrics = &worker->frontends[frontend];
    if (verb < REQUEST_VERBS)
        count_up(&metrics->verbs[verb], 1);
    if (error != REPLY_DECIDED && error < METRICS_ERRORS)
        count_up(&metrics->errors[error], 1);
}

void metrics_unmatched(struct metrics_worker *worker, const struct metrics_bound *bound,
                       size_t domain, uint64_t n)
{
    count_up(&worker->total.events[METRICS_UNMATCHED], n);
    if (bound == NULL || domain >= bound->n_domains)
        count_up(&worker->total.events[METRICS_DOMAIN_UNKNOWN], n);
    else
        count_up(&metrics_of(worker, bound->numbers[bound->n + domain])->units, n);
}

void metrics_event(struct metrics_worker *worker, enum metrics_event event, uint64_t times)
{
    assert(event < METRICS_EVENTS);
    count_up(&worker->total.events[event], times);
}

void metrics_count(struct metrics_worker *worker, enum metrics_frontend frontend,
                   enum metrics_counter counter, uint64_t n)
{
    assert(frontend < METRICS_FRONTENDS && counter < METRICS_COUNTERS);
    count_up(&worker->frontends[frontend].counters[counter], n);
}

void metrics_refused(struct metrics_worker *worker, enum metrics_frontend frontend,
                     enum metrics_refusal why)
{
    assert(frontend < METRICS_FRONTENDS && why < METRICS_REFUSALS);
    count_up(&worker->frontends[frontend].refused[why], 1);
}

uint64_t metrics_decisions(const struct metrics_worker *worker)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < METRICS_OUTCOMES; i++)
        sum += worker->total.outcomes[i];
    return sum;
}

void metrics_took(struct metrics_worker *worker, uint64_t duration_ns, uint32_t times)
{
    if (times == 0)
        return;
    /* The least i with each duration <= METRICS_BUCKET_NS << i. */
    unsigned i = bit_length(sub_floor(duration_ns / times, 1) / METRICS_BUCKET_NS);
    count_up(&worker->total.buckets[i < METRICS_BUCKETS ? i : METRICS_BUCKETS - 1], times);
    count_up(&worker->total.duration_ns, duration_ns);
}

/* ---- Units as envoyproxy/ratelimit counts them ----------------------------------------------- */

void metrics_count_hits(struct metrics *metrics, unsigned names, unsigned near_thousandths)
{
    assert(metrics_is_valid(metrics));
    assert(names != 0 && near_thousandths <= THOUSANDTHS);
    metrics->names = names;
    metrics->near_thousandths = near_thousandths;
}

bool metrics_has_envoy_names(const struct metrics *metrics)
{
    assert(metrics_is_valid(metrics));
    return (metrics->names & METRICS_NAMES_ENVOY) != 0;
}

bool metrics_counts_hits(const struct metrics_worker *worker)
{
    return metrics_has_envoy_names(worker->metrics);
}

/* How many of the units that fit lie beyond the near share of the limit. */
static uint32_t near_units(const struct metrics *metrics, const struct metrics_hits *hits,
                           uint32_t fitted)
{
    uint64_t threshold = (uint64_t)hits->limit * metrics->near_thousandths / THOUSANDTHS;
    uint64_t used = hits->limit - hits->remaining;
    uint64_t beyond = used > threshold ? used - threshold : 0;
    return beyond < fitted ? (uint32_t)beyond : fitted;
}

void metrics_hits(struct metrics_worker *worker, const struct metrics_bound *bound,
                  const struct rule *rule, const struct metrics_hits *hits)
{
    assert(rule != NULL);
    if (bound == NULL || rule->index >= bound->n)
        return;
    uint32_t number = bound->numbers[rule->index];
    if (hits->value.ptr != NULL)
        number = detail_number(worker->metrics, number, hits->value);
    struct hit_metrics *chunk = worker->hits[number / METRICS_CHUNK];
    /* release: as in metrics_of(). */
    if (chunk == NULL && (chunk = new_chunk(sizeof(*chunk))) != NULL)
        __atomic_store_n(&worker->hits[number / METRICS_CHUNK], chunk, __ATOMIC_RELEASE);
    if (chunk == NULL)
        return;
    uint64_t *units = chunk[number % METRICS_CHUNK].units;
    count_up(&units[HITS_TOTAL], hits->asked);
    uint32_t fitted = hits->is_over ? hits->fitted : hits->asked;
    count_up(&units[hits->is_over ? HITS_OVER : HITS_WITHIN],
             hits->is_over ? hits->asked - fitted : hits->asked);
    if (hits->is_over && hits->is_shadow)
        count_up(&units[HITS_SHADOW], hits->asked - fitted);
    count_up(&units[HITS_NEAR], near_units(worker->metrics, hits, fitted));
}

/* ---- Shared stores --------------------------------------------------------------------------- */

bool metrics_add_store(struct metrics *metrics, const char *name, bool is_needed)
{
    assert(metrics_is_valid(metrics));
    assert(name != NULL);
    if (metrics->n_stores == RULES_STORES_MAX)
        return false;
    struct metrics_store *store = &metrics->stores[metrics->n_stores];
    size_t size = metrics->n_workers * sizeof(*store->workers);
    *store = (struct metrics_store){.is_needed = is_needed};
    store->name = copy_text(span_of_text(name));
    store->workers = aligned_alloc(_Alignof(struct backend_metrics), size);
    if (store->name == NULL || store->workers == NULL) {
        free(store->name);
        free(store->workers);
        return false;
    }
    memset(store->workers, 0, size);
    metrics->n_stores++;
    return true;
}

struct backend_metrics *metrics_store(struct metrics *metrics, size_t store, unsigned worker)
{
    assert(metrics_is_valid(metrics));
    assert(worker < metrics->n_workers);
    return store < metrics->n_stores ? &metrics->stores[store].workers[worker] : NULL;
}

/* ---- Control planes -------------------------------------------------------------------------- */

void metrics_add_control_plane(struct metrics *metrics, const char *url)
{
    assert(metrics_is_valid(metrics));
    assert(metrics->n_control_planes < METRICS_CONTROL_PLANES_MAX);
    metrics->control_planes[metrics->n_control_planes++].url = url;
}

void metrics_control_plane_connected(struct metrics *metrics, size_t plane, bool is_connected)
{
    assert(plane < metrics->n_control_planes);
    pthread_mutex_lock(&metrics->lock);
    metrics->control_planes[plane].is_connected = is_connected;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_control_plane_answered(struct metrics *metrics, size_t plane, bool is_accepted,
                                    const char *version, uint64_t now_ns)
{
    assert(plane < metrics->n_control_planes);
    struct metrics_control_plane *counted = &metrics->control_planes[plane];
    pthread_mutex_lock(&metrics->lock);
    counted->answers[is_accepted]++;
    if (is_accepted) {
        counted->updated_ns = now_ns;
        snprintf(counted->version, sizeof(counted->version), "%s", version);
    }
    pthread_mutex_unlock(&metrics->lock);
}

/* ---- Summing --------------------------------------------------------------------------------- */

/* Adds up structs that contain only uint64_t counters. */
static void add_metrics(void *sum, const void *metrics, size_t size)
{
    assert(size % sizeof(uint64_t) == 0);
    uint64_t *to = sum;
    const uint64_t *from = metrics;
    for (size_t i = 0; i < size / sizeof(*to); i++)
        to[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

struct series_metrics metrics_sum_series(const struct metrics *metrics, uint32_t number)
{
    assert(number < METRICS_SERIES_MAX);
    struct series_metrics sum = {.units = 0};
    for (unsigned i = 0; i < metrics->n_workers; i++) {
        /* acquire: pairs with the release of metrics_of(). */
        const struct series_metrics *chunk =
            __atomic_load_n(&metrics->workers[i].chunks[number / METRICS_CHUNK], __ATOMIC_ACQUIRE);
        if (chunk != NULL)
            add_metrics(&sum, &chunk[number % METRICS_CHUNK], sizeof(sum));
    }
    return sum;
}

struct frontend_metrics metrics_sum_frontend(const struct metrics *metrics, unsigned frontend)
{
    assert(frontend < METRICS_FRONTENDS);
    struct frontend_metrics sum = {.verbs = {0}};
    for (unsigned i = 0; i < metrics->n_workers; i++)
        add_metrics(&sum, &metrics->workers[i].frontends[frontend], sizeof(sum));
    return sum;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns == 0 ? b_ns : b_ns == 0 ? a_ns : min_u64(a_ns, b_ns);
}

struct backend_metrics metrics_sum_store(const struct metrics *metrics, size_t store)
{
    assert(store < metrics->n_stores);
    struct backend_metrics sum;
    uint64_t failovers = 0, skew_ns = 0, state = 0, since_ns = 0;
    memset(&sum, 0, sizeof(sum)); /* its end is padded */
    for (unsigned i = 0; i < metrics->n_workers; i++) {
        const struct backend_metrics *from = &metrics->stores[store].workers[i];
        add_metrics(&sum, from, sizeof(sum));
        failovers = max_u64(failovers, backend_metric(&from->failovers));
        skew_ns = max_u64(skew_ns, backend_metric(&from->clock_skew_ns));
        state = max_u64(state, backend_metric(&from->state));
        since_ns = earlier(since_ns, backend_metric(&from->unavailable_since_ns));
    }
    sum.failovers = failovers; /* each worker sees the same value, as of the skew */
    sum.clock_skew_ns = skew_ns;
    sum.state = state;
    sum.unavailable_since_ns = since_ns;
    return sum;
}

struct total_metrics metrics_sum_total(const struct metrics *metrics)
{
    assert(metrics_is_valid(metrics));
    struct total_metrics sum = {.units = 0};
    for (unsigned i = 0; i < metrics->n_workers; i++)
        add_metrics(&sum, &metrics->workers[i].total, sizeof(sum));
    for (size_t i = 0; i < metrics->n_stores; i++) {
        struct backend_metrics store = metrics_sum_store(metrics, i);
        sum.events[METRICS_EXPIRED_FLOOR] += store.expired_floor;
        sum.events[METRICS_EXPIRED_RELEASE] += store.expired_release;
        sum.events[METRICS_EXPIRY_KEPT_UNITS] += store.expiry_kept_units;
    }
    return sum;
}

bool metrics_has_stores(const struct metrics *metrics)
{
    assert(metrics_is_valid(metrics));
    for (size_t i = 0; i < metrics->n_stores; i++)
        if (metrics->stores[i].is_needed && metrics_sum_store(metrics, i).unavailable_since_ns > 0)
            return false;
    return true;
}

/* ---- What changes with time ------------------------------------------------------------------ */

void metrics_reloaded(struct metrics *metrics, bool worked, const char *message, uint64_t now_ns)
{
    assert(metrics_is_valid(metrics));
    assert(worked || message != NULL);
    pthread_mutex_lock(&metrics->lock);
    metrics->reloads[worked]++;
    metrics->reloaded_at_ns = now_ns;
    snprintf(metrics->reload_error, sizeof(metrics->reload_error), "%s", worked ? "" : message);
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_tick(struct metrics *metrics, uint64_t now_ns)
{
    assert(metrics_is_valid(metrics));
    pthread_mutex_lock(&metrics->lock);
    if (metrics->n_samples == 0)
        metrics->started_ns = now_ns;
    metrics->samples[metrics->n_samples++ % METRICS_HISTORY] =
        (struct metrics_sample){now_ns, metrics_sum_total(metrics)};
    pthread_mutex_unlock(&metrics->lock);
}
