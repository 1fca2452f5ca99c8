/* SPDX-License-Identifier: MIT */
/* Figures: summed over workers, kept over reloads, bounded, and written as others read them. */
#include "unit/test_quota.h"

#include "rules/yaml/rules_load.h"
#include "service/metrics/metrics.h"

#include <jansson.h>

#define SHOP                                                                                       \
    "domain: shop\n"                                                                               \
    "descriptors:\n"                                                                               \
    "  - key: user\n"                                                                              \
    "    rate_limit: {unit: minute, requests_per_unit: 5}\n"                                       \
    "  - key: path\n"                                                                              \
    "    value: 'say \"hi\"\\'\n"                                                                  \
    "    rate_limit: {unit: second, requests_per_unit: 7}\n"

static struct rules *load(const char *yaml)
{
    struct rules_diagnostics diagnostics;
    const struct rules_file file = {.path = "rules.yaml", .text = span_of_text(yaml)};
    struct rules *rules = rules_load(&file, 1, &(struct rules_load_options){0}, &diagnostics);
    if (rules == NULL)
        fail_msg("%s", diagnostics.diagnostics[0].message);
    rules_diagnostics_free(&diagnostics);
    return rules;
}

struct fixture {
    struct metrics *metrics;
    struct rules *rules;
    struct metrics_bound *bound;
    struct page page;
};

static struct fixture fixture[1];

SETUP
{
    *fixture = (struct fixture){.metrics = metrics_new(3), .rules = load(SHOP)};
    fixture->bound = metrics_bind(fixture->metrics, fixture->rules);
}

TEARDOWN
{
    metrics_unbind(fixture->bound);
    metrics_free(fixture->metrics);
    rules_unref(fixture->rules);
    page_free(&fixture->page);
}

static void decide(unsigned worker, size_t rule, enum metrics_outcome outcome, uint32_t units)
{
    metrics_decided(metrics_worker(fixture->metrics, worker), fixture->bound,
                    rules_at(fixture->rules, rule), outcome, units);
}

static const char *page_of(enum metrics_format format)
{
    const struct metrics_facts facts = {.now_ns = S, .generation = 4, .rules = 2};
    fixture->page.len = 0;
    metrics_write(fixture->metrics, &facts, format, &fixture->page);
    assert_false(fixture->page.failed);
    page_add_span(&fixture->page, span_of("", 1));
    return fixture->page.text;
}

TEST(test_workers_are_summed)
{
    for (unsigned worker = 0; worker < 3; worker++) {
        decide(worker, 0, METRICS_ALLOW, 2);
        decide(worker, 0, METRICS_DENY, 0);
    }
    decide(1, 0, METRICS_BANNED, 0);
    metrics_candidate_over(metrics_worker(fixture->metrics, 2), fixture->bound,
                           rules_at(fixture->rules, 0));
    metrics_decided(metrics_worker(fixture->metrics, 0), fixture->bound, NULL, METRICS_ALLOW, 1);
    const char *page = page_of(METRICS_PROMETHEUS);
    assert_line(page, "# TYPE stint_decisions_total counter");
    assert_line(page, "stint_decisions_total{domain=\"shop\",rule=\"user\",outcome=\"allow\"} 3");
    assert_line(page, "stint_decisions_total{domain=\"shop\",rule=\"user\",outcome=\"deny\"} 3");
    assert_line(page, "stint_decisions_total{domain=\"shop\",rule=\"user\",outcome=\"banned\"} 1");
    assert_line(page, "stint_decisions_total{domain=\"\",rule=\"\",outcome=\"allow\"} 1");
    assert_line(page, "stint_units_total{domain=\"shop\",rule=\"user\"} 6");
    assert_line(page, "stint_candidate_over_total{domain=\"shop\",rule=\"user\"} 1");
    assert_line(page, "stint_config_generation 4");
}

/* A rule in force that nobody asked is told, so that its first denial is a rise. */
TEST(test_labels_are_escaped)
{
    const char *page = page_of(METRICS_PROMETHEUS);
    const char *path = rules_at(fixture->rules, 1)->path;
    assert_non_null(strchr(path, '"'));
    assert_null(strstr(page, path));
    assert_non_null(strstr(page, "say \\\"hi\\\""));
    assert_non_null(strstr(page, "outcome=\"deny\"} 0"));
}

TEST(test_openmetrics_differs_as_it_must)
{
    decide(0, 0, METRICS_ALLOW, 1);
    const char *page = page_of(METRICS_OPENMETRICS);
    assert_line(page, "# TYPE stint_decisions counter");
    assert_line(page, "stint_decisions_total{domain=\"shop\",rule=\"user\",outcome=\"allow\"} 1");
    assert_string_equal(page + fixture->page.len - 1 - strlen("# EOF\n"), "# EOF\n");
    assert_null(strstr(page_of(METRICS_PROMETHEUS), "# EOF"));
}

