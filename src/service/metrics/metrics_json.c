/* SPDX-License-Identifier: MIT */
/* Metrics as one JSON object, for the dashboard and `stint top`: /v1/stats. */
#include "base/ns.h"
#include "service/metrics/metrics_parts.h"
#include "table/table.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>

#define RECENT 10 /* seconds that the percentiles of durations cover */
#define NUMBER(n) ((json_int_t)(n))

static void put(json_t *object, const char *name, uint64_t n)
{
    json_object_set_new(object, name, json_integer(NUMBER(n)));
}

static json_t *seconds(uint64_t ns)
{
    return json_real((double)ns / (double)NS_PER_S);
}

static json_t *numbers(const uint64_t *all, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer(NUMBER(all[i])));
    return array;
}

static uint64_t allowed_of(const uint64_t outcomes[METRICS_OUTCOMES])
{
    return outcomes[METRICS_ALLOW] + outcomes[METRICS_SHADOW];
}

static uint64_t denied_of(const uint64_t outcomes[METRICS_OUTCOMES])
{
    return outcomes[METRICS_DENY] + outcomes[METRICS_NEVER] + outcomes[METRICS_BANNED];
}

static uint64_t sum_of(const uint64_t *metrics, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += metrics[i];
    return sum;
}

/* ---- Rates ----------------------------------------------------------------------------------- */

/* The sample `back` before the latest; NULL where it is no longer kept. */
static const struct metrics_sample *sample_at(const struct metrics *metrics, size_t back)
{
    if (back >= metrics->n_samples || back >= METRICS_HISTORY)
        return NULL;
    return &metrics->samples[(metrics->n_samples - 1 - back) % METRICS_HISTORY];
}

static double per_second(uint64_t from, uint64_t to, uint64_t ns)
{
    assert(to >= from);
    return ns > 0 ? (double)(to - from) * (double)NS_PER_S / (double)ns : 0;
}

/* Counts between two samples, per second. */
static json_t *rates_json(const struct metrics_sample *from, const struct metrics_sample *to)
{
    assert(to->at_ns >= from->at_ns);
    const uint64_t *before = from->total.outcomes, *after = to->total.outcomes;
    uint64_t ns = to->at_ns - from->at_ns;
    return json_pack("{s:f, s:f, s:f, s:f}", "allowed",
                     per_second(allowed_of(before), allowed_of(after), ns), "denied",
                     per_second(denied_of(before), denied_of(after), ns), "replaced",
                     per_second(before[METRICS_REPLACED], after[METRICS_REPLACED], ns), "units",
                     per_second(from->total.units, to->total.units, ns));
}

static json_t *last_rates(const struct metrics *metrics)
{
    const struct metrics_sample *to = sample_at(metrics, 0), *from = sample_at(metrics, 1);
    return from != NULL ? rates_json(from, to) : json_null();
}

/* Oldest first; each with its age. */
static json_t *history_json(const struct metrics *metrics, uint64_t now_ns)
{
    json_t *history = json_array();
    for (size_t back = METRICS_HISTORY - 1; back-- > 0;) {
        const struct metrics_sample *to = sample_at(metrics, back);
        const struct metrics_sample *from = sample_at(metrics, back + 1);
        if (from == NULL)
            continue;
        json_t *rates = rates_json(from, to);
        json_object_set_new(rates, "age_s", seconds(sub_floor(now_ns, to->at_ns)));
        json_array_append_new(history, rates);
    }
    return history;
}

/* ---- Durations ------------------------------------------------------------------------------- */

/* The end of the bucket that contains this per-mille quantile; null where the bucket has no end. */
static json_t *percentile(const uint64_t buckets[METRICS_BUCKETS], uint64_t count,
                          unsigned thousandths)
{
    assert(thousandths <= 1000);
    uint64_t seen = 0, wanted = (count * thousandths + 999) / 1000;
    for (unsigned i = 0; i + 1 < METRICS_BUCKETS; i++) {
        seen += buckets[i];
        if (count > 0 && seen >= wanted)
            return json_integer(NUMBER((uint64_t)METRICS_BUCKET_NS << i));
    }
    return json_null();
}

static json_t *durations_json(const struct metrics *metrics)
{
    static const struct total_metrics none;
    const struct metrics_sample *to = sample_at(metrics, 0);
    const struct metrics_sample *from = sample_at(metrics, RECENT);
    const struct total_metrics *after = to != NULL ? &to->total : &none;
    const struct total_metrics *before = from != NULL ? &from->total : &none;
    uint64_t buckets[METRICS_BUCKETS], count = 0;
    for (unsigned i = 0; i < METRICS_BUCKETS; i++) {
        assert(after->buckets[i] >= before->buckets[i]);
        buckets[i] = after->buckets[i] - before->buckets[i];
        count += buckets[i];
    }
    uint64_t ns = after->duration_ns - before->duration_ns;
    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "timed", NUMBER(count), "mean_ns",
                     NUMBER(count > 0 ? ns / count : 0), "first_bucket_ns",
                     NUMBER(METRICS_BUCKET_NS), "p50_ns", percentile(buckets, count, 500), "p99_ns",
                     percentile(buckets, count, 990), "p999_ns", percentile(buckets, count, 999),
                     "buckets", numbers(buckets, METRICS_BUCKETS));
}

