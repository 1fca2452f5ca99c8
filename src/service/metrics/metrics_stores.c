/* SPDX-License-Identifier: MIT */
/* Metrics of shared stores: counted by the worker that sends the requests, summed by a reader. */
#include "base/ns.h"
#include "base/wide_int.h"
#include "service/metrics/metrics_parts.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define SECONDS(ns) ((double)(ns) / 1e9)
#define NUMBER(n) ((json_int_t)(n))

static const char *const fault_names[BACKEND_ERRORS] = {"other",    "late", "lost",  "unreachable",
                                                        "overload", "busy", "state", "stopped"};
static const char *const state_names[STORE_STATES] = {"asked", "probed", "stopped"};

/* ---- Counting -------------------------------------------------------------------------------- */

void backend_metrics_took(struct backend_metrics *metrics, uint64_t duration_ns)
{
    /* The least i with duration_ns <= STORE_BUCKET_NS << i. */
    unsigned bucket = bit_length((duration_ns > 0 ? duration_ns - 1 : 0) / STORE_BUCKET_NS);
    bucket = bucket < STORE_BUCKETS ? bucket : STORE_BUCKETS - 1;
    backend_metric_up(&metrics->buckets[bucket]);
    backend_metric_set(&metrics->duration_ns, backend_metric(&metrics->duration_ns) + duration_ns);
}

bool metrics_add_store(struct metrics *metrics, const char *name, bool is_needed)
{
    if (metrics->n_stores == RULES_STORES_MAX)
        return false;
    struct metrics_store *store = &metrics->stores[metrics->n_stores];
    size_t size = metrics->n_workers * sizeof(*store->workers);
    *store = (struct metrics_store){.is_needed = is_needed};
    store->name = malloc(strlen(name) + 1);
    store->workers = aligned_alloc(_Alignof(struct backend_metrics), size);
    if (store->name == NULL || store->workers == NULL) {
        free(store->name);
        free(store->workers);
        return false;
    }
    memcpy(store->name, name, strlen(name) + 1);
    memset(store->workers, 0, size);
    metrics->n_stores++;
    return true;
}

void metrics_free_stores(struct metrics *metrics)
{
    for (size_t i = 0; i < metrics->n_stores; i++) {
        free(metrics->stores[i].name);
        free(metrics->stores[i].workers);
    }
    metrics->n_stores = 0;
}

struct backend_metrics *metrics_store(struct metrics *metrics, size_t store, unsigned worker)
{
    return store < metrics->n_stores ? &metrics->stores[store].workers[worker] : NULL;
}

/* ---- Summing --------------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns == 0 ? b_ns : b_ns == 0 ? a_ns : min_u64(a_ns, b_ns);
}

/* The state is that of the worker with the worst state. */
static struct backend_metrics sum_of(const struct metrics *metrics, size_t store)
{
    struct backend_metrics sum = {.asks = 0};
    for (unsigned i = 0; i < metrics->n_workers; i++) {
        const struct backend_metrics *from = &metrics->stores[store].workers[i];
        sum.asks += backend_metric(&from->asks);
        for (unsigned fault = 0; fault < BACKEND_ERRORS; fault++)
            sum.errors[fault] += backend_metric(&from->errors[fault]);
        sum.refused += backend_metric(&from->refused);
        for (unsigned bucket = 0; bucket < STORE_BUCKETS; bucket++)
            sum.buckets[bucket] += backend_metric(&from->buckets[bucket]);
        sum.duration_ns += backend_metric(&from->duration_ns);
        sum.denials_hit += backend_metric(&from->denials_hit);
        sum.cautious += backend_metric(&from->cautious);
        sum.lease_units += backend_metric(&from->lease_units);
        sum.conflicts += backend_metric(&from->conflicts);
        sum.busy += backend_metric(&from->busy);
        sum.damaged += backend_metric(&from->damaged);
        sum.expired_floor += backend_metric(&from->expired_floor);
        sum.expired_release += backend_metric(&from->expired_release);
        sum.expiry_kept_units += backend_metric(&from->expiry_kept_units);
        sum.tickets_dropped += backend_metric(&from->tickets_dropped);
        /* Each worker sees the same value. */
        sum.failovers = max_u64(sum.failovers, backend_metric(&from->failovers));
        sum.clock_skew_ns = max_u64(sum.clock_skew_ns, backend_metric(&from->clock_skew_ns));
        sum.state = max_u64(sum.state, backend_metric(&from->state));
        sum.unavailable_since_ns =
            earlier(sum.unavailable_since_ns, backend_metric(&from->unavailable_since_ns));
    }
    return sum;
}

static uint64_t diagnostics_of(const struct backend_metrics *sum)
{
    uint64_t n = sum->refused;
    for (unsigned fault = 0; fault < BACKEND_ERRORS; fault++)
        n += sum->errors[fault];
    return n;
}

static double unavailable_seconds(const struct backend_metrics *sum, uint64_t now_ns)
{
    return sum->unavailable_since_ns > 0 ? SECONDS(sub_floor(now_ns, sum->unavailable_since_ns))
                                         : 0;
}

