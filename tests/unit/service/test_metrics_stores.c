/* SPDX-License-Identifier: MIT */
/* Figures of shared stores: as pages, as JSON, in INFO and in what /readyz says. */
#include "unit/test_quota.h"

#include "service/metrics/metrics.h"

#include <jansson.h>

static struct metrics *metrics;

SETUP
{
    metrics = metrics_new(2);
    assert_non_null(metrics);
    assert_true(metrics_add_store(metrics, "main", false));
    assert_true(metrics_add_store(metrics, "say \"hi\"", true));
}

TEARDOWN
{
    metrics_free(metrics);
}

/* What two workers have come to with the first store. */
static void count(void)
{
    for (unsigned worker = 0; worker < 2; worker++) {
        struct backend_metrics *counts = metrics_store(metrics, 0, worker);
        backend_metric_set(&counts->asks, 10);
        backend_metric_set(&counts->errors[BACKEND_ERROR_LATE], 2);
        backend_metric_up(&counts->refused);
        backend_metrics_took(counts, 16384);
        backend_metrics_took(counts, 2 * S);
        backend_metric_set(&counts->denials_hit, 3);
        backend_metric_set(&counts->lease_units, 50);
        backend_metric_set(&counts->conflicts, 7);
        backend_metric_set(&counts->failovers, 1 + worker);
    }
    backend_metric_set(&metrics_store(metrics, 0, 0)->clock_skew_ns, S / 4);
    backend_metric_set(&metrics_store(metrics, 0, 1)->state, STORE_PROBED);
    backend_metric_set(&metrics_store(metrics, 0, 1)->unavailable_since_ns, 4 * S);
}

static const char *page_of(enum metrics_format format, struct page *page)
{
    const struct metrics_facts facts = {.now_ns = 10 * S};
    metrics_write(metrics, &facts, format, page);
    assert_false(page->failed);
    page_add_span(page, span_of("", 1));
    return page->text;
}

TEST(workers_are_summed_on_the_page)
{
    static const char *const lines[] = {
        "# TYPE stint_store_errors_total counter",
        "# TYPE stint_store_latency_seconds histogram",
        "stint_store_asks_total{store=\"main\"} 20",
        "stint_store_asks_total{store=\"say \\\"hi\\\"\"} 0",
        "stint_store_errors_total{store=\"main\",reason=\"late\"} 4",
        "stint_store_errors_total{store=\"main\",reason=\"refused\"} 2",
        "stint_store_errors_total{store=\"main\",reason=\"stopped\"} 0",
        "stint_store_latency_seconds_bucket{store=\"main\",le=\"1.6384e-05\"} 2",
        "stint_store_latency_seconds_bucket{store=\"main\",le=\"0.536870912\"} 2",
        "stint_store_latency_seconds_bucket{store=\"main\",le=\"+Inf\"} 4",
        "stint_store_latency_seconds_sum{store=\"main\"} 4.000032768",
        "stint_store_latency_seconds_count{store=\"main\"} 4",
        "stint_store_state{store=\"main\"} 1",
        "stint_store_away_seconds{store=\"main\"} 6.000",
        "stint_store_away_seconds{store=\"say \\\"hi\\\"\"} 0.000",
        "stint_deny_cache_hits_total{store=\"main\"} 6",
        "stint_store_cautious_total{store=\"main\"} 0",
        "stint_lease_units{store=\"main\"} 100",
        "stint_store_conflicts_total{store=\"main\"} 14",
        "stint_store_failovers_total{store=\"main\"} 2", /* each worker sees the same */
        "stint_store_clock_skew_seconds{store=\"main\"} 0.250000",
    };
    struct page page = {0};
    count();
    const char *text = page_of(METRICS_PROMETHEUS, &page);
    for (size_t i = 0; i < N(lines); i++)
        assert_line(text, lines[i]);
    page.len = 0;
    text = page_of(METRICS_OPENMETRICS, &page);
    assert_line(text, "# TYPE stint_store_errors counter");
    assert_line(text, "stint_store_errors_total{store=\"main\",reason=\"late\"} 4");
    page_free(&page);
}

TEST(without_stores_the_page_has_nothing_of_them)
{
    metrics_free(metrics);
    metrics = metrics_new(1);
    struct page page = {0};
    assert_null(strstr(page_of(METRICS_PROMETHEUS, &page), "stint_store"));
    assert_null(metrics_store(metrics, 0, 0));
    assert_true(metrics_has_stores(metrics));
    page_free(&page);
}

TEST(the_same_stands_in_the_object)
{
    struct page page = {0};
    const struct metrics_facts facts = {.now_ns = 10 * S};
    count();
    metrics_json(metrics, &facts, &page);
    json_t *object = json_loadb(page.text, page.len, 0, NULL);
    const json_t *store = json_array_get(json_object_get(object, "stores"), 0);
    assert_int_equal(json_array_size(json_object_get(object, "stores")), 2);
    assert_string_equal(json_string_value(json_object_get(store, "store")), "main");
    assert_string_equal(json_string_value(json_object_get(store, "state")), "probed");
    assert_true(json_real_value(json_object_get(store, "away_s")) == 6);
    assert_int_equal(json_integer_value(json_object_get(store, "asks")), 20);
    assert_int_equal(json_integer_value(json_object_get(store, "failovers")), 2);
    assert_int_equal(json_integer_value(json_object_get(store, "conflicts")), 14);
    assert_true(json_real_value(json_object_get(store, "clock_skew_s")) == 0.25);
    const json_t *errors = json_object_get(store, "errors");
    assert_int_equal(json_integer_value(json_object_get(errors, "late")), 4);
    assert_int_equal(json_integer_value(json_object_get(errors, "refused")), 2);
    const json_t *latency = json_object_get(store, "latency");
    assert_int_equal(json_integer_value(json_object_get(latency, "answers")), 4);
    assert_int_equal(json_integer_value(json_object_get(latency, "mean_ns")), 1000008192);
    assert_int_equal(json_array_size(json_object_get(latency, "buckets")), STORE_BUCKETS);
    json_decref(object);
    page_free(&page);
}

TEST(only_a_store_that_is_needed_makes_a_server_unready)
{
    struct page page = {0};
    metrics_tell_stores(metrics, 10 * S, &page);
    assert_int_equal(page.len, 0);
    count();
    assert_true(metrics_has_stores(metrics));
    backend_metric_set(&metrics_store(metrics, 1, 0)->unavailable_since_ns, 10 * S - 250 * MS);
    assert_false(metrics_has_stores(metrics));
    metrics_tell_stores(metrics, 10 * S, &page);
    page_add_span(&page, span_of("", 1));
    assert_string_equal(
        page.text, "store main: unavailable for 6.0 s\nstore say \"hi\": unavailable for 0.2 s\n");
    page_free(&page);
}

TEST(info_has_a_line_for_each)
{
    struct page page = {0};
    count();
    metrics_info_stores(metrics, 10 * S, &page);
    page_add_span(&page, span_of("", 1));
    assert_string_equal(page.text, "# Stores\r\nstores:2\r\n"
                                   "store0:name=main,state=probed,away_s=6.0,asks=20,errors=6,"
                                   "deny_cache_hits=6,lease_units=100\r\n"
                                   "store1:name=say \"hi\",state=asked,away_s=0.0,asks=0,errors=0,"
                                   "deny_cache_hits=0,lease_units=0\r\n");
    page_free(&page);
}

TEST(there_are_so_many_and_no_more)
{
    for (int i = 2; i < 16; i++)
        assert_true(metrics_add_store(metrics, "more", false));
    assert_false(metrics_add_store(metrics, "one too many", false));
}
