/* SPDX-License-Identifier: MIT */
/* The metadata of an entry: kept with its rule as compact JSON, as others would read its YAML. */
#include "unit/test_rules.h"

#include "rules/yaml/read_limit.h"

#define ENTRY "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1}\n"

static void assert_kept(const char *yaml, const char *json)
{
    char text[16384];
    snprintf(text, sizeof(text), ENTRY "  metadata: %s\n", yaml);
    struct rules *rules = rules_of(text);
    struct span kept = rules_at(rules, 0)->metadata;
    if (!span_equals(kept, json))
        fail_msg("%s: expected %s, found %.*s", yaml, json, (int)kept.len, (const char *)kept.ptr);
    rules_unref(rules);
}

static void assert_refused(const char *yaml, const char *message)
{
    char *text = malloc(strlen(yaml) + 256);
    assert_non_null(text);
    sprintf(text, ENTRY "  metadata: %s\n", yaml);
    const struct rules_file file = {.path = "a.yaml", .text = span_of_text(text)};
    struct rules_diagnostics diagnostics;
    assert_null(rules_load(&file, 1, NULL, &diagnostics));
    assert_int_equal(diagnostics.n_diagnostics, 1);
    assert_string_equal(diagnostics.diagnostics[0].message, message);
    rules_diagnostics_free(&diagnostics);
    free(text);
}

TEST(test_a_mapping_is_kept_as_json)
{
    assert_kept("{service_with_quota: {name: service_2}}",
                "{\"service_with_quota\":{\"name\":\"service_2\"}}");
    assert_kept("{b: [1, {a: []}, {}], a: x}", "{\"b\":[1,{\"a\":[]},{}],\"a\":\"x\"}");
    assert_kept("{}", "");
    assert_kept("~", "");
}

TEST(test_texts_are_what_others_take_them_for)
{
    static const struct {
        const char *yaml, *json;
    } texts[] = {
        {"1", "1"},
        {"-1", "-1"},
        {"-0", "0"},
        {"0x1f", "31"},
        {"010", "8"},
        {"1_000", "1000"},
        {"18446744073709551615", "18446744073709551615"},
        {"18446744073709551616", "1.8446744073709552e+19"},
        {"1.5", "1.5"},
        {".5", "0.5"},
        {"0.1", "0.1"},
        {"08", "8"},
        {"1e3", "1000"},
        {"1e999", "\"1e999\""},
        {"1.2.3", "\"1.2.3\""},
        {"2001-12-14", "\"2001-12-14\""},
        {"on", "true"},
        {"False", "false"},
        {"~", "null"},
        {"''", "\"\""},
        {"'5'", "\"5\""},
        {"\"yes\"", "\"yes\""},
        {"!!str 5", "\"5\""},
        {".", "\".\""},
        {"\"a\\\"\\\\\\n\\0\\x7f\\u00e9\"", "\"a\\\"\\\\\\u000a\\u0000\\u007f\xc3\xa9\""},
    };
    char yaml[128], json[128];
    for (size_t i = 0; i < N(texts); i++) {
        snprintf(yaml, sizeof(yaml), "{a: %s}", texts[i].yaml);
        snprintf(json, sizeof(json), "{\"a\":%s}", texts[i].json);
        assert_kept(yaml, json);
    }
}

TEST(test_what_is_merged_counts_where_the_mapping_has_no_such_key)
{
    assert_kept("{x: &x {a: 1, b: 2}, y: {<<: *x, b: 3}}",
                "{\"x\":{\"a\":1,\"b\":2},\"y\":{\"b\":3,\"a\":1}}");
    assert_kept("{x: &x {a: 1}, y: &y {a: 2, c: 3}, z: {<<: [*x, *y]}}",
                "{\"x\":{\"a\":1},\"y\":{\"a\":2,\"c\":3},\"z\":{\"a\":1,\"c\":3}}");
    assert_kept("{<<: {<<: {a: 1, b: 2}, b: 3}, c: 4}", "{\"c\":4,\"b\":3,\"a\":1}");
}

TEST(test_each_rule_has_that_of_its_own_entry)
{
    struct rules *rules = rules_of("domain: d\n"
                                   "descriptors:\n"
                                   "- key: k\n"
                                   "  metadata: {outer: 1}\n"
                                   "  rate_limit: {unlimited: true}\n"
                                   "  descriptors:\n"
                                   "  - key: l\n"
                                   "    rate_limit: {unit: day, requests_per_unit: 1}\n"
                                   "  - key: m\n"
                                   "    metadata: {without: a limit}\n");
    assert_int_equal(rules_count(rules), 2);
    assert_int_equal(rules_at(rules, 0)->metadata.len, strlen("{\"outer\":1}"));
    assert_int_equal(rules_at(rules, 1)->metadata.len, 0);
    rules_unref(rules);
}

TEST(test_what_cannot_be_told_is_a_fault)
{
    assert_refused("x", "metadata: expected a mapping, found \"x\"");
    assert_refused("{a: 1, a: 2}", "metadata: this key is there already");
    assert_refused("{[1]: 2}", "metadata: expected a text as a key");
    assert_refused("{a: .inf}", "metadata: JSON has no such number; expected a finite one");
    assert_refused("{<<: 5}", "<<: expected a mapping or a list of mappings, found neither");
}

static char *filled(const char *head, char c, size_t n, const char *tail)
{
    char *text = malloc(strlen(head) + n + strlen(tail) + 1);
    assert_non_null(text);
    strcpy(text, head);
    memset(text + strlen(head), c, n);
    strcpy(text + strlen(head) + n, tail);
    return text;
}

/* {"a":"…"} is eight bytes and what stands in it. */
TEST(test_it_has_a_greatest_length_and_depth)
{
    char *longest = filled("{a: ", 'x', METADATA_MAX - 8, "}");
    char *longer = filled("{a: ", 'x', METADATA_MAX - 7, "}");
    char *deepest = filled("{a: ", '[', METADATA_DEPTH_MAX - 1, "");
    char *deeper = filled("{a: ", '[', METADATA_DEPTH_MAX, "");
    struct rules *rules;
    char *text = malloc(METADATA_MAX + 256);
    assert_non_null(text);
    sprintf(text, ENTRY "  metadata: %s\n", longest);
    rules = rules_of(text);
    assert_int_equal(rules_at(rules, 0)->metadata.len, METADATA_MAX);
    rules_unref(rules);
    assert_refused(longer, "metadata: expected at most 4096 bytes as JSON");

    char *closed = filled(deepest, 'x', 1, "]]]]]]]]]]]]]]]}");
    sprintf(text, ENTRY "  metadata: %s\n", closed);
    rules_unref(rules_of(text));
    free(closed);
    closed = filled(deeper, 'x', 1, "]]]]]]]]]]]]]]]]}");
    assert_refused(closed, "metadata: nested more than 16 levels deep");
    free(closed);
    free(deeper);
    free(deepest);
    free(longer);
    free(longest);
    free(text);
}
