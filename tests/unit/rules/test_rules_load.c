/* SPDX-License-Identifier: MIT */
/* Files of rules without fault: what each key means, and by what a rule is known again. */
#include "unit/test_rules.h"

/* One entry with these lines in its rate_limit, which begin at line 5, column 7. */
#define LIMIT(lines) "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n" lines
#define UNIT "      unit: minute\n"
#define TEN "      requests_per_unit: 10\n"

/* ---- What is understood ---------------------------------------------------------------------- */

TEST(test_limits_become_quotas)
{
    static const struct {
        const char *lines, *spec;
        uint8_t unit;
    } cases[] = {
        {"unit: second, requests_per_unit: 10", "window 10/1s", RULE_SECOND},
        {"unit: MINUTE, requests_per_unit: 10", "window 10/1m", RULE_MINUTE},
        {"unit: Hour, requests_per_unit: 0", "window 0/1h", RULE_HOUR},
        {"unit: day, requests_per_unit: 1_000", "window 1000/1d", RULE_DAY},
        {"unit: week, requests_per_unit: 10", "window 10/1w", RULE_WEEK},
        {"unit: month, requests_per_unit: 10", "fixed_window 10/1mo align=calendar", RULE_MONTH},
        {"unit: year, requests_per_unit: 10", "fixed_window 10/1y align=calendar", RULE_YEAR},
        {"unit: month, calendar: fixed, requests_per_unit: 10", "window 10/30d", RULE_MONTH},
        {"unit: year, calendar: FIXED, requests_per_unit: 10, algorithm: gcra", "gcra 10/365d",
         RULE_YEAR},
        {"unit: week, calendar: utc, requests_per_unit: 10", "fixed_window 10/1w align=calendar",
         RULE_WEEK},
        {"unit: day, utc_offset: -05:30, requests_per_unit: 10",
         "fixed_window 10/1d align=calendar utc_offset=-05:30", RULE_DAY},
        {"unit: day, algorithm: fixed_window, requests_per_unit: 10", "fixed_window 10/1d",
         RULE_DAY},
        {"period: 36h, requests_per_unit: 10", "window 10/36h", RULE_UNIT_NONE},
        {"period: 60s, requests_per_unit: 10", "window 10/1m", RULE_MINUTE},
        {"period: 30d, requests_per_unit: 10", "window 10/30d", RULE_UNIT_NONE},
        {"unit: minute, requests_per_unit: 10, algorithm: token_bucket, burst: 3, count_denied: on",
         "gcra 10/1m burst=3 count_denied=true", RULE_MINUTE},
        {"unit: minute, requests_per_unit: 10, resolution: 12", "window 10/1m resolution=12",
         RULE_MINUTE},
        {"unit: minute, requests_per_unit: 20, algorithm: buckets, time_slack: 6s, count_slack: 4",
         "buckets 20/1m time_slack=6s count_slack=4", RULE_MINUTE},
        {"algorithm: concurrency, requests_per_unit: 10, lease: 30s", "concurrency 10 lease=30s",
         RULE_UNIT_NONE},
        {"unit: second, requests_per_unit: 4294967295", "window 4294967295/1s", RULE_SECOND},
    };
    for (size_t i = 0; i < N(cases); i++) {
        char text[512];
        snprintf(text, sizeof(text), "{domain: d, descriptors: [{key: k, rate_limit: {%s}}]}",
                 cases[i].lines);
        struct rules *rules = rules_of(text);
        struct stint_quota expected = quota_of(cases[i].spec);
        const struct rule *rule = rules_at(rules, 0);
        expected.rule = rule->id;
        assert_memory_equal(&rule->quota, &expected, sizeof(expected));
        assert_int_equal(rule->unit, cases[i].unit);
        assert_int_equal(rule->requests_per_unit, expected.limit);
        rules_unref(rules);
    }
}

TEST(test_a_limit_that_names_no_algorithm_has_the_default)
{
    const struct rules_load_options options = {.default_algorithm = STINT_GCRA};
    const char *texts[] = {"{domain: d, descriptors: [{key: a, rate_limit: {unit: day, "
                           "requests_per_unit: 5, burst: 2},"
                           " shadow: {unit: day, requests_per_unit: 3}},"
                           "{key: b, rate_limit: {unit: month, requests_per_unit: 5}}]}",
                           NULL};
    struct rules *rules = rules_of_files(texts, &options);
    assert_int_equal(rules_at(rules, 0)->quota.algorithm, STINT_GCRA);
    assert_int_equal(rules_at(rules, 0)->shadow.algorithm, STINT_GCRA);
    assert_int_equal(rules_at(rules, 1)->quota.algorithm, STINT_FIXED_WINDOW);
    rules_unref(rules);
}

