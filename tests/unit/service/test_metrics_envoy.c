/* SPDX-License-Identifier: MIT */
/* Figures under envoyproxy/ratelimit's names: what is counted, how it is called, and no name twice.
 */
#include "unit/test_quota.h"

#include "rules/yaml/rules_load.h"
#include "service/metrics/metrics.h"

#define SHOP                                                                                       \
    "domain: shop\n"                                                                               \
    "descriptors:\n"                                                                               \
    "  - key: user\n"                                                                              \
    "    rate_limit: {unit: minute, requests_per_unit: 10}\n"                                      \
    "  - key: path\n"                                                                              \
    "    value: /a\n"                                                                              \
    "    descriptors:\n"                                                                           \
    "      - key: ip\n"                                                                            \
    "        detailed_metric: true\n"                                                              \
    "        rate_limit: {unit: minute, requests_per_unit: 10}\n"                                  \
    "  - key: a\n"                                                                                 \
    "    value: b\n"                                                                               \
    "    rate_limit: {unit: minute, requests_per_unit: 10}\n"                                      \
    "  - key: a_b\n"                                                                               \
    "    rate_limit: {unit: minute, requests_per_unit: 10}\n"                                      \
    "  - key: host\n"                                                                              \
    "    value: www.example.org\n"                                                                 \
    "    rate_limit: {unit: minute, requests_per_unit: 10}\n"

enum { USER, IP, A_WITH_B, A_B, HOST };

struct fixture {
    struct metrics *metrics;
    struct rules *rules;
    struct metrics_bound *bound;
    struct page page;
};

static struct fixture fixture[1];

SETUP
{
    struct rules_diagnostics diagnostics;
    const struct rules_file file = {.path = "rules.yaml", .text = span_of_text(SHOP)};
    *fixture = (struct fixture){.metrics = metrics_new(2)};
    fixture->rules = rules_load(&file, 1, &(struct rules_load_options){0}, &diagnostics);
    rules_diagnostics_free(&diagnostics);
    metrics_count_hits(fixture->metrics, METRICS_NAMES_ENVOY, 800);
    fixture->bound = metrics_bind(fixture->metrics, fixture->rules);
}

TEARDOWN
{
    metrics_unbind(fixture->bound);
    metrics_free(fixture->metrics);
    rules_unref(fixture->rules);
    page_free(&fixture->page);
}

static void ask(size_t rule, struct metrics_hits hits)
{
    hits.limit = 10;
    metrics_hits(metrics_worker(fixture->metrics, (unsigned)rule % 2), fixture->bound,
                 rules_at(fixture->rules, rule), &hits);
}

static const char *text_of(bool is_stats)
{
    const struct metrics_facts facts = {.now_ns = S, .generation = 1, .loads = 2, .rules = 4};
    fixture->page.len = 0;
    if (is_stats)
        metrics_envoy_stats(fixture->metrics, &facts, &fixture->page);
    else
        metrics_write(fixture->metrics, &facts, METRICS_PROMETHEUS, &fixture->page);
    assert_false(fixture->page.failed);
    page_add_span(&fixture->page, span_of("", 1));
    return fixture->page.text;
}

static void assert_stat(const char *name, unsigned n)
{
    char line[256];
    snprintf(line, sizeof(line), "ratelimit.service.rate_limit.shop.%s: %u", name, n);
    assert_line(text_of(true), line);
}

TEST(test_units_are_counted_by_what_became_of_them)
{
    ask(USER, (struct metrics_hits){.asked = 5, .remaining = 5});
    assert_stat("user.near_limit", 0);
    ask(USER, (struct metrics_hits){.asked = 4, .remaining = 1}); /* 9: one past 8 */
    assert_stat("user.near_limit", 1);
    ask(USER, (struct metrics_hits){.asked = 1, .remaining = 0});
    ask(USER, (struct metrics_hits){.asked = 3, .remaining = 0, .is_over = true});
    ask(USER,
        (struct metrics_hits){.asked = 2, .remaining = 0, .is_over = true, .is_shadow = true});
    assert_stat("user.total_hits", 15);
    assert_stat("user.within_limit", 10);
    assert_stat("user.over_limit", 5);
    assert_stat("user.near_limit", 2);
    assert_stat("user.shadow_mode", 2);
}

/* 9 of 10 were used: the next one fits, and the other four are over. */
TEST(test_a_charge_is_over_by_what_did_not_fit)
{
    ask(USER, (struct metrics_hits){.asked = 5, .is_over = true, .fitted = 1});
    assert_stat("user.total_hits", 5);
    assert_stat("user.within_limit", 0);
    assert_stat("user.over_limit", 4);
    assert_stat("user.near_limit", 1);
    ask(USER, (struct metrics_hits){.asked = 3, .is_over = true, .is_shadow = true, .fitted = 1});
    assert_stat("user.shadow_mode", 2);
}