/* Also where the rule got another name, or was away for a while. */
TEST(test_metrics_outlive_a_reload)
{
    static const char *const later[] = {
        "domain: shop\ndescriptors:\n  - key: other\n    rate_limit: {unit: day, "
        "requests_per_unit: 1}\n",
        "domain: shop\ndescriptors:\n  - key: new\n    rate_limit: {unit: day, "
        "requests_per_unit: 1}\n  - key: user\n    rate_limit: {name: n, unit: hour, "
        "requests_per_unit: 1}\n",
    };
    decide(0, 0, METRICS_DENY, 0);
    for (int i = 0; i < 2; i++) {
        metrics_unbind(fixture->bound);
        rules_unref(fixture->rules);
        fixture->rules = load(later[i]);
        fixture->bound = metrics_bind(fixture->metrics, fixture->rules);
        assert_line(page_of(METRICS_PROMETHEUS),
                    "stint_decisions_total{domain=\"shop\",rule=\"user\",outcome=\"deny\"} 1");
    }
    for (size_t i = 0; i < 2; i++)
        if (strstr(rules_at(fixture->rules, i)->path, "user") != NULL)
            decide(2, i, METRICS_DENY, 0);
    assert_line(page_of(METRICS_PROMETHEUS),
                "stint_decisions_total{domain=\"shop\",rule=\"user\",outcome=\"deny\"} 2");
}

static unsigned count_lines(const char *page, const char *start)
{
    unsigned n = 0;
    for (const char *at = page; (at = strstr(at, start)) != NULL; at++)
        n += at == page || at[-1] == '\n';
    return n;
}

TEST(test_values_are_bounded)
{
    const struct rule *rule = rules_at(fixture->rules, 0);
    for (unsigned i = 0; i < 3 * METRICS_DETAILS_MAX; i++) {
        char value[32];
        snprintf(value, sizeof(value), "value %u", i);
        metrics_detailed(metrics_worker(fixture->metrics, i % 3), fixture->bound, rule,
                         span_of_text(value), METRICS_ALLOW, 1);
    }
    const char *page = page_of(METRICS_PROMETHEUS);
    assert_int_equal(count_lines(page, "stint_detailed_units_total{"), METRICS_DETAILS_MAX + 1);
    assert_line(page,
                "stint_detailed_units_total{domain=\"shop\",rule=\"user\",value=\"value 7\"} 1");
    char line[128];
    snprintf(line, sizeof(line),
             "stint_detailed_units_total{domain=\"shop\",rule=\"user\",value=\"other\"} %u",
             2 * METRICS_DETAILS_MAX);
    assert_line(page, line);
}

/* Whatever bytes a client sends: no two series of one page have the same labels. */
TEST(test_values_of_any_bytes_stay_apart)
{
    static const char *const values[] = {"a", "\xff", "\xfe", "\\xff", "\n", "\"", "\xef\xbf\xbd"};
    const size_t n = N(values);
    struct metrics_worker *worker = metrics_worker(fixture->metrics, 0);
    for (size_t i = 0; i < n; i++)
        metrics_detailed(worker, fixture->bound, rules_at(fixture->rules, 0),
                         span_of_text(values[i]), METRICS_ALLOW, 1);
    metrics_detailed(worker, fixture->bound, rules_at(fixture->rules, 0), span_of("a\0b", 3),
                     METRICS_ALLOW, 1);
    const char *page = page_of(METRICS_PROMETHEUS), *start = "stint_detailed_units_total{";
    assert_int_equal(count_lines(page, start), n + 1);
    for (const char *at = page; (at = strstr(at, start)) != NULL; at++) {
        char line[256];
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        assert_int_equal(count_lines(page, line), 1);
    }
}

TEST(test_frontends_and_their_requests_are_counted)
{
    struct metrics_worker *worker = metrics_worker(fixture->metrics, 1);
    metrics_count(worker, METRICS_HTTP, METRICS_OPENED, 1);
    metrics_count(worker, METRICS_HTTP, METRICS_OPENED, 1);
    metrics_count(worker, METRICS_HTTP, METRICS_CLOSED, 1);
    metrics_refused(worker, METRICS_RESP, METRICS_REFUSED_ADDRESS);
    metrics_count(worker, METRICS_HTTP, METRICS_BYTES_IN, 10);
    metrics_count(worker, METRICS_HTTP, METRICS_BYTES_OUT, 20);
    metrics_asked(worker, METRICS_HTTP, 0, REPLY_DECIDED);
    metrics_asked(worker, METRICS_HTTP, 0, REPLY_CONFLICT);
    metrics_count(worker, METRICS_RESP, METRICS_MALFORMED, 1);
    metrics_event(worker, METRICS_BANS, 2);
    const char *page = page_of(METRICS_PROMETHEUS);
    assert_line(page, "stint_connections{frontend=\"http\"} 1");
    assert_line(page, "stint_connections_opened_total{frontend=\"http\"} 2");
    assert_line(page, "stint_connections_refused_total{frontend=\"resp\",reason=\"address\"} 1");
    assert_line(page, "stint_connections_refused_total{frontend=\"resp\",reason=\"total\"} 0");
    assert_line(page, "stint_received_bytes_total{frontend=\"http\"} 10");
    assert_line(page, "stint_sent_bytes_total{frontend=\"http\"} 20");
    assert_line(page, "stint_requests_total{frontend=\"http\",verb=\"take\"} 2");
    assert_line(page, "stint_request_errors_total{frontend=\"http\",error=\"conflict\"} 1");
    assert_line(page, "stint_malformed_total{frontend=\"resp\"} 1");
    assert_line(page, "stint_bans_total 2");
}