/* ---- Rules ----------------------------------------------------------------------------------- */

struct ranked {
    struct series_metrics sum;
    const struct series *series;
    uint64_t asked;
};

static int by_asked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->asked != y->asked)
        return x->asked > y->asked ? -1 : 1;
    return x->series->number < y->series->number ? -1 : 1;
}

static json_t *rule_json(const struct ranked *ranked)
{
    assert(ranked->asked > 0);
    json_t *rule =
        json_pack("{s:s, s:s}", "domain", ranked->series->domain, "rule", ranked->series->rule);
    for (unsigned i = 0; i < METRICS_OUTCOMES; i++)
        put(rule, metrics_outcome_names[i], ranked->sum.outcomes[i]);
    put(rule, "candidate_over", ranked->sum.candidate_over);
    put(rule, "units", ranked->sum.units);
    return rule;
}

/* Rules with requests, in force or not: the most requested first. NULL: no memory. */
static struct ranked *rank(const struct metrics *metrics, size_t *n)
{
    struct ranked *ranked = calloc(metrics->n_series, sizeof(*ranked));
    *n = 0;
    for (size_t i = 0; ranked != NULL && i < metrics->n_series; i++) {
        struct ranked one = {.series = metrics->series[i]};
        if (one.series->value != NULL)
            continue;
        one.sum = metrics_sum_series(metrics, one.series->number);
        one.asked = sum_of(one.sum.outcomes, METRICS_OUTCOMES);
        if (one.asked > 0)
            ranked[(*n)++] = one;
    }
    assert(*n <= metrics->n_series);
    if (*n > 0)
        qsort(ranked, *n, sizeof(*ranked), by_asked);
    return ranked;
}

static void add_rules(json_t *object, const struct metrics *metrics)
{
    size_t n;
    struct ranked *ranked = rank(metrics, &n);
    json_t *rules = json_array();
    for (size_t i = 0; i < n && i < METRICS_JSON_RULES; i++)
        json_array_append_new(rules, rule_json(&ranked[i]));
    free(ranked);
    json_object_set_new(object, "rules", rules);
    json_object_set_new(object, "rules_more",
                        json_integer(n > METRICS_JSON_RULES ? NUMBER(n - METRICS_JSON_RULES) : 0));
}

/* ---- Other metrics --------------------------------------------------------------------------- */

static json_t *totals_json(const struct total_metrics *total)
{
    json_t *totals = json_object();
    for (unsigned i = 0; i < METRICS_OUTCOMES; i++)
        put(totals, metrics_outcome_names[i], total->outcomes[i]);
    put(totals, "units", total->units);
    put(totals, "unmatched", total->events[METRICS_UNMATCHED]);
    put(totals, "replayed", total->events[METRICS_REPLAYED]);
    put(totals, "bans", total->events[METRICS_BANS]);
    put(totals, "bans_lost", total->events[METRICS_BANS_LOST]);
    return totals;
}

static json_t *frontends_json(const struct metrics *metrics)
{
    json_t *frontends = json_object();
    for (unsigned i = 0; i < METRICS_FRONTENDS; i++) {
        struct frontend_metrics frontend = metrics_sum_frontend(metrics, i);
        const uint64_t *n = frontend.counters;
        uint64_t open = sub_floor(n[METRICS_OPENED], n[METRICS_CLOSED]);
        json_object_set_new(
            frontends, metrics_frontend_names[i],
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests",
                      NUMBER(sum_of(frontend.verbs, REQUEST_VERBS)), "errors",
                      NUMBER(sum_of(frontend.errors, METRICS_ERRORS) + n[METRICS_MALFORMED]),
                      "open", NUMBER(open), "opened", NUMBER(n[METRICS_OPENED]), "refused",
                      NUMBER(sum_of(frontend.refused, METRICS_REFUSALS)), "bytes_in",
                      NUMBER(n[METRICS_BYTES_IN]), "bytes_out", NUMBER(n[METRICS_BYTES_OUT])));
    }
    return frontends;
}

static json_t *reloads_json(const struct metrics *metrics, const struct metrics_facts *facts)
{
    json_t *age = json_null();
    if (metrics->reloaded_at_ns > 0 && facts->now_ns >= metrics->reloaded_at_ns)
        age = seconds(facts->now_ns - metrics->reloaded_at_ns);
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:s}", "generation", NUMBER(facts->generation),
                     "rules", NUMBER(facts->rules), "success", NUMBER(metrics->reloads[true]),
                     "failure", NUMBER(metrics->reloads[false]), "age_s", age, "fault",
                     metrics->reload_error);
}

/* How many keys one sampled key represents, where a table is too large to scan. */
static uint64_t keys_step(const struct stint_table_info *info)
{
    const uint64_t looked_at = METRICS_SETS_LOOKED_AT * UINT64_C(8); /* slots in a set */
    uint64_t step = 1;
    for (size_t i = 0; i < sizeof(info->slots) / sizeof(info->slots[0]); i++) {
        uint64_t own = (info->slots[i] + looked_at - 1) / looked_at;
        step = own > step ? own : step;
    }
    return step;
}