TEST(test_what_stands_beside_a_limit)
{
    struct rules *rules = rules_of("domain: d\n"
                                   "descriptors:\n"
                                   "  - key: a\n"
                                   "    value: x*\n"
                                   "    share_threshold: yes\n"
                                   "    value_to_metric: true\n"
                                   "    metadata: {unknown: {key: [1]}}\n"
                                   "    descriptors:\n"
                                   "      - key: b\n"
                                   "        value: 7\n"
                                   "        shadow_mode: true\n"
                                   "        quota_mode: on\n"
                                   "        detailed_metric: True\n"
                                   "        rate_limit:\n"
                                   "          name: inner\n"
                                   "          replaces: [{name: p}, {name: q}]\n"
                                   "          on_store_error: local\n"
                                   "          unit: minute\n"
                                   "          requests_per_unit: 10\n"
                                   "        shadow: {algorithm: log, period: 5s,"
                                   " requests_per_unit: 3}\n"
                                   "        ban: {after: 5, for: 15m, within: 1h, factor: 2,"
                                   " max: 1d}\n");
    const struct rule *rule = rules_at(rules, 0);
    struct stint_quota shadow = quota_of("log 3/5s");
    assert_int_equal(rules_count(rules), 1);
    assert_string_equal(rule->domain, "d");
    assert_string_equal(rule->path, "a=x*.b=7");
    assert_string_equal(rule->name, "inner");
    assert_string_equal(rule->file, "a.yaml");
    assert_int_equal(rule->line, 9);
    assert_int_equal(rule->column, 9);
    assert_true(rule->shadow_mode && rule->quota_mode && rule->detailed_metric);
    assert_true(rule->share_threshold && rule->value_to_metric && rule->has_shadow);
    assert_false(rule->unlimited);
    assert_int_equal(rule->store.on_error, RULE_STORE_ERROR_LOCAL);
    assert_int_equal(rule->n_replaces, 2);
    assert_string_equal(rule->replaces[0], "p");
    assert_string_equal(rule->replaces[1], "q");
    assert_int_not_equal(rule->shadow.rule, 0);
    assert_int_not_equal(rule->shadow.rule, rule->id);
    shadow.rule = rule->shadow.rule;
    assert_memory_equal(&rule->shadow, &shadow, sizeof(shadow));
    assert_int_equal(rule->ban.after, 5);
    assert_int_equal(rule->ban.factor, 2);
    assert_int_equal(rule->ban.for_ns, 15 * MINUTE);
    assert_int_equal(rule->ban.within_ns, 60 * MINUTE);
    assert_int_equal(rule->ban.max_ns, DAY);
    rules_unref(rules);
}

TEST(test_what_a_ban_leaves_out)
{
    struct rules *rules = rules_of(LIMIT(UNIT TEN "    ban: {after: 3, for: 10m}\n"));
    const struct rule *rule = rules_at(rules, 0);
    assert_int_equal(rule->ban.factor, 1);
    assert_int_equal(rule->ban.within_ns, 10 * MINUTE);
    assert_int_equal(rule->ban.max_ns, 365 * DAY);
    rules_unref(rules);
}

/* As envoyproxy/ratelimit takes them: nulls, numbers as texts, flags where there is no limit. */
TEST(test_what_others_accept_is_accepted)
{
    struct rules *rules = rules_of("---\n"
                                   "domain: d\n"
                                   "descriptors:\n"
                                   "  - key: 5\n"
                                   "    value: true\n"
                                   "    rate_limit: ~\n"
                                   "    descriptors:\n"
                                   "    shadow_mode: true\n"
                                   "  - key: k\n"
                                   "    value:\n"
                                   "    rate_limit: {unlimited: true, requests_per_unit: 5}\n"
                                   "  - {key: k, value: 1.50, rate_limit:"
                                   " {unit: day, requests_per_unit: 1, unlimited: no}}\n"
                                   "...\n");
    assert_int_equal(rules_count(rules), 2);
    assert_string_equal(rules_at(rules, 0)->path, "k");
    assert_true(rules_at(rules, 0)->unlimited);
    assert_string_equal(rules_at(rules, 1)->path, "k=1.50");
    rules_unref(rules);
}