/* Each in the bucket whose bound it does not pass. */
TEST(test_durations_fallback_their_buckets)
{
    struct metrics_worker *worker = metrics_worker(fixture->metrics, 0);
    metrics_took(worker, 128, 1);
    metrics_took(worker, 129, 1);
    metrics_took(worker, 2560, 10); /* 256 ns each */
    metrics_took(worker, 3 * S, 1);
    metrics_took(worker, 5, 0); /* none were timed */
    const char *page = page_of(METRICS_PROMETHEUS);
    assert_line(page, "stint_decision_duration_seconds_bucket{le=\"1.28e-07\"} 1");
    assert_line(page, "stint_decision_duration_seconds_bucket{le=\"2.56e-07\"} 12");
    assert_line(page, "stint_decision_duration_seconds_bucket{le=\"0.033554432\"} 12");
    assert_line(page, "stint_decision_duration_seconds_bucket{le=\"+Inf\"} 13");
    assert_line(page, "stint_decision_duration_seconds_count 13");
    assert_line(page, "stint_decision_duration_seconds_sum 3.000002817");
}

static json_t *json_of(uint64_t now_ns)
{
    const struct metrics_facts facts = {.now_ns = now_ns, .generation = 4, .rules = 2};
    fixture->page.len = 0;
    metrics_json(fixture->metrics, &facts, &fixture->page);
    assert_false(fixture->page.failed);
    json_t *object = json_loadb(fixture->page.text, fixture->page.len, 0, NULL);
    assert_non_null(object);
    return object;
}

TEST(test_the_json_has_rates_and_a_past)
{
    for (unsigned second = 1; second <= METRICS_HISTORY + 5; second++) {
        for (int i = 0; i < 30; i++)
            decide(0, 0, i < 20 ? METRICS_ALLOW : METRICS_DENY, i < 20);
        metrics_took(metrics_worker(fixture->metrics, 0), 200, 1);
        metrics_tick(fixture->metrics, second * S);
    }
    metrics_reloaded(fixture->metrics, false, "rules.yaml:3: what \"is\" this?", 100 * S);
    uint64_t now_ns = (METRICS_HISTORY + 6) * S;
    json_t *stats = json_of(now_ns), *rates, *rules;
    double allowed, denied, age;
    json_int_t p99, failures, allow;
    const char *fault, *rule;
    assert_int_equal(json_unpack(stats, "{s:o, s:{s:I}, s:{s:I, s:s}, s:o}", "rates", &rates,
                                 "durations", "p99_ns", &p99, "reloads", "failure", &failures,
                                 "fault", &fault, "rules", &rules),
                     0);
    assert_int_equal(json_unpack(rates, "{s:F, s:F}", "allowed", &allowed, "denied", &denied), 0);
    assert_true(allowed == 20 && denied == 10);
    assert_int_equal(p99, 256);
    assert_int_equal(failures, 1);
    assert_string_equal(fault, "rules.yaml:3: what \"is\" this?");
    json_t *history = json_object_get(stats, "history");
    assert_int_equal(json_array_size(history), METRICS_HISTORY - 1);
    assert_int_equal(
        json_unpack(json_array_get(history, 0), "{s:F, s:F}", "age_s", &age, "allowed", &allowed),
        0);
    assert_true(age == METRICS_HISTORY - 1 && allowed == 20);
    assert_int_equal(json_array_size(rules), 1); /* the other was never asked */
    assert_int_equal(
        json_unpack(json_array_get(rules, 0), "{s:s, s:I}", "rule", &rule, "allow", &allow), 0);
    assert_string_equal(rule, "user");
    assert_int_equal(allow, 20 * (METRICS_HISTORY + 5));
    json_decref(stats);
    metrics_reloaded(fixture->metrics, true, "", 101 * S);
    stats = json_of(now_ns);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(stats, "reloads"), "fault")), "");
    json_decref(stats);
}

TEST(test_nothing_was_counted_yet)
{
    json_t *stats = json_of(S);
    assert_true(json_is_null(json_object_get(stats, "rates")));
    assert_int_equal(json_array_size(json_object_get(stats, "history")), 0);
    assert_true(json_is_null(json_object_get(json_object_get(stats, "durations"), "p50_ns")));
    json_decref(stats);
}