static json_t *table_json(const struct metrics_facts *facts)
{
    struct stint_table_info info;
    if (facts->table == NULL)
        return json_null();
    table_metrics(facts->table, facts->table_now_ns, METRICS_SETS_LOOKED_AT, &info);
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes",
        NUMBER(info.bytes), "keys", NUMBER(info.live[0] + info.live[1] + info.live[2]), "keys_step",
        NUMBER(keys_step(&info)), "places", NUMBER(info.slots[0] + info.slots[1] + info.slots[2]),
        "blocked", NUMBER(info.blocked), "quotas", NUMBER(info.quotas), "overrides",
        NUMBER(info.overrides), "answers", NUMBER(info.requests), "answers_dropped",
        NUMBER(info.requests_dropped), "evictions_lossless", NUMBER(info.evictions_lossless),
        "evictions", NUMBER(info.evictions_evict), "forgotten_units", NUMBER(info.forgotten_units),
        "full_waits", NUMBER(info.evictions_inherit), "full_denied", NUMBER(info.full_denied),
        "full_allowed", NUMBER(info.full_allowed));
}

/* ---- Shared stores --------------------------------------------------------------------------- */

static json_t *diagnostics_json(const struct backend_metrics *sum)
{
    json_t *errors = json_object();
    for (unsigned error = 0; error < BACKEND_ERRORS; error++)
        put(errors, metrics_store_error_names[error], sum->errors[error]);
    put(errors, "refused", sum->refused);
    return errors;
}

static json_t *latency_json(const struct backend_metrics *sum)
{
    uint64_t count = sum_of(sum->buckets, STORE_BUCKETS);
    return json_pack("{s:I, s:I, s:I, s:o}", "answers", NUMBER(count), "mean_ns",
                     NUMBER(count > 0 ? sum->duration_ns / count : 0), "first_bucket_ns",
                     NUMBER(STORE_BUCKET_NS), "buckets", numbers(sum->buckets, STORE_BUCKETS));
}

static json_t *stores_json(const struct metrics *metrics, uint64_t now_ns)
{
    json_t *stores = json_array();
    for (size_t i = 0; i < metrics->n_stores; i++) {
        struct backend_metrics sum = metrics_sum_store(metrics, i);
        assert(sum.state < STORE_STATES);
        json_array_append_new(
            stores,
            json_pack(
                "{s:s, s:s, s:f, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "store",
                metrics->stores[i].name, "state", metrics_store_state_names[sum.state], "away_s",
                metrics_unavailable_s(&sum, now_ns), "asks", NUMBER(sum.asks), "errors",
                diagnostics_json(&sum), "latency", latency_json(&sum), "deny_cache_hits",
                NUMBER(sum.denials_hit), "cautious", NUMBER(sum.cautious), "lease_units",
                NUMBER(sum.lease_units), "failovers", NUMBER(sum.failovers), "conflicts",
                NUMBER(sum.conflicts), "busy", NUMBER(sum.busy), "damaged", NUMBER(sum.damaged),
                "clock_skew_s", (double)sum.clock_skew_ns / (double)NS_PER_S));
    }
    return stores;
}

/* ---- The object ------------------------------------------------------------------------------ */

static int append(const char *text, size_t len, void *page)
{
    page_add_span(page, span_of(text, len));
    return 0;
}

void metrics_json(struct metrics *metrics, const struct metrics_facts *facts, struct page *page)
{
    assert(metrics_is_valid(metrics));
    assert(facts != NULL && page != NULL);
    json_t *object = json_object();
    json_object_set_new(object, "version", json_string(stint_version()));
    json_object_set_new(object, "clock",
                        json_string(facts->has_virtual_clock ? "virtual" : "real"));
    json_object_set_new(object, "table", table_json(facts));
    json_object_set_new(object, "stores", stores_json(metrics, facts->now_ns));
    pthread_mutex_lock(&metrics->lock);
    const struct total_metrics total = metrics_sum_total(metrics);
    json_object_set_new(object, "now_s", seconds(facts->now_ns));
    json_object_set_new(object, "up_s", seconds(sub_floor(facts->now_ns, metrics->started_ns)));
    json_object_set_new(object, "totals", totals_json(&total));
    json_object_set_new(object, "rates", last_rates(metrics));
    json_object_set_new(object, "history", history_json(metrics, facts->now_ns));
    json_object_set_new(object, "durations", durations_json(metrics));
    json_object_set_new(object, "frontends", frontends_json(metrics));
    json_object_set_new(object, "reloads", reloads_json(metrics, facts));
    add_rules(object, metrics);
    pthread_mutex_unlock(&metrics->lock);
    size_t before = page->len;
    json_dump_callback(object, append, page, JSON_COMPACT | JSON_REAL_PRECISION(9));
    /* Without memory for a part, the page has failed. */
    page->failed = page->failed || object == NULL || page->len == before;
    json_decref(object);
}