void metrics_add_expired(const struct metrics *metrics, struct total_metrics *total)
{
    for (size_t i = 0; i < metrics->n_stores; i++) {
        struct backend_metrics sum = sum_of(metrics, i);
        total->events[METRICS_EXPIRED_FLOOR] += sum.expired_floor;
        total->events[METRICS_EXPIRED_RELEASE] += sum.expired_release;
        total->events[METRICS_EXPIRY_KEPT_UNITS] += sum.expiry_kept_units;
    }
}

bool metrics_has_stores(const struct metrics *metrics)
{
    for (size_t i = 0; i < metrics->n_stores; i++)
        if (metrics->stores[i].is_needed && sum_of(metrics, i).unavailable_since_ns > 0)
            return false;
    return true;
}

void metrics_tell_stores(const struct metrics *metrics, uint64_t now_ns, struct page *page)
{
    for (size_t i = 0; i < metrics->n_stores; i++) {
        struct backend_metrics sum = sum_of(metrics, i);
        if (sum.unavailable_since_ns > 0)
            page_print(page, "store %s: unavailable for %.1f s\n", metrics->stores[i].name,
                       unavailable_seconds(&sum, now_ns));
    }
}

void metrics_info_stores(const struct metrics *metrics, uint64_t now_ns, struct page *page)
{
    page_print(page, "# Stores\r\nstores:%zu\r\n", metrics->n_stores);
    for (size_t i = 0; i < metrics->n_stores; i++) {
        struct backend_metrics sum = sum_of(metrics, i);
        page_print(page,
                   "store%zu:name=%s,state=%s,away_s=%.1f,asks=%" PRIu64 ",errors=%" PRIu64
                   ",deny_cache_hits=%" PRIu64 ",lease_units=%" PRIu64 "\r\n",
                   i, metrics->stores[i].name, state_names[sum.state],
                   unavailable_seconds(&sum, now_ns), sum.asks, diagnostics_of(&sum),
                   sum.denials_hit, sum.lease_units);
    }
}

/* ---- In Prometheus' format ------------------------------------------------------------------- */

struct stores_writing {
    const struct metrics *metrics;
    const struct backend_metrics *sums; /* of each store */
    enum metrics_format format;
    struct page *page;
};

static void family(const struct stores_writing *writing, const char *name, const char *type,
                   const char *help)
{
    bool is_counter = strcmp(type, "counter") == 0;
    const char *end = is_counter && writing->format == METRICS_PROMETHEUS ? "_total" : "";
    page_print(writing->page, "# HELP stint_%s%s %s\n# TYPE stint_%s%s %s\n", name, end, help, name,
               end, type);
}

/* stint_NAME{store="…" without the closing brace. */
static void begin(const struct stores_writing *writing, const char *name, size_t store)
{
    page_print(writing->page, "stint_%s{store=\"", name);
    metrics_add_escaped(writing->page, span_of_text(writing->metrics->stores[store].name));
    page_add(writing->page, "\"");
}

static void end(const struct stores_writing *writing, uint64_t n)
{
    page_print(writing->page, "} %" PRIu64 "\n", n);
}

/* One metric of each store; `offset` finds it. */
static void write_one(const struct stores_writing *writing, const char *name, const char *type,
                      const char *help, size_t offset)
{
    char sample[64];
    snprintf(sample, sizeof(sample), "%s%s", name, strcmp(type, "counter") == 0 ? "_total" : "");
    family(writing, name, type, help);
    for (size_t i = 0; i < writing->metrics->n_stores; i++) {
        uint64_t n;
        memcpy(&n, (const char *)&writing->sums[i] + offset, sizeof(n));
        begin(writing, sample, i);
        end(writing, n);
    }
}

static void write_faults(const struct stores_writing *writing)
{
    family(writing, "store_errors", "counter", "Store requests without a decision, by reason.");
    for (size_t i = 0; i < writing->metrics->n_stores; i++) {
        for (unsigned fault = 0; fault < BACKEND_ERRORS; fault++) {
            begin(writing, "store_errors_total", i);
            page_print(writing->page, ",reason=\"%s\"", fault_names[fault]);
            end(writing, writing->sums[i].errors[fault]);
        }
        begin(writing, "store_errors_total", i);
        page_add(writing->page, ",reason=\"refused\"");
        end(writing, writing->sums[i].refused);
    }
}

static void write_latency(const struct stores_writing *writing, size_t store)
{
    const struct backend_metrics *sum = &writing->sums[store];
    uint64_t count = 0;
    for (unsigned i = 0; i < STORE_BUCKETS; i++) {
        char bound[32] = "+Inf";
        count += sum->buckets[i];
        if (i + 1 < STORE_BUCKETS)
            snprintf(bound, sizeof(bound), "%.9g", SECONDS((uint64_t)STORE_BUCKET_NS << i));
        begin(writing, "store_latency_seconds_bucket", store);
        page_print(writing->page, ",le=\"%s\"", bound);
        end(writing, count);
    }
    begin(writing, "store_latency_seconds_sum", store);
    page_print(writing->page, "} %.9f\n", SECONDS(sum->duration_ns));
    begin(writing, "store_latency_seconds_count", store);
    end(writing, count);
}