/* Some editors write a mark of UTF-8 first. */
TEST(test_a_mark_before_the_text_is_skipped)
{
    struct rules *rules = rules_of("\xef\xbb\xbf"
                                   "domain: d\n"
                                   "descriptors:\n"
                                   "  - key: k\n"
                                   "    rate_limit: {unit: day, requests_per_unit: 1}\n");
    assert_int_equal(rules_count(rules), 1);
    rules_unref(rules);
}

TEST(test_anchors_and_merges_stand_for_what_they_name)
{
    struct rules *rules = rules_of("domain: d\n"
                                   "descriptors:\n"
                                   "  - {key: a, rate_limit: &usual {unit: day,"
                                   " requests_per_unit: 5, name: usual}}\n"
                                   "  - {key: b, rate_limit: *usual}\n"
                                   "  - {key: c, rate_limit: {<<: *usual, unit: hour}}\n"
                                   "  - {key: e, rate_limit: {<<: [{unit: week}, *usual]}}\n");
    static const char *const specs[] = {"window 5/1d", "window 5/1d", "window 5/1h", "window 5/1w"};
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota expected = quota_of(specs[i]);
        expected.rule = rules_at(rules, i)->id;
        assert_memory_equal(&rules_at(rules, i)->quota, &expected, sizeof(expected));
        assert_string_equal(rules_at(rules, i)->name, "usual");
    }
    rules_unref(rules);
}

TEST(test_domains_come_in_the_order_of_files)
{
    static const struct rules_load_options merging = {.merge_domains = true};
    const char *texts[] = {"domain: b", "domain: a\ndescriptors: [{key: k}]",
                           "domain: b\ndescriptors: [{key: k}, {key: l}]", NULL};
    struct rules *rules = rules_of_files(texts, &merging);
    assert_string_equal(rules_domain(rules, 0), "b");
    assert_string_equal(rules_domain(rules, 1), "a");
    assert_null(rules_domain(rules, 2));
    assert_true(rules_has_domain(rules, span_of_text("a")));
    assert_false(rules_has_domain(rules, span_of_text("")));
    assert_false(rules_has_domain(rules, span_of_text("ab")));
    rules_unref(rules);
}

TEST(test_no_files_are_no_rules)
{
    struct rules_diagnostics diagnostics;
    struct rules *rules = rules_load(NULL, 0, NULL, &diagnostics);
    assert_non_null(rules);
    assert_int_equal(rules_count(rules), 0);
    assert_null(rules_at(rules, 0));
    assert_null(rules_domain(rules, 0));
    assert_false(rules_has_domain(rules, span_of_text("d")));
    rules_unref(rules_ref(rules));
    rules_unref(rules);
    rules_unref(NULL);
    rules_diagnostics_free(&diagnostics);
}

/* ---- Identities ------------------------------------------------------------------------------ */

static uint64_t id_of(const char *entries, size_t index)
{
    char text[512];
    snprintf(text, sizeof(text), "{domain: d, descriptors: [%s]}", entries);
    struct rules *rules = rules_of(text);
    uint64_t id = rules_at(rules, index)->id;
    rules_unref(rules);
    return id;
}

#define DAILY "rate_limit: {unit: day, requests_per_unit: 1}"
#define NAMED "rate_limit: {unit: day, requests_per_unit: 1, name: n}"

TEST(test_a_rule_keeps_its_identity_while_its_place_and_name_stay)
{
    uint64_t id = id_of("{key: a, value: b, " DAILY "}", 0);
    assert_int_equal(id, id_of("{key: z, " DAILY "}, {key: a, value: b, " DAILY "}", 1));
    assert_int_equal(id, id_of("{key: a, value: b, shadow_mode: true, rate_limit: "
                               "{unit: hour, requests_per_unit: 9, algorithm: gcra}}",
                               0));
    const uint64_t others[] = {
        id_of("{key: a, value: b, " NAMED "}", 0),
        id_of("{key: a, " DAILY "}", 0),
        id_of("{key: ab, " DAILY "}", 0),
        id_of("{key: a_b, " DAILY "}", 0),
        id_of("{key: a, value: b, descriptors: [{key: a, value: b, " DAILY "}]}", 0),
        id_of("{key: a, descriptors: [{key: b, " DAILY "}]}", 0),
        id_of("{key: a, value: b*, " DAILY "}", 0),
    };
    for (size_t i = 0; i < N(others); i++) {
        assert_int_not_equal(others[i], id);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(others[i], others[j]);
    }
}

/* Tables and stores outlive versions of this library: what is written under an id stays there. */
TEST(test_an_identity_is_the_same_in_every_build)
{
    assert_int_equal(id_of("{key: a, value: b, " NAMED "}", 0), UINT64_C(0xe5d7371ba4eb5a54));
}