TEST(test_one_that_nobody_asked_is_told)
{
    assert_stat("user.total_hits", 0);
    assert_line(text_of(true), "ratelimit.service.config_load_success: 2");
    assert_line(text_of(false),
                "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"user\"} 0");
    assert_null(strstr(text_of(false), "stint_")); /* nor under other names */
}

/* Two rules that theirs would count in one figure, too: a page with a name twice is refused. */
TEST(test_equal_names_are_summed)
{
    ask(A_WITH_B, (struct metrics_hits){.asked = 2, .remaining = 8});
    ask(A_B, (struct metrics_hits){.asked = 1, .remaining = 9});
    assert_stat("a_b.total_hits", 3);
    const char *page = text_of(false);
    const char *line = "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"a_b\"} 3";
    assert_line(page, line);
    assert_null(
        strstr(strstr(page, line) + strlen(line), "total_hits{domain=\"shop\",key1=\"a_b\"}"));
}

TEST(test_values_have_metrics_of_their_own)
{
    ask(IP, (struct metrics_hits){.value = span_of_text("/a\x1f"
                                                        "1.2.3.4"),
                                  .asked = 1,
                                  .remaining = 9});
    ask(IP,
        (struct metrics_hits){.value = span_of_text("/a\x1fodd one"), .asked = 1, .remaining = 9});
    const char *page = text_of(false);
    assert_line(page, "ratelimit_service_rate_limit_total_hits"
                      "{domain=\"shop\",key1=\"path_/a\",key2=\"ip_1_2_3_4\"} 1");
    assert_line(page, "ratelimit_service_rate_limit_total_hits"
                      "{domain=\"shop\",key1=\"path_/a\",key2=\"ip_odd one\"} 1");
    assert_null(strstr(page, "key2=\"ip\""));
    assert_stat("path_/a.ip_odd one.total_hits", 1);
}

static void ask_ip(const char *values)
{
    ask(IP, (struct metrics_hits){.value = span_of_text(values), .asked = 1, .remaining = 9});
}

/* A label has UTF-8; bytes that are none, and what is not to be seen, are told by number. */
TEST(test_values_are_utf8)
{
    ask_ip("/a\x1fz\xc3\xbcrich");
    ask_ip("/a\x1f\xc3(");
    ask_ip("/a\x1f\xe2\x80\xae"
           "x");
    assert_stat("path_/a.ip_z\xc3\xbcrich.total_hits", 1);
    assert_stat("path_/a.ip_\\xc3(.total_hits", 1);
    assert_stat("path_/a.ip_\\xe2\\x80\\xaex.total_hits", 1);
    assert_line(text_of(false), "ratelimit_service_rate_limit_total_hits"
                                "{domain=\"shop\",key1=\"path_/a\","
                                "key2=\"ip_z\xc3\xbcrich\"} 1");
}

/* A dot begins the next entry: a host would have as many as it has dots. */
TEST(test_dots_and_marks_of_statsd_in_values)
{
    ask(HOST, (struct metrics_hits){.asked = 1, .remaining = 9});
    ask_ip("/a\x1f::1|2.3");
    assert_stat("host_www_example_org.total_hits", 1);
    assert_stat("path_/a.ip___1_2_3.total_hits", 1);
    assert_line(text_of(false), "ratelimit_service_rate_limit_total_hits"
                                "{domain=\"shop\",key1=\"host_www_example_org\"} 1");
}

TEST(test_an_empty_value_has_the_name_of_the_key)
{
    ask_ip("/a\x1f");
    assert_stat("path_/a.ip.total_hits", 1);
}

TEST(test_values_are_bounded)
{
    char value[32];
    for (int i = 0; i < METRICS_DETAILS_MAX + 50; i++) {
        snprintf(value, sizeof(value), "/a\x1fv%d", i);
        ask(IP, (struct metrics_hits){.value = span_of_text(value), .asked = 1, .remaining = 9});
    }
    size_t lines = 0;
    for (const char *at = text_of(false);
         (at = strstr(at, "rate_limit_total_hits{domain=\"shop\",key1=\"path_/a\"")) != NULL; at++)
        lines++;
    assert_int_equal(lines, METRICS_DETAILS_MAX + 1);
    assert_line(text_of(false), "ratelimit_service_rate_limit_total_hits"
                                "{domain=\"shop\",key1=\"path_/a\",key2=\"ip_other\"} 50");
}