void metrics_write_stores(const struct metrics *metrics, uint64_t now_ns,
                          enum metrics_format format, struct page *page)
{
    struct backend_metrics sums[RULES_STORES_MAX];
    const struct stores_writing writing = {metrics, sums, format, page};
    if (metrics->n_stores == 0)
        return;
    for (size_t i = 0; i < metrics->n_stores; i++)
        sums[i] = sum_of(metrics, i);
    write_one(&writing, "store_asks", "counter", "Decisions and pool calls that needed a store.",
              offsetof(struct backend_metrics, asks));
    write_faults(&writing);
    family(&writing, "store_latency_seconds", "histogram",
           "Time from a store request to its reply or timeout.");
    for (size_t i = 0; i < metrics->n_stores; i++)
        write_latency(&writing, i);
    write_one(&writing, "store_state", "gauge",
              "State of a store's breaker: closed (0), probing (1), open (2).",
              offsetof(struct backend_metrics, state));
    family(&writing, "store_away_seconds", "gauge",
           "How long a store has been unavailable; 0: it is available.");
    for (size_t i = 0; i < metrics->n_stores; i++) {
        begin(&writing, "store_away_seconds", i);
        page_print(page, "} %.3f\n", unavailable_seconds(&sums[i], now_ns));
    }
    write_one(&writing, "deny_cache_hits", "counter", "Store requests denied by the denial cache.",
              offsetof(struct backend_metrics, denials_hit));
    write_one(
        &writing, "store_cautious", "counter",
        "Store requests for a key without a state after a failover, which were denied or charged.",
        offsetof(struct backend_metrics, cautious));
    write_one(&writing, "lease_units", "gauge", "Units leased from a store and not used yet.",
              offsetof(struct backend_metrics, lease_units));
    write_one(&writing, "store_failovers", "counter",
              "Servers of a store that restarted, or were replaced.",
              offsetof(struct backend_metrics, failovers));
    write_one(&writing, "store_conflicts", "counter",
              "Updates of a state in memcached that conflicted with another server's.",
              offsetof(struct backend_metrics, conflicts));
    write_one(&writing, "store_busy", "counter",
              "Requests to memcached that timed out after repeated conflicts.",
              offsetof(struct backend_metrics, busy));
    write_one(&writing, "store_damaged", "counter",
              "States in memcached that were damaged, and were replaced by exhausted ones.",
              offsetof(struct backend_metrics, damaged));
    write_one(&writing, "store_tickets_dropped", "counter",
              "Reservations over memcached closed as estimated, as their key had too many open.",
              offsetof(struct backend_metrics, tickets_dropped));
    family(&writing, "store_clock_skew_seconds", "gauge",
           "The largest time by which another server's clock was ahead, over memcached.");
    for (size_t i = 0; i < metrics->n_stores; i++) {
        begin(&writing, "store_clock_skew_seconds", i);
        page_print(page, "} %.6f\n", SECONDS(sums[i].clock_skew_ns));
    }
}

/* ---- As JSON --------------------------------------------------------------------------------- */

static json_t *diagnostics_json(const struct backend_metrics *sum)
{
    json_t *errors = json_object();
    for (unsigned fault = 0; fault < BACKEND_ERRORS; fault++)
        json_object_set_new(errors, fault_names[fault], json_integer(NUMBER(sum->errors[fault])));
    json_object_set_new(errors, "refused", json_integer(NUMBER(sum->refused)));
    return errors;
}

static json_t *latency_json(const struct backend_metrics *sum)
{
    uint64_t count = 0;
    json_t *buckets = json_array();
    for (unsigned i = 0; i < STORE_BUCKETS; i++) {
        count += sum->buckets[i];
        json_array_append_new(buckets, json_integer(NUMBER(sum->buckets[i])));
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "answers", NUMBER(count), "mean_ns",
                     NUMBER(count > 0 ? sum->duration_ns / count : 0), "first_bucket_ns",
                     NUMBER(STORE_BUCKET_NS), "buckets", buckets);
}

struct json_t *metrics_stores_json(const struct metrics *metrics, uint64_t now_ns)
{
    json_t *stores = json_array();
    for (size_t i = 0; i < metrics->n_stores; i++) {
        struct backend_metrics sum = sum_of(metrics, i);
        json_array_append_new(
            stores,
            json_pack("{s:s, s:s, s:f, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}",
                      "store", metrics->stores[i].name, "state", state_names[sum.state], "away_s",
                      unavailable_seconds(&sum, now_ns), "asks", NUMBER(sum.asks), "errors",
                      diagnostics_json(&sum), "latency", latency_json(&sum), "deny_cache_hits",
                      NUMBER(sum.denials_hit), "cautious", NUMBER(sum.cautious), "lease_units",
                      NUMBER(sum.lease_units), "failovers", NUMBER(sum.failovers), "conflicts",
                      NUMBER(sum.conflicts), "busy", NUMBER(sum.busy), "damaged",
                      NUMBER(sum.damaged), "clock_skew_s", SECONDS(sum.clock_skew_ns)));
    }
    return stores;
}
